//! Reports on the definitions of a set.

mod rules;
mod undescribed;

use std::fmt;

use crate::model::ToolDefinition;
use crate::toolset::ToolSet;

/// The estimated number of bytes of JSON per token.
const BYTES_PER_TOKEN: usize = 4;

impl ToolSet {
    /// Reviews the definitions and reports missing descriptions, names that a model may confuse, and large definitions.
    /// Use it in a test to check the tools of a program:
    ///
    /// ```standalone_crate
    /// use tool_core::{ToolSet, tool};
    ///
    /// /// Sums two numbers.
    /// #[tool]
    /// fn sum(#[param("the first number")] a: f64, #[param("the second number")] b: f64) -> f64 {
    ///     a + b
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// ToolSet::registered()?.check().into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn check(&self) -> ToolReport {
        let definitions = self.definitions();
        let costs: Vec<_> = definitions.iter().map(ToolCost::new).collect();
        ToolReport { findings: rules::check(definitions, &costs), costs }
    }
}

/// A report on the definitions of a set: the findings and the cost of each tool. `Display` prints one finding per line and
/// a summary.
///
/// ```
/// use tool_core::toolset::FindingKind;
/// use tool_core::{tool, tools};
///
/// /// Sums two numbers.
/// #[tool]
/// fn sum(a: f64, b: f64) -> f64 {
///     a + b
/// }
///
/// let report = tools![sum].check();
/// assert_eq!(report.findings()[0].kind(), FindingKind::UndescribedParameter);
/// assert_eq!(report.findings()[0].to_string(), "`sum`: the parameter `a` has no description");
/// assert!(report.allow([FindingKind::UndescribedParameter]).is_clean());
/// ```
#[derive(Clone)]
pub struct ToolReport {
    findings: Vec<Finding>,
    costs: Vec<ToolCost>,
}

impl ToolReport {
    /// Returns the findings: first those about the whole set, then those about its tools, in order.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns the cost of each tool, in the order of the set.
    #[must_use]
    pub fn costs(&self) -> &[ToolCost] {
        &self.costs
    }

    /// Returns the estimated number of tokens of all definitions in every request: see [`ToolCost::tokens`].
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.costs.iter().map(ToolCost::tokens).sum()
    }

    /// Removes the findings of these kinds. To exclude a tool, remove it from the set:
    /// `set.without(["legacy"])?.check()`.
    #[must_use]
    pub fn allow(mut self, kinds: impl IntoIterator<Item = FindingKind>) -> Self {
        for kind in kinds {
            self.findings.retain(|finding| finding.kind != kind);
        }
        self
    }

    /// Returns `true` if there are no findings.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Converts the report into a result, for use with `?`.
    ///
    /// # Errors
    ///
    /// Returns the report if it has findings.
    pub fn into_result(self) -> Result<(), Self> {
        if self.is_clean() { Ok(()) } else { Err(self) }
    }
}

impl std::error::Error for ToolReport {}

impl fmt::Display for ToolReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let (tools, found) = (self.costs.len(), self.findings.len());
        write!(
            f,
            "{tools} {}, about {} tokens in every request, {found} {}",
            if tools == 1 { "tool" } else { "tools" },
            self.tokens(),
            if found == 1 { "finding" } else { "findings" },
        )
    }
}

/// Same as `Display`, so that a test that returns the report prints it readably.
impl fmt::Debug for ToolReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The cost of one tool in every request that offers it.
#[derive(Clone, Debug)]
pub struct ToolCost {
    name: String,
    bytes: usize,
}

impl ToolCost {
    fn new(definition: &ToolDefinition) -> Self {
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

/// One finding of a [`ToolReport`]. `Display` is a single line that names the tool.
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
    /// The name is nearly the same as that of another tool of the set.
    SimilarName,
    /// The tool has no description.
    NoDescription,
    /// The description is a single word, or repeats the name.
    ShortDescription,
    /// The description is longer than 1,024 characters, which some providers refuse.
    LongDescription,
    /// The description is the same as that of another tool of the set.
    SameDescription,
    /// A parameter or one of its fields has no description.
    UndescribedParameter,
    /// The definition costs more than about 1,000 tokens in every request.
    LargeDefinition,
}

impl Finding {
    fn for_set(kind: FindingKind, text: String) -> Self {
        Self { kind, tool: None, path: None, text }
    }

    fn for_tool(kind: FindingKind, tool: &ToolDefinition, text: impl Into<String>) -> Self {
        Self { kind, tool: Some(tool.name().to_owned()), path: None, text: text.into() }
    }

    /// Returns the kind of the finding.
    #[must_use]
    pub fn kind(&self) -> FindingKind {
        self.kind
    }

    /// Returns the name of the tool, or `None` if the finding is about the whole set.
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
