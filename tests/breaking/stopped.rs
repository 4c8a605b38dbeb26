//! Runs that are stopped while something hangs: in a tool, in the model, where a person or another run is waited for.

use std::future::pending;
use std::time::Duration;

use tool_core::{Agent, AgentBuilder, Cancellation, RunError, Step, ToolError, tool, tools};

use crate::ways::assert_valid;
use crate::{Outcome, Puppet, call};

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

/// As in the documentation: all calls of a step in one loop, whatever comes of one.
async fn call_by_call(agent: &Agent, cancelled_by: &Cancellation) -> Outcome {
    let mut run = agent.ask("What now?").cancelled_by(cancelled_by).start();
    loop {
        match run.next().await? {
            Step::CallModel(request) => {
                let response = agent.model().chat(&request).await.unwrap();
                run.replied(response).await?;
            }
            Step::CallTools(calls) => {
                for call in calls {
                    let execution = run.execute(call).await?;
                    run.called(execution).await?;
                }
            }
            _ => return run.finish().await,
        }
    }
}

const SOON: Duration = Duration::from_millis(15);

#[tokio::test]
async fn a_loop_by_hand_hears_why_the_run_ended() {
    let never = Cancellation::new();
    let agent = calling(&["look", "revoked", "look"]).build().unwrap();
    let error = call_by_call(&agent, &never).await.unwrap_err();
    assert!(error.is_tool(), "{error}");
    let results: Vec<_> = error.messages()[2..].iter().map(|one| one.text().into_owned()).collect();
    assert_eq!(results, ["seen", "the key was revoked", "the call was not made: the run had ended"]);

    let agent = calling(&["look", "hangs", "look"]).max_time(SOON).build().unwrap();
    let error = call_by_call(&agent, &never).await.unwrap_err();
    assert!(error.is_time_limit(), "{error}");
    assert_valid(error.messages());
}

/// Cancels after a while, and gives what a run came to; it has not waited for what hangs.
async fn cancelled(cancellation: &Cancellation, run: impl Future<Output = Outcome>) -> RunError {
    let cancel = async {
        tokio::time::sleep(SOON).await;
        cancellation.cancel();
    };
    let both = async { futures_util::join!(run, cancel).0 };
    let outcome = tokio::time::timeout(Duration::from_secs(5), both).await;
    let error = outcome.expect("it does not wait for what hangs").unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    assert_valid(error.messages());
    error
}

async fn last_event(agent: &Agent, cancellation: &Cancellation) -> Outcome {
    let mut events = agent.ask("What now?").cancelled_by(cancellation).stream();
    while let Some(event) = events.next().await {
        if let tool_core::Event::Done(answer) = event? {
            return Ok(answer);
        }
    }
    panic!("the stream ended without an end");
}

/// Cancels a run of this agent in all three ways.
async fn cancelled_in_all_ways(build: impl Fn() -> AgentBuilder) -> RunError {
    let agent = build().build().unwrap();
    let cancellation = Cancellation::new();
    cancelled(&cancellation, last_event(&agent, &cancellation)).await;
    let cancellation = Cancellation::new();
    cancelled(&cancellation, call_by_call(&agent, &cancellation)).await;
    let cancellation = Cancellation::new();
    cancelled(&cancellation, agent.ask("What now?").cancelled_by(&cancellation).into_future()).await
}

#[tokio::test]
async fn a_tool_that_hangs_is_given_up() {
    let error = cancelled_in_all_ways(|| calling(&["look", "hangs"])).await;
    assert_eq!(error.tool_executions().len(), 2);
    assert!(error.tool_executions()[1].outcome().unwrap_err().is_outcome_unknown());
}
