//! AG-UI, version 1.0.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tool_core::model::ToolDefinition;
use tool_core::run::{Wait, WaitReason};
use tool_core::tool::{ExternalTool, WaitId};
use tool_core::{Message, Tool, ToolCall, ToolSet};

use super::adapter::{Executors, Json, Part};
use super::asked::{Asked, Reply, question};
use super::stream::Protocol;
use crate::guard::HttpError;
use crate::log::FrontendTools;

/// A `RunAgentInput`. All but the last message is the client's memory, and is ignored, like state and context.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    pub(crate) thread_id: String,
    pub(crate) run_id: String,
    messages: Vec<Value>,
    #[serde(default)]
    tools: Vec<FrontendTool>,
    #[serde(default)]
    resume: Vec<Value>,
}

/// A tool that the frontend executes.
#[derive(Debug, Deserialize)]
struct FrontendTool {
    name: String,
    #[serde(default)]
    description: String,
    parameters: Option<Box<RawValue>>,
}

/// The largest number of tools of a frontend, and the largest size of all their definitions in bytes.
const MAX_TOOLS: usize = 128;
const MAX_TOOL_BYTES: usize = 128 << 10;

/// How much more memory a tool takes than the text of its definition, roughly.
const MEMORY_FACTOR: usize = 16;

impl Request {
    /// Returns what is asked for, and those tools of the frontend that are taken by their names.
    /// A run that waits takes nothing but a complete `resume`.
    pub(super) fn asked(
        mut self,
        is_taken: impl Fn(&str) -> bool,
        waits: &[Wait],
        is_recorded: impl Fn(&WaitId) -> bool,
    ) -> Result<(Asked, FrontendTools), HttpError> {
        let tools = read_tools(std::mem::take(&mut self.tools), is_taken)?;
        let asked = self.reply(waits)?;
        match &asked {
            Asked::Question(_) if waits.is_empty() => {}
            Asked::Question(_) => {
                return Err(HttpError::conflict("the run waits for decisions; send `resume`"));
            }
            Asked::Replies(replies) => {
                let is_decided =
                    |wait: &WaitId| replies.iter().any(|reply| reply.wait == *wait) || is_recorded(wait);
                if !waits.iter().all(|wait| is_decided(&wait.id)) {
                    return Err(HttpError::bad_request("`resume` must decide about all interrupts"));
                }
            }
        }
        Ok((asked, tools))
    }

    fn reply(self, waits: &[Wait]) -> Result<Asked, HttpError> {
        if !self.resume.is_empty() {
            let reply = |resume: &Value| {
                let id = resume["interruptId"].as_str();
                let id = id.ok_or_else(|| HttpError::bad_request("`resume` needs an `interruptId`"))?;
                let payload = Some(&resume["payload"]).filter(|_| resume["status"] != "cancelled");
                Reply::of_interrupt(waits, id, payload)
            };
            return self.resume.iter().map(reply).collect::<Result<_, _>>().map(Asked::Replies);
        }
        let last = self.messages.last().ok_or_else(|| HttpError::bad_request("`messages` is empty"))?;
        match last["role"].as_str() {
            Some("user") => question(&last["content"]).map(Asked::Question),
            Some("tool") => {
                let results = self.messages.iter().rev().take_while(|message| message["role"] == "tool");
                let reply = |message: &Value| {
                    Some(Reply::of_call(waits, message["toolCallId"].as_str()?, Ok(&message["content"])))
                };
                Ok(Asked::Replies(results.filter_map(reply).collect()))
            }
            _ => Err(HttpError::bad_request("the last message must be of the user, or `resume` must be set")),
        }
    }
}

