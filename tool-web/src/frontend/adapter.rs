//! From the entries of a run to what all protocols of frontends have: blocks of text, steps, calls and ends.
//!
//! One adapter has the state of a stream. Its parts are serialized as the Vercel AI SDK has them, and AG-UI translates them.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tool_core::engine::AgentExt;
use tool_core::model::{AssistantMessage, FinishReason, Usage};
use tool_core::provider::ToolKind;
use tool_core::run::{Wait, WaitReason};
use tool_core::signatures::{DecisionKind, DecisionRecord, ToolProgress};
use tool_core::tool::{Question, ToolErrorKind, WaitId};
use tool_core::{Agent, Event, Tool, ToolExecution};

use crate::entry::{Entry, output};

/// A part of a stream. Blocks, steps and calls are closed before a stream ends.
///
/// Its serialized form is the chunk of the Vercel AI SDK's UI message stream, where that has one of the same content. Other
/// protocols translate the parts.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub(crate) enum Part {
    TextStart { id: String },
    TextDelta { id: String, delta: String },
    TextEnd { id: String },
    ReasoningStart { id: String },
    ReasoningDelta { id: String, delta: String },
    ReasoningEnd { id: String },
    StepStart { turn: u32 },
    StepEnd { turn: u32 },
    ToolInputStart { tool_call_id: String, tool_name: String },
    ToolInputDelta { tool_call_id: String, input_text_delta: String },
    // The arguments of a call that had no deltas.
    Arguments { call: String, text: String },
    // The call is complete.
    ToolInputAvailable { tool_call_id: String, tool_name: String, input: Json },
    // The call was announced, and the model did not make it.
    ToolInputError { tool_call_id: String, tool_name: String, input: Json, error_text: &'static str },
    ToolOutputAvailable { tool_call_id: String, output: Json },
    ToolOutputError { tool_call_id: String, error_text: String },
    Denied { call: String, text: String },
    Progress { call: String, progress: ToolProgress },
    // An agent inside works.
    Agent { call: String, agent: String },
    HandedOff { agent: String },
    ToolApprovalRequest { approval_id: WaitId, tool_call_id: String },
    // A call asks a question.
    Question { wait: WaitId, question: Box<Question> },
    // The question has a reply.
    Replied { wait: WaitId, is_declined: bool },
    // The call goes on once what it waits for is decided.
    Pending { call: String },
    // The run waits.
    Waits { waits: Vec<Wait> },
    Finished { reason: FinishReason, usage: Usage },
    Error { error_text: &'static str },
    Abort { reason: &'static str },
}

/// A text that is serialized as the JSON that it contains, with every digit. One that contains no JSON is serialized as a string, and
/// so is one with members that clients refuse because they could change JavaScript's objects.
#[derive(Debug)]
pub(crate) struct Json(pub(crate) String);

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Written anew, names of members have no escapes.
        let json = serde_json::from_str::<Value>(&self.0).map(|value| value.to_string());
        if !json.is_ok_and(|json| !json.contains("\"__proto__\":") && !json.contains("\"constructor\":")) {
            return self.0.serialize(serializer);
        }
        // Outside of strings, line breaks are spaces, and strings have none. They would end the line of the event.
        let line = self.0.replace(['\n', '\r'], " ");
        RawValue::from_string(line).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

/// What the user of a browser may do: who executes the calls that the run itself does not execute, and who approves calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Executors {
    /// The tools that the browser offered, or that are left to it.
    pub(crate) browser: HashSet<String>,
    /// Tools of the agent whose calls the application executes, and whether somebody approves them first. Their arguments are not for the
    /// browser, except for a user who approves them.
    pub(crate) application: HashMap<String, bool>,
    /// The tools of the agent whose calls the user approves.
    pub(crate) approvable: HashSet<String>,
    /// The user approves each call, also with other arguments.
    pub(crate) decides: bool,
}

impl Executors {
    /// Adds the external tools of an agent, and of those that it hands runs over to. A person who approves their calls sees the arguments.
    pub(crate) fn add_application_tools(&mut self, agent: &Agent) {
        let tools = agent.tools().iter().map(Tool::definition);
        let external = tools.filter(|tool| tool.kind() == ToolKind::Caller);
        self.application.extend(external.map(|tool| (tool.name().to_owned(), tool.policy().needs_approval)));
        agent.handoffs().for_each(|(_, next)| self.add_application_tools(next));
    }

    /// Returns `true` if the user may end a wait: never with the result of a call that the application executes, and with approvals only
    /// of named tools. The tools of an agent inside can have the same names, so its calls are neither.
    pub(crate) fn may_end(&self, wait: &Wait) -> bool {
        let is_one_of = |names: &HashSet<String>| names.contains(&wait.tool) && !wait.path.contains('/');
        match wait.reason {
            WaitReason::CallerResult(_) => is_one_of(&self.browser),
            WaitReason::Approval(_) => self.decides || is_one_of(&self.approvable),
            _ => true,
        }
    }

    /// Returns the arguments of a call of the run, as the browser may see them.
    pub(crate) fn visible<'a>(&self, tool: &str, arguments: &'a str) -> &'a str {
        let approves = || self.decides || self.approvable.contains(tool);
        let is_hidden =
            self.application.get(tool).is_some_and(|needs_approval| !(*needs_approval && approves()));
        if is_hidden { "{}" } else { arguments }
    }
}

