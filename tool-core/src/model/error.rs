//! The error of a request to a model.

use std::error::Error;
use std::fmt;

/// The error of a request to a model. Wraps the provider's own error.
///
/// ```
/// use tool_core::model::ModelError;
///
/// let error = ModelError::new(std::io::Error::other("connection reset"));
/// assert_eq!(error.to_string(), "connection reset");
/// assert!(error.downcast_ref::<std::io::Error>().is_some());
/// ```
pub struct ModelError {
    error: Box<dyn Error + Send + Sync>,
    kind: ModelErrorKind,
    is_permanent: bool,
    is_unbilled: bool,
}

/// The kind of a [`ModelError`], the same for all providers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// The provider cannot be reached, fails or is overloaded, or its response did not arrive whole.
    Unavailable,
    /// The response took too long.
    Timeout,
    /// Too many requests were sent.
    RateLimit,
    /// The account has no money left.
    Quota,
    /// The key is missing, invalid or not allowed to use the model.
    Authentication,
    /// The conversation is too long for the model.
    ContextLength,
    /// A filter of the provider rejected the request.
    ContentFilter,
    /// The request is invalid.
    InvalidRequest,
    /// A limit of the run's cost or a budget leaves too little money for the request. It was not sent.
    Unaffordable,
    /// Another kind, or one that the provider does not report.
    #[default]
    Other,
}

impl ModelError {
    /// Wraps the provider's error. A `ModelError` is returned as it is.
    #[must_use]
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        match error.into().downcast::<Self>() {
            Ok(error) => *error,
            Err(error) => {
                Self { error, kind: ModelErrorKind::Other, is_permanent: false, is_unbilled: false }
            }
        }
    }

    /// Creates the error of a request that is not sent, because it is invalid.
    pub(crate) fn invalid_request(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(reason).with_kind(ModelErrorKind::InvalidRequest).permanent().unbilled()
    }

    /// Creates the error of a stream that ends without a response.
    pub(crate) fn cut_off() -> Self {
        let error = Self::new("the stream ended before the response was complete");
        error.with_kind(ModelErrorKind::Unavailable)
    }

    /// Marks the error as one that the same request returns again, at any time, such as an invalid request.
    #[must_use]
    pub fn permanent(self) -> Self {
        Self { is_permanent: true, ..self }
    }

    /// Sets the kind of the error.
    #[must_use]
    pub fn with_kind(self, kind: ModelErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// Returns the kind of the error, by which a [`Fallback`](crate::model::Fallback) decides.
    #[must_use]
    pub fn kind(&self) -> ModelErrorKind {
        self.kind
    }

    /// Marks the error as one of a request that certainly costs nothing, because it was rejected or did not reach the provider.
    #[must_use]
    pub fn unbilled(self) -> Self {
        Self { is_unbilled: true, ..self }
    }

    /// Returns `true` if the request certainly costs nothing.
    #[must_use]
    pub fn is_unbilled(&self) -> bool {
        self.is_unbilled
    }

    /// Returns `true` if the same request cannot succeed later, as far as the provider knows.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.is_permanent
    }

    /// Returns the provider's error if it is of type `E`.
    #[must_use]
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.error.downcast_ref()
    }

    /// Unwraps the provider's error if it is of type `E`.
    ///
    /// # Errors
    ///
    /// Returns `self` if the provider's error is of another type.
    pub fn downcast<E: Error + 'static>(self) -> Result<E, Self> {
        let Self { error, kind, is_permanent, is_unbilled } = self;
        error.downcast().map(|error| *error).map_err(|error| Self { error, kind, is_permanent, is_unbilled })
    }
}

impl fmt::Debug for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl Error for ModelError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}
