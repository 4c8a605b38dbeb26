//! `#[ask(…)]`

use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, Ident, LitStr, Path, Token};

use super::options::{Options, parse_arguments};
use super::source::SourceFile;
use crate::diagnostics::Diagnostics;
use crate::names::{
    ASK, ASK_OPTIONS, FILE, MAX_OUTPUT_TOKENS, MAX_TURNS, MODEL, ONLY_TOOLS, REASONING_EFFORT, RESPONSE,
    RESPONSE_VALUES, SEED, TEMPERATURE, TOOLS, TOP_P,
};

/// The message for a template that is computed at run time.
const NO_LITERAL: &str = "the template must be a string literal because its placeholders are checked at compile time; \
     write `#[ask(\"…\")]`, or `#[ask(file = \"…\")]` for a file";

/// Options of the model, each with an example.
const MODEL_OPTIONS: [(&str, &str); 6] = [
    (TEMPERATURE, "0.2"),
    (TOP_P, "0.9"),
    (MAX_OUTPUT_TOKENS, "500"),
    (SEED, "7"),
    (REASONING_EFFORT, "\"low\""),
    (MODEL, "\"gpt-4.1-mini\""),
];

/// `#[ask("template", temperature = 0.2, tools(search), …)]`
pub(crate) struct AskAttribute {
    pub(crate) template: Option<LitStr>,
    /// The file with the template, in place of a literal.
    pub(crate) file: Option<SourceFile>,
    /// `true` if there is a template, also if it has mistakes.
    pub(crate) has_template: bool,
    pub(crate) model_options: Vec<ModelOption>,
    pub(crate) max_turns: Option<Expr>,
    pub(crate) tools: Vec<Path>,
    /// The tools in place of the agent's, and the name of the option, if it is given.
    pub(crate) only_tools: Option<(Ident, Vec<Path>)>,
    /// `response = "tool"`: the name of the option.
    pub(crate) by_tool: Option<Ident>,
}

/// `temperature = 0.2`
pub(crate) struct ModelOption {
    pub(crate) name: &'static str,
    pub(crate) example: &'static str,
    pub(crate) value: Expr,
}

impl AskAttribute {
    /// Parses the attribute of a method whose parameters have these names.
    pub(crate) fn parse(attribute: &Attribute, names: &[String], diagnostics: &mut Diagnostics) -> Self {
        let parts = parse_arguments(attribute, ASK, "template");
        let is_readable = parts.is_ok();
        let Parts { not_literal, mut options } = diagnostics.recover(parts);
        if let Some(expression) = &not_literal {
            diagnostics.error(expression, NO_LITERAL);
        }
        let argument = options.take_bare(names);
        if let Some(name) = &argument {
            let message = format!(
                "a template contains its parameters by name; write `{{{name}}}` in it, and remove this"
            );
            diagnostics.error(name, message);
        }
        options.check(ASK, ASK_OPTIONS, diagnostics);
        let template = options.text("template", ASK, diagnostics).filter(|_| argument.is_none());
        let file = options.name_of(FILE);
        if let (true, Some(name)) = (options.has_literals(), &file) {
            diagnostics.error(name, "the template is in a literal and in a file; remove one of the two");
        }
        let has_template = !is_readable || not_literal.is_some() || options.has_literals() || file.is_some();
        let model_options = MODEL_OPTIONS.into_iter().filter_map(|(name, example)| {
            let value = options.expression(name, example, diagnostics)?;
            Some(ModelOption { name, example, value })
        });
        Self {
            template,
            has_template,
            model_options: model_options.collect(),
            file: options
                .string(FILE, "\"prompts/plan.md\"", diagnostics)
                .filter(|_| !options.has_literals())
                .and_then(|path| SourceFile::read(path, diagnostics)),
            max_turns: options.expression(MAX_TURNS, "3", diagnostics),
            tools: options.paths(TOOLS, "search, fetch", diagnostics),
            only_tools: options
                .name_of(ONLY_TOOLS)
                .map(|name| (name, options.paths(ONLY_TOOLS, "search, fetch", diagnostics))),
            by_tool: match options.string(RESPONSE, "\"tool\"", diagnostics) {
                Some(_) => options
                    .choice(RESPONSE, RESPONSE_VALUES, diagnostics)
                    .and_then(|_| options.name_of(RESPONSE)),
                None => None,
            },
        }
    }
}

/// A template that is no literal, then the literals and options.
#[derive(Default)]
struct Parts {
    not_literal: Option<Expr>,
    options: Options,
}

impl Parse for Parts {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let first = input.fork().parse::<Expr>().ok().filter(is_computed);
        if first.is_some() {
            input.parse::<Expr>()?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(Self { not_literal: first, options: input.parse()? })
    }
}

/// Returns `true` for an expression that is neither a literal nor an option.
fn is_computed(expression: &Expr) -> bool {
    match expression {
        Expr::Lit(_) | Expr::Assign(_) | Expr::Call(_) => false,
        Expr::Path(path) => match path.path.get_ident() {
            // A constant; a name in lower case is more likely an option.
            Some(name) => !name.unraw().to_string().contains(char::is_lowercase),
            None => true,
        },
        _ => true,
    }
}
