//! The data of a run: the calls of its current turn are part of it, and the runs of the agents that these ask.
//!
//! The types are in one file because each contains the next, and the last contains the first.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::amendment::Amendment;
use super::cache_use::CacheUse;
use super::call_index::CallIndex;
use super::call_state::CallState;
use super::compaction::{CompactionRecord, ContextSize};
use super::effect::{Awaited, Effect, EffectId, RunPath};
use super::handoff::Handoff;
use super::history::History;
use super::id::RunId;
use super::revision::{Format, StoredState};
use super::settings::{Settings, is_default};
use super::shared_cache::SharedCache;
use super::shared_vec::SharedVec;
use super::stop_reason::StopReason;
use super::user_message::UserMessage;
use crate::model::{
    AssistantMessage, ChatResponse, ConversationId, Cost, FinishReason, Message, RunUser, TokensPerText,
    ToolCall, ToolDefinition, ToolDefinitions, ToolKind, ToolPolicy, Usage,
};
use crate::tool::{
    CallDecision, CallHistory, CallNotes, CallRequest, DecisionRecord, ProviderNotes, Timestamp,
    ToolExecution, VerdictRecord,
};

/// A state machine for the loop between a model and its tools.
///
/// A run determines the next step, records its result, and holds all the state that is needed to continue. It does no I/O and contains neither the
/// model nor the tools. It can therefore be serialized between any two steps, stored, and driven further elsewhere. It never asks for work
/// that it has recorded.
///
/// [`Agent::ask`](crate::Agent::ask) drives a run, awaited or streamed. [`Ask::start`](crate::agent::Ask::start) returns a
/// [`RunDriver`](crate::agent::RunDriver) for callers that drive a run step by step, with the same limits, handlers, memory and hooks. A `Run`
/// alone has the rules only:
///
/// ```
/// use tool_core::model::{AssistantMessage, ChatResponse};
/// use tool_core::provider::ToolDefinitions;
/// use tool_core::run::{Run, Step};
/// use tool_core::{Message, ToolCall, ToolOutput};
/// use tool_core::tool::ToolExecution;
///
/// # fn call_model() -> ChatResponse { ChatResponse::new(AssistantMessage::text("Good morning!")) }
/// # fn execute(call: &ToolCall) -> ToolOutput { ToolOutput::text("…") }
/// let tools = ToolDefinitions::default();
/// let mut run = Run::new([Message::user("Hello")]);
/// let answer = loop {
///     match run.next(&tools) {
///         Step::CallModel(_request) => run.record_response(call_model())?,
///         Step::CallTools(calls) => {
///             for call in calls {
///                 run.begin_call(&call.id)?; // store the run before executing the call
///                 let output = execute(&call);
///                 run.record_result(ToolExecution::new(call, Ok(output)))?;
///             }
///         }
///         Step::Done => break run.finish()?,
///         other => return Err(format!("unsupported step: {other:?}").into()),
///     }
/// };
/// assert_eq!(answer.text(), "Good morning!");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Rules
///
/// However a run ends, every call in its conversation has exactly one result, so models accept the conversation.
///
/// - **Failed calls** are reported to the model, hidden from it, or end the run, depending on the kind of the [error](crate::tool::ToolErrorKind) and its
///   [policy](Run::error_policy).
/// - **[Limits](crate::run::RunLimits)** end the run before it goes further. Limits of tokens, output and time are checked after a step, so
///   that step can exceed them. Calls that are not executed for this reason have a result that states it.
/// - **Repeated calls**: a call is executed three times with the same arguments. Further ones are answered with a note, and after six the run ends.
///   The count restarts after a successful call that is not `pure` and has new arguments; for `at_most_once` tools it never restarts. Beyond
///   30 equal calls in a run, further ones are always refused.
/// - **Repeated ids** refer to the earlier call that was executed. With the same arguments its outcome is reused; with other arguments the call is
///   refused. Ids that only count, such as `call_0`, and ids equal to the name of the tool refer to nothing.
/// - **Pure tools**: the output is reused for equal calls of later turns of the same agent.
/// - **Supplied results**, such as those in a conversation that a caller sends, have an [origin](crate::tool::OutcomeOrigin). The model reads them;
///   they are not reused, and not undone.
/// - **Waits**: calls that need approval, calls of [external](crate::model::ToolKind::Caller) tools and calls that
///   [ask a person](crate::tool::Asker) wait while the other calls of the turn are executed. Then the step is
///   [`Waiting`](crate::run::Step::Waiting). [`resolve`](Run::resolve) and [`record_result`](Run::record_result) decide what
///   [waits](Run::waits), in any process. The id of a wait is a digest of what is shown: a decision about what was shown before is refused, and
///   the first decision is final.
/// - **Undo**: a run that ends for good without an answer undoes the calls that may have had an effect, the last one first, by the
///   `undo` tools of their tools. Failures do not stop the process; they are among the [`undo_executions`](Run::undo_executions).
///
/// # Methods
///
/// Five families, in the order in which a reader needs them:
///
/// - **Create**: `new`, `with_limits`, `with_options`, `with_tool_choice`, `with_parallel_tool_calls`, `with_response_format`, `with_conversation`,
///   `with_user`, `error_policy`, `default_error_policy`.
/// - **Read**: `id`, `user`, `agent_name`, `conversation`, `options`, `limits`, `messages`, `new_messages`, `sender_of`, `tool_executions`,
///   `undo_executions`, `current_calls`, `inner_runs`, `handoffs`, `compactions`, `has_useless_compactions`, `decisions`, `verdicts`,
///   `found_tools`, `turns`, `elapsed`, `usage`, `usage_by_layer`, `cost`, `cache`, `is_asking`, `is_blocked`, `is_undoing`, `is_done`,
///   `stop_reason`, `may_have_had_effects`.
/// - **Step**: `next`, `record_response`, `begin_call`, `request_call`, `record_result`, `reject_answer`, `add_elapsed`, `tick`, `cancel`, `end`,
///   `finish`.
/// - **People**: `waits`, `resolve`, `resolve_all`, `require_approval`, `deny_and_say`, `say`, `message_volume`.
/// - **Engine**, for stores and for programs that drive trees of runs: `engine`, `engine_view`, `revision`, `changes`, `apply_changes`, `restore`.
///
/// # The stored state
///
/// The serialized state names its format, currently 1; a state of another format is refused. It contains messages, records of calls, open calls,
/// counters and limits. It contains no tool definitions, except for the hash of each one for which approval was asked. Deserialization
/// validates the state.
///
/// The run records the [start](Run::begin_call) and the [result](Run::record_result) of each call. A call that was started but has no outcome when the
/// run is restored was interrupted. It is retried with the same [key](crate::tool::IdempotencyKey) and the next attempt number. Interrupted calls
/// of `at_most_once` tools are not retried: the model reads that the outcome is unknown. If a run is resumed twice, the second copy
/// executes nothing and fails with [`RunningElsewhere`](crate::RunErrorKind::RunningElsewhere) or [`Conflict`](crate::RunErrorKind::Conflict).
#[derive(Clone, Debug)]
#[must_use]
pub struct Run {
    pub(super) format: Format,
    pub(super) id: RunId,
    pub(super) head: Head,
    pub(super) history: History,
    pub(super) elapsed: Duration,
    /// The latest time that [`tick`](Run::tick) has set. It is not stored.
    pub(super) now: Timestamp,
    /// The runs of the agents that the calls of finished turns asked, in the order of the calls.
    pub(super) inner_runs: SharedVec<InnerRun>,
    pub(super) stage: Stage,
    /// What has changed since the last save, once there was one.
    pub(super) recording: Option<Box<Recording>>,
    /// Lets a provider reuse its encoding of messages already sent, which never change.
    pub(super) cache: SharedCache,
    /// Built with the first response, to keep waiting runs small.
    pub(super) call_index: Option<Box<CallIndex>>,
    /// The calls that will not be continued, until their tools know it.
    pub(super) given_up: Vec<GivenUp>,
    /// What only the present driver knows.
    pub(super) driving: Option<Box<Driving>>,
}

