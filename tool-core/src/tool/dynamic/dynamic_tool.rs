//! The tool from a JSON Schema and an executor.

use std::any::TypeId;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use jsonschema::{Draft, PatternOptions, Validator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::{DynamicToolError, DynamicToolErrorKind, Flaw, cut};
use super::{limits, numbers};
use crate::arguments::{
    ArgumentErrors, Contract, IgnoredMember, IsValid, Refused, Repair, SchemaValidator, Target, Typed, decode,
};
use crate::model::ToolDefinition;
use crate::schema::{SchemaOf, Shape};
use crate::tool::closure::ToolHandler;
use crate::tool::future::blocking_call;
use crate::tool::settings::{Settings, impl_options};
use crate::tool::{Tool, ToolContext, ToolError, ToolFuture};

/// The maximum size of a compiled regular expression, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 19;

/// A tool that is created at run time from a name, a JSON Schema and an executor.
///
/// The schema can come from a database, a file, or another program's list of tools, and is sent to the model unchanged.
/// Arguments are checked against it before the executor runs. As with `#[tool]` functions, values that are wrong in form
/// but clear in meaning are repaired, and all mistakes are reported at once:
///
/// - An argument that the schema does not list is refused, unless the schema has `additionalProperties`, or is composed
///   of others by `allOf`, `$ref`, `patternProperties` and the like.
/// - `null` for an optional argument means that it is omitted, unless the schema allows `null`. The executor does not see
///   it.
/// - A `default` is sent to the model but not filled in, so the executor sees that the argument is absent.
/// - `format` is sent to the model but not checked, in accordance with drafts since 2019-09.
/// - The executor receives integers without a fraction: `2` if the model wrote `2.0`, and `0` for `-0`. An integer that fits
///   neither an `i64` nor a `u64` is refused where the schema requires an integer. Elsewhere it is an `f64`, as in
///   `serde_json`; use a string to preserve all digits.
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
/// let forecast = DynamicTool::new("forecast", schema, |arguments: Value| async move {
///     let days = arguments["days"].as_u64().unwrap_or(3);
///     format!("{days} days of rain in {}", arguments["city"])
/// })?
/// .description("Returns the weather forecast");
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
///
/// The options of `#[tool(…)]` are methods, such as [`needs_approval`](Self::needs_approval).
#[must_use]
pub struct DynamicTool {
    settings: Settings,
    /// The schema of the arguments. The model may be sent the strict form of it.
    schema: Arc<Value>,
    declared_at: &'static Location<'static>,
    draft: Draft,
    validator: Validator,
    contract: Contract,
    executor: Arc<Execute>,
}

/// Converts the arguments and calls the executor.
type Execute = dyn Fn(Value, &ToolContext) -> ToolFuture<'static> + Send + Sync;

impl_options!(DynamicTool);

impl DynamicTool {
    /// Creates a tool with the given name and the schema of its arguments.
    ///
    /// The schema is JSON Schema of draft 2020-12, or of the draft that its `$schema` names: 2019-09, draft-07 or draft-06.
    ///
    /// The executor takes the arguments as a [`Value`], a `Map`, or any type that can be deserialized from the object, and
    /// optionally a [`ToolContext`]; see [`ToolHandler`]. Arguments that match the schema but not the type fail the call.
    ///
    /// # Errors
    ///
    /// Returns an error if the schema does not describe an object, is not valid JSON Schema, refers to anything outside of
    /// itself (files and the network are never accessed), or is too large: more than 1 MiB, nested deeper than 100 levels,
    /// with references that multiply, or with regular expressions that are too large or cannot be matched in linear time.
    #[track_caller]
    pub fn new<Handler, Marker>(
        name: impl Into<String>,
        schema: Value,
        executor: Handler,
    ) -> Result<Self, DynamicToolError>
    where
        Handler: ToolHandler<Marker>,
        Handler::Arguments: DeserializeOwned,
        Marker: 'static,
    {
        Self::from_definition(ToolDefinition::new(name).with_parameters(schema), executor)
    }

    /// Creates a tool with this definition and its policy: another tool's definition, or one that was stored.
    ///
    /// ```
    /// use serde_json::{Value, json};
    /// use tool_core::Tool;
    /// use tool_core::model::ToolDefinition;
    /// use tool_core::tool::DynamicTool;
    ///
    /// let stored = r#"{
    ///     "name": "delete_page",
    ///     "description": "Deletes a page",
    ///     "parameters": { "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] },
    ///     "policy": { "needs_approval": true }
    /// }"#;
    /// let definition: ToolDefinition = serde_json::from_str(stored)?;
    /// let delete = DynamicTool::from_definition(definition, |arguments: Value| format!("deleted {}", arguments["path"]))?;
    /// assert!(delete.definition().policy().needs_approval);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if its parameters cannot be used; see [`new`](Self::new).
    #[track_caller]
    pub fn from_definition<Handler, Marker>(
        definition: ToolDefinition,
        executor: Handler,
    ) -> Result<Self, DynamicToolError>
    where
        Handler: ToolHandler<Marker>,
        Handler::Arguments: DeserializeOwned,
        Marker: 'static,
    {
        let takes_none = TypeId::of::<Handler::Arguments>() == TypeId::of::<()>();
        let execute =
            move |arguments: Value, context: &ToolContext| match serde_json::from_value(if takes_none {
                Value::Null
            } else {
                arguments
            }) {
                Ok(arguments) => executor.call(arguments, context),
                Err(error) => {
                    let message = format!("invalid arguments: {error}");
                    ToolFuture::ready(Err(ToolError::invalid_arguments(message)))
                }
            };
        Self::from_executor(definition, Arc::new(execute), Location::caller())
    }

    /// Checks whether a schema is small enough, without the rest of what [`new`](Self::new) does with it.
    ///
    /// # Errors
    ///
    /// Returns the reason if it is too large or nested too deeply.
    pub fn check_size(schema: &Value) -> Result<(), String> {
        limits::check_size(schema).map_err(|flaw| flaw.reason)
    }

    fn from_executor(
        definition: ToolDefinition,
        executor: Arc<Execute>,
        declared_at: &'static Location<'static>,
    ) -> Result<Self, DynamicToolError> {
        match compile(definition.parameters()) {
            Ok((draft, validator)) => {
                let schema = Arc::new(definition.parameters().clone());
                let described = Arc::clone(&schema);
                let contract = Contract::validated(move || Shape::parse(&described, SchemaOf::Document));
                Ok(Self {
                    settings: Settings::new(definition),
                    schema,
                    declared_at,
                    draft,
                    validator,
                    contract,
                    executor,
                })
            }
            Err(flaw) => {
                let error = DynamicToolError::new(definition.name(), flaw);
                limits::dismantle(definition.into_parameters());
                Err(error)
            }
        }
    }
}

fn compile(schema: &Value) -> Result<(Draft, Validator), Flaw> {
    limits::check_size(schema)?;
    let draft = draft_of(schema)?;
    match schema.get("type") {
        Some(kind) if kind == "object" => {}
        kind => {
            let reason = match kind {
                Some(kind) => format!("its `type` is {}, but must be `\"object\"`", cut(&kind.to_string())),
                None => "it has no `type`; add `\"type\": \"object\"` at the root".into(),
            };
            return Err(Flaw::new(DynamicToolErrorKind::NotAnObject, reason));
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
        .with_keyword("type", numbers::type_keyword)
        .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN_BYTES))
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
                "its `$schema` is {}; the supported drafts are 2020-12, 2019-09, 07 and 06",
                cut(&named.to_string())
            );
            Err(Flaw::new(DynamicToolErrorKind::InvalidSchema, reason))
        }
    }
}

