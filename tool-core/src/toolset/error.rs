//! Errors of sets of tools.

use std::fmt;

use crate::arguments::nearest_name;
use crate::content::first_chars;
use crate::tool::Tool;

/// The maximum length of a name that providers accept, in bytes.
pub(super) const MAX_NAME_LENGTH: usize = 64;

/// The maximum number of characters of an invalid name in a message.
const MAX_QUOTE_CHARS: usize = 100;

/// The error of a set of tools that cannot be built.
///
/// ```
/// use tool_core::toolset::ToolSetErrorKind;
/// use tool_core::ToolSet;
///
/// let error = ToolSet::default().only(["launch"]).unwrap_err();
/// assert_eq!(error.kind(), ToolSetErrorKind::UnknownTool);
/// assert_eq!(error.to_string(), "there is no tool `launch` in the set");
/// ```
#[derive(Clone, thiserror::Error)]
#[error("{message}")]
pub struct ToolSetError {
    message: String,
    kind: ToolSetErrorKind,
}

/// The kind of a [`ToolSetError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ToolSetErrorKind {
    /// Two tools have the same name.
    DuplicateTool,
    /// There is no tool with the given name.
    UnknownTool,
    /// A name is not 1 to 64 letters `a` to `z` or `A` to `Z`, digits, `_` and `-`, as providers require.
    InvalidName,
    /// A tool cannot be given [extra parameters](crate::ToolSet::extra_parameters).
    ExtraParameters,
    /// A tool has no [strict form](crate::ToolSet::strict).
    NoStrictForm,
    /// The schema of a tool's arguments describes no object. Models pass arguments by name.
    NotAnObject,
}

impl ToolSetError {
    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ToolSetErrorKind {
        self.kind
    }

    #[cold]
    pub(super) fn not_an_object(tool: &dyn Tool) -> Self {
        let message = format!(
            "the arguments of the tool `{}`, {}, are not an object; take a struct with one field per argument",
            tool.definition().name(),
            describe_source(tool),
        );
        Self { message, kind: ToolSetErrorKind::NotAnObject }
    }

    #[cold]
    pub(super) fn no_strict_form(reason: &str) -> Self {
        Self { message: reason.to_owned(), kind: ToolSetErrorKind::NoStrictForm }
    }

    #[cold]
    pub(super) fn duplicate_tool(first: &dyn Tool, second: &dyn Tool) -> Self {
        let is_foreign = first.origin().is_some() || second.origin().is_some();
        let prefix = if is_foreign { ", or give all tools of one origin a `prefix`" } else { "" };
        let message = format!(
            "two tools are named `{}`: one {}, one {}; rename one of them, or remove it{prefix}",
            first.definition().name(),
            describe_source(first),
            describe_source(second),
        );
        Self { message, kind: ToolSetErrorKind::DuplicateTool }
    }

    /// `among` describes where the tool was searched, such as `in the set`.
    #[cold]
    pub(super) fn unknown_tool<'a>(name: &str, among: &str, known: impl Iterator<Item = &'a str>) -> Self {
        let mut message = format!("there is no tool `{}` {among}", first_chars(name, MAX_QUOTE_CHARS));
        if let Some(nearest) = nearest_name(name, known) {
            message.extend(["; did you mean `", nearest, "`?"]);
        }
        Self { message, kind: ToolSetErrorKind::UnknownTool }
    }

    #[cold]
    pub(super) fn invalid_name(tool: &dyn Tool) -> Self {
        let name = tool.definition().name();
        let length = if name.len() > MAX_NAME_LENGTH { ", which is too long" } else { "" };
        let message = format!(
            "a tool {} is named {:?}{length}; a name is 1 to {MAX_NAME_LENGTH} letters from a to z or A to Z, \
             digits, `_` and `-`",
            describe_source(tool),
            first_chars(name, MAX_QUOTE_CHARS),
        );
        Self { message, kind: ToolSetErrorKind::InvalidName }
    }

    pub(super) fn extra_parameters(message: String) -> Self {
        Self { message, kind: ToolSetErrorKind::ExtraParameters }
    }
}

/// Same as `Display`, so that a `main` that returns the error prints it readably.
impl fmt::Debug for ToolSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn describe_source(tool: &dyn Tool) -> String {
    if let Some(origin) = tool.origin() {
        return format!("of {origin}");
    }
    match tool.declared_at() {
        Some(location) => format!("at {}:{}", location.file(), location.line()),
        None => "created at run time".to_owned(),
    }
}
