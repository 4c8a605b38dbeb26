//! A run driven by a tape of random bytes: it never panics, requests only valid steps, and ends; a restored run behaves
//! like the original.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;
use tests::support::deciding::{Decide, Waiting};
use tool_core::model::{
    AssistantMessage, ChatResponse, FinishReason, ReturnDirect, ToolDefinition, ToolPolicy, Usage,
};
use tool_core::provider::ToolDefinitions;
use tool_core::run::{Decision, ErrorPolicy, Run, RunLimits, Step, WaitReason};
use tool_core::signatures::StepError;
use tool_core::tool::{OutcomeOrigin, ToolErrorKind, ToolExecution};
use tool_core::{Message, RunErrorKind, ToolCall, ToolError, ToolOutput};

use tests::support::sampling::cases;
use tests::support::ways::{assert_valid, restored};

/// A source of random decisions. Past its end, everything succeeds.
struct Tape<'a>(std::slice::Iter<'a, u8>);

impl Tape<'_> {
    /// Returns a number below `limit`, or 0 at the end of the tape.
    fn below(&mut self, limit: u8) -> usize {
        self.0.next().map_or(0, |byte| usize::from(byte % limit))
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u8)]
    }

    fn is_finished(&self) -> bool {
        self.0.len() == 0
    }
}

fn policy(change: fn(&mut ToolPolicy)) -> ToolPolicy {
    let mut policy = ToolPolicy::default();
    change(&mut policy);
    policy
}

/// Returns one tool for each kind of policy.
fn tools() -> ToolDefinitions {
    let tool = |name: &'static str, change| ToolDefinition::new(name).with_policy(policy(change));
    ToolDefinitions::from_iter([
        tool("plain", |_| {}),
        tool("alone", |policy| policy.exclusive = true),
        tool("asked", |policy| policy.needs_approval = true),
        tool("asked_alone", |policy| (policy.needs_approval, policy.exclusive) = (true, true)),
        tool("once", |policy| policy.at_most_once = true),
        tool("pure", |policy| policy.pure = true),
        tool("tried", |policy| policy.attempts = 3),
        tool("direct", |policy| policy.return_direct = ReturnDirect::IfAll),
        tool("last", |policy| policy.return_direct = ReturnDirect::IfLast),
        tool("ending", |policy| policy.return_direct = ReturnDirect::Always),
        tool("undone", |_| {}).with_undo("undo"),
        tool("undone_once", |policy| policy.at_most_once = true).with_undo("undo_once"),
        tool("undo", |policy| policy.attempts = 2),
        tool("undo_once", |policy| policy.at_most_once = true),
    ])
}

const NAMES: [&str; 17] = [
    "plain",
    "undone",
    "alone",
    "asked",
    "asked_alone",
    "once",
    "pure",
    "tried",
    "direct",
    "last",
    "ending",
    "undone_once",
    "undo",
    "invented",
    "plain\" />",
    "multi_tool_use.parallel",
    "",
];
const IDS: [&str; 8] = ["", "x-a", "x-b", "call_0", "call_1_0", "undo_x-a", "undo_call_1_0", " "];
const ARGUMENTS: [&str; 5] = [
    "{}",
    r#"{"n": 1}"#,
    r#"{"n": 2}"#,
    r#"{"tool_uses": [{"recipient_name": "functions.plain", "parameters": {}},
        {"recipient_name": "functions.asked", "parameters": {"n": 1}}]}"#,
    "{\"n\": ",
];

fn reply(tape: &mut Tape<'_>, continues: bool) -> ChatResponse {
    let count = if tape.is_finished() { usize::from(continues) } else { tape.below(5) };
    let calls: Vec<_> = (0..count)
        .map(|_| ToolCall::new(tape.pick(&IDS), tape.pick(&NAMES), tape.pick(&ARGUMENTS)))
        .collect();
    let mut response = ChatResponse::new(AssistantMessage::text("Said.").with_tool_calls(calls));
    match tape.below(20) {
        1 => response.finish_reason = FinishReason::Length,
        2 => response.finish_reason = FinishReason::ContentFilter,
        3 => response.message = AssistantMessage::default(),
        4 | 5 => {
            let mut usage = Usage::default();
            usage.total_tokens = [10, u64::MAX][tape.below(2)];
            response.usage = Some(usage);
        }
        _ => {}
    }
    response
}

fn outcome(tape: &mut Tape<'_>) -> Result<ToolOutput, ToolError> {
    match tape.below(10) {
        1 => Err(ToolError::failed("no")),
        2 => Err(ToolError::fatal("never")),
        3 => Err(ToolError::invalid_arguments("`n` is odd")),
        4 => Ok(ToolOutput::text("x".repeat(300))),
        5 => Ok(ToolOutput::text("")),
        6 => Err(ToolError::failed("")),
        _ => Ok(ToolOutput::text("1")),
    }
}

