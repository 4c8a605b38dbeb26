//! A span whose outcome is not known yet.

use std::time::Instant;

use tracing::Span;

/// A span whose outcome is not known yet. If it is closed before that, its work was cancelled.
pub(super) struct OpenSpan {
    pub(super) span: Span,
    pub(super) started: Instant,
    /// The kind and the text of the failure to record when the span is closed.
    failure: Option<(&'static str, Option<String>)>,
}

impl OpenSpan {
    pub(super) fn new(span: Span) -> Self {
        Self { span, started: Instant::now(), failure: Some(("cancelled", None)) }
    }

    pub(super) fn set_failure(&mut self, kind: &'static str, text: Option<String>) {
        self.failure = Some((kind, text));
    }

    pub(super) fn set_success(&mut self) {
        self.failure = None;
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if let Some((kind, text)) = &self.failure {
            self.span.record("error.type", kind);
            self.span.record("otel.status_code", "ERROR");
            self.span.record("otel.status_description", text.as_deref());
        }
    }
}
