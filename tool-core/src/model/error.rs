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
    is_permanent: bool,
}

impl ModelError {
    /// Wraps the provider's error. A `ModelError` is returned as it is.
    #[must_use]
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        match error.into().downcast::<Self>() {
            Ok(error) => *error,
            Err(error) => Self { error, is_permanent: false },
        }
    }

    /// Marks the error as one that the same request returns again, at any time, such as an invalid request.
    #[must_use]
    pub fn permanent(self) -> Self {
        Self { is_permanent: true, ..self }
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
        let is_permanent = self.is_permanent;
        self.error.downcast().map(|error| *error).map_err(|error| Self { error, is_permanent })
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
