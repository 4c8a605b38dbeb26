//! Collects the mistakes in an item so that all are reported at once.

use std::fmt::Display;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// The mistakes found so far, each with its span.
#[derive(Default)]
pub(crate) struct Diagnostics {
    errors: Vec<syn::Error>,
}

impl Diagnostics {
    /// Records a mistake that spans these tokens.
    pub(crate) fn error(&mut self, tokens: impl ToTokens, message: impl Display) {
        self.errors.push(syn::Error::new_spanned(tokens, message));
    }

    /// Records a mistake at a span.
    pub(crate) fn error_at(&mut self, span: Span, message: impl Display) {
        self.errors.push(syn::Error::new(span, message));
    }

    /// Returns the number of mistakes found so far.
    pub(crate) fn len(&self) -> usize {
        self.errors.len()
    }

    /// Returns what was parsed, or records the error and returns the default.
    pub(crate) fn recover<T: Default>(&mut self, parsed: syn::Result<T>) -> T {
        parsed.unwrap_or_else(|error| {
            self.errors.push(error);
            T::default()
        })
    }

    /// Returns a `compile_error!` for each mistake, in the order of recording, or `None` if there is none.
    pub(crate) fn into_compile_errors(self) -> Option<TokenStream> {
        let mut errors = self.errors.into_iter();
        let mut all = errors.next()?;
        all.extend(errors);
        Some(all.into_compile_error())
    }
}

/// Joins items in backticks: `` `a`, `b` and `c` ``, where `conjunction` is `and`.
pub(crate) fn join_quoted(items: &[impl Display], conjunction: &str) -> String {
    let quoted: Vec<_> = items.iter().map(|item| format!("`{item}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} {conjunction} {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// Returns the known name that is most similar to `name`, if any is similar.
pub(crate) fn nearest_name<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|known| (strsim::jaro_winkler(&name.to_lowercase(), known), *known))
        .filter(|(similarity, _)| *similarity > 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}
