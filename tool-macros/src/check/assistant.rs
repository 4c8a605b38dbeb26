//! The rules that an assistant must follow.

use std::collections::HashMap;

use quote::ToTokens;
use syn::{FnArg, GenericParam, Ident, ItemTrait, ReturnType, TraitItem, Type};

use super::literal::{Literal, ValueKind};
use super::signature::{check_injected as check_injected_type, check_qualifiers, find_borrow};
use crate::assistant::{Assistant, Method, Parameter, Question, Role};
use crate::diagnostics::{Diagnostics, join_quoted};
use crate::docs;
use crate::fallback::find_keyword;
use crate::names::{
    AGENT, ASK, ASSISTANT, CONVERSATION, INJECT, MAX_OUTPUT_TOKENS, MAX_TURNS, ONLY_TOOLS, PARAM, SEED,
    TEMPERATURE, TOOLS, TOP_P,
};
use crate::parameter::{InjectedParameter, option_argument};
use crate::receiver::Receiver;
use crate::template::Piece;

/// The subject of messages about a method.
const NOUN: &str = "a method with `#[ask]`";

/// Checks the trait and its methods.
pub(crate) fn check(assistant: &Assistant, diagnostics: &mut Diagnostics) {
    let Assistant { item, methods, .. } = assistant;
    check_agent(assistant, diagnostics);
    check_trait(item, diagnostics);
    for method in methods {
        check_method(method, diagnostics);
        check_instructions(method, &assistant.instructions, diagnostics);
    }
    check_is_complete(item, methods, diagnostics);
}

/// Checks the name of the struct.
fn check_agent(assistant: &Assistant, diagnostics: &mut Diagnostics) {
    let (name, options) = (&assistant.item.ident, &assistant.options);
    match &options.agent {
        None if options.is_invalid => {}
        None => {
            let message = format!(
                "an assistant needs a name for the struct that implements the trait; \
                 write `#[{ASSISTANT}({AGENT} = {name}Agent)]`"
            );
            diagnostics.error(name, message);
        }
        Some(agent) if agent == name => {
            let message = format!("the trait is named `{name}`; write another name: `{AGENT} = {name}Agent`");
            diagnostics.error(agent, message);
        }
        Some(_) => {}
    }
}

/// Checks the trait itself.
fn check_trait(item: &ItemTrait, diagnostics: &mut Diagnostics) {
    if let Some(unsafety) = &item.unsafety {
        diagnostics.error(unsafety, "an assistant cannot be an `unsafe` trait; remove `unsafe`");
    }
    if let Some(auto) = &item.modifiers.auto_token {
        diagnostics.error(auto, "an assistant cannot be an `auto` trait; remove `auto`");
    }
    if let Some(parameter) = item.generics.params.first() {
        let message = "an assistant cannot be generic because one struct implements it; \
             remove the parameter, or write one trait per type";
        diagnostics.error(parameter, message);
    }
    for item in &item.items {
        let (name, kind) = match item {
            TraitItem::Const(item) if item.default.is_none() => (&item.ident, "constant"),
            TraitItem::Type(item) if item.default.is_none() => (&item.ident, "type"),
            _ => continue,
        };
        let message =
            format!("a model cannot implement the {kind} `{name}`; remove it, or move it to another trait");
        diagnostics.error(name, message);
    }
}

