//! A tool out of a function or closure that takes its arguments as one struct.

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

/// What a tool that is made of a function or closure may take as its arguments: a struct that derives
/// `serde::Deserialize` and `schemars::JsonSchema`, each field an argument.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a tool",
    label = "must implement `serde::Deserialize` and `schemars::JsonSchema`",
    note = "for a struct of your own, add `#[derive(serde::Deserialize, schemars::JsonSchema)]`"
)]
pub trait ToolArguments: DeserializeOwned + JsonSchema + 'static {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + 'static> ToolArguments for T {}

/// A tool made of a function or closure, where `#[tool]` does not reach: one that holds state, or is made
/// at run time.
///
/// The fields of the struct that it takes are the tool's arguments, and their doc comments what the model
/// is told of them. An `Option`, or a field with `#[serde(default)]`, may be left out. They are read as those of
/// `#[tool]` functions are: what is wrong in form and clear in meaning is mended, and all mistakes are told at
/// once. An argument that the struct does not have is a mistake.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use tool_core::schemars::JsonSchema;
/// use tool_core::{FunctionTool, Tool, ToolCall, ToolContext, ToolSet};
///
/// /// Writes a note down.
/// #[derive(serde::Deserialize, JsonSchema)]
/// struct Note {
///     /// as short as can be
///     text: String,
/// }
///
/// # futures_util::FutureExt::now_or_never(async {
/// let notes = Arc::new(Mutex::new(Vec::new()));
/// let write = FunctionTool::new("write", "", {
///     let notes = Arc::clone(&notes);
///     move |note: Note| notes.lock().unwrap().push(note.text)
/// });
/// assert_eq!(write.definition().description(), Some("Writes a note down."));
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
    /// The schema of the arguments' type, if it promises what reading the type does not see to.
    promises: Option<Value>,
    code: Box<dyn Code>,
}

impl FunctionTool {
    /// A tool of this name, whose description is for the model; if it is blank, the doc comment of the struct stands in for it.
    ///
    /// The function takes nothing, its arguments, or its arguments and a [`ToolContext`]; see [`ToolHandler`] for
    /// what else it may be. Arguments of type `()` or of a unit struct are none.
    ///
    /// The arguments must be a struct, or a map. Only its schema tells that, so anything else, such as
    /// `|x: u32|`, is refused by [`ToolSet::new`](crate::ToolSet::new), as is a second tool of the same name.
    #[track_caller]
    #[must_use]
    pub fn new<Handler, Marker>(
        name: impl Into<String>,
        description: impl Into<String>,
        function: Handler,
    ) -> Self
    where
        Handler: ToolHandler<Marker>,
        Handler::Arguments: ToolArguments,
        Marker: 'static,
    {
        let code = Typed { function, marker: PhantomData };
        Self::from_code(name.into(), description.into(), Box::new(code), Location::caller())
    }

    fn from_code(
        name: String,
        description: String,
        code: Box<dyn Code>,
        declared_at: &'static Location<'static>,
    ) -> Self {
        let schema = code.schema();
        let promises = schema_limits::has_limits(&schema).then(|| schema.clone());
        let (parameters, documentation) = schema::arguments_schema_for_providers(schema);
        let description = match description.trim() {
            "" => documentation.unwrap_or_default(),
            _ => description,
        };
        let definition = ToolDefinition::new(name, description).with_parameters(parameters);
        Self { definition, declared_at, promises, code }
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

/// Names the tool only.
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
            // That of a type without fields is not an object's.
            false => Cow::Borrowed(self.parameters()),
        }
    }

    fn call(&self, object: &str, context: &ToolContext, _is_last: bool) -> Option<ToolFuture<'static>> {
        self.code.call(object, context)
    }

    /// Names that serde takes and the schema does not tell of, by `#[serde(alias = "…")]`: given twice, they are a
    /// duplicate of a field, whereas what is skipped may be given as often as one likes.
    fn takes(&self, name: &str, value: &RawValue) -> bool {
        let name = Value::from(name);
        let twice = format!("{{{name}:{value},{name}:{value}}}");
        self.code.error(&twice).is_some_and(|error| error.to_string().starts_with("duplicate field"))
    }

    fn broken(&self, name: &str, value: &str) -> Option<String> {
        let promises = self.promises.as_ref()?;
        let properties = promises.get("properties").and_then(|properties| properties.get(name));
        let schema = properties.or_else(|| promises.get("additionalProperties"))?;
        let LimitViolation { path, expected, value } =
            schema_limits::find_violation(promises, schema, value)?;
        Some(explain::limit_violation(name, &path, &expected, value))
    }

    fn error(&self, object: &str) -> Option<serde_json::Error> {
        self.code.error(object)
    }
}

/// What there is of a tool for each function.
trait Code: Send + Sync {
    fn schema(&self) -> Value;

    /// Calls the function if the text of an object holds its arguments.
    fn call(&self, object: &str, context: &ToolContext) -> Option<ToolFuture<'static>>;

    /// Why the text does not hold its arguments.
    fn error(&self, object: &str) -> Option<serde_json::Error>;
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
        let arguments = read::<Handler::Arguments>(object).ok()?;
        Some(self.function.call(arguments, context))
    }

    fn error(&self, object: &str) -> Option<serde_json::Error> {
        read::<Handler::Arguments>(object).err()
    }
}

fn read<T: DeserializeOwned>(object: &str) -> serde_json::Result<T> {
    serde_json::from_str(object).or_else(|error| match object.split_ascii_whitespace().collect::<String>() {
        // A type without fields has no arguments, and is read from `null`.
        empty if empty == "{}" => serde_json::from_str("null").map_err(|_| error),
        _ => Err(error),
    })
}
