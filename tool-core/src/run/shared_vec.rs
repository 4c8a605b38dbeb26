//! A vector that copies of a run, and views of it, share until one of them changes it.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A vector whose clones share its elements. The first change of a clone copies them.
#[derive(Debug)]
pub(super) struct SharedVec<T>(Arc<Vec<T>>);

impl<T> SharedVec<T> {
    pub(super) fn into_vec(self) -> Vec<T>
    where
        T: Clone,
    {
        Arc::unwrap_or_clone(self.0)
    }

    /// Returns the elements to be changed. They are copied if they are shared.
    pub(super) fn make_mut(&mut self) -> &mut Vec<T>
    where
        T: Clone,
    {
        Arc::make_mut(&mut self.0)
    }

    /// Adds these elements, and copies nothing if there are none.
    pub(super) fn extend(&mut self, elements: impl IntoIterator<Item = T>)
    where
        T: Clone,
    {
        let mut elements = elements.into_iter().peekable();
        if elements.peek().is_some() {
            self.make_mut().extend(elements);
        }
    }

    #[cfg(test)]
    pub(super) fn is_held_by(&self, number: usize) -> bool {
        Arc::strong_count(&self.0) == number
    }

    #[cfg(test)]
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Clone for SharedVec<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for SharedVec<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T> From<Vec<T>> for SharedVec<T> {
    fn from(elements: Vec<T>) -> Self {
        Self(Arc::new(elements))
    }
}

impl<T> Deref for SharedVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Serialize> Serialize for SharedVec<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for SharedVec<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}