/// Returns the tools of a frontend that are taken by their names.
fn read_tools(tools: Vec<FrontendTool>, is_taken: impl Fn(&str) -> bool) -> Result<FrontendTools, HttpError> {
    let size = |tool: &FrontendTool| {
        let parameters = tool.parameters.as_ref().map_or(0, |json| json.get().len());
        tool.name.len() + tool.description.len() + parameters
    };
    let bytes: usize = tools.iter().map(size).sum();
    if tools.len() > MAX_TOOLS || bytes > MAX_TOOL_BYTES {
        return Err(HttpError::bad_request(format!(
            "`tools` has {} tools of {bytes} bytes, and can have {MAX_TOOLS} of {MAX_TOOL_BYTES} bytes; send fewer or shorter ones",
            tools.len()
        )));
    }
    let taken = tools.into_iter().filter(|tool| is_taken(&tool.name));
    let external = taken.map(|FrontendTool { name, description, parameters }| {
        let definition = ToolDefinition::new(name).with_description(description);
        let parameters = parameters.and_then(|json| serde_json::from_str(json.get()).ok());
        let parameters = parameters.filter(Value::is_object);
        let definition = parameters.into_iter().fold(definition, ToolDefinition::with_parameters);
        Arc::new(ExternalTool::new(definition)) as Arc<dyn Tool>
    });
    let set = ToolSet::new(external).map_err(|error| HttpError::bad_request(error.to_string()))?;
    Ok(FrontendTools { set, bytes: MEMORY_FACTOR * bytes })
}

/// AG-UI's stream of a part of a run.
#[derive(Debug)]
pub(crate) struct AgUi {
    pub(crate) thread: String,
    /// The client's id of this part.
    pub(crate) run: String,
    /// The id of the assistant's message that calls belong to.
    pub(crate) message: String,
    /// Whether approvals can have other arguments.
    pub(crate) may_edit: bool,
}

impl AgUi {
    pub(crate) fn start(&self) -> String {
        let (thread, run) = (&self.thread, &self.run);
        json!({ "type": "RUN_STARTED", "threadId": thread, "runId": run, "protocolVersion": "1.0" })
            .to_string()
    }

    fn finished(&self, outcome: Value) -> Value {
        json!({ "type": "RUN_FINISHED", "threadId": self.thread, "runId": self.run, "outcome": outcome })
    }

    /// Returns the conversation up to the question that is being answered, for a client that has none.
    pub(crate) fn snapshot(messages: &[Message], executors: &Executors) -> Option<String> {
        let end = messages.iter().rposition(|message| matches!(message, Message::User(_)))? + 1;
        let messages = Self::messages(&messages[..end], executors);
        Some(json!({ "type": "MESSAGES_SNAPSHOT", "messages": messages }).to_string())
    }

    /// Returns messages as the protocol has them. The instructions are not part of them.
    pub(crate) fn messages(messages: &[Message], executors: &Executors) -> Vec<Value> {
        let shown = |(index, message): (usize, &Message)| {
            let id = format!("message_{index}");
            Some(match message {
                Message::User(content) => json!({ "id": id, "role": "user", "content": content.text() }),
                Message::Assistant(reply) => {
                    let call = |call: &ToolCall| {
                        let arguments = executors.visible(&call.name, &call.arguments);
                        let function = json!({ "name": call.name, "arguments": arguments });
                        json!({ "id": call.id, "type": "function", "function": function })
                    };
                    let calls: Vec<_> = reply.tool_calls.iter().map(call).collect();
                    json!({ "id": id, "role": "assistant", "content": reply.text, "toolCalls": calls })
                }
                Message::Tool(result) => json!({
                    "id": id, "role": "tool", "toolCallId": result.call_id, "content": result.content.text(),
                }),
                _ => return None,
            })
        };
        messages.iter().enumerate().filter_map(shown).collect()
    }

    /// Adds what the user may end to the last message.
    pub(crate) fn add_interrupts(messages: &mut [Value], waits: &[Wait], may_edit: bool) {
        let interrupts: Vec<_> = waits.iter().filter_map(|wait| interrupt(wait, may_edit)).collect();
        if let Some(last) = messages.last_mut().filter(|_| !interrupts.is_empty()) {
            last["metadata"] = json!({ "interrupts": interrupts });
        }
    }
}

