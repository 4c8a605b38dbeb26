//! Results of calls in the form of the protocol.

use std::any::TypeId;
use std::borrow::Cow;
use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, Resource};
use serde_json::{Map, Value, json};
use tool_core::ToolOutput;
use tool_core::content::{Image, Part};
use tool_core::schemars::JsonSchema;
use tool_core::schemars::generate::SchemaSettings;

/// The schema of a tool's output, derived from its type.
#[derive(Clone)]
pub(super) struct OutputSchema {
    pub(super) json: Map<String, Value>,
    form: Form,
}

/// The form of a value in the output of a tool. Values that are not objects are wrapped as the `result` of one.
#[derive(Clone, Copy)]
enum Form {
    Object,
    Json,
    /// Text is returned verbatim instead of as JSON.
    Text,
    /// `()` is returned as a text.
    Unit,
}

impl Form {
    fn of_type<T: 'static>(schema: &Map<String, Value>) -> Self {
        let texts = [
            TypeId::of::<String>(),
            TypeId::of::<&'static str>(),
            TypeId::of::<Cow<'static, str>>(),
            TypeId::of::<Box<str>>(),
            TypeId::of::<Arc<str>>(),
        ];
        match TypeId::of::<T>() {
            id if texts.contains(&id) => Self::Text,
            id if id == TypeId::of::<()>() => Self::Unit,
            _ if schema.get("type") == Some(&json!("object")) => Self::Object,
            _ => Self::Json,
        }
    }
}

impl OutputSchema {
    pub(super) fn for_type<T: JsonSchema + 'static>() -> Self {
        let schema = root_schema::<T>();
        let form = Form::of_type::<T>(&schema);
        let schema = if matches!(form, Form::Object) { schema } else { root_schema::<Wrapped<T>>() };
        Self { json: schema, form }
    }
}

// The references of a recursive schema start at the root, so it is generated together with what wraps it. A doc comment would be
// part of the schema.
#[derive(JsonSchema)]
#[schemars(crate = "tool_core::schemars")]
struct Wrapped<T> {
    #[expect(dead_code, reason = "only its schema is used")]
    result: T,
}

fn root_schema<T: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // schemars uses the name of the Rust type as the title.
    schema.remove("title");
    schema.as_object().cloned().unwrap_or_default()
}

/// Returns the result of a successful call. Structured content is sent as text as well, for hosts that read only text.
pub(super) fn success(output: &ToolOutput, schema: Option<&OutputSchema>) -> CallToolResult {
    let structured = structured_content(output, schema);
    let content = output.content().parts().iter().map(content_block);
    if schema.is_some() && structured.is_none() {
        // Hosts rely on the schema. The model still needs to know what the tool has done.
        let problem = "the tool was executed, but its output does not match its output schema:";
        return CallToolResult::error([ContentBlock::text(problem)].into_iter().chain(content).collect());
    }
    let mut result = CallToolResult::success(content.collect());
    result.structured_content = structured;
    result
}

