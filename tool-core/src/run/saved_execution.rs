//! Finished calls as they are stored, without what the messages contain.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::settings::is_default;
use super::shared_vec::SharedVec;
use crate::model::ToolCall;
use crate::tool::{CallHistory, ToolError, ToolErrorKind, ToolExecution, ToolOutput};

/// The part of a finished call that the messages do not contain.
#[derive(Serialize, Deserialize)]
struct SavedExecution<'a> {
    id: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_default")]
    history: Cow<'a, CallHistory>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<ToolErrorKind>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_fatal: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Cow<'a, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left_out: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
}

impl<'a> SavedExecution<'a> {
    fn new(execution: &'a ToolExecution) -> Self {
        let (output, error) = (execution.output(), execution.outcome().err());
        Self {
            id: (&*execution.call.id).into(),
            history: Cow::Borrowed(&execution.history),
            error: error.map(ToolError::kind),
            is_fatal: error.is_some_and(ToolError::is_fatal),
            data: output.and_then(ToolOutput::stored_data).map(Cow::Borrowed),
            left_out: output.and_then(ToolOutput::omitted_chars),
            limit: output.and_then(ToolOutput::limit),
        }
    }

    fn into_execution(self) -> ToolExecution {
        let outcome = match self.error {
            Some(kind) => Err(ToolError::restored(kind, String::new(), self.is_fatal)),
            None => {
                let output = ToolOutput::text("").with_limits(self.left_out, self.limit);
                Ok(match self.data {
                    Some(data) => output.with_data(data.into_owned()),
                    None => output,
                })
            }
        };
        let execution = ToolExecution::new(ToolCall::new(self.id, "", ""), outcome);
        ToolExecution { history: self.history.into_owned(), ..execution }
    }
}

pub(super) fn serialize<S: Serializer>(all: &[ToolExecution], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(all.iter().map(SavedExecution::new))
}

/// Returns executions with empty calls and outputs, which the messages complete.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<SharedVec<ToolExecution>, D::Error> {
    let all = Vec::<SavedExecution<'_>>::deserialize(deserializer)?;
    Ok(all.into_iter().map(SavedExecution::into_execution).collect::<Vec<_>>().into())
}
