//! The list in the parentheses of an attribute: descriptions, options, and options with a value.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Expr, ExprLit, ExprPath, ExprRange, Ident, Lit, LitBool, LitStr, Meta, Path, Token, token,
};

use crate::diagnostics::{Diagnostics, join_quoted, nearest_name};
use crate::names::{
    AGENT, ASK, ASK_OPTIONS, ASSISTANT, DEFAULT_CRATE, DESCRIPTION, NEEDS_APPROVAL, PARAM, PARAM_OPTIONS,
    TOOL, TOOL_OPTIONS, TOOLBOX,
};

/// The message for a description of `#[toolbox]`.
pub(super) const NO_TOOLBOX_DESCRIPTION: &str =
    "a toolbox has no description; describe its tools: `#[tool(\"…\")]`";

/// Names under which users look for the description.
const DESCRIPTION_ALIASES: &[&str] = &[DESCRIPTION, "desc", "doc"];

/// Names that other libraries have for options of tools, and what to write instead.
const TOOL_SYNONYMS: &[(&[&str], &str)] = &[
    (&["retries", "retry", "max_retries", "max_attempts"], "`attempts = 3`"),
    (&["approval", "confirm", "requires_approval", "requires_confirmation"], "`needs_approval`"),
    (&["read_only", "readonly"], "`pure`"),
    (&["args", "arguments", "parameters", "params"], "`#[param(\"…\")]` in front of each parameter"),
];

/// Names that other libraries have for options of parameters, and what to write instead.
const PARAM_SYNONYMS: &[(&[&str], &str)] = &[
    (&["min", "max", "minimum", "maximum", "ge", "le", "gt", "lt"], "`range = 1..=100`"),
    (&["min_length", "max_length", "min_len", "max_len", "min_items", "max_items"], "`length = 1..=64`"),
    (&["optional", "nullable"], "`required = false`"),
    (&["regex", "regexp"], "`pattern = \"^[a-z]+$\"`"),
    (&["choices", "enum", "one_of", "values"], "an enum as the type of the parameter"),
];

/// Names under which users look for what a question has elsewhere, and where that is.
const ASK_SYNONYMS: &[(&[&str], &str)] = &[
    (&["instructions", "system", "system_message", "system_prompt"], "`#[assistant(\"…\")]` above the trait"),
    (&["conversation", "conversation_id", "session"], "`#[conversation]` in front of a parameter"),
];

/// Names under which users look for the template of a question.
const TEMPLATE_ALIASES: &[&str] = &["message", "prompt", "question", "template", "user", "user_message"];

/// Names under which users look for the instructions of an assistant.
const INSTRUCTION_ALIASES: &[&str] = &[DESCRIPTION, "instructions", "prompt", "system", "system_message"];

/// The literals and options of one attribute, in source order.
#[derive(Default)]
pub(super) struct Options {
    literals: Vec<Lit>,
    /// Macros and the paths of constants without the name of an option.
    computed: Vec<Expr>,
    options: Vec<NamedOption>,
}

