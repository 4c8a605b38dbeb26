//! One tool of a server, as it was listed.

use std::fmt;
use std::sync::Arc;

use rmcp::model::Tool;
use serde_json::Value;
use tool_core::{ToolDefinition, ToolPolicy};

use super::listing::McpProblem;
use super::schema;
use super::settings::Approval;

/// How much of a description the model reads, in characters: each request carries it.
const LONGEST_DESCRIPTION: usize = 8000;

/// A tool as a server describes it. Nothing of it is known to be true: a server may say of itself what it likes.
#[derive(Clone, PartialEq)]
pub struct McpTool(Arc<Inner>);

#[derive(PartialEq)]
struct Inner {
    server: Arc<str>,
    /// As the model is told of it. It has the schema of the arguments, which is large: there is one of it.
    offered: ToolDefinition,
    /// The rest of what the server says.
    tool: Tool,
}

impl McpTool {
    /// # Errors
    ///
    /// No model could call it.
    pub(super) fn new(
        name: String,
        server: &Arc<str>,
        mut tool: Tool,
        needs_approval: &Approval,
    ) -> Result<Self, McpProblem> {
        let mut schema = Arc::unwrap_or_clone(std::mem::take(&mut tool.input_schema));
        if let Some(flaw) = schema::flaw(&schema) {
            return Err(McpProblem::left_out(&tool.name, flaw));
        }
        match schema.get("type") {
            Some(kind) if kind == "object" => {}
            // Servers forget it, and it can be nothing else.
            None if schema.is_empty() || schema.contains_key("properties") => {
                schema.insert("type".into(), "object".into());
            }
            _ => {
                let what = "its schema is not that of an object, but arguments are given by name";
                return Err(McpProblem::left_out(&tool.name, what));
            }
        }
        let offered = ToolDefinition::new(name, words(&tool)).with_parameters(Value::Object(schema));
        let plain = Self(Arc::new(Inner { server: Arc::clone(server), offered, tool }));
        let mut policy = ToolPolicy::default();
        policy.needs_approval = needs_approval(&plain);
        policy.at_most_once = !plain.is_idempotent();
        match Arc::try_unwrap(plain.0) {
            Ok(inner) => {
                let offered = inner.offered.with_policy(policy);
                Ok(Self(Arc::new(Inner { offered, ..inner })))
            }
            // Whoever was asked kept a clone.
            Err(kept) => {
                let offered = kept.offered.clone().with_policy(policy);
                let (server, tool) = (Arc::clone(&kept.server), kept.tool.clone());
                Ok(Self(Arc::new(Inner { server, offered, tool })))
            }
        }
    }

    /// As the model is told of it.
    pub(super) fn offered(&self) -> &ToolDefinition {
        &self.0.offered
    }

    /// The name that models call it by, before any `prefix` or `rename`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.offered.name()
    }

    /// The server's own name for it.
    #[must_use]
    pub fn name_at_server(&self) -> &str {
        &self.0.tool.name
    }

    /// The server's name in this program.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.0.server
    }

    /// A title for people.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        title(&self.0.tool)
    }

    /// What it does, in the server's words.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.0.tool.description.as_deref()
    }

    /// The server says that it changes nothing.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.0.tool.annotations.as_ref().and_then(|annotations| annotations.read_only_hint).unwrap_or(false)
    }

    /// It may destroy something: the server neither says that it changes nothing nor that it only adds. So is every tool that
    /// has no annotations, as the protocol has it.
    #[must_use]
    pub fn is_destructive(&self) -> bool {
        let hint = self.0.tool.annotations.as_ref().and_then(|annotations| annotations.destructive_hint);
        !self.is_read_only() && hint.unwrap_or(true)
    }

    /// The server says that to call it twice does no more than to call it once.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        let annotations = self.0.tool.annotations.as_ref();
        self.is_read_only()
            || annotations.and_then(|annotations| annotations.idempotent_hint).unwrap_or(false)
    }

    /// It reaches what lies beyond the server, such as the web: so it is unless the server says otherwise.
    #[must_use]
    pub fn is_open_world(&self) -> bool {
        let annotations = self.0.tool.annotations.as_ref();
        annotations.and_then(|annotations| annotations.open_world_hint).unwrap_or(true)
    }

    /// The JSON Schema of its arguments.
    #[must_use]
    pub fn input_schema(&self) -> &Value {
        self.0.offered.parameters()
    }

    /// The whole definition as the SDK has it, with `_meta`, icons and the schema of its output.
    #[must_use]
    pub fn definition(&self) -> Tool {
        let mut tool = self.0.tool.clone();
        tool.input_schema = Arc::new(self.input_schema().as_object().cloned().unwrap_or_default());
        tool
    }
}

/// What the model is told that it does.
fn words(tool: &Tool) -> String {
    let words = tool.description.as_deref().filter(|words| !words.trim().is_empty());
    let words = words.or_else(|| title(tool)).unwrap_or_default();
    if words.len() <= LONGEST_DESCRIPTION {
        return words.to_owned();
    }
    match words.char_indices().nth(LONGEST_DESCRIPTION) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words.to_owned(),
    }
}

fn title(tool: &Tool) -> Option<&str> {
    tool.title.as_deref().or_else(|| tool.annotations.as_ref()?.title.as_deref())
}

/// Names the tool only.
impl fmt::Debug for McpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTool")
            .field("name", &self.name())
            .field("server", &self.server())
            .finish_non_exhaustive()
    }
}
