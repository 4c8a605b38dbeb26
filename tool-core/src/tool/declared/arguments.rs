//! The arguments of a call, which generated code takes one by one.

use serde_json::Value;

use crate::arguments::{Decoder, Target, ToolParameter, Typed};
use crate::tool::ToolContext;
use crate::tool::context::Injectable;

/// The arguments of one call, each deserialized into its type. Every mistake is recorded, and the function is called only if there is
/// none, so that the model can correct all of them in one turn.
#[derive(Debug)]
pub struct Arguments<'d, 'a> {
    source: Source<'d, 'a>,
    /// The type of a value that the context lacks.
    pub(super) missing_context: Option<&'static str>,
}

#[derive(Debug)]
enum Source<'d, 'a> {
    Call(&'d mut Decoder<'a>),
    /// There is no call. The arguments are only checked.
    Check(&'d mut Decoder<'a>),
    /// There is no call. The defaults of the parameters are collected, with their indices.
    Defaults(Vec<(usize, Value)>),
}

impl<'d, 'a> Arguments<'d, 'a> {
    pub(super) fn new(decoder: &'d mut Decoder<'a>) -> Self {
        Self { source: Source::Call(decoder), missing_context: None }
    }

    /// Creates arguments that are never [valid](Self::are_valid), so that the function is not called.
    pub(super) fn checking(decoder: &'d mut Decoder<'a>) -> Self {
        Self { source: Source::Check(decoder), missing_context: None }
    }

    /// Creates empty arguments, from which nothing can be taken. Only the defaults are collected.
    pub(super) fn describing() -> Self {
        Self { source: Source::Defaults(Vec::new()), missing_context: None }
    }

    pub(super) fn into_defaults(self) -> Vec<(usize, Value)> {
        match self.source {
            Source::Defaults(defaults) => defaults,
            Source::Call(_) | Source::Check(_) => Vec::new(),
        }
    }

    /// Deserializes an argument. Returns `None` and records the mistake if it is invalid.
    ///
    /// This function exists once per type, so everything that does not depend on the type is done elsewhere.
    pub fn take<T: ToolParameter>(&mut self, index: usize) -> Option<T> {
        let mut value = Typed(None);
        if self.read(index, &mut value) { value.0 } else { None }
    }

    fn read(&mut self, index: usize, target: &mut dyn Target) -> bool {
        match &mut self.source {
            Source::Call(decoder) | Source::Check(decoder) => decoder.read_argument(index, target),
            Source::Defaults(_) => false,
        }
    }

    /// Deserializes an argument, or creates its default if it is absent or `null`.
    pub fn take_or<T: ToolParameter>(
        &mut self,
        index: usize,
        default: impl FnOnce() -> T,
        json: fn(&T) -> Option<Value>,
    ) -> Option<T> {
        match &mut self.source {
            Source::Call(decoder) | Source::Check(decoder) if decoder.is_present(index) => self.take(index),
            Source::Call(_) | Source::Check(_) => Some(default()),
            Source::Defaults(defaults) => {
                defaults.extend(json(&default()).map(|json| (index, json)));
                None
            }
        }
    }

    /// Returns a value of the context. Returns `None` and records the error if it is missing.
    pub fn inject<'c, T: Injectable>(&mut self, context: &'c ToolContext) -> Option<&'c T> {
        let value = context.get::<T>();
        if value.is_none() {
            self.missing_context = Some(std::any::type_name::<T>());
        }
        value
    }

    /// Returns `true` if the arguments are complete and valid.
    #[must_use]
    pub fn are_valid(&self) -> bool {
        matches!(&self.source, Source::Call(decoder) if decoder.is_valid())
    }
}
