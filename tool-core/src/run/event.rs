//! The events of a run.

use std::fmt;

use super::answer::Answer;
use super::wait::Wait;
use crate::model::{ChatResponse, Cost, ToolCall};
use crate::tool::{CallDecision, ToolExecution, ToolProgress};

/// An event on the way to an answer.
#[derive(Clone)]
#[non_exhaustive]
pub enum Event {
    /// The run takes a message of the user: the question, or what was [said](crate::Agent::say) later. Layers have judged it, and may have
    /// rewritten it.
    #[non_exhaustive]
    Question {
        /// The text that the model reads.
        text: String,
        /// Who sent it, if it was said with a name.
        by: Option<String>,
    },
    /// What the model need not read again was [hidden](crate::agent::Compaction) from it: the outputs of this many calls, or the first
    /// messages, of which a summary takes the place.
    #[non_exhaustive]
    Compacted {
        /// The number of outputs.
        outputs: usize,
        /// The number of messages. Instructions and the question are among them, and stay.
        messages: usize,
    },
    /// A request is sent to the model. A turn that starts again replaces what was emitted of it, because its request was given up.
    #[non_exhaustive]
    TurnStarted {
        /// The number of the turn, starting at 1.
        turn: u32,
        /// The number of messages in the request.
        messages: usize,
    },
    /// A delta of the model's text, or the text that tools [return directly](crate::model::ReturnDirect).
    Text(String),
    /// A delta of the model's reasoning, if the provider sends it.
    Reasoning(String),
    /// A delta of the model's refusal.
    Refusal(String),
    /// The model has started to write a call.
    #[non_exhaustive]
    CallAnnounced {
        /// The position of the call in the reply.
        index: usize,
        /// The id that the model gave the call. Some servers do not make it unique; the id in
        /// [`CallReady`](Self::CallReady), which has the same index, is.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// A delta of a call's arguments.
    #[non_exhaustive]
    Arguments {
        /// The position of the call in the reply.
        index: usize,
        /// A chunk of the JSON text.
        text: String,
    },
    /// A call is complete. It will be executed, by the run or by the caller, unless it is denied.
    #[non_exhaustive]
    CallReady {
        /// The position in the reply at which the call was [announced](Self::CallAnnounced). A call that some models write for
        /// several others is announced once, and becomes several.
        index: usize,
        /// The call, with its final id.
        call: ToolCall,
    },
    /// The model's reply is complete.
    #[non_exhaustive]
    TurnFinished {
        /// The number of the turn, starting at 1.
        turn: u32,
        /// The reply, with the tokens used if the provider reports them.
        response: ChatResponse,
    },
    /// A request to a model cost this, or may have. It is emitted for requests that failed, too, of agents with
    /// [prices](crate::agent::AgentBuilder::prices).
    Charged(Cost),
    /// The execution of a call starts.
    CallStarted(ToolCall),
    /// A tool reports its progress.
    #[non_exhaustive]
    CallProgress {
        /// The id of the call.
        id: String,
        /// The tool's name.
        name: String,
        /// The reported progress.
        progress: ToolProgress,
    },
    /// A call failed and will be retried.
    CallRetried(ToolExecution),
    /// Something was decided about a call that waited: by a person, by the program, or because its time was up. It is also emitted for what
    /// was decided while nobody drove the run, by the next driver; if that driver's process dies before it has stored the run, again.
    CallDecided(CallDecision),
    /// A call has finished, with its outcome, its duration, the repairs to its arguments and the
    /// [decisions](ToolExecution::decisions) about it. A call that was denied, refused or answered from an earlier one was not
    /// started. A denial that was recorded while nobody drove the run is only a [decision](Self::CallDecided).
    CallFinished(ToolExecution),
    /// Nothing is left to do until these waits are [resolved](crate::run::Run::resolve).
    Waiting(Vec<Wait>),
    /// An event of an agent that a call [asked](crate::Agent::as_tool). The events of agents that it asked in turn are nested.
    /// A stream contains the deltas of the agent's replies only [if that was requested](crate::agent::AgentTool::stream_text),
    /// and not its end, which the end of the call reports.
    #[non_exhaustive]
    Agent {
        /// The name of the tool by which the agent was called.
        agent: String,
        /// The id of the call.
        call_id: String,
        /// The event.
        event: Box<Event>,
    },
    /// The run was [handed off](crate::agent::AgentBuilder::handoff_to): the following turns are of another agent.
    #[non_exhaustive]
    HandedOff {
        /// The name of the tool by which the run was handed off.
        agent: String,
    },
    /// The answer; always the last event.
    Done(Answer),
    /// The run ended without an answer or cannot continue for now; carries the text of the error. Only
    /// [hooks](crate::agent::AgentBuilder::on_event) receive it, as a stream ends with the error itself.
    Failed(String),
    /// An event of a kind that this version does not know. Only [records](crate::agent::EventRecord) that a later version wrote
    /// contain it.
    Unknown,
}

impl Event {
    /// Creates the event of a request.
    #[must_use]
    pub fn turn_started(turn: u32, messages: usize) -> Self {
        Self::TurnStarted { turn, messages }
    }

