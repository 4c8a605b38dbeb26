//! The rules for the signature of a function that a model can call.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    FnArg, GenericArgument, GenericParam, Pat, PatType, Path, PathArguments, ReceiverKind, ReturnType,
    Safety, Signature, Type, TypeReference,
};

use crate::diagnostics::{Diagnostics, nearest_name};
use crate::fallback::{find_keyword, is_conditional, is_of_rustc, is_unsized};
use crate::names::{CONTEXT_TYPES, INJECT, PARAM, PLAIN_CONTAINERS, PLAIN_TYPES, PRIMITIVE_TYPES};
use crate::parameter::{InjectedParameter, ModelParameter, Parameter, ParameterType, is_str_reference};
use crate::receiver::Receiver;
use crate::tool_fn::ToolFn;

/// The message for one of our attributes in a `#[cfg_attr(…)]`.
pub(crate) const CONDITIONAL: &str = "`#[cfg_attr]` cannot contain an attribute of a tool; \
     write it directly, and `#[cfg]` on two versions of the function";

pub(super) fn check_signature(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    check_qualifiers(&tool.signature, "a tool", diagnostics);
    check_generics(tool, diagnostics);
    check_receiver(tool, diagnostics);
    let typed = tool.signature.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(typed),
        FnArg::Receiver(_) => None,
    });
    for (typed, parameter) in typed.zip(&tool.parameters) {
        for conditional in &typed.attrs {
            if is_conditional(conditional, &[PARAM, INJECT]) {
                diagnostics.error(conditional, CONDITIONAL);
            }
        }
        // Another macro can have attributes of its own.
        if tool.attributes.iter().all(is_of_rustc) {
            for unknown in typed.attrs.iter().filter(|attribute| !is_of_rustc(attribute)) {
                diagnostics.error(unknown, unknown_attribute(unknown.path()));
            }
        }
        match parameter {
            Parameter::Model(parameter) => check_model_parameter(tool, typed, parameter, diagnostics),
            Parameter::Injected(parameter) => {
                check_injected(&typed.ty, parameter, diagnostics);
                if tool.options.pure.is_some() && is_asker(&parameter.ty) {
                    let message = "a `pure` tool cannot ask, because its output depends on its arguments alone; \
                         remove `pure`";
                    diagnostics.error(&parameter.ty, message);
                }
            }
        }
    }
    check_output(tool, diagnostics);
}

/// Checks the keywords before `fn`. `noun` is the subject of the messages.
pub(super) fn check_qualifiers(signature: &Signature, noun: &str, diagnostics: &mut Diagnostics) {
    // A variadic function is always `unsafe` and `extern`.
    if let Some(variadic) = &signature.variadic {
        diagnostics.error(variadic, format!("{noun} cannot be variadic; take a `Vec<T>` instead"));
        return;
    }
    if let Some(constness) = &signature.constness {
        diagnostics.error(constness, format!("{noun} cannot be a `const fn`; remove `const`"));
    }
    if let Safety::Unsafe(token) = &signature.safety {
        let message = format!(
            "{noun} cannot be `unsafe` because a model cannot uphold safety conditions; wrap it in a safe function"
        );
        diagnostics.error(token, message);
    }
    if let Some(abi) = &signature.abi {
        diagnostics.error(abi, format!("{noun} cannot be an `extern` function; wrap it in a Rust function"));
    }
}

fn check_generics(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    for parameter in &tool.signature.generics.params {
        match parameter {
            GenericParam::Type(parameter) => diagnostics.error(
                &parameter.ident,
                format!(
                    "a tool cannot be generic because its schema needs concrete types; replace `{}` with a type",
                    parameter.ident
                ),
            ),
            GenericParam::Const(parameter) => diagnostics.error(
                &parameter.ident,
                format!("a tool cannot be generic; replace `{}` with a value", parameter.ident),
            ),
            GenericParam::Lifetime(_) => {}
        }
    }
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
        let message = "a tool cannot take `&mut self` because its calls run concurrently; \
             take `&self` and keep mutable state in a `Mutex` or an atomic";
        diagnostics.error(receiver, message);
    } else if !tool.is_method {
        let message = "a tool that takes `self` needs a toolbox; write `#[toolbox]` above the `impl` block";
        diagnostics.error(receiver, message);
    } else if Receiver::from_syn(receiver).is_none() {
        let message = "a tool cannot own its toolbox because all calls share it; \
             take `&self` or `self: Arc<Self>`, or remove `self`";
        diagnostics.error(receiver, message);
    }
}

