//! What a signature must be, so that a model can call the function.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{FnArg, GenericParam, Ident, Pat, PatType, ReceiverKind, ReturnType, Safety, Type, TypeReference};

use crate::diagnostics::Diagnostics;
use crate::input::{Argument, ArgumentType, Injected, Input, is_text};
use crate::names::CONTEXT_TYPES;
use crate::receiver::{Receiver, SHAPES};
use crate::tool_fn::ToolFn;

pub(super) fn check_signature(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    check_qualifiers(tool, diagnostics);
    check_generics(tool, diagnostics);
    check_receiver(tool, diagnostics);
    let typed = tool.signature.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(typed),
        FnArg::Receiver(_) => None,
    });
    for (typed, input) in typed.zip(&tool.inputs) {
        match input {
            Input::Argument(argument) => check_argument(typed, argument, diagnostics),
            Input::Injected(injected) => check_injected(typed, injected, diagnostics),
        }
    }
    check_output(tool, diagnostics);
}

/// A tool is called by safe code, at run time.
fn check_qualifiers(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    let signature = &tool.signature;
    // `unsafe` and `extern` follow from it.
    if let Some(variadic) = &signature.variadic {
        diagnostics.error(
            variadic,
            "a tool takes a fixed list of parameters; use a `Vec<T>` for any number of values",
        );
        return;
    }
    if let Some(constness) = &signature.constness {
        diagnostics.error(constness, "a tool cannot be a `const fn`; leave `const` out");
    }
    if let Safety::Unsafe(token) = &signature.safety {
        diagnostics.error(
            token,
            "a tool cannot be `unsafe`: a model would have to keep its promises; write a safe function around it",
        );
    }
    if let Some(abi) = &signature.abi {
        diagnostics.error(abi, "a tool cannot be an `extern` function; write a Rust function around it");
    }
}

/// The schema has one form, so every type is known.
fn check_generics(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    for parameter in &tool.signature.generics.params {
        match parameter {
            GenericParam::Type(parameter) => diagnostics.error(
                &parameter.ident,
                format!(
                    "a tool cannot be generic, because the model has to be told the type; write a type instead of `{}`",
                    parameter.ident
                ),
            ),
            GenericParam::Const(parameter) => diagnostics.error(
                &parameter.ident,
                format!("a tool cannot be generic; write a value instead of `{}`", parameter.ident),
            ),
            GenericParam::Lifetime(_) => {}
        }
    }
}

/// The first of these words in a type.
fn word_in(ty: TokenStream, words: &[&str]) -> Option<Ident> {
    ty.into_iter().find_map(|token| match token {
        TokenTree::Ident(ident) if words.iter().any(|word| ident == word) => Some(ident),
        TokenTree::Group(group) => word_in(group.stream(), words),
        _ => None,
    })
}

fn check_receiver(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    let Some(receiver) = tool.signature.receiver() else { return };
    let is_mutable = match &receiver.kind {
        ReceiverKind::Reference(_, _, mutability) => mutability.is_some(),
        ReceiverKind::Typed(_, ty) => {
            matches!(&**ty, Type::Reference(TypeReference { mutability: Some(_), .. }))
        }
        _ => false,
    };
    if is_mutable {
        let message = "a tool cannot take `&mut self`, because its calls run side by side; \
             take `&self`, and keep what changes in a `Mutex` or an atomic";
        diagnostics.error(receiver, message);
    } else if !tool.is_method {
        let message =
            "a tool that takes `self` belongs to a toolbox; write `#[toolbox]` above the `impl` block";
        diagnostics.error(receiver, message);
    } else if Receiver::of(receiver).is_none() {
        diagnostics.error(receiver, format!("all calls share one value; take {SHAPES}"));
    }
}

