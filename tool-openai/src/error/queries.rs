//! What can be asked of an error.

use std::time::Duration;

use tool_core::{ChatResponse, RunError, RunErrorKind};

use super::class::Class;
use super::{ApiError, Error, Kind};

impl Error {
    /// The endpoint's error that ended a run, if it was one.
    #[must_use]
    pub fn of(error: &RunError) -> Option<&Self> {
        match error.kind() {
            RunErrorKind::Model(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// The endpoint cannot be used as it is set.
    #[must_use]
    pub fn is_config(&self) -> bool {
        matches!(self.0.kind, Kind::Config(_))
    }

    /// The endpoint could not be reached.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        matches!(&self.0.kind, Kind::Transport { error, .. } if error.is_connect())
    }

    /// The endpoint took too long.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        match &self.0.kind {
            Kind::Transport { error, .. } => error.is_timeout(),
            Kind::Incomplete { why: Some(why) } => why.is_timeout(),
            _ => false,
        }
    }

    /// The API refused the request or failed: see [`status`](Self::status), [`code`](Self::code) and
    /// [`message`](Self::message).
    #[must_use]
    pub fn is_api(&self) -> bool {
        matches!(self.0.kind, Kind::Api(_))
    }

    /// The answer is not one of the API.
    #[must_use]
    pub fn is_invalid_response(&self) -> bool {
        matches!(self.0.kind, Kind::InvalidResponse(_) | Kind::Redirected { .. } | Kind::Empty)
    }

    /// The stream ended before the response was whole: see [`partial`](Self::partial).
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        matches!(self.0.kind, Kind::Incomplete { .. })
    }

    /// The HTTP status, if the error is the API's and came with one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match &self.0.kind {
            Kind::Redirected { status, .. } => Some(status.as_u16()),
            _ => self.api_error()?.status.map(|status| status.as_u16()),
        }
    }

    /// The API's code, such as `invalid_api_key`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.api_error()?.code.as_deref()
    }

    /// The API's type of the error, such as `invalid_request_error`.
    #[must_use]
    pub fn error_type(&self) -> Option<&str> {
        self.api_error()?.kind.as_deref()
    }

    /// The API's message.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.api_error().map(|error| &*error.message)
    }

    /// The field of the request that the API complains of.
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        self.api_error()?.param.as_deref()
    }

    /// The API's name for the request, for its support; of every error that came with an answer.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.0.request_id.as_deref()
    }

    /// There were too many requests, or tokens, in a time: see [`retry_after`](Self::retry_after).
    #[must_use]
    pub fn is_rate_limited(&self) -> bool {
        self.class() == Some(Class::RateLimit)
    }

    /// The account has no money or no quota left: to wait does not help.
    #[must_use]
    pub fn is_quota(&self) -> bool {
        self.class() == Some(Class::Quota)
    }

    /// The conversation is longer than the model can read.
    #[must_use]
    pub fn is_context_length(&self) -> bool {
        self.class() == Some(Class::ContextLength)
    }

    /// The provider has too much to do for now.
    #[must_use]
    pub fn is_overloaded(&self) -> bool {
        self.class() == Some(Class::Overloaded)
    }

    /// A filter of the provider refused the request.
    #[must_use]
    pub fn is_content_filter(&self) -> bool {
        self.class() == Some(Class::ContentFilter)
    }

    /// The key is missing or wrong, or may not do this.
    #[must_use]
    pub fn is_authentication(&self) -> bool {
        self.class() == Some(Class::Authentication)
    }

    /// The model wrote a call that the server could not read: see [`failed_generation`](Self::failed_generation).
    #[must_use]
    pub fn is_tool_generation(&self) -> bool {
        self.class() == Some(Class::ToolGeneration)
    }

    /// The request is wrong: the API says so, or it was not even sent.
    #[must_use]
    pub fn is_invalid_request(&self) -> bool {
        self.class() == Some(Class::InvalidRequest) || matches!(self.0.kind, Kind::Request(_))
    }

    /// The server failed, through no fault of the request.
    #[must_use]
    pub fn is_server(&self) -> bool {
        self.class() == Some(Class::Server)
    }

    /// The same request may succeed if it is sent again: the connection failed, or the server did, or it has too much to do.
    /// What is [retried](crate::OpenAiBuilder::max_retries) was so to the last; a stream that broke off is not retried, as
    /// its beginning was read already.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match &self.0.kind {
            Kind::Transport { error, .. } => !error.is_builder() && !error.is_redirect(),
            Kind::Api(error) => {
                let class = Class::of(error);
                match error.retry.should {
                    _ if error.retry.is_too_long() => false,
                    _ if class == Class::Quota || class == Class::ContextLength => false,
                    Some(should) => should,
                    None => class.is_passing(),
                }
            }
            Kind::Empty => true,
            Kind::Incomplete { why } => why.as_ref().is_none_or(Self::is_retryable),
            _ => false,
        }
    }

    /// How long the server wishes to be left alone.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.api_error()?.retry.after
    }

    /// What the model wrote in the place of a call, where the server tells.
    #[must_use]
    pub fn failed_generation(&self) -> Option<&str> {
        self.api_error()?.failed_generation.as_deref()
    }

    fn class(&self) -> Option<Class> {
        match &self.0.kind {
            Kind::Empty => Some(Class::Server),
            Kind::Incomplete { why: Some(why) } => why.class(),
            _ => self.api_error().map(Class::of),
        }
    }

    /// What came of a stream before the error.
    #[must_use]
    pub fn partial(&self) -> Option<&ChatResponse> {
        self.0.partial.as_ref()
    }

    fn api_error(&self) -> Option<&ApiError> {
        match &self.0.kind {
            Kind::Api(error) => Some(error),
            _ => None,
        }
    }
}
