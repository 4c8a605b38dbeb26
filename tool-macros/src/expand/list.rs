//! `tools![…]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Path, Token, parenthesized};

/// `($crate) sum, text::count`: where `tool-core` is found, and the list as the user wrote it.
struct List {
    krate: TokenStream,
    paths: Punctuated<Path, Token![,]>,
}

impl Parse for List {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let krate;
        parenthesized!(krate in input);
        let krate = krate.parse()?;
        let paths = Punctuated::parse_terminated(input).map_err(|error| {
            let message = format!(
                "{error}; `tools!` takes the paths of `#[tool]` functions: `tools![sum, text::count]`"
            );
            syn::Error::new(error.span(), message)
        })?;
        Ok(Self { krate, paths })
    }
}

/// Of `tools![sum, text::count]` makes
///
/// ```ignore
/// {
///     const LIST: &[private::Listed] =
///         &[private::Listed::new::<sum>(), private::Listed::new::<text::count>()];
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
    let listed = paths.iter().map(|path| quote_spanned!(path.span()=> #private::Listed::new::<#path>()));
    let checks = paths.iter().enumerate().skip(1).map(|(index, path)| {
        quote_spanned!(path.span()=> const _: () = #private::refuse_duplicate(__LIST, #index);)
    });
    quote! {
        {
            const __LIST: &[#private::Listed] = &[#(#listed),*];
            #(#checks)*
            #private::tool_set(__LIST)
        }
    }
}
