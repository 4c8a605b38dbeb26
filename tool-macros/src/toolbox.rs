//! `#[toolbox]`: an `impl` block whose methods with `#[tool]` are tools.

use std::collections::HashMap;

use proc_macro2::TokenStream;
use syn::{Attribute, ImplItem, ItemImpl, Meta};

use crate::attributes::ToolboxAttribute;
use crate::check;
use crate::diagnostics::Diagnostics;
use crate::fallback::is_tool;
use crate::names::CRATE;
use crate::tool_fn::ToolFn;

/// An `impl` block whose methods are tools.
pub(crate) struct Toolbox {
    pub(crate) words: ToolboxAttribute,
    pub(crate) tools: Vec<ToolFn>,
    /// The block as the user wrote it, without our attributes.
    pub(crate) block: ItemImpl,
}

impl Toolbox {
    pub(crate) fn read(attribute: TokenStream, mut block: ItemImpl, diagnostics: &mut Diagnostics) -> Self {
        let words = ToolboxAttribute::from_tokens(attribute, diagnostics);
        let mut tools = Vec::new();
        for item in &mut block.items {
            let ImplItem::Fn(method) = item else { continue };
            let Some(position) = method.attrs.iter().position(is_tool) else { continue };
            let attribute = method.attrs.remove(position);
            let tokens = tokens_of(&attribute, diagnostics);
            let mut tool = ToolFn::read(tokens, &mut method.attrs, &mut method.sig, true, diagnostics);
            if tool.words.crate_is_given {
                let message =
                    format!("`{CRATE}` belongs to the whole toolbox: `#[toolbox({CRATE} = \"…\")]`");
                diagnostics.error(&attribute, message);
            }
            tool.words.krate = words.krate.clone();
            check::check(&tool, diagnostics);
            tools.push(tool);
        }
        let toolbox = Self { words, tools, block };
        toolbox.check(diagnostics);
        toolbox
    }

    fn check(&self, diagnostics: &mut Diagnostics) {
        if self.tools.is_empty() {
            let message = "a toolbox needs a tool; write `#[tool]` above a method of this block";
            diagnostics.error(self.block.impl_token, message);
        }
        for lifetime in self.block.generics.lifetimes() {
            let message = "a toolbox may outlive what it borrows from; let it own what it holds, or share it in an `Arc`";
            diagnostics.error(lifetime, message);
        }
        let mut earlier = HashMap::new();
        for tool in &self.tools {
            // Of two methods with `#[cfg]`, one may be there only without the other.
            let is_conditional = tool.attributes.iter().any(|attribute| attribute.path().is_ident("cfg"));
            let other = earlier.insert(&*tool.name.text, is_conditional);
            let is_said_by_rustc = !tool.name.is_explicit
                && self.tools.iter().filter(|other| other.signature.ident == tool.signature.ident).count()
                    > 1;
            if other == Some(false) && !is_conditional && !is_said_by_rustc {
                let message = format!(
                    "two tools of this toolbox are named `{}`; choose another name with `name = \"…\"`",
                    tool.name.text
                );
                diagnostics.error_at(tool.name.span, message);
            }
        }
    }
}

/// What stands in the parentheses of an attribute.
fn tokens_of(attribute: &Attribute, diagnostics: &mut Diagnostics) -> TokenStream {
    match &attribute.meta {
        Meta::Path(_) => TokenStream::new(),
        Meta::List(list) => list.tokens.clone(),
        Meta::NameValue(meta) => {
            diagnostics.error(&meta.value, "write the description in parentheses: `#[tool(\"…\")]`");
            TokenStream::new()
        }
    }
}
