//! What is needed to report that a response cannot be used.

use super::assembler::EventError;
use super::error::{Error, FailedRequest, ResponseHead};
use super::error_kind::ErrorKinds;
use super::redact::Redactor;

/// The longest response that is read: far more than a model writes.
pub(super) const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// The number of characters of an error in a response that are read, as many as of an error response.
const MAX_ERROR_CHARS: usize = 64 << 10;

/// The request and the head of a response, whose body is being read.
#[derive(Clone, Debug)]
pub(super) struct ResponseContext<'a> {
    pub(super) redactor: &'a Redactor,
    pub(super) request: FailedRequest,
    pub(super) request_id: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) known_errors: ErrorKinds,
}

impl ResponseContext<'_> {
    /// Adds the request to an error.
    pub(super) fn with_request(&self, error: Error) -> Error {
        error.with_request(&self.request, None)
    }

    /// Adds the request and its id to an error.
    pub(super) fn fail(&self, error: Error) -> Error {
        error.with_request(&self.request, self.request_id.as_deref())
    }

    /// Returns the error for a body, or the data of an event, that could not be turned into a response.
    pub(super) fn event_error(&self, error: EventError, text: &str) -> Error {
        let redact = |text: &str| self.redactor.redact(text);
        self.fail(match error {
            EventError::Api(json) => {
                // Redacted before it is truncated, because part of a key would not be found.
                let start: String = redact(&json).chars().take(MAX_ERROR_CHARS).collect();
                let head = ResponseHead { known_errors: self.known_errors, ..ResponseHead::default() };
                Error::api(&start, head, self.redactor)
            }
            EventError::Malformed(reason) => {
                Error::malformed(self.content_type.as_deref(), &redact(text), &redact(&reason))
            }
            EventError::Aborted(reason) => {
                Error::incomplete(Some(Error::aborted(redact(&reason), self.known_errors)))
            }
            EventError::Empty => Error::empty(),
        })
    }
}
