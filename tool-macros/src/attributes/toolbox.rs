//! `#[toolbox(…)]`

use proc_macro2::TokenStream;
use syn::parse::{Parse, ParseStream};
use syn::{Ident, Path, Token, Visibility, token};

use super::options::{NO_TOOLBOX_DESCRIPTION, Options, default_crate};
use crate::diagnostics::Diagnostics;
use crate::names::{CRATE, TOOLBOX, TOOLBOX_OPTIONS};

/// `#[toolbox]`, `#[toolbox(pub fn admin_tools, crate = "…")]`
pub(crate) struct ToolboxAttribute {
    /// The function that returns the tools, if the block does not implement `Toolbox`.
    pub(crate) function: Option<(Visibility, Ident)>,
    pub(crate) krate: Path,
}

impl ToolboxAttribute {
    pub(crate) fn parse(tokens: TokenStream, diagnostics: &mut Diagnostics) -> Self {
        let Parts { function, options } = diagnostics.recover(syn::parse2(tokens));
        options.check(TOOLBOX, TOOLBOX_OPTIONS, diagnostics);
        options.reject_description(NO_TOOLBOX_DESCRIPTION, diagnostics);
        let krate = options.quoted_path(CRATE, "\"my_crate::tool_core\"", diagnostics);
        Self { function, krate: krate.unwrap_or_else(default_crate) }
    }
}

/// An optional `pub fn name`, then the options.
#[derive(Default)]
struct Parts {
    function: Option<(Visibility, Ident)>,
    options: Options,
}

impl Parse for Parts {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let is_function = input.peek(Token![pub]) || input.peek(Token![fn]);
        let function = if is_function {
            let visibility = input.parse()?;
            input.parse::<Token![fn]>()?;
            let name: Ident = input.parse()?;
            if input.peek(token::Paren) {
                return Err(
                    input.error(format!("expected `,`; write the name alone: `#[toolbox(fn {name})]`"))
                );
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
            Some((visibility, name))
        } else {
            None
        };
        Ok(Self { function, options: input.parse()? })
    }
}
