//! From the entries of a run to what all protocols of frontends have: blocks of text, steps, calls and ends.

use std::collections::BTreeMap;

use tool_core::model::{FinishReason, Usage};
use tool_core::run::{Wait, WaitReason};
use tool_core::tool::{DecisionKind, DecisionRecord, Question, ToolErrorKind, ToolProgress, WaitId};
use tool_core::{Event, ToolExecution};

use crate::entry::{Decided, Entry, output};
use crate::sse::{Encoder, Stop};

/// A part of a protocol's stream. Blocks, steps and calls are closed before a stream ends.
#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    BlockStart { kind: Block, id: String },
    BlockDelta { kind: Block, id: String, text: String },
    BlockEnd { kind: Block, id: String },
    StepStart { turn: u32 },
    StepEnd { turn: u32 },
    CallStart { id: String, name: String },
    CallArguments { id: String, text: String },
    // The call is complete. Its arguments have been sent as deltas or not.
    CallEnd { id: String, name: String, arguments: String, has_deltas: bool },
    // The call was announced, and the model did not make it.
    CallVoid { id: String, name: String },
    CallOutput { id: String, status: CallStatus, output: String },
    Progress { id: String, progress: ToolProgress },
    // An agent inside works.
    Agent { call: String, agent: String },
    HandedOff { agent: String },
    // The call awaits approval.
    Approval { wait: WaitId, call: String },
    // The question has a reply.
    Replied { wait: WaitId, is_declined: bool },
    // A call asks a question.
    Question { wait: WaitId, question: Box<Question> },
    // The call goes on once what it waits for is decided.
    Pending { id: String },
    // The run waits.
    Waits(Vec<Wait>),
    Finished { reason: FinishReason, usage: Usage },
    Failed { kind: &'static str },
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallStatus {
    Succeeded,
    Failed,
    Denied,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    Text,
    Reasoning,
}

/// A protocol of frontends.
pub(crate) trait Protocol: Send + 'static {
    /// The text after the last event of a stream.
    const END: &str = "";

    /// Appends the JSON texts of the events for a part.
    fn write(&self, part: Part, out: &mut Vec<String>);
}

/// Encodes the entries of a run in a protocol.
#[derive(Debug)]
pub(crate) struct Encoding<P> {
    adapter: Adapter,
    protocol: P,
}

impl<P: Protocol> Encoding<P> {
    pub(crate) fn new(run: &str, protocol: P) -> Self {
        Self { adapter: Adapter { run: run.to_owned(), ..Adapter::default() }, protocol }
    }
}

impl<P: Protocol> Encoder for Encoding<P> {
    const END: &str = P::END;

    fn encode(&mut self, entry: &Entry, out: &mut Vec<String>) {
        let mut parts = Vec::new();
        self.adapter.convert(entry, &mut parts);
        parts.into_iter().for_each(|part| self.protocol.write(part, out));
    }

    fn stop(&mut self, stop: Stop, out: &mut Vec<String>) {
        let mut parts = Vec::new();
        self.adapter.stop(stop, &mut parts);
        parts.into_iter().for_each(|part| self.protocol.write(part, out));
    }
}

/// The state of a run's stream.
#[derive(Debug, Default)]
struct Adapter {
    run: String,
    /// The open block, and the number of blocks so far.
    block: Option<(Block, String)>,
    blocks: usize,
    /// The open step, and the one to open with the next content.
    step: Option<u32>,
    calls: BTreeMap<String, Call>,
    /// The ids of the calls of this turn that were announced, by their position in the reply.
    announced: BTreeMap<usize, String>,
    waits: Vec<Wait>,
}

#[derive(Debug, Default)]
struct Call {
    name: String,
    arguments: Option<String>,
    has_deltas: bool,
    has_output: bool,
}