/// The state of a run's stream, which collects its parts.
#[derive(Debug, Default)]
pub(crate) struct Adapter {
    run: String,
    executors: Executors,
    /// The parts that have not been taken yet.
    pub(crate) parts: Vec<Part>,
    /// The open block of text or reasoning, and the number of blocks so far.
    block: Option<(Block, String)>,
    blocks: usize,
    /// The open step.
    step: Option<u32>,
    sent: Sent,
    calls: BTreeMap<String, Call>,
    /// The ids and tools of the calls of this turn that were announced, by their position in the reply.
    announced: BTreeMap<usize, (String, String)>,
    waits: Vec<Wait>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Text,
    Reasoning,
}

/// What was sent of the present reply.
#[derive(Debug, Default)]
struct Sent {
    reasoning: usize,
    text: usize,
    /// The text, once the reply is complete.
    reply: String,
}

/// What was sent of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Started { has_deltas: bool },
    Complete,
    HasOutput,
}

impl Adapter {
    pub(crate) fn new(run: &str, executors: Executors) -> Self {
        Self { run: run.to_owned(), executors, ..Self::default() }
    }

    /// Converts an entry.
    pub(crate) fn convert(&mut self, entry: &Entry) {
        match entry {
            Entry::Event(record) => self.convert_event(&record.event),
            Entry::Failed(failure) => self.end(Part::Error { error_text: failure.kind() }),
            Entry::Cancelled => self.end(Part::Abort { reason: "cancelled" }),
        }
    }

    /// Begins another message of the assistant. What calls return that were shown in the one before is not shown.
    pub(crate) fn begin_message(&mut self) {
        self.calls.values_mut().for_each(|call| *call = Call::HasOutput);
    }

    /// Shows the end of a wait of the call with this path.
    fn decided(&mut self, path: &str, DecisionRecord { wait, kind, .. }: &DecisionRecord) {
        let is_question = self.waits.iter().any(|open| open.id == *wait && open.question().is_some());
        self.waits.retain(|open| open.id != *wait);
        match kind {
            // What a provider inside asks has the path of the agent's call, which goes on.
            DecisionKind::Denied if !is_question => self.deny(path, String::new()),
            DecisionKind::Answered | DecisionKind::Declined | DecisionKind::Denied if is_question => {
                let is_declined = *kind != DecisionKind::Answered;
                self.parts.push(Part::Replied { wait: wait.clone(), is_declined });
            }
            _ => {}
        }
    }

