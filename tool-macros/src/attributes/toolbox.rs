//! `#[toolbox(…)]`

use proc_macro2::TokenStream;
use syn::parse::{Parse, ParseStream};
use syn::{Ident, Path, Token, Visibility};

use super::words::{Words, default_crate};
use crate::diagnostics::Diagnostics;
use crate::names::{CRATE, TOOLBOX, TOOLBOX_WORDS};

/// `#[toolbox]`, `#[toolbox(pub fn admin_tools, crate = "…")]`
pub(crate) struct ToolboxAttribute {
    /// The function that gives the tools, where they are not the toolbox of their type.
    pub(crate) function: Option<(Visibility, Ident)>,
    pub(crate) krate: Path,
}

impl ToolboxAttribute {
    pub(crate) fn from_tokens(tokens: TokenStream, diagnostics: &mut Diagnostics) -> Self {
        let (function, words) =
            syn::parse2::<Parts>(tokens).map(|parts| (parts.function, parts.words)).unwrap_or_else(|error| {
                diagnostics.push(error);
                Default::default()
            });
        words.check(TOOLBOX, TOOLBOX_WORDS, diagnostics);
        words.refuse_description("a toolbox has no description; describe its tools", diagnostics);
        Self { function, krate: words.path_in_quotes(CRATE, diagnostics).unwrap_or_else(default_crate) }
    }
}

struct Parts {
    function: Option<(Visibility, Ident)>,
    words: Words,
}

impl Parse for Parts {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let is_function = input.peek(Token![pub]) || input.peek(Token![fn]);
        let function = if is_function {
            let visibility = input.parse()?;
            input.parse::<Token![fn]>()?;
            let name = input.parse()?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
            Some((visibility, name))
        } else {
            None
        };
        Ok(Self { function, words: input.parse()? })
    }
}
