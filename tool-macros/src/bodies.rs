//! Items whose bodies are not parsed.
//!
//! rustc reports the syntax errors of an item before it expands the attribute above it. A mistake in the body of a function would
//! be reported once more if the macro could not parse it either.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::parse::Parse;

/// The name of the macro call that stands for a body.
const MARKER: &str = "__tool_core_body";

/// Puts the bodies back into the output of a macro.
type Reveal = fn(TokenStream) -> TokenStream;

/// Parses an item, if necessary without its bodies, the groups of braces at this depth of braces.
pub(crate) fn parse<T: Parse>(item: &TokenStream, depth: usize) -> syn::Result<(T, Reveal)> {
    let error = match syn::parse2(item.clone()) {
        Ok(item) => return Ok((item, std::convert::identity)),
        Err(error) => error,
    };
    match syn::parse2(hide(item.clone(), depth)) {
        Ok(item) => Ok((item, reveal)),
        Err(_) => Err(error),
    }
}

/// Replaces each group of braces at this depth of braces by one with a call of the marker, which contains the group.
fn hide(tokens: TokenStream, depth: usize) -> TokenStream {
    map_groups(tokens, |group| match (group.delimiter(), depth) {
        (Delimiter::Brace, 0) => {
            let marker = format_ident!("{MARKER}");
            with_stream(&group, quote!(#marker! { #group }))
        }
        (Delimiter::Brace, _) => with_stream(&group, hide(group.stream(), depth - 1)),
        _ => group,
    })
}

/// Puts the hidden groups back. They are the original ones, because rustc reports an error again if its span differs.
fn reveal(tokens: TokenStream) -> TokenStream {
    map_groups(tokens, |group| {
        let mut inner = group.stream().into_iter();
        if let (Some(TokenTree::Ident(name)), Some(_), Some(TokenTree::Group(call))) =
            (inner.next(), inner.next(), inner.next())
            && name == MARKER
            && let Some(TokenTree::Group(body)) = call.stream().into_iter().next()
        {
            return body;
        }
        with_stream(&group, reveal(group.stream()))
    })
}

fn map_groups(tokens: TokenStream, map: impl Fn(Group) -> Group) -> TokenStream {
    let tokens = tokens.into_iter().map(|token| match token {
        TokenTree::Group(group) => map(group).into(),
        other => other,
    });
    tokens.collect()
}

fn with_stream(group: &Group, stream: TokenStream) -> Group {
    let mut changed = Group::new(group.delimiter(), stream);
    changed.set_span(group.span());
    changed
}

#[cfg(test)]
mod tests {
    use quote::{ToTokens, quote};

    use super::*;

    #[test]
    fn bodies_with_syntax_errors_survive() {
        let function = quote! { fn a(x: [u8; { 1 }]) { let x = 1 } };
        let (parsed, reveal) = parse::<syn::ItemFn>(&function, 0).unwrap();
        assert_eq!(reveal(parsed.into_token_stream()).to_string(), function.to_string());

        let block = quote! { impl A { const N: u8 = { 1 }; fn a(&self) { let x = 1 } fn b() {} } };
        let (parsed, reveal) = parse::<syn::ItemImpl>(&block, 1).unwrap();
        assert_eq!(reveal(parsed.into_token_stream()).to_string(), block.to_string());
    }

    #[test]
    fn other_syntax_errors_remain() {
        let error = parse::<syn::ItemFn>(&quote! { fn a(x: u8 = 1) {} }, 0).err().unwrap();
        assert_eq!(error.to_string(), "expected `,`");
    }
}
