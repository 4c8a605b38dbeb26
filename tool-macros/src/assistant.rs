//! `#[assistant]`: a trait whose methods with `#[ask]` a model answers.
//!
//! The attribute is on a trait, because a test can then implement it by hand. It declares a struct that implements the trait: on `Agent`
//! itself, methods of one name would hide each other. A generated method only writes its question and names its return type
//! (`agent/assistant.rs` of `tool-core` does the rest), because it must cost no more than by hand.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{
    Attribute, FnArg, Ident, ItemTrait, LitStr, Pat, PatType, ReturnType, Safety, Signature, TraitItem,
    TraitItemFn, Type, parse_quote,
};

use crate::attributes::{AskAttribute, AssistantAttribute};
use crate::diagnostics::{Diagnostics, join_quoted, nearest_name};
use crate::fallback::is_ask;
use crate::names::{ASSISTANT, CONVERSATION, INJECT};
use crate::template::{self, Piece};

/// A trait that a model implements.
pub(crate) struct Assistant {
    pub(crate) options: AssistantAttribute,
    /// The instructions, whose placeholders are parameters of every method.
    pub(crate) instructions: Vec<Piece>,
    pub(crate) methods: Vec<Method>,
    /// The trait without our attributes.
    pub(crate) item: ItemTrait,
}

/// A method with `#[ask]`.
pub(crate) struct Method {
    pub(crate) options: AskAttribute,
    pub(crate) question: Question,
    pub(crate) parameters: Vec<Parameter>,
    /// The method without our attributes.
    pub(crate) item: TraitItemFn,
}

/// The text of a method's question.
pub(crate) enum Question {
    Template(Vec<Piece>),
    /// The only plain parameter is the message.
    Message,
    /// The template has mistakes, which are reported.
    Invalid,
}

/// A parameter of a method.
pub(crate) struct Parameter {
    /// The name, unless the parameter is a pattern.
    pub(crate) name: Option<Ident>,
    pub(crate) role: Role,
    pub(crate) ty: Type,
}

/// The source of a parameter's part in the question.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Role {
    /// Part of the question.
    Plain,
    /// Part of the instructions, and not necessarily of the question.
    Instructions,
    /// `#[conversation]`
    Conversation,
    /// `#[inject]`
    Injected,
}

impl Assistant {
    /// Parses a trait.
    pub(crate) fn parse(attribute: TokenStream, mut item: ItemTrait, diagnostics: &mut Diagnostics) -> Self {
        let options = AssistantAttribute::parse(attribute, diagnostics);
        for second in item.attrs.extract_if(.., |attribute| attribute.path().is_ident(ASSISTANT)) {
            diagnostics.error(second, "duplicate `#[assistant]`; remove one of the two");
        }
        let instructions = match options.text() {
            Some((text, literal, file)) => {
                parse_template(&text, literal, file.as_deref(), "name", diagnostics)
            }
            None => None,
        };
        let instructions = instructions.unwrap_or_default();
        let mut methods = Vec::new();
        for item in &mut item.items {
            let TraitItem::Fn(method) = item else { continue };
            let Some(position) = method.attrs.iter().position(is_ask) else { continue };
            let attribute = method.attrs.remove(position);
            methods.push(Method::parse(&attribute, method, &instructions, diagnostics));
        }
        Self { options, instructions, methods, item }
    }
}

