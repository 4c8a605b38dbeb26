//! The bodies of requests.

use std::sync::Arc;

use serde_json::{Map, Value};
use tool_core::model::ChatRequest;
use tool_http::client::{AppendBuffer, Error, FieldWriter, RequestBody};

use crate::endpoint::Endpoint;
use crate::tools::{self, ToolFormat};

/// An estimate of the length of all fields but the tools and messages.
const OTHER_FIELDS_BYTES: usize = 1024;

/// Starts the body of a request to this model. `reserved` has the extra fields that only the request itself sets,
/// and what sets them.
pub(crate) fn start<'a>(
    model: &str,
    is_streamed: bool,
    extra: &'a Map<String, Value>,
    reserved: &[(&str, &str)],
) -> Result<FieldWriter<'a>, Error> {
    let mut fields = FieldWriter::new(OTHER_FIELDS_BYTES, extra);
    fields.reject_reserved(reserved)?;
    fields.write("model", Some(model))?;
    fields.write("stream", is_streamed.then_some(true))?;
    Ok(fields)
}

/// Writes the tools and the fields for tools, and returns the tool choice. The API rejects an empty array, and the other fields for
/// tools without any.
pub(crate) fn write_tools(
    fields: &mut FieldWriter<'_>,
    tools: Option<&Arc<str>>,
    format: ToolFormat,
    request: &ChatRequest<'_>,
    endpoint: &Endpoint,
) -> Result<Option<Value>, Error> {
    fields.write_shared_json("tools", tools)?;
    if tools.is_none() && !fields.has_extra("tools") {
        return Ok(None);
    }
    let parallel = request.parallel_tool_calls().filter(|_| endpoint.supports_parallel_tool_calls);
    fields.write("parallel_tool_calls", parallel)?;
    let choice = tools::choice(request.tool_choice(), format, endpoint);
    Ok(choice.filter(|_| !fields.has_extra("tool_choice")))
}

/// Writes the extra fields that were not merged into others, the messages under this name, and the tool choice.
///
/// The parts that stay the same from turn to turn come first, followed by the messages, which only grow: the body of a
/// turn starts with the bytes of the one before, so that the provider's prompt cache hits. Only the tool choice, which a
/// run changes once a tool was called, comes after the messages.
pub(crate) fn finish(
    fields: FieldWriter<'_>,
    name: &str,
    messages: &AppendBuffer,
    tool_choice: Option<Value>,
) -> Result<RequestBody, Error> {
    let mut body = fields.finish(name)?;
    body.append(messages);
    let json = body.json();
    json.extend_from_slice(if messages.is_empty() { b"[]" } else { b"]" });
    if let Some(choice) = tool_choice {
        json.extend_from_slice(format!(r#","tool_choice":{choice}"#).as_bytes());
    }
    json.push(b'}');
    Ok(body.finish())
}