/// Returns the message for an attribute that a parameter cannot have.
fn unknown_attribute(path: &Path) -> String {
    let name = path.to_token_stream().to_string().replace(' ', "");
    let last = path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
    match (&*name, nearest_name(&last, &[PARAM, INJECT])) {
        ("schemars" | "serde", _) => format!(
            "`#[{name}]` applies to types and their fields; the options of a parameter are in `#[param(…)]`"
        ),
        (_, Some(nearest)) => format!("unknown attribute `#[{name}]`; did you mean `#[{nearest}]`?"),
        _ => format!(
            "unknown attribute `#[{name}]`; write `#[inject]` for a value of the application, or `#[param(…)]` for one of the model"
        ),
    }
}

fn check_model_parameter(
    tool: &ToolFn,
    input: &PatType,
    parameter: &ModelParameter,
    diagnostics: &mut Diagnostics,
) {
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg")) {
        let message = "a parameter of a tool cannot have `#[cfg]`; put it on two versions of the function";
        diagnostics.error(attribute, message);
    }
    match &*input.pat {
        Pat::Ident(pattern) if pattern.subpat.is_none() && pattern.by_ref.is_none() => {}
        Pat::Wild(_) => diagnostics
            .error(&input.pat, "a parameter of a tool needs a name for the model; replace `_` with a name"),
        _ => diagnostics.error(
            &input.pat,
            "a parameter of a tool needs a name for the model; write a name and destructure it in the body",
        ),
    }
    let lacks_inject = tool.is_inject_misplaced || !input.attrs.iter().all(is_of_rustc);
    if is_unsized(&input.ty) {
        let ty = source_text(&input.ty);
        let message = format!("a parameter of type `{ty}` has no known size; borrow it: `&{ty}`");
        diagnostics.error(&input.ty, message);
    } else if let Some(keyword) = find_keyword(input.ty.to_token_stream(), &["impl", "dyn"]) {
        let message = format!(
            "`{keyword} Trait` cannot be a parameter of a tool because its schema needs a concrete type; \
             replace it with a type"
        );
        diagnostics.error(keyword, message);
    } else if let Some(name) = context_type(&input.ty).filter(|_| !lacks_inject) {
        let message = format!(
            "`{name}` comes from the application, not from the model; \
             write `#[inject]` in front of the parameter"
        );
        diagnostics.error(&input.ty, message);
    } else if let Type::Reference(TypeReference { mutability: Some(token), .. }) = &*input.ty {
        let message =
            "a tool cannot take an argument by mutable reference; remove `mut`, or take the value itself";
        diagnostics.error(token, message);
    }
    check_borrows(parameter, diagnostics);
}

/// Returns the name of a type that only the application can provide.
fn context_type(ty: &Type) -> Option<&'static str> {
    let ty = match ty {
        Type::Reference(reference) => &*reference.elem,
        other => other,
    };
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    CONTEXT_TYPES.iter().copied().find(|name| last.ident == name)
}

/// Returns `true` for the type that asks a person.
fn is_asker(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Asker"))
}

/// Returns the source of a type, as it is usually formatted.
fn source_text(ty: &Type) -> String {
    let text = ty.to_token_stream().to_string();
    text.replace(" :: ", "::").replace(" < ", "<").replace("< ", "<").replace(" >", ">").replace(" ,", ",")
}

