//! The macros of `tool-core`. Use them through its re-exports.

mod assistant;
mod attributes;
mod check;
mod diagnostics;
mod docs;
mod expand;
mod fallback;
mod names;
mod parameter;
mod receiver;
mod template;
mod tool_fn;
mod toolbox;

use proc_macro::TokenStream;
use quote::{ToTokens, quote};
use syn::{Item, ItemFn, ItemImpl, ItemTrait};

use crate::assistant::Assistant;
use crate::diagnostics::Diagnostics;
use crate::tool_fn::ToolFn;
use crate::toolbox::Toolbox;

/// Documented at its re-export, `tool_core::tool`.
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let original = proc_macro2::TokenStream::from(item.clone());
    let mut function = match syn::parse::<ItemFn>(item) {
        Ok(function) => function,
        Err(error) => {
            let error = misplaced(&original, misplaced_tool).unwrap_or(error);
            return with_error(&original, &error);
        }
    };
    let mut diagnostics = Diagnostics::default();
    let tool =
        ToolFn::parse(attribute.into(), &mut function.attrs, &mut function.sig, false, &mut diagnostics);
    check::check(&tool, &mut diagnostics);
    match diagnostics.into_compile_errors() {
        None => expand::tool::expand_tool(&tool, &function).into(),
        Some(errors) => fallback::with_errors(&tool, &function, &errors).into(),
    }
}

/// Documented at its re-export, `tool_core::toolbox`.
#[proc_macro_attribute]
pub fn toolbox(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let original = proc_macro2::TokenStream::from(item.clone());
    let block = match syn::parse::<ItemImpl>(item) {
        Ok(block) => block,
        Err(error) => {
            let error = misplaced(&original, misplaced_toolbox).unwrap_or(error);
            return with_error(&original, &error);
        }
    };
    let mut diagnostics = Diagnostics::default();
    let toolbox = Toolbox::parse(attribute.into(), block, &mut diagnostics);
    match diagnostics.into_compile_errors() {
        None => expand::toolbox::expand_toolbox(&toolbox).into(),
        Some(errors) => {
            let block = &toolbox.block;
            // `Toolbox` requires `'static`, so a stub for a borrowing type would add an error of its own.
            let has_lifetimes = block.generics.lifetimes().next().is_some();
            let stub = (!has_lifetimes).then(|| expand::toolbox::expand_stub(&toolbox));
            quote!(#block #stub #errors).into()
        }
    }
}

/// Documented at its re-export, `tool_core::assistant`.
#[proc_macro_attribute]
pub fn assistant(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let original = proc_macro2::TokenStream::from(item.clone());
    let item = match syn::parse::<ItemTrait>(item) {
        Ok(item) => item,
        Err(error) => {
            let error = misplaced(&original, misplaced_assistant).unwrap_or(error);
            return with_error(&original, &error);
        }
    };
    let mut diagnostics = Diagnostics::default();
    let mut assistant = Assistant::parse(attribute.into(), item, &mut diagnostics);
    match diagnostics.into_compile_errors() {
        None => expand::assistant::expand_assistant(&assistant).into(),
        Some(errors) => {
            assistant.clean();
            let stub = expand::assistant::expand_stub(&assistant);
            quote!(#stub #errors).into()
        }
    }
}

/// Expands the body of `tool_core::tools!`: `($crate) path, path`.
#[doc(hidden)]
#[proc_macro]
pub fn expand_tools(list: TokenStream) -> TokenStream {
    expand::list::expand_list(list.into()).into()
}

/// Returns the unchanged item followed by the error.
fn with_error(item: &proc_macro2::TokenStream, error: &syn::Error) -> TokenStream {
    let error = error.to_compile_error();
    quote!(#item #error).into()
}

/// Returns the error for an attribute on the wrong kind of item, at the item's keyword.
fn misplaced(
    item: &proc_macro2::TokenStream,
    message: fn(&Item, &'static str) -> String,
) -> Option<syn::Error> {
    let item = syn::parse2::<Item>(item.clone()).ok()?;
    let (keyword, kind) = match &item {
        Item::Fn(item) => (item.sig.fn_token.to_token_stream(), "a function"),
        Item::Struct(item) => (item.struct_token.to_token_stream(), "a struct"),
        Item::Enum(item) => (item.enum_token.to_token_stream(), "an enum"),
        Item::Impl(item) => (item.impl_token.to_token_stream(), "an `impl` block"),
        Item::Trait(item) => (item.trait_token.to_token_stream(), "a trait"),
        Item::Mod(item) => (item.mod_token.to_token_stream(), "a module"),
        _ => return None,
    };
    Some(syn::Error::new_spanned(keyword, message(&item, kind)))
}

fn misplaced_tool(item: &Item, kind: &'static str) -> String {
    let instead = match item {
        Item::Impl(_) => "write `#[toolbox]` here and `#[tool]` above its methods",
        _ => "move it to the function that the model calls",
    };
    format!("`#[tool]` applies to a function, not to {kind}; {instead}")
}

fn misplaced_toolbox(item: &Item, kind: &'static str) -> String {
    let instead = match item {
        Item::Fn(_) => "write `#[tool]` here",
        _ => "move it to the `impl` block with the tools",
    };
    format!("`#[toolbox]` applies to an `impl` block, not to {kind}; {instead}")
}

fn misplaced_assistant(_item: &Item, kind: &'static str) -> String {
    format!("`#[assistant]` applies to a trait, not to {kind}; declare the questions as methods of a trait")
}
