//! One tool of a server.

use std::fmt;
use std::sync::Arc;

use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tool_core::model::{ToolDefinition, ToolPolicy};

use super::problem::McpProblem;
use super::schema::check_schema;
use super::text::{hex, truncate};

/// The longest description that is sent to the model, in characters. Every request contains it.
const MAX_DESCRIPTION_CHARS: usize = 8000;

/// A tool as a server describes it. All of it is untrusted: a server can make false statements about its tools.
#[derive(Clone, PartialEq)]
pub struct McpTool(Arc<Inner>);

#[derive(Clone, PartialEq)]
struct Inner {
    server: Arc<str>,
    /// The definition for the model. It owns the schema of the arguments, which can be large.
    offered: ToolDefinition,
    /// The server's definition without the schema of the arguments.
    listed: Tool,
    /// The client provides the tool, and not the server.
    is_of_client: bool,
}

impl McpTool {
    /// # Errors
    ///
    /// Returns a problem if no model can call the tool.
    pub(super) fn new(
        name: String,
        server: &Arc<str>,
        mut listed: Tool,
        is_of_client: bool,
    ) -> Result<Self, McpProblem> {
        let mut schema = Value::Object(Arc::unwrap_or_clone(std::mem::take(&mut listed.input_schema)));
        if let Err(reason) = check_schema(&schema) {
            return Err(McpProblem::skipped(&listed.name, reason));
        }
        match schema.get("type") {
            Some(kind) if kind == "object" => {}
            // Some servers omit the type, which can only be an object.
            None if schema == json!({}) || schema.get("properties").is_some() => {
                schema["type"] = "object".into();
            }
            _ => {
                let reason = "its schema does not describe an object, but arguments are passed by name";
                return Err(McpProblem::skipped(&listed.name, reason));
            }
        }
        let offered = ToolDefinition::new(name)
            .with_description(model_description(&listed))
            .with_parameters(schema)
            .with_details_hash(details_hash(&listed));
        Ok(Self(Arc::new(Inner { server: Arc::clone(server), offered, listed, is_of_client })))
    }

    pub(super) fn with_policy(mut self, policy: ToolPolicy, approval_reason: Option<String>) -> Self {
        // Copies only if the approval rule has retained a clone.
        let inner = Arc::make_mut(&mut self.0);
        let offered = std::mem::replace(&mut inner.offered, ToolDefinition::new("")).with_policy(policy);
        inner.offered = match approval_reason {
            Some(reason) => offered.with_approval_reason(reason),
            None => offered,
        };
        self
    }

    pub(super) fn is_of_client(&self) -> bool {
        self.0.is_of_client
    }

    /// Returns the definition that is sent to the model.
    pub(super) fn offered(&self) -> &ToolDefinition {
        &self.0.offered
    }

    /// Returns the name by which models call the tool, before any `prefix` or `rename`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.offered.name()
    }

    /// Returns the name that the server gives the tool.
    #[must_use]
    pub fn original_name(&self) -> &str {
        &self.0.listed.name
    }

    /// Returns the name of the server in this program.
    #[must_use]
    pub fn server_name(&self) -> &str {
        &self.0.server
    }

    /// Returns the title of the tool for display to people.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        title(&self.0.listed)
    }

    /// Returns the server's description of the tool.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.0.listed.description.as_deref()
    }

    fn annotations(&self) -> ToolAnnotations {
        self.0.listed.annotations.clone().unwrap_or_default()
    }

    /// Returns `true` if the server states that the tool changes nothing. A tool that is stated to be read-only and
    /// destructive counts as destructive.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        let annotations = self.annotations();
        annotations.read_only_hint == Some(true) && annotations.destructive_hint != Some(true)
    }

    /// Returns `true` if the tool may be destructive: the server states neither that it changes nothing nor that it only
    /// adds. As the protocol specifies, this includes every tool without annotations.
    #[must_use]
    pub fn is_destructive(&self) -> bool {
        !self.is_read_only() && self.annotations().destructive_hint.unwrap_or(true)
    }

    /// Returns `true` if the server states that repeating a call has no further effect.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.is_read_only() || self.annotations().idempotent_hint == Some(true)
    }

    /// Returns `true` if the tool accesses systems beyond the server, such as the web. This is the default if the server
    /// does not state otherwise.
    #[must_use]
    pub fn is_open_world(&self) -> bool {
        self.annotations().open_world_hint.unwrap_or(true)
    }

    /// Applies the table of [`McpServer::trust_annotations`](super::McpServer::trust_annotations).
    pub(super) fn annotations_suggest_approval(&self) -> bool {
        if self.is_read_only() {
            return self.annotations().open_world_hint == Some(true);
        }
        self.is_destructive() || self.is_open_world()
    }

    /// Returns `true` if calls of the tool need a person's approval, as configured by the methods of
    /// [`McpServer`](super::McpServer).
    #[must_use]
    pub fn needs_approval(&self) -> bool {
        self.0.offered.policy().needs_approval
    }

    /// Returns the JSON Schema of the arguments.
    #[must_use]
    pub fn input_schema(&self) -> &Value {
        self.0.offered.parameters()
    }

    /// Returns the complete definition as a type of the SDK, with `_meta`, icons and the output schema.
    #[cfg(feature = "unstable-rmcp")]
    #[must_use]
    pub fn definition(&self) -> Tool {
        self.as_listed()
    }

    /// Returns the definition as the server listed it.
    pub(super) fn as_listed(&self) -> Tool {
        let mut tool = self.0.listed.clone();
        tool.input_schema = Arc::new(self.input_schema().as_object().cloned().unwrap_or_default());
        tool
    }
}

/// Returns the fields that a model or a person relies on. Icons and `_meta` may change at any time.
pub(super) fn relied_fields(tool: &Tool) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(tool) else { return Map::new() };
    for ignored in ["name", "icons", "_meta"] {
        fields.remove(ignored);
    }
    fields
}

/// Returns a hash of what models do not read, but those who approve calls, such as annotations and the schema of outputs.
fn details_hash(listed: &Tool) -> String {
    let mut fields = Value::Object(relied_fields(listed));
    fields.sort_all_objects();
    hex(&Sha256::digest(fields.to_string()))
}

/// Returns the description for the model: the server's, or the title if there is none.
fn model_description(tool: &Tool) -> String {
    let description = tool.description.as_deref().filter(|description| !description.trim().is_empty());
    truncate(description.or_else(|| title(tool)).unwrap_or_default(), MAX_DESCRIPTION_CHARS)
}

fn title(tool: &Tool) -> Option<&str> {
    tool.title.as_deref().or_else(|| tool.annotations.as_ref()?.title.as_deref())
}

/// Shows only the names of the tool and of the server.
impl fmt::Debug for McpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTool")
            .field("name", &self.name())
            .field("server", &self.server_name())
            .finish_non_exhaustive()
    }
}
