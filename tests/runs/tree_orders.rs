//! Every order of effects in a tree of runs, explored breadth-first: an outermost run that asks an agent beside another call, and the run of
//! the agent with two calls. The world performs what the engine returns (`Engine::poll`) in every order, the time passes, the run is
//! cancelled, and the process ends, which restores what was saved last.
//!
//! The world beside the tree knows what a run cannot: which effects are in flight, which calls were executed, and which results come too late.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt;
use tests::support::sampling::is_exhaustive;
use tool_core::engine::{
    AgentProfile, AskExt, CallRequest, Effect, EffectId, EffectResult, LayerSight, LayerSubject,
    RunDriverExt, RunPath, ToolSetExt, TurnTools,
};
use tool_core::model::{AssistantMessage, ChatResponse, ToolDefinition, ToolPolicy};
use tool_core::provider::{ToolDefinitions, ToolKind};
use tool_core::run::{Decision, Run};
use tool_core::signatures::Timestamp;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Progress, ToolErrorKind, ToolExecution};
use tool_core::{
    Agent, CancellationToken, FunctionTool, ToolCall, ToolContext, ToolError, ToolOutput, ToolSet,
};

/// The ids of the calls of the outermost run and of the agent's run. The first call of the outermost one asks the agent.
const IDS: [[&str; 2]; 2] = [["a", "b"], ["x", "y"]];

/// The time after which a parked call goes on.
const DUE: Timestamp = Timestamp::from_millis(1000);

