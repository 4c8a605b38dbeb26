//! The macros of `tool-core`. Use them through its re-exports.
//!
//! In each list of files, a file imports only from those before it.

mod names;
mod diagnostics;
mod docs;
mod fallback;
mod bodies;
mod template;
mod receiver;
mod attributes;
mod name;
mod parameter;
mod tool_fn;
mod assistant;
mod check;
mod toolbox;
mod expand;

use proc_macro::TokenStream;
use proc_macro2::{Delimiter, Spacing, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::Parser;
use syn::{Block, ImplItem, Item, ItemFn, ItemImpl, ItemTrait, Stmt, TraitItemFn};

use crate::assistant::Assistant;
use crate::diagnostics::Diagnostics;
use crate::tool_fn::ToolFn;
use crate::toolbox::Toolbox;

/// Documented at its re-export, `tool_core::tool`.
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let original = proc_macro2::TokenStream::from(item);
    let (mut function, reveal) = match bodies::parse::<ItemFn>(&original, 0) {
        Ok(parsed) => parsed,
        Err(error_of_syn) => {
            let error = misplaced(&original, misplaced_tool).or_else(|| default_in_signature(&original));
            let error = error.unwrap_or(error_of_syn);
            return with_error(&original, &error);
        }
    };
    let mut diagnostics = Diagnostics::default();
    let tool =
        ToolFn::parse(attribute.into(), &mut function.attrs, &mut function.sig, false, &mut diagnostics);
    check::check(&tool, &mut diagnostics);
    let output = match diagnostics.into_compile_errors() {
        None => expand::tool::expand_tool(&tool, &function),
        Some(errors) => expand::tool::expand_with_errors(&tool, &function, &errors),
    };
    reveal(output).into()
}