fn check_argument(input: &PatType, argument: &Argument, diagnostics: &mut Diagnostics) {
    for attribute in input.attrs.iter().filter(|one| one.path().is_ident("cfg")) {
        let message =
            "a tool has the same parameters everywhere; put `#[cfg]` on two whole functions instead";
        diagnostics.error(attribute, message);
    }
    match &*input.pat {
        Pat::Ident(pattern) if pattern.subpat.is_none() && pattern.by_ref.is_none() => {}
        Pat::Wild(_) => diagnostics.error(
            &input.pat,
            "a parameter needs a name that the model can use; write a name instead of `_`",
        ),
        _ => diagnostics.error(
            &input.pat,
            "a parameter needs a name that the model can use; write a name, and take it apart in the body",
        ),
    }
    if let Some(word) = word_in(input.ty.to_token_stream(), &["impl", "dyn"]) {
        let message = format!(
            "a tool cannot be generic, because the model has to be told the type; write a type instead of `{word} Trait`"
        );
        diagnostics.error(word, message);
    } else if let Some(name) = context_type(&input.ty) {
        let message =
            format!("a `{name}` comes from the application; write `#[inject]` in front of the parameter");
        diagnostics.error(&input.ty, message);
    } else if let Type::Reference(TypeReference { mutability: Some(token), .. }) = &*input.ty {
        let message = "a tool's arguments come from the model; leave `mut` out, or take the value itself";
        diagnostics.error(token, message);
    }
    check_borrows(argument, diagnostics);
}

/// The name of a type that only the application can give.
fn context_type(ty: &Type) -> Option<&'static str> {
    let ty = match ty {
        Type::Reference(reference) => &*reference.elem,
        other => other,
    };
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    CONTEXT_TYPES.iter().copied().find(|name| last.ident == name)
}

fn check_injected(input: &PatType, injected: &Injected, diagnostics: &mut Diagnostics) {
    if let Type::Reference(TypeReference { mutability: Some(token), .. }) = &*input.ty {
        let message =
            "what is injected is shared between calls; leave `mut` out, and keep what changes in a `Mutex`";
        diagnostics.error(token, message);
    } else if let Type::TraitObject(_) | Type::ImplTrait(_) | Type::Slice(_) = &injected.ty {
        let message =
            "what is injected is found by its type; inject a type of a known size, such as `&Arc<dyn Trait>`";
        diagnostics.error(&injected.ty, message);
    } else if let Type::Path(path) = &injected.ty
        && path.path.is_ident("str")
    {
        diagnostics.error(&injected.ty, "what is injected is found by its type; give it a type of its own, such as `struct ApiUrl(String)`");
    } else if let Some(word) = word_in(input.ty.to_token_stream(), &["impl"]) {
        diagnostics.error(word, "what is injected is found by its type; write the type");
    } else if let Some(place) = borrow_in(injected.ty.to_token_stream()) {
        diagnostics.error_at(place, "only a value as a whole can be borrowed, such as `&Database`");
    } else if let Type::Reference(TypeReference { lifetime: Some(lifetime), .. }) = &*input.ty
        && lifetime.ident == "static"
    {
        diagnostics.error(lifetime, "what is injected is there during the call only; leave `'static` out");
    }
}

/// The arguments live as long as the call, so only a whole argument can be borrowed.
fn check_borrows(argument: &Argument, diagnostics: &mut Diagnostics) {
    if let ArgumentType::Borrowed { lifetime: Some(lifetime), .. } = &argument.ty
        && lifetime.ident == "static"
    {
        diagnostics.error(lifetime, "an argument lives as long as the call only; leave `'static` out");
    }
    if let Some(place) = borrow_in(argument.ty.to_token_stream()) {
        let message = "only a parameter as a whole can be borrowed, such as `&str`; write an owned type here, such as `String`";
        diagnostics.error_at(place, message);
    }
}

/// What is returned outlives the arguments.
fn check_output(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    // What a converter makes of it is looked at when rustc sees it.
    if tool.words.convert.is_some() {
        return;
    }
    if let ReturnType::Type(_, ty) = &tool.signature.output
        && !is_text(ty)
        && let Some(place) = borrow_in(ty.to_token_stream())
    {
        let message =
            "what a tool returns outlives its arguments; write an owned type here, such as `String`";
        diagnostics.error_at(place, message);
    }
}

/// Where a type borrows for less than `'static`.
fn borrow_in(ty: TokenStream) -> Option<Span> {
    let mut tokens = ty.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                if let Some(place) = borrow_in(group.stream()) {
                    return Some(place);
                }
            }
            // A reference: its lifetime, if it is written, comes next.
            TokenTree::Punct(punct) if punct.as_char() == '&' => {
                let has_lifetime =
                    matches!(tokens.peek(), Some(TokenTree::Punct(next)) if next.as_char() == '\'');
                if !has_lifetime {
                    return Some(punct.span());
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == '\'' => {
                let is_static = matches!(tokens.next(), Some(TokenTree::Ident(name)) if name == "static");
                if !is_static {
                    return Some(punct.span());
                }
            }
            _ => {}
        }
    }
    None
}
