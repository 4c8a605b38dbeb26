//! What is the same for functions and for methods: description, parameters and details.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use super::details::expand_details;
use super::expand_option;
use crate::input::Argument;
use crate::tool_fn::ToolFn;

/// `Some("Sums two numbers."), &[…], None`
pub(super) fn expand_declaration(tool: &ToolFn, private: &TokenStream) -> TokenStream {
    let description = expand_option(tool.description.as_ref());
    let parameters = tool.arguments().map(|argument| expand_parameter(argument, private));
    let parameters = lasting(tool, quote!([#(#parameters),*]));
    let details = expand_option(expand_details(tool, private));
    quote!(#description, #parameters, #details)
}

/// `Parameter::new::<f64>("a", Some("the first number"), OptionalProbe::<f64>::__TOOL_CORE_IS_REQUIRED)`
fn expand_parameter(argument: &Argument, private: &TokenStream) -> TokenStream {
    let ty = &argument.ty;
    let name = &argument.name.text;
    let description = expand_option(argument.description.as_ref());
    let span = ty.span();
    let is_required = match &argument.required {
        _ if argument.default.is_some() => quote!(false),
        Some(required) if !required.value => quote_spanned!(span=> #private::left_out::<#ty>()),
        Some(_) => quote!(true),
        None => quote!(#private::OptionalProbe::<#ty>::__TOOL_CORE_IS_REQUIRED),
    };
    quote_spanned!(span=> #private::Parameter::new::<#ty>(#name, #description, #is_required))
}

/// A reference to a constant that lasts for ever. In a `static`, where a function's declaration stands, it does so by
/// itself; a method's cannot stand in one, because its block may be generic.
pub(super) fn lasting(tool: &ToolFn, value: TokenStream) -> TokenStream {
    if tool.is_method { quote!(const { &#value }) } else { quote!(&#value) }
}
