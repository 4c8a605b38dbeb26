//! Two tools of the client by which a model lists and reads the resources of a server, if the author allows it.
//!
//! They are tools of the listing, so that approval, fingerprints and prefixes hold for them as for all others.

use std::sync::Arc;

use rmcp::model::{
    CallToolResult, ContentBlock, PaginatedRequestParams, ReadResourceRequestParams, Resource,
    ResourceContents, ResourceTemplate, Tool, ToolAnnotations,
};
use rmcp::service::{Peer, RoleClient, ServiceError};
use serde_json::{Map, Value, json};
use tool_core::{ToolError, ToolOutput};

use super::config::ServerConfig;
use super::connection::VerifiedConnection;
use super::output::into_output;
use super::text::{one_line, truncate_name};
use super::{McpError, McpTool};

/// The largest number of resources and templates that are listed, and of pages.
const MAX_RESOURCES: usize = 1000;
const MAX_PAGES: usize = 100;

/// The largest number of parts of a resource that are read.
const MAX_CONTENTS: usize = 100;

/// The longest URI, in bytes, and the longest description of a resource, in characters.
const MAX_URI_BYTES: usize = 2000;
const MAX_DESCRIPTION_CHARS: usize = 300;

/// The names of both tools.
pub(super) const RESOURCE_TOOLS: [&str; 2] = ["list_resources", "read_resource"];

/// Returns the definitions of both tools.
pub(super) fn resource_tools(server: &str) -> [Tool; 2] {
    let server = truncate_name(server);
    let tool = |name: &'static str, description: String, schema: Value| {
        let schema: Map<String, Value> = serde_json::from_value(schema).unwrap_or_default();
        Tool::new(name, description, Arc::new(schema)).annotate(ToolAnnotations::new().read_only(true))
    };
    let uri = json!({ "type": "string", "description": "A URI of `list_resources`, or one of its templates filled in" });
    [
        tool(
            RESOURCE_TOOLS[0],
            format!("Lists the documents and data of the server `{server}`, with their URIs"),
            json!({ "type": "object", "properties": {} }),
        ),
        tool(
            RESOURCE_TOOLS[1],
            format!("Reads a document of the server `{server}`"),
            json!({ "type": "object", "properties": { "uri": uri }, "required": ["uri"] }),
        ),
    ]
}

/// Calls one of the tools: that with a URI reads.
///
/// # Errors
///
/// Returns the error of the request, after which the user may log in. The result is an error if there is no such resource.
pub(super) async fn use_resources(
    config: &ServerConfig,
    connection: &VerifiedConnection,
    tool: &McpTool,
    arguments: &Map<String, Value>,
) -> Result<Result<ToolOutput, ToolError>, McpError> {
    let (peer, name) = (connection.peer(), format!("`{}`", tool.original_name()));
    let _reading = connection.monitor().begin_reading();
    let used = async {
        let entries = list(peer).await?;
        match arguments.get("uri").and_then(Value::as_str) {
            None => Ok(Some(vec![ContentBlock::text(describe(&entries))])),
            Some(uri) if is_plain(uri) && entries.iter().any(|entry| entry.covers(uri)) => {
                read(peer, uri).await.map(Some)
            }
            Some(_) => Ok(None),
        }
    };
    Ok(match config.await_response(&name, used).await? {
        Some(content) => {
            into_output(CallToolResult::success(content), config.max_output_chars, &config.redactor)
        }
        None => Err(ToolError::failed("the server has no resource with this URI; call `list_resources`")),
    })
}

/// Something that a server offers to be read.
struct Entry {
    /// A URI, or a template of URIs.
    uri: String,
    is_template: bool,
    description: String,
}

impl Entry {
    /// Returns `None` if the URI is too long or not readable.
    fn new(uri: String, is_template: bool, name: &str, description: Option<&str>) -> Option<Self> {
        let is_readable = is_plain(&uri);
        let description =
            one_line(&format!("{name}. {}", description.unwrap_or_default()), MAX_DESCRIPTION_CHARS);
        is_readable.then_some(Self { uri, is_template, description })
    }

    /// Returns `true` for the URI, and for one that begins like the template and leads to no other place from there.
    fn covers(&self, uri: &str) -> bool {
        let start = self.uri.split('{').next().unwrap_or_default();
        let leads_elsewhere = || uri.contains("..") || uri.to_ascii_lowercase().contains("%2e");
        match self.is_template {
            true => start.contains(':') && uri.starts_with(start) && !leads_elsewhere(),
            false => self.uri == uri,
        }
    }
}

fn is_plain(uri: &str) -> bool {
    uri.len() <= MAX_URI_BYTES && uri.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Requests what there is, unless the server has allowed to use its lists for longer: the SDK stores them with the connection, which
/// is that of one user.
async fn list(peer: &Peer<RoleClient>) -> Result<Vec<Entry>, ServiceError> {
    // Servers without templates need not know the request.
    let templates = match peer.list_resource_templates(None).await {
        Err(ServiceError::McpError(_)) => Vec::new(),
        listed => listed?.resource_templates,
    };
    let entry =
        |one: ResourceTemplate| Entry::new(one.uri_template, true, &one.name, one.description.as_deref());
    let mut entries: Vec<_> = templates.into_iter().filter_map(entry).take(MAX_RESOURCES).collect();
    let mut params = PaginatedRequestParams::default();
    for _ in 0..MAX_PAGES {
        let page = peer.list_resources(Some(params.clone())).await?;
        let entry = |one: Resource| Entry::new(one.uri, false, &one.name, one.description.as_deref());
        entries.extend(page.resources.into_iter().filter_map(entry));
        params.cursor = page.next_cursor.filter(|_| entries.len() < MAX_RESOURCES);
        if params.cursor.is_none() {
            break;
        }
    }
    entries.truncate(MAX_RESOURCES);
    Ok(entries)
}

fn describe(entries: &[Entry]) -> String {
    let line = |entry: &Entry| {
        let kind = if entry.is_template { "template " } else { "" };
        format!("{kind}{}: {}\n", entry.uri, entry.description)
    };
    let text: String = entries.iter().map(line).collect();
    if text.is_empty() { "The server has no resources.".to_owned() } else { text }
}

async fn read(peer: &Peer<RoleClient>, uri: &str) -> Result<Vec<ContentBlock>, ServiceError> {
    let contents = peer.read_resource(ReadResourceRequestParams::new(uri)).await?.contents;
    let block = |contents| match contents {
        ResourceContents::BlobResourceContents { mime_type: Some(media_type), blob, .. }
            if media_type.starts_with("image/") =>
        {
            ContentBlock::image(blob, media_type)
        }
        contents => ContentBlock::resource(contents),
    };
    Ok(contents.into_iter().take(MAX_CONTENTS).map(block).collect())
}
