//! Runs that are stopped while something hangs: a tool, the model, an approver, or another run.

use std::future::pending;
use std::time::Duration;

use tool_core::agent::{AgentBuilder, Decider, DeciderFuture};
use tool_core::layer::guard;
use tool_core::model::ChatRequest;
use tool_core::provider::ModelFuture;
use tool_core::run::{Decision, Step, StopReason, Wait};
use tool_core::tool::ToolErrorKind;
use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest};
use tool_core::{
    Agent, CancellationToken, ChatMemory, ChatModel, Event, RunError, RunErrorKind, ToolError, tool, tools,
};

use super::{Outcome, Puppet, call, conversation};
use tests::support::ways::assert_valid;

#[tool]
async fn hangs() {
    pending().await
}

#[tool]
fn revoked() -> Result<(), ToolError> {
    Err(ToolError::fatal("the key was revoked"))
}

#[tool]
fn look() -> &'static str {
    "seen"
}

fn calling(names: &'static [&'static str]) -> AgentBuilder {
    let model = Puppet::calling(move |turn| match turn {
        0 => names.iter().zip(["a", "b", "c"]).map(|(name, id)| call(id, name, "{}")).collect(),
        _ => vec![],
    });
    Agent::builder(model).tools(tools![hangs, revoked, look])
}

/// Executes all calls of a step in one loop, whatever their outcomes, as the documentation shows.
async fn call_by_call(agent: &Agent, cancellation: &CancellationToken) -> Outcome {
    let mut run = agent.ask("What now?").cancellation_token(cancellation.clone()).start();
    loop {
        match run.next().await? {
            Step::CallModel(request) => {
                let response = agent.model().chat(&request).await.unwrap();
                run.record_response(response).await?;
            }
            Step::CallTools(calls) => {
                for call in calls {
                    let execution = run.execute(call).await?;
                    run.record_result(execution).await?;
                }
            }
            _ => return run.finish().await,
        }
    }
}

/// A delay that is long enough to reach the hanging part, even on a busy machine.
const SOON: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn a_manual_loop_receives_the_reason_of_the_end() {
    let never = CancellationToken::new();
    let agent = calling(&["look", "revoked", "look"]).build().unwrap();
    let error = call_by_call(&agent, &never).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::ToolFailed { .. })), "{error}");
    let results: Vec<_> = error.new_messages()[2..].iter().map(|one| one.text().into_owned()).collect();
    assert_eq!(results, ["seen", "the key was revoked", "the call was not executed: the run had ended"]);

    let agent = calling(&["look", "hangs", "look"]).limits(|l| l.max_time(SOON)).build().unwrap();
    let error = call_by_call(&agent, &never).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTime(_))), "{error}");
    assert_valid(error.new_messages());
}

/// Cancels after a delay and returns the error of the run, which must not have waited for the hanging part.
async fn cancelled(cancellation: &CancellationToken, run: impl Future<Output = Outcome>) -> RunError {
    let cancel = async {
        tokio::time::sleep(SOON).await;
        cancellation.cancel();
    };
    let both = async { futures_util::future::join(run, cancel).await.0 };
    let outcome = tokio::time::timeout(Duration::from_secs(120), both).await;
    let error = outcome.expect("the run does not wait for the hanging part").unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)), "{error}");
    assert_valid(error.new_messages());
    error
}

async fn last_event(agent: &Agent, cancellation: &CancellationToken) -> Outcome {
    let mut events = agent.ask("What now?").cancellation_token(cancellation.clone()).stream();
    while let Some(event) = events.next().await {
        if let Event::Done(answer) = event? {
            return Ok(answer);
        }
    }
    panic!("the stream ended without a final event");
}

/// Cancels a run of this agent in all three ways.
async fn cancelled_in_all_ways(build: impl Fn() -> AgentBuilder) -> RunError {
    let agent = build().build().unwrap();
    let cancellation = CancellationToken::new();
    cancelled(&cancellation, last_event(&agent, &cancellation)).await;
    let cancellation = CancellationToken::new();
    cancelled(&cancellation, call_by_call(&agent, &cancellation)).await;
    let cancellation = CancellationToken::new();
    cancelled(&cancellation, agent.ask("What now?").cancellation_token(cancellation.clone()).into_future())
        .await
}

#[tokio::test(start_paused = true)]
async fn cancels_a_hanging_tool() {
    let error = cancelled_in_all_ways(|| calling(&["look", "hangs"])).await;
    assert_eq!(error.tool_executions().len(), 2);
    assert_eq!(error.tool_executions()[1].outcome().unwrap_err().kind(), ToolErrorKind::OutcomeUnknown);
}

