//! The model: what the macro knows of an annotated function or method.

use proc_macro2::{Span, TokenStream};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, FnArg, Ident, Path, ReturnType, Signature};

use crate::attributes::ToolAttribute;
use crate::diagnostics::Diagnostics;
use crate::docs;
use crate::fallback;
use crate::input::{Argument, ArgumentType, Injected, Input, is_text};
use crate::names::{INJECT, PARAM};

/// A function or method that becomes a tool.
pub(crate) struct ToolFn {
    /// The tool's name, at the place where it is written.
    pub(crate) name: Name,
    pub(crate) description: Option<String>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) words: ToolAttribute,
    pub(crate) is_method: bool,
    /// The signature as the user wrote it, without our attributes.
    pub(crate) signature: Signature,
    /// The attributes that are not ours.
    pub(crate) attributes: Vec<Attribute>,
}

/// A name for the model.
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
    /// It was written as `name = "…"`.
    pub(crate) is_explicit: bool,
}

impl ToolFn {
    /// Reads a function or method, and takes our attributes off it.
    pub(crate) fn read(
        attribute: TokenStream,
        attributes: &mut Vec<Attribute>,
        signature: &mut Signature,
        is_method: bool,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let words = ToolAttribute::from_tokens(attribute, diagnostics);
        for misplaced in &*attributes {
            if fallback::is_tool(misplaced) {
                diagnostics.error(misplaced, "`#[tool]` is given twice; leave one out");
            } else if misplaced.path().is_ident(PARAM) {
                let message = "`#[param]` belongs in front of a parameter: `fn sum(#[param(\"…\")] a: f64)`";
                diagnostics.error(misplaced, message);
            } else if misplaced.path().is_ident(INJECT) {
                let message =
                    "`#[inject]` belongs in front of a parameter: `fn refund(#[inject] shop: &Shop)`";
                diagnostics.error(misplaced, message);
            }
        }
        let name = match &words.name {
            Some(name) => Name::explicit(name),
            None => Name::of(&signature.ident),
        };
        let description =
            words.description.as_ref().map(syn::LitStr::value).or_else(|| docs::text(attributes));
        let inputs = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(input) => Some(Input::read(input, diagnostics)),
            FnArg::Receiver(_) => None,
        });
        let inputs = inputs.collect();
        fallback::clean(attributes, signature);
        let (signature, attributes) = (signature.clone(), attributes.clone());
        Self { name, description, inputs, words, is_method, signature, attributes }
    }

    pub(crate) fn krate(&self) -> &Path {
        &self.words.krate
    }

    /// The parameters that the model fills, in order.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &Argument> {
        self.inputs.iter().filter_map(|input| match input {
            Input::Argument(argument) => Some(&**argument),
            Input::Injected(_) => None,
        })
    }

    /// The parameters that the application fills, in order.
    pub(crate) fn injected(&self) -> impl Iterator<Item = &Injected> {
        self.inputs.iter().filter_map(|input| match input {
            Input::Injected(injected) => Some(&**injected),
            Input::Argument(_) => None,
        })
    }

    /// The function borrows from an argument.
    pub(crate) fn borrows_arguments(&self) -> bool {
        self.arguments().any(|argument| matches!(argument.ty, ArgumentType::Borrowed { .. }))
    }

    /// It returns a `&str`.
    pub(crate) fn returns_text(&self) -> bool {
        matches!(&self.signature.output, ReturnType::Type(_, ty) if is_text(ty))
    }

    /// The type that the function returns, `()` at the name if none is written.
    pub(crate) fn output_span(&self) -> Span {
        match &self.signature.output {
            ReturnType::Type(_, ty) => ty.span(),
            ReturnType::Default => self.signature.ident.span(),
        }
    }
}

impl Name {
    pub(crate) fn of(ident: &Ident) -> Self {
        Self { text: ident.unraw().to_string(), span: ident.span(), is_explicit: false }
    }

    pub(crate) fn explicit(literal: &syn::LitStr) -> Self {
        Self { text: literal.value(), span: literal.span(), is_explicit: true }
    }
}
