//! Removal of our attributes from items, because rustc does not know them, and of what rustc would report again.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::{Attribute, FnArg, Ident, Signature, Type, parse_quote};

use crate::docs;
use crate::names::{ASK, ATTRIBUTES, INJECT, PARAM, TOOL};

/// Removes from a signature with mistakes what rustc would report again.
pub(crate) fn clean_signature(signature: &mut Signature) {
    signature.variadic = None;
    for input in &mut signature.inputs {
        let FnArg::Typed(input) = input else { continue };
        input
            .attrs
            .retain(|attribute| is_of_rustc(attribute) && !is_conditional(attribute, &[PARAM, INJECT]));
        if is_unsized(&input.ty) {
            let ty = &input.ty;
            *input.ty = parse_quote!(&#ty);
        }
    }
}

/// Returns `true` for `#[cfg_attr(…)]` with one of these attributes, which is expanded too late for the macro that reads it.
pub(crate) fn is_conditional(attribute: &Attribute, names: &[&str]) -> bool {
    attribute.path().is_ident("cfg_attr")
        && attribute.meta.require_list().is_ok_and(|list| find_keyword(list.tokens.clone(), names).is_some())
}

/// Returns the first of these keywords in a type.
pub(crate) fn find_keyword(ty: TokenStream, keywords: &[&str]) -> Option<Ident> {
    ty.into_iter().find_map(|token| match token {
        TokenTree::Ident(ident) if keywords.iter().any(|keyword| ident == keyword) => Some(ident),
        TokenTree::Group(group) => find_keyword(group.stream(), keywords),
        _ => None,
    })
}

/// Returns `true` for a slice or a `str`, which cannot be passed by value.
pub(crate) fn is_unsized(ty: &Type) -> bool {
    matches!(ty, Type::Slice(_)) || matches!(ty, Type::Path(path) if path.path.is_ident("str"))
}

/// Removes our attributes, and the doc comments on parameters, which rustc does not allow.
pub(crate) fn strip_attributes(attributes: &mut Vec<Attribute>, signature: &mut Signature) {
    let is_ours =
        |attribute: &Attribute| attribute.path().is_ident(PARAM) || attribute.path().is_ident(INJECT);
    attributes.retain(|attribute| !is_tool(attribute) && !is_ours(attribute));
    for input in &mut signature.inputs {
        let attributes = match input {
            FnArg::Typed(input) => &mut input.attrs,
            FnArg::Receiver(receiver) => &mut receiver.attrs,
        };
        attributes.retain(|attribute| !docs::is_doc(attribute) && !is_ours(attribute));
    }
}

/// Removes our attributes at any depth from an item that they do not apply to, because rustc does not know them.
pub(crate) fn without_attributes(item: TokenStream) -> TokenStream {
    let is_ours = |group: &Group| {
        let first = group.stream().into_iter().next();
        group.delimiter() == Delimiter::Bracket
            && matches!(first, Some(TokenTree::Ident(name)) if ATTRIBUTES.iter().any(|ours| name == ours))
    };
    let mut tokens: Vec<TokenTree> = Vec::new();
    for token in item {
        match (token, tokens.last()) {
            (TokenTree::Group(group), Some(TokenTree::Punct(hash)))
                if hash.as_char() == '#' && is_ours(&group) =>
            {
                tokens.pop();
            }
            (TokenTree::Group(group), _) => {
                let inner = without_attributes(group.stream());
                // rustc reports an error again if its span differs, so an unchanged group stays the same.
                let is_unchanged = inner.to_string() == group.stream().to_string();
                let mut cleaned = Group::new(group.delimiter(), inner);
                cleaned.set_span(group.span());
                tokens.push(if is_unchanged { group } else { cleaned }.into());
            }
            (other, _) => tokens.push(other),
        }
    }
    tokens.into_iter().collect()
}

/// Returns `true` for `#[tool]` under any path.
pub(crate) fn is_tool(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == TOOL)
}

/// Returns `true` for an attribute of rustc's that a function or a parameter can have, and for one such as `#[rustfmt::skip]`.
pub(crate) fn is_of_rustc(attribute: &Attribute) -> bool {
    const NAMES: [&str; 13] = [
        "allow",
        "cfg",
        "cfg_attr",
        "cold",
        "deny",
        "deprecated",
        "doc",
        "expect",
        "forbid",
        "inline",
        "must_use",
        "track_caller",
        "warn",
    ];
    let first = attribute.path().segments.first();
    NAMES.iter().any(|name| attribute.path().is_ident(name))
        || first.is_some_and(|first| first.ident == "clippy" || first.ident == "rustfmt")
}

/// Returns `true` for `#[ask]`.
pub(crate) fn is_ask(attribute: &Attribute) -> bool {
    attribute.path().is_ident(ASK)
}
