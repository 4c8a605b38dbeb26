//! Tools whose schema the provider enforces on the model.

use std::panic::Location;
use std::sync::OnceLock;

use serde_json::Value;

use crate::arguments::{duplicate_members, without_omitted};
use crate::model::{StrictError, ToolDefinition};
use crate::schema::{SchemaOf, Shape};
use crate::tool::{Injection, Tool, ToolContext, ToolFuture};

/// A tool with a strict definition.
///
/// Strict mode requires every property, so the model writes `null` for one that it omits. Such a `null` is removed before
/// the tool sees the arguments.
pub(crate) struct StrictTool<T> {
    tool: T,
    definition: ToolDefinition,
    /// The form of the tool's own parameters.
    shape: OnceLock<Shape>,
}

impl<T: AsRef<dyn Tool>> StrictTool<T> {
    pub(crate) fn new(tool: T) -> Result<Self, StrictError> {
        let definition = tool.as_ref().definition().clone().into_strict()?;
        Ok(Self { tool, definition, shape: OnceLock::new() })
    }
}

impl<T: AsRef<dyn Tool> + Send + Sync> Tool for StrictTool<T> {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        let tool = self.tool.as_ref();
        match remove_omitted(&self.shape, tool.definition().parameters(), arguments) {
            None => tool.call(arguments, context),
            Some(arguments) => ToolFuture::wrapping(async move {
                let mut call = tool.call(&arguments, context);
                let outcome = (&mut call).await;
                (outcome, call.take_repairs())
            }),
        }
    }

    fn injections(&self) -> Option<&[Injection]> {
        self.tool.as_ref().injections()
    }

    fn declared_at(&self) -> Option<&'static Location<'static>> {
        self.tool.as_ref().declared_at()
    }

    fn origin(&self) -> Option<&str> {
        self.tool.as_ref().origin()
    }

    fn is_agent(&self) -> bool {
        self.tool.as_ref().is_agent()
    }
}

/// Removes each `null` that the strict form requires for an omitted argument. Returns `None` if there is none. `shape` is that of
/// `parameters`, the tool's own, once it is needed.
pub(super) fn remove_omitted(shape: &OnceLock<Shape>, parameters: &Value, arguments: &str) -> Option<String> {
    // Of a text that is refused for its duplicates, nothing must be removed before.
    if !arguments.contains("null") || !duplicate_members(arguments).is_empty() {
        return None;
    }
    let shape = shape.get_or_init(|| Shape::parse(parameters, SchemaOf::Document));
    without_omitted(shape, shape.root(), arguments)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures_util::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::model::ToolCall;
    use crate::tool::ToolOutput;
    use crate::toolset::ToolSet;

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
