//! `tools![…]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Path, Token, parenthesized, token};

use super::tokens::with_span;

/// `($crate) sum, text::count`: the path of `tool-core`, and the list as the user wrote it.
struct List {
    krate: TokenStream,
    paths: Vec<Path>,
}

impl Parse for List {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let krate;
        parenthesized!(krate in input);
        let krate = krate.parse()?;
        let paths = Punctuated::<Path, Token![,]>::parse_terminated_with(input, parse_path)?;
        Ok(Self { krate, paths: paths.into_iter().collect() })
    }
}

fn parse_path(input: ParseStream<'_>) -> syn::Result<Path> {
    let path: Path = input.parse().map_err(|error| {
        let message =
            format!("{error}; `tools!` takes the paths of `#[tool]` functions: `tools![sum, text::count]`");
        syn::Error::new(error.span(), message)
    })?;
    let mut segments = path.segments.iter().rev();
    if let (Some(method), Some(ty)) = (segments.next(), segments.next())
        && ty.ident.to_string().starts_with(char::is_uppercase)
    {
        let message = format!(
            "`{ty}::{method}` is a method, and `tools!` takes functions; pass a value of its toolbox, without `tools!`, or write a function",
            ty = ty.ident,
            method = method.ident
        );
        return Err(syn::Error::new(path.span(), message));
    }
    if input.peek(token::Paren) {
        return Err(input.error("`tools!` takes functions, not calls; remove the parentheses"));
    }
    if input.peek(token::Brace) || input.peek(Token![.]) {
        return Err(input.error(
            "`tools!` takes functions, not values; pass a toolbox without `tools!`: `.tools(calculator)`",
        ));
    }
    Ok(path)
}

/// Expands `tools![sum, text::count]` to
///
/// ```ignore
/// {
///     const LIST: &[private::Listed] =
///         &[<sum as private::StaticTool>::LISTED, <text::count as private::StaticTool>::LISTED];
///     const _: () = private::refuse_duplicate(LIST, 1);
///     private::tool_set(LIST)
/// }
/// ```
pub(crate) fn expand_list(list: TokenStream) -> TokenStream {
    let List { krate, paths } = match List::parse.parse2(list) {
        Ok(list) => list,
        Err(error) => return error.into_compile_error(),
    };
    let private = quote!(#krate::__private);
    let listed =
        paths.iter().map(|path| quote_spanned!(path.span()=> <#path as #private::StaticTool>::LISTED));
    let checks = paths.iter().enumerate().skip(1).map(|(index, path)| {
        with_span(path.span(), quote!(const _: () = #private::refuse_duplicate(__LIST, #index);))
    });
    quote! {
        {
            const __LIST: &[#private::Listed] = &[#(#listed),*];
            #(#checks)*
            #private::tool_set(__LIST)
        }
    }
}