impl Adapter {
    /// Converts an entry.
    fn convert(&mut self, entry: &Entry, out: &mut Vec<Part>) {
        match entry {
            Entry::Event(record) => self.convert_event(&record.event, out),
            Entry::Decided(Decided { call, record: DecisionRecord { wait, kind, .. } }) => {
                let is_question = self.waits.iter().any(|open| open.id == *wait && open.question().is_some());
                self.waits.retain(|open| open.id != *wait);
                match kind {
                    DecisionKind::Denied => self.output(call, CallStatus::Denied, String::new(), out),
                    DecisionKind::Answered | DecisionKind::Declined if is_question => {
                        let is_declined = *kind == DecisionKind::Declined;
                        out.push(Part::Replied { wait: wait.clone(), is_declined });
                    }
                    _ => {}
                }
            }
            Entry::Failed { kind, .. } => {
                self.close(out);
                out.push(Part::Failed { kind });
            }
            Entry::Cancelled => {
                self.close(out);
                out.push(Part::Cancelled);
            }
            Entry::Question { .. } => {}
        }
    }

    fn convert_event(&mut self, event: &Event, out: &mut Vec<Part>) {
        match event {
            Event::Text(text) | Event::Refusal(text) => self.delta(Block::Text, text, out),
            Event::Reasoning(text) => self.delta(Block::Reasoning, text, out),
            Event::TurnStarted { turn, .. } => {
                self.end_step(out);
                self.deny_rest(out);
                self.announced.clear();
                self.step = Some(*turn);
                out.push(Part::StepStart { turn: *turn });
            }
            Event::CallAnnounced { index, id, name, .. } => {
                self.end_block(out);
                // Some servers repeat ids, and leave them out; the call then has another one once it is ready.
                if !id.is_empty() && !self.calls.contains_key(id) {
                    self.announced.insert(*index, id.clone());
                    self.start_call(id, name, out);
                }
            }
            Event::Arguments { index, text, .. } => {
                if let Some(id) = self.announced.get(index)
                    && let Some(call) = self.calls.get_mut(id)
                    && !text.is_empty()
                {
                    call.has_deltas = true;
                    out.push(Part::CallArguments { id: id.clone(), text: text.clone() });
                }
            }
            Event::CallReady { call, .. } => self.ready(&call.id, &call.name, &call.arguments, out),
            Event::TurnFinished { .. } => {
                self.end_block(out);
                for id in std::mem::take(&mut self.announced).into_values() {
                    if let Some(call) = self.calls.get_mut(&id).filter(|call| call.arguments.is_none()) {
                        (call.arguments, call.has_output) = (Some(String::new()), true);
                        out.push(Part::CallVoid { id, name: call.name.clone() });
                    }
                }
            }
            Event::CallProgress { id, progress, .. } => {
                out.push(Part::Progress { id: id.clone(), progress: progress.clone() });
            }
            Event::CallFinished(execution) => self.finished(&execution.call().id, execution, out),
            Event::Agent { agent, call_id, event, .. } => self.inner(agent, call_id, event, out),
            Event::HandedOff { agent, .. } => out.push(Part::HandedOff { agent: agent.clone() }),
            Event::Waiting(waits) => {
                self.end_block(out);
                for wait in waits {
                    self.wait(wait, out);
                }
                self.waits.clone_from(waits);
                let is_asked =
                    |id: &String| waits.iter().any(|wait| wait.path == *id && wait.question().is_none());
                let open = self.calls.iter().filter(|(id, call)| !call.has_output && !is_asked(id));
                out.extend(open.map(|(id, _)| Part::Pending { id: id.clone() }));
                self.end_step(out);
            }
            Event::Done(answer) => {
                self.close(out);
                out.push(Part::Finished { reason: answer.finish_reason().clone(), usage: answer.usage() });
            }
            _ => {}
        }
    }

    /// Ends the stream of a run that has not ended.
    fn stop(&mut self, stop: Stop, out: &mut Vec<Part>) {
        self.end_step(out);
        out.push(match stop {
            Stop::Waits => Part::Waits(self.waits.clone()),
            Stop::Cut => Part::Failed { kind: "the stream was interrupted; read it again" },
        });
    }

    /// Shows what a call waits for, once.
    fn wait(&mut self, wait: &Wait, out: &mut Vec<Part>) {
        let is_new = !self.waits.contains(wait);
        match &wait.reason {
            WaitReason::Approval(call) | WaitReason::CallerResult(call) => {
                // A call inside an agent has not been shown before.
                self.ready(&wait.path, &wait.tool, &call.arguments, out);
                if is_new && matches!(wait.reason, WaitReason::Approval(_)) {
                    out.push(Part::Approval { wait: wait.id.clone(), call: wait.path.clone() });
                }
            }
            WaitReason::Answer(question) if is_new => {
                out.push(Part::Question { wait: wait.id.clone(), question: question.clone().into() });
            }
            _ => {}
        }
    }

