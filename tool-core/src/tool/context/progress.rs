//! What a tool tells of its progress while it runs.

use std::fmt;
use std::sync::Arc;

/// How far a call has come, in the tool's own words.
///
/// ```
/// use tool_core::tool::ToolProgress;
///
/// let progress = ToolProgress::from("downloading").of(3, 7);
/// assert_eq!((&*progress.text, progress.done, progress.total), ("downloading", Some(3), Some(7)));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolProgress {
    /// What the tool is at; may be empty.
    pub text: String,
    /// How much is done.
    pub done: Option<u64>,
    /// Of how much.
    pub total: Option<u64>,
}

impl ToolProgress {
    /// The same, with how much is done of how much.
    #[must_use]
    pub fn of(mut self, done: u64, total: u64) -> Self {
        (self.done, self.total) = (Some(done), Some(total));
        self
    }
}

impl From<&str> for ToolProgress {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<String> for ToolProgress {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

/// Leaves the text out: it may tell of arguments.
impl fmt::Debug for ToolProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolProgress")
            .field("text", &format_args!("{} bytes", self.text.len()))
            .field("done", &self.done)
            .field("total", &self.total)
            .finish()
    }
}

/// Takes what a tool tells of its progress.
pub(crate) type ProgressSink = Arc<dyn Fn(ToolProgress) + Send + Sync>;

/// Where a tool tells of its progress: it has it injected, as `#[inject] progress: &Progress`. Whoever
/// [listens](crate::agent::Ask::stream) to the run is told; if nobody does, or not fast enough, it is lost.
///
/// ```
/// use tool_core::tool::{Progress, ToolProgress};
/// use tool_core::tool;
///
/// #[tool("Fetches all pages of a report")]
/// async fn fetch(pages: u64, #[inject] progress: &Progress) -> String {
///     for page in 0..pages {
///         progress.report(ToolProgress::from("fetching").of(page, pages));
///     }
///     "the report".into()
/// }
/// # let _ = fetch;
/// ```
#[derive(Clone, Default)]
pub struct Progress(Option<ProgressSink>);

impl Progress {
    /// Nobody listens.
    pub(crate) const UNHEARD: Self = Self(None);

    pub(crate) fn to(sink: ProgressSink) -> Self {
        Self(Some(sink))
    }

    /// The function is told, for a call that is made [outside a run](crate::ToolContext::outside_run). It must not block.
    /// [`Progress::default`] tells nobody.
    #[must_use]
    pub fn new(told: impl Fn(ToolProgress) + Send + Sync + 'static) -> Self {
        Self::to(Arc::new(told))
    }

    /// Tells how far the call has come.
    pub fn report(&self, progress: impl Into<ToolProgress>) {
        if let Some(sink) = &self.0 {
            sink(progress.into());
        }
    }

    /// Somebody may listen: for who would go to some length to know how far a call has come.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        self.0.is_some()
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}