/// What only the present driver of a run knows, beside the [marks](Mark) of its calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Driving {
    /// What the rules need of the agent.
    pub(super) profile: Option<Arc<AgentProfile>>,
    /// The finished calls that layers which record know.
    pub(super) recorded: Option<EmittedCalls>,
    /// The calls that can start, of a world that prepares them in its steps.
    pub(super) step: Option<OpenStep>,
    /// The positions of calls that were started: those in flight are among them, so that the calls of a large reply need not be searched.
    pub(super) started: BTreeSet<usize>,
    /// What was polled.
    pub(super) polled: Polled,
    /// Its agent has panicked, with this text.
    pub(super) panic: Option<String>,
    /// Something cannot be done now, so nothing further is.
    pub(super) is_stalled: bool,
    /// A run inside is stalled.
    pub(super) is_stalled_inside: bool,
}

/// The calls of a step of a run, which its world has prepared: layers have judged them, and the policies of their tools apply.
#[derive(Clone, Debug)]
pub(super) struct OpenStep {
    /// How many calls the run may have in flight at once.
    pub(super) max: usize,
    /// The calls that have not started.
    pub(super) waiting: HashSet<String>,
    pub(super) sees: LayerSight,
    /// An open call excludes others.
    pub(super) has_exclusive: bool,
}

