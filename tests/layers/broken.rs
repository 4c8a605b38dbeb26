//! Layers that fail, hang, end runs in odd places, or are added to runs that wait.

use std::sync::{Arc, Mutex};

use tests::support::ways::restored;
use tool_core::agent::AgentBuilder;
use tool_core::layer::{OutputVerdict, guard, rewrite};
use tool_core::model::ToolDefinition;
use tool_core::run::{Decision, StopReason, WaitReason};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Asker, ExternalTool};
use tool_core::{Agent, RunError, RunErrorKind, ToolError, ToolOutput, tool, tools};

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

#[tool("Pays", needs_approval)]
fn pay(cents: u32, #[inject] log: &Log) {
    log.add(format!("paid {cents}"));
}

/// A person who has approved other arguments than those that a layer writes is asked again.
#[tokio::test]
async fn an_approval_before_a_rewrite_binds_nothing() {
    for edits in [false, true] {
        let log = Log::default();
        let model = ScriptedModel::new().calls("pay", r#"{"cents": 1}"#).says("Done.");
        let before = Agent::builder(model).tools(tools![pay]).context(log.clone());
        let mut run = before.build().unwrap().ask("go").await.unwrap_err().into_run();
        let decision = if edits { Decision::approve_with(r#"{"cents": 2}"#) } else { Decision::approve() };
        let first = run.waits().remove(0).id;
        run.resolve(&first, decision).unwrap();

        let after =
            Agent::builder(ScriptedModel::new().says("Done.")).tools(tools![pay]).context(log.clone());
        let after = after.layer(rewrite::call(|_| Some(r#"{"cents":900}"#.into()))).build().unwrap();
        let mut run = after.resume(restored(run)).await.unwrap_err().into_run();
        assert_eq!(log.all(), [""; 0]);
        let wait = run.waits().remove(0);
        assert!(matches!(&wait.reason, WaitReason::Approval(call) if call.arguments == r#"{"cents":900}"#));
        assert_ne!(wait.id, first);
        run.resolve(&wait.id, Decision::approve()).unwrap();
        let answer = after.resume(restored(run)).await.unwrap();
        assert_eq!(log.all(), ["paid 900"]);
        assert_eq!(answer.tool_executions()[0].original_arguments(), r#"{"cents": 1}"#);
    }
}

#[tool("Books")]
async fn book(text: String, #[inject] log: &Log, #[inject] user: &Asker) -> Result<String, ToolError> {
    let seat: String = user.ask("Which seat?").await?;
    log.add(format!("booked {text} {seat}"));
    Ok("booked".into())
}

/// A layer that is added while a call asks a person does not change its arguments under it.
#[tokio::test]
async fn a_call_that_has_begun_is_not_rewritten() {
    let log = Log::default();
    let model = ScriptedModel::new().calls("book", r#"{"text": "a"}"#).says("Done.");
    let before = Agent::builder(model).tools(tools![book]).context(log.clone()).build().unwrap();
    let mut run = before.ask("go").await.unwrap_err().into_run();
    let wait = run.waits().remove(0).id;
    run.resolve(&wait, Decision::answer("1A")).unwrap();
    let after = Agent::builder(ScriptedModel::new().says("Done.")).tools(tools![book]).context(log.clone());
    let after = after.layer(rewrite::call(|_| Some(r#"{"text":"b"}"#.into()))).build().unwrap();
    let _ = after.resume(restored(run)).await.unwrap();
    assert_eq!(log.all(), ["booked a 1A"]);
}

#[tokio::test]
async fn a_message_of_the_user_hides_no_result_of_the_caller() {
    let model = ScriptedModel::new().calls("look", "{}").says("Done.");
    let look = ExternalTool::new(ToolDefinition::new("look").with_description("Looks"));
    let hide = rewrite::output(|_, output| output.to_string().replace("secret", "…"));
    let agent = Agent::builder(model).tool(look).layer(hide).build().unwrap();
    let mut run = agent.ask("go").await.unwrap_err().into_run();
    let wait = run.waits().remove(0).id;
    run.push_user_message("hurry").unwrap();
    run.push_user_message("please").unwrap();
    run.resolve(&wait, Decision::result(Ok(ToolOutput::text("a secret")))).unwrap();
    let answer = agent.resume(restored(run)).await.unwrap();
    assert_eq!(answer.messages()[2].text(), "a …");
}