    fn convert_event(&mut self, event: &Event) {
        match event {
            Event::Text(text) | Event::Refusal(text) => self.delta(Block::Text, text),
            Event::Reasoning(text) => self.delta(Block::Reasoning, text),
            Event::TurnStarted { turn, .. } => {
                self.end_step();
                self.deny_rest();
                self.announced.clear();
                self.step = Some(*turn);
                self.sent = Sent::default();
                self.parts.push(Part::StepStart { turn: *turn });
            }
            Event::CallAnnounced { index, id, name, .. } => {
                self.end_block();
                // Some servers repeat ids, and leave them out; the call then has another one once it is ready.
                if !id.is_empty() && !self.calls.contains_key(id) {
                    self.announced.insert(*index, (id.clone(), name.clone()));
                    self.start_call(id, name);
                }
            }
            Event::Arguments { index, text, .. } => {
                let shown =
                    self.announced.get(index).filter(|(_, name)| self.executors.visible(name, text) == text);
                if let Some((id, _)) = shown.filter(|_| !text.is_empty())
                    && let Some(call @ Call::Started { .. }) = self.calls.get_mut(id)
                {
                    *call = Call::Started { has_deltas: true };
                    let (tool_call_id, input_text_delta) = (id.clone(), text.clone());
                    self.parts.push(Part::ToolInputDelta { tool_call_id, input_text_delta });
                }
            }
            Event::CallReady { call, .. } => {
                let arguments = self.executors.visible(&call.name, &call.arguments);
                self.ready(&call.id, &call.name, arguments);
            }
            Event::TurnFinished { response, .. } => {
                self.complete(&response.message);
                self.end_block();
                for (id, tool_name) in std::mem::take(&mut self.announced).into_values() {
                    if let Some(call @ Call::Started { .. }) = self.calls.get_mut(&id) {
                        *call = Call::HasOutput;
                        let (input, error_text) = (Json(String::new()), "the call was not executed");
                        self.parts.push(Part::ToolInputError {
                            tool_call_id: id,
                            tool_name,
                            input,
                            error_text,
                        });
                    }
                }
            }
            Event::CallProgress { id, progress, .. } => {
                self.parts.push(Part::Progress { call: id.clone(), progress: progress.clone() });
            }
            Event::CallFinished(execution) => self.finished(&execution.call().id, execution),
            Event::CallDecided(decision) => self.decided(&decision.call_id, &decision.record),
            Event::Agent { agent, call_id, event, .. } => self.inner(agent, call_id, event),
            Event::HandedOff { agent, .. } => {
                // The tools of the other agent can have the same names.
                self.executors.approvable.clear();
                self.parts.push(Part::HandedOff { agent: agent.clone() });
            }
            Event::Waiting(waits) => {
                self.end_block();
                waits.iter().for_each(|wait| self.wait(wait));
                self.waits.clone_from(waits);
                let is_open = |wait: &Wait| wait.question().is_none() && self.executors.may_end(wait);
                let is_asked = |id: &String| waits.iter().any(|wait| wait.path == *id && is_open(wait));
                let open = self.calls.iter().filter(|(id, call)| **call != Call::HasOutput && !is_asked(id));
                self.parts.extend(open.map(|(id, _)| Part::Pending { call: id.clone() }));
                self.end_step();
            }
            Event::Done(answer) => {
                if self.sent.reply != answer.text() {
                    // Of tools, or of a layer in place of the model.
                    self.delta(Block::Text, answer.text());
                }
                let reason = answer.finish_reason().clone();
                self.end(Part::Finished { reason, usage: answer.usage() });
            }
            _ => {}
        }
    }

    /// Shows what a call waits for, once.
    fn wait(&mut self, wait: &Wait) {
        let is_new = !self.waits.contains(wait);
        match &wait.reason {
            WaitReason::Approval(call) | WaitReason::CallerResult(call) if self.executors.may_end(wait) => {
                // A call inside an agent has not been shown before.
                self.ready(&wait.path, &wait.tool, &call.arguments);
                if is_new && matches!(wait.reason, WaitReason::Approval(_)) {
                    let (approval_id, tool_call_id) = (wait.id.clone(), wait.path.clone());
                    self.parts.push(Part::ToolApprovalRequest { approval_id, tool_call_id });
                }
            }
            WaitReason::Answer(question) if is_new => {
                self.parts.push(Part::Question { wait: wait.id.clone(), question: question.clone().into() });
            }
            _ => {}
        }
    }

    /// Shows what was not shown of a reply: deltas are shown only where the run is driven, and not to a client that comes later.
    fn complete(&mut self, reply: &AssistantMessage) {
        let reasoning = reply.reasoning.as_deref().unwrap_or_default();
        let text = [&*reply.text, reply.refusal.as_deref().unwrap_or_default()].concat();
        let (reasoning_sent, text_sent) = (self.sent.reasoning, self.sent.text);
        self.delta(Block::Reasoning, reasoning.get(reasoning_sent..).unwrap_or_default());
        self.delta(Block::Text, text.get(text_sent..).unwrap_or_default());
        self.sent.reply.clone_from(&reply.text);
    }