impl Method {
    /// Parses a method and removes our attributes from it.
    fn parse(
        attribute: &Attribute,
        item: &mut TraitItemFn,
        instructions: &[Piece],
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let names = item.sig.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(input) => Some(input.pat.to_token_stream().to_string()),
            FnArg::Receiver(_) => None,
        });
        let options = AskAttribute::parse(attribute, &names.collect::<Vec<_>>(), diagnostics);
        for misplaced in &item.attrs {
            if is_ask(misplaced) {
                diagnostics.error(misplaced, "duplicate `#[ask]`; remove one of the two");
            } else if is_role(misplaced) {
                let name = misplaced.path().to_token_stream();
                let message =
                    format!("`#[{name}]` applies to a parameter, not to a method; move it in front of one");
                diagnostics.error(misplaced, message);
            }
        }
        let is_role_misplaced = item.attrs.iter().any(is_role);
        item.attrs.retain(|attribute| !is_ask(attribute) && !is_role(attribute));
        let typed = item.sig.inputs.iter_mut().filter_map(|input| match input {
            FnArg::Typed(input) => Some(input),
            FnArg::Receiver(_) => None,
        });
        let parse = |input| Parameter::parse(input, instructions, diagnostics);
        let parameters: Vec<_> = typed.map(parse).collect();
        let question = match is_role_misplaced {
            // A parameter lacks it, and is then not part of the text.
            true => Question::Invalid,
            false => Question::parse(&options, &parameters, diagnostics),
        };
        Self { options, question, parameters, item: item.clone() }
    }

    pub(crate) fn signature(&self) -> &Signature {
        &self.item.sig
    }

    /// Returns the parameters that must be part of the question, in order.
    pub(crate) fn plain_parameters(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(|parameter| parameter.role == Role::Plain)
    }
}

impl Question {
    fn parse(options: &AskAttribute, parameters: &[Parameter], diagnostics: &mut Diagnostics) -> Self {
        let (text, literal, file): (String, &LitStr, _) = match (&options.template, &options.file) {
            (Some(literal), _) => (literal.value(), literal, None),
            (None, Some(file)) => (file.text.clone(), &file.path, Some(file.path.value())),
            (None, None) if options.has_template => return Self::Invalid,
            (None, None) => return Self::Message,
        };
        let example = parameters.iter().find_map(Parameter::text).unwrap_or_else(|| String::from("name"));
        let Some(mut pieces) = parse_template(&text, literal, file.as_deref(), &example, diagnostics) else {
            return Self::Invalid;
        };
        if parameters.iter().any(|parameter| parameter.name.is_none()) {
            // A placeholder can be for it.
            return Self::Invalid;
        }
        let mut is_valid = true;
        for piece in &mut pieces {
            let Piece::Placeholder { name, line, .. } = piece else { continue };
            if parameters.iter().any(|parameter| parameter.is_named(name)) {
                continue;
            }
            let names: Vec<String> = parameters.iter().filter_map(Parameter::text).collect();
            let nearest = nearest_name(name, &names.iter().map(String::as_str).collect::<Vec<_>>());
            let message = unknown_placeholder(name, nearest, &names);
            diagnostics.error(literal, format!("{}{message}", place(file.as_deref(), *line)));
            match nearest {
                // It is probably the one that is meant, so that it is not reported as unused.
                Some(nearest) => *name = nearest.to_owned(),
                None => is_valid = false,
            }
        }
        if is_valid { Self::Template(pieces) } else { Self::Invalid }
    }
}

