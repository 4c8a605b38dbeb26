//! What stands in for models, tools and providers: the records of runs.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

use super::parts::ReplayParts;
use super::record::{Record, RecordedOutcome, RecordedReply, not_recorded};
use crate::agent::compaction::READ_OUTPUT;
use crate::agent::lock::lock;
use crate::agent::run_setup::OpenRun;
use crate::agent::tool_search::RESERVED_NAMES;
use crate::agent::{RunInfo, RunResources};
use crate::model::{
    AssistantMessage, ChatModel, ChatRequest, ChatResponse, FINAL_TOOL, ModelError, ModelFuture, ToolCall,
};
use crate::run::{Run, RunId, RunLimits, StopReason, Wait, without_refusal};
use crate::tool::{DecisionKind, Tool, ToolError, ToolErrorKind, ToolExecution, ToolOutput, VerdictKind};
use crate::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest, ToolSet};

/// The tools that agents offer by themselves.
const OWN_TOOLS: [&str; 2] = [READ_OUTPUT, FINAL_TOOL];

/// What stands in for the models, the tools and the providers of a tree of runs.
pub(in crate::agent) struct StandIn {
    pub(in crate::agent) parts: ReplayParts,
    /// The records, by the ids of the runs that repeat them.
    records: Mutex<HashMap<RunId, Arc<Run>>>,
    /// The calls that wait for what is in their notes: they are not continued.
    parked: Mutex<HashSet<(RunId, String)>>,
    /// The record of the outermost run.
    outermost: Run,
    /// The names of the tools of all agents.
    known: BTreeSet<String>,
    /// The names of tools of which only the record is known.
    assumed: Mutex<BTreeSet<String>>,
    /// The runs of an agent cannot be opened.
    pub(in crate::agent) lacks_setup: Arc<AtomicBool>,
    /// The names of the layers of all agents so far.
    pub(in crate::agent) layers: Mutex<BTreeSet<String>>,
    /// The numbers of runs that calls have begun.
    begun: Mutex<HashMap<(RunId, String), usize>>,
}

/// The record does not say what follows.
#[derive(Debug, thiserror::Error)]
#[error("the record ends here")]
pub(in crate::agent) struct RecordEnds;

/// A run stops here in its record.
#[derive(Debug, thiserror::Error)]
#[error("the record has stopped here")]
pub(in crate::agent) struct StopsHere(pub(in crate::agent) StopReason);

impl StandIn {
    /// Creates what stands in for agents that have these tools.
    pub(in crate::agent) fn new(parts: ReplayParts, outermost: Run, tools: &[ToolSet]) -> Arc<Self> {
        let all = tools.iter().chain([&parts.tools]);
        let known = all.flat_map(|tools| tools.definitions().names()).map(str::to_owned).collect();
        let (records, parked, begun) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (assumed, layers) = (Mutex::default(), Mutex::default());
        Arc::new(Self {
            parts,
            records,
            parked,
            lacks_setup: Arc::default(),
            outermost,
            known,
            assumed,
            layers,
            begun,
        })
    }

    /// Sets the record that a run repeats.
    pub(in crate::agent) fn set_record(&self, run: &RunId, record: Run) {
        lock(&self.records).insert(run.clone(), Arc::new(record));
    }

    /// Returns `true` if the runs of an agent could not be opened.
    pub(in crate::agent) fn lacks_setup(&self) -> bool {
        self.lacks_setup.load(Ordering::Relaxed)
    }

    /// Returns the names of the layers of the agents that have come into it.
    pub(in crate::agent) fn layers(&self) -> BTreeSet<String> {
        lock(&self.layers).clone()
    }

    /// Returns the names of tools of which the record alone is known: they were given by providers.
    pub(in crate::agent) fn assumed(&self) -> BTreeSet<String> {
        lock(&self.assumed).clone()
    }

