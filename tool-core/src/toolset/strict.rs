//! Tools in strict form.

use std::sync::OnceLock;

use super::redefined::Converted;
use super::set::ToolRef;
use crate::arguments::without_omitted_arguments;
use crate::model::StrictError;
use crate::tool::ToolContext;
use crate::toolset::{ToolSet, ToolSetError};

impl ToolSet {
    /// Converts all tools to their [strict form](crate::model::ToolDefinition::into_strict). Providers that support it constrain
    /// the model to the schemas, so that all arguments have the required form.
    ///
    /// ```
    /// use tool_core::{tool, tools};
    ///
    /// /// Books a hotel.
    /// #[tool]
    /// fn stay(city: String, nights: Option<u8>) -> String {
    ///     format!("{} nights in {city}", nights.unwrap_or(1))
    /// }
    ///
    /// let set = tools![stay].strict()?;
    /// let stay = set.get("stay").unwrap().definition();
    /// assert_eq!(stay.parameters()["required"], serde_json::json!(["city", "nights"]));
    /// # Ok::<_, tool_core::toolset::ToolSetError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if strict mode does not support the parameters of a tool. The error names the tool and the path in its
    /// parameters.
    pub fn strict(self) -> Result<Self, ToolSetError> {
        self.map_tools(|tool| {
            to_strict(tool).map_err(|error| ToolSetError::no_strict_form(&error.to_string()))
        })
    }

    /// Converts tools to their [strict form](crate::model::ToolDefinition::into_strict) where they have one and leaves the others
    /// unchanged: [`strict`](Self::strict) without the error.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use tool_core::{tool, tools};
    ///
    /// /// Books a hotel.
    /// #[tool]
    /// fn stay(city: String) {}
    ///
    /// /// Sets labels with any names, which strict mode does not support.
    /// #[tool]
    /// fn label(labels: BTreeMap<String, String>) {}
    ///
    /// let set = tools![stay, label].strict_where_possible();
    /// let is_strict = ["stay", "label"].map(|name| set.get(name).unwrap().definition().is_strict());
    /// assert_eq!(is_strict, [true, false]);
    /// ```
    #[must_use]
    pub fn strict_where_possible(self) -> Self {
        // The names are valid, because they come from a set.
        self.map_tools(|tool| Ok(to_strict(tool).unwrap_or_else(|_| tool.clone()))).unwrap_or(self)
    }
}

fn to_strict(tool: &ToolRef) -> Result<ToolRef, StrictError> {
    let definition = tool.get().definition();
    if definition.is_strict() {
        return Ok(tool.clone());
    }
    let strict = definition.clone().into_strict()?;
    // Strict mode requires every property, so the model writes `null` for one that it omits.
    let (own, shape) = (tool.clone(), OnceLock::new());
    let convert = move |arguments: &str, _: &ToolContext, _| {
        let own = without_omitted_arguments(&shape, own.get().definition().parameters(), arguments);
        Ok((own, Vec::new()))
    };
    let injections = tool.get().injections().map(<[_]>::to_vec);
    Ok(tool.converted(strict, Converted { convert: Box::new(convert), injections }))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{ToolCall, ToolDefinition};
    use crate::tool::{Tool, ToolFuture, ToolOutput};

    /// Returns its arguments.
    struct Echo(ToolDefinition);

    impl Tool for Echo {
        fn definition(&self) -> &ToolDefinition {
            &self.0
        }

        fn call<'a>(&'a self, arguments: &'a str, _: &'a ToolContext) -> ToolFuture<'a> {
            ToolFuture::ready(Ok(ToolOutput::text(arguments)))
        }
    }

    fn set(parameters: Value) -> ToolSet {
        ToolSet::default().with(Echo(ToolDefinition::new("echo").with_parameters(parameters))).unwrap()
    }

    fn open() -> Value {
        json!({ "type": "object", "properties": { "labels": { "type": "object", "additionalProperties": true } } })
    }

    #[test]
    fn passes_the_arguments_that_the_tools_own_schema_describes() {
        let set = set(json!({
            "type": "object",
            "properties": { "a": { "type": "integer" }, "b": { "type": ["integer", "null"] } },
        }));
        let strict = set.clone().no_repair().strict().unwrap();
        for (arguments, expected) in [
            (r#"{"a": null, "b": null}"#, r#"{"b":null}"#),
            (r#"{"a": 1, "b": null}"#, r#"{"a": 1, "b": null}"#),
            ("{broken: null", "{broken: null"),
        ] {
            let call = ToolCall::new("1", "echo", arguments);
            let output = strict.call(&call, &ToolContext::new()).now_or_never().unwrap().unwrap();
            assert_eq!(output.to_string(), expected);
        }
        assert!(strict.definitions()[0].is_strict() && !set.definitions()[0].is_strict());
    }

    #[test]
    fn keeps_strict_tools_unchanged() {
        let once = set(json!({ "type": "object" })).strict().unwrap();
        let twice = once.clone().strict().unwrap();
        assert_eq!(once.definitions(), twice.definitions());
        let address = |set: &ToolSet| std::ptr::from_ref(set.get("echo").unwrap()).cast::<u8>();
        assert_eq!(address(&once), address(&twice));
    }

    #[test]
    fn an_error_names_the_tool_and_the_path() {
        let text = "the tool `echo` has no strict form: `$.properties.labels`: strict mode does not support maps \
                    with arbitrary keys; use a list of pairs";
        let error = set(open()).definitions()[0].clone().into_strict().unwrap_err();
        assert_eq!((error.tool(), error.path()), ("echo", "$.properties.labels"));
        assert_eq!((error.to_string(), format!("{error:?}")), (text.to_owned(), text.to_owned()));
        let error = set(open()).strict().unwrap_err();
        assert_eq!(error.kind(), crate::toolset::ToolSetErrorKind::NoStrictForm);
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn serializes_whether_a_definition_is_strict() {
        let definition = ToolDefinition::new("now");
        assert_eq!(serde_json::to_value(&definition).unwrap().get("strict"), None);
        let strict = definition.clone().into_strict().unwrap();
        let written = serde_json::to_value(&strict).unwrap();
        assert_eq!(written["strict"], true);
        assert_eq!(serde_json::from_value::<ToolDefinition>(written).unwrap(), strict);
        assert_ne!(strict, definition);
        assert!(!strict.with_parameters(open()).is_strict());
    }
}