fn invalid(error: &jsonschema::ValidationError<'_>) -> Flaw {
    let path = error.instance_path().as_str();
    let location = match path.trim_start_matches('/').replace('/', ".") {
        path if path.is_empty() => "at the root".into(),
        path => format!("at `{}`", cut(&path)),
    };
    let is_pattern = path.ends_with("/pattern") || path.contains("/patternProperties/");
    let reason = if is_pattern && error.instance().is_string() {
        format!(
            "the regular expression {} {location} is invalid, too large, or uses features that cannot be matched in \
             linear time, such as look-around and back-references",
            cut(&error.instance().to_string())
        )
    } else {
        format!("it is not a valid JSON Schema {location}: {}", cut(&error.to_string()))
    };
    Flaw::new(DynamicToolErrorKind::InvalidSchema, reason)
}

impl DynamicTool {
    fn decode(&self, arguments: &str, context: &ToolContext) -> Result<(Value, Vec<Repair>), ArgumentErrors> {
        let mode = context.read_mode();
        let mut target =
            ValidatedArguments { tool: self, arguments: None, can_be_repaired: !mode.forbids_repair };
        let repairs = decode(arguments, &self.contract, mode, &mut |decoder| {
            decoder.read_object(&mut target);
        })?;
        Ok((target.arguments.unwrap_or_default(), repairs))
    }
}

