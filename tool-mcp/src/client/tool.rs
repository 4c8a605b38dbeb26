//! One tool of a server, as it was listed.

use std::fmt;
use std::sync::Arc;

use rmcp::model::Tool;
use serde_json::{Map, Value};

use super::listing::McpProblem;

/// How much of a description the model reads, in characters: each request carries it.
const LONGEST_DESCRIPTION: usize = 8000;

/// How deep a schema may be, in levels of JSON. Beyond it begins what a message loses for being too deep.
const DEEPEST_SCHEMA: usize = 100;

/// A tool as a server describes it. Nothing of it is known to be true: a server may say of itself what it likes.
#[derive(Clone, PartialEq)]
pub struct McpTool {
    name: String,
    server: Arc<str>,
    tool: Arc<Tool>,
}

impl McpTool {
    /// # Errors
    ///
    /// No model could call it.
    pub(super) fn new(name: String, server: &str, mut tool: Tool) -> Result<Self, McpProblem> {
        let schema = &tool.input_schema;
        if is_deeper(schema, DEEPEST_SCHEMA) {
            let what = format!("its schema is nested deeper than {DEEPEST_SCHEMA} levels");
            return Err(McpProblem::left_out(&tool.name, what));
        }
        match schema.get("type") {
            Some(kind) if kind == "object" => {}
            // Servers forget it, and it can be nothing else.
            None if schema.is_empty() || schema.contains_key("properties") => {
                Arc::make_mut(&mut tool.input_schema).insert("type".into(), "object".into());
            }
            _ => {
                let what = "its schema is not that of an object, but arguments are given by name";
                return Err(McpProblem::left_out(&tool.name, what));
            }
        }
        Ok(Self { name, server: server.into(), tool: Arc::new(tool) })
    }

    /// The name that models call it by, before any `prefix` or `rename`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server's own name for it.
    #[must_use]
    pub fn name_at_server(&self) -> &str {
        &self.tool.name
    }

    /// The server's name in this program.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// A title for people.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        let annotations = self.tool.annotations.as_ref();
        self.tool.title.as_deref().or_else(|| annotations?.title.as_deref())
    }

    /// What it does, in the server's words.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.tool.description.as_deref()
    }

    /// The server says that it changes nothing.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.tool.annotations.as_ref().and_then(|annotations| annotations.read_only_hint).unwrap_or(false)
    }

    /// It may destroy something: the server neither says that it changes nothing nor that it only adds. So is every tool that
    /// has no annotations, as the protocol has it.
    #[must_use]
    pub fn is_destructive(&self) -> bool {
        let hint = self.tool.annotations.as_ref().and_then(|annotations| annotations.destructive_hint);
        !self.is_read_only() && hint.unwrap_or(true)
    }

    /// The server says that to call it twice does no more than to call it once.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        let annotations = self.tool.annotations.as_ref();
        self.is_read_only()
            || annotations.and_then(|annotations| annotations.idempotent_hint).unwrap_or(false)
    }

    /// It reaches what lies beyond the server, such as the web: so it is unless the server says otherwise.
    #[must_use]
    pub fn is_open_world(&self) -> bool {
        let annotations = self.tool.annotations.as_ref();
        annotations.and_then(|annotations| annotations.open_world_hint).unwrap_or(true)
    }

    /// The JSON Schema of its arguments.
    #[must_use]
    pub fn input_schema(&self) -> &Map<String, Value> {
        &self.tool.input_schema
    }

    /// The definition as the SDK has it, with `_meta`, icons and the schema of its output.
    #[must_use]
    pub fn definition(&self) -> &Tool {
        &self.tool
    }

    /// What the model is told that it does.
    pub(super) fn words(&self) -> String {
        let words = self.description().filter(|words| !words.trim().is_empty()).or(self.title());
        let words = words.unwrap_or_default();
        match words.char_indices().nth(LONGEST_DESCRIPTION) {
            Some((end, _)) => format!("{}…", &words[..end]),
            None => words.to_owned(),
        }
    }
}

/// Names the tool only.
impl fmt::Debug for McpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTool")
            .field("name", &self.name)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// It does not recurse, as it is asked of what may be too deep to.
fn is_deeper(object: &Map<String, Value>, limit: usize) -> bool {
    let mut open: Vec<_> = object.values().map(|value| (value, 2)).collect();
    while let Some((value, depth)) = open.pop() {
        let is_nested = matches!(value, Value::Array(_) | Value::Object(_));
        if is_nested && depth > limit {
            return true;
        }
        match value {
            Value::Array(values) => open.extend(values.iter().map(|value| (value, depth + 1))),
            Value::Object(members) => open.extend(members.values().map(|value| (value, depth + 1))),
            _ => {}
        }
    }
    false
}