/// Checks that every method is implemented, by the model or by its body.
fn check_is_complete(item: &ItemTrait, methods: &[Method], diagnostics: &mut Diagnostics) {
    if methods.is_empty() && !item.items.iter().any(|item| matches!(item, TraitItem::Fn(_))) {
        let message = "an assistant needs at least one method with `#[ask(\"…\")]`";
        diagnostics.error(&item.ident, message);
    }
    let is_asked = |name: &Ident| methods.iter().any(|method| method.signature().ident == *name);
    let mut earlier: HashMap<String, bool> = HashMap::new();
    for item in &item.items {
        let TraitItem::Fn(method) = item else { continue };
        let name = &method.sig.ident;
        if method.default.is_none() && !is_asked(name) {
            let message = format!(
                "the method `{name}` has neither `#[{ASK}]` nor a body; write `#[{ASK}(\"…\")]` above it"
            );
            diagnostics.error(name, message);
        }
        // Methods with `#[cfg]` may exclude each other.
        let is_conditional = method.attrs.iter().any(|attribute| attribute.path().is_ident("cfg"));
        if earlier.insert(name.to_string(), is_conditional) == Some(false) && !is_conditional {
            diagnostics.error(name, format!("two methods are named `{name}`; rename one"));
        }
    }
}

/// Checks a method with `#[ask]`.
fn check_method(method: &Method, diagnostics: &mut Diagnostics) {
    let signature = method.signature();
    check_qualifiers(signature, NOUN, diagnostics);
    if let Some(body) = &method.item.default {
        let message = format!(
            "{NOUN} has no body because the model answers it; write `;` in its place, or remove `#[{ASK}]`"
        );
        diagnostics.error_at(body.brace_token.span.open(), message);
    }
    check_generics(method, diagnostics);
    check_receiver(method, diagnostics);
    check_parameters(method, diagnostics);
    check_output(method, diagnostics);
    check_options(method, diagnostics);
}

/// Checks that each placeholder of the instructions is a parameter.
fn check_instructions(method: &Method, instructions: &[Piece], diagnostics: &mut Diagnostics) {
    // A pattern can be meant.
    if method.parameters.iter().any(|parameter| parameter.name.is_none()) {
        return;
    }
    let mut names: Vec<&str> = Vec::new();
    for piece in instructions {
        let Piece::Placeholder { name, .. } = piece else { continue };
        if names.contains(&&**name) || method.parameters.iter().any(|parameter| parameter.is_named(name)) {
            continue;
        }
        names.push(name);
        let method = &method.signature().ident;
        let message = format!(
            "the instructions contain `{{{name}}}`, but the method `{method}` has no parameter `{name}`; add it, or write \
             `{{{{{name}}}}}` for a text in braces"
        );
        diagnostics.error(method, message);
    }
}

fn check_generics(method: &Method, diagnostics: &mut Diagnostics) {
    for parameter in &method.signature().generics.params {
        let name = match parameter {
            GenericParam::Type(parameter) => &parameter.ident,
            GenericParam::Const(parameter) => &parameter.ident,
            GenericParam::Lifetime(_) => continue,
        };
        diagnostics.error(name, format!("{NOUN} cannot be generic; replace `{name}` with a type or a value"));
    }
    for parameter in &method.parameters {
        if let Some(keyword) = find_keyword(parameter.ty.to_token_stream(), &["impl"]) {
            let message = format!("{NOUN} cannot be generic; replace `impl Trait` with a type");
            diagnostics.error(keyword, message);
        }
    }
}

fn check_receiver(method: &Method, diagnostics: &mut Diagnostics) {
    let signature = method.signature();
    let reason = "because one agent answers many questions at the same time";
    match signature.receiver() {
        None => {
            let name = &signature.ident;
            diagnostics
                .error(name, format!("{NOUN} takes `&self`, which is the agent: `fn {name}(&self, …)`"));
        }
        Some(receiver) if Receiver::from_syn(receiver) != Some(Receiver::Reference) => {
            diagnostics.error(receiver, format!("{NOUN} takes `&self` {reason}; write `&self`"));
        }
        Some(_) => {}
    }
}