/// What the engine has asked of the world, of the outermost run.
#[derive(Clone, Debug, Default)]
pub(super) struct Polled {
    /// The number of the last effect of the runs at each place: an agent that is asked again has further ones.
    pub(super) numbers: BTreeMap<RunPath, u32>,
    /// The effects of the present group that were not returned yet.
    pub(super) group: VecDeque<(EffectId, Effect)>,
    /// Effects of the present group were returned.
    pub(super) was_returned: bool,
    /// The effects in flight.
    pub(super) awaited: BTreeMap<EffectId, Awaited>,
    /// The world states in which runs it changes something.
    pub(super) tracks_changes: bool,
    /// The caller takes the steps of the outermost run.
    pub(super) hands_out_steps: bool,
    /// The runs that may have changed since there was nothing to do; all, if it is not known.
    pub(super) changed: Option<BTreeSet<RunPath>>,
    /// A call has excluded others, so what changes in one run can matter to each.
    pub(super) has_exclusive: bool,
}

/// What the rules of a run need of its agent.
#[derive(Clone, Debug)]
pub struct AgentProfile {
    /// What layers see of the calls of the last turn.
    pub sees: LayerSight,
    /// The tools of the run's calls so far.
    pub called: ToolDefinitions,
    /// The tools that undo calls of the run, by the number of handoffs before and by name.
    pub undoing: BTreeMap<(usize, String), ToolDefinition>,
    /// The number of calls that are executed at once.
    pub max_concurrent_calls: usize,
}

/// What the layers around the calls of a turn see of their outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerSight {
    /// Layers judge outputs that are the answer.
    #[serde(default)]
    pub answers: bool,
    /// Layers judge outcomes.
    #[serde(default)]
    pub outputs: bool,
    /// Layers record what happens to calls.
    #[serde(default)]
    pub records: bool,
}

/// The finished calls of a run that its listeners know, so that a driver of one's own reports each once, also one that was denied.
///
/// ```
/// use tool_core::model::{AssistantMessage, ChatResponse};
/// use tool_core::engine::EmittedCalls;
/// use tool_core::run::{Decision, Run};
/// use tool_core::{Message, ToolCall};
///
/// let mut run = Run::new([Message::user("Go")]);
/// let mut reported = EmittedCalls::all_of(&run);
/// let message = AssistantMessage::default().with_tool_calls([ToolCall::new("a", "work", "{}")]);
/// run.record_response(ChatResponse::new(message))?;
/// run.require_approval("a")?;
/// run.resolve_all(|_| Decision::decline())?;
/// assert_eq!(reported.take_unreported(&run).len(), 1);
/// assert_eq!(reported.take_unreported(&run).len(), 0);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct EmittedCalls {
    /// The number of executions of earlier turns, which are those before the last one while calls of that are hidden, and of calls that undid
    /// others.
    pub(super) executions: usize,
    pub(super) undo_executions: usize,
    /// The number of calls at the beginning of the current turn, so that they are not compared again for each result.
    pub(super) first: usize,
    /// The ids of further calls of the current turn, or of the last one.
    pub(super) ids: HashSet<String>,
}

