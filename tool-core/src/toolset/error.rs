//! Why tools do not make a set.

use std::fmt;

use crate::arguments::nearest;
use crate::tool::Tool;

/// The longest name that providers take, in bytes.
pub(super) const LONGEST_NAME: usize = 64;

/// How much of a name that is none is shown, in characters.
const LONGEST_QUOTE: usize = 100;

/// Why tools do not make a set.
#[derive(Clone, thiserror::Error)]
#[error("{message}")]
pub struct ToolSetError {
    message: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Duplicate,
    Unknown,
    InvalidName,
    ExtraParameters,
    NoStrictForm,
    NoObject,
}

impl ToolSetError {
    /// Two tools have one name.
    #[must_use]
    pub fn is_duplicate(&self) -> bool {
        self.kind == Kind::Duplicate
    }

    /// There is no tool of a name.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.kind == Kind::Unknown
    }

    /// A name is not 1 to 64 of the letters `a` to `z` and `A` to `Z`, the digits, `_` and `-`: providers
    /// refuse it.
    #[must_use]
    pub fn is_invalid_name(&self) -> bool {
        self.kind == Kind::InvalidName
    }

    /// A tool cannot be given more parameters: see [`ToolSet::extra_parameters`](crate::ToolSet::extra_parameters).
    #[must_use]
    pub fn is_extra_parameters(&self) -> bool {
        self.kind == Kind::ExtraParameters
    }

    /// A tool has no strict form: see [`ToolSet::strict`](crate::ToolSet::strict).
    #[must_use]
    pub fn is_strict_refusal(&self) -> bool {
        self.kind == Kind::NoStrictForm
    }

    /// The arguments of a tool are no object by its schema, but models give arguments by name.
    #[must_use]
    pub fn is_no_object(&self) -> bool {
        self.kind == Kind::NoObject
    }

    #[cold]
    pub(super) fn no_object(tool: &dyn Tool) -> Self {
        let message = format!(
            "the arguments of the tool `{}`, {}, are not an object; let it take a struct, each field of which is one argument",
            tool.definition().name(),
            place(tool),
        );
        Self { message, kind: Kind::NoObject }
    }

    #[cold]
    pub(super) fn no_strict_form(refusal: &str) -> Self {
        Self { message: refusal.to_owned(), kind: Kind::NoStrictForm }
    }

    #[cold]
    pub(super) fn duplicate(first: &dyn Tool, second: &dyn Tool) -> Self {
        let is_foreign = first.origin().is_some() || second.origin().is_some();
        let prefix = match is_foreign {
            true => ", or tell all tools of one origin by a `prefix`",
            false => "",
        };
        let message = format!(
            "two tools are named `{}`: one {}, one {}; give one of them another name, or leave it out{prefix}",
            first.definition().name(),
            place(first),
            place(second),
        );
        Self { message, kind: Kind::Duplicate }
    }

    /// `among` says where it was looked for, such as `in the set`.
    #[cold]
    pub(super) fn unknown<'a>(name: &str, among: &str, known: impl Iterator<Item = &'a str>) -> Self {
        let mut message = format!("there is no tool `{}` {among}", cut(name));
        if let Some(nearest) = nearest(name, known) {
            message.extend(["; did you mean `", nearest, "`?"]);
        }
        Self { message, kind: Kind::Unknown }
    }

    #[cold]
    pub(super) fn invalid_name(tool: &dyn Tool) -> Self {
        let name = tool.definition().name();
        let length = match name.len() > LONGEST_NAME {
            true => ", which is too long",
            false => "",
        };
        let message = format!(
            "a tool {} is named {:?}{length}; a name is 1 to {LONGEST_NAME} letters from a to z or A to Z, \
             digits, `_` and `-`",
            place(tool),
            cut(name),
        );
        Self { message, kind: Kind::InvalidName }
    }

    pub(super) fn extra_parameters(message: String) -> Self {
        Self { message, kind: Kind::ExtraParameters }
    }
}

/// The text, so that a `main` that returns the error shows it readably.
impl fmt::Debug for ToolSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The beginning of a name that may come from anywhere.
fn cut(name: &str) -> &str {
    let end = name.char_indices().nth(LONGEST_QUOTE).map_or(name.len(), |(end, _)| end);
    &name[..end]
}

fn place(tool: &dyn Tool) -> String {
    if let Some(origin) = tool.origin() {
        return format!("of {origin}");
    }
    match tool.declared_at() {
        Some(location) => format!("at {}:{}", location.file(), location.line()),
        None => "made at run time".to_owned(),
    }
}
