//! What can go wrong between the application and a model.

use std::error::Error;
use std::fmt;

/// Why a model gave no response. The provider's own error is inside.
///
/// ```
/// use tool_core::ModelError;
///
/// let error = ModelError::new(std::io::Error::other("the line is dead"));
/// assert_eq!(error.to_string(), "the line is dead");
/// assert!(error.downcast_ref::<std::io::Error>().is_some());
/// ```
pub struct ModelError(Box<dyn Error + Send + Sync>);

impl ModelError {
    /// Wraps the provider's error.
    #[must_use]
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        match error.into().downcast::<Self>() {
            Ok(error) => *error,
            Err(other) => Self(other),
        }
    }

    /// The provider's error, if it is of this type.
    #[must_use]
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }

    /// The provider's error, taken out, if it is of this type.
    ///
    /// # Errors
    ///
    /// It is of another type; it is given back.
    pub fn downcast<E: Error + 'static>(self) -> Result<E, Self> {
        self.0.downcast().map(|error| *error).map_err(Self)
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// It stands for the provider's error, so its source is that one's.
impl Error for ModelError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