    /// Returns what the record knows of tools that no agent has, of which providers gave some.
    pub(in crate::agent) fn assumed_tools(&self) -> ToolSet {
        let mut tools = ToolSet::default();
        for tool in Record(&self.outermost).tools() {
            let name = tool.definition().name().to_owned();
            if self.known.contains(&name) || OWN_TOOLS.contains(&&*name) || RESERVED_NAMES.contains(&&*name) {
                continue;
            }
            lock(&self.assumed).insert(name);
            // Its name is valid: it was that of a tool.
            tools = tools.clone().with(tool).unwrap_or(tools);
        }
        tools
    }

    fn record(&self, run: &RunId) -> Option<Arc<Run>> {
        lock(&self.records).get(run).cloned()
    }

    /// Finds the record of a run of an agent that a call has begun.
    pub(in crate::agent) fn begin_inside(&self, outer: &RunId, call_id: &str, inner: &RunId) {
        if let Some(inside) = self.next_inside(outer, call_id) {
            self.set_record(inner, inside);
        }
        *lock(&self.begun).entry((outer.clone(), call_id.to_owned())).or_default() += 1;
    }

    /// Returns the record of the next run that a call begins.
    fn next_inside(&self, outer: &RunId, call_id: &str) -> Option<Run> {
        let record = self.record(outer)?;
        let begun = lock(&self.begun).get(&(outer.clone(), call_id.to_owned())).copied();
        Record(&record).inside(call_id, begun.unwrap_or_default()).cloned()
    }

    /// Returns what stands in for the model in the next request of a run.
    pub(in crate::agent) fn model_of(&self, run: &Run, model: &Arc<dyn ChatModel>) -> RecordedModel {
        let record = self.record(run.id());
        let reply = record.map_or(RecordedReply::Unknown, |record| Record(&record).reply(run.turns()));
        let reply = match reply {
            RecordedReply::Response(response) => Ok(*response),
            RecordedReply::Stopped(reason) => Err(ModelError::new(StopsHere(reason)).permanent()),
            RecordedReply::Unknown => Err(ModelError::new(RecordEnds).permanent()),
        };
        RecordedModel { model: Arc::clone(model), reply: Mutex::new(Some(reply)) }
    }

    /// Returns what becomes of a call whose arguments its tool accepts.
    pub(in crate::agent) fn outcome(&self, run: &RunId, call: ToolCall) -> ToolExecution {
        let record = self.record(run);
        let recorded = record.map_or(RecordedOutcome::Unknown, |record| Record(&record).outcome(&call.id));
        match recorded {
            RecordedOutcome::Finished(recorded) if recorded.was_executed() => {
                ToolExecution::new(call, as_executed(&recorded))
            }
            RecordedOutcome::Waits(notes) if lock(&self.parked).insert((run.clone(), call.id.clone())) => {
                ToolExecution::waiting(call, Some(*notes))
            }
            // It was denied while it waited for something of its own.
            RecordedOutcome::Finished(recorded) if was_given_up(&recorded) => {
                ToolExecution::new(call, recorded.into_outcome())
            }
            _ => ToolExecution::new(call, Err(not_recorded())),
        }
    }

    /// Returns what the record has in place of the outcome of a call that asked its agent.
    pub(in crate::agent) fn recorded(&self, run: &RunId, answered: ToolExecution) -> ToolExecution {
        let record = self.record(run);
        let recorded = record.map(|record| Record(&record).outcome(&answered.call().id));
        match recorded {
            Some(RecordedOutcome::Finished(recorded)) if recorded.was_executed() => {
                ToolExecution::new(answered.call().clone(), as_executed(&recorded))
            }
            _ => answered,
        }
    }

    /// Returns what the agent of a call was asked, if the record knows it.
    pub(in crate::agent) fn question(&self, run: &RunId, call: &ToolCall) -> Option<String> {
        let inside = self.next_inside(run, &call.id)?;
        Some(inside.new_messages().first()?.text().into_owned())
    }
}

