//! Policies for failed calls.

use serde::{Deserialize, Serialize};

use crate::run::StopReason;
use crate::tool::{ToolError, ToolErrorKind, ToolExecution};

/// The policy of a run for a failed call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorPolicy {
    /// The model reads the error, and the run continues.
    #[default]
    #[serde(rename = "tell")]
    Report,
    /// The model reads only that the tool failed, and the run continues. The error itself stays with the application.
    Hide,
    /// The run ends with the error.
    EndRun,
}

/// The policy for each kind of error. Serializes as a list of kinds with a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(ToolErrorKind, ErrorPolicy)>", into = "Vec<(ToolErrorKind, ErrorPolicy)>")]
pub(crate) struct ErrorPolicies {
    by_kind: Vec<(ToolErrorKind, ErrorPolicy)>,
    default: ErrorPolicy,
}

/// The kinds that a policy applies to: all but calls that were not executed, which are always reported.
const KINDS: [ToolErrorKind; 8] = [
    ToolErrorKind::UnknownTool,
    ToolErrorKind::InvalidArguments,
    ToolErrorKind::Failed,
    ToolErrorKind::Panicked,
    ToolErrorKind::TimedOut,
    ToolErrorKind::MissingContext,
    ToolErrorKind::Denied,
    ToolErrorKind::OutcomeUnknown,
];

impl From<Vec<(ToolErrorKind, ErrorPolicy)>> for ErrorPolicies {
    fn from(by_kind: Vec<(ToolErrorKind, ErrorPolicy)>) -> Self {
        Self { by_kind, default: ErrorPolicy::default() }
    }
}

impl From<ErrorPolicies> for Vec<(ToolErrorKind, ErrorPolicy)> {
    fn from(policies: ErrorPolicies) -> Self {
        let ErrorPolicies { mut by_kind, default } = policies;
        if default != ErrorPolicy::default() {
            let others = KINDS.iter().filter(|kind| by_kind.iter().all(|(other, _)| other != *kind));
            let others: Vec<_> = others.map(|kind| (*kind, default)).collect();
            by_kind.extend(others);
        }
        by_kind
    }
}

impl ErrorPolicies {
    pub(crate) fn set(&mut self, kind: ToolErrorKind, policy: ErrorPolicy) {
        self.by_kind.retain(|(other, _)| *other != kind);
        self.by_kind.push((kind, policy));
    }

    /// Sets the policy for all kinds without one of their own.
    pub(crate) fn set_default(&mut self, policy: ErrorPolicy) {
        self.default = policy;
    }

    fn policy_for(&self, error: &ToolError) -> ErrorPolicy {
        if error.is_fatal() {
            return ErrorPolicy::EndRun;
        }
        let found = self.by_kind.iter().find(|(kind, _)| *kind == error.kind());
        found.map_or(self.default, |(_, policy)| *policy)
    }

    /// Returns the record with the outcome as the model reads it, and the reason to stop if the call ends the run.
    pub(super) fn apply(&self, execution: ToolExecution) -> (ToolExecution, Option<StopReason>) {
        let Err(error) = &execution.outcome else { return (execution, None) };
        match self.policy_for(error) {
            ErrorPolicy::Report => (execution, None),
            ErrorPolicy::Hide => {
                let hidden = error.clone().hidden(&execution.call.id);
                (execution.with_outcome(Err(hidden)), None)
            }
            ErrorPolicy::EndRun => {
                let reason =
                    StopReason::ToolFailed { tool: execution.call.name.clone(), error: error.clone() };
                (execution, Some(reason))
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_kind.is_empty() && self.default == ErrorPolicy::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_policy_applies_to_kinds_without_their_own_and_survives_serialization() {
        let mut policies = ErrorPolicies::default();
        policies.set(ToolErrorKind::Failed, ErrorPolicy::Report);
        policies.set_default(ErrorPolicy::EndRun);
        let restored: ErrorPolicies =
            serde_json::from_str(&serde_json::to_string(&policies).unwrap()).unwrap();
        let table = [
            (ToolError::failed("no"), ErrorPolicy::Report),
            (ToolError::fatal("no"), ErrorPolicy::EndRun),
            (ToolError::invalid_arguments("no"), ErrorPolicy::EndRun),
            (ToolError::denied(None), ErrorPolicy::EndRun),
        ];
        for (error, expected) in table {
            assert_eq!(policies.policy_for(&error), expected, "{error:?}");
            assert_eq!(restored.policy_for(&error), expected, "{error:?}");
        }
    }
}
