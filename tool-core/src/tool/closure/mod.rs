//! Tools from functions and closures that take their arguments as one struct.

mod handler;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

pub use self::handler::ToolHandler;
use super::object::ObjectTool;
use crate::arguments::{LimitViolation, explain, schema_limits};
use crate::model::ToolDefinition;
use crate::schema;
use crate::tool::{Tool, ToolContext, ToolFuture, object};

/// The arguments of a [`FunctionTool`]: a struct that derives `serde::Deserialize` and `schemars::JsonSchema`. Each field
/// is an argument.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a tool",
    label = "must implement `serde::Deserialize` and `schemars::JsonSchema`",
    note = "for a struct of your own, add `#[derive(serde::Deserialize, schemars::JsonSchema)]`"
)]
pub trait ToolArguments: DeserializeOwned + JsonSchema + 'static {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + 'static> ToolArguments for T {}

/// A tool from a function or closure, for tools that `#[tool]` cannot declare: those that capture state or are created at
/// run time.
///
/// The fields of the struct that it takes are the tool's arguments, and their doc comments are the descriptions for the
/// model. An `Option`, or a field with `#[serde(default)]`, is optional. Arguments are read like those of `#[tool]`
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
pub struct FunctionTool {
    definition: ToolDefinition,
    declared_at: &'static Location<'static>,
    /// The schema of the arguments' type, if it contains limits that deserializing the type does not enforce.
    type_limits: Option<Value>,
    code: Box<dyn Code>,
}

impl FunctionTool {
    /// Creates a tool with the given name. The doc comment of the arguments' struct is its description; see
    /// [`with_description`](Self::with_description) for another.
    ///
    /// The function takes no parameters, its arguments, or its arguments and a [`ToolContext`]; see [`ToolHandler`] for
    /// details. A tool whose arguments are `()` or a unit struct has no arguments.
    ///
    /// The arguments must be a struct or a map. Only the schema shows whether they are, so anything else, such as
    /// `|x: u32|`, is refused by [`ToolSet::new`](crate::ToolSet::new).
    #[track_caller]
    #[must_use]
    pub fn new<Handler, Marker>(name: impl Into<String>, function: Handler) -> Self
    where
        Handler: ToolHandler<Marker>,
        Handler::Arguments: ToolArguments,
        Marker: 'static,
    {
        let code = Typed { function, marker: PhantomData };
        Self::from_code(name.into(), Box::new(code), Location::caller())
    }

    /// Returns this tool with a description for the model, which replaces the doc comment of the arguments' struct.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.definition = self.definition.with_description(description);
        self
    }

    fn from_code(name: String, code: Box<dyn Code>, declared_at: &'static Location<'static>) -> Self {
        let schema = code.schema();
        let type_limits = schema_limits::has_limits(&schema).then(|| schema.clone());
        let (parameters, documentation) = schema::arguments_schema_for_providers(schema);
        let definition = ToolDefinition::new(name).with_parameters(parameters);
        let definition = match documentation {
            Some(documentation) => definition.with_description(documentation),
            None => definition,
        };
        Self { definition, declared_at, type_limits, code }
    }
}

impl Tool for FunctionTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        object::call(self, arguments, context)
    }

    fn declared_at(&self) -> Option<&'static Location<'static>> {
        Some(self.declared_at)
    }
}

/// Shows only the name of the tool.
impl fmt::Debug for FunctionTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FunctionTool").field(&self.definition.name()).finish()
    }
}

impl ObjectTool for FunctionTool {
    fn parameters(&self) -> &Value {
        self.definition.parameters()
    }

    fn schema(&self) -> Cow<'_, Value> {
        let schema = self.code.schema();
        match schema.get("type").is_some_and(|kind| kind == "object") {
            true => Cow::Owned(schema),
            // The schema of a type without fields does not describe an object.
            false => Cow::Borrowed(self.parameters()),
        }
    }

    fn call(&self, object: &str, context: &ToolContext, _is_last: bool) -> Option<ToolFuture<'static>> {
        self.code.call(object, context)
    }

    /// Detects names that serde accepts and the schema does not list, such as those of `#[serde(alias = "…")]`: if
    /// repeated, they are a duplicate field, whereas unknown names can be repeated.
    fn accepts_unlisted(&self, name: &str, value: &RawValue) -> bool {
        let name = Value::from(name);
        let repeated = format!("{{{name}:{value},{name}:{value}}}");
        self.code.parse_error(&repeated).is_some_and(|error| error.to_string().starts_with("duplicate field"))
    }

    fn violated_limit(&self, name: &str, value: &str) -> Option<String> {
        let schema = self.type_limits.as_ref()?;
        let property = schema.get("properties").and_then(|properties| properties.get(name));
        let property = property.or_else(|| schema.get("additionalProperties"))?;
        let LimitViolation { path, expected, value } =
            schema_limits::find_violation(schema, property, value)?;
        Some(explain::limit_violation(name, &path, &expected, value))
    }

    fn parse_error(&self, object: &str) -> Option<serde_json::Error> {
        self.code.parse_error(object)
    }
}

/// The part of a tool that depends on its function.
trait Code: Send + Sync {
    fn schema(&self) -> Value;

    /// Calls the function if the text of an object contains valid arguments.
    fn call(&self, object: &str, context: &ToolContext) -> Option<ToolFuture<'static>>;

    /// Returns the error of deserializing the arguments from the text.
    fn parse_error(&self, object: &str) -> Option<serde_json::Error>;
}

struct Typed<Handler, Marker> {
    function: Handler,
    marker: PhantomData<fn() -> Marker>,
}

impl<Handler, Marker> Code for Typed<Handler, Marker>
where
    Handler: ToolHandler<Marker>,
    Handler::Arguments: ToolArguments,
{
    fn schema(&self) -> Value {
        schema::arguments_schema::<Handler::Arguments>()
    }

    fn call(&self, object: &str, context: &ToolContext) -> Option<ToolFuture<'static>> {
        let arguments = parse::<Handler::Arguments>(object).ok()?;
        Some(self.function.call(arguments, context))
    }

    fn parse_error(&self, object: &str) -> Option<serde_json::Error> {
        parse::<Handler::Arguments>(object).err()
    }
}

fn parse<T: DeserializeOwned>(object: &str) -> serde_json::Result<T> {
    serde_json::from_str(object).or_else(|error| match object.split_ascii_whitespace().collect::<String>() {
        // A type without fields has no arguments and is deserialized from `null`.
        empty if empty == "{}" => serde_json::from_str("null").map_err(|_| error),
        _ => Err(error),
    })
}
