//! The calls of a failed run are undone, the last first.

use std::sync::atomic::{AtomicU32, Ordering};

use tests::support::ways::{alike, restored};
use tool_core::agent::{AgentBuilder, BuildError};
use tool_core::layer::{OutputVerdict, guard};
use tool_core::run::{Step, StopReason};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{CallToUndo, IdempotencyKey, ToolErrorKind, ToolExecution};
use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest};
use tool_core::{Agent, RunError, RunErrorKind, ToolContext, ToolError, ToolSet, tool, tools};

#[tool(undo = "cancel")]
fn book(what: String) -> Result<String, String> {
    if what == "moon" { Err("there is no flight".into()) } else { Ok(format!("booking of {what}")) }
}

/// Takes a booking back.
#[tool(attempts = 2)]
fn cancel(
    what: String,
    #[inject] undone: &CallToUndo,
    #[inject] key: &IdempotencyKey,
) -> Result<String, String> {
    if what == "bridge" {
        return Err("cannot be burnt twice".into());
    }
    assert_eq!(key.as_str(), undone.key.replace("/call_", "/undo_call_"));
    Ok(format!(
        "{what} undone, which gave {}",
        undone.output.as_ref().map_or("?".into(), ToString::to_string)
    ))
}

#[tool]
fn fatal() -> Result<(), ToolError> {
    Err(ToolError::fatal("the bank is closed"))
}

#[tool]
fn look() {}

fn agent(model: ScriptedModel) -> AgentBuilder {
    Agent::builder(model).tools(tools![book, fatal, look]).undo_tools(tools![cancel])
}

fn undone_texts(undone: &[ToolExecution]) -> Vec<String> {
    undone.iter().map(|one| one.outcome().map_or_else(ToString::to_string, ToString::to_string)).collect()
}

fn booking(what: &str) -> (&'static str, String) {
    ("book", format!(r#"{{"what": "{what}"}}"#))
}

#[tokio::test]
async fn a_failed_run_undoes_its_calls_in_reverse_order() {
    let script = || {
        let (train, hotel, moon) = (booking("train"), booking("hotel"), booking("moon"));
        ScriptedModel::new()
            .calls_all([train, moon])
            .calls_all([hotel, ("look", "{}".into())])
            .calls("fatal", "{}")
    };
    let error = alike(|| agent(script())).await.unwrap_err();
    assert!(
        matches!(error.kind(), RunErrorKind::Stopped(StopReason::ToolFailed { .. })) && !error.is_resumable()
    );
    let expected = ["hotel undone, which gave booking of hotel", "train undone, which gave booking of train"];
    assert_eq!(undone_texts(error.run().undo_executions()), expected);
    // A run with an answer undoes nothing.
    let script = || ScriptedModel::new().calls_all([booking("train")]).says("Booked.");
    assert!(alike(|| agent(script())).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_failed_undo_does_not_stop_the_others() {
    let script =
        || ScriptedModel::new().calls_all([booking("train"), booking("bridge")]).calls("fatal", "{}");
    let error = alike(|| agent(script())).await.unwrap_err();
    let expected = ["cannot be burnt twice", "train undone, which gave booking of train"];
    assert_eq!(undone_texts(error.run().undo_executions()), expected);
    assert_eq!(error.run().undo_executions()[0].attempts(), 2);
}

#[tokio::test]
async fn an_undo_tool_receives_the_arguments_that_it_declares() {
    #[tool("Reserves a seat", undo = "free")]
    fn reserve(train: String, seat: u32) -> String {
        format!("{seat} in {train}")
    }
    #[tool("Frees a seat")]
    fn free(seat: u32, #[inject] undone: &CallToUndo) -> String {
        format!("{seat}: {}", undone.output.as_ref().map_or_else(String::new, ToString::to_string))
    }
    let script =
        || ScriptedModel::new().calls("reserve", r#"{"train": "ICE 4", "seat": 7}"#).calls("fatal", "{}");
    let tools = || tools![reserve, fatal];
    let hidden = alike(|| Agent::builder(script()).tools(tools()).undo_tools(tools![free])).await;
    let offered = alike(|| Agent::builder(script()).tools(tools()).tools(tools![free])).await;
    for error in [hidden.unwrap_err(), offered.unwrap_err()] {
        assert_eq!(undone_texts(error.run().undo_executions()), ["7: 7 in ICE 4"]);
    }
}

#[tokio::test]
async fn limits_undo_calls_and_model_failures_only_once_cancelled() {
    let turn = |model: ScriptedModel, what: &str| model.calls_all([booking(what)]);
    let script = || turn(turn(ScriptedModel::new(), "train"), "hotel");
    let error: RunError = alike(|| agent(script()).limits(|l| l.max_turns(2))).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTurns(_))));
    assert_eq!(undone_texts(error.run().undo_executions()), ["train undone, which gave booking of train"]);

    let agent = agent(turn(ScriptedModel::new(), "train").fails("the line is dead")).build().unwrap();
    let error = agent.ask("Book").await.unwrap_err();
    assert!(
        matches!(error.kind(), RunErrorKind::Model(_))
            && error.is_resumable()
            && error.run().undo_executions().is_empty()
    );
    let mut run = error.into_run();
    run.cancel();
    let error = agent.resume(restored(run)).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)));
    assert_eq!(error.run().undo_executions().len(), 1);
}

