//! The arguments of one call, taken one after another.

use super::arguments::Arguments;
use crate::arguments::ToolParameter;

/// The arguments that were taken so far, in nested pairs; nothing once there was a mistake in one.
///
/// Tools whose parameters are of the same types share all of this, as there is one of it for every row of types and
/// not for every tool.
#[derive(Debug)]
pub struct Taken<T>(Option<T>);

impl Taken<()> {
    /// Nothing is taken yet.
    #[must_use]
    pub fn nothing() -> Self {
        Self(Some(()))
    }
}

impl<T> Taken<T> {
    /// These and one more. It is taken whatever became of the others, so that every mistake is noted.
    #[inline(never)]
    #[must_use]
    pub fn and<U: ToolParameter>(self, arguments: &mut Arguments<'_, '_>, index: usize) -> Taken<(T, U)> {
        let next = arguments.take(index);
        Taken(self.0.zip(next))
    }

    /// These and the last one, if there is no mistake in any argument.
    #[inline(never)]
    #[must_use]
    pub fn and_last<U: ToolParameter>(
        self,
        arguments: &mut Arguments<'_, '_>,
        index: usize,
    ) -> Taken<(T, U)> {
        let last = arguments.take(index);
        Taken(self.0.zip(last).filter(|_| arguments.are_right()))
    }

    /// All of them.
    #[must_use]
    pub fn whole(self) -> Option<T> {
        self.0
    }
}
