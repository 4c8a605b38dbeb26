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
#[derive(thiserror::Error)]
#[error(transparent)]
pub struct ModelError(Box<dyn Error + Send + Sync>);

impl ModelError {
    /// Wraps the provider's error. A `ModelError` is returned as it is.
    #[must_use]
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        match error.into().downcast::<Self>() {
            Ok(error) => *error,
            Err(other) => Self(other),
        }
    }

    /// Returns the provider's error if it is of type `E`.
    #[must_use]
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }

    /// Unwraps the provider's error if it is of type `E`.
    ///
    /// # Errors
    ///
    /// Returns `self` if the provider's error is of another type.
    pub fn downcast<E: Error + 'static>(self) -> Result<E, Self> {
        self.0.downcast().map(|error| *error).map_err(Self)
    }
}

impl fmt::Debug for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
