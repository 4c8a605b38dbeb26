//! The result of a test.

use std::fmt;

/// What a test returns that uses `?`. Its error is printed as text when the test fails.
pub type Result<T = ()> = std::result::Result<T, Error>;

/// Any error, which `Debug` writes as its text, with its sources: the standard library prints the error of a test that way.
pub struct Error(Box<dyn std::error::Error + Send + Sync>);

/// Returns the error with this text.
pub(crate) fn failure(text: impl Into<String>) -> Error {
    Error(text.into().into())
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, "\ncaused by: {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
