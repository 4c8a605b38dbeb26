//! What a tool of a server gives back, as an output.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Map, Value};
use tool_core::{Image, Part, ToolError, ToolOutput};

use super::McpError;

/// What the model reads, and what is kept for the application.
///
/// The data of the output has what the model does not read as it is, by the names of the protocol: `structuredContent`,
/// `_meta`, and in `content` the sounds, resources and links. There is none if there is no such thing.
pub(super) fn outcome(result: CallToolResult, max_output_chars: usize) -> Result<ToolOutput, ToolError> {
    let is_error = result.is_error == Some(true);
    let mut parts = Vec::new();
    let mut aside = Vec::new();
    for block in result.content {
        let kept = match &block {
            ContentBlock::Text(_) | ContentBlock::Image(_) => None,
            other => serde_json::to_value(other).ok(),
        };
        aside.extend(kept);
        parts.push(part(block));
    }
    let has_text = parts.iter().any(|part| part.as_text().is_some_and(|text| !text.trim().is_empty()));
    if let (false, Some(structured)) = (has_text, &result.structured_content) {
        parts.push(structured.to_string().into());
    }
    if parts.is_empty() {
        parts.push("(the tool gave nothing back)".into());
    }
    let mut data = Map::new();
    data.extend(result.structured_content.map(|structured| ("structuredContent".to_owned(), structured)));
    let meta = result.meta.and_then(|meta| serde_json::to_value(meta).ok());
    data.extend(meta.map(|meta| ("_meta".to_owned(), meta)));
    if !aside.is_empty() {
        data.insert("content".into(), Value::Array(aside));
    }
    let data = Some(Value::Object(data)).filter(|data| data.as_object().is_some_and(|data| !data.is_empty()));

    let output = ToolOutput::from_iter(separated(parts)).truncated(max_output_chars);
    if is_error {
        return Err(ToolError::failed(McpError::failed(output.to_string(), data)));
    }
    Ok(match data {
        Some(data) => output.with_data(data),
        None => output,
    })
}

/// Texts that follow one another are parts of their own to the server; to the model they would run together.
fn separated(parts: Vec<Part>) -> impl Iterator<Item = Part> {
    let mut follows_text = false;
    parts.into_iter().map(move |part| {
        let was_text = std::mem::replace(&mut follows_text, part.as_text().is_some());
        match part.as_text() {
            Some(text) if was_text => format!("\n{text}").into(),
            _ => part,
        }
    })
}

fn part(block: ContentBlock) -> Part {
    match block {
        ContentBlock::Text(text) => text.text.into(),
        ContentBlock::Image(image) if image.mime_type.starts_with("image/") && is_plain(&image.mime_type) => {
            Image::from_url(format!("data:{};base64,{}", image.mime_type, image.data)).into()
        }
        ContentBlock::Image(image) => {
            format!("[a picture of {} that cannot be shown]", kilobytes(&image.data)).into()
        }
        ContentBlock::Audio(audio) => {
            let size = kilobytes(&audio.data);
            format!("[a sound ({}, {size}), which cannot be played here]", short(&audio.mime_type)).into()
        }
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                format!("[the resource {}]\n{text}", short(&uri)).into()
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.as_deref().unwrap_or("unknown type");
                let size = kilobytes(&blob);
                format!("[the resource {} ({}, {size}), which is no text]", short(&uri), short(kind)).into()
            }
            _ => "[a resource of an unknown kind]".into(),
        },
        ContentBlock::ResourceLink(link) => {
            let title = link.title.as_deref().unwrap_or(&link.name);
            let mut text = format!("[a link to the resource {}: {}", short(&link.uri), short(title));
            if let Some(description) = &link.description {
                text.push_str(", ");
                text.push_str(&short(description));
            }
            text.push(']');
            text.into()
        }
        _ => "[something of an unknown kind]".into(),
    }
}

fn is_plain(media_type: &str) -> bool {
    media_type.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/+-.".contains(&byte))
}

fn short(text: &str) -> String {
    text.chars().take(1000).collect()
}

fn kilobytes(base64: &str) -> String {
    format!("{} KB", (base64.len() / 4 * 3).div_ceil(1000))
}
