//! The bodies of requests.

use serde::Serialize;
use serde_json::{Map, Value};
use tool_core::model::ChatRequest;
#[cfg(test)]
pub(crate) use tool_http::client::BodyWriter;
use tool_http::client::FieldWriter as Fields;
pub(crate) use tool_http::client::{AppendBuffer, RequestBody};

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::tools::{self, ToolFormat};

/// An estimate of the length of all fields but the tools and messages.
const OTHER_FIELDS_BYTES: usize = 1024;

/// Writes a request body, field by field. Extra fields are merged into others of the same name.
pub(crate) struct FieldWriter<'a> {
    fields: Fields<'a>,
    tools: Option<&'a str>,
    messages: &'a AppendBuffer,
    tool_choice: Option<Value>,
}

impl<'a> FieldWriter<'a> {
    /// Starts the body of a request to this model with these tools and messages. `reserved` has the extra fields that only the
    /// request itself sets, and what sets them.
    pub(crate) fn new(
        model: &str,
        is_streamed: bool,
        tools: Option<&'a str>,
        messages: &'a AppendBuffer,
        extra: &'a Map<String, Value>,
        reserved: &[(&str, &str)],
    ) -> Result<Self, Error> {
        let mut fields = Fields::new(OTHER_FIELDS_BYTES + tools.map_or(0, str::len), extra);
        fields.reject_reserved(reserved)?;
        fields.write("model", Some(model))?;
        fields.write("stream", is_streamed.then_some(true))?;
        Ok(Self { fields, tools, messages, tool_choice: None })
    }

    /// Writes the tools and the fields for tools. The API rejects an empty array, and the other fields for tools without any.
    pub(crate) fn write_tools(
        &mut self,
        format: ToolFormat,
        request: &ChatRequest<'_>,
        endpoint: &Endpoint,
    ) -> Result<(), Error> {
        self.fields.write_json("tools", self.tools)?;
        if self.tools.is_none() && !self.fields.has_extra("tools") {
            return Ok(());
        }
        if !self.fields.has_extra("tool_choice") {
            self.tool_choice = tools::choice(request.tool_choice(), format, endpoint);
        }
        let parallel = request.parallel_tool_calls().filter(|_| endpoint.supports_parallel_tool_calls);
        self.write("parallel_tool_calls", parallel)
    }

    /// Writes a field unless its value is `None`.
    pub(crate) fn write(&mut self, name: &str, value: Option<impl Serialize>) -> Result<(), Error> {
        Ok(self.fields.write(name, value)?)
    }

    /// Writes a number, which must be finite, unless it is `None`.
    pub(crate) fn write_number(&mut self, name: &str, number: Option<f64>) -> Result<(), Error> {
        Ok(self.fields.write_number(name, number)?)
    }

    /// Writes a field whose value is already JSON, unless it is `None`.
    pub(crate) fn write_json(&mut self, name: &str, json: Option<&str>) -> Result<(), Error> {
        Ok(self.fields.write_json(name, json)?)
    }

    /// Writes the extra fields that were not merged into others, the messages under this name, and the tool choice.
    ///
    /// The parts that stay the same from turn to turn come first, followed by the messages, which only grow: the body of a
    /// turn starts with the bytes of the one before, so that the provider's prompt cache hits. Only the tool choice, which a
    /// run changes once a tool was called, comes after the messages.
    pub(crate) fn finish(self, name: &str) -> Result<RequestBody, Error> {
        let mut body = self.fields.finish(name)?;
        body.append(self.messages);
        let json = body.json();
        json.extend_from_slice(if self.messages.is_empty() { b"[]" } else { b"]" });
        if let Some(choice) = self.tool_choice {
            json.extend_from_slice(format!(r#","tool_choice":{choice}"#).as_bytes());
        }
        json.push(b'}');
        Ok(body.finish())
    }
}
