//! What both APIs say of tools and of the form of an answer, read.

use serde_json::Value;
use tool_core::{Message, ResponseFormat, ToolChoice, ToolDefinition, ToolDefinitions};

use super::error::ApiError;

/// A tool as a request declares it.
pub(super) struct DeclaredFunction {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) parameters: Option<Value>,
    pub(super) is_strict: bool,
}

impl DeclaredFunction {
    /// The definition; `place` is where the parameters stand in the request.
    pub(super) fn define(self, place: &str) -> Result<ToolDefinition, ApiError> {
        let definition = ToolDefinition::new(self.name);
        let definition = match self.description {
            Some(description) => definition.with_description(description),
            None => definition,
        };
        let definition = match self.parameters {
            Some(parameters) if !parameters.is_null() => definition.with_parameters(parameters),
            _ => definition,
        };
        if !self.is_strict {
            return Ok(definition);
        }
        // Whoever asks for arguments of the schema takes them for such.
        definition.into_strict().map_err(|error| ApiError::invalid(place, error.to_string()))
    }
}

pub(super) fn read_choice(
    choice: Option<&Value>,
    name_of: impl FnOnce(&Value) -> Option<&str>,
    shape: &str,
    definitions: &ToolDefinitions,
) -> Result<ToolChoice, ApiError> {
    let wrong = |message: String| Err(ApiError::invalid("tool_choice", message));
    let choice = match choice {
        None | Some(Value::Null) => return Ok(ToolChoice::Auto),
        Some(Value::String(word)) => match &**word {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Required,
            _ => return wrong(format!("`{word}` is none of `auto`, `none` and `required`")),
        },
        Some(other) => match name_of(other) {
            Some(name) if definitions.iter().any(|definition| definition.name() == name) => {
                ToolChoice::Tool(name.to_owned())
            }
            Some(name) => return wrong(format!("there is no tool `{name}` in `tools`")),
            None => return wrong(format!("expected a word, or `{shape}`")),
        },
    };
    if choice == ToolChoice::Required && definitions.is_empty() {
        return wrong("a tool is required, but there is none in `tools`".into());
    }
    Ok(choice)
}

/// A form of JSON. `strict` left out means `false` here.
pub(super) fn json_format(name: String, schema: Value, strict: Option<bool>) -> ResponseFormat {
    let format = ResponseFormat::json_schema(name, schema);
    if strict == Some(true) { format } else { format.without_strict() }
}

/// Every call has its result right behind it: no model takes another conversation.
pub(super) fn check_results(messages: &[Message], param: &str) -> Result<(), ApiError> {
    let mut open: Vec<&str> = Vec::new();
    let end = [None];
    for message in messages.iter().map(Some).chain(end) {
        if let Some(Message::Tool(result)) = message {
            open.retain(|id| *id != result.call_id);
        } else if let Some(id) = open.first() {
            let message = format!("the call `{id}` has no result; every call is followed by its result");
            return Err(ApiError::invalid(param, message));
        }
        if let Some(Message::Assistant(message)) = message {
            open = message.tool_calls.iter().map(|call| &*call.id).collect();
        }
    }
    Ok(())
}
