//! Collects what is wrong, so that all of it is told at once.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// The mistakes found so far, each at its place.
#[derive(Default)]
pub(crate) struct Diagnostics {
    errors: Vec<syn::Error>,
}

impl Diagnostics {
    /// Notes a mistake at all of these tokens.
    pub(crate) fn error(&mut self, place: impl ToTokens, message: impl std::fmt::Display) {
        self.errors.push(syn::Error::new_spanned(place, message));
    }

    /// Notes a mistake at a span.
    pub(crate) fn error_at(&mut self, span: Span, message: impl std::fmt::Display) {
        self.errors.push(syn::Error::new(span, message));
    }

    /// Notes what syn found.
    pub(crate) fn push(&mut self, error: syn::Error) {
        self.errors.push(error);
    }

    /// `compile_error!`s for all mistakes, in their order; nothing if there is none.
    pub(crate) fn into_compile_errors(self) -> Option<TokenStream> {
        let mut errors = self.errors.into_iter();
        let mut all = errors.next()?;
        all.extend(errors);
        Some(all.into_compile_error())
    }
}

/// `` `a`, `b` and `c` ``
pub(crate) fn list(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// The word that was likely meant, if one is near.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|known| (strsim::jaro_winkler(&word.to_lowercase(), known), *known))
        .filter(|(similarity, _)| *similarity > 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}
