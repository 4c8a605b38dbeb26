//! What a reviewer would say of the definitions of a set.

mod parameters;
mod rules;

use std::fmt;

use serde_json::json;

use crate::model::ToolDefinition;
use crate::toolset::ToolSet;

/// How many bytes of JSON are taken for one token.
const BYTES_PER_TOKEN: usize = 4;

impl ToolSet {
    /// What a reviewer would say of the definitions: what a model is not told, what it may mix up, what costs
    /// many tokens. In a test it keeps the tools of a program in order:
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
        let costs: Vec<_> = definitions.iter().map(ToolCost::of).collect();
        ToolReport { findings: rules::check(definitions, &costs), costs }
    }
}

/// What a reviewer would say of the definitions of a set, and what they cost. `Display` is all of it, in
/// lines.
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
    /// What there is to say: first of the whole set, then of its tools in their order.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// What each tool costs, in the order of the set.
    #[must_use]
    pub fn costs(&self) -> &[ToolCost] {
        &self.costs
    }

    /// What all definitions cost in every request, in tokens: see [`ToolCost::tokens`].
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.costs.iter().map(ToolCost::tokens).sum()
    }

    /// The same report without findings of these kinds. To leave out a tool, leave it out of the set:
    /// `set.without(["legacy"])?.check()`.
    #[must_use]
    pub fn allow(mut self, kinds: impl IntoIterator<Item = FindingKind>) -> Self {
        for kind in kinds {
            self.findings.retain(|finding| finding.kind != kind);
        }
        self
    }

    /// There is nothing to say.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Nothing, if there is nothing to say.
    ///
    /// # Errors
    ///
    /// The report, if it has findings.
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

/// The text, so that a test that returns the report shows it readably.
impl fmt::Debug for ToolReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What one tool costs in every request that offers it.
#[derive(Clone, Debug)]
pub struct ToolCost {
    name: String,
    bytes: usize,
}

impl ToolCost {
    fn of(definition: &ToolDefinition) -> Self {
        let mut sent = json!({ "name": definition.name(), "parameters": definition.parameters() });
        if let Some(description) = definition.description() {
            sent["description"] = description.into();
        }
        Self { name: definition.name().to_owned(), bytes: sent.to_string().len() }
    }

    /// The name of the tool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// About how many tokens its definition is: the bytes of name, description and schema as compact JSON,
    /// divided by 4 and rounded up. Providers count in ways of their own, so it is for comparing.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.bytes.div_ceil(BYTES_PER_TOKEN)
    }
}

/// One thing that a reviewer would say. `Display` is a line that names the tool and the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    kind: FindingKind,
    tool: Option<String>,
    path: Option<String>,
    says: String,
}

/// What kind of thing a reviewer would say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// The set has more than 20 tools: models choose worse among many.
    ManyTools,
    /// The name would fit any tool, such as `run` or `tool_2`.
    VagueName,
    /// The name is nearly that of another tool of the set.
    SimilarName,
    /// The tool has no description.
    NoDescription,
    /// The description is a single word, or repeats the name.
    ShortDescription,
    /// The description is longer than 1,024 characters, which some providers refuse.
    LongDescription,
    /// The description is that of another tool of the set.
    SameDescription,
    /// A parameter, or a field of one, has no description.
    UndescribedParameter,
    /// The definition costs more than about 1,000 tokens in every request.
    LargeDefinition,
}

impl Finding {
    fn of_set(kind: FindingKind, says: String) -> Self {
        Self { kind, tool: None, path: None, says }
    }

    fn of_tool(kind: FindingKind, tool: &ToolDefinition, says: impl Into<String>) -> Self {
        Self { kind, tool: Some(tool.name().to_owned()), path: None, says: says.into() }
    }

    /// What kind of thing it is.
    #[must_use]
    pub fn kind(&self) -> FindingKind {
        self.kind
    }

    /// The name of the tool; `None` if it is about the whole set.
    #[must_use]
    pub fn tool(&self) -> Option<&str> {
        self.tool.as_deref()
    }

    /// The parameter, if it is about one: `guests[].name` is a field of what a list holds, and `prices.*` a value of a
    /// map.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// What there is to say, without the name of the tool.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.says
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tool {
            Some(tool) => write!(f, "`{tool}`: {}", self.says),
            None => f.write_str(&self.says),
        }
    }
}