fn check_parameters(method: &Method, diagnostics: &mut Diagnostics) {
    for input in &method.signature().inputs {
        let FnArg::Typed(input) = input else { continue };
        if let Some(doc) = input.attrs.iter().find(|attribute| docs::is_doc(attribute)) {
            let message = "the model does not read this doc comment; write it into the template";
            diagnostics.error(doc, message);
        }
        if let Some(param) = input.attrs.iter().find(|attribute| attribute.path().is_ident(PARAM)) {
            let message = "the model reads no description of this parameter; write it into the template";
            diagnostics.error(param, message);
        }
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg")) {
            let message =
                "a parameter of an assistant cannot have `#[cfg]`; put it on two versions of the method";
            diagnostics.error(attribute, message);
        }
    }
    let mut names: Vec<String> = Vec::new();
    for parameter in &method.parameters {
        let Some(name) = &parameter.name else { continue };
        let text = name.to_string();
        if names.contains(&text) {
            diagnostics.error(name, format!("two parameters are named `{text}`; rename one"));
        }
        names.push(text);
    }
    let conversations = method.parameters.iter().filter(|parameter| parameter.role == Role::Conversation);
    for second in conversations.skip(1) {
        let message = format!("a question belongs to one conversation; remove one `#[{CONVERSATION}]`");
        diagnostics.error(second.tokens(), message);
    }
    let mut injected: Vec<String> = Vec::new();
    for parameter in method.parameters.iter().filter(|parameter| parameter.role == Role::Injected) {
        let ty = parameter.ty.to_token_stream().to_string();
        if injected.contains(&ty) {
            let message = "tools find an injected value by its type, and an earlier parameter has the same; \
                 remove one, or give them different types";
            diagnostics.error(&parameter.ty, message);
        }
        injected.push(ty);
        check_injected(parameter, diagnostics);
    }
    check_text(method, diagnostics);
}

/// Checks a value that is passed to the tools, which must be found by its type.
fn check_injected(parameter: &Parameter, diagnostics: &mut Diagnostics) {
    let ty = &parameter.ty;
    if let Type::Reference(reference) = ty {
        let message = format!(
            "`#[{INJECT}]` passes the value on to the run, which may outlive the reference; take it by value, such as `Arc<T>`"
        );
        diagnostics.error(reference.and_token, message);
    } else if option_argument(ty).is_some() {
        let message = "tools find an injected value by its type, which is not an `Option`; \
             take the value itself, or return the `Ask` and call `context` on it";
        diagnostics.error(ty, message);
    } else {
        check_injected_type(ty, &InjectedParameter::from_type(ty), diagnostics);
    }
}

/// Checks that the text of the question contains each plain parameter.
fn check_text(method: &Method, diagnostics: &mut Diagnostics) {
    let pieces = match &method.question {
        Question::Template(pieces) => pieces,
        Question::Message => return check_message(method, diagnostics),
        Question::Invalid => return,
    };
    for parameter in method.plain_parameters() {
        let Some(name) = parameter.text() else { continue };
        let is_used = |piece: &Piece| matches!(piece, Piece::Placeholder { name: used, .. } if *used == name);
        if pieces.iter().any(is_used) {
            continue;
        }
        let in_braces = format!("{{{name}}}");
        let is_escaped =
            pieces.iter().any(|piece| matches!(piece, Piece::Text(text) if text.contains(&in_braces)));
        let message = match is_escaped {
            true => format!(
                "the parameter `{name}` is not used because `{{{in_braces}}}` is a text in braces; write `{in_braces}`"
            ),
            false => format!(
                "the parameter `{name}` is not used; write `{in_braces}` in the template, or remove the parameter"
            ),
        };
        diagnostics.error(&parameter.name, message);
    }
}