    fn delta(&mut self, kind: Block, text: &str, out: &mut Vec<Part>) {
        if text.is_empty() {
            return;
        }
        let id = match &self.block {
            Some((open, id)) if *open == kind => id.clone(),
            _ => {
                self.end_block(out);
                self.blocks += 1;
                let id = format!("{}_{}", self.run, self.blocks);
                out.push(Part::BlockStart { kind, id: id.clone() });
                self.block = Some((kind, id.clone()));
                id
            }
        };
        out.push(Part::BlockDelta { kind, id, text: text.to_owned() });
    }

    fn end_block(&mut self, out: &mut Vec<Part>) {
        out.extend(self.block.take().map(|(kind, id)| Part::BlockEnd { kind, id }));
    }

    fn end_step(&mut self, out: &mut Vec<Part>) {
        self.end_block(out);
        out.extend(self.step.take().map(|turn| Part::StepEnd { turn }));
    }

    /// Closes everything before the end of the run.
    fn close(&mut self, out: &mut Vec<Part>) {
        self.end_block(out);
        self.deny_rest(out);
        self.end_step(out);
    }

    fn start_call(&mut self, id: &str, name: &str, out: &mut Vec<Part>) {
        let call = Call { name: name.to_owned(), ..Call::default() };
        self.calls.insert(id.to_owned(), call);
        out.push(Part::CallStart { id: id.to_owned(), name: name.to_owned() });
    }

    /// Shows a complete call, unless it was shown with these arguments.
    fn ready(&mut self, id: &str, name: &str, arguments: &str, out: &mut Vec<Part>) {
        self.end_block(out);
        if !self.calls.contains_key(id) {
            self.start_call(id, name, out);
        }
        let Some(call) = self.calls.get_mut(id).filter(|call| call.arguments.is_none()) else { return };
        call.arguments = Some(arguments.to_owned());
        out.push(Part::CallEnd {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            has_deltas: call.has_deltas,
        });
    }

    fn finished(&mut self, id: &str, execution: &ToolExecution, out: &mut Vec<Part>) {
        let call = execution.call();
        self.ready(id, &call.name, &call.arguments, out);
        let status = match execution.outcome() {
            Ok(_) => CallStatus::Succeeded,
            Err(error) if error.kind() == ToolErrorKind::Denied => CallStatus::Denied,
            Err(_) => CallStatus::Failed,
        };
        self.output(id, status, output(execution), out);
    }

    fn output(&mut self, id: &str, status: CallStatus, output: String, out: &mut Vec<Part>) {
        if let Some(call) = self.calls.get_mut(id).filter(|call| !call.has_output) {
            call.has_output = true;
            out.push(Part::CallOutput { id: id.to_owned(), status, output });
        }
    }

    /// Shows the end of calls that awaited approval and have no outcome of their own: they were denied elsewhere.
    fn deny_rest(&mut self, out: &mut Vec<Part>) {
        for wait in std::mem::take(&mut self.waits) {
            if matches!(wait.reason, WaitReason::Approval(_)) {
                self.output(&wait.path, CallStatus::Denied, "denied".to_owned(), out);
            }
        }
    }

    /// Converts an event of an agent inside. Only calls that were shown, because they awaited approval, have more than a sign.
    fn inner(&mut self, agent: &str, path: &str, event: &Event, out: &mut Vec<Part>) {
        match event {
            Event::Agent { agent, call_id, event, .. } => {
                self.inner(agent, &format!("{path}/{call_id}"), event, out);
            }
            Event::CallFinished(execution) => {
                let id = format!("{path}/{}", execution.call().id);
                if self.calls.contains_key(&id) {
                    self.finished(&id, execution, out);
                }
            }
            Event::TurnStarted { .. } => {
                out.push(Part::Agent { call: path.to_owned(), agent: agent.to_owned() });
            }
            _ => {}
        }
    }
}
