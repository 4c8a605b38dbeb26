//! The UI message stream of the Vercel AI SDK, versions 6 and 7.

use serde::Deserialize;
use serde_json::{Value, json};
use tool_core::model::FinishReason;
use tool_core::run::{Decision, Wait};

use super::adapter::Part;
use super::asked::{Asked, Reply, denial, is_same, question};
use super::stream::Protocol;
use crate::guard::HttpError;
use crate::wait::arguments;

/// A request of `useChat`. All but the last message is the browser's memory, and is ignored.
#[derive(Debug, Deserialize)]
pub(crate) struct Request {
    pub(crate) id: String,
    messages: Vec<Value>,
    trigger: Option<String>,
}

impl Request {
    pub(super) fn asked(self, waits: &[Wait]) -> Result<Asked, HttpError> {
        if self.trigger.as_deref().is_some_and(|trigger| trigger != "submit-message") {
            return Err(HttpError::bad_request("messages cannot be regenerated; send a new one"));
        }
        let last = self.messages.last().ok_or_else(|| HttpError::bad_request("`messages` is empty"))?;
        match last["role"].as_str() {
            Some("user") => question(&last["parts"]).map(Asked::Question),
            Some("assistant") => {
                let parts = last["parts"].as_array().into_iter().flatten();
                parts.filter_map(|part| reply(part, waits)).collect::<Result<_, _>>().map(Asked::Replies)
            }
            _ => Err(HttpError::bad_request("the last message must be of the user or the assistant")),
        }
    }
}

/// Returns the reply in a part of a message of the assistant. The client must have been shown what it decides about.
fn reply(part: &Value, waits: &[Wait]) -> Option<Result<Reply, HttpError>> {
    let call = part["toolCallId"].as_str();
    match (part["state"].as_str()?, part.get("approval"), call) {
        ("approval-responded", Some(approval), call) => {
            let Some((id, approved)) = approval["id"].as_str().zip(approval["approved"].as_bool()) else {
                return Some(Err(HttpError::bad_request("an approval needs `id` and a boolean `approved`")));
            };
            let open = waits.iter().find(|wait| wait.id.as_str() == id);
            if let (Some(open), Some(call), Some(input)) = (open, call, part.get("input"))
                && (open.path != call || !arguments(open).is_some_and(|arguments| is_same(arguments, input)))
            {
                return Some(Err(HttpError::conflict("the call is not the one that was shown")));
            }
            let decision = if approved { Decision::approve() } else { denial(&approval["reason"]) };
            Some(Ok(Reply { wait: id.into(), decision, may_be_old: false }))
        }
        // The outcome of a tool that the browser executes, or the answer to a question.
        ("output-available", None, Some(call)) => Some(Ok(Reply::of_call(waits, call, Ok(&part["output"])))),
        ("output-error", None, Some(call)) => {
            let error = part["errorText"].as_str().unwrap_or("the call failed");
            Some(Ok(Reply::of_call(waits, call, Err(error))))
        }
        _ => None,
    }
}

/// Returns the first chunk of a response. The continuation of a message has its id.
pub(crate) fn start(message: &str) -> String {
    json!({ "type": "start", "messageId": message }).to_string()
}

/// The UI message stream.
#[derive(Debug)]
pub(crate) struct UiStream;

impl Protocol for UiStream {
    const END: Option<&str> = Some("[DONE]");

    fn write(&self, part: Part, out: &mut Vec<String>) {
        let passing = |kind: &str, id: &str, data: Value| json!({ "type": format!("data-{kind}"), "id": id, "transient": true, "data": data });
        let chunk = match part {
            Part::StepStart { .. } => json!({ "type": "start-step" }),
            Part::StepEnd { .. } => json!({ "type": "finish-step" }),
            Part::Arguments { .. } => return,
            Part::Denied { call, .. } => json!({ "type": "tool-output-denied", "toolCallId": call }),
            Part::Progress { call, progress } => passing("progress", &call, json!(progress)),
            Part::Agent { call, agent } => passing("agent", &call, json!({ "agent": agent })),
            Part::HandedOff { agent } => passing("handoff", "handoff", json!({ "agent": agent })),
            // A question is a call of a tool that the browser executes.
            Part::Question { wait, question } => {
                let start = json!({ "type": "tool-input-start", "toolCallId": wait, "toolName": "ask_user" });
                out.push(start.to_string());
                json!({ "type": "tool-input-available", "toolCallId": wait, "toolName": "ask_user", "input": question })
            }
            Part::Replied { wait, is_declined: true } => {
                json!({ "type": "tool-output-error", "toolCallId": wait, "errorText": "declined" })
            }
            Part::Replied { wait, .. } => {
                json!({ "type": "tool-output-available", "toolCallId": wait, "output": "answered" })
            }
            // Clients send decisions once each call has an output or a decision. The real output replaces this one.
            Part::Pending { call } => {
                json!({ "type": "tool-output-available", "toolCallId": call, "output": "waiting for a decision" })
            }
            Part::Waits { .. } => json!({ "type": "finish", "finishReason": "tool-calls" }),
            Part::Finished { reason, usage } => {
                let reason = match reason {
                    FinishReason::Stop | FinishReason::ToolCalls => "stop",
                    FinishReason::Length => "length",
                    FinishReason::ContentFilter => "content-filter",
                    _ => "other",
                };
                json!({ "type": "finish", "finishReason": reason, "messageMetadata": { "usage": {
                    "inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens,
                    "totalTokens": usage.total_tokens,
                } } })
            }
            part => return out.extend(serde_json::to_string(&part)),
        };
        out.push(chunk.to_string());
    }
}
