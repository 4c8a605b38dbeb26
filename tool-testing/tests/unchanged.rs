//! Runs of a program that has not changed are the same, whatever they have, and nothing outside of them is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tool_core::agent::{AgentBuilder, Ask};
use tool_core::engine::AskExt;
use tool_core::layer::{AnswerVerdict, Audit, OutputVerdict, QuestionVerdict, guard, rewrite};
use tool_core::memory::InMemoryStore;
use tool_core::run::{Decision, Run, WaitReason};
use tool_core::signatures::Timestamp;
use tool_core::store::RunStore;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{AskError, Asker, ExternalTool, ToolExecution};
use tool_core::toolset::{ToolProviderRequest, provide};
use tool_core::{Agent, Message, RunErrorKind, ToolError, ToolOutput, ToolSet, tool, tools};
use tool_testing::{DifferenceKind, Replay, ReplayOutcome, rehearse, replay};

#[tool("Finds an order", undo = "forget")]
fn find(id: u32, #[inject] desk: &Desk) -> String {
    format!("{} {id}", desk.0)
}

/// Forgets an order.
#[tool]
fn forget(id: u32, #[inject] desk: &Desk) {
    let _ = (id, desk);
}

struct Desk(&'static str);

#[tool("Sends a mail", needs_approval)]
fn send(to: String) -> String {
    format!("sent to {to}")
}

#[tool("Asks the user for a seat")]
async fn seat(#[inject] user: &Asker) -> Result<String, AskError> {
    user.ask("Which seat?").await
}

#[tool("Waits for an hour")]
async fn pause(#[inject] user: &Asker) -> Result<String, AskError> {
    Err(user.park(&(), Timestamp::now().after(Duration::from_secs(3_600))).await)
}

#[tool("Waits for a moment")]
async fn moment(#[inject] user: &Asker) -> Result<String, AskError> {
    Err(user.park(&(), Timestamp::now().after(Duration::from_millis(1))).await)
}

#[tool("Is busy at first", attempts = 2)]
fn busy(#[inject] attempt: &tool_core::tool::Attempt) -> Result<&'static str, ToolError> {
    if attempt.number == 1 { Err(ToolError::failed("busy")) } else { Ok("done") }
}

/// Does nothing.
#[tool]
fn other() {}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct City {
    #[allow(dead_code)]
    name: String,
}

fn desk(model: ScriptedModel) -> AgentBuilder {
    let tools = tools![find, send, seat, pause, moment, busy];
    Agent::builder(model).name("desk").instructions("You help.").tools(tools).undo_tools(tools![forget])
}

/// Drives a run. Persons decide, and what they say comes before. Returns the run, which can wait for a point in time.
async fn drive(ask: Ask) -> Run {
    let mut driver = ask.start();
    loop {
        match driver.advance().await {
            Ok(true) => {}
            Ok(false) => return driver.into_run(),
            Err(error) => {
                assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
                for wait in driver.run().waits() {
                    let decision = match wait.reason {
                        WaitReason::Approval(_) => Decision::approve(),
                        WaitReason::Answer(_) => Decision::answer("3A"),
                        WaitReason::CallerResult(_) => Decision::result(Ok(ToolOutput::text("blue"))),
                        _ => return driver.into_run(),
                    };
                    driver.resolve(wait.id, decision).unwrap();
                }
            }
        }
    }
}

fn calls(calls: &[(&str, &str)]) -> ScriptedModel {
    calls.iter().fold(ScriptedModel::new(), |model, (name, arguments)| model.calls(*name, *arguments))
}

/// Returns the outcome of a run that is repeated by an agent that was built like its own.
async fn repeated(
    build: impl Fn(ScriptedModel) -> AgentBuilder,
    model: ScriptedModel,
    ask: impl FnOnce(Ask) -> Ask,
) -> ReplayOutcome {
    let agent = build(model).build().unwrap();
    let run = drive(ask(agent.ask("Go").context(Desk("order")))).await;
    replay(&run, &build(ScriptedModel::new()).build().unwrap()).await
}

#[tokio::test]
async fn runs_with_all_that_a_run_can_have_are_the_same() {
    let plain = |script: &[(&str, &str)]| calls(script).says("Done.");
    let outcomes = [
        // Tools and undo tools take a value that only the question gave.
        ("context", repeated(desk, plain(&[("find", r#"{"id": 7}"#)]), |ask| ask).await),
        ("retry", repeated(desk, plain(&[("busy", "{}")]), |ask| ask).await),
        ("answer", repeated(desk, plain(&[("seat", "{}")]), |ask| ask).await),
        ("instructions", repeated(desk, plain(&[]), |ask| ask.instructions("Be short.")).await),
        ("history", repeated(desk, plain(&[]), |ask| ask.history([Message::user("Before?")])).await),
        ("limits", repeated(desk, plain(&[("busy", "{}")]), |ask| ask.limits(|l| l.max_turns(20))).await),
        ("only tools", repeated(desk, plain(&[]), |ask| ask.only_tools(ToolSet::default())).await),
        (
            "result of the caller",
            repeated(
                |model| {
                    let tool = tool_core::model::ToolDefinition::new("pick");
                    desk(model).tools(ExternalTool::new(tool))
                },
                plain(&[("pick", "{}")]),
                |ask| ask,
            )
            .await,
        ),
        (
            "changed answer",
            repeated(
                |model| {
                    desk(model).layer(guard::answer(|text: &str| AnswerVerdict::replace(format!("{text}!"))))
                },
                plain(&[]),
                |ask| ask,
            )
            .await,
        ),
        (
            "rejected answer",
            repeated(
                |model| {
                    desk(model).layer(guard::answer(|text: &str| match text {
                        "Bad." => AnswerVerdict::retry("be kind"),
                        _ => AnswerVerdict::Pass,
                    }))
                },
                ScriptedModel::new().says("Bad.").says("Good."),
                |ask| ask,
            )
            .await,
        ),
        (
            "ended answer",
            repeated(
                |model| desk(model).layer(guard::answer(|_: &str| AnswerVerdict::end("never"))),
                plain(&[]),
                |ask| ask,
            )
            .await,
        ),
        (
            "changed question",
            repeated(
                |model| {
                    desk(model).layer(guard::question(|question: &tool_core::content::Content| {
                        QuestionVerdict::rewrite(format!("Q: {}", question.text()))
                    }))
                },
                plain(&[]),
                |ask| ask,
            )
            .await,
        ),
        (
            "two handoffs",
            repeated(
                |model| {
                    let next = Agent::builder(ScriptedModel::new().says("Here.")).build().unwrap();
                    desk(model).handoff_to("next", "Takes over", &next)
                },
                ScriptedModel::new().calls_all([("next", "{}"), ("next", "{}")]),
                |ask| ask,
            )
            .await,
        ),
    ];
    for (about, outcome) in outcomes {
        assert_eq!(outcome, ReplayOutcome::Same, "{about}: {outcome}");
    }
}

#[tokio::test]
async fn typed_answers_are_the_same() {
    for by_tool in [false, true] {
        let model = || {
            let wrong = ScriptedModel::new().calls("final_answer", "{}");
            wrong.calls("final_answer", r#"{"name": "Wien"}"#)
        };
        let store = InMemoryStore::new();
        let keeps = |model| desk(model).run_store(store.clone()).keep_finished(Duration::from_secs(3_600));
        let agent = keeps(model()).build().unwrap();
        let ask = agent.ask("Where?").context(Desk("order")).answer_as::<City>();
        let _: City = if by_tool { ask.by_tool().await } else { ask.await }.unwrap();
        let rehearsed = agent.list_runs(&tool_core::memory::RunFilter::new()).await.unwrap();
        let run = agent.stored_run(&*rehearsed[0].id).await.unwrap().unwrap().run;
        let outcome = replay(&run, &desk(ScriptedModel::new()).build().unwrap()).await;
        assert_eq!(outcome, ReplayOutcome::Same, "{outcome}");
    }
}

#[tokio::test]
async fn what_is_said_while_a_call_waits_is_said_again() {
    for denies in [false, true] {
        let model = || calls(&[("send", r#"{"to": "ada"}"#)]).says("Done.");
        let agent = desk(model()).build().unwrap();
        let mut run = agent.ask("Go").context(Desk("order")).await.unwrap_err().into_run();
        if denies {
            run.deny_and_say("Stop").unwrap();
        } else {
            run.say("By train").unwrap();
            run.resolve_all(|_| Decision::approve()).unwrap();
        }
        let run = drive(agent.resume(run).context(Desk("order"))).await;
        let outcome = replay(&run, &desk(ScriptedModel::new()).build().unwrap()).await;
        assert_eq!(outcome, ReplayOutcome::Same, "{outcome}");
    }
    let agent = desk(calls(&[("seat", "{}")]).says("Done.")).build().unwrap();
    let mut run = agent.ask("Go").context(Desk("order")).await.unwrap_err().into_run();
    run.deny_and_say("Any").unwrap();
    let run = drive(agent.resume(run).context(Desk("order"))).await;
    let outcome = replay(&run, &desk(ScriptedModel::new()).build().unwrap()).await;
    assert_eq!(outcome, ReplayOutcome::Same, "{outcome}");
}

#[tokio::test]
async fn parked_calls_are_waited_for_by_nobody() {
    for tool in ["pause", "moment"] {
        let agent = desk(calls(&[(tool, "{}")]).says("Done.")).build().unwrap();
        let ask = agent.ask("Go").context(Desk("order")).return_when_parked();
        let run = ask.await.unwrap_err().into_run();
        let deadline = run.waits()[0].deadline.unwrap();
        while tool == "moment" && Timestamp::now() <= deadline {}
        let present = desk(ScriptedModel::new()).build().unwrap();
        assert_eq!(replay(&run, &present).await, ReplayOutcome::Same, "{tool}");
        let store = InMemoryStore::new();
        store.save_run(run.id().clone().as_str(), &mut run.clone()).await.unwrap();
        let rehearsal = rehearse(&store, [desk(ScriptedModel::new()).build().unwrap()]).await.unwrap();
        assert_eq!(rehearsal.runs[0].outcome.as_str(), "goes on", "{tool}");
    }
}

#[tokio::test]
async fn tools_of_questions_and_providers_are_given_or_assumed() {
    let script = || calls(&[("other", "{}")]).says("Done.");
    let agent = desk(script()).build().unwrap();
    let run = drive(agent.ask("Go").context(Desk("order")).tools(tools![other])).await;
    let outcome = replay(&run, &agent).await;
    assert!(
        matches!(&outcome, ReplayOutcome::Diverged(one) if one.kind == DifferenceKind::ToolGone),
        "{outcome}"
    );
    assert_eq!(Replay::new().tools(tools![other]).run(&run, &agent).await, ReplayOutcome::Same);

    let asked = Arc::new(AtomicUsize::new(0));
    let provided = |model| {
        let asked = Arc::clone(&asked);
        desk(model).tool_provider(provide(move |_: &ToolProviderRequest<'_>| {
            asked.fetch_add(1, Ordering::Relaxed);
            tools![other]
        }))
    };
    let run = drive(provided(script()).build().unwrap().ask("Go").context(Desk("order"))).await;
    let before = asked.load(Ordering::Relaxed);
    let agent = provided(ScriptedModel::new()).build().unwrap();
    let outcome = replay(&run, &agent).await.to_string();
    assert!(
        outcome.starts_with("the same, but the tool `other` is taken to be one of a provider"),
        "{outcome}"
    );
    assert_eq!(Replay::new().provided(tools![other]).run(&run, &agent).await, ReplayOutcome::Same);
    assert_eq!(asked.load(Ordering::Relaxed), before);
}

#[tokio::test]
async fn a_layer_that_sent_an_answer_back_is_missed() {
    let guarded = |model| {
        desk(model).layer(guard::answer(|text: &str| match text {
            "Bad." => AnswerVerdict::retry("be kind"),
            _ => AnswerVerdict::Pass,
        }))
    };
    let agent = guarded(ScriptedModel::new().says("Bad.").says("Good.")).build().unwrap();
    let run = drive(agent.ask("Go").context(Desk("order"))).await;
    let outcome = replay(&run, &desk(ScriptedModel::new()).build().unwrap()).await;
    assert!(
        matches!(&outcome, ReplayOutcome::Diverged(one) if one.kind == DifferenceKind::Verdict),
        "{outcome}"
    );
}

#[tokio::test]
async fn no_record_is_written_and_no_layer_judges_what_has_not_happened() {
    let (store, lines) = (InMemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let audited = |model| {
        let lines = Arc::clone(&lines);
        let audit = Audit::new(move |_| _ = lines.fetch_add(1, Ordering::Relaxed));
        // It would end a run with an outcome that nobody has seen.
        let strict = guard::output(|execution: &ToolExecution| match execution.error() {
            Some(_) => OutputVerdict::end("an error"),
            None => OutputVerdict::Pass,
        });
        let costly = tool_core::model::Cost::new(1, tool_core::model::Currency::USD);
        let prices = tool_core::model::ModelPrices::new(1.0, 1.0).with_max_output_tokens(1);
        let prices =
            tool_core::model::Prices::from_fn(tool_core::model::Currency::USD, move |_, _| Some(prices));
        let limited = desk(model).prices(prices).limits(move |l| l.max_cost(costly));
        limited.layer(audit).layer(strict).run_store(store.clone())
    };
    let agent = audited(calls(&[("send", r#"{"to": "ada"}"#)])).build().unwrap();
    agent.ask("Go").context(Desk("order")).await.unwrap_err();
    let before = lines.load(Ordering::Relaxed);
    let rehearsal = rehearse(&store, [audited(ScriptedModel::new()).build().unwrap()]).await.unwrap();
    assert!(
        rehearsal.to_string().ends_with("goes on: 1, waits again: 0, differs: 0, stranded: 0\n"),
        "{rehearsal}"
    );
    assert_eq!(lines.load(Ordering::Relaxed), before);
}

#[tokio::test]
async fn a_summary_is_asked_of_nobody() {
    let other = ScriptedModel::new();
    let compacts = |model| {
        let compaction = tool_core::agent::Compaction::when_it_pays().at_tokens(1).keep_recent_tokens(1);
        desk(model).compaction(compaction.summarize_with(ScriptedModel::new().says("Much.").says("More.")))
    };
    let script = calls(&[("busy", "{}"), ("busy", r#"{ }"#)]).says("Done.");
    let run = drive(compacts(script).build().unwrap().ask("Go").context(Desk("order"))).await;
    let present = desk(ScriptedModel::new())
        .compaction(tool_core::agent::Compaction::when_it_pays().at_tokens(1).summarize_with(other.clone()))
        .build()
        .unwrap();
    assert!(replay(&run, &present).await.is_same());
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn arguments_that_layers_write_are_the_same() {
    let rewrites = |model| desk(model).layer(rewrite::call(|_| Some(r#"{"to": "bob"}"#.to_owned())));
    let agent = rewrites(calls(&[("send", r#"{"to": "ada"}"#)]).says("Done.")).build().unwrap();
    let run = drive(agent.ask("Go").context(Desk("order"))).await;
    let outcome = replay(&run, &rewrites(ScriptedModel::new()).build().unwrap()).await;
    assert_eq!(outcome, ReplayOutcome::Same, "{outcome}");
}

/// What opens runs can be that of production, with its budgets.
struct Charged(tool_core::memory::Budget);

impl tool_core::agent::RunSetup for Charged {
    async fn open(
        &self,
        _run: &tool_core::agent::RunInfo,
    ) -> Result<tool_core::agent::RunResources, Box<dyn std::error::Error + Send + Sync>> {
        Ok(tool_core::agent::RunResources::new().budget(self.0.key("ada")))
    }
}

#[tokio::test]
async fn no_budget_is_charged() {
    let day = Duration::from_secs(24 * 3_600);
    let budget = tool_core::memory::Budget::tokens(InMemoryStore::new(), 100_000, day);
    let used = tool_core::model::Usage::new(700, 300);
    let model = || ScriptedModel::new().says("Hi.").with_usage(used);
    let options = tool_core::model::ModelOptions::default().with_max_output_tokens(500);
    let charged = |model| desk(model).options(options.clone()).run_setup(Charged(budget.clone()));
    let run = drive(charged(model()).build().unwrap().ask("Go").context(Desk("order"))).await;
    let left = budget.key("ada").left().await.unwrap();
    assert_eq!(left, 99_000);
    let agent = charged(ScriptedModel::new()).build().unwrap();
    assert!(matches!(replay(&run, &agent).await, ReplayOutcome::CannotReplay(_)));
    let replay = Replay::new().run_setup(Charged(budget.clone()));
    assert_eq!(replay.run(&run, &agent).await, ReplayOutcome::Same);
    assert_eq!(budget.key("ada").left().await.unwrap(), left);
}
