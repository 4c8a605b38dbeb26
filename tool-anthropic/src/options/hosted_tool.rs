//! Tools that the provider executes.

use serde_json::{Map, Value, json};

/// A tool that the provider executes within a reply. Its uses and results are blocks of the reply
/// ([`ReplyDetails`](crate::ReplyDetails)), its sources are [citations](tool_core::model::AssistantMessage::citations), and its uses
/// are charged.
///
/// ```
/// use tool_anthropic::{Anthropic, HostedTool};
///
/// let anthropic = Anthropic::builder().api_key("…").build()?;
/// let model = anthropic
///     .chat_model("claude-sonnet-5-5")
///     .hosted_tool(HostedTool::web_search().max_uses(3).allowed_domains(["example.org"]))
///     .hosted_tool(HostedTool::code_execution());
/// # let _ = model;
/// # Ok::<_, tool_anthropic::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct HostedTool(Map<String, Value>);

impl HostedTool {
    /// Creates a tool from its versioned type and its name, such as `web_search_20260318` and `web_search`.
    pub fn new(r#type: impl Into<String>, name: impl Into<String>) -> Self {
        let members = [("type", r#type.into()), ("name", name.into())];
        Self(members.into_iter().map(|(name, text)| (name.to_owned(), text.into())).collect())
    }

    /// Searches the web. This version works with every model and platform; see [`filtered`](Self::filtered).
    pub fn web_search() -> Self {
        Self::new("web_search_20250305", "web_search")
    }

    /// Reads pages and PDFs whose URLs are in the conversation.
    pub fn web_fetch() -> Self {
        Self::new("web_fetch_20250910", "web_fetch")
    }

    /// Executes code in a container, which later requests of the conversation continue.
    pub fn code_execution() -> Self {
        Self::new("code_execution_20250825", "code_execution")
    }

    /// Lets the model filter results of [`web_search`](Self::web_search) and [`web_fetch`](Self::web_fetch) by code before it reads
    /// them, which [takes fewer tokens]. It needs Claude 4.6 or later, and not all platforms have it.
    ///
    /// [takes fewer tokens]: https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool
    pub fn filtered(self) -> Self {
        match self.0.get("name").and_then(Value::as_str) {
            Some("web_search") => self.with("type", "web_search_20260318"),
            Some("web_fetch") => self.with("type", "web_fetch_20260318"),
            _ => self,
        }
    }

    /// Limits the uses in one request.
    pub fn max_uses(self, uses: u32) -> Self {
        self.with("max_uses", uses)
    }

    /// Restricts searches and pages to these domains.
    pub fn allowed_domains<T: Into<String>>(self, domains: impl IntoIterator<Item = T>) -> Self {
        self.with("allowed_domains", domains.into_iter().map(Into::into).collect::<Vec<String>>())
    }

    /// Excludes these domains. It cannot be combined with allowed ones.
    pub fn blocked_domains<T: Into<String>>(self, domains: impl IntoIterator<Item = T>) -> Self {
        self.with("blocked_domains", domains.into_iter().map(Into::into).collect::<Vec<String>>())
    }

    /// Limits the tokens of a page that [`web_fetch`](Self::web_fetch) reads.
    pub fn max_content_tokens(self, tokens: u32) -> Self {
        self.with("max_content_tokens", tokens)
    }

    /// Sets whether the model cites the pages that [`web_fetch`](Self::web_fetch) reads. Searches are always cited.
    pub fn citations(self, is_enabled: bool) -> Self {
        self.with("citations", json!({ "enabled": is_enabled }))
    }

    /// Sets another member, in the terms of the API.
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// Returns why the API would reject the tool.
    pub(crate) fn find_violation(&self) -> Option<String> {
        let (has, name) = (|member: &str| self.0.contains_key(member), self.name());
        if has("allowed_domains") && has("blocked_domains") {
            return Some(format!("the tool `{name}` has allowed and blocked domains; use one of them"));
        }
        has("cache_control").then(|| format!("the tool `{name}` sets `cache_control`; use `Messages::cache`"))
    }

    /// Returns the name by which the model uses the tool.
    pub(crate) fn name(&self) -> &str {
        self.0.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns `true` if replies cite what the tool finds because the caller demands it.
    pub(crate) fn has_citations(&self) -> bool {
        self.0.get("citations").is_some_and(|citations| citations["enabled"] == true)
    }

    /// Returns the tool as the API writes it.
    pub(crate) fn to_json(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }
}