/// What the present driver does with a call that was started.
///
/// A mark is not stored. It ends with the outcome; when the next driver begins; when the run stops, which ends the call; and when a run around the
/// one whose undo call has it is undone. A call with a mark cannot start. All but those that are begun, or suspended, take room and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// It was started, or continues after it has waited, and nobody has executed it.
    Begun { is_continued: bool },
    /// The engine has returned it, and the world has not begun to execute it.
    Polled { is_continued: bool },
    /// It is executed.
    Executing,
    /// It has ended without an outcome, and is not started again in this step.
    Suspended,
}

/// A call that had recorded something and will not be continued.
#[derive(Clone, Debug)]
pub(crate) struct GivenUp {
    /// The names of the tools that lead to its agent, from this one.
    pub(crate) asked_by: Vec<String>,
    pub(crate) request: CallRequest,
}

/// What a run has besides its log, its stage and the time that it has taken. Its size does not depend on the length of the run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Head {
    /// The name of the agent that was asked, if it has one.
    #[serde(rename = "agent", skip_serializing_if = "Option::is_none")]
    pub(super) agent_name: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) stored: StoredState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) conversation: Option<ConversationId>,
    /// Whose run it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<RunUser>,
    /// The run is charged to a budget that only the program knows which drives it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_own_budget: bool,
    /// The limits are those of the question.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_own_limits: bool,
    /// The tools of the question are in place of the agent's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_only_own_tools: bool,
    /// The stored conversation was put before the question and need not be loaded again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_loaded_history: bool,
    /// The length of the stored conversation at that time; the history may contain only a part of it.
    #[serde(rename = "conversation_had", skip_serializing_if = "Option::is_none")]
    pub(super) stored_conversation_len: Option<usize>,
    pub(super) settings: Settings,
    pub(super) turns: u32,
    pub(super) usage: Usage,
    /// The tokens that requests of unknown usage have used at most.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) unknown_tokens: u64,
    /// What the own requests of layers have used, by their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) layer_usage: Vec<(String, Usage)>,
    /// What the request in flight can cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost_in_flight: Option<Cost>,
    /// The most tokens that requests have used for a text, if the run has a budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tokens_per_text: Option<TokensPerText>,
    /// The decisions that no driver has reported yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) unreported: Vec<CallDecision>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) handoffs: Vec<Handoff>,
    /// The bytes of all messages that users have sent to the run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) message_bytes: usize,
    /// How long the requests are, if the agent compacts its runs or tracks the use of the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<Box<ContextSize>>,
    /// What providers of tools have asked the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) providers: Vec<ProviderState>,
    /// The run around this one stopped, and the calls of both are undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_revoked: bool,
    /// What readers of the log know of the run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) shown: Shown,
}

/// What readers of the log of a run know of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Shown {
    /// The last request.
    #[serde(flatten)]
    pub(super) request: Request,
    /// The number of messages that the run had added when what users had said was shown.
    pub(super) added: usize,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) sees: LayerSight,
    /// The calls of the last turn that were held back, because their outputs could have become the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) held_back: Vec<String>,
}

/// What a provider of tools has asked the user, and what was decided.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ProviderState {
    #[serde(flatten)]
    pub(super) asked: ProviderNotes,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) decisions: Vec<DecisionRecord>,
}

/// The state that decides the next step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    /// The next step is a request to the model.
    Asking,
    /// The calls of the last message are being executed.
    Calling(Turn),
    /// The last message is the answer.
    Answered(FinishReason),
    /// The messages at these positions are the answer: outputs of the last calls.
    Returned {
        positions: Vec<usize>,
        /// Layers have judged it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_judged: bool,
    },
    /// The run stopped, and the effects of its calls are undone one by one.
    Undoing(Box<Undoing>),
    /// The run stopped without an answer.
    Ended(StopReason),
}

