//! The parts that functions and methods have in common: description, parameters and details.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use super::details::{expand_details, static_ref};
use super::tokens::expand_option;
use crate::name::Name;
use crate::parameter::ModelParameter;
use crate::tool_fn::ToolFn;

/// `"sum"`, or `checked_name(NAME)` for a constant
pub(super) fn expand_name(tool: &ToolFn, private: &TokenStream) -> TokenStream {
    let Name { text, span, constant, .. } = &tool.name;
    match constant {
        None => quote!(#text),
        Some(constant) => quote_spanned!(*span=> #private::checked_name(#constant)),
    }
}

/// `Some("Sums two numbers."), &[…], None`
pub(super) fn expand_declaration(tool: &ToolFn, private: &TokenStream) -> TokenStream {
    let description = expand_option(tool.description.as_ref());
    let parameters = tool.model_parameters().map(|parameter| expand_parameter(parameter, private));
    let parameters = static_ref(tool, quote!([#(#parameters),*]));
    let details = expand_option(expand_details(tool, private));
    quote!(#description, #parameters, #details)
}

/// `Parameter::new::<f64>("a", Some("…"), ParameterProbe::<f64>::__TOOL_CORE_IS_REQUIRED, ParameterProbe::<f64>::__TOOL_CORE_KIND)`
fn expand_parameter(parameter: &ModelParameter, private: &TokenStream) -> TokenStream {
    let ty = &parameter.ty;
    let name = &parameter.name.text;
    let description = expand_option(parameter.options.description.as_ref());
    let span = ty.span();
    let is_required = match &parameter.options.required {
        _ if parameter.options.default.is_some() => quote!(false),
        Some(required) if !required.value => quote_spanned!(span=> #private::not_required::<#ty>()),
        Some(_) => quote!(true),
        None => quote!(#private::ParameterProbe::<#ty>::__TOOL_CORE_IS_REQUIRED),
    };
    let kind = quote!(#private::ParameterProbe::<#ty>::__TOOL_CORE_KIND);
    quote_spanned!(span=> #private::Parameter::new::<#ty>(#name, #description, #is_required, #kind))
}