/// `name`, `name = value` or `name(value, value)`
struct NamedOption {
    name: Ident,
    value: Option<Expr>,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut options = Self::default();
        while !input.is_empty() {
            if input.peek(Lit) {
                options.literals.push(input.parse()?);
            } else if input.peek2(Token![!]) || input.peek2(Token![::]) {
                options.computed.push(input.parse()?);
            } else if input.peek(Ident::peek_any) {
                let name = input.call(Ident::parse_any)?;
                if input.peek(Token![:]) {
                    return Err(input.error(format!("expected `=`: `{name} = …`")));
                }
                let has_value = input.peek(token::Paren) || input.parse::<Option<Token![=]>>()?.is_some();
                let value = if has_value { Some(input.parse()?) } else { None };
                if value.is_none() && input.peek(Ident::peek_any) {
                    return Err(input.error("expected `,`; a text is written in quotes: `\"…\"`"));
                }
                options.options.push(NamedOption { name, value });
            } else {
                return Err(
                    input.error("expected a description in quotes or an option such as `name = \"…\"`")
                );
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

/// Parses what is in the parentheses of an attribute, if it has any. `text` is the noun for its literal.
pub(super) fn parse_arguments<T: Parse + Default>(
    attribute: &Attribute,
    name: &str,
    text: &str,
) -> syn::Result<T> {
    match &attribute.meta {
        Meta::Path(_) => Ok(T::default()),
        Meta::List(list) => list.parse_args(),
        Meta::NameValue(meta) => {
            let message = format!("`#[{name}]` takes its {text} in parentheses: `#[{name}(\"…\")]`");
            Err(syn::Error::new_spanned(&meta.value, message))
        }
    }
}

/// Returns the path of `tool-core` for attributes without `crate = "…"`.
pub(super) fn default_crate() -> Path {
    syn::parse_str(DEFAULT_CRATE).expect("the default crate is a path")
}

impl Options {
    /// Reports unknown and duplicate options.
    pub(super) fn check(&self, attribute: &str, known: &[&str], diagnostics: &mut Diagnostics) {
        for computed in &self.computed {
            diagnostics.error(computed, computed_text(attribute));
        }
        let mut synonyms = Vec::new();
        for (index, NamedOption { name, value }) in self.options.iter().enumerate() {
            let option = name.unraw().to_string();
            if let Some(instead) = synonym(&option, attribute) {
                // `min` and `max` are one mistake.
                if !synonyms.contains(&instead) {
                    diagnostics.error(name, format!("unknown option `{option}`; write {instead}"));
                }
                synonyms.push(instead);
            } else if !known.contains(&&*option) {
                diagnostics.error(name, unknown_option(&option, value.is_some(), attribute, known));
            } else if self.options[..index].iter().any(|earlier| earlier.name == *name) {
                diagnostics.error(name, format!("duplicate option `{option}`; remove one of the two"));
            }
        }
    }

    /// Returns the description: the only literal, or the option of this name, a string or a constant.
    pub(super) fn description(&self, attribute: &str, diagnostics: &mut Diagnostics) -> Option<Expr> {
        const DUPLICATE: &str = "duplicate description; remove one of the two";
        let literals: Vec<Expr> = self
            .literals
            .iter()
            .map(|lit| Expr::Lit(ExprLit { attrs: Vec::new(), lit: lit.clone() }))
            .collect();
        let option = self.find(DESCRIPTION);
        for second in literals.iter().skip(1) {
            diagnostics.error(second, DUPLICATE);
        }
        if let (Some((name, _)), Some(_)) = (option, literals.first()) {
            diagnostics.error(name, DUPLICATE);
        }
        let description = match (literals.first(), option) {
            (Some(literal), _) => literal,
            (None, Some((_, Some(value)))) => value,
            (None, Some((name, None))) => {
                diagnostics.error(name, "`description` needs a value: `description = \"…\"`");
                return None;
            }
            (None, None) => return None,
        };
        match description {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
                if text.value().trim().is_empty() {
                    diagnostics.error(text, "the description is blank; write one, or remove it");
                }
            }
            constant if is_constant(constant) => {}
            Expr::Lit(literal) if is_long_char(&literal.lit) => return None,
            other => {
                diagnostics
                    .error(other, format!("the description must be a string: `#[{attribute}(\"…\")]`"));
                return None;
            }
        }
        Some(description.clone())
    }

    /// Returns the value of an option that takes a string or a constant.
    pub(super) fn string_or_constant(
        &self,
        option: &str,
        example: &str,
        diagnostics: &mut Diagnostics,
    ) -> Option<Expr> {
        self.value(option, "a string or a constant", example, diagnostics, |value| {
            let is_string = matches!(value, Expr::Lit(ExprLit { lit: Lit::Str(_), .. }));
            (is_string || is_constant(value)).then(|| value.clone())
        })
    }

    /// Reports every literal, for an attribute without a description.
    pub(super) fn reject_description(&self, message: &str, diagnostics: &mut Diagnostics) {
        for literal in &self.literals {
            diagnostics.error(literal, message);
        }
    }

    /// Removes and returns the first option without a value that has one of these names.
    pub(super) fn take_bare(&mut self, names: &[String]) -> Option<Ident> {
        let is_bare =
            |option: &NamedOption| option.value.is_none() && names.contains(&option.name.unraw().to_string());
        let first = self.options.iter().find(|option| is_bare(option))?.name.clone();
        self.options.retain(|option| !is_bare(option));
        Some(first)
    }

    pub(super) fn has_literals(&self) -> bool {
        !self.literals.is_empty()
    }

    /// Returns the name of the option as written, if it is given.
    pub(super) fn name_of(&self, option: &str) -> Option<Ident> {
        self.find(option).map(|(name, _)| name.clone())
    }

    /// Returns the value of an option that takes a string.
    pub(super) fn string(
        &self,
        option: &str,
        example: &str,
        diagnostics: &mut Diagnostics,
    ) -> Option<LitStr> {
        self.value(option, "a string", example, diagnostics, |value| match value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.clone()),
            _ => None,
        })
    }

