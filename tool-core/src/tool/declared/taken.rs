//! The arguments of one call, read one after another.

use super::arguments::Arguments;
use crate::arguments::ToolParameter;

/// The arguments taken so far as nested pairs, or nothing if any of them is invalid.
///
/// Tools whose parameters have the same types share this code, because it is generic over the types and not the tool.
#[derive(Debug)]
pub struct Taken<T>(Option<T>);

impl Taken<()> {
    /// Starts without arguments.
    #[must_use]
    pub fn empty() -> Self {
        Self(Some(()))
    }
}

impl<T> Taken<T> {
    /// Takes another argument, even if an earlier one is invalid, so that every mistake is recorded.
    #[inline(never)]
    #[must_use]
    pub fn and<U: ToolParameter>(self, arguments: &mut Arguments<'_, '_>, index: usize) -> Taken<(T, U)> {
        let next = arguments.take(index);
        Taken(self.0.zip(next))
    }

    /// Takes the last argument. The result is empty if any argument is invalid.
    #[inline(never)]
    #[must_use]
    pub fn and_last<U: ToolParameter>(
        self,
        arguments: &mut Arguments<'_, '_>,
        index: usize,
    ) -> Taken<(T, U)> {
        let last = arguments.take(index);
        Taken(self.0.zip(last).filter(|_| arguments.are_valid()))
    }

    /// Returns the arguments if all of them are valid.
    #[must_use]
    pub fn finish(self) -> Option<T> {
        self.0
    }
}
