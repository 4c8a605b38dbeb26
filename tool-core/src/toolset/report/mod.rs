//! Reports on the definitions of a set.

mod finding;
mod undescribed;
mod times;
mod rules;

use std::fmt;

pub use self::finding::{Finding, FindingKind, ToolCost};
use self::times::find_time;
use crate::tool::Timestamp;
use crate::toolset::ToolSet;

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

    /// Reviews the definitions, and the instructions that precede them.
    pub(crate) fn check_with(&self, instructions: &str, now: Timestamp) -> ToolReport {
        let mut report = self.check();
        if let Some(time) = find_time(instructions, now) {
            let text = format!(
                "the instructions contain `{time}`; once that changes, no request finds them in the prompt cache, so \
                 put the time into the question, or offer a tool that returns it"
            );
            report.findings.insert(0, Finding::for_set(FindingKind::TimeInInstructions, text));
        }
        report
    }
}

/// A report on the definitions of a set, or of an [agent](crate::Agent::check): the findings and the cost of each tool. `Display` prints one finding per line and
/// a summary.
///
/// ```
/// use tool_core::signatures::FindingKind;
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
            self.findings.retain(|finding| finding.kind() != kind);
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
