//! The fields of a request body: those of the API and the caller's extra ones.

use serde::Serialize;
use serde_json::{Map, Value};
use tool_core::model::ChatRequest;

use super::request_body::{AppendBuffer, BodyWriter, RequestBody};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::json::write_string;
use crate::tools::{self, ToolFormat};

/// An estimate of the length of all fields but the tools and messages.
const OTHER_FIELDS_BYTES: usize = 1024;

/// Writes a request body, field by field.
///
/// An extra field with the name of another field is merged into that one: objects field by field, arrays by appending, and
/// any other value replaces the value that is there.
pub(crate) struct FieldWriter<'a> {
    json: Vec<u8>,
    tools: Option<&'a str>,
    extra: &'a Map<String, Value>,
    messages: &'a AppendBuffer,
    merged: Vec<&'a str>,
    tool_choice: Option<Value>,
}

impl<'a> FieldWriter<'a> {
    /// Starts the body of a request to this model with these tools and messages.
    pub(crate) fn new(
        model: &str,
        is_streamed: bool,
        tools: Option<&'a str>,
        messages: &'a AppendBuffer,
        extra: &'a Map<String, Value>,
    ) -> Self {
        let length = tools.map_or(0, str::len) + messages.end.len();
        let mut json = Vec::with_capacity(OTHER_FIELDS_BYTES + length);
        json.extend_from_slice(br#"{"model":"#);
        write_string(&mut json, model);
        if is_streamed {
            json.extend_from_slice(br#","stream":true"#);
        }
        Self { json, tools, extra, messages, merged: Vec::new(), tool_choice: None }
    }

    /// Writes the tools and the fields for tools. The API rejects an empty array, and the other fields for tools without any.
    pub(crate) fn write_tools(
        &mut self,
        format: ToolFormat,
        request: &ChatRequest<'_>,
        endpoint: &Endpoint,
    ) -> Result<(), Error> {
        self.write_json("tools", self.tools)?;
        if self.tools.is_none() && !self.extra.contains_key("tools") {
            return Ok(());
        }
        if !self.extra.contains_key("tool_choice") {
            self.tool_choice = tools::choice(request.tool_choice(), format, endpoint);
        }
        let parallel = request.parallel_tool_calls().filter(|_| endpoint.supports_parallel_tool_calls);
        self.write("parallel_tool_calls", parallel)
    }

    /// Writes a field unless its value is `None`.
    ///
    /// # Errors
    ///
    /// Fails if the value cannot be written as JSON.
    pub(crate) fn write(&mut self, name: &str, value: Option<impl Serialize>) -> Result<(), Error> {
        value.map_or(Ok(()), |value| self.write_value(name, &value))
    }

    /// Writes a number unless it is `None`.
    ///
    /// # Errors
    ///
    /// Fails if the number is not finite: JSON would hold `null`, which the API reads as unset.
    pub(crate) fn write_number(&mut self, name: &str, number: Option<f64>) -> Result<(), Error> {
        match number {
            Some(number) if !number.is_finite() => {
                Err(Error::request(format!("the option `{name}` is {number}; use a finite number")))
            }
            number => self.write(name, number),
        }
    }

    /// Writes a field whose value is already JSON, and possibly long, unless it is `None`.
    pub(crate) fn write_json(&mut self, name: &str, json: Option<&str>) -> Result<(), Error> {
        let Some(json) = json else { return Ok(()) };
        if self.extra.contains_key(name) {
            let value: Value = serde_json::from_str(json).map_err(|error| not_json(name, &error))?;
            return self.write_value(name, &value);
        }
        self.start_entry(name);
        self.json.extend_from_slice(json.as_bytes());
        Ok(())
    }

    /// Writes the extra fields that were not merged into others, the messages under this name, and the tool choice.
    ///
    /// The parts that stay the same from turn to turn come first, followed by the messages, which only grow: the body of a
    /// turn starts with the bytes of the one before, so that the provider's prompt cache hits. Only the tool choice, which a
    /// run changes once a tool was called, comes after the messages.
    pub(crate) fn finish(mut self, name: &str) -> Result<RequestBody, Error> {
        for (name, value) in self.extra {
            if !self.merged.contains(&&**name) {
                self.write_entry(name, value)?;
            }
        }
        self.start_entry(name);
        let mut body = BodyWriter::starting_with(self.json);
        body.append(self.messages);
        let json = body.json();
        json.extend_from_slice(if self.messages.is_empty() { b"[]" } else { b"]" });
        if let Some(choice) = self.tool_choice {
            json.extend_from_slice(format!(r#","tool_choice":{choice}"#).as_bytes());
        }
        json.push(b'}');
        Ok(body.finish())
    }

    fn write_value(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let Some((name, extra)) = self.extra.get_key_value(name) else {
            return self.write_entry(name, value);
        };
        self.merged.push(name);
        let mut merged = serde_json::to_value(value).map_err(|error| not_json(name, &error))?;
        merge(&mut merged, extra);
        self.write_entry(name, &merged)
    }

    fn write_entry(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.start_entry(name);
        serde_json::to_writer(&mut self.json, value).map_err(|error| not_json(name, &error))
    }

    fn start_entry(&mut self, name: &str) {
        self.json.push(b',');
        write_string(&mut self.json, name);
        self.json.push(b':');
    }
}

/// Rejects extra fields that only the request itself sets. `reserved` has their names and what sets them.
pub(crate) fn reject_reserved(extra: &Map<String, Value>, reserved: &[(&str, &str)]) -> Result<(), Error> {
    match reserved.iter().find(|(name, _)| extra.contains_key(*name)) {
        Some((name, setter)) => {
            Err(Error::request(format!("the extra field `{name}` is reserved; use {setter} instead")))
        }
        None => Ok(()),
    }
}

fn not_json(name: &str, error: &serde_json::Error) -> Error {
    Error::request(format!("could not write `{name}` as JSON: {error}"))
}

fn merge(value: &mut Value, extra: &Value) {
    match (value, extra) {
        (Value::Object(value), Value::Object(extra)) => {
            for (name, extra) in extra {
                merge(value.entry(&**name).or_insert(Value::Null), extra);
            }
        }
        (Value::Array(value), Value::Array(extra)) => value.extend(extra.iter().cloned()),
        (value, extra) => *value = extra.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn extra_fields_are_merged_into_fields_of_the_same_name() {
        let ours = json!({ "reasoning": { "effort": "low" }, "include": ["a"], "user": "u" });
        let table = [
            (json!({}), ours.clone()),
            (
                json!({ "top_k": 40, "reasoning": { "summary": "auto" } }),
                json!({ "reasoning": { "effort": "low", "summary": "auto" }, "include": ["a"], "user": "u", "top_k": 40 }),
            ),
            (
                json!({ "include": ["b"], "user": "v", "reasoning": { "effort": "high" } }),
                json!({ "reasoning": { "effort": "high" }, "include": ["a", "b"], "user": "v" }),
            ),
            (
                json!({ "include": null, "reasoning": 1 }),
                json!({ "reasoning": 1, "include": null, "user": "u" }),
            ),
        ];
        for (extra, expected) in table {
            let extra = extra.as_object().unwrap();
            let messages = AppendBuffer::default();
            let mut fields = FieldWriter::new("m", false, None, &messages, extra);
            fields.write("reasoning", Some(&ours["reasoning"])).unwrap();
            fields.write_json("include", Some(r#"["a"]"#)).unwrap();
            fields.write("user", Some("u")).unwrap();
            fields.write_json("tools", None).unwrap();
            fields.write("seed", None::<u8>).unwrap();
            let body = fields.finish("messages").unwrap();
            let mut body: Value = serde_json::from_slice(&body.to_vec()).unwrap();
            assert_eq!(body.as_object_mut().unwrap().shift_remove("model"), Some(json!("m")));
            assert_eq!(body.as_object_mut().unwrap().shift_remove("messages"), Some(json!([])));
            assert_eq!(body.to_string(), expected.to_string(), "{extra:?}");
        }
    }
}
