//! The macros of `tool-core`, which re-exports them: use them from there.

mod attributes;
mod check;
mod diagnostics;
mod docs;
mod expand;
mod fallback;
mod input;
mod names;
mod receiver;
mod tool_fn;
mod toolbox;

use proc_macro::TokenStream;
use quote::{ToTokens, quote};
use syn::{Item, ItemFn, ItemImpl};

use crate::diagnostics::Diagnostics;
use crate::tool_fn::ToolFn;
use crate::toolbox::Toolbox;

/// Documented where it is used from: `tool_core::tool`.
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let original = proc_macro2::TokenStream::from(item.clone());
    let mut function = match syn::parse::<ItemFn>(item) {
        Ok(function) => function,
        Err(error) => {
            let error = misplaced(&original, "`#[tool]` belongs above a function").unwrap_or(error);
            return with_error(&original, &error);
        }
    };
    let mut diagnostics = Diagnostics::default();
    let tool =
        ToolFn::read(attribute.into(), &mut function.attrs, &mut function.sig, false, &mut diagnostics);
    check::check(&tool, &mut diagnostics);
    match diagnostics.into_compile_errors() {
        None => expand::tool::expand_tool(&tool, &function).into(),
        Some(errors) => fallback::with_errors(&tool, &function, &errors).into(),
    }
}

/// Documented where it is used from: `tool_core::toolbox`.
#[proc_macro_attribute]
pub fn toolbox(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let original = proc_macro2::TokenStream::from(item.clone());
    let block = match syn::parse::<ItemImpl>(item) {
        Ok(block) => block,
        Err(error) => {
            let error = misplaced(&original, "`#[toolbox]` belongs above an `impl` block").unwrap_or(error);
            return with_error(&original, &error);
        }
    };
    let mut diagnostics = Diagnostics::default();
    let toolbox = Toolbox::read(attribute.into(), block, &mut diagnostics);
    match diagnostics.into_compile_errors() {
        None => expand::toolbox::expand_toolbox(&toolbox).into(),
        Some(errors) => {
            let block = &toolbox.block;
            // Nothing can stand in for what lasts too short.
            let has_lifetimes = block.generics.lifetimes().next().is_some();
            let stub = (!has_lifetimes).then(|| expand::toolbox::expand_stub(&toolbox));
            quote!(#block #stub #errors).into()
        }
    }
}

/// What `tool_core::tools!` expands to: `($crate) path, path`.
#[doc(hidden)]
#[proc_macro]
pub fn expand_tools(list: TokenStream) -> TokenStream {
    expand::list::expand_list(list.into()).into()
}

/// An item that is not what the attribute is for, as it stands, and the error.
fn with_error(item: &proc_macro2::TokenStream, error: &syn::Error) -> TokenStream {
    let error = error.to_compile_error();
    quote!(#item #error).into()
}

/// The words for one of our attributes on an item of another kind.
fn misplaced(item: &proc_macro2::TokenStream, rule: &str) -> Option<syn::Error> {
    let item = syn::parse2::<Item>(item.clone()).ok()?;
    let (place, what) = match &item {
        Item::Fn(item) => (item.sig.fn_token.to_token_stream(), "a function"),
        Item::Struct(item) => (item.struct_token.to_token_stream(), "a struct"),
        Item::Enum(item) => (item.enum_token.to_token_stream(), "an enum"),
        Item::Impl(item) => (item.impl_token.to_token_stream(), "an `impl` block"),
        Item::Trait(item) => (item.trait_token.to_token_stream(), "a trait"),
        Item::Mod(item) => (item.mod_token.to_token_stream(), "a module"),
        _ => return None,
    };
    let hint = match &item {
        Item::Impl(_) => "; write `#[toolbox]` here, and `#[tool]` above its methods",
        Item::Fn(_) => "; write `#[tool]` here",
        _ => "",
    };
    Some(syn::Error::new_spanned(place, format!("{rule}, not above {what}{hint}")))
}
