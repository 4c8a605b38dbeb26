//! Tokens that several expansions need.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{Attribute, Generics};

/// Returns a span with the macro's hygiene whose errors appear at the given span.
pub(super) fn mixed_site_at(span: Span) -> Span {
    Span::mixed_site().located_at(span)
}

pub(super) fn expand_option(value: Option<impl quote::ToTokens>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

/// Returns an item with `<>` behind this token if it has no generic parameters. rustc then suggests none in place of an unknown type:
/// its error would otherwise differ from the one in the generated code, and rustc drops only errors that are the same.
pub(super) fn without_suggestions(item: &impl ToTokens, generics: &Generics, token: &str) -> TokenStream {
    let mut tokens = item.to_token_stream().into_iter();
    let mut before = TokenStream::new();
    if generics.params.is_empty() {
        for next in tokens.by_ref() {
            let is_last = next.to_string() == token;
            before.extend([next]);
            if is_last {
                before.extend(quote!(<>));
                break;
            }
        }
    }
    before.extend(tokens);
    before
}

/// Returns `true` for attributes of the function that its tool needs too.
pub(super) fn is_copied(attribute: &Attribute) -> bool {
    is_cfg(attribute) || attribute.path().is_ident("deprecated")
}

pub(super) fn is_cfg(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
}
