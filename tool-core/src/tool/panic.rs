//! The text of a panic.

use std::any::Any;

/// The error of something that has panicked, with the text of the panic. It would panic again.
#[derive(Debug, thiserror::Error)]
#[error("it panicked: {0}")]
pub struct Panicked(String);

impl Panicked {
    /// Describes a panic.
    #[must_use]
    pub fn new(panic: &(dyn Any + Send)) -> Self {
        Self(panic_text(panic).to_owned())
    }
}

/// Returns the text of a panic.
#[must_use]
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}
