//! Layers that fail, hang, end runs in odd places, or are added to runs that wait.

use std::sync::{Arc, Mutex};

use tool_core::agent::AgentBuilder;
use tool_core::layer::{OutputVerdict, guard};
use tool_core::run::StopReason;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, RunError, RunErrorKind, tool, tools};

/// What the tools did.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, done: String) {
        self.0.lock().unwrap().push(done);
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[tool("Acts", undo = "take_back")]
fn act(text: String, #[inject] log: &Log) -> String {
    log.add(format!("did {text}"));
    format!("did {text}")
}

#[tool("Takes an act back")]
fn take_back(text: String, #[inject] log: &Log) -> String {
    log.add(format!("took back {text}"));
    "taken back".into()
}

fn agent(model: ScriptedModel, log: &Log) -> AgentBuilder {
    Agent::builder(model).tools(tools![act]).undo_tools(tools![take_back]).context(log.clone())
}

fn two_turns() -> ScriptedModel {
    ScriptedModel::new().calls("act", r#"{"text": "a"}"#).calls("act", r#"{"text": "b"}"#).says("Done.")
}

fn is_blocked(error: &RunError) -> bool {
    matches!(error.kind(), RunErrorKind::Stopped(StopReason::Blocked { .. }))
}

#[tokio::test]
async fn an_end_about_an_undo_neither_skips_nor_repeats_one() {
    let log = Log::default();
    let ends = guard::output(|execution| match execution.to_string().contains("did a") {
        true => OutputVerdict::Pass,
        false => OutputVerdict::end("why"),
    });
    let agent = agent(two_turns(), &log).layer(ends).build().unwrap();
    let mut driver = agent.start("go");
    for _ in 0..12 {
        if !driver.advance().await.unwrap() {
            break;
        }
    }
    assert_eq!(log.all(), ["did a", "did b", "took back b", "took back a"]);
    assert!(is_blocked(&driver.finish().await.unwrap_err()));
}
