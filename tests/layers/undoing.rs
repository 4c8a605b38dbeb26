//! Layers that fail or hang about the outcome of an undo, which goes on.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tool_core::agent::AgentBuilder;
use tool_core::layer::{AnswerVerdict, LayerError, OutputVerdict, guard};
use tool_core::run::StopReason;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, CancellationToken, Event, RunError, RunErrorKind, ToolError, tool, tools};

/// The calls that were undone.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

#[tool("Acts", undo = "take_back")]
fn act(text: String) -> String {
    format!("did {text}")
}

#[tool("Takes an act back")]
fn take_back(text: String, #[inject] log: &Log) -> Result<String, ToolError> {
    log.0.lock().unwrap().push(text.clone());
    if text == "a" { Ok("unjudged".into()) } else { Err(ToolError::failed("unjudged")) }
}

type Verdict = Pin<Box<dyn Future<Output = Result<OutputVerdict, LayerError>> + Send>>;

/// An agent that acts twice, and a layer that does not judge what undoes that.
fn agent(log: &Log, fails: bool) -> AgentBuilder {
    let judges = guard::output(move |execution| -> Verdict {
        match (&*execution.call().name, fails) {
            ("take_back", true) => Box::pin(async { Err("down".into()) }),
            ("take_back", false) => Box::pin(pending()),
            _ => Box::pin(async { Ok(OutputVerdict::Pass) }),
        }
    });
    let calls = [("act", r#"{"text": "a"}"#), ("act", r#"{"text": "b"}"#)];
    let model = ScriptedModel::new().calls_all(calls).says("Done.");
    let agent = Agent::builder(model).tools(tools![act]).undo_tools(tools![take_back]).context(log.clone());
    agent.layer(judges.named("judge"))
}

async fn within_time(asked: impl Future<Output = Result<tool_core::Answer, RunError>>) -> RunError {
    tokio::time::timeout(Duration::from_secs(120), asked).await.expect("the undo hangs").unwrap_err()
}

fn assert_undone(log: &Log, error: &RunError) {
    assert_eq!(*log.0.lock().unwrap(), ["b", "a"]);
    let outcomes = error.run().undo_executions().iter();
    let outcomes: Vec<_> = outcomes.map(|one| one.error().unwrap().to_string()).collect();
    assert_eq!(outcomes, ["a layer did not judge the outcome"; 2]);
    let original: Vec<_> =
        error.run().undo_executions().iter().map(|one| one.original_outcome().is_ok()).collect();
    assert_eq!(original, [false, true]);
}

#[tokio::test]
async fn a_layer_that_fails_about_an_undo_does_not_stop_it() {
    let log = Log::default();
    let shown: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&shown);
    let ends = guard::answer(|_| AnswerVerdict::end("why"));
    let agent = agent(&log, true).layer(ends).on_event(move |event| {
        if let Event::CallFinished(execution) = event {
            seen.lock().unwrap().push(execution.to_string());
        }
    });
    let error = within_time(agent.build().unwrap().ask("go").into_future()).await;
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Blocked { .. })), "{error}");
    assert_undone(&log, &error);
    let shown = shown.lock().unwrap();
    assert_eq!(shown.len(), 4);
    assert!(!shown.concat().contains("unjudged"), "{shown:?}");
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_time_holds_for_layers_after_the_end() {
    for is_time_left in [false, true] {
        let log = Log::default();
        let agent = agent(&log, false).limits(|l| l.max_time(Duration::from_millis(100)));
        // The run ends at its limit, or before it.
        let agent = match is_time_left {
            true => agent.layer(guard::answer(|_| AnswerVerdict::end("why"))),
            false => agent.layer(guard::answer(|_| -> Pin<Box<dyn Future<Output = AnswerVerdict> + Send>> {
                Box::pin(pending())
            })),
        };
        let error = within_time(agent.build().unwrap().ask("go").into_future()).await;
        assert_undone(&log, &error);
    }
}

#[tokio::test]
async fn a_cancelled_run_does_not_wait_for_layers_after_the_end() {
    for has_token in [false, true] {
        let log = Log::default();
        let agent = agent(&log, false).build().unwrap();
        let token = CancellationToken::new();
        let mut driver = agent.ask("go").cancellation_token(token.clone()).start();
        driver.advance().await.unwrap();
        driver.advance().await.unwrap();
        if has_token {
            token.cancel()
        } else {
            driver.cancel()
        }
        let error = within_time(async {
            while driver.advance().await? {}
            driver.finish().await
        })
        .await;
        assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)), "{error}");
        assert_undone(&log, &error);
    }
}

/// An agent inside undoes its own calls, and the outer one counts them by what they did.
#[tokio::test]
async fn an_undo_inside_an_agent_that_nobody_judged_counts_as_done() {
    let log = Log::default();
    let model = ScriptedModel::new().calls("act", r#"{"text": "a"}"#).says("Done.");
    let inner = Agent::builder(model).tools(tools![act]).undo_tools(tools![take_back]).context(log.clone());
    let model = ScriptedModel::new().calls("helper", r#"{"question": "act"}"#).says("Done.");
    let outer = Agent::builder(model).tools(inner.build().unwrap().as_tool("helper", "Helps"));
    let asked: Arc<Mutex<u32>> = Arc::default();
    let count = Arc::clone(&asked);
    let judges = guard::output(move |execution| match &*execution.call().name {
        "take_back" => {
            *count.lock().unwrap() += 1;
            Err("down")
        }
        _ => Ok(OutputVerdict::Pass),
    });
    let outer = outer.layer(judges).layer(guard::answer(|_| AnswerVerdict::end("why"))).build().unwrap();
    let error = within_time(outer.ask("go").into_future()).await;
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Blocked { .. })), "{error}");
    assert_eq!((log.0.lock().unwrap().join(""), *asked.lock().unwrap()), ("a".to_owned(), 1));
    assert_eq!(error.run().undo_executions()[0].output().unwrap().to_string(), "calls undone: 1");
}