/// A model, tool provider and approver that never answers.
struct Silent;

impl ChatModel for Silent {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(pending())
    }
}

impl ToolProvider for Silent {
    fn tools<'a>(&'a self, _: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(pending())
    }
}

impl Decider for Silent {
    fn decide<'a>(&'a self, _: &'a Wait) -> DeciderFuture<'a> {
        Box::pin(pending())
    }
}

#[tokio::test(start_paused = true)]
async fn cancels_a_hanging_model() {
    let build = || Agent::builder(Silent);
    let agent = build().build().unwrap();
    let cancellation = CancellationToken::new();
    cancelled(&cancellation, last_event(&agent, &cancellation)).await;
    let cancellation = CancellationToken::new();
    cancelled(&cancellation, agent.ask("What now?").cancellation_token(cancellation.clone()).into_future())
        .await;
    let error = build().limits(|l| l.max_time(SOON)).build().unwrap().ask("What now?").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTime(_))));
}

#[tokio::test(start_paused = true)]
async fn cancels_hanging_providers_approvers_and_conversations() {
    cancelled_in_all_ways(|| calling(&["look"]).tool_provider(Silent)).await;
    let error =
        cancelled_in_all_ways(|| calling(&["look"]).layer(guard::needs_approval(|_| true)).decider(Silent))
            .await;
    let result = error.new_messages().last().unwrap().text().into_owned();
    assert_eq!(result, "the call was not executed: the run was cancelled");

    let memory = ChatMemory::in_memory();
    let id = conversation();
    let _held = memory.open(&id).await.unwrap();
    let build = || calling(&["look"]).memory(memory.clone()).context(conversation());
    cancelled_in_all_ways(build).await;

    // The time limit covers all of them except an approval.
    for build in [
        build().limits(|l| l.max_time(SOON)),
        calling(&["look"]).tool_provider(Silent).limits(|l| l.max_time(SOON)),
    ] {
        let asked = tokio::time::timeout(Duration::from_secs(5), build.build().unwrap().ask("What now?"));
        assert!(matches!(
            asked.await.unwrap().unwrap_err().kind(),
            RunErrorKind::Stopped(StopReason::MaxTime(_))
        ));
    }
}

/// A decider that approves after a delay.
struct Slow;

impl Decider for Slow {
    fn decide<'a>(&'a self, _: &'a Wait) -> DeciderFuture<'a> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(400)).await;
            Decision::approve()
        })
    }
}

#[tokio::test(start_paused = true)]
async fn time_awaiting_approval_does_not_count() {
    let agent = calling(&["look"]).layer(guard::needs_approval(|_| true)).decider(Slow);
    let agent = agent.limits(|l| l.max_time(Duration::from_millis(300))).build().unwrap();
    let answer = agent.ask("What now?").await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "seen");
}

#[tool(undo = "take_back")]
fn give() {}

#[tool]
async fn take_back(#[inject] cancellation: &CancellationToken) -> Result<(), String> {
    tokio::task::yield_now().await;
    if cancellation.is_cancelled() { Err("the call was cancelled".into()) } else { Ok(()) }
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_run_does_not_cancel_its_undo_calls() {
    let agent = || {
        let model = Puppet::calling(|turn| vec![call(&turn.to_string(), ["give", "hangs"][turn], "{}")]);
        Agent::builder(model).tools(tools![give, hangs]).undo_tools(tools![take_back])
    };
    let error = cancelled_in_all_ways(agent).await;
    assert!(error.run().undo_executions()[0].outcome().is_ok());
    // Cancelling the run while it is being undone does not stop the undo either.
    let model = Puppet::calling(|turn| vec![call(&turn.to_string(), ["give", "revoked"][turn], "{}")]);
    let agent = Agent::builder(model).tools(tools![give, revoked]).undo_tools(tools![take_back]);
    let (agent, cancellation) = (agent.build().unwrap(), CancellationToken::new());
    let cancel = cancellation.clone();
    let hook = move |event: &Event| {
        if matches!(event, Event::CallStarted(call) if call.name == "take_back") {
            cancel.cancel();
        }
    };
    let error =
        agent.ask("What now?").cancellation_token(cancellation.clone()).on_event(hook).await.unwrap_err();
    assert!(
        matches!(error.kind(), RunErrorKind::Stopped(StopReason::ToolFailed { .. }))
            && cancellation.is_cancelled()
    );
    assert!(error.run().undo_executions()[0].outcome().is_ok());
}
