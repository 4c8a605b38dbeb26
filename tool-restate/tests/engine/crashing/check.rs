//! What must hold of the runs, whatever failed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tool_core::run::StopReason;
use tool_core::tool::{ToolErrorKind, ToolExecution};
use tool_core::{Answer, Event, Message};
use tool_restate::{Client, RemoteOutcome};

use super::scenario::{Case, End, MAX_TURNS, Person};
use super::world::Death;
use super::{CONVERSATIONS, conversation_of, has_events, patiently};

/// The end of a run.
pub(super) struct Ended {
    pub(super) outcome: RemoteOutcome,
    /// When a person first decided about its call.
    pub(super) decided_at: Option<u128>,
    pub(super) events: Vec<Event>,
}

/// One execution of a call.
struct Execution<'a> {
    step: &'a str,
    key: &'a str,
    process: u32,
    program: &'a str,
    at: u128,
    has_effect: bool,
    end: Option<u128>,
}

fn read(effects: &str) -> BTreeMap<&str, Vec<Execution<'_>>> {
    let mut by_run: BTreeMap<&str, Vec<Execution<'_>>> = BTreeMap::new();
    for line in effects.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [label, step, phase, key, process, program, at] = words.try_into().unwrap();
        let (process, at) = (process.parse().unwrap(), at.parse().unwrap());
        let executions = by_run.entry(label).or_default();
        if phase == "begin" {
            executions.push(Execution { step, key, process, program, at, has_effect: false, end: None });
            continue;
        }
        let is_it = |one: &&mut Execution<'_>| one.step == step && one.process == process;
        let execution = executions.iter_mut().rfind(is_it).unwrap();
        match phase {
            "effect" => execution.has_effect = true,
            _ => execution.end = Some(at),
        }
    }
    by_run
}

/// What was counted over all runs.
#[derive(Debug, Default)]
struct Counts {
    executions: usize,
    /// Executions that a failure explains.
    repeats: usize,
    /// Repeats that began before the earlier execution ended.
    overlaps: usize,
    unknown: usize,
    /// Calls whose outcome is unknown, and which did not begin.
    unbegun: usize,
}

pub(super) fn check(ended: &BTreeMap<usize, Ended>, runs: usize, effects: &str, deaths: &[Death]) {
    assert_eq!(ended.len(), runs);
    let by_run = read(effects);
    let mut counts = Counts::default();
    let mut keys = BTreeMap::new();
    for (number, ended) in ended {
        let executions = by_run.get(&*format!("r{number}")).map(Vec::as_slice).unwrap_or_default();
        let case = Case::of(*number);
        let what = case.question(*number);
        counts.executions += executions.len();
        for one in executions {
            // A repeated attempt has the same key.
            let call = (*number, one.step.split('.').next().unwrap());
            assert_eq!(*keys.entry(one.key).or_insert(call), call, "{what}: a key of two calls");
        }
        let check = Check { what, case, ended, executions, deaths };
        check.check(&mut counts);
        if has_events(*number) {
            check.check_events();
        }
    }
    let mut by_kind: BTreeMap<&str, usize> = BTreeMap::new();
    deaths.iter().for_each(|death| *by_kind.entry(death.kind).or_default() += 1);
    println!("{counts:?}, {by_kind:?}");
    // At most one call of `once` is between the record of its beginning and its beginning when its process fails, which is rare.
    assert!(counts.unbegun <= deaths.len() / 10 + 1, "{counts:?}");
    assert!(counts.unknown <= deaths.len(), "{counts:?}");
    // A process that was killed executes nothing any more.
    let lingering = deaths.iter().filter(|one| one.process.is_none() || one.kind == "freeze").count();
    assert!(counts.overlaps <= 16 * lingering, "{counts:?}");
}

/// The checks of one run.
struct Check<'a> {
    what: String,
    case: &'a Case,
    ended: &'a Ended,
    executions: &'a [Execution<'a>],
    deaths: &'a [Death],
}

