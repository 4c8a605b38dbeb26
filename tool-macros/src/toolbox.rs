//! `#[toolbox]`: an `impl` block whose methods with `#[tool]` are tools.

use std::collections::HashMap;

use proc_macro2::TokenStream;
use syn::{Attribute, ImplItem, Item, ItemImpl, Meta, parse_quote};

use crate::attributes::ToolboxAttribute;
use crate::check;
use crate::diagnostics::Diagnostics;
use crate::fallback::{clean_signature, is_conditional, is_tool};
use crate::names::{CRATE, TOOL, TOOLBOX};
use crate::tool_fn::ToolFn;

/// An `impl` block whose methods are tools.
pub(crate) struct Toolbox {
    pub(crate) options: ToolboxAttribute,
    pub(crate) tools: Vec<ToolFn>,
    /// The block without our attributes.
    pub(crate) block: ItemImpl,
}

impl Toolbox {
    /// Parses and checks a block.
    pub(crate) fn parse(attribute: TokenStream, mut block: ItemImpl, diagnostics: &mut Diagnostics) -> Self {
        let options = ToolboxAttribute::parse(attribute, diagnostics);
        for second in block.attrs.extract_if(.., |attribute| attribute.path().is_ident(TOOLBOX)) {
            diagnostics.error(second, "duplicate `#[toolbox]`; remove one of the two");
        }
        let mut tools = Vec::new();
        for item in &mut block.items {
            let ImplItem::Fn(method) = item else { continue };
            for conditional in method.attrs.extract_if(.., |attribute| is_conditional(attribute, &[TOOL])) {
                diagnostics.error(conditional, check::CONDITIONAL);
            }
            let Some(position) = method.attrs.iter().position(is_tool) else { continue };
            let attribute = method.attrs.remove(position);
            let tokens = attribute_tokens(&attribute, diagnostics);
            let mut tool = ToolFn::parse(tokens, &mut method.attrs, &mut method.sig, true, diagnostics);
            if let Some(option) = &tool.options.crate_option {
                let message = format!(
                    "`{CRATE}` is an option of the toolbox, not of its tools; move it to `#[toolbox({CRATE} = \"…\")]`"
                );
                diagnostics.error(option, message);
            }
            tool.options.krate = options.krate.clone();
            check::check(&tool, diagnostics);
            tools.push(tool);
        }
        let toolbox = Self { options, tools, block };
        toolbox.check(diagnostics);
        toolbox
    }

    /// Returns a toolbox without tools for a struct or an enum without parameters.
    pub(crate) fn of_type(item: &TokenStream) -> Option<Self> {
        let (name, generics) = match syn::parse2::<Item>(item.clone()).ok()? {
            Item::Struct(item) => (item.ident, item.generics),
            Item::Enum(item) => (item.ident, item.generics),
            _ => return None,
        };
        let options = ToolboxAttribute::parse(TokenStream::new(), &mut Diagnostics::default());
        let toolbox = Self { options, tools: Vec::new(), block: parse_quote!(impl #name {}) };
        generics.params.is_empty().then_some(toolbox)
    }

    /// Removes from a block with mistakes what rustc would report again.
    pub(crate) fn clean(&mut self) {
        for item in &mut self.block.items {
            if let ImplItem::Fn(method) = item {
                clean_signature(&mut method.sig);
            }
        }
    }

    fn check(&self, diagnostics: &mut Diagnostics) {
        if self.tools.is_empty() {
            let message = "a toolbox needs at least one tool; write `#[tool]` above a method of this block";
            diagnostics.error(self.block.impl_token, message);
        }
        for lifetime in self.block.generics.lifetimes() {
            let message = "a toolbox must be `'static`, so it cannot have lifetime parameters; \
                 own the data, or share it in an `Arc`";
            diagnostics.error(lifetime, message);
        }
        self.check_names(diagnostics);
    }

    fn check_names(&self, diagnostics: &mut Diagnostics) {
        let mut earlier = HashMap::new();
        for tool in self.tools.iter().filter(|tool| tool.name.constant.is_none()) {
            // Methods with `#[cfg]` may exclude each other.
            let is_conditional = tool.attributes.iter().any(|attribute| attribute.path().is_ident("cfg"));
            let other = earlier.insert(&*tool.name.text, is_conditional);
            let is_reported_by_rustc = !tool.name.is_explicit
                && self.tools.iter().filter(|other| other.signature.ident == tool.signature.ident).count()
                    > 1;
            if other == Some(false) && !is_conditional && !is_reported_by_rustc {
                let message = format!(
                    "two tools of this toolbox are named `{}`; rename one with `name = \"…\"`",
                    tool.name.text
                );
                diagnostics.error_at(tool.name.span, message);
            }
        }
    }
}

/// Returns the tokens in the parentheses of an attribute.
fn attribute_tokens(attribute: &Attribute, diagnostics: &mut Diagnostics) -> TokenStream {
    match &attribute.meta {
        Meta::Path(_) => TokenStream::new(),
        Meta::List(list) => list.tokens.clone(),
        Meta::NameValue(meta) => {
            let message = "`#[tool]` takes its description in parentheses: `#[tool(\"…\")]`";
            diagnostics.error(&meta.value, message);
            TokenStream::new()
        }
    }
}
