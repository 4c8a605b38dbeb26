//! Retries of requests.

use std::time::Duration;

use tool_http::client::{self, Retryable};

use crate::error::Error;

/// A retry that is about to happen, as passed to the [`on_retry`](crate::OpenAiBuilder::on_retry) hook.
pub type Retry<'a> = client::Retry<'a, Error>;

impl Retryable for Error {
    fn is_retryable(&self) -> bool {
        self.is_retryable()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.retry_after()
    }
}
