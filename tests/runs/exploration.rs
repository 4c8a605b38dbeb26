//! Every order of events in a run, explored breadth-first over its stored states: up to three calls in two turns, with each
//! policy of a tool.
//!
//! The world beside the run knows what a run cannot: which attempts are in flight, what a person approved, and which calls
//! may have had their effect. In every state, the rules are checked against it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::json;
use tests::support::deciding::{Decide, Waiting};
use tests::support::sampling::is_exhaustive;
use tests::support::ways::assert_valid;
use tool_core::engine::ToolSetExt;
use tool_core::model::{AssistantMessage, ChatResponse, ReturnDirect, ToolDefinition, ToolPolicy};
use tool_core::provider::{ToolDefinitions, ToolKind};
use tool_core::run::{Decision, Run, Step};
use tool_core::signatures::ResolveErrorKind;
use tool_core::tool::{Progress, ToolErrorKind, ToolExecution};
use tool_core::{
    CancellationToken, FunctionTool, Message, ToolCall, ToolContext, ToolError, ToolOutput, ToolSet,
};

/// The tools that the model calls: one for each policy, and some that combine them.
const NAMES: [&str; 11] =
    ["once", "tried", "alone", "asked", "direct", "booked", "careful", "fatal", "remote", "asks", "holds"];

/// The tools that ask a person: one that must not be executed twice, and one that records a value before it asks. They are executed,
/// so that what the run stores is what a call really waits for.
fn asking_tools() -> ToolSet {
    let asks = FunctionTool::new("asks", |_: HashMap<String, u8>, context: ToolContext| async move {
        context
            .asker()
            .ask::<String>("Who?")
            .expires(Duration::from_millis(1000))
            .await
            .map_err(ToolError::from)
    });
    let holds = FunctionTool::new("holds", |_: HashMap<String, u8>, context: ToolContext| async move {
        let held = context.asker().once("hold", async { Ok::<_, ToolError>(7) }).await?;
        let who: String = context.asker().ask("Who?").await?;
        Ok::<_, ToolError>(if held == 7 { who } else { "another value".into() })
    });
    let asks = asks.at_most_once().undo("unbook_once");
    ToolSet::default().with(asks).unwrap().with(holds.undo("unbook")).unwrap()
}

fn tools() -> ToolDefinitions {
    fn tool(name: &str, change: fn(&mut ToolPolicy)) -> ToolDefinition {
        let mut policy = ToolPolicy::default();
        change(&mut policy);
        ToolDefinition::new(name).with_policy(policy)
    }
    let asking = asking_tools();
    let own = [
        tool("plain", |_| {}),
        tool("once", |policy| policy.at_most_once = true).with_undo("unbook_once"),
        tool("tried", |policy| policy.attempts = 2).with_undo("unbook"),
        tool("alone", |policy| policy.exclusive = true),
        tool("asked", |policy| policy.needs_approval = true),
        tool("direct", |policy| policy.return_direct = ReturnDirect::IfAll),
        tool("booked", |_| {}).with_undo("unbook"),
        tool("careful", |policy| {
            (policy.needs_approval, policy.at_most_once, policy.exclusive) = (true, true, true);
            (policy.attempts, policy.return_direct) = (2, ReturnDirect::IfLast);
        })
        .with_undo("unbook_once"),
        tool("fatal", |_| {}),
        tool("remote", |policy| policy.attempts = 2).with_kind(ToolKind::Caller).with_undo("unbook"),
        tool("unbook", |policy| policy.attempts = 2),
        tool("unbook_once", |policy| policy.at_most_once = true),
    ];
    own.into_iter().chain(asking.definitions().iter().cloned()).collect()
}

/// The ids of the model's calls, and of the calls that undo them.
const IDS: [&str; 6] = ["a", "b", "c", "undo_a", "undo_b", "undo_c"];

const ARGUMENTS: &str = "{}";
const CHANGED: &str = r#"{"n": 7}"#;