/// Checks that one plain parameter is the message.
fn check_message(method: &Method, diagnostics: &mut Diagnostics) {
    let name = &method.signature().ident;
    let mut plain = method.plain_parameters();
    if plain.next().is_none() {
        let message =
            format!("the method `{name}` has no text for the model; write a template: `#[{ASK}(\"…\")]`");
        diagnostics.error(name, message);
    }
    if let Some(second) = plain.next() {
        let names: Vec<_> = method.plain_parameters().filter_map(Parameter::text).collect();
        let placeholders: Vec<_> = names.iter().map(|name| format!("{{{name}}}")).collect();
        let message = format!(
            "only one parameter can be the message; write a template that contains {}: `#[{ASK}(\"… {}\")]`",
            join_quoted(&names, "and"),
            placeholders.join(" … "),
        );
        diagnostics.error(second.tokens(), message);
    }
}

fn check_output(method: &Method, diagnostics: &mut Diagnostics) {
    let signature = method.signature();
    let ReturnType::Type(_, ty) = &signature.output else {
        let example = match signature.asyncness {
            Some(_) => "Result<String, RunError>",
            None => "EventStream",
        };
        let name = &signature.ident;
        diagnostics.error(name, format!("the method `{name}` returns nothing; write `-> {example}`"));
        return;
    };
    if let Some(keyword) = find_keyword(ty.to_token_stream(), &["impl"]) {
        let message =
            format!("{NOUN} cannot return `impl Trait`; write `async fn` and the type of the answer");
        diagnostics.error(keyword, message);
    } else if find_keyword(ty.to_token_stream(), &["dyn"]).is_some()
        && let Some(future) = find_keyword(ty.to_token_stream(), &["Future"])
    {
        let message = format!("{NOUN} cannot return a future; write `async fn` and the type of the answer");
        diagnostics.error(future, message);
    } else if let Some(span) = find_borrow(ty.to_token_stream()) {
        let message = "the answer of a model cannot borrow; return an owned type such as `String`";
        diagnostics.error_at(span, message);
    }
}

fn check_options(method: &Method, diagnostics: &mut Diagnostics) {
    let options = &method.options;
    for option in &options.model_options {
        let kind = match option.name {
            TEMPERATURE | TOP_P => ValueKind::Float,
            MAX_OUTPUT_TOKENS => ValueKind::Integer { lowest: 1, highest: u32::MAX.into() },
            SEED => ValueKind::Integer { lowest: i64::MIN.into(), highest: i64::MAX.into() },
            _ => ValueKind::String,
        };
        let (name, example) = (option.name, option.example);
        let Some(literal) = Literal::from_expr(&option.value).filter(|literal| !literal.fits(kind)) else {
            continue;
        };
        let message = match (literal, kind) {
            (Literal::Integer(integer), ValueKind::Float) => {
                format!("`{name}` must be a float: `{name} = {integer}.0`")
            }
            (_, ValueKind::Float) => format!("`{name}` must be a float: `{name} = {example}`"),
            _ => format!("`{name}` must be {}: `{name} = {example}`", kind.describe()),
        };
        diagnostics.error(&option.value, message);
    }
    if let Some(turns) = &options.max_turns
        && let Some(literal) = Literal::from_expr(turns)
        && !literal.fits(ValueKind::Integer { lowest: 1, highest: u32::MAX.into() })
    {
        let message = format!("`{MAX_TURNS}` must be a positive integer: `{MAX_TURNS} = 3`");
        diagnostics.error(turns, message);
    }
    if let Some((name, _)) = &options.only_tools
        && !options.tools.is_empty()
    {
        let message =
            format!("`{ONLY_TOOLS}` replaces all tools and `{TOOLS}` adds some; merge the two lists");
        diagnostics.error(name, message);
    }
    if let Some(name) = &options.by_tool
        && method.signature().asyncness.is_none()
    {
        let message = "`response` applies to typed answers; write `async fn`, or return a `TypedAsk<T>` and call `by_tool` on it";
        diagnostics.error(name, message);
    }
}

impl Parameter {
    /// Returns the name, or the type of a parameter without one.
    fn tokens(&self) -> proc_macro2::TokenStream {
        match &self.name {
            Some(name) => name.to_token_stream(),
            None => self.ty.to_token_stream(),
        }
    }
}
