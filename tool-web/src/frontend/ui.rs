//! The UI message stream of the Vercel AI SDK, versions 6 and 7.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};
use tool_core::model::FinishReason;
use tool_core::run::{Decision, Run, Wait};
use tool_core::{Message, ToolCall, content};

use super::adapter::{Executors, Json, Part};
use super::asked::{Asked, Reply, denial, is_same, question};
use super::stream::Protocol;
use crate::entry::{executions, output};
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

/// The run of a conversation that has not finished, and what the user may end.
pub(super) struct Open<'a> {
    pub(super) run: &'a Run,
    pub(super) waits: Vec<Wait>,
}

/// What stands in place of the output of a call that others decide about.
const PENDING: &str = "waiting for a decision";

/// Returns a conversation as the SDK's `UIMessage`s. The last message of the assistant has the id with which its stream continues it.
pub(super) fn messages(
    messages: &[Message],
    open: Option<&Open<'_>>,
    last: Option<String>,
    executors: &Executors,
) -> Vec<Value> {
    let results = messages.iter().filter_map(|message| match message {
        Message::Tool(result) => {
            Some((&*result.call_id, (result.content.text().into_owned(), result.is_error)))
        }
        _ => None,
    });
    let current = open.iter().flat_map(|open| executions(open.run));
    let current = current.map(|done| (&*done.call().id, (output(done), done.outcome().is_err())));
    // A repeated id refers to the latest call.
    let results: HashMap<_, _> = results.chain(current).collect();
    let mut shown: Vec<Value> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let role = match message {
            Message::User(_) => "user",
            Message::Assistant(_) => "assistant",
            _ => continue,
        };
        if role == "user" || shown.last().is_none_or(|last| last["role"] == "user") {
            shown.push(json!({ "id": format!("message_{index}"), "role": role, "parts": [] }));
        }
        let Some(parts) = shown.last_mut().and_then(|last| last["parts"].as_array_mut()) else { continue };
        match message {
            Message::User(content) => parts.extend(content.parts().iter().filter_map(user_part)),
            Message::Assistant(reply) => {
                parts.push(json!({ "type": "step-start" }));
                if !reply.text.is_empty() {
                    parts.push(json!({ "type": "text", "text": reply.text, "state": "done" }));
                }
                let call = |call: &ToolCall| call_part(call, results.get(&*call.id), open, executors);
                parts.extend(reply.tool_calls.iter().map(call));
            }
            _ => {}
        }
    }
    let questions: Vec<_> = open.iter().flat_map(|open| &open.waits).filter_map(question_part).collect();
    let is_reply = shown.last().is_some_and(|last| last["role"] == "assistant");
    if !questions.is_empty() && !is_reply {
        // A provider of tools asks before the model replies.
        shown.push(json!({ "role": "assistant", "parts": [] }));
    }
    if let Some(message) = shown.last_mut().filter(|message| message["role"] == "assistant") {
        last.into_iter().for_each(|id| message["id"] = id.into());
        message["parts"].as_array_mut().into_iter().for_each(|parts| parts.extend(questions.clone()));
    }
    shown
}

/// Returns a question as a call that the browser executes.
fn question_part(wait: &Wait) -> Option<Value> {
    let question = wait.question()?;
    Some(
        json!({ "type": "tool-ask_user", "toolCallId": wait.id, "state": "input-available", "input": question }),
    )
}

fn user_part(part: &content::Part) -> Option<Value> {
    match part {
        content::Part::Text { text } => Some(json!({ "type": "text", "text": text })),
        content::Part::Image(image) => Some(
            json!({ "type": "file", "mediaType": image.media_type().unwrap_or("image/*"), "url": image.url() }),
        ),
        _ => None,
    }
}

fn call_part(
    call: &ToolCall,
    result: Option<&(String, bool)>,
    open: Option<&Open<'_>>,
    executors: &Executors,
) -> Value {
    let input = Json(executors.visible(&call.name, &call.arguments).to_owned());
    let (waits, is_waiting) =
        open.map_or((&[][..], false), |open| (&open.waits, !open.run.waits().is_empty()));
    let wait = waits.iter().find(|wait| wait.path == call.id && wait.question().is_none());
    let mut part = match (result, wait) {
        (Some((text, false)), _) => json!({ "state": "output-available", "output": Json(text.clone()) }),
        (Some((text, true)), _) => json!({ "state": "output-error", "errorText": text }),
        (None, Some(wait)) if arguments(wait).is_some() => {
            json!({ "state": "approval-requested", "approval": { "id": wait.id } })
        }
        (None, None) if is_waiting => {
            json!({ "state": "output-available", "output": PENDING })
        }
        (None, _) => json!({ "state": "input-available" }),
    };
    part["type"] = format!("tool-{}", call.name).into();
    part["toolCallId"] = (*call.id).into();
    part["input"] = json!(input);
    part
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
    const HAS_MESSAGES: bool = true;

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
                json!({ "type": "tool-output-available", "toolCallId": call, "output": PENDING })
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