    fn delta(&mut self, kind: Block, text: &str) {
        if text.is_empty() {
            return;
        }
        match kind {
            Block::Text => self.sent.text += text.len(),
            Block::Reasoning => self.sent.reasoning += text.len(),
        }
        if self.block.as_ref().is_none_or(|(open, _)| *open != kind) {
            self.end_block();
            self.blocks += 1;
        }
        let (id, delta) = (format!("{}_{}", self.run, self.blocks), text.to_owned());
        if self.block.is_none() {
            self.block = Some((kind, id.clone()));
            let id = id.clone();
            self.parts.push(match kind {
                Block::Text => Part::TextStart { id },
                Block::Reasoning => Part::ReasoningStart { id },
            });
        }
        self.parts.push(match kind {
            Block::Text => Part::TextDelta { id, delta },
            Block::Reasoning => Part::ReasoningDelta { id, delta },
        });
    }

    fn end_block(&mut self) {
        self.parts.extend(self.block.take().map(|(kind, id)| match kind {
            Block::Text => Part::TextEnd { id },
            Block::Reasoning => Part::ReasoningEnd { id },
        }));
    }

    pub(crate) fn end_step(&mut self) {
        self.end_block();
        self.parts.extend(self.step.take().map(|turn| Part::StepEnd { turn }));
    }

    /// Closes everything before the end of the run.
    fn end(&mut self, last: Part) {
        self.end_block();
        self.deny_rest();
        self.end_step();
        self.parts.push(last);
    }

    fn start_call(&mut self, id: &str, name: &str) {
        self.calls.insert(id.to_owned(), Call::Started { has_deltas: false });
        self.parts.push(Part::ToolInputStart { tool_call_id: id.to_owned(), tool_name: name.to_owned() });
    }

    /// Shows a complete call, unless it was shown.
    fn ready(&mut self, id: &str, name: &str, arguments: &str) {
        self.end_block();
        if !self.calls.contains_key(id) {
            self.start_call(id, name);
        }
        let Some(&Call::Started { has_deltas }) = self.calls.get(id) else { return };
        self.calls.insert(id.to_owned(), Call::Complete);
        let (tool_call_id, text) = (id.to_owned(), arguments.to_owned());
        if !has_deltas {
            self.parts.push(Part::Arguments { call: tool_call_id.clone(), text: text.clone() });
        }
        self.parts.push(Part::ToolInputAvailable {
            tool_call_id,
            tool_name: name.to_owned(),
            input: Json(text),
        });
    }

    fn finished(&mut self, id: &str, execution: &ToolExecution) {
        let call = execution.call();
        self.ready(id, &call.name, self.executors.visible(&call.name, &call.arguments));
        let (tool_call_id, text) = (id.to_owned(), output(execution));
        match execution.outcome() {
            Ok(_) => self.output(id, Part::ToolOutputAvailable { tool_call_id, output: Json(text) }),
            Err(error) if error.kind() == ToolErrorKind::Denied => self.deny(id, text),
            Err(_) => self.output(id, Part::ToolOutputError { tool_call_id, error_text: text }),
        }
    }

    /// Returns what the browser may end.
    pub(crate) fn open_waits(&self) -> Vec<Wait> {
        self.waits.iter().filter(|wait| self.executors.may_end(wait)).cloned().collect()
    }

    fn deny(&mut self, id: &str, text: String) {
        self.output(id, Part::Denied { call: id.to_owned(), text });
    }

    fn output(&mut self, id: &str, part: Part) {
        if let Some(call) = self.calls.get_mut(id).filter(|call| **call != Call::HasOutput) {
            *call = Call::HasOutput;
            self.parts.push(part);
        }
    }

    /// Shows the end of calls that awaited approval and have no outcome of their own: they were denied elsewhere.
    fn deny_rest(&mut self) {
        for wait in std::mem::take(&mut self.waits) {
            if matches!(wait.reason, WaitReason::Approval(_)) {
                self.deny(&wait.path, "denied".to_owned());
            }
        }
    }

    /// Converts an event of an agent inside. Calls that were never shown for approval produce only a marker.
    fn inner(&mut self, agent: &str, path: &str, event: &Event) {
        match event {
            Event::Agent { agent, call_id, event, .. } => {
                self.inner(agent, &format!("{path}/{call_id}"), event);
            }
            Event::CallFinished(execution) => {
                let id = format!("{path}/{}", execution.call().id);
                if self.calls.contains_key(&id) {
                    self.finished(&id, execution);
                }
            }
            Event::CallDecided(decision) => {
                self.decided(&format!("{path}/{}", decision.call_id), &decision.record);
            }
            Event::TurnStarted { .. } => {
                self.parts.push(Part::Agent { call: path.to_owned(), agent: agent.to_owned() });
            }
            _ => {}
        }
    }
}
