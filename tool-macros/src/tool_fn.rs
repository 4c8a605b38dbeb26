//! A function or method with `#[tool]`, parsed.

use proc_macro2::{Span, TokenStream};
use syn::spanned::Spanned;
use syn::{Attribute, Expr, ExprLit, FnArg, Lit, ReturnType, Signature};

use crate::attributes::ToolAttribute;
use crate::diagnostics::Diagnostics;
use crate::name::Name;
use crate::names::{INJECT, PARAM};
use crate::parameter::{InjectedParameter, ModelParameter, Parameter, ParameterType, is_str_reference};
use crate::{docs, fallback};

/// A function or method that becomes a tool.
pub(crate) struct ToolFn {
    pub(crate) name: Name,
    pub(crate) description: Option<Expr>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) options: ToolAttribute,
    pub(crate) is_method: bool,
    /// `true` if `#[inject]` is on the function, and probably missing on a parameter.
    pub(crate) is_inject_misplaced: bool,
    /// The signature without our attributes.
    pub(crate) signature: Signature,
    /// The attributes other than ours.
    pub(crate) attributes: Vec<Attribute>,
}

impl ToolFn {
    /// Parses a function or method and removes our attributes from it.
    pub(crate) fn parse(
        attribute: TokenStream,
        attributes: &mut Vec<Attribute>,
        signature: &mut Signature,
        is_method: bool,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let options = ToolAttribute::parse(attribute, diagnostics);
        for misplaced in &*attributes {
            if fallback::is_tool(misplaced) {
                diagnostics.error(misplaced, "duplicate `#[tool]`; remove one of the two");
            } else if misplaced.path().is_ident(PARAM) {
                let message =
                    "`#[param]` applies to a parameter, not to a function: `fn sum(#[param(\"…\")] a: f64)`";
                diagnostics.error(misplaced, message);
            } else if misplaced.path().is_ident(INJECT) {
                let message = "`#[inject]` applies to a parameter, not to a function: `fn refund(#[inject] shop: &Shop)`";
                diagnostics.error(misplaced, message);
            }
        }
        let is_inject_misplaced = attributes.iter().any(|attribute| attribute.path().is_ident(INJECT));
        let name = match &options.name {
            Some(Expr::Lit(ExprLit { lit: Lit::Str(name), .. })) => Name::from_literal(name),
            Some(constant) => Name::from_constant(constant),
            None => Name::from_ident(&signature.ident),
        };
        let description = options.description.clone().or_else(|| docs::literal(attributes));
        let parameters = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(input) => Some(Parameter::parse(input, diagnostics)),
            FnArg::Receiver(_) => None,
        });
        let parameters = parameters.collect();
        fallback::strip_attributes(attributes, signature);
        let (signature, attributes) = (signature.clone(), attributes.clone());
        Self { name, description, parameters, options, is_method, is_inject_misplaced, signature, attributes }
    }

    /// Returns the parameters that the model fills, in order.
    pub(crate) fn model_parameters(&self) -> impl Iterator<Item = &ModelParameter> {
        self.parameters.iter().filter_map(|parameter| match parameter {
            Parameter::Model(parameter) => Some(&**parameter),
            Parameter::Injected(_) => None,
        })
    }

    /// Returns the parameters that the application fills, in order.
    pub(crate) fn injected_parameters(&self) -> impl Iterator<Item = &InjectedParameter> {
        self.parameters.iter().filter_map(|parameter| match parameter {
            Parameter::Injected(parameter) => Some(&**parameter),
            Parameter::Model(_) => None,
        })
    }

    /// Returns `true` if the function borrows an argument.
    pub(crate) fn borrows_arguments(&self) -> bool {
        self.model_parameters().any(|parameter| matches!(parameter.ty, ParameterType::Borrowed { .. }))
    }

    /// Returns `true` if the function returns a `&str`.
    pub(crate) fn returns_str(&self) -> bool {
        matches!(&self.signature.output, ReturnType::Type(_, ty) if is_str_reference(ty))
    }

    /// Returns the span of the return type, or of the function's name if none is written.
    pub(crate) fn output_span(&self) -> Span {
        match &self.signature.output {
            ReturnType::Type(_, ty) => ty.span(),
            ReturnType::Default => self.signature.ident.span(),
        }
    }
}
