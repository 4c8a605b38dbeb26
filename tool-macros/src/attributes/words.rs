//! What stands in the parentheses of any of our attributes.

use proc_macro2::Span;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, ExprLit, ExprPath, ExprRange, Ident, Lit, LitBool, LitStr, Path, Token};

use crate::diagnostics::{Diagnostics, list, nearest};
use crate::names::{DEFAULT_CRATE, PARAM, PARAM_WORDS, TOOL, TOOL_WORDS, TOOLBOX};

/// Literals, words, and `word = value`s.
#[derive(Default)]
pub(super) struct Words {
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

/// Where generated code finds what it needs, if it is not said.
pub(super) fn default_crate() -> Path {
    syn::parse_str(DEFAULT_CRATE).expect("the default crate is a path")
}

impl Words {
    /// Every word is known and stands once.
    pub(super) fn check(&self, attribute: &str, known: &[&str], diagnostics: &mut Diagnostics) {
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

    pub(super) fn description(&self, diagnostics: &mut Diagnostics) -> Option<LitStr> {
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

    pub(super) fn string(&self, word: &str, diagnostics: &mut Diagnostics) -> Option<LitStr> {
        let (place, value) = self.value(word)?;
        match value {
            Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) => return Some(text.clone()),
            other => diagnostics
                .error_at(span_of(place, other), format!("`{word}` takes a text: `{word} = \"…\"`")),
        }
        None
    }

    pub(super) fn boolean(&self, word: &str, diagnostics: &mut Diagnostics) -> Option<LitBool> {
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

    pub(super) fn has(&self, word: &str) -> bool {
        self.value(word).is_some()
    }

    /// There is no description where none can be.
    pub(super) fn refuse_description(&self, message: &str, diagnostics: &mut Diagnostics) {
        for literal in &self.literals {
            diagnostics.error(literal, message);
        }
    }

    /// A word that stands alone.
    pub(super) fn flag(&self, word: &str, diagnostics: &mut Diagnostics) -> Option<Ident> {
        let (place, value) = self.value(word)?;
        match value {
            None => Some(place.clone()),
            Some(Expr::Lit(ExprLit { lit: Lit::Bool(value), .. })) => value.value.then(|| place.clone()),
            Some(other) => {
                diagnostics
                    .error_at(span_of(place, Some(other)), format!("`{word}` stands alone, without a value"));
                None
            }
        }
    }

    /// A word that stands alone, or with one of these texts: alone it is the first.
    pub(super) fn choice<'c>(
        &self,
        word: &str,
        choices: &[&'c str],
        diagnostics: &mut Diagnostics,
    ) -> Option<&'c str> {
        let (place, value) = self.value(word)?;
        let text = match value {
            None => return choices.first().copied(),
            Some(Expr::Lit(ExprLit { lit: Lit::Bool(value), .. })) => {
                return choices.first().copied().filter(|_| value.value);
            }
            Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) => text,
            other => {
                let message =
                    format!("`{word}` stands alone, or takes one of the texts {}, in quotes", list(choices));
                diagnostics.error_at(span_of(place, other), message);
                return None;
            }
        };
        let value = text.value();
        let choice = choices.iter().copied().find(|choice| *choice == value);
        if choice.is_none() {
            let instead = match nearest(&value, choices) {
                Some(nearest) => format!("did you mean `{word} = \"{nearest}\"`?"),
                None => format!("the texts that it takes are {}", list(choices)),
            };
            diagnostics.error(text, format!("`{word}` does not take \"{value}\"; {instead}"));
        }
        choice
    }

    pub(super) fn expression(
        &self,
        word: &str,
        such_as: &str,
        diagnostics: &mut Diagnostics,
    ) -> Option<Expr> {
        let (place, value) = self.value(word)?;
        if value.is_none() {
            diagnostics.error(place, format!("`{word}` takes a value, such as `{such_as}`"));
        }
        value.cloned()
    }

    pub(super) fn range(
        &self,
        word: &str,
        such_as: &str,
        diagnostics: &mut Diagnostics,
    ) -> Option<ExprRange> {
        let (place, value) = self.value(word)?;
        match value {
            Some(Expr::Range(range)) if range.start.is_some() || range.end.is_some() => {
                return Some(range.clone());
            }
            Some(Expr::Range(_)) => {
                diagnostics.error_at(
                    span_of(place, value),
                    format!("`{word}` needs a bound at one end: `{word} = {such_as}`"),
                );
            }
            other => diagnostics
                .error_at(span_of(place, other), format!("`{word}` takes a range: `{word} = {such_as}`")),
        }
        None
    }

    pub(super) fn path(&self, word: &str, diagnostics: &mut Diagnostics) -> Option<Path> {
        let (place, value) = self.value(word)?;
        match value {
            Some(Expr::Path(ExprPath { qself: None, path, .. })) => return Some(path.clone()),
            other => diagnostics.error_at(
                span_of(place, other),
                format!("`{word}` takes the path of a function: `{word} = as_table`"),
            ),
        }
        None
    }

    pub(super) fn path_in_quotes(&self, word: &str, diagnostics: &mut Diagnostics) -> Option<Path> {
        let text = self.string(word, diagnostics)?;
        let path = text.parse_with(Path::parse_mod_style).ok();
        if path.is_none() {
            diagnostics
                .error(text, format!("`{word}` takes a path, such as `{word} = \"my_crate::tool_core\"`"));
        }
        path
    }

    /// All words, in the order in which they stand.
    pub(super) fn order(&self) -> Vec<Ident> {
        self.words.iter().map(|word| word.name.clone()).collect()
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
    let other = match attribute {
        TOOL | TOOLBOX if PARAM_WORDS.contains(&word) => Some("parameter: `#[param(…)]`"),
        PARAM | TOOLBOX if TOOL_WORDS.contains(&word) => Some("function: `#[tool(…)]`"),
        _ => None,
    };
    if let Some(other) = other {
        return format!("`{word}` has no meaning here; it belongs to a {other}");
    }
    match nearest(word, known) {
        Some(nearest) => format!("there is no word `{word}` here; did you mean `{nearest}`?"),
        None => format!("there is no word `{word}` here; the words are {}", list(known)),
    }
}