/// Returns the result of a failed call; the model reads the text.
pub(super) fn failure(text: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

/// Returns the value of an output that has one. Typed values are text that contains JSON. Older clients accept only objects.
fn structured_content(output: &ToolOutput, schema: Option<&OutputSchema>) -> Option<Value> {
    let mut texts = output.content().parts().iter().filter_map(Part::as_text);
    let text = texts.next().filter(|_| texts.next().is_none())?;
    match schema.map(|schema| schema.form) {
        Some(Form::Text) => Some(json!({ "result": text })),
        // The text that a tool without a value returns.
        Some(Form::Unit) => matches!(text, "Success" | "null").then(|| json!({ "result": null })),
        Some(Form::Json) => serde_json::from_str(text).ok().map(|value: Value| json!({ "result": value })),
        Some(Form::Object) | None if text.trim_start().starts_with('{') => serde_json::from_str(text).ok(),
        _ => None,
    }
}

fn content_block(part: &Part) -> ContentBlock {
    match part {
        Part::Image(image) => image_block(image),
        other => ContentBlock::text(other.as_text().unwrap_or_default()),
    }
}

fn image_block(image: &Image) -> ContentBlock {
    match (image.base64(), image.media_type()) {
        (Some(base64), Some(media_type)) => ContentBlock::image(base64, media_type),
        (Some(base64), None) => ContentBlock::image(base64, "application/octet-stream"),
        (None, _) => ContentBlock::resource_link(Resource::new(image.url(), "image")),
    }
}

#[cfg(test)]
mod tests {
    use tool_core::provider::JsonText;

    use super::*;

    #[derive(serde::Serialize, JsonSchema)]
    #[schemars(crate = "tool_core::schemars")]
    struct Weather {
        celsius: f64,
    }

    fn json(value: Value) -> ToolOutput {
        ToolOutput::from_iter([Part::from(JsonText::from(value))])
    }

    #[test]
    fn converts_outputs_without_a_schema() {
        let dot = || Image::from_bytes("image/png", [1]);
        let text = |text: &str| json!({ "type": "text", "text": text });
        let table = [
            (ToolOutput::text("hi"), json!([text("hi")]), None),
            (json(json!(2.5)), json!([text("2.5")]), None),
            (json(json!([1])), json!([text("[1]")]), None),
            (json(json!({ "a": 1 })), json!([text(r#"{"a":1}"#)]), Some(json!({ "a": 1 }))),
            (
                ToolOutput::text(r#"{"a":1}"#).with_part(dot()).with_data("secret"),
                json!([text(r#"{"a":1}"#), { "type": "image", "data": "AQ==", "mimeType": "image/png" }]),
                Some(json!({ "a": 1 })),
            ),
            (ToolOutput::text("{ no"), json!([text("{ no")]), None),
            // Two values are ambiguous.
            (json(json!({})).with_part(JsonText::from(json!({}))), json!([text("{}"), text("{}")]), None),
            (
                ToolOutput::text("a").with_part(dot()),
                json!([text("a"), { "type": "image", "data": "AQ==", "mimeType": "image/png" }]),
                None,
            ),
            (
                Image::from_url("https://example.org/a.png").into(),
                json!([{ "type": "resource_link", "uri": "https://example.org/a.png", "name": "image" }]),
                None,
            ),
            (ToolOutput::from_iter([]), json!([]), None),
        ];
        for (output, content, structured) in table {
            let result = success(&output, None);
            assert_eq!(serde_json::to_value(&result.content).unwrap(), content);
            assert_eq!((result.structured_content, result.is_error), (structured, Some(false)), "{content}");
        }
    }

    #[test]
    fn structured_content_matches_the_schema() {
        let (weather, number, text) = (
            OutputSchema::for_type::<Weather>(),
            OutputSchema::for_type::<f64>(),
            OutputSchema::for_type::<String>(),
        );
        let table = [
            (&weather, json(json!({ "celsius": 2.5 })), Some(json!({ "celsius": 2.5 }))),
            (&weather, ToolOutput::text("no"), None),
            (&weather, json(json!(1)), None),
            (&weather, ToolOutput::text(r#"{"celsius":2.5}"#), Some(json!({ "celsius": 2.5 }))),
            (&number, json(json!(2.5)), Some(json!({ "result": 2.5 }))),
            (&number, ToolOutput::text("2.5"), Some(json!({ "result": 2.5 }))),
            (&number, ToolOutput::text("[… cut …]"), None),
            (
                &OutputSchema::for_type::<Option<String>>(),
                ToolOutput::text("null"),
                Some(json!({ "result": null })),
            ),
            (&text, ToolOutput::text("2.5"), Some(json!({ "result": "2.5" }))),
            (&OutputSchema::for_type::<()>(), ToolOutput::text("Success"), Some(json!({ "result": null }))),
            (&OutputSchema::for_type::<()>(), ToolOutput::text("2.5"), None),
        ];
        for (schema, output, expected) in table {
            let result = success(&output, Some(schema));
            assert_eq!(result.is_error, Some(expected.is_none()));
            assert_eq!(result.structured_content, expected);
        }
    }

    #[test]
    fn wraps_schemas_of_values_that_are_not_objects() {
        assert_eq!(OutputSchema::for_type::<Weather>().json["properties"]["celsius"]["type"], "number");
        let number = Value::Object(OutputSchema::for_type::<u8>().json);
        assert_eq!(number["properties"]["result"]["type"], "integer");
    }
}