/// The undo of a run that stopped: its calls are undone one by one, the last one first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Undoing {
    #[serde(rename = "ending")]
    pub(super) reason: StopReason,
    /// The state of the call that undoes another.
    #[serde(rename = "standing")]
    pub(super) record: CallRecord,
    /// The call that undoes another. It follows from the rest of the run and is not stored.
    #[serde(skip, default = "no_call")]
    pub(super) call: ToolCall,
    #[serde(skip)]
    pub(super) target: UndoTarget,
    /// The beginning of the ids of the run's undo calls.
    #[serde(skip)]
    pub(super) prefix: String,
}

/// What is undone, in the order in which it happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UndoTarget {
    /// The position of the call among the executions of the run.
    pub(super) position: usize,
    /// The position of the run inside whose agent undoes the call, because no tool does.
    pub(super) inner: Option<usize>,
}

/// The calls of the last message, in its order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Turn {
    pub(super) calls: Vec<CallRecord>,
    /// User messages that arrived while calls were open. They are added after the results of the calls.
    #[serde(rename = "said", default, skip_serializing_if = "Vec::is_empty")]
    pub(super) user_messages: Vec<UserMessage>,
    /// The number of calls at the beginning that are known to be finished, so that they are not checked again for each result.
    #[serde(skip)]
    pub(super) finished: usize,
}

/// A call of the model, or a call that undoes another.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct CallRecord {
    /// The policy of the call's tool, once the run has seen its definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<ToolPolicy>,
    /// The kind of the call's tool, once the run has seen its definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<ToolKind>,
    /// What has happened to the call, which becomes part of its execution.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) history: CallHistory,
    /// The caller executes the call, whatever the policy of its tool is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_left_to_caller: bool,
    /// How many levels outside of its run the approval of the call is demanded: deciders of the runs inside cannot give it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) approval_level: usize,
    /// The replies to the questions of the call and what it has recorded, which outlive its attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) notes: Option<Box<CallNotes>>,
    /// The run of the agent that the current attempt asked. An attempt that is interrupted continues it.
    #[serde(rename = "agent", skip_serializing_if = "Option::is_none")]
    pub(super) inner: Option<Box<InnerRun>>,
    /// The time since when the call awaits approval or a result, once the run knows the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<Timestamp>,
    /// The levels and names of the layers that were asked to rewrite the arguments, once the arguments are final.
    #[serde(rename = "final", skip_serializing_if = "Option::is_none")]
    pub(super) rewriters: Option<Vec<(usize, String)>>,
    /// The number of decisions about the call when layers last judged it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) judged_after: Option<usize>,
    pub(super) state: CallState,
    /// What the present driver does with the call. A restored run has none: what was in flight was interrupted.
    #[serde(skip)]
    pub(super) mark: Option<Mark>,
    /// The outcome that layers judge before it is recorded.
    #[serde(skip)]
    pub(super) to_judge: Option<Box<ToolExecution>>,
    /// The record may have changed since the last save.
    #[serde(skip)]
    pub(super) is_touched: bool,
    /// The arguments that a person wrote were checked.
    #[serde(skip)]
    pub(super) has_checked_arguments: bool,
}

/// What happens in a run while it is saved, since the last save.
#[derive(Clone, Debug, Default)]
pub(super) struct Recording {
    pub(super) entries: Vec<LogEntry>,
    /// The calls of turns that are over, whose records are no longer needed.
    pub(super) closed_calls: Vec<String>,
    /// Something else than the history and the records of calls may have changed.
    pub(super) is_touched: bool,
    /// The number of entries saved before.
    pub(super) position: u64,
    /// The numbers of entries and closed calls in a save without a known outcome.
    pub(super) pending: (usize, usize),
    /// The number of further entries in that save.
    pub(super) pending_rest: u64,
    /// The save without a known outcome is the first one, which has everything.
    pub(super) is_first: bool,
    /// The digest of the event with which the saved run rests, if it does.
    pub(super) rest: Option<u64>,
}