/// Returns the outcome of a call as its tool gave it.
fn as_executed(execution: &ToolExecution) -> Result<ToolOutput, ToolError> {
    let output = execution.original_outcome().map_err(Clone::clone)?;
    Ok(match without_refusal(&output.content().text()) {
        Some(text) => ToolOutput::text(text),
        None => output.clone(),
    })
}

/// Returns `true` if a call was denied that no person and no layer has denied: a message of the user took its place.
fn was_given_up(execution: &ToolExecution) -> bool {
    let is_denied = execution.error().is_some_and(|error| error.kind() == ToolErrorKind::Denied);
    let by_person = execution.decisions().iter().any(|decision| decision.kind == DecisionKind::Denied);
    let by_layer = execution.verdicts().iter().any(|verdict| verdict.kind == VerdictKind::Denied);
    is_denied && !by_person && !by_layer
}

/// Returns the limits without those that depend on the time and on prices.
pub(in crate::agent) fn without_clock(mut limits: RunLimits) -> RunLimits {
    (limits.max_time, limits.max_cost) = (None, None);
    limits
}

/// What stands in for a model: it has the model's properties, and the replies of a record.
pub(in crate::agent) struct RecordedModel {
    pub(in crate::agent) model: Arc<dyn ChatModel>,
    /// The reply, to a request of a run.
    pub(in crate::agent) reply: Mutex<Option<Result<ChatResponse, ModelError>>>,
}

impl ChatModel for RecordedModel {
    fn chat<'a>(&'a self, _request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        // A summary is not repeated: only the model would read it.
        let reply = lock(&self.reply).take();
        let summary = || Ok(ChatResponse::new(AssistantMessage::text("…")));
        Box::pin(ready(reply.unwrap_or_else(summary)))
    }

    fn binds_reasoning(&self, reply: &AssistantMessage) -> bool {
        self.model.binds_reasoning(reply)
    }

    fn reasoning_bytes(&self, reply: &AssistantMessage) -> usize {
        self.model.reasoning_bytes(reply)
    }

    fn supports_response_format(&self) -> bool {
        self.model.supports_response_format()
    }

    fn supports_response_format_with_tools(&self) -> bool {
        self.model.supports_response_format_with_tools()
    }

    fn supports_tool_search(&self, tools: usize) -> bool {
        self.model.supports_tool_search(tools)
    }

    fn provider_name(&self) -> Option<&str> {
        self.model.provider_name()
    }

    fn model_name(&self) -> Option<&str> {
        self.model.model_name()
    }
}

/// What stands in for a provider of tools.
pub(in crate::agent) struct Provided {
    pub(in crate::agent) name: String,
    pub(in crate::agent) tools: ToolSet,
    pub(in crate::agent) has_untrusted_names: bool,
}

impl ToolProvider for Provided {
    fn tools<'a>(&'a self, _request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(ready(Ok(self.tools.clone())))
    }

    fn has_untrusted_names(&self) -> bool {
        self.has_untrusted_names
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// What opens the runs of an agent for which nothing else was given.
pub(in crate::agent) struct NoSetup(pub(in crate::agent) Arc<AtomicBool>);

/// Why runs cannot be opened.
pub(in crate::agent) const NO_SETUP: &str =
    "an agent has a `run_setup`, which is not asked; give another one in its place by `run_setup`";

impl OpenRun for NoSetup {
    fn open_run<'a>(
        &'a self,
        _run: &'a RunInfo,
    ) -> BoxFuture<'a, Result<RunResources, Box<dyn std::error::Error + Send + Sync>>> {
        self.0.store(true, Ordering::Relaxed);
        ready(Err(NO_SETUP.into())).boxed()
    }

    fn may<'a>(&'a self, _run: &'a RunInfo, _wait: &'a Wait, _by: Option<&'a str>) -> BoxFuture<'a, bool> {
        ready(true).boxed()
    }
}
