//! The findings of a report, and the costs of tools.

use std::fmt;

use crate::model::ToolDefinition;

/// The estimated number of bytes of JSON per token.
const BYTES_PER_TOKEN: usize = 4;

/// The cost of one tool in every request that offers it.
#[derive(Clone, Debug)]
pub struct ToolCost {
    name: String,
    bytes: usize,
}

impl ToolCost {
    pub(super) fn new(definition: &ToolDefinition) -> Self {
        Self { name: definition.name().to_owned(), bytes: definition.to_json().to_string().len() }
    }

    /// Returns the name of the tool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the estimated number of tokens of the definition: the bytes of name, description and schema as compact
    /// JSON, divided by 4 and rounded up. Providers count differently, so use it for comparisons.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.bytes.div_ceil(BYTES_PER_TOKEN)
    }
}

/// One finding of a [`ToolReport`](crate::signatures::ToolReport). `Display` is a single line that names the tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    kind: FindingKind,
    tool: Option<String>,
    path: Option<String>,
    text: String,
}

/// The kind of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// The set has more than 20 tools. Models choose less reliably among many.
    ManyTools,
    /// The name fits any tool, such as `run` or `tool_2`.
    VagueName,
    /// The name is nearly the same as another tool's in the set.
    SimilarName,
    /// The tool has no description.
    NoDescription,
    /// The description is a single word, or repeats the name.
    ShortDescription,
    /// The description is longer than 1,024 characters, which some providers refuse.
    LongDescription,
    /// The description is the same as another tool's in the set.
    SameDescription,
    /// A parameter or one of its fields has no description.
    UndescribedParameter,
    /// The definition costs more than about 1,000 tokens in every request.
    LargeDefinition,
    /// The instructions of an [agent](crate::Agent::check) contain today's date, or the time at which they were written, to the second. Prompt caches are hit only as
    /// long as instructions are the same.
    TimeInInstructions,
}

impl Finding {
    pub(super) fn for_set(kind: FindingKind, text: String) -> Self {
        Self { kind, tool: None, path: None, text }
    }

    pub(super) fn for_tool(kind: FindingKind, tool: &ToolDefinition, text: impl Into<String>) -> Self {
        Self { kind, tool: Some(tool.name().to_owned()), path: None, text: text.into() }
    }

    pub(super) fn at(self, path: String) -> Self {
        Self { path: Some(path), ..self }
    }

    /// Returns the kind of the finding.
    #[must_use]
    pub fn kind(&self) -> FindingKind {
        self.kind
    }

    /// Returns the name of the tool, or `None` if the finding is about the whole set or about instructions.
    #[must_use]
    pub fn tool(&self) -> Option<&str> {
        self.tool.as_deref()
    }

    /// Returns the path of the parameter if the finding is about one: `guests[].name` is a field of the items of a list,
    /// and `prices.*` is a value of a map.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Returns the text of the finding without the name of the tool.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tool {
            Some(tool) => write!(f, "`{tool}`: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}
