//! AG-UI, version 1.0.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tool_core::content::Content;
use tool_core::model::ToolDefinition;
use tool_core::run::{Wait, WaitReason};
use tool_core::tool::ExternalTool;
use tool_core::{Agent, Message, Tool, ToolCall, ToolSet};

use super::adapter::{Block, Part, Protocol};
use super::asked::{About, Asked, Given, Reply};
use crate::guard::HttpError;
use crate::hub::Source;

/// A `RunAgentInput`. All but the last message is the client's memory, and is ignored, like state and context.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    pub(crate) thread_id: String,
    pub(crate) run_id: String,
    messages: Vec<AgMessage>,
    #[serde(default)]
    tools: Vec<FrontendTool>,
    #[serde(default)]
    resume: Vec<Resume>,
}

/// A tool that the frontend executes.
#[derive(Debug, Deserialize)]
struct FrontendTool {
    name: String,
    #[serde(default)]
    description: String,
    parameters: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AgMessage {
    role: String,
    #[serde(default)]
    content: Value,
    tool_call_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resume {
    interrupt_id: String,
    status: String,
    #[serde(default)]
    payload: Value,
}

impl Request {
    /// Returns what is asked for, and the tools of the frontend. They do not take the place of those of the agent.
    pub(super) fn asked(mut self, source: &Source) -> Result<(Asked, ToolSet), HttpError> {
        let own = source.agent.as_ref().map(Agent::tools);
        let foreign = std::mem::take(&mut self.tools).into_iter();
        let foreign = foreign.filter(|tool| own.is_none_or(|own| own.get(&tool.name).is_none()));
        let external = foreign.map(|FrontendTool { name, description, parameters }| {
            let definition = ToolDefinition::new(name).with_description(description);
            let parameters = parameters.filter(Value::is_object);
            let definition = parameters.into_iter().fold(definition, ToolDefinition::with_parameters);
            Arc::new(ExternalTool::new(definition)) as Arc<dyn Tool>
        });
        let tools = ToolSet::new(external).map_err(|error| HttpError::bad_request(error.to_string()))?;
        Ok((self.reply()?, tools))
    }

    fn reply(self) -> Result<Asked, HttpError> {
        if !self.resume.is_empty() {
            let reply = |resume: Resume| {
                let is_cancelled = resume.status == "cancelled";
                let given = Given::Payload(Some(resume.payload).filter(|_| !is_cancelled));
                Reply { about: About::Wait(resume.interrupt_id), given, shown: None }
            };
            return Ok(Asked::Replies(self.resume.into_iter().map(reply).collect()));
        }
        let last = self.messages.last().ok_or_else(|| HttpError::bad_request("`messages` is empty"))?;
        match &*last.role {
            "user" => question(&last.content).map(Asked::Question),
            "tool" => {
                let results = self.messages.into_iter().rev().take_while(|message| message.role == "tool");
                let reply = |message: AgMessage| {
                    let about = About::Call(message.tool_call_id?);
                    Some(Reply { about, given: Given::Output(message.content), shown: None })
                };
                Ok(Asked::Replies(results.filter_map(reply).collect()))
            }
            _ => Err(HttpError::bad_request("the last message must be of the user, or `resume` must be set")),
        }
    }
}

fn question(content: &Value) -> Result<Content, HttpError> {
    let text = match content {
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        content => text(content),
    };
    if text.is_empty() {
        return Err(HttpError::bad_request("the message has no text"));
    }
    Ok(text.into())
}

fn text(content: &Value) -> String {
    content.as_str().map_or_else(|| content.to_string(), str::to_owned)
}

/// AG-UI's stream of a part of a run.
#[derive(Debug)]
pub(crate) struct AgUi {
    pub(crate) thread: String,
    /// The client's id of this part.
    pub(crate) run: String,
    /// The id of the assistant's message that calls belong to.
    pub(crate) message: String,
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

    /// Returns the conversation up to the question that is being answered, for a client that has none. The instructions are not part of it.
    pub(crate) fn snapshot(messages: &[Message]) -> Option<String> {
        let end = messages.iter().rposition(|message| matches!(message, Message::User(_)))? + 1;
        let shown = |(index, message): (usize, &Message)| {
            let id = format!("message_{index}");
            Some(match message {
                Message::User(content) => json!({ "id": id, "role": "user", "content": content.text() }),
                Message::Assistant(reply) => {
                    let call = |call: &ToolCall| {
                        let function = json!({ "name": call.name, "arguments": call.arguments });
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
        let messages: Vec<_> = messages[..end].iter().enumerate().filter_map(shown).collect();
        Some(json!({ "type": "MESSAGES_SNAPSHOT", "messages": messages }).to_string())
    }
}

impl Protocol for AgUi {
    fn write(&self, part: Part, out: &mut Vec<String>) {
        let events: &[Value] = &match part {
            Part::BlockStart { kind: Block::Text, id } => {
                vec![json!({ "type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant" })]
            }
            Part::BlockDelta { kind: Block::Text, id, text } => {
                vec![json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": text })]
            }
            Part::BlockEnd { kind: Block::Text, id } => {
                vec![json!({ "type": "TEXT_MESSAGE_END", "messageId": id })]
            }
            Part::BlockStart { id, .. } => vec![
                json!({ "type": "REASONING_START", "messageId": format!("{id}_block") }),
                json!({ "type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning" }),
            ],
            Part::BlockDelta { id, text, .. } => {
                vec![json!({ "type": "REASONING_MESSAGE_CONTENT", "messageId": id, "delta": text })]
            }
            Part::BlockEnd { id, .. } => vec![
                json!({ "type": "REASONING_MESSAGE_END", "messageId": id }),
                json!({ "type": "REASONING_END", "messageId": format!("{id}_block") }),
            ],
            Part::StepStart { turn } => {
                vec![json!({ "type": "STEP_STARTED", "stepName": format!("turn {turn}") })]
            }
            Part::StepEnd { turn } => {
                vec![json!({ "type": "STEP_FINISHED", "stepName": format!("turn {turn}") })]
            }
            Part::CallStart { id, name } => vec![json!({
                "type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name,
                "parentMessageId": self.message,
            })],
            Part::CallArguments { id, text } => {
                vec![json!({ "type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": text })]
            }
            Part::CallEnd { id, arguments, has_deltas: false, .. } if !arguments.is_empty() => vec![
                json!({ "type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": arguments }),
                json!({ "type": "TOOL_CALL_END", "toolCallId": id }),
            ],
            Part::CallEnd { id, .. } | Part::CallVoid { id, .. } => {
                vec![json!({ "type": "TOOL_CALL_END", "toolCallId": id })]
            }
            Part::CallOutput { id, output, .. } => vec![json!({
                "type": "TOOL_CALL_RESULT", "messageId": format!("{id}_result"), "toolCallId": id,
                "content": output, "role": "tool",
            })],
            Part::Progress { id, progress } => vec![json!({
                "type": "ACTIVITY_SNAPSHOT", "messageId": format!("{id}_progress"), "activityType": "progress",
                "content": progress,
            })],
            Part::Agent { call, agent } => {
                vec![json!({ "type": "CUSTOM", "name": "agent", "value": { "call": call, "agent": agent } })]
            }
            Part::HandedOff { agent } => {
                vec![json!({ "type": "CUSTOM", "name": "handoff", "value": { "agent": agent } })]
            }
            Part::Approval { .. } | Part::Question { .. } | Part::Replied { .. } | Part::Pending { .. } => {
                vec![]
            }
            Part::Waits(waits) => {
                let interrupts: Vec<_> = waits.iter().filter_map(interrupt).collect();
                let outcome = if interrupts.is_empty() {
                    let results: Vec<_> = waits.into_iter().map(|wait| wait.path).collect();
                    json!({ "type": "success", "pendingToolCallIds": results })
                } else {
                    json!({ "type": "interrupt", "interrupts": interrupts })
                };
                vec![self.finished(outcome)]
            }
            Part::Finished { usage, .. } => {
                let mut finished = self.finished(json!({ "type": "success" }));
                finished["usage"] =
                    json!([{ "inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens }]);
                vec![finished]
            }
            Part::Failed { kind } => vec![json!({ "type": "RUN_ERROR", "message": kind })],
            Part::Cancelled => vec![self.finished(json!({ "type": "cancelled" }))],
        };
        out.extend(events.iter().map(Value::to_string));
    }
}

/// Returns the interrupt of a wait that a person ends. Naming `editedArgs` offers to change the arguments.
fn interrupt(wait: &Wait) -> Option<Value> {
    Some(match &wait.reason {
        WaitReason::Approval(_) => json!({
            "id": wait.id, "reason": "tool_call", "toolCallId": wait.path,
            "message": format!("`{}` needs approval", wait.tool),
            "responseSchema": {
                "type": "object",
                "properties": {
                    "approved": { "type": "boolean" },
                    "editedArgs": { "type": "object" },
                    "reason": { "type": "string" },
                },
                "required": ["approved"],
            },
        }),
        WaitReason::Answer(question) => json!({
            "id": wait.id, "reason": "input_required", "message": question.text(),
            "responseSchema": question.schema(),
        }),
        _ => return None,
    })
}