/// What is explored.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    /// The tool that asks the agent, and the one that is called beside it.
    outer: [&'static str; 2],
    inner: [&'static str; 2],
    /// The number of calls that a run executes at once.
    max: usize,
    /// The runs whose time is limited: the outermost one, and the agent's.
    is_timed: [bool; 2],
    sees: LayerSight,
    /// How often something may happen that can happen at any moment.
    surprises: u8,
}

#[derive(Clone, Debug, PartialEq)]
enum Event {
    /// The effect at this position has succeeded.
    Finish(usize),
    /// The call at this position has failed.
    Fail(usize),
    /// A person answers the first question.
    Answer,
    /// The time has come for which a call is parked.
    Due,
    /// The time of the run whose limit is next is up.
    Pass,
    Cancel,
    /// The process ends.
    Crash,
}

impl Event {
    fn is_surprise(&self) -> bool {
        matches!(self, Self::Pass | Self::Cancel | Self::Crash)
    }
}

/// An effect in flight.
#[derive(Clone)]
struct InFlight {
    id: EffectId,
    effect: Effect,
}

impl InFlight {
    /// Returns the call that is executed, if a tool does.
    fn call(&self) -> Option<&CallRequest> {
        match &self.effect {
            Effect::Call(request) => Some(request),
            _ => None,
        }
    }

    fn name(&self) -> String {
        let path = self.id.path().calls().join("/");
        let what = match &self.effect {
            Effect::Call(request) => format!("call {}", request.call.id),
            Effect::Begin(request) => format!("begin {}", request.call.id),
            Effect::End => "end".to_owned(),
            Effect::Judge(LayerSubject::Execution(execution)) => format!("judge {}", execution.call().id),
            Effect::Judge(LayerSubject::Next) => "judge next".to_owned(),
            Effect::Judge(LayerSubject::Results) => "judge results".to_owned(),
            Effect::CallModel => "ask".to_owned(),
            Effect::GiveUp => "give up".to_owned(),
        };
        format!("{path}: {what}")
    }
}

/// A tree of runs and the world beside it.
#[derive(Clone)]
struct State {
    run: Run,
    /// The tree as it was saved last.
    saved: String,
    in_flight: Vec<InFlight>,
    /// Effects whose results nobody awaits any more.
    late: Vec<InFlight>,
    /// How often each call was started, by its idempotency key. A crash does not change it.
    started: BTreeMap<String, u32>,
    surprises: u8,
    has_crashed: bool,
    now: Timestamp,
}

struct Exploration {
    scenario: Scenario,
    tools: ToolSet,
    /// All tools, as the runs know them.
    definitions: ToolDefinitions,
    /// The agents of the runs at each depth.
    agents: [Agent; 2],
}

fn tools() -> ToolSet {
    fn tool(name: &'static str, is_undo: bool) -> FunctionTool {
        FunctionTool::new(name, move |_: BTreeMap<String, u8>, _: ToolContext| async move {
            Ok::<_, ToolError>(if is_undo { "undone" } else { "done" }.to_owned())
        })
    }
    let parked = FunctionTool::new("parked", |_: BTreeMap<String, u8>, context: ToolContext| async move {
        match context.asker().parked::<u8>()? {
            Some(_) => Ok::<_, ToolError>("done".to_owned()),
            None => Err(context.asker().park(&1, DUE).await.into()),
        }
    });
    let asks = FunctionTool::new("asks", |_: BTreeMap<String, u8>, context: ToolContext| async move {
        context.asker().ask::<String>("Who?").await.map_err(ToolError::from)
    });
    let all = [
        tool("plain", false),
        tool("alone", false).exclusive(),
        tool("booked", false).undo("unbook"),
        tool("once", false).at_most_once().undo("unbook_once"),
        tool("tried", false).attempts(2),
        parked,
        asks,
        tool("unbook", true),
        tool("unbook_once", true).at_most_once(),
    ];
    all.into_iter().fold(ToolSet::default(), |tools, tool| tools.with(tool).unwrap())
}

/// The policies of the tools that ask the agent.
fn clerks() -> [(&'static str, ToolPolicy); 3] {
    let (plain, mut exclusive, mut tried) =
        (ToolPolicy::default(), ToolPolicy::default(), ToolPolicy::default());
    exclusive.exclusive = true;
    tried.attempts = 2;
    [("clerk", plain), ("clerk_alone", exclusive), ("clerk_tried", tried)]
}

fn saved(run: &Run) -> String {
    serde_json::to_string(run).unwrap()
}

/// Returns a new run of an agent, the same one each time.
fn begin(agent: &Agent, id: &str) -> Run {
    let mut run = serde_json::to_value(agent.ask("Go").remote().start().into_run()).unwrap();
    run["id"] = id.into();
    serde_json::from_value(run).unwrap()
}

/// Returns the runs of the tree that have no end, each with its path.
fn open_runs(run: &Run) -> Vec<(RunPath, &Run)> {
    let places = run.engine_view().open_places().into_iter();
    places.filter_map(|path| Some((path.clone(), run.engine_view().inner_run_at(path.calls())?))).collect()
}

/// Returns all runs of the tree.
fn all_runs(run: &Run) -> Vec<&Run> {
    iter::once(run).chain(run.inner_runs().flat_map(|inner| all_runs(inner.run()))).collect()
}

impl Exploration {
    fn new(scenario: Scenario) -> Self {
        let tools = tools();
        let limit = |is_timed: bool| is_timed.then_some(Duration::from_secs(60));
        let agent = |is_timed: bool| {
            let agent = Agent::builder(ScriptedModel::new()).tools(tools.clone());
            agent.limits(move |limits| {
                limit(is_timed).into_iter().fold(limits, |all, time| all.max_time(time))
            })
        };
        let [outer, inner] = scenario.is_timed.map(agent);
        let inner = inner.build().unwrap();
        let asking = clerks().map(|(name, policy)| inner.as_tool(name, "Answers").policy(policy));
        let outer = asking.into_iter().fold(outer, |outer, tool| outer.tools(tool)).build().unwrap();
        let clerks = clerks()
            .map(|(name, policy)| ToolDefinition::new(name).with_policy(policy).with_kind(ToolKind::Agent));
        let definitions = tools.definitions().iter().cloned().chain(clerks).collect();
        Self { scenario, tools, definitions, agents: [outer, inner] }
    }

    fn definition(&self, name: &str) -> &ToolDefinition {
        self.definitions.iter().find(|one| one.name() == name).unwrap()
    }

    fn agent_of(&self, path: &RunPath) -> &Agent {
        &self.agents[path.depth()]
    }

    /// Returns what a run of the tree knows of its agent.
    fn profile(&self) -> AgentProfile {
        let undoing = self.definitions.iter().filter_map(ToolDefinition::undo);
        let undoing = undoing.map(|undo| ((0, undo.to_owned()), self.definition(undo).clone())).collect();
        let mut profile = AgentProfile::new(self.scenario.max);
        (profile.sees, profile.called, profile.undoing) =
            (self.scenario.sees, self.definitions.clone(), undoing);
        profile
    }

    fn start(&self) -> State {
        let mut run = begin(&self.agents[0], "outer");
        run.engine().set_profile(AgentProfile::new(self.scenario.max));
        let mut state = State {
            saved: saved(&run),
            run,
            in_flight: Vec::new(),
            late: Vec::new(),
            started: BTreeMap::new(),
            surprises: self.scenario.surprises,
            has_crashed: false,
            now: Timestamp::from_millis(0),
        };
        self.poll(&mut state);
        state
    }

    /// Lets the engine begin all that it can, and saves the tree before anything of it is done.
    fn poll(&self, state: &mut State) {
        loop {
            // The run of an agent that has just begun does not know the time.
            state.run.tick(state.now);
            while let Some(id) = state.run.engine().poll_abandoned() {
                let position = state.in_flight.iter().position(|one| one.id == id).unwrap();
                state.late.push(state.in_flight.remove(position));
            }
            let group: Vec<_> = iter::from_fn(|| state.run.engine().poll()).collect();
            if group.is_empty() {
                return;
            }
            for (id, effect) in group {
                let started = InFlight { id, effect };
                if let Effect::GiveUp = started.effect {
                    state.run.engine().handle(&started.id, EffectResult::Nothing).unwrap();
                    continue;
                }
                self.check_started(state, &started);
                if let Effect::Call(_) = started.effect {
                    state.run.engine().set_executing_at(&started.id);
                }
                state.in_flight.push(started);
            }
            self.check_overlaps(state);
            state.saved = saved(&state.run);
        }
    }

    /// Checks that a call may start, and counts it.
    fn check_started(&self, state: &mut State, started: &InFlight) {
        let (Effect::Call(request) | Effect::Begin(request)) = &started.effect else { return };
        let path = started.id.path();
        let others = state.in_flight.iter().filter(|one| one.id.path() == path);
        let executed = others.filter(|one| matches!(one.effect, Effect::Call(_) | Effect::Begin(_))).count();
        // An agent in whose run everything waits holds no room.
        let is_at_work = |asked: &RunPath| {
            let run = state.run.engine_view().inner_run_at(asked.calls()).unwrap();
            let open = run.current_calls().filter(|(_, outcome)| outcome.is_none()).count();
            let waits = open > 0 && run.waits().len() == open;
            asked.depth() == path.depth() + 1 && asked.at_depth(path.depth()) == *path && !waits
        };
        let own = path.inside(&request.call.id);
        let places = state.run.engine_view().open_places();
        let asked = places.iter().filter(|asked| **asked != own && is_at_work(asked));
        let begins = |asked: &&RunPath| {
            let is_begun = |one: &InFlight| matches!(&one.effect, Effect::Begin(begun) if one.id.path().inside(&begun.call.id) == **asked);
            !state.in_flight.iter().any(is_begun)
        };
        let working = executed + asked.filter(begins).count();
        assert!(working < self.scenario.max, "{} starts beside {working}", started.name());
        if let Effect::Call(request) = &started.effect {
            let times = state.started.entry(request.attempt.key.to_string()).or_default();
            *times += 1;
            let policy = self.definition(&request.call.name).policy();
            assert!(!policy.at_most_once || *times == 1, "{} starts {times} times", started.name());
        }
    }

    /// Checks that an exclusive call is the only one of the tree that is executed, and that beside an exclusive agent only calls of its run are.
    fn check_overlaps(&self, state: &State) {
        let executed: Vec<_> =
            state.in_flight.iter().filter_map(|one| Some((one.id.path(), one.call()?))).collect();
        let names = || executed.iter().map(|(_, request)| &*request.call.id).collect::<Vec<_>>();
        let is_exclusive = |name: &str| self.definition(name).policy().exclusive;
        let alone = executed.iter().any(|(_, request)| is_exclusive(&request.call.name));
        assert!(!alone || executed.len() == 1, "{:?} overlap", names());
        let of_agent = executed.iter().filter(|(path, _)| path.depth() > 0).count();
        let is_agent_alone = is_exclusive(self.scenario.outer[0]) && !state.run.is_undoing();
        assert!(!is_agent_alone || of_agent == 0 || of_agent == executed.len(), "{:?} overlap", names());
    }

    fn events(&self, state: &State) -> Vec<Event> {
        let mut events = Vec::new();
        for (position, one) in state.in_flight.iter().enumerate() {
            events.push(Event::Finish(position));
            if one.call().is_some_and(|request| matches!(&*request.call.name, "tried" | "booked" | "unbook"))
            {
                events.push(Event::Fail(position));
            }
        }
        if state.run.waits().iter().any(|wait| wait.question().is_some()) {
            events.push(Event::Answer);
        }
        let timeouts = state.run.engine_view().poll_timeout(state.now);
        events.extend(timeouts.deadline.map(|_| Event::Due));
        assert!(!events.is_empty() || state.run.is_done(), "the tree cannot continue");
        events.extend(timeouts.limit.map(|_| Event::Pass));
        if !state.run.is_done() {
            events.push(Event::Cancel);
            // Nothing sets the profile of a restored run whose calls are undone with those of the run around it.
            let is_undoing = state.run.is_undoing() && state.run.inner_runs().next().is_some();
            if self.scenario.surprises == 1 && !is_undoing {
                events.push(Event::Crash);
            }
        }
        events.retain(|event| state.surprises > 0 || !event.is_surprise());
        events
    }

    fn apply(&self, state: &mut State, event: &Event) {
        state.surprises -= u8::from(event.is_surprise());
        match event {
            Event::Finish(position) | Event::Fail(position) => {
                let finished = state.in_flight.remove(*position);
                let result = self.perform(state, &finished, matches!(event, Event::Fail(_)));
                state.run.engine().handle(&finished.id, result).unwrap();
                state.late.push(finished);
            }
            Event::Answer => {
                let wait = state.run.waits().into_iter().find(|wait| wait.question().is_some()).unwrap();
                state.run.resolve(&wait.id, Decision::answer("Eve")).unwrap();
            }
            Event::Due => state.now = state.run.engine_view().poll_timeout(state.now).deadline.unwrap(),
            Event::Pass => {
                let (path, left) = state.run.engine_view().poll_timeout(state.now).limit.unwrap();
                state.run.engine().advance(left);
                state.run.engine().use_up_time_at(&path);
                let stopped = state.run.engine_view().inner_run_at(path.calls());
                let goes_on = |run: &Run| run.current_calls().next().is_some();
                assert!(!stopped.is_some_and(goes_on), "the time of {path:?} is up");
            }
            Event::Cancel => state.run.cancel(),
            Event::Crash => {
                state.run = serde_json::from_str(&state.saved).unwrap();
                state.run.engine().set_profile(self.profile());
                state.in_flight.clear();
                state.late.clear();
                state.has_crashed = true;
            }
        }
        self.poll(state);
    }

    /// Performs an effect.
    fn perform(&self, state: &State, performed: &InFlight, fails: bool) -> EffectResult {
        let path = performed.id.path();
        let run = state.run.engine_view().inner_run_at(path.calls()).unwrap();
        let is_step = matches!(performed.effect, Effect::Judge(LayerSubject::Next));
        if is_step && (run.is_undoing() || run.stop_reason().is_some()) {
            // Layers have nothing to judge in a run that was stopped meanwhile.
            return EffectResult::Nothing;
        }
        match &performed.effect {
            Effect::Call(request) => EffectResult::Finished(self.execute(request, fails).into()),
            Effect::Begin(request) => {
                let inner = state.run.engine_view().inner_run_at(path.inside(&request.call.id).calls());
                match inner {
                    Some(inner) if inner.engine_view().profile().is_some() => EffectResult::Nothing,
                    // The run goes on after a crash.
                    inner => {
                        let new = || begin(&self.agents[1], &format!("inner_{}", request.attempt.number));
                        let run = Box::new(inner.cloned().unwrap_or_else(new));
                        EffectResult::Began {
                            run,
                            waiting: None,
                            profile: self.profile(),
                            has_own_limits: false,
                        }
                    }
                }
            }
            Effect::End => {
                let outer = path.at_depth(path.depth() - 1);
                let call = path.calls()[path.depth() - 1].to_owned();
                let name = state.run.engine_view().names_to(path).pop().unwrap();
                let is_undoing = state.run.engine_view().inner_run_at(outer.calls()).unwrap().is_undoing();
                let outcome = match run.clone().finish() {
                    Ok(answer) => Ok(ToolOutput::text(answer.text())),
                    Err(_) if is_undoing => Ok(ToolOutput::text("undone")),
                    Err(_) => Err(ToolError::failed("the agent gave no answer")),
                };
                let execution = ToolExecution::new(ToolCall::new(call, name, "{}"), outcome);
                EffectResult::Ended(outer.depth(), execution.into())
            }
            Effect::Judge(LayerSubject::Execution(execution)) => {
                let mut copy = run.engine_view().recording_copy();
                copy.record_result((**execution).clone()).unwrap();
                EffectResult::Changed(copy.changes().without_time().into())
            }
            Effect::Judge(LayerSubject::Next) => {
                let ask = self.agent_of(path).resume(run.engine_view().recording_copy()).remote();
                let mut driver = ask.start();
                driver.judge_before_step().now_or_never().expect("it waits for nothing").unwrap();
                EffectResult::Changed(driver.run().changes().without_time().into())
            }
            Effect::Judge(LayerSubject::Results) | Effect::GiveUp => EffectResult::Nothing,
            Effect::CallModel => {
                let mut copy = run.engine_view().recording_copy();
                copy.record_response(self.reply(path, run)).unwrap();
                let AgentProfile { sees, called, undoing, max_concurrent_calls } = self.profile();
                let (called, undoing) = (called.iter().cloned().collect(), undoing.into_values().collect());
                let tools = TurnTools { sees, called, undoing, max_concurrent_calls };
                EffectResult::Asked(copy.changes().without_time().into(), tools)
            }
        }
    }

    /// Returns what the model replies: two calls in the first turn, and then an answer.
    fn reply(&self, path: &RunPath, run: &Run) -> ChatResponse {
        let names = if path.depth() == 0 { self.scenario.outer } else { self.scenario.inner };
        let calls = IDS[path.depth()].into_iter().zip(names).filter(|_| run.turns() == 0);
        let calls = calls.map(|(id, name)| ToolCall::new(id, name, "{}"));
        ChatResponse::new(AssistantMessage::text("Well.").with_tool_calls(calls))
    }

    /// Executes a call, and returns its outcome without the time that it took.
    fn execute(&self, request: &CallRequest, fails: bool) -> ToolExecution {
        if fails {
            return ToolExecution::new(request.call.clone(), Err(ToolError::failed("no")));
        }
        let mut request = request.clone();
        // A later attempt begins with a delay.
        request.attempt.number = 1;
        let (context, never) = (ToolContext::new(), CancellationToken::new());
        let executed = self.tools.execute_request(request, &context, &never, Progress::default());
        let execution = executed.now_or_never().expect("it returns, or waits");
        let mut execution = serde_json::to_value(execution).unwrap();
        execution.as_object_mut().unwrap().retain(|name, _| name != "started_at" && name != "duration");
        serde_json::from_value(execution).unwrap()
    }

    /// Checks the rules that hold in every state.
    fn check(&self, state: &State, saved_run: &str) {
        self.check_late(state, saved_run);
        self.check_time(state);
        if state.run.is_done() && state.in_flight.is_empty() {
            self.check_end(state);
        }
    }

    /// Checks that results which nobody awaits change nothing.
    fn check_late(&self, state: &State, saved_run: &str) {
        for late in &state.late {
            let mut twin = state.run.clone();
            let result = match &late.effect {
                Effect::Call(request) | Effect::Begin(request) => {
                    EffectResult::Finished(self.execute(request, true).into())
                }
                _ => EffectResult::Nothing,
            };
            twin.engine().handle(&late.id, result).unwrap();
            assert_eq!(saved(&twin), saved_run, "{} comes too late", late.name());
            assert!(twin.engine().poll().is_none(), "{} comes too late", late.name());
        }
    }

    /// Checks that time counts for the runs in which, or inside of which, a call is executed, and for none that only waits for a person.
    fn check_time(&self, state: &State) {
        let mut twin = state.run.clone();
        twin.engine().advance(Duration::from_millis(1));
        for (path, before) in open_runs(&state.run) {
            let Some(after) = twin.engine_view().inner_run_at(path.calls()) else { continue };
            let counts = after.elapsed() > before.elapsed();
            let calls = state.in_flight.iter().filter(|one| one.id.path().calls().starts_with(&path.calls()));
            let is_executing = calls.into_iter().any(|one| one.call().is_some());
            let waits = before.waits();
            let waits_for_person = !waits.is_empty() && waits.iter().all(|wait| !wait.is_until());
            assert!(!is_executing || counts, "the time of {path:?} does not count");
            let is_idle = !state.in_flight.iter().any(|one| one.id.path().calls().starts_with(&path.calls()));
            assert!(!(waits_for_person && is_idle && counts), "the time of {path:?} counts");
        }
    }

    /// Checks that each effect is undone once in a run that has failed, and in no other one.
    fn check_end(&self, state: &State) {
        for run in all_runs(&state.run) {
            assert!(run.is_done(), "{} goes on", run.id());
            let has_failed = run.clone().finish().is_err();
            let mut undone: Vec<_> = run.undo_executions().iter().map(|one| &*one.call().id).collect();
            undone.sort_unstable();
            let times =
                |id: &str| state.started.get(&format!("{}/{id}", run.id())).copied().unwrap_or_default();
            // One that was started may have had its effect, unless it says that it has failed.
            let is_undoable = |one: &&ToolExecution| {
                let has_failed = one.outcome().is_err_and(|error| error.kind() == ToolErrorKind::Failed);
                matches!(&*one.call().name, "booked" | "once") && times(&one.call().id) > 0 && !has_failed
            };
            let calls = run.tool_executions().iter().filter(is_undoable).filter(|_| has_failed);
            let mut expected: Vec<_> = calls.map(|one| format!("undo_{}", one.call().id)).collect();
            expected.sort_unstable();
            undone.retain(|id| *id != "undo_a");
            assert_eq!(undone, expected, "what {} has undone", run.id());
            // One in flight is started again if the run around it stops, under the same key.
            let can_restart = state.has_crashed || self.scenario.surprises > 1;
            for id in undone {
                let times = times(id);
                assert!(times == 1 || can_restart, "{id} was started {times} times");
            }
        }
    }

    /// Visits all states, and returns their number.
    fn run(&self) -> usize {
        let mut visited = HashSet::new();
        let mut queue = VecDeque::from([(self.start(), Vec::new())]);
        while let Some((state, path)) = queue.pop_front() {
            let events = catch_unwind(AssertUnwindSafe(|| self.events(&state))).unwrap_or_else(|panic| {
                println!("{:?}: {path:#?}", self.scenario);
                resume_unwind(panic)
            });
            for event in events {
                let mut path: Vec<String> = path.clone();
                path.push(match event {
                    Event::Finish(position) => state.in_flight[position].name(),
                    Event::Fail(position) => format!("{} fails", state.in_flight[position].name()),
                    _ => format!("{event:?}"),
                });
                let visit = || {
                    let mut next = state.clone();
                    self.apply(&mut next, &event);
                    let saved_run = saved(&next.run);
                    let mut in_flight: Vec<_> = next.in_flight.iter().map(InFlight::name).collect();
                    in_flight.sort_unstable();
                    let mut hasher = DefaultHasher::new();
                    (&saved_run, &next.saved, in_flight, &next.started, next.surprises, next.now.as_millis())
                        .hash(&mut hasher);
                    (next, saved_run, hasher.finish())
                };
                let explain = |panic| -> ! {
                    println!("{:?}: {path:#?}", self.scenario);
                    resume_unwind(panic)
                };
                let (next, saved_run, hash) =
                    catch_unwind(AssertUnwindSafe(visit)).unwrap_or_else(|panic| explain(panic));
                if visited.insert(hash) {
                    let check = || self.check(&next, &saved_run);
                    catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|panic| explain(panic));
                    queue.push_back((next, path));
                }
            }
        }
        visited.len()
    }
}

/// Returns all scenarios: each pair of calls inside, beside each call outside.
fn scenarios() -> Vec<Scenario> {
    const INNER: [&str; 7] = ["plain", "alone", "booked", "once", "tried", "parked", "asks"];
    let mut scenarios = Vec::new();
    for clerk in ["clerk", "clerk_alone", "clerk_tried"] {
        for beside in ["plain", "alone", "booked", "once", "parked", "asks"] {
            for (first, one) in INNER.iter().enumerate() {
                for two in &INNER[first..] {
                    let number = scenarios.len();
                    let sees =
                        LayerSight { answers: false, outputs: number % 3 == 1, records: number % 3 > 0 };
                    scenarios.push(Scenario {
                        outer: [clerk, beside],
                        inner: [one, two],
                        max: 2 - number % 2,
                        is_timed: [number % 4 == 1, number % 4 > 1],
                        sees,
                        surprises: 1,
                    });
                }
            }
        }
    }
    scenarios
}

/// Returns scenarios in which the inner run is stopped by its time, and the outer one while the inner one undoes its calls.
fn stopped_twice() -> Vec<Scenario> {
    let scenario = |inner, outputs, records| Scenario {
        outer: ["clerk", "plain"],
        inner,
        max: 2,
        is_timed: [false, true],
        sees: LayerSight { answers: false, outputs, records },
        surprises: 2,
    };
    vec![
        scenario(["booked", "plain"], false, false),
        scenario(["booked", "booked"], false, false),
        scenario(["booked", "plain"], true, true),
    ]
}

#[test]
fn every_order_of_effects_of_a_tree_keeps_the_rules() {
    // All of them take minutes.
    let stopped_twice = stopped_twice().into_iter().take(if is_exhaustive() { 3 } else { 1 });
    let scenarios = scenarios().into_iter().step_by(if is_exhaustive() { 53 } else { 97 });
    let _ = scenarios;
    let scenarios: Vec<_> = stopped_twice.collect();
    let queue = Mutex::new(scenarios.iter());
    let explore_all = || {
        let mut states = 0;
        loop {
            let Some(scenario) = queue.lock().unwrap().next() else { return states };
            states += Exploration::new(*scenario).run();
        }
    };
    let states: usize = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(explore_all)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{states} states of {} trees", scenarios.len());
}