    /// Returns the value of an option that takes `true` or `false`.
    pub(super) fn boolean(&self, option: &str, diagnostics: &mut Diagnostics) -> Option<LitBool> {
        self.value(option, "`true` or `false`", "false", diagnostics, |value| match value {
            Expr::Lit(ExprLit { lit: Lit::Bool(value), .. }) => Some(value.clone()),
            _ => None,
        })
    }

    /// Returns the name of an option without a value, if it is given. `option = false` counts as not given.
    pub(super) fn flag(&self, option: &str, diagnostics: &mut Diagnostics) -> Option<Ident> {
        let (name, value) = self.find(option)?;
        match value {
            None => Some(name.clone()),
            Some(Expr::Lit(ExprLit { lit: Lit::Bool(value), .. })) => value.value.then(|| name.clone()),
            Some(other) => {
                let condition = match other {
                    Expr::Lit(_) => "",
                    _ if option == NEEDS_APPROVAL => {
                        "; for a condition, write `.needs_approval(|call| …)` on the builder of the agent"
                    }
                    _ => "",
                };
                let message = format!("`{option}` takes no value; write just `{option}`{condition}");
                diagnostics.error(other, message);
                None
            }
        }
    }

    /// Returns the value of an option that takes one of these words, with or without quotes. Without a value it is the first.
    pub(super) fn choice<'c>(
        &self,
        option: &str,
        choices: &[&'c str],
        diagnostics: &mut Diagnostics,
    ) -> Option<&'c str> {
        let (name, written) = self.find(option)?;
        let in_quotes = || choices.iter().map(|choice| format!("\"{choice}\"")).collect::<Vec<_>>();
        let word = match written {
            None => return choices.first().copied(),
            Some(Expr::Lit(ExprLit { lit: Lit::Bool(value), .. })) => {
                return choices.first().copied().filter(|_| value.value);
            }
            Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) => Some(text.value()),
            Some(Expr::Path(path)) => path.path.get_ident().map(Ident::to_string),
            Some(_) => None,
        };
        let Some(value) = word else {
            let message = format!("the value of `{option}` must be {}", join_quoted(&in_quotes(), "or"));
            diagnostics.error(place(name, written), message);
            return None;
        };
        let choice = choices.iter().copied().find(|choice| *choice == value);
        if choice.is_none() {
            let instead = match nearest_name(&value, choices) {
                Some(nearest) => format!("did you mean `\"{nearest}\"`?"),
                None if choices.len() == 1 => {
                    format!("the only value is {}", join_quoted(&in_quotes(), "and"))
                }
                None => format!("the values are {}", join_quoted(&in_quotes(), "and")),
            };
            diagnostics
                .error(place(name, written), format!("unknown value `\"{value}\"` of `{option}`; {instead}"));
        }
        choice
    }

    /// Returns the value of an option that takes any expression.
    pub(super) fn expression(
        &self,
        option: &str,
        example: &str,
        diagnostics: &mut Diagnostics,
    ) -> Option<Expr> {
        let (name, value) = self.find(option)?;
        if value.is_none() {
            diagnostics.error(name, format!("`{option}` needs a value: `{option} = {example}`"));
        }
        value.cloned()
    }

    /// Returns the value of an option that takes a range with at least one bound.
    pub(super) fn range(
        &self,
        option: &str,
        example: &str,
        diagnostics: &mut Diagnostics,
    ) -> Option<ExprRange> {
        let range = self.value(option, "a range", example, diagnostics, |value| match value {
            Expr::Range(range) => Some(range.clone()),
            _ => None,
        })?;
        if range.start.is_none() && range.end.is_none() {
            let message = format!("`{option}` needs at least one bound: `{option} = {example}`");
            diagnostics.error(range, message);
            return None;
        }
        Some(range)
    }

    /// Returns the value of an option that takes the path of a function.
    pub(super) fn path(&self, option: &str, example: &str, diagnostics: &mut Diagnostics) -> Option<Path> {
        self.value(option, "the path of a function", example, diagnostics, as_path)
    }

    /// Returns the value of an option that takes a name. `expected` describes it in messages.
    pub(super) fn identifier(
        &self,
        option: &str,
        expected: &str,
        example: &str,
        diagnostics: &mut Diagnostics,
    ) -> Option<Ident> {
        self.value(option, expected, example, diagnostics, |value| as_path(value)?.get_ident().cloned())
    }

    /// Returns the value of an option that takes a list of paths in parentheses.
    pub(super) fn paths(&self, option: &str, example: &str, diagnostics: &mut Diagnostics) -> Vec<Path> {
        let Some((name, value)) = self.find(option) else { return Vec::new() };
        let message = format!("`{option}` takes the paths of `#[tool]` functions: `{option}({example})`");
        let elements: Vec<&Expr> = match value {
            Some(Expr::Tuple(list)) if !list.elems.is_empty() => list.elems.iter().collect(),
            Some(Expr::Paren(only)) => vec![&*only.expr],
            other => {
                diagnostics.error(place(name, other), message);
                return Vec::new();
            }
        };
        let paths = elements.into_iter().filter_map(|element| {
            let path = as_path(element);
            if path.is_none() {
                diagnostics.error(element, &message);
            }
            path
        });
        paths.collect()
    }

    /// Returns the only literal, which must be a string that is not blank. `what` names it in messages.
    pub(super) fn text(&self, what: &str, attribute: &str, diagnostics: &mut Diagnostics) -> Option<LitStr> {
        for second in self.literals.iter().skip(1) {
            diagnostics.error(second, format!("duplicate {what}; remove one of the two"));
        }
        match self.literals.first()? {
            Lit::Str(text) if text.value().trim().is_empty() => {
                diagnostics.error(text, format!("the {what} is blank; write one, or remove it"));
            }
            Lit::Str(text) => return Some(text.clone()),
            long if is_long_char(long) => {}
            other => {
                diagnostics.error(other, format!("the {what} must be a string: `#[{attribute}(\"…\")]`"));
            }
        }
        None
    }

    /// Returns the value of an option that takes a path in quotes.
    pub(super) fn quoted_path(
        &self,
        option: &str,
        example: &str,
        diagnostics: &mut Diagnostics,
    ) -> Option<Path> {
        let text = self.string(option, example, diagnostics)?;
        let path = text.parse_with(Path::parse_mod_style).ok();
        if path.is_none() {
            diagnostics.error(text, format!("`{option}` must be a path: `{option} = {example}`"));
        }
        path
    }

    /// Returns the names of all options in source order.
    pub(super) fn names(&self) -> Vec<Ident> {
        self.options.iter().map(|option| option.name.clone()).collect()
    }

    /// Returns what `read` accepts as the value of an option. `expected` describes it in the message for any other value.
    fn value<T>(
        &self,
        option: &str,
        expected: &str,
        example: &str,
        diagnostics: &mut Diagnostics,
        read: impl FnOnce(&Expr) -> Option<T>,
    ) -> Option<T> {
        let (name, value) = self.find(option)?;
        let accepted = value.and_then(read);
        if accepted.is_none() {
            let message = format!("`{option}` must be {expected}: `{option} = {example}`");
            diagnostics.error(place(name, value), message);
        }
        accepted
    }

    fn find(&self, option: &str) -> Option<(&Ident, Option<&Expr>)> {
        let found = self.options.iter().find(|candidate| candidate.name.unraw() == option)?;
        Some((&found.name, found.value.as_ref()))
    }
}

