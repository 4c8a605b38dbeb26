//! The tool from a function or closure.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use serde_json::Value;

use super::handler::ToolHandler;
use crate::arguments::{Contract, Mode};
use crate::model::ToolDefinition;
use crate::schema;
use crate::tool::arguments::decode_arguments;
use crate::tool::future::blocking_call;
use crate::tool::settings::{Settings, impl_options};
use crate::tool::{Tool, ToolArguments, ToolContext, ToolError, ToolFuture};

/// A tool from a function or closure, for tools that `#[tool]` cannot declare: those that capture state or are created at
/// run time.
///
/// The fields of the struct that it takes are the tool's arguments, and their doc comments are the descriptions for the
/// model. An `Option`, or a field with `#[serde(default)]`, is optional. Arguments are read as for `#[tool]`
/// functions: values that are wrong in form but clear in meaning are repaired, and all mistakes are reported at once.
/// An argument that the struct does not have is a mistake.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use tool_core::schemars::JsonSchema;
/// use tool_core::{FunctionTool, Tool, ToolCall, ToolContext, ToolSet};
///
/// /// Stores a note.
/// #[derive(serde::Deserialize, JsonSchema)]
/// struct Note {
///     /// as short as possible
///     text: String,
/// }
///
/// # futures_util::FutureExt::now_or_never(async {
/// let notes = Arc::new(Mutex::new(Vec::new()));
/// let write = FunctionTool::new("write", {
///     let notes = Arc::clone(&notes);
///     move |note: Note| notes.lock().unwrap().push(note.text)
/// });
/// assert_eq!(write.definition().description(), Some("Stores a note."));
///
/// let set = ToolSet::new([Arc::new(write) as Arc<dyn Tool>])?;
/// let call = ToolCall::new("call_1", "write", r#"{"text": "buy milk"}"#);
/// let output = set.call(&call, &ToolContext::new()).await?;
/// assert_eq!(output.to_string(), "Success");
/// assert_eq!(*notes.lock().unwrap(), ["buy milk"]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).unwrap().unwrap();
/// ```
///
/// The options of `#[tool(…)]` are methods:
///
/// ```
/// use std::time::Duration;
///
/// use tool_core::{FunctionTool, Tool};
///
/// let restart = FunctionTool::new("restart", || async { "restarted" })
///     .description("Restarts the server")
///     .needs_approval()
///     .timeout(Duration::from_secs(30));
/// assert!(restart.definition().policy().needs_approval);
/// ```
#[must_use]
pub struct FunctionTool {
    settings: Settings,
    declared_at: &'static Location<'static>,
    code: Arc<Code>,
    check: Arc<Check>,
}

/// Reads the arguments and calls the function.
type Code = dyn Fn(&str, &ToolContext) -> ToolFuture<'static> + Send + Sync;

/// Reads the arguments.
type Check = dyn Fn(&str, Mode) -> Result<(), ToolError> + Send + Sync;

impl_options!(FunctionTool);

impl FunctionTool {
    /// Creates a tool with the given name. The doc comment of the arguments' struct is its description;
    /// [`description`](Self::description) replaces it.
    ///
    /// The function takes no parameters, its arguments, or its arguments and a [`ToolContext`]; see [`ToolHandler`] for
    /// details. A tool whose arguments are `()` or a unit struct has no arguments.
    ///
    /// The arguments must be a struct or a map. Only the schema shows whether they are, so anything else, such as
    /// `|x: u32|`, is refused by [`ToolSet::new`](crate::ToolSet::new).
    #[track_caller]
    pub fn new<Handler, Marker>(name: impl Into<String>, function: Handler) -> Self
    where
        Handler: ToolHandler<Marker>,
        Handler::Arguments: ToolArguments,
        Marker: 'static,
    {
        let schema = schema::arguments_schema::<Handler::Arguments>();
        let contract = Arc::new(Contract::of_type(schema.clone()));
        let checked = Arc::clone(&contract);
        let check = move |arguments: &str, mode: Mode| {
            decode_arguments::<Handler::Arguments>(arguments, &checked, mode).map(drop)
        };
        let code = move |arguments: &str, context: &ToolContext| match decode_arguments::<Handler::Arguments>(
            arguments,
            &contract,
            context.read_mode(),
        ) {
            Ok((arguments, repairs)) => function.call(arguments, context).with_repairs(repairs),
            Err(error) => ToolFuture::ready(Err(error)),
        };
        Self::from_code(name.into(), schema, Arc::new(code), Arc::new(check), Location::caller())
    }

    fn from_code(
        name: String,
        schema: Value,
        code: Arc<Code>,
        check: Arc<Check>,
        declared_at: &'static Location<'static>,
    ) -> Self {
        let (parameters, documentation) = schema::arguments_schema_for_providers(schema);
        let definition = ToolDefinition::new(name).with_parameters(parameters);
        let definition = match documentation {
            Some(documentation) => definition.with_description(documentation),
            None => definition,
        };
        Self { settings: Settings::new(definition), declared_at, code, check }
    }
}

impl Tool for FunctionTool {
    fn definition(&self) -> &ToolDefinition {
        &self.settings.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        let call = if self.settings.is_blocking {
            let (code, arguments, context) = (Arc::clone(&self.code), arguments.to_owned(), context.clone());
            blocking_call(move || code(&arguments, &context))
        } else {
            (self.code)(arguments, context)
        };
        self.settings.apply(call, context)
    }

    fn check_arguments(&self, arguments: &str, context: &ToolContext) -> Result<(), ToolError> {
        (self.check)(arguments, context.read_mode())
    }

    fn declared_at(&self) -> Option<&'static Location<'static>> {
        Some(self.declared_at)
    }
}

/// Shows only the name of the tool.
impl fmt::Debug for FunctionTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FunctionTool").field(&self.settings.definition.name()).finish()
    }
}
