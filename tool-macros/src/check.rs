//! The rules that a tool keeps, each with the words for who breaks it.

use std::collections::HashMap;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{FnArg, GenericParam, Ident, Pat, ReceiverKind, ReturnType, Safety, Type, TypeReference};

use crate::diagnostics::Diagnostics;
use crate::names::{LONGEST_TOOL_NAME, PRIMITIVE_TYPES};
use crate::tool_fn::{self, Parameter, ParameterType, ToolFn};

pub(crate) fn check(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    check_qualifiers(tool, diagnostics);
    check_generics(tool, diagnostics);
    check_receiver(tool, diagnostics);
    check_inputs(tool, diagnostics);
    check_borrows(tool, diagnostics);
    check_name(tool, diagnostics);
    check_parameter_names(tool, diagnostics);
}

/// A tool is called by safe code, at run time.
fn check_qualifiers(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    let signature = &tool.function.sig;
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
    for parameter in &tool.function.sig.generics.params {
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
    for input in &tool.function.sig.inputs {
        let FnArg::Typed(input) = input else { continue };
        if let Some(word) = word_in(input.ty.to_token_stream(), &["impl", "dyn"]) {
            let message = format!(
                "a tool cannot be generic, because the model has to be told the type; write a type instead of `{word} Trait`"
            );
            diagnostics.error(word, message);
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
    let Some(receiver) = tool.function.sig.receiver() else { return };
    let is_mutable = match &receiver.kind {
        ReceiverKind::Reference(_, _, mutability) => mutability.is_some(),
        ReceiverKind::Typed(_, ty) => {
            matches!(&**ty, Type::Reference(TypeReference { mutability: Some(_), .. }))
        }
        _ => false,
    };
    let message = if is_mutable {
        "a tool cannot take `&mut self`, because its calls run side by side; \
         write a function that takes its state from a `static`, such as a `Mutex`"
    } else {
        "a tool is a free function and cannot take `self`; write a function that takes what it needs as parameters"
    };
    diagnostics.error(receiver, message);
}

fn check_inputs(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    for input in &tool.function.sig.inputs {
        let FnArg::Typed(input) = input else { continue };
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
        if let Type::Reference(TypeReference { mutability: Some(token), .. }) = &*input.ty {
            diagnostics.error(
                token,
                "a tool's arguments come from the model; leave `mut` out, or take the value itself",
            );
        }
    }
}

/// The arguments live as long as the call, and the result longer; so only a whole argument can be borrowed.
fn check_borrows(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    for parameter in &tool.parameters {
        if let ParameterType::Borrowed { lifetime: Some(lifetime), .. } = &parameter.ty
            && lifetime.ident == "static"
        {
            diagnostics.error(lifetime, "an argument lives as long as the call only; leave `'static` out");
        }
        if let Some(place) = borrow_in(parameter.ty.to_token_stream()) {
            let message = "only a parameter as a whole can be borrowed, such as `&str`; write an owned type here, such as `String`";
            diagnostics.error_at(place, message);
        }
    }
    if let ReturnType::Type(_, ty) = &tool.function.sig.output
        && !tool_fn::is_text(ty)
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

/// What the providers accept: <https://platform.openai.com/docs/api-reference/chat/create>.
fn check_name(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    let name = &tool.name;
    let text = &*name.text;
    let is_right = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if text.is_empty() {
        diagnostics.error_at(name.span, "a tool needs a name: one letter at least");
    } else if let Some(wrong) = text.chars().find(|c| !is_right(*c)) {
        let accepted: String = text.chars().map(|c| if is_right(c) { c } else { '_' }).collect();
        let message = format!(
            "a tool's name has ASCII letters, digits, `_` and `-` only, not `{wrong}`; \
             choose another, such as `name = \"{accepted}\"`"
        );
        diagnostics.error_at(name.span, message);
    } else if text.len() > LONGEST_TOOL_NAME {
        let message = format!(
            "a tool's name has at most {LONGEST_TOOL_NAME} characters, not {}; choose a shorter one with `name = \"…\"`",
            text.len()
        );
        diagnostics.error_at(name.span, message);
    }
    let ident = &tool.function.sig.ident;
    let ident_text = ident.to_string();
    if PRIMITIVE_TYPES.contains(&&*ident_text) {
        let message = format!(
            "a tool named like the type `{ident}` would hide that type; \
             rename the function, and give it `#[tool(name = \"{ident}\")]` to keep the name for the model"
        );
        diagnostics.error(ident, message);
    }
}

fn check_parameter_names(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    let mut earlier: HashMap<&str, bool> = HashMap::new();
    for Parameter { name, .. } in &tool.parameters {
        if name.is_explicit && name.text.is_empty() {
            diagnostics.error_at(name.span, "a parameter needs a name: one letter at least");
        }
        // Where the same identifier stands twice, rustc says so itself.
        let is_ours = earlier.insert(&name.text, name.is_explicit).map(|other| other || name.is_explicit);
        if is_ours == Some(true) && !name.text.is_empty() {
            diagnostics.error_at(
                name.span,
                format!("two parameters are named `{}`; choose another name", name.text),
            );
        }
    }
}
