//! The name of a tool or a parameter, and where it is written.

use proc_macro2::Span;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Expr, Ident, LitStr};

/// The name of a tool or parameter for the model, with the span that it is written at.
pub(crate) struct Name {
    /// For a constant, the name of the constant.
    pub(crate) text: String,
    pub(crate) span: Span,
    /// The constant that has the name as its value.
    pub(crate) constant: Option<Expr>,
    /// `true` if it is given as `name = "…"`.
    pub(crate) is_explicit: bool,
}

impl Name {
    pub(crate) fn from_ident(ident: &Ident) -> Self {
        Self { text: ident.unraw().to_string(), span: ident.span(), constant: None, is_explicit: false }
    }

    pub(crate) fn from_literal(literal: &LitStr) -> Self {
        Self { text: literal.value(), span: literal.span(), constant: None, is_explicit: true }
    }

    pub(crate) fn from_constant(constant: &Expr) -> Self {
        let (text, span) = (constant.to_token_stream().to_string(), constant.span());
        Self { text, span, constant: Some(constant.clone()), is_explicit: true }
    }
}