impl Protocol for AgUi {
    fn write(&self, part: Part, out: &mut Vec<String>) {
        let mut push = |event: Value| out.push(event.to_string());
        match part {
            Part::TextStart { id } => {
                push(json!({ "type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant" }));
            }
            Part::TextDelta { id, delta } => {
                push(json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": delta }));
            }
            Part::TextEnd { id } => push(json!({ "type": "TEXT_MESSAGE_END", "messageId": id })),
            Part::ReasoningStart { id } => {
                push(json!({ "type": "REASONING_START", "messageId": format!("{id}_block") }));
                push(json!({ "type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning" }));
            }
            Part::ReasoningDelta { id, delta } => {
                push(json!({ "type": "REASONING_MESSAGE_CONTENT", "messageId": id, "delta": delta }));
            }
            Part::ReasoningEnd { id } => {
                push(json!({ "type": "REASONING_MESSAGE_END", "messageId": id }));
                push(json!({ "type": "REASONING_END", "messageId": format!("{id}_block") }));
            }
            Part::StepStart { turn } => {
                push(json!({ "type": "STEP_STARTED", "stepName": format!("turn {turn}") }));
            }
            Part::StepEnd { turn } => {
                push(json!({ "type": "STEP_FINISHED", "stepName": format!("turn {turn}") }));
            }
            Part::ToolInputStart { tool_call_id: id, tool_name: name } => push(json!({
                "type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name, "parentMessageId": self.message,
            })),
            Part::ToolInputDelta { tool_call_id: call, input_text_delta: text }
            | Part::Arguments { call, text } => {
                push(json!({ "type": "TOOL_CALL_ARGS", "toolCallId": call, "delta": text }));
            }
            Part::ToolInputAvailable { tool_call_id: id, .. }
            | Part::ToolInputError { tool_call_id: id, .. } => {
                push(json!({ "type": "TOOL_CALL_END", "toolCallId": id }));
            }
            Part::ToolOutputAvailable { tool_call_id: call, output: Json(text) }
            | Part::ToolOutputError { tool_call_id: call, error_text: text }
            | Part::Denied { call, text } => push(json!({
                "type": "TOOL_CALL_RESULT", "messageId": format!("{call}_result"), "toolCallId": call, "content": text, "role": "tool",
            })),
            Part::Progress { call, progress } => push(json!({
                "type": "ACTIVITY_SNAPSHOT", "messageId": format!("{call}_progress"), "activityType": "progress", "content": progress,
            })),
            Part::Agent { call, agent } => {
                push(json!({ "type": "CUSTOM", "name": "agent", "value": { "call": call, "agent": agent } }));
            }
            Part::HandedOff { agent } => {
                push(json!({ "type": "CUSTOM", "name": "handoff", "value": { "agent": agent } }));
            }
            // Interrupts at the end contain these.
            Part::ToolApprovalRequest { .. }
            | Part::Question { .. }
            | Part::Replied { .. }
            | Part::Pending { .. } => {}
            Part::Waits { waits } => {
                let interrupts: Vec<_> =
                    waits.iter().filter_map(|wait| interrupt(wait, self.may_edit)).collect();
                let results: Vec<_> = waits.into_iter().map(|wait| wait.path).collect();
                push(self.finished(match (interrupts.is_empty(), results.is_empty()) {
                    (false, _) => json!({ "type": "interrupt", "interrupts": interrupts }),
                    (true, false) => json!({ "type": "success", "pendingToolCallIds": results }),
                    // Others decide.
                    (true, true) => json!({ "type": "success" }),
                }));
            }
            Part::Finished { usage, .. } => {
                let mut finished = self.finished(json!({ "type": "success" }));
                let (input, output) = (usage.input_tokens, usage.output_tokens);
                finished["usage"] = json!([{ "inputTokens": input, "outputTokens": output }]);
                push(finished);
            }
            Part::Error { error_text } => push(json!({ "type": "RUN_ERROR", "message": error_text })),
            Part::Abort { reason } => push(self.finished(json!({ "type": reason }))),
        }
    }
}

/// Returns the interrupt of a wait that a person ends. Naming `editedArgs` offers to change the arguments.
fn interrupt(wait: &Wait, may_edit: bool) -> Option<Value> {
    let edited = may_edit.then_some(("editedArgs", "object"));
    let members = [("approved", "boolean"), ("reason", "string")].into_iter().chain(edited);
    let properties: Map<_, _> =
        members.map(|(name, kind)| (name.to_owned(), json!({ "type": kind }))).collect();
    Some(match &wait.reason {
        WaitReason::Approval(_) => json!({
            "id": wait.id, "reason": "tool_call", "toolCallId": wait.path,
            "message": format!("`{}` needs approval", wait.tool),
            "responseSchema": {
                "type": "object",
                "properties": properties,
                "required": ["approved"],
            },
        }),
        WaitReason::Answer(question) => {
            let problem = question.problem().map(|problem| format!("\n({problem})")).unwrap_or_default();
            json!({
                "id": wait.id, "reason": "input_required", "message": format!("{}{problem}", question.text()),
                "responseSchema": question.schema(),
            })
        }
        _ => return None,
    })
}