/// One entry of the log of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LogEntry {
    /// The latest time that the run knew.
    pub(super) time: Timestamp,
    pub(super) fact: Fact,
    /// Orders the entries of all runs of a tree that one save has.
    #[serde(skip)]
    pub(super) number: u64,
}

/// One thing that has happened in a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fact {
    /// The messages of the conversation were inserted after the instructions and before the question.
    Remembered(Vec<Message>),
    /// The model replied, or a layer in its place.
    Replied(AssistantMessage),
    /// A call of the open turn has an outcome.
    Finished(Box<ToolExecution>),
    /// An attempt of this call failed, and another one follows. A run that the attempt had asked, and that is done, is not continued.
    Retried {
        call: String,
        is_inner_done: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<Box<ToolExecution>>,
    },
    /// A call asked an agent, whose run has got so far.
    Began(Box<InnerRun>),
    /// The open turn is over: its results follow the reply in the order of the calls. Those without an outcome were not executed,
    /// for this reason.
    Closed(Cow<'static, str>),
    /// A message of the user.
    Said(UserMessage),
    /// A message that rejects an answer.
    Rejected(String),
    /// A call undid another.
    Undone(Box<ToolExecution>),
    /// A layer decided about the question or the answer.
    Judged(VerdictRecord),
    /// The application gave the run these tools when it began.
    Opened(Vec<ToolDefinition>),
    /// The model is offered further tools.
    Found(Vec<String>),
    /// The model is offered tools with these names and digests of their definitions, from now on.
    Offered(BTreeMap<String, String>),
    /// The model no longer reads everything.
    Compacted(Box<CompactionRecord>),
    /// What the request of the next reply has read from the provider's cache.
    Cached(CacheUse),
    Amended(Amendment),
    /// The model is asked for the reply of a turn.
    Asked(Request),
    /// Layers have judged what users have said.
    Heard,
    /// The reply of the turn is complete, and its calls were judged.
    Completed(Box<CompletedReply>),
    /// An attempt of a call begins: of the last reply, or of this call, which undoes another, or the calls of this run inside.
    Started {
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        undo: Option<ToolCall>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        undone_run: Option<RunId>,
    },
    /// Something was decided about a call that waited, or about what a provider of tools has asked.
    Decided(CallDecision),
    /// The run continues with another agent, which the tool of this name hands it over to.
    HandedOff(String),
    /// A request to a model cost this, or may have.
    Charged(Cost),
    /// What layers see of outcomes from now on.
    Layered(LayerSight),
    /// The output of this call can become the answer, and layers judge that.
    MayBeAnswer(String),
    /// Layers have judged the answer that tools returned.
    AnswerJudged,
    /// The run rests: it waits, or has ended. What it waits for, or how it has ended, is part of its state.
    Rested,
}

/// The request of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) turn: u32,
    /// The number of messages that it sends.
    pub(super) messages: usize,
}

/// What a reply has beside its message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CompletedReply {
    /// Without the message.
    pub(super) response: ChatResponse,
    /// The positions of its calls in what the model wrote.
    pub(super) positions: Vec<usize>,
}

/// The run of an agent that a call [asked](crate::Agent::as_tool), as part of the state of the outer run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InnerRun {
    #[serde(rename = "call")]
    pub(super) call_id: String,
    pub(super) agent: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_own_limits: bool,
    pub(super) run: Box<Run>,
}

impl Stage {
    /// Returns the stage without the records of calls.
    pub(super) fn without_calls(&self) -> Self {
        match self {
            Self::Calling(turn) => Self::Calling(Turn::new(Vec::new(), turn.user_messages.clone())),
            stage => stage.clone(),
        }
    }

    /// Returns the records of the calls of the current turn.
    pub(super) fn records(&self) -> &[CallRecord] {
        match self {
            Self::Calling(turn) => &turn.calls,
            _ => &[],
        }
    }
}

/// Returns the place of a call that is not stored.
fn no_call() -> ToolCall {
    ToolCall::new("", "", "")
}
