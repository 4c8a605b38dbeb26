//! From the model to tokens. Nothing here can fail: what could was checked before.

mod call;
mod declaration;
mod details;
pub(crate) mod list;
pub(crate) mod tool;
pub(crate) mod toolbox;

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::Attribute;

/// The macro's own hygiene, shown at a place of the user's.
fn own_at(place: Span) -> Span {
    Span::mixed_site().located_at(place)
}

fn expand_option(value: Option<impl quote::ToTokens>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

/// What holds for the function holds for its tool.
fn is_copied(attribute: &Attribute) -> bool {
    is_cfg(attribute) || attribute.path().is_ident("deprecated")
}

fn is_cfg(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
}