impl Check<'_> {
    fn check(&self, counts: &mut Counts) {
        let (what, case) = (&self.what, self.case);
        self.check_repeats(counts);
        let unknown = self.unknown(counts);
        let firsts = self.firsts();
        // Calls of one turn begin in any order, turns one after the other, and undo calls at the end, one after the other.
        let mut rest: &[&str] = &firsts;
        for turn in case.calls() {
            let mut expected: BTreeSet<String> = BTreeSet::new();
            for (name, step) in turn {
                match name {
                    "fail" => {}
                    "ask" if case.person != Person::Approves => {}
                    "flaky" => expected.extend([1, 2].map(|attempt| format!("flaky{step}.{attempt}"))),
                    _ => drop(expected.insert(format!("{name}{step}"))),
                }
            }
            expected.retain(|step| firsts.contains(&&**step) || !unknown.contains(step));
            let (of_turn, after) = rest.split_at(expected.len().min(rest.len()));
            let of_turn: BTreeSet<String> = of_turn.iter().map(|step| (*step).to_owned()).collect();
            assert_eq!(of_turn, expected, "{what}: {firsts:?}");
            rest = after;
        }
        assert_eq!(rest, case.undone, "{what}: {firsts:?}");
        for one in self.executions.iter().filter(|one| one.step.starts_with("ask")) {
            let decided_at = self.ended.decided_at.unwrap_or_else(|| panic!("{what}: nobody was asked"));
            assert!(decided_at <= one.at, "{what}: executed before the decision");
        }
        assert_eq!(self.ended.decided_at.is_some(), case.turns.starts_with("ask"), "{what}");
        // What has ended with a result has had its effect.
        for step in firsts {
            let has_effect = self.executions.iter().any(|one| one.step == step && one.has_effect);
            let may_lack = step.starts_with("hang") || unknown.contains(step);
            assert!(has_effect || may_lack, "{what}: {step} without an effect");
        }
        // The tool that the new program changed is the one that the run was offered.
        let programs: BTreeSet<_> = self
            .executions
            .iter()
            .filter(|one| one.step.starts_with("note"))
            .map(|one| one.program)
            .collect();
        assert!(programs.len() <= 1, "{what}: executed by {programs:?}");
        self.check_alone();
        self.check_outcome(&unknown);
    }

    /// Each execution but the first of a step is explained by a failure.
    fn check_repeats(&self, counts: &mut Counts) {
        let what = &self.what;
        for (position, one) in self.executions.iter().enumerate() {
            let Some(last) = self.executions[..position].iter().rfind(|last| last.step == one.step) else {
                continue;
            };
            counts.repeats += 1;
            counts.overlaps += usize::from(last.end.is_some_and(|end| end > one.at));
            assert!(
                self.is_explained(last, one.at) || self.was_frozen(one),
                "{what}: {} again, and nothing died",
                one.step
            );
            assert_eq!(last.key, one.key, "{what}: {} under another key", one.step);
            assert!(!one.step.starts_with("once"), "{what}: {} again", one.step);
        }
    }

    /// Something failed between the beginning of the execution and this time.
    fn is_explained(&self, execution: &Execution<'_>, until: u128) -> bool {
        self.deaths.iter().any(|death| {
            death.process.is_none_or(|process| process == execution.process)
                && death.from <= until
                && death.until >= execution.at
        })
    }

    /// The execution began late, after another worker had taken it over.
    fn was_frozen(&self, execution: &Execution<'_>) -> bool {
        self.deaths.iter().any(|death| {
            death.kind == "freeze"
                && death.process == Some(execution.process)
                && (death.from..=death.until).contains(&execution.at)
        })
    }

    /// Returns the steps of calls in the order in which they first began.
    fn firsts(&self) -> Vec<&str> {
        let mut firsts: Vec<&str> = Vec::new();
        for one in self.executions.iter().filter(|one| !one.step.starts_with("model")) {
            if !firsts.contains(&one.step) {
                firsts.push(one.step);
            }
        }
        firsts
    }

    fn records(&self) -> &[ToolExecution] {
        match &self.ended.outcome {
            RemoteOutcome::Answer(answer) => answer.tool_executions(),
            RemoteOutcome::Failed(failure) => &failure.tool_executions,
            other => panic!("{}: {other:?}", self.what),
        }
    }

    /// Returns the steps of `once` whose outcome is unknown. A failure explains each.
    fn unknown(&self, counts: &mut Counts) -> BTreeSet<String> {
        let is_unknown = |one: &&ToolExecution| {
            one.call().name == "once"
                && one.error().is_some_and(|error| error.kind() == ToolErrorKind::OutcomeUnknown)
        };
        let steps: BTreeSet<_> = self.records().iter().filter(is_unknown).map(step_of).collect();
        counts.unknown += steps.len();
        for step in &steps {
            match self.executions.iter().find(|one| one.step == step) {
                Some(one) => {
                    assert!(self.is_explained(one, u128::MAX), "{}: unknown, and nothing died", self.what);
                }
                None => counts.unbegun += 1,
            }
        }
        steps
    }

    /// Nothing of the run was executed beside an exclusive call, unless something failed meanwhile.
    fn check_alone(&self) {
        for lock in self.executions.iter().filter(|one| one.step.starts_with("lock")) {
            for other in self.executions.iter().filter(|other| other.step != lock.step) {
                let (Some(end), Some(other_end)) = (lock.end, other.end) else { continue };
                let overlaps = lock.at < other_end && other.at < end;
                let is_explained = self.is_explained(lock, end) || self.is_explained(other, other_end);
                assert!(!overlaps || is_explained, "{}: {} beside {}", self.what, other.step, lock.step);
            }
        }
    }

    fn check_outcome(&self, unknown: &BTreeSet<String>) {
        let (what, case) = (&self.what, self.case);
        match &self.ended.outcome {
            RemoteOutcome::Answer(answer) => {
                assert_eq!(case.end, End::Answer, "{what}");
                self.check_answer(answer, unknown);
            }
            RemoteOutcome::Failed(failure) => {
                let end = match &failure.reason {
                    Some(StopReason::Cancelled) => End::Cancelled,
                    Some(StopReason::ToolFailed { .. }) => End::ToolFailed,
                    Some(StopReason::MaxTurns(MAX_TURNS)) => End::MaxTurns,
                    other => panic!("{what}: {other:?}, {}", failure.message),
                };
                assert_eq!(case.end, end, "{what}");
                assert!(
                    failure.undo_executions.iter().all(|one| one.outcome().is_ok()),
                    "{what}: {failure:?}"
                );
                assert_eq!(failure.undo_executions.len(), case.undone.len(), "{what}");
                let finished = failure.tool_executions.iter().filter(|one| one.outcome().is_ok()).count();
                let calls = case.calls().concat().len();
                // The last call of the others failed, or was cancelled before one that waited.
                let expected = match end {
                    End::MaxTurns => calls..=calls,
                    End::ToolFailed => calls - 1..=calls - 1,
                    _ => calls - 2..=calls - 1,
                };
                assert!(expected.contains(&finished), "{what}: {failure:?}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }

    /// The question, for each turn the calls and their results in order, and the answer.
    fn check_answer(&self, answer: &Answer, unknown: &BTreeSet<String>) {
        let what = &self.what;
        let mut messages = answer.new_messages().iter();
        assert_eq!(messages.next().unwrap().text(), **what);
        let mut results = Vec::new();
        for turn in self.case.calls() {
            let reply = messages.next().unwrap().as_assistant().unwrap();
            assert_eq!(reply.tool_calls.len(), turn.len(), "{what}");
            for (name, step) in turn {
                let Some(Message::Tool(result)) = messages.next() else { panic!("{what}: no result") };
                let expected = format!("{name}{step}");
                let text = result.content.text().into_owned();
                if unknown.contains(&expected) {
                    assert!(text.starts_with("the outcome of the call is unknown"), "{what}: {text}");
                } else if name == "ask" && self.case.person == Person::Denies {
                    assert!(result.is_error && text.contains("no"), "{what}: {text}");
                } else {
                    assert_eq!(text, expected, "{what}");
                }
                results.push(text);
            }
        }
        assert_eq!(messages.next().unwrap().text(), results.join(" "), "{what}");
        assert_eq!((messages.next(), answer.text()), (None, &*results.join(" ")), "{what}");
        assert_eq!(answer.tool_executions().len(), results.len(), "{what}");
    }

    /// Each turn and each attempt of a call once, and the end.
    fn check_events(&self) {
        let (mut turns, mut finished, mut asked, mut ends) = (Vec::new(), BTreeMap::new(), 0, 0);
        for event in &self.ended.events {
            match event {
                Event::TurnFinished { turn, .. } => turns.push(*turn),
                Event::CallRetried(one) | Event::CallFinished(one) => {
                    *finished.entry(one.call().id.clone()).or_insert(0) += 1;
                }
                Event::Waiting(_) => asked += 1,
                Event::Done(_) | Event::Failed(_) => ends += 1,
                _ => {}
            }
        }
        let what = &self.what;
        assert_eq!(ends, 1, "{what}");
        let calls = self.case.calls();
        let last = calls.len() as u32 + u32::from(matches!(self.case.end, End::Answer | End::MaxTurns));
        // A cancelled run may not take its last turn.
        let taken = if self.case.end == End::Cancelled { turns.len() as u32 } else { last };
        assert_eq!(turns, (1..=taken).collect::<Vec<_>>(), "{what}");
        for (call, times) in &finished {
            // Each attempt has an event.
            let attempts = if call.ends_with("c0") && self.case.turns.starts_with("flaky") { 2 } else { 1 };
            assert_eq!(*times, attempts, "{what}: {call}");
        }
        for record in self.records().iter().filter(|one| one.outcome().is_ok()) {
            assert!(finished.contains_key(&record.call().id), "{what}: no event of {}", record.call().id);
        }
        if self.case.turns.starts_with("ask") {
            assert_eq!(asked, 1, "{what}");
        }
    }
}

/// Returns the step of a call, such as `once10`.
fn step_of(execution: &ToolExecution) -> String {
    let step = execution.call().id.rsplit('c').next().unwrap();
    format!("{}{step}", execution.call().name)
}

/// The messages of each of its runs are together, and in it once.
pub(super) async fn check_conversation(client: &Client, conversation: usize, runs: usize) {
    let id = format!("talk-{conversation}");
    let is_here = |number: &usize| Case::of(*number).converses && conversation_of(*number) == id;
    let mut expected: Vec<_> = (0..runs).filter(is_here).map(|one| Case::of(one).question(one)).collect();
    expected.sort();
    assert!(conversation < CONVERSATIONS);
    let clerk = client.agent("clerk");
    // The last messages arrive soon after the end of their run.
    for attempt in 1..=200 {
        let messages = patiently(|| clerk.conversation(&id)).await.unwrap();
        let texts: Vec<_> = messages.iter().map(|one| one.text().into_owned()).collect();
        let mut questions = Vec::new();
        for run in texts.chunks(6) {
            questions.push(run[0].clone());
            assert_eq!(run[1..], ["", "note0", "", "note10", "note0 note10"], "{id}: {texts:?}");
        }
        questions.sort();
        if questions == expected {
            return;
        }
        assert!(attempt < 200, "{id}: {questions:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