    /// Creates the event of a complete reply.
    #[must_use]
    pub fn turn_finished(turn: u32, response: ChatResponse) -> Self {
        Self::TurnFinished { turn, response }
    }

    /// Creates the event of a complete call.
    #[must_use]
    pub fn call_ready(index: usize, call: ToolCall) -> Self {
        Self::CallReady { index, call }
    }

    /// Creates the event of a report.
    pub fn call_progress(id: impl Into<String>, name: impl Into<String>, progress: ToolProgress) -> Self {
        Self::CallProgress { id: id.into(), name: name.into(), progress }
    }

    /// Creates the event of an attempt that failed and is repeated. `is_judged` if layers see outputs.
    #[must_use]
    pub fn call_retried(execution: &ToolExecution, is_judged: bool) -> Self {
        Self::CallRetried(execution.of_failed_attempt(is_judged))
    }

    /// Creates the event of a handoff to another agent.
    pub fn handed_off(agent: impl Into<String>) -> Self {
        Self::HandedOff { agent: agent.into() }
    }

    /// Converts the event of an agent that a call asked into one of the outer run.
    #[must_use]
    pub fn inside(self, agent: impl Into<String>, call_id: impl Into<String>) -> Self {
        Self::Agent { agent: agent.into(), call_id: call_id.into(), event: Box::new(self) }
    }
}

/// Shows sizes instead of texts, because conversations are private.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Question { text, .. } => write!(f, "Question({} bytes)", text.len()),
            Self::Compacted { outputs, messages } => {
                write!(f, "Compacted({outputs} outputs, {messages} messages)")
            }
            Self::TurnStarted { turn, messages } => write!(f, "TurnStarted({turn}, {messages} messages)"),
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Reasoning(text) => write!(f, "Reasoning({} bytes)", text.len()),
            Self::Refusal(text) => write!(f, "Refusal({} bytes)", text.len()),
            Self::CallAnnounced { index, id, name } => write!(f, "CallAnnounced({index}, {id}, {name})"),
            Self::Arguments { index, text } => write!(f, "Arguments({index}, {} bytes)", text.len()),
            Self::CallReady { index, call } => write!(f, "CallReady({index}, {call:?})"),
            Self::CallProgress { id, name, progress } => {
                write!(f, "CallProgress({id}, {name}, {progress:?})")
            }
            Self::CallRetried(execution) => f.debug_tuple("CallRetried").field(execution).finish(),
            Self::Waiting(waits) => f.debug_tuple("Waiting").field(waits).finish(),
            Self::Failed(text) => write!(f, "Failed({} bytes)", text.len()),
            Self::TurnFinished { turn, .. } => write!(f, "TurnFinished({turn})"),
            Self::Charged(cost) => f.debug_tuple("Charged").field(cost).finish(),
            Self::CallStarted(call) => f.debug_tuple("CallStarted").field(call).finish(),
            Self::CallDecided(decision) => f.debug_tuple("CallDecided").field(decision).finish(),
            Self::CallFinished(execution) => f.debug_tuple("CallFinished").field(execution).finish(),
            Self::Agent { agent, call_id, event } => write!(f, "Agent({agent}, {call_id}, {event:?})"),
            Self::HandedOff { agent } => write!(f, "HandedOff({agent})"),
            Self::Done(answer) => f.debug_tuple("Done").field(answer).finish(),
            Self::Unknown => f.write_str("Unknown"),
        }
    }
}
