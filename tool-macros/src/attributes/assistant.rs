//! `#[assistant(…)]`

use proc_macro2::TokenStream;
use syn::{Ident, LitStr, Path};

use super::options::{Options, default_crate};
use super::source::SourceFile;
use crate::diagnostics::Diagnostics;
use crate::names::{AGENT, ASSISTANT, ASSISTANT_OPTIONS, CRATE, FILE};

/// `#[assistant("instructions", agent = Name, file = "…", crate = "…")]`
pub(crate) struct AssistantAttribute {
    /// The name of the struct that implements the trait, unless it is missing or has mistakes.
    pub(crate) agent: Option<Ident>,
    /// `true` if the attribute itself has mistakes, such as a misspelled option.
    pub(crate) is_invalid: bool,
    pub(crate) instructions: Option<LitStr>,
    /// The file with the instructions, in place of a literal.
    pub(crate) file: Option<SourceFile>,
    pub(crate) krate: Path,
}

impl AssistantAttribute {
    pub(crate) fn parse(tokens: TokenStream, diagnostics: &mut Diagnostics) -> Self {
        let earlier = diagnostics.len();
        let options: Options = diagnostics.recover(syn::parse2(tokens));
        options.check(ASSISTANT, ASSISTANT_OPTIONS, diagnostics);
        let instructions = options.text("text of the instructions", ASSISTANT, diagnostics);
        let file =
            options.string(FILE, "\"prompts/planner.md\"", diagnostics).filter(|_| !options.has_literals());
        if let (true, Some(name)) = (options.has_literals(), options.name_of(FILE)) {
            diagnostics.error(name, "the instructions are in a literal and in a file; remove one of the two");
        }
        let agent = options.identifier(AGENT, "the name of a struct", "PlannerAgent", diagnostics);
        Self {
            agent,
            is_invalid: diagnostics.len() > earlier,
            instructions,
            file: file.and_then(|path| SourceFile::read(path, diagnostics)),
            krate: options
                .quoted_path(CRATE, "\"my_crate::tool_core\"", diagnostics)
                .unwrap_or_else(default_crate),
        }
    }

    /// Returns the text of the instructions, the literal in the attribute, and the file that it names.
    pub(crate) fn text(&self) -> Option<(String, &LitStr, Option<String>)> {
        let literal = self.instructions.as_ref().map(|literal| (literal.value(), literal, None));
        let file = self.file.as_ref().map(|file| (file.text.clone(), &file.path, Some(file.path.value())));
        literal.or(file)
    }
}
