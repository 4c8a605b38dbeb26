//! What is known about a run in progress.

use std::collections::{BTreeMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;

use restate_sdk::context::DurableFuture;
use restate_sdk::prelude::*;
use tool_core::ToolCall;
use tool_core::agent::EventRecord;
use tool_core::engine::{EffectId, RunPath};
use tool_core::model::ConversationId;
use tool_core::run::{Decision, Run, UserMessage};
use tool_core::signatures::Timestamp;
use tool_core::store::{MessageVolume, RunEvents};
use tool_core::tool::{ToolExecution, WaitId};

use crate::calls::Calls;
use crate::clock::Clock;
use crate::names::{EventTarget, JsonContext, Sent};
use crate::settings::Settings;
use crate::step::Steps;
use crate::tools::Deployed;

/// The agent of a workflow and the settings of its worker.
pub(crate) struct Setup {
    pub(crate) name: String,
    pub(crate) steps: Steps,
    pub(crate) calls: Calls,
    pub(crate) settings: Arc<Settings>,
}

/// A run in progress, with the runs of the agents that its calls ask.
pub(crate) struct Drive<'c> {
    pub(super) setup: &'c Setup,
    pub(super) ctx: &'c WorkflowContext<'c>,
    /// The outermost run, whose state contains the others.
    pub(super) run: Run,
    /// The agent's tools when the run started.
    pub(super) started_with: BTreeMap<String, String>,
    /// What is known about each run that was started, by its id.
    pub(super) nodes: BTreeMap<String, Node>,
    /// The calls in flight, by their positions among what is pending.
    pub(super) in_flight: BTreeMap<usize, OpenCall>,
    pub(super) open: Open<'c>,
    pub(super) context: JsonContext,
    pub(super) conversation: Option<ConversationId>,
    pub(super) clock: Clock,
    /// The object that stores the events of the run and its steps, if there may be readers.
    pub(super) events: Option<EventTarget>,
    /// What has happened in the run, if there may be readers.
    pub(super) recorded: Option<RunEvents>,
    pub(super) unpublished: Vec<EventRecord>,
    /// What is known to wait for a decision.
    pub(super) waiting: Vec<WaitId>,
    /// The number of times that the run waited for a decision.
    pub(super) round: u32,
    /// The number of messages that have reached the run.
    pub(super) messages: u32,
    /// How much users have sent, as the handlers of the run know it.
    pub(super) message_volume: MessageVolume,
    /// The time at which the run last looked for messages, or began.
    pub(super) messages_checked_at: u64,
    /// The reason of a failure that is not one of the run's rules.
    pub(super) failure: Option<String>,
}

/// What is known about a run beside its state.
pub(super) struct Node {
    pub(super) deployed: Deployed,
    /// The names of all tools of the last turn, if it called another one.
    pub(super) offered: Vec<String>,
}

impl Node {
    pub(super) fn new(deployed: Deployed) -> Self {
        Self { deployed, offered: Vec::new() }
    }
}

pub(super) type Pending<'c> =
    Pin<Box<dyn DurableFuture<Output = Result<Arrived, TerminalError>> + Send + 'c>>;

/// Something for which a run with open calls waits.
pub(super) enum Arrived {
    Executed(ToolExecution),
    /// The delay before an agent is asked is over.
    Delayed,
    Decision(WaitId, Sent<Decision>),
    Message(Sent<UserMessage>),
    /// The time of a run is up.
    TimeLimit,
    /// A deadline of something that the run waits for has come.
    Deadline(Timestamp),
}

/// A call that was started, and for whose outcome the run waits.
pub(super) struct OpenCall {
    pub(super) id: EffectId,
    pub(super) call: ToolCall,
    pub(super) executor: Executor,
}

/// What a call in flight waits for.
pub(super) enum Executor {
    /// Another invocation executes it.
    Invocation(Option<InvocationHandle>),
    /// The agent is asked after a delay.
    Delay,
}

impl OpenCall {
    /// Returns `true` if the call undoes another one.
    pub(super) fn undoes(&self, outermost: &Run) -> bool {
        outermost.engine_view().inner_run_at(self.id.path().calls()).is_some_and(Run::is_undoing)
    }
}

/// What is pending.
#[derive(Default)]
pub(super) struct Open<'c> {
    pub(super) pending: DurableFuturesUnordered<Pending<'c>>,
    /// The waits about which a person was asked.
    pub(super) asked: HashSet<WaitId>,
    /// The number of the next message, once it is awaited.
    pub(super) awaited_message: Option<u32>,
    /// The earliest deadline for which a timer is set.
    pub(super) deadline: Option<Timestamp>,
    /// The position of the timer for the run whose time is up first, with this time and the way to the run.
    pub(super) time_limit: Option<(usize, (u64, RunPath))>,
}

/// The reason that driving stops in the middle of something.
pub(super) enum DriveError {
    /// The run was cancelled. The invocation goes on, and undoes the calls of the run.
    Cancelled,
    /// The invocation fails, or its recorded step.
    Failed(TerminalError),
}

pub(super) type Driven<T = ()> = Result<T, DriveError>;

/// The code of the error with which the engine reports a cancellation.
const CANCELLED: u16 = 409;

impl From<TerminalError> for DriveError {
    fn from(error: TerminalError) -> Self {
        match error.code() {
            CANCELLED => Self::Cancelled,
            _ => Self::Failed(error),
        }
    }
}