/// Returns `true` for a type that any part of the program can provide for another purpose, such as `String`.
fn is_plain(ty: &Type) -> bool {
    match ty {
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return false };
            let is_one_of = |names: &[&str]| names.iter().any(|name| last.ident == name);
            match &last.arguments {
                PathArguments::None => is_one_of(PLAIN_TYPES) || is_one_of(PRIMITIVE_TYPES),
                PathArguments::AngleBracketed(arguments) => {
                    is_one_of(PLAIN_CONTAINERS)
                        && arguments.args.iter().all(|argument| match argument {
                            GenericArgument::Type(ty) => is_plain(ty),
                            other => matches!(other, GenericArgument::Lifetime(_)),
                        })
                }
                PathArguments::Parenthesized(_) => false,
            }
        }
        Type::Tuple(tuple) => tuple.elems.iter().all(is_plain),
        Type::Array(array) => is_plain(&array.elem),
        Type::Paren(paren) => is_plain(&paren.elem),
        _ => false,
    }
}

/// Checks that an injected value of type `declared` can be found by its type.
pub(super) fn check_injected(declared: &Type, parameter: &InjectedParameter, diagnostics: &mut Diagnostics) {
    if let Type::Reference(TypeReference { mutability: Some(token), .. }) = declared {
        let message = "an injected value is shared between calls; \
             remove `mut` and keep mutable state in a `Mutex`";
        diagnostics.error(token, message);
    } else if let Type::TraitObject(_) | Type::ImplTrait(_) | Type::Slice(_) = &parameter.ty {
        let message = "an injected value is found by its type; \
             use a concrete, sized type such as `&Arc<dyn Trait>`";
        diagnostics.error(&parameter.ty, message);
    } else if is_plain(&parameter.ty) {
        let ty = source_text(&parameter.ty);
        let message = match &*ty {
            "str" | "String" => "an injected value is found by its type; \
                 wrap the string in a type of its own, such as `struct ApiUrl(String)`"
                .to_owned(),
            _ => format!(
                "an injected value is found by its type; \
                 wrap the `{ty}` in a type of its own, such as `struct Setting({ty})`"
            ),
        };
        diagnostics.error(&parameter.ty, message);
    } else if let Some(keyword) = find_keyword(declared.to_token_stream(), &["impl"]) {
        let message = "an injected value is found by its type; replace `impl Trait` with a type";
        diagnostics.error(keyword, message);
    } else if let Some(span) = find_borrow(parameter.ty.to_token_stream()) {
        let message =
            "an injected type cannot contain references; borrow the whole value, such as `&Database`";
        diagnostics.error_at(span, message);
    } else if let Type::Reference(TypeReference { lifetime: Some(lifetime), .. }) = declared
        && lifetime.ident == "static"
    {
        diagnostics.error(lifetime, "an injected value is borrowed for one call only; remove `'static`");
    }
}

/// Checks that arguments, which live for one call, are borrowed as a whole and not for longer.
fn check_borrows(parameter: &ModelParameter, diagnostics: &mut Diagnostics) {
    if let ParameterType::Borrowed { lifetime: Some(lifetime), .. } = &parameter.ty
        && lifetime.ident == "static"
    {
        diagnostics.error(lifetime, "an argument lives for one call only; remove `'static`");
    }
    if let Some(span) = find_borrow(parameter.ty.to_token_stream()) {
        let message = "a parameter type cannot contain references; \
             use an owned type such as `String`, or borrow the whole value, such as `&str`";
        diagnostics.error_at(span, message);
    }
}

/// Checks that the output does not borrow, because it outlives the arguments.
fn check_output(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    // rustc checks what a converter returns.
    if tool.options.convert.is_some() {
        return;
    }
    if let ReturnType::Type(_, ty) = &tool.signature.output
        && matches!(**ty, Type::Never(_))
    {
        let message = "a tool cannot return `!` because the run continues with its output; remove `-> !`";
        diagnostics.error(ty, message);
    } else if let ReturnType::Type(_, ty) = &tool.signature.output
        && !is_str_reference(ty)
        && let Some(span) = find_borrow(ty.to_token_stream())
    {
        let message = "the output of a tool cannot borrow because it outlives the arguments; use an owned type such as `String`";
        diagnostics.error_at(span, message);
    }
}

/// Returns the span of the first reference or lifetime in a type that is not `'static`.
pub(super) fn find_borrow(ty: TokenStream) -> Option<Span> {
    let mut tokens = ty.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                if let Some(span) = find_borrow(group.stream()) {
                    return Some(span);
                }
            }
            // A reference, which its lifetime follows if it is written.
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