/// Documented at its re-export, `tool_core::toolbox`.
#[proc_macro_attribute]
pub fn toolbox(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let original = proc_macro2::TokenStream::from(item);
    let (block, reveal) = match bodies::parse::<ItemImpl>(&original, 1) {
        Ok(parsed) => parsed,
        Err(error) => {
            let error = misplaced(&original, misplaced_toolbox).unwrap_or(error);
            let stub = Toolbox::of_type(&original).map(|toolbox| expand::toolbox::expand_stub(&toolbox));
            return with_error(&quote!(#original #stub), &error);
        }
    };
    let mut diagnostics = Diagnostics::default();
    let mut toolbox = Toolbox::parse(attribute.into(), block, &mut diagnostics);
    let output = match diagnostics.into_compile_errors() {
        None => expand::toolbox::expand_toolbox(&toolbox),
        Some(errors) => {
            toolbox.clean();
            let block = &toolbox.block;
            // `Toolbox` requires `'static`, so a stub for a borrowing type would add an error of its own.
            let has_lifetimes = block.generics.lifetimes().next().is_some();
            let stub = (!has_lifetimes).then(|| expand::toolbox::expand_stub(&toolbox));
            quote!(#block #stub #errors)
        }
    };
    reveal(output).into()
}

/// Documented at its re-export, `tool_core::assistant`.
#[proc_macro_attribute]
pub fn assistant(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let original = proc_macro2::TokenStream::from(item);
    let (item, reveal) = match bodies::parse::<ItemTrait>(&original, 1) {
        Ok(parsed) => parsed,
        Err(error) => {
            let error = misplaced(&original, misplaced_assistant).unwrap_or(error);
            // In an `impl` block, a method without a body is not syntax.
            let cleaned = syn::parse2::<ItemImpl>(original.clone()).map(|mut block| {
                block.items.retain(|item| !matches!(item, ImplItem::Verbatim(_)));
                block.into_token_stream()
            });
            return with_error(&cleaned.unwrap_or(original), &error);
        }
    };
    let mut diagnostics = Diagnostics::default();
    let mut assistant = Assistant::parse(attribute.into(), item, &mut diagnostics);
    check::assistant::check(&assistant, &mut diagnostics);
    let output = match diagnostics.into_compile_errors() {
        None => expand::assistant::expand_assistant(&assistant),
        Some(errors) => {
            assistant.clean();
            let stub = expand::assistant::expand_stub(&assistant);
            quote!(#stub #errors)
        }
    };
    reveal(output).into()
}

/// Expands the body of `tool_core::tools!`: `($crate) path, path`.
#[doc(hidden)]
#[proc_macro]
pub fn expand_tools(list: TokenStream) -> TokenStream {
    expand::list::expand_list(list.into()).into()
}

/// Expands the body of `tool_core::call!`: `($crate) path { members }`.
#[doc(hidden)]
#[proc_macro]
pub fn expand_call(pattern: TokenStream) -> TokenStream {
    expand::pattern::expand_pattern(pattern.into()).into()
}

/// Returns the error for a default as other languages have it: `x: f64 = 1.0`. rustc refuses it as well.
fn default_in_signature(item: &proc_macro2::TokenStream) -> Option<syn::Error> {
    let parameters = item.clone().into_iter().find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => Some(group.stream()),
        _ => None,
    });
    let mut depth = 0;
    let equals = parameters?.into_iter().find(|token| {
        let TokenTree::Punct(punct) = token else { return false };
        match punct.as_char() {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        // In `Item<Output = f64>` it is part of a type.
        depth == 0 && punct.as_char() == '=' && punct.spacing() == Spacing::Alone
    });
    let message = "the default of a parameter is written in front of it: `#[param(default = …)]`";
    Some(syn::Error::new(equals?.span(), message))
}

/// Returns the item without our attributes, followed by the error.
fn with_error(item: &proc_macro2::TokenStream, error: &syn::Error) -> TokenStream {
    let (item, error) = (fallback::without_attributes(item.clone()), error.to_compile_error());
    quote!(#item #error).into()
}

/// Returns the error for an attribute on the wrong kind of item, at the item's keyword.
fn misplaced(item: &proc_macro2::TokenStream, message: fn(&str) -> String) -> Option<syn::Error> {
    let (keyword, kind) = match syn::parse2::<Item>(item.clone()) {
        Ok(Item::Const(item)) => (item.const_token.to_token_stream(), "a constant"),
        Ok(Item::Enum(item)) => (item.enum_token.to_token_stream(), "an enum"),
        Ok(Item::Fn(item)) => (item.sig.fn_token.to_token_stream(), "a function"),
        Ok(Item::Impl(item)) => (item.impl_token.to_token_stream(), IMPL_BLOCK),
        Ok(Item::Macro(item)) => (item.mac.path.to_token_stream(), "a macro"),
        Ok(Item::Mod(item)) => (item.mod_token.to_token_stream(), "a module"),
        Ok(Item::Static(item)) => (item.static_token.to_token_stream(), "a static"),
        Ok(Item::Struct(item)) => (item.struct_token.to_token_stream(), "a struct"),
        Ok(Item::Trait(item)) => (item.trait_token.to_token_stream(), "a trait"),
        Ok(Item::Type(item)) => (item.type_token.to_token_stream(), "a type alias"),
        Ok(Item::Use(item)) => (item.use_token.to_token_stream(), "an import"),
        _ => match syn::parse2::<TraitItemFn>(item.clone()) {
            Ok(method) => (method.sig.fn_token.to_token_stream(), METHOD_OF_TRAIT),
            Err(_) => match Block::parse_within.parse2(item.clone()).ok()?.first()? {
                Stmt::Local(local) => (local.let_token.to_token_stream(), LET),
                _ => return None,
            },
        },
    };
    Some(syn::Error::new_spanned(keyword, message(kind)))
}

/// Kinds of items with an own way out.
const IMPL_BLOCK: &str = "an `impl` block";
const METHOD_OF_TRAIT: &str = "a method without a body";
const LET: &str = "a `let`";

fn misplaced_tool(kind: &str) -> String {
    let instead = match kind {
        IMPL_BLOCK => "write `#[toolbox]` here and `#[tool]` above its methods",
        METHOD_OF_TRAIT => {
            "move it to the method in the `impl` block of a type, with `#[toolbox]` above the block"
        }
        LET => "a closure becomes a tool with `FunctionTool::new(\"name\", closure)`",
        _ => "move it to the function that the model calls",
    };
    format!("`#[tool]` applies to a function, not to {kind}; {instead}")
}

fn misplaced_toolbox(kind: &str) -> String {
    let instead = match kind {
        "a function" => "write `#[tool]` here",
        _ => "move it to the `impl` block with the tools",
    };
    format!("`#[toolbox]` applies to an `impl` block, not to {kind}; {instead}")
}

fn misplaced_assistant(kind: &str) -> String {
    format!("`#[assistant]` applies to a trait, not to {kind}; declare the questions as methods of a trait")
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::{default_in_signature, misplaced, misplaced_tool};

    /// rustc refuses an attribute on a statement as well, so there is no program with this message alone.
    #[test]
    fn attribute_on_a_closure_names_the_way_to_a_tool() {
        let error = misplaced(&quote!(let sum = |n: u32| n + 1;), misplaced_tool).unwrap();
        let expected = "`#[tool]` applies to a function, not to a `let`; \
             a closure becomes a tool with `FunctionTool::new(\"name\", closure)`";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn default_in_a_signature_names_the_option() {
        let error = default_in_signature(&quote!(fn sum(a: f64, b: f64 = 1.0) {})).unwrap();
        let expected = "the default of a parameter is written in front of it: `#[param(default = …)]`";
        assert_eq!(error.to_string(), expected);
        assert!(
            default_in_signature(&quote!(
                fn sum(a: Item<Output = f64>) {
                    a == b
                }
            ))
            .is_none()
        );
    }
}
