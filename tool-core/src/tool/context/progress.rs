//! Progress reports of running calls.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The progress of a call.
///
/// ```
/// use tool_core::signatures::ToolProgress;
///
/// let progress = ToolProgress::from("downloading").completed(3, 7);
/// assert_eq!((&*progress.text, progress.done, progress.total), ("downloading", Some(3), Some(7)));
/// ```
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ToolProgress {
    /// A description of the current step. It can be empty.
    pub text: String,
    /// The amount of work done.
    pub done: Option<u64>,
    /// The total amount of work.
    pub total: Option<u64>,
}

impl ToolProgress {
    /// Returns this progress with the amount of work done and the total.
    #[must_use]
    pub fn completed(mut self, done: u64, total: u64) -> Self {
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

/// Omits the text: it can contain arguments.
impl fmt::Debug for ToolProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolProgress")
            .field("text", &format_args!("{} bytes", self.text.len()))
            .field("done", &self.done)
            .field("total", &self.total)
            .finish()
    }
}

/// Receives the progress reports of a call.
pub(crate) type ProgressSink = Arc<dyn Fn(ToolProgress) + Send + Sync>;

/// Reports the progress of a call. A tool injects it, as `#[inject] progress: &Progress`.
///
/// Reports arrive in the [stream](crate::agent::Ask::stream) of the run. They are dropped if there is no listener or it is too
/// slow.
///
/// ```
/// use tool_core::signatures::ToolProgress;
/// use tool_core::tool::Progress;
/// use tool_core::tool;
///
/// #[tool("Fetches all pages of a report")]
/// async fn fetch(pages: u64, #[inject] progress: &Progress) -> String {
///     for page in 0..pages {
///         progress.report(ToolProgress::from("fetching").completed(page, pages));
///     }
///     "the report".into()
/// }
/// # let _ = fetch;
/// ```
#[derive(Clone, Default)]
pub struct Progress(Option<ProgressSink>);

impl Progress {
    /// Discards all reports.
    pub(crate) const NONE: Self = Self(None);

    pub(crate) fn with_sink(sink: ProgressSink) -> Self {
        Self(Some(sink))
    }

    /// Creates a reporter that calls a function, for a call executed outside a run. The function must not block.
    /// [`Progress::default`] discards all reports.
    #[must_use]
    pub fn new(listener: impl Fn(ToolProgress) + Send + Sync + 'static) -> Self {
        Self::with_sink(Arc::new(listener))
    }

    /// Reports the progress of the call.
    pub fn report(&self, progress: impl Into<ToolProgress>) {
        if let Some(sink) = &self.0 {
            sink(progress.into());
        }
    }

    /// Returns `true` if reports can reach a listener. A tool can skip costly reports otherwise.
    #[must_use]
    pub fn has_listener(&self) -> bool {
        self.0.is_some()
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}
