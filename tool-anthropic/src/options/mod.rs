//! What a model can be configured with besides the options that all providers share.

mod cache;
mod hosted_tool;
mod thinking;

pub use self::cache::{Cache, CacheTtl};
pub use self::hosted_tool::HostedTool;
pub use self::thinking::Thinking;

/// The options of a model.
#[derive(Clone, Debug)]
pub(crate) struct MessagesOptions {
    pub(crate) cache: Cache,
    pub(crate) thinking: Option<Thinking>,
    pub(crate) hosted_tools: Vec<HostedTool>,
    /// The model cites the files that it reads.
    pub(crate) has_citations: bool,
    pub(crate) max_pauses: u32,
}

impl MessagesOptions {
    /// Returns `true` if replies have citations because the caller demands them. The API then accepts no schema for the reply.
    pub(crate) fn has_citations(&self) -> bool {
        self.has_citations || self.hosted_tools.iter().any(HostedTool::has_citations)
    }
}

impl Default for MessagesOptions {
    fn default() -> Self {
        Self {
            cache: Cache::default(),
            thinking: None,
            hosted_tools: Vec::new(),
            has_citations: false,
            max_pauses: 8,
        }
    }
}