fn new_run(tape: &mut Tape<'_>) -> Run {
    let mut limits = RunLimits::default();
    limits.max_turns = tape.pick(&[6, 0, 1, 2, 12]);
    limits.max_calls = tape.pick(&[None, Some(0), Some(3), Some(8)]);
    limits.max_total_tokens = tape.pick(&[None, Some(15)]);
    limits.max_total_output_chars = tape.pick(&[None, Some(0), Some(400)]);
    limits.max_time = tape.pick(&[None, Some(Duration::from_secs(5))]);
    limits.max_repeated_calls = tape.pick(&[3, 0, 1]);
    let mut run = Run::new(match tape.below(3) {
        0 => vec![Message::user("What now?")],
        1 => vec![Message::system("Be brief."), Message::user("What now?")],
        _ => vec![Message::user("Hello"), Message::assistant("Good morning!"), Message::user("What now?")],
    });
    run = run.with_limits(limits);
    for kind in [ToolErrorKind::Failed, ToolErrorKind::InvalidArguments, ToolErrorKind::UnknownTool] {
        run = run.error_policy(
            kind,
            tape.pick(&[ErrorPolicy::Report, ErrorPolicy::Report, ErrorPolicy::Hide, ErrorPolicy::EndRun]),
        );
    }
    run
}

/// A run, and a copy of it that is serialized and restored now and then.
struct Twins {
    run: Run,
    twin: Run,
    tools: ToolDefinitions,
    /// The calls whose outcome was recorded.
    finished: HashSet<String>,
    started: HashSet<String>,
    keys: HashMap<String, String>,
}

impl Twins {
    /// Applies `what` to both runs and compares the results and the states.
    fn both<T: PartialEq + Debug>(&mut self, what: impl Fn(&mut Run) -> T) -> T {
        let (one, other) = (what(&mut self.run), what(&mut self.twin));
        assert_eq!(one, other);
        assert_eq!(serde_json::to_string(&self.run).unwrap(), serde_json::to_string(&self.twin).unwrap());
        one
    }

    /// Checks that both runs refuse a step with one of these errors.
    fn assert_refused<T: PartialEq + Debug>(
        &mut self,
        expected: &[&str],
        what: impl Fn(&mut Run) -> Result<T, StepError>,
    ) {
        let error = self.both(what).unwrap_err().to_string();
        let reason = error.strip_prefix("the run does not expect this: ").unwrap();
        assert!(expected.contains(&reason), "{error}");
    }

    /// Checks that unexpected input is refused and changes nothing.
    fn disturb(&mut self, tape: &mut Tape<'_>) {
        let before = serde_json::to_string(&self.run).unwrap();
        let call = ToolCall::new("nobody's", "plain", "{}");
        let stray = ToolExecution::new(call, Ok(ToolOutput::text("1")));
        let unknown = [
            "the current turn has no call with this id",
            "no call with this id is open",
            "no call with this path is open",
        ];
        self.assert_refused(&unknown, |run| run.record_result(stray.clone()));
        self.assert_refused(&unknown, |run| run.begin_call("nobody's"));
        self.both(|run| run.decide_call("nobody's", Decision::approve())).unwrap_err();
        if let Some(id) = self.finished.iter().nth(tape.below(8)).cloned() {
            let again = ToolExecution::new(ToolCall::new(&*id, "plain", "{}"), Ok(ToolOutput::text("2")));
            let finished = [&unknown[..], &["the call already has a result"]].concat();
            self.assert_refused(&finished, |run| run.record_result(again.clone()));
            self.assert_refused(&finished, |run| run.begin_call(&id));
        }
        assert_eq!(before, serde_json::to_string(&self.run).unwrap());
    }

    /// Applies a random event that may occur between two steps.
    fn interrupt(&mut self, tape: &mut Tape<'_>) {
        match tape.below(16) {
            1..=4 => self.twin = restored(self.twin.clone()),
            5 => self.disturb(tape),
            6 => {
                let _ = self.both(|run| run.deny_and_say("Hurry"));
            }
            7 => self.both(|run| run.add_elapsed(Duration::from_secs(2))),
            8 if tape.below(4) == 3 => self.both(Run::cancel),
            10 if self.run.is_done() => {
                let _ = self.both(|run| run.reject_answer("Answer in JSON."));
            }
            _ => {}
        }
    }

    fn execute(&mut self, calls: &[ToolCall], tape: &mut Tape<'_>) {
        let first = if tape.is_finished() { 0 } else { tape.below(4) };
        for call in calls.iter().cycle().skip(first).take(calls.len()) {
            assert!(!self.finished.contains(&call.id), "{} had finished", call.id);
            let may_be_lost = matches!(&*call.name, "once" | "undone_once" | "undo_once");
            assert!(!(may_be_lost && self.started.contains(&call.id)), "{} had started", call.id);
            let how = tape.below(8);
            if how != 1 {
                let started = self.both(|run| run.begin_call(&call.id));
                // Another call may have ended the run in the meantime.
                let Ok(attempt) = started else { return };
                let key = attempt.key.to_string();
                assert_eq!(*self.keys.entry(call.id.clone()).or_insert(key.clone()), key);
                self.started.insert(call.id.clone());
            }
            if how == 2 {
                // The call is interrupted.
                continue;
            }
            let execution = ToolExecution::new(call.clone(), outcome(tape));
            if self.both(|run| run.record_result(execution.clone())).is_err() {
                return;
            }
            self.started.remove(&call.id);
            let is_finished = |run: &mut Run| {
                let is_of = |one: &ToolExecution| one.call().id == call.id;
                run.tool_executions().iter().any(is_of) || run.undo_executions().iter().any(is_of)
            };
            if self.both(is_finished) {
                self.finished.insert(call.id.clone());
            }
            if tape.below(6) == 5 {
                self.interrupt(tape);
            }
        }
    }

