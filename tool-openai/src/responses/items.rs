//! The items of a request's input.

use std::collections::BTreeSet;

/// Writes items of an array.
pub(super) struct Items<'a> {
    pub(super) json: &'a mut Vec<u8>,
    /// The next item is the first of the array.
    pub(super) is_first: bool,
    pub(super) calls_without_namespace: BTreeSet<String>,
}

impl Items<'_> {
    /// Starts the next item and returns the buffer to write it to.
    pub(super) fn next(&mut self) -> &mut Vec<u8> {
        self.json.push(if std::mem::take(&mut self.is_first) { b'[' } else { b',' });
        self.json
    }

    /// Notes a call of this tool that has no namespace.
    pub(super) fn add_call_without_namespace(&mut self, name: &str) {
        if !self.calls_without_namespace.contains(name) {
            self.calls_without_namespace.insert(name.to_owned());
        }
    }
}
