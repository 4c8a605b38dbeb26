//! The macros of `tool-core`, which re-exports them: use them from there.

mod attributes;
mod check;
mod diagnostics;
mod docs;
mod expand;
mod fallback;
mod names;
mod tool_fn;

use proc_macro::TokenStream;
use quote::{ToTokens, quote};
use syn::ItemFn;

use crate::diagnostics::Diagnostics;
use crate::tool_fn::ToolFn;

/// Documented where it is used from: `tool_core::tool`.
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let original = proc_macro2::TokenStream::from(item.clone());
    let function = match syn::parse::<ItemFn>(item) {
        Ok(function) => function,
        Err(error) => {
            let error = not_a_function(&original).unwrap_or(error).into_compile_error();
            return quote!(#original #error).into();
        }
    };
    let mut diagnostics = Diagnostics::default();
    let tool = ToolFn::from_item(attribute.into(), function, &mut diagnostics);
    check::check(&tool, &mut diagnostics);
    match diagnostics.into_compile_errors() {
        None => expand::tool::expand_tool(&tool).into(),
        Some(errors) => fallback::with_errors(&tool, &errors).into(),
    }
}

/// What `tool_core::tools!` expands to: `($crate) path, path`.
#[doc(hidden)]
#[proc_macro]
pub fn expand_tools(list: TokenStream) -> TokenStream {
    expand::list::expand_list(list.into()).into()
}

/// The words for `#[tool]` on a struct, an `impl` block or another item.
fn not_a_function(item: &proc_macro2::TokenStream) -> Option<syn::Error> {
    let item = syn::parse2::<syn::Item>(item.clone()).ok()?;
    let (place, what) = match &item {
        syn::Item::Struct(item) => (item.struct_token.to_token_stream(), "a struct"),
        syn::Item::Enum(item) => (item.enum_token.to_token_stream(), "an enum"),
        syn::Item::Impl(item) => (item.impl_token.to_token_stream(), "an `impl` block"),
        syn::Item::Trait(item) => (item.trait_token.to_token_stream(), "a trait"),
        syn::Item::Mod(item) => (item.mod_token.to_token_stream(), "a module"),
        _ => return None,
    };
    Some(syn::Error::new_spanned(place, format!("`#[tool]` belongs above a function, not above {what}")))
}
