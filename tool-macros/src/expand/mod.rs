//! Generates code from checked items. Nothing here can fail.

pub(crate) mod assistant;
mod call;
mod declaration;
mod details;
pub(crate) mod list;
pub(crate) mod tool;
pub(crate) mod toolbox;

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::Attribute;

/// Returns a span with the macro's hygiene whose errors appear at the given span.
fn mixed_site_at(span: Span) -> Span {
    Span::mixed_site().located_at(span)
}

fn expand_option(value: Option<impl quote::ToTokens>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

/// Returns `true` for attributes of the function that its tool needs too.
fn is_copied(attribute: &Attribute) -> bool {
    is_cfg(attribute) || attribute.path().is_ident("deprecated")
}

fn is_cfg(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
}