/// Returns `true` for a text in single quotes, for which rustc has suggested double quotes.
fn is_long_char(literal: &Lit) -> bool {
    let source = literal.to_token_stream().to_string();
    source.starts_with('\'') && !source.starts_with("'\\") && source.chars().count() > 3
}

/// Returns `true` for the path of a constant, by its spelling, and for a macro such as `concat!`. A name in lower case is more
/// likely a string without its quotes.
fn is_constant(value: &Expr) -> bool {
    let is_upper = |ident: &Ident| !ident.to_string().contains(char::is_lowercase);
    match value {
        Expr::Path(path) => path.path.segments.last().is_some_and(|segment| is_upper(&segment.ident)),
        Expr::Macro(_) => true,
        _ => false,
    }
}

fn as_path(value: &Expr) -> Option<Path> {
    match value {
        Expr::Path(ExprPath { qself: None, path, .. }) => Some(path.clone()),
        _ => None,
    }
}

/// Returns the tokens of the value, or of the option if it has none.
fn place(option: &Ident, value: Option<&Expr>) -> TokenStream {
    value.map_or_else(|| option.to_token_stream(), ToTokens::to_token_stream)
}

/// Returns the message for a text that is no literal.
fn computed_text(attribute: &str) -> &'static str {
    match attribute {
        TOOLBOX => NO_TOOLBOX_DESCRIPTION,
        ASSISTANT => {
            "the instructions must be a string literal; \
             write `#[assistant(\"…\")]`, or `#[assistant(file = \"…\")]` for a file"
        }
        _ => "a constant or a macro needs the name of its option: `description = …`",
    }
}

