//! What a request of a frontend asks for.

use serde_json::Value;
use tool_core::ToolOutput;
use tool_core::content::Content;
use tool_core::run::{Decision, Wait, WaitReason};

use crate::guard::HttpError;

#[derive(Debug)]
pub(super) enum Asked {
    Question(Content),
    Replies(Vec<Reply>),
}

/// A reply of the client to something that the run waits for.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) about: About,
    pub(super) given: Given,
    /// The call and its arguments, as the client has them.
    pub(super) shown: Option<(String, Value)>,
}

#[derive(Debug)]
pub(super) enum About {
    Wait(String),
    /// A call whose result the client supplies, or a question that was shown as a call.
    Call(String),
}

#[derive(Debug)]
pub(super) enum Given {
    Decision(Decision),
    Output(Value),
    /// The payload of an interrupt, unless it was cancelled.
    Payload(Option<Value>),
}

impl About {
    /// Returns the wait that is meant, if it is open.
    pub(super) fn find<'a>(&self, waits: &'a [Wait]) -> Option<&'a Wait> {
        waits.iter().find(|wait| match (self, &wait.reason) {
            (Self::Wait(id), _) => wait.id.as_str() == id,
            (Self::Call(call), WaitReason::CallerResult(_)) => wait.path == *call,
            (Self::Call(call), WaitReason::Answer(_)) => wait.id.as_str() == call,
            _ => false,
        })
    }
}

impl Given {
    /// Returns the decision about a wait. One that is not open any more is taken for what the reply looks like.
    pub(super) fn decision(self, wait: Option<&Wait>) -> Result<Decision, HttpError> {
        let reason = wait.map(|wait| &wait.reason);
        Ok(match (self, reason) {
            (Self::Decision(decision), _) => decision,
            (Self::Output(output), Some(WaitReason::CallerResult(_))) => {
                let text = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
                Decision::result(Ok(ToolOutput::text(text)))
            }
            (Self::Output(answer), _) | (Self::Payload(Some(answer)), Some(WaitReason::Answer(_))) => {
                Decision::answer(answer)
            }
            (Self::Payload(None), _) => Decision::decline(),
            (Self::Payload(Some(payload)), _) => {
                let why = payload.get("reason").and_then(Value::as_str);
                match (payload.get("approved").and_then(Value::as_bool), payload.get("editedArgs")) {
                    (Some(false), _) => why.map_or_else(Decision::decline, Decision::deny),
                    (Some(true), Some(arguments)) => Decision::approve_with(arguments.to_string()),
                    (Some(true), None) => Decision::approve(),
                    (None, _) if wait.is_none() => Decision::answer(payload),
                    (None, _) => {
                        return Err(HttpError::bad_request(
                            "`resume` needs a `payload` with a boolean `approved`",
                        ));
                    }
                }
            }
        })
    }
}

/// Compares arguments with what a browser has made of them.
pub(super) fn is_same(arguments: &str, shown: &Value) -> bool {
    serde_json::from_str::<Value>(arguments).is_ok_and(|value| is_same_value(&value, shown))
        || shown.as_str() == Some(arguments)
}

/// JavaScript's numbers have no more digits than an `f64`.
fn is_same_value(value: &Value, shown: &Value) -> bool {
    match (value, shown) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same_value(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_in = |(name, value): (&String, _)| {
                other.get(name).is_some_and(|other| is_same_value(value, other))
            };
            one.len() == other.len() && one.iter().all(is_in)
        }
        _ => value == shown,
    }
}