impl Tool for DynamicTool {
    fn definition(&self) -> &ToolDefinition {
        &self.settings.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        let (arguments, repairs) = match self.decode(arguments, context) {
            Ok(decoded) => decoded,
            Err(errors) => return self.settings.apply(ToolFuture::ready(Err(errors.into())), context),
        };
        let call = if self.settings.is_blocking {
            let (executor, context) = (Arc::clone(&self.executor), context.clone());
            blocking_call(move || executor(arguments, &context))
        } else {
            (self.executor)(arguments, context)
        };
        self.settings.apply(call, context).with_repairs(repairs)
    }

    fn check_arguments(&self, arguments: &str, context: &ToolContext) -> Result<(), ToolError> {
        self.decode(arguments, context)?;
        Ok(())
    }

    fn declared_at(&self) -> Option<&'static Location<'static>> {
        Some(self.declared_at)
    }
}

/// Shows only the name of the tool.
impl fmt::Debug for DynamicTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DynamicTool").field(&self.settings.definition.name()).finish()
    }
}

/// Arguments that the validator of the schema accepts.
struct ValidatedArguments<'t> {
    tool: &'t DynamicTool,
    arguments: Option<Value>,
    can_be_repaired: bool,
}

impl Target for ValidatedArguments<'_> {
    fn read(&mut self, text: &str) -> Result<Vec<IgnoredMember>, Refused> {
        let mut read = Typed::<Value>(None);
        let ignored = read.read(text)?;
        let mut arguments = read.0.unwrap_or_default();
        numbers::replace_negative_zeros(&mut arguments);
        // The schema accepts `2.0` as an integer, but `Value::as_i64` does not, so it is repaired first.
        let needs_repair = std::mem::take(&mut self.can_be_repaired) && numbers::has_whole_float(&arguments);
        if needs_repair || !self.tool.validator.is_valid(&arguments) {
            return Err(Refused::BySchema);
        }
        self.arguments = Some(arguments);
        Ok(ignored)
    }

    fn validator(&self) -> Option<&dyn SchemaValidator> {
        Some(self.tool)
    }
}

impl SchemaValidator for DynamicTool {
    fn validator_of_argument(&self, name: &str) -> Option<IsValid> {
        let properties = self.schema.get("properties")?;
        self.validator_of_part(properties.get(name)?.as_object()?.clone())
    }

    // Any part of the tool's schema is as safe to compile as the whole.
    fn validator_of_part(&self, mut part: Map<String, Value>) -> Option<IsValid> {
        if part.contains_key("$ref") || part.values().any(contains_ref) {
            for keyword in ["$defs", "definitions"] {
                let definitions = self.schema.get(keyword);
                part.extend(definitions.map(|definitions| (keyword.to_owned(), definitions.clone())));
            }
        }
        // This fails if it refers to anything that is neither in it nor in the definitions.
        let validator = options(self.draft).build(&Value::Object(part)).ok()?;
        Some(Box::new(move |text| serde_json::from_str(text).is_ok_and(|value| validator.is_valid(&value))))
    }
}

/// Returns `true` if there is a member named `$ref` anywhere in the value.
fn contains_ref(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.iter().any(contains_ref),
        Value::Object(members) => members.contains_key("$ref") || members.values().any(contains_ref),
        _ => false,
    }
}
