//! Converts the result of a server's tool to an output.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Map, Value};
use tool_core::content::{Image, Part};
use tool_core::{ToolError, ToolOutput};
use tool_http::client::Redactor;

use super::McpError;

/// The longest title, URI or media type in a description of content, in characters.
const MAX_LABEL_CHARS: usize = 1000;

/// Converts the result to an output with content for the model and data for the application.
///
/// The data contains what the model does not read verbatim, under the names of the protocol: `structuredContent`, `_meta`,
/// and in `content` audio, resources and links. It is `None` if there is nothing of this kind.
///
/// # Errors
///
/// Returns an error without secrets if the tool failed.
pub(super) fn into_output(
    result: CallToolResult,
    max_output_chars: usize,
    redactor: &Redactor,
) -> Result<ToolOutput, ToolError> {
    let is_error = result.is_error == Some(true);
    let mut parts = Vec::new();
    let mut other_content = Vec::new();
    for block in result.content {
        let other = match &block {
            ContentBlock::Text(_) | ContentBlock::Image(_) => None,
            other => serde_json::to_value(other).ok(),
        };
        other_content.extend(other);
        parts.push(to_part(block));
    }
    let has_text = parts.iter().any(|part| part.as_text().is_some_and(|text| !text.trim().is_empty()));
    if let (false, Some(structured)) = (has_text, &result.structured_content) {
        parts.push(structured.to_string().into());
    }
    if parts.is_empty() {
        parts.push("(the tool returned no content)".into());
    }
    let mut data = Map::new();
    data.extend(result.structured_content.map(|structured| ("structuredContent".to_owned(), structured)));
    let meta = result.meta.and_then(|meta| serde_json::to_value(meta).ok());
    data.extend(meta.map(|meta| ("_meta".to_owned(), meta)));
    if !other_content.is_empty() {
        data.insert("content".into(), Value::Array(other_content));
    }
    let data = Some(Value::Object(data)).filter(|data| data.as_object().is_some_and(|data| !data.is_empty()));

    let output = ToolOutput::from_iter(separate_texts(parts));
    if is_error {
        let text = ToolOutput::from(redactor.redact(&output.to_string())).truncated(max_output_chars);
        let data = data.map(|data| redactor.redact_value(data));
        return Err(ToolError::failed(McpError::tool_failed(text.to_string(), data)));
    }
    let output = output.truncated(max_output_chars);
    Ok(match data {
        Some(data) => output.with_data(data),
        None => output,
    })
}

/// Inserts a line break between adjacent texts, which the model would otherwise read without a separator.
fn separate_texts(parts: Vec<Part>) -> impl Iterator<Item = Part> {
    let mut follows_text = false;
    parts.into_iter().map(move |part| {
        let was_text = std::mem::replace(&mut follows_text, part.as_text().is_some());
        match part.as_text() {
            Some(text) if was_text => format!("\n{text}").into(),
            _ => part,
        }
    })
}

fn to_part(block: ContentBlock) -> Part {
    match block {
        ContentBlock::Text(text) => text.text.into(),
        ContentBlock::Image(image) if is_image_type(&image.mime_type) => {
            Image::from_url(format!("data:{};base64,{}", image.mime_type, image.data)).into()
        }
        ContentBlock::Image(image) => {
            format!("[an image ({}) that cannot be displayed]", kilobytes(&image.data)).into()
        }
        ContentBlock::Audio(audio) => {
            let (media_type, size) = (label(&audio.mime_type), kilobytes(&audio.data));
            format!("[audio ({media_type}, {size}) that cannot be played]").into()
        }
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                format!("[the resource {}]\n{text}", label(&uri)).into()
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let media_type = label(mime_type.as_deref().unwrap_or("unknown type"));
                let size = kilobytes(&blob);
                format!("[the binary resource {} ({media_type}, {size})]", label(&uri)).into()
            }
            _ => "[a resource of an unknown kind]".into(),
        },
        ContentBlock::ResourceLink(link) => {
            let title = link.title.as_deref().unwrap_or(&link.name);
            let mut text = format!("[a link to the resource {}: {}", label(&link.uri), label(title));
            if let Some(description) = &link.description {
                text.push_str(", ");
                text.push_str(&label(description));
            }
            text.push(']');
            text.into()
        }
        _ => "[content of an unknown kind]".into(),
    }
}

/// Returns `true` if the media type is an image type that can be part of a `data:` URL.
fn is_image_type(media_type: &str) -> bool {
    media_type.starts_with("image/")
        && media_type.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/+-.".contains(&byte))
}

fn label(text: &str) -> String {
    text.chars().take(MAX_LABEL_CHARS).collect()
}

fn kilobytes(base64: &str) -> String {
    format!("{} KB", (base64.len() / 4 * 3).div_ceil(1000))
}
