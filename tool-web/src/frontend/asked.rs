//! What a request of a frontend asks for.

use serde_json::Value;
use tool_core::content::{Content, Image, Part};
use tool_core::run::{Decision, Wait, WaitReason};
use tool_core::tool::WaitId;
use tool_core::{ToolError, ToolOutput};

use crate::guard::HttpError;

#[derive(Debug)]
pub(super) enum Asked {
    Question(Content),
    Replies(Vec<Reply>),
}

/// A reply of the client to something that the run waits for.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) wait: WaitId,
    pub(super) decision: Decision,
    /// Messages contain the outputs of earlier calls, too.
    pub(super) may_be_old: bool,
}

impl Reply {
    /// Creates the reply in the outcome of a call: the result of a call that the client executes, or the answer to a question that was
    /// shown as a call.
    pub(super) fn of_call(waits: &[Wait], call: &str, outcome: Result<&Value, &str>) -> Self {
        let is_executed = |wait: &&Wait| matches!(wait.reason, WaitReason::CallerResult(_));
        let (wait, decision) = match waits.iter().filter(is_executed).find(|wait| wait.path == call) {
            Some(wait) => {
                let text = |output: &Value| output.as_str().map_or_else(|| output.to_string(), str::to_owned);
                let outcome = outcome.map(|output| ToolOutput::text(text(output)));
                let outcome = outcome.map_err(|error| ToolError::failed(error.to_owned()));
                (wait.id.clone(), Decision::result(outcome))
            }
            None => (
                call.into(),
                outcome.map_or_else(|_| Decision::decline(), |answer| Decision::answer(answer.clone())),
            ),
        };
        Self { wait, decision, may_be_old: true }
    }

    /// Creates the reply in the payload of an interrupt, which has none if it was cancelled. One that is not open any more is taken
    /// for what its payload looks like.
    pub(super) fn of_interrupt(waits: &[Wait], id: &str, payload: Option<&Value>) -> Result<Self, HttpError> {
        let open = waits.iter().find(|wait| wait.id.as_str() == id);
        let decision = match (payload, open.map(|wait| &wait.reason)) {
            (None, _) => Decision::decline(),
            (Some(answer), Some(WaitReason::Answer(_))) => Decision::answer(answer.clone()),
            (Some(payload), _) => match (payload["approved"].as_bool(), payload.get("editedArgs")) {
                (Some(false), _) => denial(&payload["reason"]),
                (Some(true), Some(arguments)) => Decision::approve_with(arguments.to_string()),
                (Some(true), None) => Decision::approve(),
                (None, _) if open.is_none() => Decision::answer(payload.clone()),
                (None, _) => {
                    return Err(HttpError::bad_request(
                        "`resume` needs a `payload` with a boolean `approved`",
                    ));
                }
            },
        };
        Ok(Self { wait: id.into(), decision, may_be_old: false })
    }
}

/// Reads a message of the user: a text, or a list of texts and images.
pub(super) fn question(content: &Value) -> Result<Content, HttpError> {
    let whole = content.as_str().filter(|text| !text.is_empty());
    let mut parts: Vec<Part> = whole.map(Part::from).into_iter().collect();
    for part in content.as_array().into_iter().flatten() {
        let member = |name: &str| part[name].as_str();
        match (member("type"), member("text"), member("url")) {
            (Some("text"), Some(text), _) => parts.push(text.into()),
            // The server fetches nothing that a browser names.
            (Some("file"), _, Some(url))
                if url.starts_with("data:image/")
                    && member("mediaType").is_some_and(|media| media.starts_with("image/")) =>
            {
                parts.push(Image::from_url(url).into());
            }
            (Some("file"), ..) => return Err(HttpError::bad_request("files must be images in `data:` URLs")),
            _ => {}
        }
    }
    if parts.is_empty() {
        return Err(HttpError::bad_request("the message has no text"));
    }
    Ok(parts.into_iter().collect())
}

pub(super) fn denial(reason: &Value) -> Decision {
    reason.as_str().map_or_else(Decision::decline, Decision::deny)
}

/// Compares arguments with what a browser has made of them.
pub(super) fn is_same(arguments: &str, shown: &Value) -> bool {
    serde_json::from_str(arguments).is_ok_and(|value| rounded(value) == rounded(shown.clone()))
        || shown.as_str() == Some(arguments)
}

/// Rounds the numbers as JavaScript does, which have no more digits than an `f64`.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().into(),
        Value::Array(items) => items.into_iter().map(rounded).collect(),
        Value::Object(members) => members.into_iter().map(|(name, value)| (name, rounded(value))).collect(),
        value => value,
    }
}