/// The names of the tools that the model calls in each turn.
type Script = [Vec<&'static str>; 2];

/// The facts of the world about a call.
#[derive(Clone, Default, Hash, PartialEq)]
struct Call {
    /// The driver may start it: it was in the last step and has not been started since.
    is_offered: bool,
    /// An attempt is in flight.
    is_running: bool,
    is_approved: bool,
    is_changed: bool,
    has_begun: bool,
    has_succeeded: bool,
    /// An attempt ended without an outcome that rules an effect out.
    is_uncertain: bool,
    /// The outcome of the attempt in flight of a tool that asks.
    execution: Option<String>,
    /// The call has recorded a value.
    has_recorded: bool,
    /// The id of the wait that was decided last.
    decided: Option<String>,
}

impl Call {
    fn may_have_effect(&self) -> bool {
        self.is_running || self.has_succeeded || self.is_uncertain || self.has_recorded
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Succeeded,
    Failed,
    TimedOut,
    Panicked,
    Fatal,
}

impl Outcome {
    fn record(self, call: ToolCall) -> ToolExecution {
        let error = |kind: ToolErrorKind| -> ToolError {
            serde_json::from_value(json!({ "kind": kind, "message": "no" })).unwrap()
        };
        let outcome = match self {
            Self::Succeeded => Ok(ToolOutput::text("1")),
            Self::Failed => Err(ToolError::failed("no")),
            Self::TimedOut => Err(error(ToolErrorKind::TimedOut)),
            Self::Panicked => Err(error(ToolErrorKind::Panicked)),
            Self::Fatal => Err(ToolError::fatal("no")),
        };
        ToolExecution::new(call, outcome)
    }
}

impl Event {
    /// Returns `true` for what may happen at any moment and any number of times. A run has only so many surprises, because
    /// each adds to its state.
    fn is_surprise(self) -> bool {
        matches!(
            self,
            Self::Finish(_, Outcome::TimedOut | Outcome::Panicked)
                | Self::Speak
                | Self::Say
                | Self::Crash
                | Self::Cancel
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Reply,
    Begin(usize),
    Finish(usize, Outcome),
    /// The attempt of a tool that asks ends, because it waits or has its answer.
    Return(usize),
    Answer(usize),
    Decline(usize),
    /// The time of the question is over.
    Expire(usize),
    /// The caller supplies the result of a call of an external tool.
    Supply(usize, Outcome),
    Approve(usize),
    Change(usize),
    Deny(usize),
    Speak,
    Say,
    Cancel,
    /// The process ends with attempts in flight, or another driver takes the run over, so that the store refuses their outcomes.
    Crash,
}

/// A run and the world beside it.
#[derive(Clone)]
struct State {
    run: Run,
    /// What is folded from the changes of the run, as a store has it.
    stored: Run,
    calls: [Call; 6],
    /// The number of surprises that may still occur.
    surprises: u8,
    /// The driver is about to call the model.
    is_asking: bool,
}

struct Exploration {
    tools: ToolDefinitions,
    asking: ToolSet,
    script: Script,
    /// The number of surprises in one run.
    surprises: u8,
}

fn index(id: &str) -> usize {
    IDS.iter().position(|known| *known == id).unwrap()
}

fn saved(run: &Run) -> String {
    serde_json::to_string(run).unwrap()
}

fn restore(run: &Run) -> Run {
    serde_json::from_str(&saved(run)).unwrap()
}

impl Exploration {
    fn tool(&self, name: &str) -> &ToolDefinition {
        self.tools.iter().find(|one| one.name() == name).unwrap()
    }

    fn policy(&self, name: &str) -> &ToolPolicy {
        self.tool(name).policy()
    }

    fn policy_of(&self, index: usize, state: &State) -> &ToolPolicy {
        let call = self.call(index, state).unwrap();
        self.policy(&call.name)
    }

    /// Returns a call of the run, as the model reads it, or the call that undoes it.
    fn call(&self, index: usize, state: &State) -> Option<ToolCall> {
        let replies = state.run.messages().iter().filter_map(Message::as_assistant);
        let mut calls = replies.flat_map(|reply| &reply.tool_calls);
        let call = calls.find(|call| call.id == IDS[index % 3])?;
        if index < 3 {
            return Some(call.clone());
        }
        let undo = self.tools.iter().find(|one| one.name() == call.name)?.undo()?;
        Some(ToolCall::new(IDS[index], undo, &*call.arguments))
    }

    fn start(&self) -> State {
        let mut run = serde_json::to_value(Run::new([Message::user("Go")])).unwrap();
        run["id"] = "run_1".into();
        let run: Run = serde_json::from_value(run).unwrap();
        let mut state = State {
            run: run.engine_view().recording_copy(),
            stored: run,
            calls: Default::default(),
            surprises: self.surprises,
            is_asking: false,
        };
        self.step(&mut state);
        state
    }

    /// Takes the next step if no attempt is in flight, and checks what the run asks for.
    fn step(&self, state: &mut State) {
        if state.run.current_calls().next().is_none() {
            // The run has stopped, and its driver drops what is in flight.
            for call in &mut state.calls[..3] {
                call.is_uncertain |= call.is_running;
                (call.is_running, call.is_offered, call.execution) = (false, false, None);
            }
        }
        if state.calls.iter().any(|call| call.is_running) {
            return;
        }
        state.is_asking = false;
        state.calls.iter_mut().for_each(|call| call.is_offered = false);
        match state.run.next(&self.tools) {
            Step::CallModel(request) => {
                assert_acceptable(request.messages());
                state.is_asking = true;
            }
            Step::CallTools(calls) => {
                let calls: Vec<_> = calls.into_iter().map(|call| (index(&call.id), call)).collect();
                let exclusive = calls.iter().filter(|(_, call)| self.policy(&call.name).exclusive).count();
                assert!(!calls.is_empty() && (exclusive == 0 || calls.len() == 1));
                for (index, call) in calls {
                    let expected = if state.calls[index % 3].is_changed { CHANGED } else { ARGUMENTS };
                    assert_eq!(call.arguments, expected);
                    self.assert_may_begin(index, state);
                    state.calls[index].is_offered = true;
                }
            }
            Step::Waiting(waits) => assert!(!waits.is_empty()),
            Step::Done => assert!(state.run.is_done()),
            other => panic!("there is no such step: {other:?}"),
        }
    }

    fn assert_may_begin(&self, index: usize, state: &State) {
        let (call, policy) = (&state.calls[index], self.policy_of(index, state));
        let name = self.call(index, state).unwrap().name;
        assert!(self.tool(&name).kind() != ToolKind::Caller, "{} is not executed by the run", IDS[index]);
        assert!(index >= 3 || !policy.needs_approval || call.is_approved, "{} is unapproved", IDS[index]);
        assert!(!policy.at_most_once || !call.may_have_effect(), "{} may have its effect", IDS[index]);
    }

    fn events(&self, state: &State) -> Vec<Event> {
        let mut events = Vec::new();
        if state.is_asking {
            events.push(Event::Reply);
        }
        for (index, call) in state.calls.iter().enumerate() {
            if call.is_offered {
                events.push(Event::Begin(index));
            }
            if call.execution.is_some() {
                events.push(Event::Return(index));
            } else if call.is_running {
                let outcomes: &[_] = match &*self.call(index, state).unwrap().name {
                    "fatal" => &[Outcome::Fatal],
                    "once" | "tried" | "careful" => &[Outcome::Succeeded, Outcome::Failed, Outcome::TimedOut],
                    "booked" => &[Outcome::Succeeded, Outcome::Panicked],
                    _ => &[Outcome::Succeeded, Outcome::Failed],
                };
                events.extend(outcomes.iter().map(|outcome| Event::Finish(index, *outcome)));
            }
        }
        for call in state.run.approvals() {
            let index = index(&call.id);
            events.extend([Event::Approve(index), Event::Change(index), Event::Deny(index)]);
        }
        for wait in state.run.waits() {
            if wait.question().is_some() {
                let index = index(&wait.path);
                events.extend([Event::Answer(index), Event::Decline(index)]);
                events.extend(wait.deadline.map(|_| Event::Expire(index)));
            }
        }
        for call in state.run.results() {
            let index = index(&call.id);
            events.extend([Event::Supply(index, Outcome::Succeeded), Event::Supply(index, Outcome::Failed)]);
        }
        assert!(!events.is_empty() || state.run.is_done(), "the run cannot continue");
        if !state.run.is_done() {
            events.extend([Event::Speak, Event::Say, Event::Cancel]);
        }
        if state.calls.iter().any(|call| call.is_running) {
            events.push(Event::Crash);
        }
        events.retain(|event| state.surprises > 0 || !event.is_surprise());
        events
    }

    fn apply(&self, state: &mut State, event: Event) {
        state.surprises -= u8::from(event.is_surprise());
        match event {
            Event::Reply => {
                let turn = state.run.turns() as usize;
                let calls = self.script.get(turn).into_iter().flatten();
                let first = self.script[..turn.min(2)].iter().map(Vec::len).sum::<usize>();
                let calls: Vec<_> = calls
                    .enumerate()
                    .map(|(position, name)| ToolCall::new(IDS[first + position], *name, ARGUMENTS))
                    .collect();
                let reply = AssistantMessage::text("Well.").with_tool_calls(calls);
                state.run.record_response(ChatResponse::new(reply)).unwrap();
            }
            Event::Begin(index) => {
                self.assert_may_begin(index, state);
                let mut request = state.run.request_call(IDS[index]).unwrap();
                // A later attempt begins with a delay.
                request.attempt.number = 1;
                assert_eq!(request.attempt.key.as_str(), format!("run_1/{}", IDS[index]));
                let is_asking = self.asking.get(&request.call.name).is_some();
                let call = &mut state.calls[index];
                (call.is_offered, call.is_running, call.has_begun) = (false, true, true);
                if is_asking {
                    let (context, never) = (ToolContext::new(), CancellationToken::new());
                    let executed =
                        self.asking.execute_request(request, &context, &never, Progress::default());
                    let execution = executed.now_or_never().expect("it returns, or waits");
                    // Without the time that it took.
                    let mut execution = serde_json::to_value(execution).unwrap();
                    execution
                        .as_object_mut()
                        .unwrap()
                        .retain(|name, _| name != "started_at" && name != "duration");
                    call.execution = Some(execution.to_string());
                }
            }
            Event::Return(index) => {
                let call = &mut state.calls[index];
                let execution = call.execution.take().unwrap();
                let execution: ToolExecution = serde_json::from_str(&execution).unwrap();
                call.is_running = false;
                call.has_recorded = execution.is_waiting() && execution.call().name == "holds";
                if let Some(output) = execution.output() {
                    assert_eq!(output.to_string(), IDS[index], "an answer reaches another call");
                    call.has_succeeded = true;
                }
                state.run.record_result(execution).unwrap();
            }
            Event::Answer(index) | Event::Decline(index) => {
                let wait = state.run.waits().into_iter().find(|wait| wait.path == IDS[index]).unwrap();
                let decision = match event {
                    Event::Answer(_) => Decision::answer(IDS[index]),
                    _ => Decision::decline(),
                };
                state.run.resolve(&wait.id, decision).unwrap();
                state.calls[index].decided = Some(wait.id.to_string());
            }
            Event::Expire(index) => {
                let wait = state.run.waits().into_iter().find(|wait| wait.path == IDS[index]).unwrap();
                assert!(state.run.tick(wait.deadline.unwrap()));
                state.calls[index].decided = Some(wait.id.to_string());
            }
            Event::Finish(index, outcome) => {
                let call = self.call(index, state).unwrap();
                state.run.record_result(outcome.record(call)).unwrap();
                let mut open = state.run.current_calls().filter(|(_, outcome)| outcome.is_none());
                let call = &mut state.calls[index];
                call.is_running = false;
                call.has_succeeded |= outcome == Outcome::Succeeded;
                call.is_uncertain |= matches!(outcome, Outcome::TimedOut | Outcome::Panicked);
                // The driver repeats a failed call while others are in flight.
                call.is_offered = open.any(|(call, _)| call.id == IDS[index]);
            }
            Event::Supply(index, outcome) => {
                let call = self.call(index, state).unwrap();
                state.run.record_result(outcome.record(call)).unwrap();
            }
            Event::Approve(index) => {
                state.run.decide_call(IDS[index], Decision::approve()).unwrap();
                state.calls[index].is_approved = true;
            }
            Event::Change(index) => {
                state.run.decide_call(IDS[index], Decision::approve_with(CHANGED)).unwrap();
                (state.calls[index].is_approved, state.calls[index].is_changed) = (true, true);
            }
            Event::Deny(index) => {
                state.run.decide_call(IDS[index], Decision::decline()).unwrap();
            }
            Event::Speak => {
                let is_undoing = state.calls[3..].iter().any(|call| call.is_offered || call.is_running);
                assert_eq!(state.run.deny_and_say("Hurry").is_err(), is_undoing);
            }
            Event::Say => {
                let waits = state.run.waits();
                let is_undoing = state.calls[3..].iter().any(|call| call.is_offered || call.is_running);
                assert_eq!(state.run.say("Also").is_err(), is_undoing);
                assert_eq!(state.run.waits(), waits, "a message decides nothing");
            }
            Event::Cancel => state.run.cancel(),
            Event::Crash => {
                state.run = restore(&state.run).engine_view().recording_copy();
                for call in &mut state.calls {
                    call.is_uncertain |= call.is_running;
                    (call.is_running, call.execution) = (false, None);
                }
            }
        }
        self.step(state);
        state.stored.apply_changes(&state.run.changes()).unwrap();
        state.run = state.run.engine_view().recording_copy();
    }

    /// Checks the rules that hold in every state.
    fn check(&self, state: &State, saved_run: &str) {
        let run = &state.run;
        assert_eq!(saved(&state.stored), saved_run, "the changes are incomplete");
        // A restored twin takes the same step, refuses what the run did not ask for, and is unchanged by both.
        let mut twin: Run = serde_json::from_str(saved_run).unwrap();
        if !state.calls.iter().any(|call| call.is_running) {
            let _ = twin.next(&self.tools);
        }
        self.check_refusals(state, &mut twin);
        assert_eq!(saved(&twin), saved_run);
        let open = usize::from(run.current_calls().next().is_some());
        assert_acceptable(&run.messages()[..run.messages().len() - open]);
        let executed: Vec<_> = run.tool_executions().iter().map(|one| index(&one.call().id)).collect();
        assert!(executed.is_sorted_by(|one, next| one < next), "{executed:?}");
        self.check_undone(state);
    }

    /// Checks that the run in this state refuses what it did not ask for.
    fn check_refusals(&self, state: &State, run: &mut Run) {
        let waiting: Vec<_> = state.run.approvals().map(|call| index(&call.id)).collect();
        for call in state.run.results() {
            run.begin_call(&call.id).unwrap_err();
        }
        for (index, known) in state.calls.iter().enumerate() {
            if let Some(decided) = &known.decided {
                let refused = run.resolve(decided.clone(), Decision::answer("late")).unwrap_err();
                assert_eq!(refused.kind(), ResolveErrorKind::AlreadyDecided);
            }
            if state.run.waits().iter().any(|wait| wait.question().is_some() && wait.path == IDS[index]) {
                run.begin_call(IDS[index]).unwrap_err();
            }
            if !waiting.contains(&index) {
                run.decide_call(IDS[index], Decision::approve()).unwrap_err();
            }
            let is_open = known.is_offered
                || known.is_running
                || (state.run.current_calls())
                    .any(|(call, outcome)| call.id == IDS[index] && outcome.is_none());
            if !is_open || waiting.contains(&index) {
                run.begin_call(IDS[index]).unwrap_err();
                let call = ToolCall::new(IDS[index], "plain", ARGUMENTS);
                run.record_result(Outcome::Succeeded.record(call)).unwrap_err();
            }
        }
        if !state.is_asking {
            run.record_response(ChatResponse::new(AssistantMessage::text("Well."))).unwrap_err();
        }
    }

    /// Checks that the calls with an effect are undone if the run fails, the last one first.
    fn check_undone(&self, state: &State) {
        let undone = state.run.undo_executions().iter().map(|one| index(&one.call().id) - 3);
        let undone: Vec<_> = undone.collect();
        assert!(undone.is_sorted_by(|one, next| one > next), "{undone:?}");
        assert!(undone.iter().all(|index| state.calls[*index].has_begun), "{undone:?}");
        let has_failed = state.run.is_done() && state.run.clone().finish().is_err();
        for (index, known) in state.calls[..3].iter().enumerate() {
            let is_undoable = self.call(index + 3, state).is_some();
            if has_failed && is_undoable && known.may_have_effect() {
                assert!(undone.contains(&index), "{} is not undone", IDS[index]);
            }
            let is_asking = self.call(index, state).is_some_and(|call| self.asking.get(&call.name).is_some());
            if is_asking && !known.may_have_effect() {
                assert!(!undone.contains(&index), "{} waited and was not executed", IDS[index]);
            }
            if state.run.is_done() && !has_failed {
                assert!(undone.is_empty(), "{undone:?}");
            }
        }
    }

    /// Visits all states, and returns their number.
    fn run(&self) -> usize {
        let mut visited = HashSet::new();
        let mut queue = VecDeque::from([(self.start(), Vec::new())]);
        while let Some((state, path)) = queue.pop_front() {
            for event in self.events(&state) {
                let mut path: Vec<Event> = path.clone();
                path.push(event);
                let visit = || {
                    let mut next = state.clone();
                    self.apply(&mut next, event);
                    let saved_run = saved(&next.run);
                    let mut hasher = DefaultHasher::new();
                    (&saved_run, &next.calls, next.surprises).hash(&mut hasher);
                    (next, saved_run, hasher.finish())
                };
                let explain = |panic| -> ! {
                    println!("{:?}: {path:?}", self.script);
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

/// Checks that a provider accepts the messages: each call has a result, in the order of the calls and directly after them.
fn assert_acceptable(messages: &[Message]) {
    assert_valid(messages);
    for (position, message) in messages.iter().enumerate() {
        let Message::Assistant(reply) = message else { continue };
        for (call, result) in reply.tool_calls.iter().zip(&messages[position + 1..]) {
            assert!(matches!(result, Message::Tool(result) if result.call_id == call.id));
        }
        assert!(!matches!(messages.get(position + 1), Some(Message::Assistant(_))));
    }
}

/// Returns scripts of one to three calls, each with its number of surprises: every pair of tools in one turn and in two turns,
/// and three calls so that every pair meets some of the others.
fn scripts() -> Vec<(Script, u8)> {
    let mut scripts = Vec::new();
    for (first, one) in NAMES.iter().enumerate() {
        scripts.push(([vec![*one], vec![]], 3));
        scripts.extend(NAMES.map(|two| ([vec![*one], vec![two]], 1)));
        for (second, two) in NAMES.iter().enumerate().skip(first) {
            scripts.push(([vec![*one, *two], vec![]], 2));
            let thirds = NAMES.iter().enumerate().filter(|(third, _)| (first + second + third) % 6 == 0);
            scripts.extend(thirds.map(|(_, three)| ([vec![*one, *two], vec![*three]], 1)));
        }
    }
    scripts
}

#[test]
fn every_order_of_events_keeps_the_rules() {
    let mut scripts = scripts();
    if !is_exhaustive() {
        scripts = scripts.into_iter().step_by(211).collect();
    }
    let queue = Mutex::new(scripts.iter());
    let explore_all = || {
        let mut states = 0;
        loop {
            let Some((script, surprises)) = queue.lock().unwrap().next() else { return states };
            let exploration = Exploration {
                tools: tools(),
                asking: asking_tools(),
                script: script.clone(),
                surprises: *surprises,
            };
            states += exploration.run();
        }
    };
    let states: usize = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(explore_all)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{states} states of {} runs", scripts.len());
}
