//! A tool out of a name, a description and a JSON Schema, all known at run time only.

mod error;
mod limits;

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use jsonschema::{Draft, PatternOptions, Validator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use self::error::DynamicToolError;
use self::error::{Flaw, Kind, cut};
use super::object::ObjectTool;
use crate::arguments::{Judge, Verdict};
use crate::model::ToolDefinition;
use crate::tool::{Tool, ToolContext, ToolError, ToolFuture, ToolHandler, object};

/// How large a compiled regular expression may be, in bytes.
const LARGEST_PATTERN: usize = 1 << 19;

/// A tool that is made at run time: of a name, a description, a JSON Schema and an executor.
///
/// The schema comes from a database, a file, or another program's list of tools, and is sent to the model as it
/// is. What the model writes is checked by it before the executor runs; what is wrong in form and clear in meaning is
/// mended, and all mistakes are told at once, as with `#[tool]` functions. So:
///
/// - An argument that the schema does not list is refused, unless the schema says `additionalProperties`, or is put
///   together of others by `allOf`, `$ref`, `patternProperties` and the like.
/// - `null` for what may be left out means that it is left out, unless the schema allows `null`: the
///   executor does not see it then.
/// - A `default` is told to the model and not filled in: the executor knows what is absent.
/// - `format` is told to the model and not checked, as drafts since 2019-09 have it.
/// - The executor gets integers without a fraction: `2` where the model wrote `2.0`. What neither an `i64` nor a `u64` can
///   hold is an `f64`, as `serde_json` reads it; who needs all digits asks for a string.
///
/// ```
/// use std::sync::Arc;
///
/// use serde_json::{Value, json};
/// use tool_core::tool::DynamicTool;
/// use tool_core::{Tool, ToolCall, ToolContext, ToolSet};
///
/// # futures_util::FutureExt::now_or_never(async {
/// let schema = json!({
///     "type": "object",
///     "properties": { "city": { "type": "string" }, "days": { "type": "integer", "minimum": 1 } },
///     "required": ["city"],
/// });
/// let forecast = DynamicTool::new("forecast", "Tells the weather to come", schema, |arguments: Value| async move {
///     let days = arguments["days"].as_u64().unwrap_or(3);
///     format!("{days} days of rain in {}", arguments["city"])
/// })?;
/// let set = ToolSet::new([Arc::new(forecast) as Arc<dyn Tool>])?;
///
/// let call = ToolCall::new("call_1", "forecast", r#"{"city": "Rome", "days": "2"}"#);
/// let output = set.call(&call, &ToolContext::new()).await?;
/// assert_eq!(output.to_string(), r#"2 days of rain in "Rome""#);
///
/// let call = ToolCall::new("call_2", "forecast", r#"{"days": 0}"#);
/// let error = set.call(&call, &ToolContext::new()).await.unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "invalid arguments: `city` is missing, expected a string; `days`: expected an integer from 1, got 0",
/// );
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).unwrap().unwrap();
/// ```
pub struct DynamicTool {
    definition: ToolDefinition,
    declared_at: &'static Location<'static>,
    draft: Draft,
    validator: Validator,
    executor: Box<dyn Execute>,
}

impl DynamicTool {
    /// A tool of this name and description, which takes what the schema says.
    ///
    /// The schema is JSON Schema of draft 2020-12, or of the draft that its `$schema` names: 2019-09, draft-07 or draft-06.
    ///
    /// The executor takes the arguments as a [`Value`], as a `Map`, or as any type that can be read from the object, and
    /// a [`ToolContext`] if it needs one; see [`ToolHandler`]. Arguments that fit the schema and not the type fail the call.
    ///
    /// # Errors
    ///
    /// The schema is not that of an object, is no valid JSON Schema, refers to anything outside of itself (no
    /// file and no network is ever touched), or is larger than is reasonable: more than 1 MiB, nested deeper than 127
    /// levels, with references that multiply, with regular expressions that are too large or cannot be
    /// matched in linear time.
    #[track_caller]
    pub fn new<Handler, Marker>(
        name: impl Into<String>,
        description: impl Into<String>,
        schema: Value,
        executor: Handler,
    ) -> Result<Self, DynamicToolError>
    where
        Handler: ToolHandler<Marker>,
        Handler::Arguments: DeserializeOwned,
        Marker: 'static,
    {
        let executor = Typed { executor, marker: PhantomData };
        Self::from_executor(name.into(), description.into(), schema, Box::new(executor), Location::caller())
    }

    fn from_executor(
        name: String,
        description: String,
        schema: Value,
        executor: Box<dyn Execute>,
        declared_at: &'static Location<'static>,
    ) -> Result<Self, DynamicToolError> {
        match compile(&schema) {
            Ok((draft, validator)) => {
                let definition = ToolDefinition::new(name, description).with_parameters(schema);
                Ok(Self { definition, declared_at, draft, validator, executor })
            }
            Err(flaw) => {
                limits::dismantle(schema);
                Err(DynamicToolError::new(&name, flaw))
            }
        }
    }
}

