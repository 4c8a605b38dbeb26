//! Responses with a status that reports success.

use std::fmt;

use futures_util::stream::StreamExt;
use reqwest::Response;
use tokio::sync::OwnedSemaphorePermit;
use tool_core::model::ChatResponse;

use super::assembler::Assembler;
use super::body::read_body;
use super::deltas::Deltas;
use super::error::Error;
use super::response_context::{MAX_RESPONSE_BYTES, ResponseContext};

/// A response with a status that reports success. The request is in flight until this is dropped.
pub struct ApiResponse<'a> {
    pub(super) response: Response,
    pub(super) permit: Option<OwnedSemaphorePermit>,
    pub(super) context: ResponseContext<'a>,
}

impl<'a> ApiResponse<'a> {
    /// Returns `true` if the body is a stream of events. Some servers ignore that one was requested.
    #[must_use]
    pub fn is_event_stream(&self) -> bool {
        let content_type = self.context.content_type.as_deref();
        content_type.is_some_and(|value| value.starts_with("text/event-stream"))
    }

    /// Reads a body of at most `max_bytes`, and parses it. `parse` returns `None` if it does not follow the API.
    ///
    /// # Errors
    ///
    /// Fails if the connection does, or if the body is too long or does not follow the API.
    pub async fn read<T>(
        mut self,
        max_bytes: usize,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Error> {
        let text = self.text(max_bytes).await?;
        let invalid = || Error::invalid_response("the response does not follow the API; check the base URL");
        parse(&text).ok_or_else(|| self.context.fail(invalid()))
    }

    /// Reads and assembles the whole response.
    ///
    /// # Errors
    ///
    /// Fails if the connection does, or if the response reports an error or cannot be used.
    pub async fn assemble(mut self, mut assembler: impl Assembler) -> Result<ChatResponse, Error> {
        let text = self.text(MAX_RESPONSE_BYTES).await?;
        match assembler.push_whole(&text) {
            Ok(()) => Ok(assembler.finish()),
            Err(error) => Err(self.context.event_error(error, &text)),
        }
    }

    /// Returns the deltas of a streamed response as they arrive, as a `Stream` of `Result<Delta, Error>`.
    ///
    /// - A stream that ends or breaks once the response [is complete](Assembler::is_complete) yields the response.
    /// - A stream that ends or breaks earlier, without a last event, yields an error with the partial response.
    /// - Data after the last event is ignored, and the end of the body is awaited only briefly.
    pub fn into_deltas<A: Assembler>(self, assembler: A) -> Deltas<'a, A> {
        let Self { response, permit, context } = self;
        let hold = move |_: &reqwest::Result<_>| {
            // The permit is released with the stream.
            let _ = &permit;
        };
        Deltas::new(response.bytes_stream().inspect(hold).boxed(), assembler, context)
    }

    async fn text(&mut self, max_bytes: usize) -> Result<String, Error> {
        let error = match read_body(&mut self.response, max_bytes).await {
            Ok(body) if !body.is_truncated => {
                // Validating first is faster than a lossy conversion, and nearly every body is valid.
                let text = String::from_utf8(body.bytes.into());
                return Ok(
                    text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
                );
            }
            Ok(_) => Error::invalid_response(format!("the response is longer than {max_bytes} bytes")),
            Err(error) => Error::transport(error),
        };
        Err(self.context.fail(error))
    }
}

/// Shows no data.
impl fmt::Debug for ApiResponse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiResponse").field("status", &self.response.status()).finish_non_exhaustive()
    }
}
