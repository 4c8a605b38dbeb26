//! The words that only some tools have.

use proc_macro2::{Literal, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, ExprLit, ExprRange, ExprUnary, Lit, RangeLimits, UnOp};

use super::declaration::lasting;
use super::expand_option;
use crate::attributes::ReturnDirect;
use crate::input::{Argument, ArgumentType, Injected};
use crate::names::PLAIN_TYPES;
use crate::tool_fn::ToolFn;

/// `&Details::NONE.exclusive().timeout(5000)`; nothing where no word calls for it.
pub(super) fn expand_details(tool: &ToolFn, private: &TokenStream) -> Option<TokenStream> {
    let words = &tool.words;
    let mut details = TokenStream::new();
    if let Some(return_direct) = words.return_direct {
        let return_direct = expand_return_direct(return_direct, private);
        details.extend(quote!(.return_direct(#return_direct)));
    }
    let flags = [&words.needs_approval, &words.exclusive, &words.at_most_once, &words.pure, &words.strict];
    for flag in flags.into_iter().flatten() {
        details.extend(quote!(.#flag()));
    }
    if let Some(attempts) = words.attempts {
        details.extend(quote!(.attempts(#attempts)));
    }
    if let Some(undo) = &words.undo {
        details.extend(quote!(.undo(#undo)));
    }
    if let Some(timeout) = &words.timeout {
        let milliseconds = timeout.milliseconds;
        details.extend(quote!(.timeout(#milliseconds)));
    }
    if let Some(limit) = &words.max_output_chars {
        details.extend(quote!(.max_output_chars(#limit)));
    }
    if tool.arguments().any(|argument| !is_plain(argument.ty.to_token_stream())) {
        details.extend(quote!(.promises()));
    }
    let injections: Vec<_> = tool.injected().map(|injected| expand_injection(injected, private)).collect();
    if !injections.is_empty() {
        let injections = lasting(tool, quote!([#(#injections),*]));
        details.extend(quote!(.injections(#injections)));
    }
    let parameters: Vec<_> = tool
        .arguments()
        .enumerate()
        .filter_map(|(index, one)| expand_parameter(index, one, tool, private))
        .collect();
    if !parameters.is_empty() {
        let parameters = lasting(tool, quote!([#(#parameters),*]));
        details.extend(quote!(.parameters(#parameters)));
    }
    // What is there shows in the schema, through the details.
    let has_default = tool.arguments().any(|argument| argument.default.is_some());
    (has_default || !details.is_empty()).then(|| lasting(tool, quote!(#private::Details::NONE #details)))
}

/// The type is put together of types of the standard library that take all that their schemas allow: an `f32` does not, and a
/// type of the user's may say more in its schema than it refuses.
fn is_plain(ty: TokenStream) -> bool {
    ty.into_iter().all(|token| match token {
        TokenTree::Ident(name) => PLAIN_TYPES.iter().any(|plain| name == plain),
        TokenTree::Group(group) => is_plain(group.stream()),
        _ => true,
    })
}

/// It is the `String` of a `&str`, or the `Vec` of a slice.
fn is_text_or_list(ty: &ArgumentType) -> bool {
    let tokens = ty.to_token_stream().to_string().replace(' ', "");
    tokens.starts_with("::std::string::String") || tokens.starts_with("::std::vec::Vec")
}

/// `ReturnDirect::IfAll`
fn expand_return_direct(return_direct: ReturnDirect, private: &TokenStream) -> TokenStream {
    match return_direct {
        ReturnDirect::IfAll => quote!(#private::ReturnDirect::IfAll),
        ReturnDirect::IfLast => quote!(#private::ReturnDirect::IfLast),
        ReturnDirect::Always => quote!(#private::ReturnDirect::Always),
    }
}

/// `Injection::of::<Database>()`
fn expand_injection(injected: &Injected, private: &TokenStream) -> TokenStream {
    let ty = &injected.ty;
    let optional = injected.is_optional.then(|| quote!(.optional()));
    quote_spanned!(injected.span=> #private::Injection::of::<#ty>() #optional)
}

/// `ParameterDetails::of(0, &[&Range::of::<u8>(…)], None)`
fn expand_parameter(
    index: usize,
    argument: &Argument,
    tool: &ToolFn,
    private: &TokenStream,
) -> Option<TokenStream> {
    let range = argument.range.as_ref().map(|range| expand_range(argument, range, private));
    let length = argument.length.as_ref().map(|length| expand_length(argument, length, private));
    let pattern = argument.pattern.as_ref().map(|pattern| {
        let ty = &argument.ty;
        quote_spanned! {ty.span()=>
            #private::Pattern::of::<#ty>(#pattern, || {
                static __PATTERN: #private::PatternCell = #private::PatternCell::new();
                #private::compiled(&__PATTERN, #pattern)
            })
        }
    });
    let limits = [range, length, pattern].into_iter().flatten();
    let limits: Vec<_> = limits.map(|limit| lasting(tool, limit)).collect();
    let example = argument.example.as_ref().map(|example| quote!(|| #private::example(&(#example))));
    if limits.is_empty() && example.is_none() {
        return None;
    }
    let index = Literal::usize_unsuffixed(index);
    let example = expand_option(example);
    let limits = lasting(tool, quote!([#(#limits),*]));
    Some(quote!(#private::ParameterDetails::of(#index, #limits, #example)))
}

fn expand_range(argument: &Argument, range: &ExprRange, private: &TokenStream) -> TokenStream {
    let ty = &argument.ty;
    let bound = |bound: &Option<Box<Expr>>| {
        expand_option(bound.as_deref().map(|bound| {
            let kind = match number_of(bound) {
                Some(Number::Integer) => return quote!(#private::Bound::Integer(#bound)),
                Some(Number::Float) => return quote!(#private::Bound::Number(#bound)),
                None => quote!(<#ty as #private::Ranged>::Number),
            };
            quote!({ let bound: #kind = #bound; #private::Bound::from(bound) })
        }))
    };
    let (lowest, highest, is_open) = (bound(&range.start), bound(&range.end), is_open(range));
    quote_spanned! {ty.span()=>
        #private::Range::of::<#ty>(|| #private::Bounds { lowest: #lowest, highest: #highest, is_open: #is_open })
    }
}

fn expand_length(argument: &Argument, length: &ExprRange, private: &TokenStream) -> TokenStream {
    let ty = &argument.ty;
    let (shortest, longest) = (expand_option(length.start.as_ref()), expand_option(length.end.as_ref()));
    let is_open = is_open(length);
    quote_spanned!(ty.span()=> #private::Length::of::<#ty>(#shortest, #longest, #is_open))
}

fn is_open(range: &ExprRange) -> bool {
    matches!(range.limits, RangeLimits::HalfOpen(_)) && range.end.is_some()
}

enum Number {
    Integer,
    Float,
}

/// What kind of number a literal without a suffix is.
fn number_of(expression: &Expr) -> Option<Number> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Int(integer), .. }) if integer.suffix().is_empty() => {
            Some(Number::Integer)
        }
        Expr::Lit(ExprLit { lit: Lit::Float(float), .. }) if float.suffix().is_empty() => Some(Number::Float),
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => number_of(expr),
        _ => None,
    }
}

/// The default of a parameter, in a closure: it is made anew for each call.
pub(super) fn expand_default(argument: &Argument, default: &Expr, private: &TokenStream) -> TokenStream {
    let ty = &argument.ty;
    match default {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            quote_spanned!(text.span()=> || <#ty as #private::FromText>::from_text(#text))
        }
        other => {
            let other = other.to_token_stream();
            match &argument.ty {
                // The type that is owned is not one that the user wrote.
                ArgumentType::Borrowed { .. } if is_text_or_list(ty) => {
                    quote!(|| <#ty as ::core::convert::From<_>>::from(#other))
                }
                _ => quote!(|| #other),
            }
        }
    }
}
