//! The options that only some tools have.

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, ExprRange, ExprUnary, Lit, RangeLimits, UnOp};

use super::tokens::expand_option;
use crate::names::{ALWAYS, IF_LAST};
use crate::parameter::{InjectedParameter, ModelParameter, ParameterType};
use crate::tool_fn::ToolFn;

/// `&Details::NONE.exclusive().timeout(5000)`, or `None` if the tool needs no details.
pub(super) fn expand_details(tool: &ToolFn, private: &TokenStream) -> Option<TokenStream> {
    let options = &tool.options;
    let mut details = TokenStream::new();
    if let Some(return_direct) = options.return_direct {
        let variant = match return_direct {
            IF_LAST => quote!(IfLast),
            ALWAYS => quote!(Always),
            _ => quote!(IfAll),
        };
        details.extend(quote!(.return_direct(#private::ReturnDirect::#variant)));
    }
    let flags = [
        &options.needs_approval,
        &options.exclusive,
        &options.at_most_once,
        &options.pure,
        &options.keep_output,
        &options.strict,
        &options.deferred,
    ];
    for flag in flags.into_iter().flatten() {
        details.extend(quote!(.#flag()));
    }
    if let Some(attempts) = options.attempts {
        details.extend(quote!(.attempts(#attempts)));
    }
    if let Some(undo) = &options.undo {
        details.extend(quote!(.undo(#undo)));
    }
    if let Some(timeout) = &options.timeout {
        let milliseconds = timeout.milliseconds;
        details.extend(quote!(.timeout(#milliseconds)));
    }
    if let Some(limit) = &options.max_output_chars {
        details.extend(quote!(.max_output_chars(#limit)));
    }
    let injections: Vec<_> =
        tool.injected_parameters().map(|parameter| expand_injection(parameter, private)).collect();
    if !injections.is_empty() {
        let injections = static_ref(tool, quote!([#(#injections),*]));
        details.extend(quote!(.injections(#injections)));
    }
    let parameters: Vec<_> = tool
        .model_parameters()
        .enumerate()
        .filter_map(|(index, parameter)| expand_parameter(index, parameter, tool, private))
        .collect();
    if !parameters.is_empty() {
        let parameters = static_ref(tool, quote!([#(#parameters),*]));
        details.extend(quote!(.parameters(#parameters)));
    }
    // The details add the defaults to the schema.
    let has_default = tool.model_parameters().any(|parameter| parameter.options.default.is_some());
    (has_default || !details.is_empty()).then(|| static_ref(tool, quote!(#private::Details::NONE #details)))
}

/// Returns `true` for the `String` of a `&str` and the `Vec` of a slice.
fn is_string_or_vec(ty: &ParameterType) -> bool {
    let tokens = ty.to_token_stream().to_string().replace(' ', "");
    tokens.starts_with("::std::string::String") || tokens.starts_with("::std::vec::Vec")
}

/// `Injection::new::<Database>()`
fn expand_injection(parameter: &InjectedParameter, private: &TokenStream) -> TokenStream {
    let ty = &parameter.ty;
    let optional = parameter.is_optional.then(|| quote!(.optional()));
    quote_spanned!(parameter.span=> #private::Injection::new::<#ty>() #optional)
}

/// `ParameterDetails::new(0, &[Limit::range::<u8>(…)], None)`
fn expand_parameter(
    index: usize,
    parameter: &ModelParameter,
    tool: &ToolFn,
    private: &TokenStream,
) -> Option<TokenStream> {
    let range = parameter.options.range.as_ref().map(|range| expand_range(parameter, range, private));
    let length = parameter.options.length.as_ref().map(|length| expand_length(parameter, length, private));
    let pattern = parameter.options.pattern.as_ref().map(|pattern| {
        let ty = &parameter.ty;
        quote_spanned!(ty.span()=> #private::Limit::pattern::<#ty>(#pattern))
    });
    let limits: Vec<_> = [range, length, pattern].into_iter().flatten().collect();
    let example = parameter
        .options
        .example
        .as_ref()
        .map(|example| quote_spanned!(example.span()=> || #private::example(&(#example))));
    if limits.is_empty() && example.is_none() {
        return None;
    }
    let index = Literal::usize_unsuffixed(index);
    let example = expand_option(example);
    let limits = static_ref(tool, quote!([#(#limits),*]));
    Some(quote!(#private::ParameterDetails::new(#index, #limits, #example)))
}

fn expand_range(parameter: &ModelParameter, range: &ExprRange, private: &TokenStream) -> TokenStream {
    let ty = &parameter.ty;
    let bound = |bound: &Option<Box<Expr>>| {
        expand_option(bound.as_deref().map(|bound| {
            match literal_bound(bound) {
                Some(variant) => quote!(#private::Bound::#variant(#bound)),
                None => {
                    quote!({ let bound: <#ty as #private::Ranged>::Number = #bound; #private::Bound::from(bound) })
                }
            }
        }))
    };
    let (lowest, highest, is_open) = (bound(&range.start), bound(&range.end), is_open(range));
    quote_spanned! {ty.span()=>
        #private::Limit::range::<#ty>(|| #private::Bounds { lowest: #lowest, highest: #highest, is_open: #is_open })
    }
}

fn expand_length(parameter: &ModelParameter, length: &ExprRange, private: &TokenStream) -> TokenStream {
    let ty = &parameter.ty;
    let (shortest, longest) = (expand_option(length.start.as_ref()), expand_option(length.end.as_ref()));
    let is_open = is_open(length);
    quote_spanned!(ty.span()=> #private::Limit::length::<#ty>(#shortest, #longest, #is_open))
}

fn is_open(range: &ExprRange) -> bool {
    matches!(range.limits, RangeLimits::HalfOpen(_)) && range.end.is_some()
}

/// Returns the variant of `Bound` for a literal without a suffix.
fn literal_bound(expression: &Expr) -> Option<TokenStream> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Int(integer), .. }) if integer.suffix().is_empty() => {
            Some(quote!(Integer))
        }
        Expr::Lit(ExprLit { lit: Lit::Float(float), .. }) if float.suffix().is_empty() => {
            Some(quote!(Number))
        }
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => literal_bound(expr),
        _ => None,
    }
}

/// Returns a closure that evaluates the default of a parameter, once per call.
pub(super) fn expand_default(
    parameter: &ModelParameter,
    default: &Expr,
    private: &TokenStream,
) -> TokenStream {
    let ty = &parameter.ty;
    match default {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            quote_spanned!(text.span()=> || <#ty as #private::FromText>::from_text(#text))
        }
        other => {
            let other = other.to_token_stream();
            match &parameter.ty {
                // The user did not write the owned type, so the default may be of another.
                ParameterType::Borrowed { .. } if is_string_or_vec(ty) => {
                    quote!(|| <#ty as ::core::convert::From<_>>::from(#other))
                }
                _ => quote!(|| #other),
            }
        }
    }
}

/// Returns a `&'static` reference to a constant. The declaration of a function is in a `static`, which promotes it; that
/// of a method is not, because its block may be generic.
pub(super) fn static_ref(tool: &ToolFn, value: TokenStream) -> TokenStream {
    if tool.is_method { quote!(const { &#value }) } else { quote!(&#value) }
}
