//! `#[tool(…)]` and `#[param(…)]`: one struct per attribute, each value with its span.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, ExprLit, Ident, Lit, LitBool, LitStr, Meta, Path, Token};

use crate::diagnostics::{Diagnostics, list, nearest};
use crate::names::{CRATE, DEFAULT_CRATE, NAME, PARAM_WORDS, REQUIRED, TOOL_WORDS};

/// `#[tool("description", name = "…", crate = "…")]`
pub(crate) struct ToolAttribute {
    pub(crate) description: Option<LitStr>,
    pub(crate) name: Option<LitStr>,
    pub(crate) krate: Path,
}

impl ToolAttribute {
    pub(crate) fn from_tokens(tokens: TokenStream, diagnostics: &mut Diagnostics) -> Self {
        let mut attribute = Self { description: None, name: None, krate: default_crate() };
        let words = match syn::parse2::<Words>(tokens) {
            Ok(words) => words,
            Err(error) => {
                diagnostics.push(error);
                return attribute;
            }
        };
        words.check("tool", TOOL_WORDS, diagnostics);
        attribute.description = words.description(diagnostics);
        attribute.name = words.string(NAME, diagnostics);
        if let Some(path) = words.string(CRATE, diagnostics) {
            match path.parse_with(Path::parse_mod_style) {
                Ok(path) => attribute.krate = path,
                Err(_) => {
                    diagnostics.error(path, "`crate` takes a path, such as `crate = \"my_crate::tool_core\"`")
                }
            }
        }
        attribute
    }
}

/// `#[param("description", required = false, name = "…")]`
#[derive(Default)]
pub(crate) struct ParamAttribute {
    pub(crate) description: Option<LitStr>,
    pub(crate) name: Option<LitStr>,
    pub(crate) required: Option<LitBool>,
}

impl ParamAttribute {
    pub(crate) fn from_attribute(attribute: &Attribute, diagnostics: &mut Diagnostics) -> Self {
        let words = match &attribute.meta {
            Meta::Path(_) => Ok(Words::default()),
            Meta::List(list) => list.parse_args::<Words>(),
            Meta::NameValue(meta) => Err(syn::Error::new_spanned(
                &meta.value,
                "write the description in parentheses: `#[param(\"…\")]`",
            )),
        };
        let words = match words {
            Ok(words) => words,
            Err(error) => {
                diagnostics.push(error);
                return Self::default();
            }
        };
        words.check("param", PARAM_WORDS, diagnostics);
        Self {
            description: words.description(diagnostics),
            name: words.string(NAME, diagnostics),
            required: words.boolean(REQUIRED, diagnostics),
        }
    }
}

fn default_crate() -> Path {
    syn::parse_str(DEFAULT_CRATE).expect("the default crate is a path")
}

/// What stands in the parentheses of any of our attributes: literals and `word = value`s.
#[derive(Default)]
struct Words {
    literals: Vec<Lit>,
    words: Vec<Word>,
}

struct Word {
    name: Ident,
    value: Option<Expr>,
}

impl Parse for Words {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut words = Self::default();
        while !input.is_empty() {
            if input.peek(Lit) {
                words.literals.push(input.parse()?);
            } else if input.peek(Ident::peek_any) {
                let name = input.call(Ident::parse_any)?;
                let value =
                    if input.parse::<Option<Token![=]>>()?.is_some() { Some(input.parse()?) } else { None };
                words.words.push(Word { name, value });
            } else {
                return Err(input.error("expected a description in quotes, or a word such as `name = \"…\"`"));
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(words)
    }
}

impl Words {
    /// Every word is known and stands once.
    fn check(&self, attribute: &str, known: &[&str], diagnostics: &mut Diagnostics) {
        for (index, Word { name, value }) in self.words.iter().enumerate() {
            let word = name.unraw().to_string();
            if !known.contains(&&*word) {
                let mut message = unknown_word(&word, attribute, known);
                if value.is_none() {
                    message.push_str("; a description is a text in quotes");
                }
                diagnostics.error(name, message);
            } else if self.words[..index].iter().any(|earlier| earlier.name == *name) {
                diagnostics.error(name, format!("`{word}` is given twice; leave one out"));
            }
        }
    }

    fn description(&self, diagnostics: &mut Diagnostics) -> Option<LitStr> {
        let mut literals = self.literals.iter();
        let description = match literals.next()? {
            Lit::Str(text) => {
                if text.value().trim().is_empty() {
                    diagnostics.error(text, "the description is blank; say what it is, or leave it out");
                }
                Some(text.clone())
            }
            other => {
                diagnostics.error(other, "a description is a text: write it in quotes");
                None
            }
        };
        for second in literals {
            diagnostics.error(second, "there is a description already; leave one out");
        }
        description
    }

    fn string(&self, word: &str, diagnostics: &mut Diagnostics) -> Option<LitStr> {
        let (place, value) = self.value(word)?;
        match value {
            Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) => return Some(text.clone()),
            other => diagnostics
                .error_at(span_of(place, other), format!("`{word}` takes a text: `{word} = \"…\"`")),
        }
        None
    }

    fn boolean(&self, word: &str, diagnostics: &mut Diagnostics) -> Option<LitBool> {
        let (place, value) = self.value(word)?;
        match value {
            Some(Expr::Lit(ExprLit { lit: Lit::Bool(value), .. })) => return Some(value.clone()),
            other => diagnostics.error_at(
                span_of(place, other),
                format!("`{word}` takes `true` or `false`: `{word} = false`"),
            ),
        }
        None
    }

    fn value(&self, word: &str) -> Option<(&Ident, Option<&Expr>)> {
        let found = self.words.iter().find(|one| one.name.unraw() == word)?;
        Some((&found.name, found.value.as_ref()))
    }
}

fn span_of(word: &Ident, value: Option<&Expr>) -> Span {
    let Some(value) = value else { return word.span() };
    syn::Error::new_spanned(value.to_token_stream(), "").span()
}

fn unknown_word(word: &str, attribute: &str, known: &[&str]) -> String {
    if matches!(word, "description" | "desc" | "doc") {
        return format!(
            "there is no word `{word}` here; write the description first, in quotes: `#[{attribute}(\"…\")]`"
        );
    }
    if let Some(nearest) = nearest(word, known) {
        return format!("there is no word `{word}` here; did you mean `{nearest}`?");
    }
    let other = match attribute {
        "tool" if PARAM_WORDS.contains(&word) => Some("parameter: `#[param(…)]`"),
        "param" if TOOL_WORDS.contains(&word) => Some("function: `#[tool(…)]`"),
        _ => None,
    };
    match other {
        Some(other) => format!("`{word}` has no meaning here; it belongs to a {other}"),
        None => format!("there is no word `{word}` here; the words are {}", list(known)),
    }
}