/// Parses a text, which stands in a literal or in the file that the literal names.
fn parse_template(
    text: &str,
    literal: &LitStr,
    file: Option<&str>,
    example: &str,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<Piece>> {
    let parsed = template::parse(text, example);
    parsed
        .map_err(|error| diagnostics.error(literal, format!("{}{}", place(file, error.line), error.message)))
        .ok()
}

/// Returns the beginning of a message about a line. Only a file has line numbers of its own.
fn place(file: Option<&str>, line: usize) -> String {
    file.map(|path| format!("{path}:{line}: ")).unwrap_or_default()
}

/// Returns the message for a placeholder without a parameter. `names` are the parameters, `nearest` the closest of them.
fn unknown_placeholder(name: &str, nearest: Option<&str>, names: &[String]) -> String {
    let instead = match (nearest, names) {
        (Some(nearest), _) => format!("did you mean `{{{nearest}}}`?"),
        (None, []) => format!("add the parameter `{name}`, or write `{{{{{name}}}}}` for a text in braces"),
        (None, [only]) => format!("the parameter is `{only}`"),
        (None, names) => format!("the parameters are {}", join_quoted(names, "and")),
    };
    format!("unknown placeholder `{{{name}}}`; {instead}")
}

impl Parameter {
    /// Parses a parameter and removes our attributes from it.
    fn parse(input: &mut PatType, instructions: &[Piece], diagnostics: &mut Diagnostics) -> Self {
        let mut role = Role::Plain;
        for attribute in input.attrs.iter().filter(|attribute| is_role(attribute)) {
            if attribute.meta.require_path_only().is_err() {
                let name = attribute.path().to_token_stream();
                diagnostics.error(attribute, format!("`#[{name}]` takes no options; write `#[{name}]`"));
            }
            if role != Role::Plain {
                let message =
                    "a parameter has one attribute, `#[conversation]` or `#[inject]`; remove the other one";
                diagnostics.error(attribute, message);
                continue;
            }
            role = match attribute.path().is_ident(CONVERSATION) {
                true => Role::Conversation,
                false => Role::Injected,
            };
        }
        input.attrs.retain(|attribute| !is_role(attribute));
        let name = match &*input.pat {
            Pat::Ident(pattern)
                if pattern.by_ref.is_none() && pattern.mutability.is_none() && pattern.subpat.is_none() =>
            {
                Some(pattern.ident.clone())
            }
            Pat::Ident(pattern) if pattern.mutability.is_some() => {
                let message = "a parameter of an assistant cannot be `mut` because its method has no body; remove `mut`";
                diagnostics.error(pattern.mutability, message);
                Some(pattern.ident.clone())
            }
            other => {
                let message = "a parameter of an assistant needs a name for the template; replace the pattern with a name";
                diagnostics.error(other, message);
                None
            }
        };
        let mut parameter = Self { name, role, ty: (*input.ty).clone() };
        let is_used =
            |piece: &Piece| matches!(piece, Piece::Placeholder { name, .. } if parameter.is_named(name));
        if role == Role::Plain && instructions.iter().any(is_used) {
            parameter.role = Role::Instructions;
        }
        parameter
    }

    /// Returns the name as a template spells it.
    pub(crate) fn text(&self) -> Option<String> {
        self.name.as_ref().map(|name| name.unraw().to_string())
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.text().is_some_and(|text| text == name)
    }
}

fn is_role(attribute: &Attribute) -> bool {
    attribute.path().is_ident(CONVERSATION) || attribute.path().is_ident(INJECT)
}

impl Assistant {
    /// Returns `true` if the method has `#[ask]`.
    fn is_asked(&self, method: &TraitItemFn) -> bool {
        self.methods.iter().any(|asked| asked.signature().ident == method.sig.ident)
    }

    /// Removes from a trait with mistakes what rustc would report again, and what cannot be implemented.
    pub(crate) fn clean(&mut self) {
        self.item.unsafety = None;
        self.item.modifiers.auto_token = None;
        let mut items = std::mem::take(&mut self.item.items);
        let mut names = Vec::new();
        items.retain(|item| match item {
            TraitItem::Const(item) => item.default.is_some(),
            TraitItem::Type(item) => item.default.is_some() || item.generics.params.is_empty(),
            TraitItem::Fn(method) => {
                let is_new = !names.contains(&method.sig.ident);
                names.push(method.sig.ident.clone());
                is_new
            }
            _ => true,
        });
        for item in &mut items {
            match item {
                TraitItem::Fn(method) if method.default.is_none() || self.is_asked(method) => {
                    clean_method(method)
                }
                TraitItem::Type(item) => item.bounds.clear(),
                _ => {}
            }
        }
        self.item.items = items;
    }
}

fn clean_method(method: &mut TraitItemFn) {
    method.default = None;
    // An attribute that rustc does not know can be a misspelled `#[ask]`.
    let is_known = |attribute: &Attribute| {
        ["allow", "cfg", "deprecated", "doc", "expect", "must_use"]
            .iter()
            .any(|name| attribute.path().is_ident(name))
    };
    method.attrs.retain(is_known);
    let signature = &mut method.sig;
    (signature.constness, signature.safety, signature.abi) = (None, Safety::Default, None);
    signature.variadic = None;
    // The stub returns a future for `impl Future`, and could return nothing for any other trait.
    if let ReturnType::Type(_, ty) = &signature.output
        && matches!(**ty, Type::ImplTrait(_))
        && !ty.to_token_stream().to_string().contains("Future")
    {
        signature.output = ReturnType::Default;
    }
    for input in &mut signature.inputs {
        match input {
            FnArg::Receiver(receiver) => receiver.mutability = None,
            FnArg::Typed(input) => {
                input.attrs = Vec::new();
                *input.pat = parse_quote!(_);
            }
        }
    }
}