    fn decide(&mut self, calls: &[ToolCall], tape: &mut Tape<'_>) {
        for call in calls {
            let decision = match tape.below(5) {
                1 => Decision::deny("not on a Sunday"),
                2 => Decision::decline(),
                3 => Decision::approve_with(r#"{"n": 7}"#),
                4 => continue,
                _ => Decision::approve(),
            };
            self.both(|run| run.decide_call(&call.id, decision.clone())).unwrap();
        }
    }

    /// Executes one step; returns `false` when the run is done.
    fn step(&mut self, tape: &mut Tape<'_>, continues: bool) -> bool {
        enum Action {
            Model,
            Calls(Vec<ToolCall>),
            Approval(Vec<ToolCall>),
            Done,
        }
        let tools = self.tools.clone();
        let shown = self.both(|run| match run.next(&tools) {
            Step::CallModel(request) => {
                assert_valid(request.messages());
                format!("{:?}", request.messages())
            }
            step => format!("{step:?}"),
        });
        let action = match self.run.next(&tools) {
            Step::CallModel(_) => Action::Model,
            Step::CallTools(calls) => Action::Calls(calls),
            Step::Waiting(waits) => {
                let calls = waits.into_iter().filter_map(|wait| match wait.reason {
                    WaitReason::Approval(call) => Some(call),
                    _ => None,
                });
                Action::Approval(calls.collect())
            }
            Step::Done => Action::Done,
            other => panic!("there is no such step: {other:?}"),
        };
        match action {
            Action::Model => {
                let response = reply(tape, continues);
                self.both(|run| run.record_response(response.clone())).unwrap();
                if tape.below(8) == 1 {
                    // The predicate is the application's.
                    let ids: Vec<_> = IDS.iter().map(|id| (*id).to_owned()).collect();
                    for id in ids {
                        let _ = self.both(|run| run.require_approval(&id));
                    }
                }
            }
            Action::Calls(calls) => {
                let ids: HashSet<_> = calls.iter().map(|call| &call.id).collect();
                assert!(!calls.is_empty() && ids.len() == calls.len(), "{shown}");
                let waiting: Vec<_> = self.run.approvals().map(|call| call.id).collect();
                assert!(!calls.iter().any(|call| waiting.contains(&call.id)), "{shown}");
                let is_alone = calls.iter().any(|call| call.name.ends_with("alone"));
                assert!(!is_alone || calls.len() == 1, "{shown}");
                self.execute(&calls, tape);
            }
            Action::Approval(calls) => {
                assert!(!calls.is_empty());
                self.decide(&calls, tape);
            }
            Action::Done => return false,
        }
        true
    }
}

fn drive(bytes: &[u8], continues: bool) {
    let mut tape = Tape(bytes.iter());
    let run = new_run(&mut tape);
    let mut twins = Twins {
        twin: restored(run.clone()),
        run,
        tools: tools(),
        finished: HashSet::new(),
        started: HashSet::new(),
        keys: HashMap::new(),
    };
    let most = bytes.len() + 200;
    for steps in 0.. {
        assert!(steps < most, "the run does not end");
        twins.interrupt(&mut tape);
        if !twins.step(&mut tape, continues) && twins.run.is_done() {
            break;
        }
        let limits = twins.run.limits();
        assert!(twins.run.turns() <= limits.max_turns.max(1));
    }
    let Twins { run, twin, .. } = twins;
    let added = run.new_messages().to_vec();
    assert_valid(run.messages());
    assert_valid(restored(twin.clone()).messages());
    if let Some(limit) = run.limits().max_calls {
        let is_made = |one: &&ToolExecution| one.origin() == OutcomeOrigin::Executed;
        let made = run.tool_executions().iter().filter(is_made).count();
        assert!(made <= limit as usize, "{made} calls, of {limit}");
    }
    match (run.finish(), restored(twin).finish()) {
        (Ok(one), Ok(other)) => {
            assert_eq!(one.new_messages(), added);
            assert_eq!((one.text(), one.new_messages()), (other.text(), other.new_messages()));
        }
        (Err(one), Err(other)) => {
            assert!(!one.is_resumable() && !matches!(one.kind(), RunErrorKind::Step(_)));
            assert_eq!((one.to_string(), one.new_messages()), (other.to_string(), other.new_messages()));
        }
        _ => panic!("the outcomes differ"),
    }
}

proptest! {
    #![proptest_config(cases(100, 3000))]

    #[test]
    fn a_run_stays_valid_under_random_events(bytes in prop::collection::vec(any::<u8>(), 0..300), continues: bool) {
        drive(&bytes, continues);
    }
}
