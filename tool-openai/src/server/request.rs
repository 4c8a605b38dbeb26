//! Parsing of requests that both APIs share.
//!
//! Large bodies are parsed on a thread for blocking work, and long conversations are replayed with Tokio's cooperative budget
//! (`rebuilding`), because one request must not delay the others. A stored conversation counts as a body while a request continues it.

use std::collections::HashSet;

use axum::http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;
use tool_core::model::{ToolChoice, ToolDefinition};
use tool_core::provider::{ResponseFormat, ToolDefinitions};
use tool_core::{Message, ToolCall};
use tool_http::server::LimitedBody;

use super::error::ApiError;

/// The largest number of calls in one message.
const MAX_CALLS: usize = 1000;

/// The largest number of tools in one request.
const MAX_TOOLS: usize = 1000;

/// The size from which a body is not parsed on a thread of the runtime, in bytes.
const LARGE_BODY: usize = 1 << 20;

/// Parses a body without delaying other requests. Also returns its permit.
pub(super) async fn parse_in_background<T: Send + 'static>(
    LimitedBody { bytes, permit }: LimitedBody,
    parse: impl FnOnce(&[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<(T, OwnedSemaphorePermit), ApiError> {
    if bytes.len() < LARGE_BODY {
        return Ok((parse(&bytes)?, permit));
    }
    // The task owns the permit, because it goes on if the caller disconnects.
    let parsed = spawn_blocking(move || Ok((parse(&bytes)?, permit)));
    parsed.await.unwrap_or_else(|_| Err(ApiError::internal()))
}

/// Parses the body of a request.
pub(super) fn parse_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| {
        let problem = if error.is_data() { "invalid request" } else { "the request is not valid JSON" };
        ApiError::new(StatusCode::BAD_REQUEST, format!("{problem}: {error}"))
    })
}

/// A function tool as a request declares it.
#[derive(Deserialize)]
pub(super) struct DeclaredFunction {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) parameters: Option<Value>,
    pub(super) strict: Option<bool>,
}

impl DeclaredFunction {
    /// Converts the declaration into a definition; `path` is the path of the parameters in the request.
    pub(super) fn into_definition(self, path: &str) -> Result<ToolDefinition, ApiError> {
        let definition =
            ToolDefinition::new(self.name).with_description(self.description.unwrap_or_default());
        let definition = match self.parameters {
            Some(parameters) => definition.with_parameters(parameters),
            None => definition,
        };
        if self.strict != Some(true) {
            return Ok(definition);
        }
        // The caller relies on arguments that match the schema.
        definition.into_strict().map_err(|error| ApiError::invalid(path, error.to_string()))
    }
}

/// Checks that a request has no more tools than can be looked up for each call in reasonable time.
pub(super) fn check_tools<T>(tools: &[T]) -> Result<(), ApiError> {
    if tools.len() > MAX_TOOLS {
        return Err(ApiError::invalid("tools", format!("the request has more than {MAX_TOOLS} tools")));
    }
    Ok(())
}

/// Parses `tool_choice`. `tool_name` returns the name in an object form, and `object_form` shows that form in errors.
pub(super) fn parse_tool_choice(
    choice: Option<&Value>,
    tool_name: impl FnOnce(&Value) -> Option<&str>,
    object_form: &str,
    definitions: &ToolDefinitions,
) -> Result<ToolChoice, ApiError> {
    let invalid = |message: String| Err(ApiError::invalid("tool_choice", message));
    let choice = match choice {
        None => return Ok(ToolChoice::Auto),
        Some(Value::String(mode)) => match &**mode {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Required,
            _ => return invalid(format!("unknown mode `{mode}`; use `auto`, `none` or `required`")),
        },
        Some(other) => match tool_name(other) {
            Some(name) if definitions.iter().any(|definition| definition.name() == name) => {
                ToolChoice::Tool(name.to_owned())
            }
            Some(name) => return invalid(format!("`tools` contains no tool `{name}`")),
            None => return invalid(format!("expected a string or `{object_form}`")),
        },
    };
    if choice == ToolChoice::Required && definitions.is_empty() {
        return invalid("`required` needs at least one tool in `tools`".into());
    }
    Ok(choice)
}

/// Returns the response format for a JSON schema. An omitted `strict` means `false`.
pub(super) fn json_format(name: String, schema: Value, strict: Option<bool>) -> ResponseFormat {
    let format = ResponseFormat::json_schema(name, schema);
    if strict == Some(true) { format } else { format.without_strict() }
}

/// Checks that every call is followed by its result, as models require, and that a message has no more calls than an agent can
/// replay in reasonable time.
pub(super) fn check_results(messages: &[Message], param: &str) -> Result<(), ApiError> {
    let (mut calls, mut answered) = (&[][..], HashSet::new());
    let end = [None];
    for message in messages.iter().map(Some).chain(end) {
        if let Some(Message::Tool(result)) = message {
            answered.insert(&*result.call_id);
            continue;
        }
        if let Some(open) = calls.iter().find(|call: &&ToolCall| !answered.contains(&*call.id)) {
            let message =
                format!("the call `{}` has no result; send its result right after the call", open.id);
            return Err(ApiError::invalid(param, message));
        }
        (calls, answered) = (&[], HashSet::new());
        if let Some(Message::Assistant(message)) = message {
            calls = &message.tool_calls;
        }
        if calls.len() > MAX_CALLS {
            return Err(ApiError::invalid(param, format!("a message has more than {MAX_CALLS} calls")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tool_http::server::{Limiter, Limits};

    use super::*;

    /// The runtime has one thread here, which answers all other requests.
    #[tokio::test]
    async fn parses_large_bodies_on_another_thread() {
        let limiter = Limiter::new(Limits::default());
        for (bytes, is_here) in [(LARGE_BODY - 1, true), (LARGE_BODY, false)] {
            let body = limiter.read_body(vec![b' '; bytes].into()).await.unwrap();
            let here = thread::current().id();
            let parse = move |body: &[u8]| Ok((body.len(), thread::current().id() == here));
            let (parsed, permit) = parse_in_background(body, parse).await.unwrap();
            assert_eq!((parsed, permit.num_permits()), ((bytes, is_here), bytes));
        }
    }
}