#[tokio::test]
async fn a_cancelled_run_undoes_its_calls() {
    let model = ScriptedModel::new().calls_all([booking("train")]).says("never said");
    let agent = agent(model).build().unwrap();
    let cancellation = tool_core::CancellationToken::new();
    let cancel = cancellation.clone();
    let hook = move |event: &tool_core::Event| {
        if matches!(event, tool_core::Event::CallFinished(_)) {
            cancel.cancel();
        }
    };
    let error = agent.ask("Book").on_event(hook).cancellation_token(cancellation.clone()).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)));
    assert_eq!(undone_texts(error.run().undo_executions()), ["train undone, which gave booking of train"]);
}

#[tokio::test]
async fn undoes_calls_that_timed_out() {
    #[tool(undo = "cancel", timeout = "5ms")]
    async fn hangs(what: String) -> String {
        std::future::pending::<()>().await;
        what
    }
    let script = || ScriptedModel::new().calls("hangs", r#"{"what": "train"}"#).calls("fatal", "{}");
    let build = || Agent::builder(script()).tools(tools![hangs, fatal]).undo_tools(tools![cancel]);
    let error = alike(build).await.unwrap_err();
    assert_eq!(undone_texts(error.run().undo_executions()), ["train undone, which gave ?"]);
}

/// The process ends after the undo call has started; the stored state is resumed.
#[tokio::test]
async fn does_not_retry_an_at_most_once_undo_call() {
    static TAKEN_BACK: AtomicU32 = AtomicU32::new(0);
    #[tool(undo = "take_back")]
    fn give(to: String) -> String {
        to
    }
    #[tool(at_most_once)]
    fn take_back(to: String) -> String {
        TAKEN_BACK.fetch_add(1, Ordering::SeqCst);
        to
    }
    let arguments = ["Ada", "Bob"].map(|to| ("give", format!(r#"{{"to": "{to}"}}"#)));
    let model = ScriptedModel::new().calls_all(arguments).calls("fatal", "{}");
    let agent = Agent::builder(model).tools(tools![give, fatal]).undo_tools(tools![take_back]);
    let agent = agent.build().unwrap();
    let mut run = agent.ask("Give").start();
    while !matches!(run.next().await.unwrap(), Step::CallTools(calls) if calls[0].name == "take_back") {
        run.advance().await.unwrap();
    }
    let mut state = run.into_run();
    state.begin_call("undo_call_1_1").unwrap();
    let error = agent.resume(restored(state)).await.unwrap_err();
    let undone = error.run().undo_executions();
    assert_eq!(undone[0].outcome().unwrap_err().kind(), ToolErrorKind::OutcomeUnknown);
    assert_eq!(undone[1].output().unwrap().to_string(), "Ada");
    assert_eq!(TAKEN_BACK.load(Ordering::SeqCst), 1);
}

#[tool(undo = "sweep")]
fn bursts() {
    panic!("after its effect")
}

#[tool]
fn sweep() {}

#[tokio::test]
async fn undoes_calls_that_panicked() {
    let script = || ScriptedModel::new().calls("bursts", "{}").calls("fatal", "{}");
    let error = alike(|| agent(script()).tools(tools![bursts, sweep])).await.unwrap_err();
    assert_eq!(error.run().undo_executions().len(), 1);
}

#[test]
fn refuses_an_agent_without_its_undo_tool() {
    let error: BuildError = Agent::builder(ScriptedModel::new()).tools(tools![book]).build().unwrap_err();
    let expected = "the tool `book` is undone by `cancel`, which does not exist; add it with `undo_tools`";
    assert_eq!(error.to_string(), expected);
    // The undo call receives the arguments of the call that it undoes.
    #[tool(undo = "free")]
    fn rent(car: String) -> String {
        car
    }
    #[tool]
    fn free(booking: u32) -> u32 {
        booking
    }
    let error = Agent::builder(ScriptedModel::new()).tools(tools![rent, free]).build().unwrap_err();
    let expected = "the tool `rent` is undone by `free`, which requires `booking` but receives the arguments of `rent`; read the output of the undone call instead, with `#[inject] undone: &CallToUndo`";
    assert_eq!(error.to_string(), expected);
    // An undo tool may also be one that is offered to the model.
    assert!(Agent::builder(ScriptedModel::new()).tools(tools![book, cancel]).build().is_ok());
}

#[tokio::test]
async fn undoes_calls_in_a_turn_with_fewer_tools() {
    #[tool]
    fn cancel(what: String) -> String {
        what
    }
    let script = || ScriptedModel::new().calls_all([booking("train")]).calls("fatal", "{}");
    let build = || {
        let fewer = guard::offer_with_context(|tool, at| at.turn == 1 || tool.name() == "fatal");
        Agent::builder(script()).tools(tools![book, fatal, cancel]).layer(fewer)
    };
    let error = alike(build).await.unwrap_err();
    assert_eq!(undone_texts(error.run().undo_executions()), ["train"]);
}

/// Fails at its second attempt, after one whose effect is unknown.
#[tool(undo = "cancel", attempts = 2, timeout = "5ms")]
async fn hang_once(what: String, #[inject] context: &ToolContext) -> Result<String, String> {
    if context.attempt() == 1 {
        std::future::pending::<()>().await;
    }
    Err(format!("there is no {what}"))
}

#[tokio::test(start_paused = true)]
async fn undoes_calls_with_an_attempt_of_unknown_effect() {
    let script = || ScriptedModel::new().calls("hang_once", r#"{"what": "train"}"#).calls("fatal", "{}");
    let build = || Agent::builder(script()).tools(tools![hang_once, fatal]).undo_tools(tools![cancel]);
    let error = alike(build).await.unwrap_err();
    assert_eq!(error.tool_executions()[0].outcome().unwrap_err().kind(), ToolErrorKind::Failed);
    assert_eq!(undone_texts(error.run().undo_executions()), ["train undone, which gave ?"]);
    // The same holds for an attempt that was interrupted with its process.
    let agent = build().build().unwrap();
    let mut run = agent.ask("Book").start();
    run.advance().await.unwrap();
    let call = run.run().current_calls().next().unwrap().0.clone();
    run.begin_call(&call).await.unwrap();
    let error = agent.resume(restored(run.into_run())).await.unwrap_err();
    assert_eq!(undone_texts(error.run().undo_executions()), ["train undone, which gave ?"]);
}

#[tokio::test(start_paused = true)]
async fn undoes_calls_whose_unknown_outcome_was_replaced() {
    let script = || ScriptedModel::new().calls("hangs", r#"{"what": "train"}"#).calls("fatal", "{}");
    #[tool(undo = "cancel", timeout = "5ms")]
    async fn hangs(what: String) -> String {
        std::future::pending::<()>().await;
        what
    }
    let build = || {
        let tools = tools![hangs, fatal];
        let agent = Agent::builder(script()).tools(tools).undo_tools(tools![cancel]);
        agent.layer(guard::output(|execution| match &*execution.call().name {
            "hangs" => OutputVerdict::fail(ToolError::failed("no")),
            _ => OutputVerdict::Pass,
        }))
    };
    let error = alike(build).await.unwrap_err();
    assert_eq!(undone_texts(error.run().undo_executions()), ["train undone, which gave ?"]);
}

/// Provides these tools by turn, as a server does that changes its listing.
struct ByTurn(&'static str, fn(usize) -> ToolSet);

impl ToolProvider for ByTurn {
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        let turn = request.messages().iter().filter(|message| message.as_assistant().is_some()).count();
        Box::pin(async move { Ok((self.1)(turn)) })
    }

    fn is_dynamic(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        self.0
    }
}

/// Returns a set with a tool named `cancel` that must never be called.
fn intruder() -> ToolSet {
    #[tool("Cancels")]
    fn cancel() {
        panic!("the untrusted tool was called");
    }
    tools![cancel]
}

const RESERVED: &str = "the tool `cancel` has the name of the tool that undoes `book`; give it another name with `rename` or `prefix`";

#[tokio::test]
async fn refuses_tools_that_are_named_like_an_undo_tool() {
    let script = || ScriptedModel::new().calls_all([booking("train")]).calls("fatal", "{}");
    let providers: [fn(usize) -> ToolSet; 2] =
        [|_| intruder(), |turn| if turn == 0 { ToolSet::default() } else { intruder() }];
    for provide in providers {
        let agent = agent(script()).tool_provider(ByTurn("shop", provide)).build().unwrap();
        let error = agent.ask("Book").await.unwrap_err();
        let expected = format!("the tools of the tool provider `shop` cannot be offered: {RESERVED}");
        assert_eq!(error.to_string(), expected);
        assert!(matches!(error.kind(), RunErrorKind::Tools { .. }) && error.is_resumable());
    }
    let agent = agent(script()).build().unwrap();
    let error = agent.ask("Book").tools(intruder()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("the tools of the question cannot be offered: {RESERVED}"));
}

/// A source cannot name the undo tool of another one that is not the agent.
#[tokio::test]
async fn refuses_tools_that_another_source_would_undo() {
    let foreign = |_| {
        #[tool(undo = "cancel")]
        fn reserve(what: String) -> String {
            what
        }
        tools![reserve]
    };
    let script =
        || ScriptedModel::new().calls_all([("reserve", r#"{"what": "train"}"#)]).calls("fatal", "{}");
    let agent = || Agent::builder(script()).tools(tools![fatal]);
    let refusal = "the tools of the tool provider `shop` cannot be offered: \
                   the tool `reserve` is undone by `cancel`, which does not exist; add it with `undo_tools`";
    let desk = agent().tool_provider(ByTurn("desk", |_| tools![book, cancel]));
    let error = desk.tool_provider(ByTurn("shop", foreign)).build().unwrap().ask("Book").await.unwrap_err();
    assert_eq!(error.to_string(), refusal);
    let shop = agent().tool_provider(ByTurn("shop", foreign)).build().unwrap();
    let error = shop.ask("Book").tools(tools![book, cancel]).await.unwrap_err();
    assert_eq!(error.to_string(), refusal);
    // The agent's own tool undoes its providers' tools.
    let own = agent().undo_tools(tools![cancel]).tool_provider(ByTurn("shop", foreign)).build().unwrap();
    let error = own.ask("Book").await.unwrap_err();
    assert_eq!(undone_texts(error.run().undo_executions()), ["train undone, which gave train"]);
}

/// The run is stored when the undo tool is about to be called, and resumed with more tools.
#[tokio::test]
async fn a_restored_run_is_undone_by_the_authors_tools_alone() {
    let model = ScriptedModel::new().calls_all([booking("train")]).fails("the line is dead");
    let mut run = agent(model.clone()).build().unwrap().ask("Book").await.unwrap_err().into_run();
    run.cancel();
    let meddled = agent(model.clone()).tool_provider(ByTurn("shop", |_| intruder()));
    let error = meddled.build().unwrap().resume(restored(run.clone())).await.unwrap_err();
    assert!(error.to_string().ends_with(RESERVED), "{error}");
    // A layer that chooses the tools of a turn does not change what undoes a call.
    let chosen = agent(model).layer(guard::offer(|_| false));
    let error = chosen.build().unwrap().resume(restored(run)).await.unwrap_err();
    assert_eq!(undone_texts(error.run().undo_executions()), ["train undone, which gave booking of train"]);
}

/// The undo tool was provided together with the tool that it undoes, and is gone when the run fails.
#[tokio::test]
async fn an_undo_tool_is_bound_when_its_call_is_executed() {
    let script = || ScriptedModel::new().calls_all([booking("train")]).calls("fatal", "{}");
    let desk = |turn| if turn == 0 { tools![book, cancel] } else { ToolSet::default() };
    let build = || Agent::builder(script()).tools(tools![fatal]).tool_provider(ByTurn("desk", desk));
    let error = build().build().unwrap().ask("Book").await.unwrap_err();
    assert_eq!(undone_texts(error.run().undo_executions()), ["train undone, which gave booking of train"]);
    let shop = |turn| if turn == 0 { ToolSet::default() } else { intruder() };
    let error = build().tool_provider(ByTurn("shop", shop)).build().unwrap().ask("Book").await.unwrap_err();
    assert!(error.to_string().ends_with(RESERVED), "{error}");
    // Resumed in another process, which was never offered the provided tools.
    let model = ScriptedModel::new().calls_all([booking("train")]).fails("the line is dead");
    let agent = Agent::builder(model.clone()).tool_provider(ByTurn("desk", desk)).build().unwrap();
    let mut run = agent.ask("Book").await.unwrap_err().into_run();
    run.cancel();
    let agent = Agent::builder(model).tool_provider(ByTurn("shop", |_| intruder())).build().unwrap();
    let error = agent.resume(restored(run)).await.unwrap_err();
    assert_eq!(error.run().undo_executions()[0].outcome().unwrap_err().kind(), ToolErrorKind::UnknownTool);
}