/// Returns what to write instead of a name that other libraries have for an option.
fn synonym(option: &str, attribute: &str) -> Option<&'static str> {
    let synonyms = match attribute {
        TOOL => TOOL_SYNONYMS,
        PARAM => PARAM_SYNONYMS,
        ASK => ASK_SYNONYMS,
        _ => return None,
    };
    let (_, instead) = synonyms.iter().find(|(names, _)| names.contains(&option))?;
    Some(instead)
}

fn unknown_option(option: &str, has_value: bool, attribute: &str, known: &[&str]) -> String {
    type Home = (&'static str, &'static [&'static str], &'static str);
    const OF_TOOLS: Home = ("tools", TOOL_OPTIONS, TOOL);
    const OF_PARAMETERS: Home = ("parameters", PARAM_OPTIONS, PARAM);
    const OF_METHODS: Home = ("methods", ASK_OPTIONS, ASK);

    // The items that the attribute is on, the attributes whose options can be meant instead, and its text with the names under which
    // users look for it.
    let (items, homes, text, aliases): (_, &[Home], _, _) = match attribute {
        TOOL => ("tools", &[OF_PARAMETERS], "description", DESCRIPTION_ALIASES),
        PARAM => ("parameters", &[OF_TOOLS], "description", DESCRIPTION_ALIASES),
        TOOLBOX if option == DESCRIPTION => return NO_TOOLBOX_DESCRIPTION.to_owned(),
        TOOLBOX => ("toolboxes", &[OF_TOOLS, OF_PARAMETERS], "description", DESCRIPTION_ALIASES),
        ASSISTANT => ("assistants", &[OF_METHODS], "instructions", INSTRUCTION_ALIASES),
        _ => ("methods", &[], "template", TEMPLATE_ALIASES),
    };
    if let Some((others, _, home)) = homes.iter().find(|(_, options, _)| options.contains(&option)) {
        return format!("`{option}` is an option of {others}, not of {items}; move it to `#[{home}(…)]`");
    }
    let is_constant = option.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    match attribute {
        ASSISTANT if is_constant => return computed_text(attribute).to_owned(),
        ASSISTANT if !has_value && option.starts_with(char::is_uppercase) => {
            return format!("the name of the struct needs its option: `{AGENT} = {option}`");
        }
        TOOL | PARAM if is_constant && !has_value => {
            return format!("a constant needs the name of its option: `description = {option}`");
        }
        TOOLBOX if !has_value => {
            return format!(
                "unknown option `{option}`; a further toolbox of a type is a function: `#[toolbox(fn {option})]`"
            );
        }
        _ => {}
    }
    if let Some(nearest) = nearest_name(option, known) {
        return format!("unknown option `{option}`; did you mean `{nearest}`?");
    }
    if nearest_name(option, aliases).is_some() {
        return match attribute {
            TOOLBOX => NO_TOOLBOX_DESCRIPTION.to_owned(),
            _ => {
                format!("unknown option `{option}`; write the {text} without a name: `#[{attribute}(\"…\")]`")
            }
        };
    }
    let known = match known {
        [only] => format!("the only option is `{only}`"),
        _ => format!("the options are {}", join_quoted(known, "and")),
    };
    match attribute {
        TOOL | PARAM if !has_value => {
            format!("unknown option `{option}`; the description must be a string literal, and {known}")
        }
        _ => format!("unknown option `{option}`; {known}"),
    }
}
