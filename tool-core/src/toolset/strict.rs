//! Tools in strict form.

use std::sync::OnceLock;

use super::redefined::Form;
use crate::model::StrictError;
use crate::toolset::{ToolRef, ToolSet, ToolSetError};

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
        // The names are valid, because they are those of a set.
        self.map_tools(|tool| Ok(to_strict(tool).unwrap_or_else(|_| tool.clone()))).unwrap_or(self)
    }
}

fn to_strict(tool: &ToolRef) -> Result<ToolRef, StrictError> {
    let definition = tool.get().definition();
    if definition.is_strict() {
        return Ok(tool.clone());
    }
    Ok(tool.redefined(definition.clone().into_strict()?, Form::Strict(OnceLock::new())))
}

#[cfg(test)]
mod tests {
    use std::panic::Location;
    use std::sync::{Arc, Mutex};

    use futures_util::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::model::{ToolCall, ToolDefinition};
    use crate::tool::{Injection, Tool, ToolContext, ToolFuture, ToolOutput};

    /// Records the arguments of its calls.
    struct Recorder {
        definition: ToolDefinition,
        calls: Mutex<Vec<String>>,
    }

    impl Recorder {
        fn new(parameters: serde_json::Value) -> Arc<Self> {
            let definition = ToolDefinition::new("record").with_parameters(parameters);
            Arc::new(Self { definition, calls: Mutex::default() })
        }
    }

    impl Tool for Recorder {
        fn definition(&self) -> &ToolDefinition {
            &self.definition
        }

        fn call<'a>(&'a self, arguments: &'a str, _: &'a ToolContext) -> ToolFuture<'a> {
            self.calls.lock().unwrap().push(arguments.to_owned());
            ToolFuture::boxed(async move { Ok(ToolOutput::text(arguments)) })
        }

        fn injections(&self) -> Option<&[Injection]> {
            Some(&[])
        }

        fn declared_at(&self) -> Option<&'static Location<'static>> {
            Some(Location::caller())
        }
    }

    fn open() -> serde_json::Value {
        json!({ "type": "object", "properties": { "labels": { "type": "object", "additionalProperties": true } } })
    }

    #[test]
    fn passes_the_arguments_that_the_tools_own_schema_describes() {
        let tool = Recorder::new(json!({
            "type": "object",
            "properties": { "a": { "type": "integer" }, "b": { "type": ["integer", "null"] } },
        }));
        let set = ToolSet::new([Arc::clone(&tool) as Arc<dyn Tool>]).unwrap();
        let strict = set.clone().strict_arguments().strict().unwrap();
        for (arguments, expected) in [
            (r#"{"a": null, "b": null}"#, r#"{"b":null}"#),
            (r#"{"a": 1, "b": null}"#, r#"{"a": 1, "b": null}"#),
            ("{broken: null", "{broken: null"),
        ] {
            let call = ToolCall::new("1", "record", arguments);
            let output = strict.call(&call, &ToolContext::new()).now_or_never().unwrap().unwrap();
            assert_eq!(output.to_string(), expected);
            assert_eq!(tool.calls.lock().unwrap().pop().unwrap(), expected);
        }
        let wrapped = strict.get("record").unwrap();
        assert!(wrapped.definition().is_strict() && !set.get("record").unwrap().definition().is_strict());
        assert!(wrapped.declared_at().is_some() && wrapped.injections().is_some());
    }

    #[test]
    fn keeps_strict_tools_unchanged() {
        let set = ToolSet::new([Recorder::new(json!({ "type": "object" })) as Arc<dyn Tool>]).unwrap();
        let once = set.strict().unwrap();
        let twice = once.clone().strict().unwrap();
        assert_eq!(once.definitions(), twice.definitions());
        let address = |set: &ToolSet| std::ptr::from_ref(set.get("record").unwrap()).cast::<u8>();
        assert_eq!(address(&once), address(&twice));
    }

    #[test]
    fn an_error_names_the_tool_and_the_path() {
        let text = "the tool `record` has no strict form: `$.properties.labels`: strict mode does not support maps \
                    with arbitrary keys; use a list of pairs";
        let error = Recorder::new(open()).definition.clone().into_strict().unwrap_err();
        assert_eq!((error.tool(), error.path()), ("record", "$.properties.labels"));
        assert_eq!((error.to_string(), format!("{error:?}")), (text.to_owned(), text.to_owned()));
        let set = ToolSet::new([Recorder::new(open()) as Arc<dyn Tool>]).unwrap();
        let error = set.strict().unwrap_err();
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
