//! The settings of a run, and those that its question and its agent set.

use serde::{Deserialize, Serialize};

use super::error_policy::ErrorPolicies;
use super::limits::RunLimits;
use crate::content::Content;
use crate::model::{ModelOptions, ResponseFormat, ToolChoice};

/// The settings of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Settings {
    pub(super) limits: RunLimits,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) tool_choice: ToolChoice,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parallel_tool_calls: Option<bool>,
    #[serde(rename = "on_error", skip_serializing_if = "ErrorPolicies::is_empty")]
    pub(super) error_policies: ErrorPolicies,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) options: ModelOptions,
    #[serde(rename = "answer_format", skip_serializing_if = "Option::is_none")]
    pub(super) response_format: Option<ResponseFormat>,
    /// Stored only if an agent can hand the run over, or if the application can add instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) question: Option<Box<QuestionSettings>>,
    /// The positions, from the end of the history, of the messages that rejected an answer.
    #[serde(rename = "rejected_at", skip_serializing_if = "Vec::is_empty")]
    pub(super) rejections: Vec<usize>,
}

/// The settings of a question that agents join with theirs when they take the run over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct QuestionSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instructions: Option<Content>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) options: ModelOptions,
}

/// The settings that a run takes from its agent.
pub(crate) struct AgentSettings {
    pub(crate) instructions: Option<Content>,
    pub(crate) error_policies: ErrorPolicies,
    pub(crate) tool_choice: ToolChoice,
    pub(crate) parallel_tool_calls: Option<bool>,
    pub(crate) options: ModelOptions,
}

/// Returns `true` if a field need not be stored.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
