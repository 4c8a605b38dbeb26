//! Every order of what layers and persons decide about two calls, with failures and crashes between them.
//!
//! The world beside the run records what was decided about each call. Whatever is executed is checked against it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tests::support::sampling::is_exhaustive;
use tests::support::ways::restored;
use tool_core::layer::{CallVerdict, Layer, LayerContext, LayerFuture, LayerPhase};
use tool_core::run::{Decision, Run, Step, WaitReason};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, FunctionTool, RunError, RunErrorKind, ToolCall, ToolContext};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Pass,
    Deny,
    NeedsApproval,
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rewriting {
    None,
    Rewrites,
    Wrongly,
    FailsOnce,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Person {
    Approves,
    Edits,
    Denies,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Advance,
    Steps,
    /// Executes calls right after decisions, without taking a step between.
    Hasty,
}

#[derive(Clone, Debug, PartialEq)]
enum Fact {
    Judged(String, String, Verdict),
    Approved(String),
    Executed(String, String),
    Restored,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    verdicts: [Verdict; 3],
    rewriting: Rewriting,
    person: Person,
    way: Way,
    /// The number of steps after which the process ends.
    crash: usize,
}

type Log = Arc<Mutex<Vec<Fact>>>;

/// A layer whose verdicts about each call follow the case, one after the other, and are the last from then on.
struct Judge {
    case: Case,
    log: Log,
    asked: Mutex<HashMap<String, usize>>,
    has_failed: Mutex<bool>,
}

impl Layer for Judge {
    fn name(&self) -> &str {
        "judge"
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        matches!(phase, LayerPhase::Rewrite | LayerPhase::Judge)
    }

    fn rewrite<'a>(&'a self, _: &'a ToolCall, _: &'a LayerContext<'a>) -> LayerFuture<'a, Option<String>> {
        let mut has_failed = self.has_failed.lock().unwrap();
        let rewritten = match self.case.rewriting {
            Rewriting::Rewrites => Ok(Some(r#"{"n":2}"#.to_owned())),
            Rewriting::Wrongly => Ok(Some(r#"{"n":"many"}"#.to_owned())),
            Rewriting::FailsOnce if !*has_failed => {
                *has_failed = true;
                Err("broken".into())
            }
            _ => Ok(None),
        };
        Box::pin(async move { rewritten })
    }

    fn judge<'a>(&'a self, call: &'a ToolCall, _: &'a LayerContext<'a>) -> LayerFuture<'a, CallVerdict> {
        let mut asked = self.asked.lock().unwrap();
        let asked = asked.entry(call.id.clone()).or_default();
        let verdict = self.case.verdicts[(*asked).min(2)];
        *asked += 1;
        let fact = Fact::Judged(call.id.clone(), call.arguments.clone(), verdict);
        self.log.lock().unwrap().push(fact);
        Box::pin(async move {
            match verdict {
                Verdict::Pass => Ok(CallVerdict::Pass),
                Verdict::Deny => Ok(CallVerdict::deny("no")),
                Verdict::NeedsApproval => Ok(CallVerdict::NeedsApproval),
                Verdict::Fail => Err("broken".into()),
            }
        })
    }
}

fn agent(case: Case, log: &Log) -> Agent {
    let executed = Arc::clone(log);
    let act = FunctionTool::new("act", move |arguments: HashMap<String, u8>, context: ToolContext| {
        let id = context.call().unwrap().id.clone();
        executed.lock().unwrap().push(Fact::Executed(id, format!("{:?}", arguments["n"])));
    });
    let judge = Judge { case, log: Arc::clone(log), asked: Mutex::default(), has_failed: Mutex::default() };
    let script = ScriptedModel::new().calls_all([("act", r#"{"n":1}"#), ("act", r#"{"n":1}"#)]).says("Done.");
    Agent::builder(script).tools(act).layer(judge).build().unwrap()
}

fn resolve(case: Case, log: &Log, wait: &tool_core::run::Wait) -> Decision {
    assert!(matches!(wait.reason, WaitReason::Approval(_)));
    let approved = Fact::Approved(wait.path.clone());
    match case.person {
        Person::Approves => {
            log.lock().unwrap().push(approved);
            Decision::approve()
        }
        Person::Edits => {
            log.lock().unwrap().push(approved);
            Decision::approve_with(r#"{"n":3}"#)
        }
        Person::Denies => Decision::deny("no"),
    }
}

/// Drives the run to its end. A layer that fails always leaves the run as it is.
async fn drive(case: Case, log: &Log) -> Run {
    let agent = agent(case, log);
    let mut driver = agent.ask("go").start();
    for step in 1..40 {
        if step == case.crash {
            log.lock().unwrap().push(Fact::Restored);
            driver = agent.resume(restored(driver.into_run())).start();
        }
        let taken = match case.way {
            Way::Advance => driver.advance().await,
            Way::Steps | Way::Hasty => step_by_hand(&mut driver, case, log).await,
        };
        match taken {
            Ok(true) => {}
            Ok(false) => return driver.into_run(),
            Err(error) if matches!(error.kind(), RunErrorKind::Waiting) => {
                for wait in driver.run().waits() {
                    let decision = resolve(case, log, &wait);
                    driver.resolve(&wait.id, decision).unwrap();
                }
                if case.way == Way::Hasty {
                    for (call, _) in restored_calls(driver.run()) {
                        // It may be denied, or await approval again.
                        if let Ok(execution) = driver.execute(call).await {
                            driver.record_result(execution).await.unwrap();
                        }
                    }
                }
            }
            Err(error) if matches!(error.kind(), RunErrorKind::Layer { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    driver.into_run()
}

fn restored_calls(run: &Run) -> Vec<(ToolCall, bool)> {
    let open = run.current_calls().filter(|(_, execution)| execution.is_none());
    open.map(|(call, _)| (call.clone(), true)).collect()
}

async fn step_by_hand(
    driver: &mut tool_core::agent::RunDriver,
    case: Case,
    log: &Log,
) -> Result<bool, RunError> {
    let calls = match driver.next().await? {
        Step::CallModel(_) => {
            let response = driver.call_model().await?;
            driver.record_response(response).await?;
            return Ok(true);
        }
        Step::CallTools(calls) => calls,
        Step::Waiting(waits) => {
            for wait in waits {
                let decision = resolve(case, log, &wait);
                driver.resolve(&wait.id, decision).unwrap();
            }
            return Ok(true);
        }
        _ => return Ok(false),
    };
    for call in calls {
        let execution = driver.execute(call).await?;
        driver.record_result(execution).await?;
    }
    Ok(true)
}

/// Checks what was executed against what was decided before.
fn check(case: Case, facts: &[Fact]) {
    for (at, fact) in facts.iter().enumerate() {
        let Fact::Executed(id, arguments) = fact else { continue };
        let before = &facts[..at];
        let is_of = |fact: &&Fact| matches!(fact, Fact::Judged(of, ..) | Fact::Approved(of) if of == id);
        let of_call: Vec<_> = before.iter().filter(is_of).collect();
        let Some(Fact::Judged(_, judged, verdict)) = of_call.last() else {
            panic!("{case:?}: it was not judged last: {facts:?}")
        };
        assert_eq!(*judged, format!(r#"{{"n":{arguments}}}"#), "{case:?}: {facts:?}");
        let is_approved = of_call.iter().any(|fact| matches!(fact, Fact::Approved(_)));
        let needs = |fact: &&&Fact| matches!(fact, Fact::Judged(_, _, Verdict::NeedsApproval));
        assert!(is_approved || of_call.iter().find(needs).is_none(), "{case:?}: {facts:?}");
        assert!(matches!(verdict, Verdict::Pass | Verdict::NeedsApproval), "{case:?}: {facts:?}");
        let is_denied = |fact: &&Fact| matches!(fact, Fact::Judged(_, _, Verdict::Deny));
        assert!(!of_call.into_iter().any(|fact| is_denied(&fact)), "{case:?}: {facts:?}");
        let expected = match (is_approved, case.person, case.rewriting) {
            (true, Person::Edits, _) => "3",
            (_, _, Rewriting::Rewrites) => "2",
            _ => "1",
        };
        assert_eq!(arguments, expected, "{case:?}: {facts:?}");
        assert!(case.rewriting != Rewriting::Wrongly && !(is_approved && case.person == Person::Denies));
        // A pass before the process ended counts no more.
        let restored = before.iter().rposition(|fact| *fact == Fact::Restored).unwrap_or(0);
        let judged_at = before.iter().rposition(|fact| matches!(fact, Fact::Judged(of, ..) if of == id));
        assert!(judged_at.unwrap() >= restored, "{case:?}: {facts:?}");
    }
}

#[tokio::test]
async fn nothing_is_executed_that_was_not_released_last() {
    const VERDICTS: [Verdict; 4] = [Verdict::Pass, Verdict::Deny, Verdict::NeedsApproval, Verdict::Fail];
    const REWRITINGS: [Rewriting; 4] =
        [Rewriting::None, Rewriting::Rewrites, Rewriting::Wrongly, Rewriting::FailsOnce];
    let (mut cases, mut executed, mut denied) = (0, 0, 0);
    for verdicts in VERDICTS
        .into_iter()
        .flat_map(|one| VERDICTS.map(|two| [one, two]))
        .flat_map(|[one, two]| VERDICTS.map(|three| [one, two, three]))
    {
        for rewriting in REWRITINGS {
            for person in [Person::Approves, Person::Edits, Person::Denies] {
                for way in [Way::Advance, Way::Steps, Way::Hasty] {
                    for crash in 0..4 {
                        cases += 1;
                        if !is_exhaustive() && cases % 7 != 0 {
                            continue;
                        }
                        let case = Case { verdicts, rewriting, person, way, crash };
                        let log = Log::default();
                        let run = drive(case, &log).await;
                        let facts = std::mem::take(&mut *log.lock().unwrap());
                        check(case, &facts);
                        let count = facts.iter().filter(|fact| matches!(fact, Fact::Executed(..))).count();
                        assert!(count <= 2, "{case:?}: {facts:?}");
                        let is_executed = |one: &&tool_core::ToolExecution| one.outcome().is_ok();
                        let recorded = run.tool_executions().iter().filter(is_executed).count();
                        assert!(!run.is_done() || recorded == count, "{case:?}: {facts:?}");
                        executed += count;
                        denied += usize::from(run.is_done() && count == 0);
                    }
                }
            }
        }
    }
    println!("{cases} orders, {executed} calls executed, {denied} runs without any");
    assert!(executed > 0 && denied > 0);
}
