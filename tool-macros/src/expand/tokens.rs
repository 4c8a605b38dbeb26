//! Tokens that several expansions need.

use proc_macro2::{Group, Span, TokenStream, TokenTree};
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

/// Sets the span of all tokens, nested ones included. `$crate` is only located there, because it is resolved by its own span.
pub(super) fn with_span(span: Span, tokens: TokenStream) -> TokenStream {
    let tokens = tokens.into_iter().map(|mut token| {
        if let TokenTree::Group(group) = &token {
            token = Group::new(group.delimiter(), with_span(span, group.stream())).into();
        }
        let is_crate = matches!(&token, TokenTree::Ident(ident) if ident == "$crate");
        token.set_span(if is_crate { token.span().located_at(span) } else { span });
        token
    });
    tokens.collect()
}