fn compile(schema: &Value) -> Result<(Draft, Validator), Flaw> {
    limits::check_size(schema)?;
    let draft = draft_of(schema)?;
    match schema.get("type") {
        Some(kind) if kind == "object" => {}
        Some(kind) => {
            let reason =
                format!("its `type` is {}, but arguments are an `\"object\"`", cut(&kind.to_string()));
            return Err(Flaw::new(Kind::NoObject, reason));
        }
        None => {
            let reason = "it has no `type`; at the root, write `\"type\": \"object\"`";
            return Err(Flaw::new(Kind::NoObject, reason));
        }
    }
    limits::check_references(schema)?;
    let validator = options(draft).build(schema).map_err(|error| invalid(&error))?;
    Ok((draft, validator))
}

fn options(draft: Draft) -> jsonschema::ValidationOptions<'static> {
    jsonschema::options()
        .with_draft(draft)
        .offline()
        .should_validate_formats(false)
        .with_pattern_options(PatternOptions::regex().size_limit(LARGEST_PATTERN))
}

fn draft_of(schema: &Value) -> Result<Draft, Flaw> {
    let Some(named) = schema.get("$schema") else { return Ok(Draft::Draft202012) };
    let name = named.as_str().unwrap_or_default().trim_end_matches('#');
    let (_, name) = name.split_once("://json-schema.org/").unwrap_or_default();
    match name {
        "draft/2020-12/schema" => Ok(Draft::Draft202012),
        "draft/2019-09/schema" => Ok(Draft::Draft201909),
        "draft-07/schema" => Ok(Draft::Draft7),
        "draft-06/schema" => Ok(Draft::Draft6),
        _ => {
            let reason = format!(
                "its `$schema` is {}; JSON Schema of the drafts 2020-12, 2019-09, 07 and 06 can be used",
                cut(&named.to_string())
            );
            Err(Flaw::new(Kind::Invalid, reason))
        }
    }
}

fn invalid(error: &jsonschema::ValidationError<'_>) -> Flaw {
    let path = error.instance_path().as_str();
    let place = match path.trim_start_matches('/').replace('/', ".") {
        path if path.is_empty() => "at the root".into(),
        path => format!("at `{}`", cut(&path)),
    };
    let is_pattern = path.ends_with("/pattern") || path.contains("/patternProperties/");
    let reason = if is_pattern && error.instance().is_string() {
        format!(
            "the regular expression {} {place} is not valid, is too large, or has what cannot be matched in linear \
             time, such as look-around and back references",
            cut(&error.instance().to_string())
        )
    } else {
        format!("it is no valid JSON Schema {place}: {}", cut(&error.to_string()))
    };
    Flaw::new(Kind::Invalid, reason)
}

impl Tool for DynamicTool {
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
impl fmt::Debug for DynamicTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DynamicTool").field(&self.definition.name()).finish()
    }
}

impl ObjectTool for DynamicTool {
    fn parameters(&self) -> &Value {
        self.definition.parameters()
    }

    fn call(&self, object: &str, context: &ToolContext, is_last: bool) -> Option<ToolFuture<'static>> {
        let arguments: Value = serde_json::from_str(object).ok()?;
        // To the schema `2.0` is an integer; to who asks the value for one it is none.
        let could_be_mended = !is_last && has_whole_float(&arguments);
        (!could_be_mended && self.validator.is_valid(&arguments))
            .then(|| self.executor.execute(arguments, context))
    }

    fn judge(&self) -> Option<&dyn Judge> {
        Some(self)
    }
}

impl Judge for DynamicTool {
    /// What is a part of the tool's schema is as safe to compile as that.
    fn verdict(&self, mut part: Map<String, Value>) -> Option<Verdict> {
        if part.contains_key("$ref") || part.values().any(refers) {
            for keyword in ["$defs", "definitions"] {
                let definitions = self.definition.parameters().get(keyword);
                part.extend(definitions.map(|definitions| (keyword.to_owned(), definitions.clone())));
            }
        }
        // It may refer to what is neither in it nor in the definitions.
        let validator = options(self.draft).build(&Value::Object(part)).ok()?;
        Some(Box::new(move |text| serde_json::from_str(text).is_ok_and(|value| validator.is_valid(&value))))
    }
}

/// There is a `$ref` somewhere in it, or what looks like one.
fn refers(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.iter().any(refers),
        Value::Object(members) => members.contains_key("$ref") || members.values().any(refers),
        _ => false,
    }
}

fn has_whole_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            number.is_f64() && number.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        Value::Array(values) => values.iter().any(has_whole_float),
        Value::Object(members) => members.values().any(has_whole_float),
        _ => false,
    }
}

/// What there is of a tool for each executor.
trait Execute: Send + Sync {
    fn execute(&self, arguments: Value, context: &ToolContext) -> ToolFuture<'static>;
}

struct Typed<Handler, Marker> {
    executor: Handler,
    marker: PhantomData<fn() -> Marker>,
}

impl<Handler, Marker> Execute for Typed<Handler, Marker>
where
    Handler: ToolHandler<Marker>,
    Handler::Arguments: DeserializeOwned,
{
    fn execute(&self, arguments: Value, context: &ToolContext) -> ToolFuture<'static> {
        let takes_none = TypeId::of::<Handler::Arguments>() == TypeId::of::<()>();
        match serde_json::from_value(if takes_none { Value::Null } else { arguments }) {
            Ok(arguments) => self.executor.call(arguments, context),
            Err(error) => {
                let message = format!("invalid arguments: {error}");
                ToolFuture::ready(Err(ToolError::invalid_arguments(message)))
            }
        }
    }
}
