//! Runs that begin like others, and finished runs that stay stored.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tests::support::deciding::Decide;
use tests::support::sampling::size;
use tests::support::stores::run_stores;
use tests::support::stores::{run_ids, stored_runs};
use tests::support::ways::restored;
use tool_core::memory::{RunFilter, RunStatus};
use tool_core::model::{AssistantMessage, ChatResponse};
use tool_core::run::Decision;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatMemory, Message, RunErrorKind, ToolCall, tool, tools};

use super::refusal;

/// Counts executions and undos.
#[derive(Clone, Default)]
struct Counts(std::sync::Arc<[AtomicUsize; 2]>);

impl Counts {
    fn now(&self) -> [usize; 2] {
        [0, 1].map(|at| self.0[at].load(Ordering::SeqCst))
    }
}

/// Books.
#[tool(at_most_once, undo = "cancel")]
fn book(#[inject] counts: &Counts, n: usize) -> String {
    counts.0[0].fetch_add(1, Ordering::SeqCst);
    format!("booked {n}")
}

/// Cancels.
#[tool]
fn cancel(#[inject] counts: &Counts) {
    counts.0[1].fetch_add(1, Ordering::SeqCst);
}

fn agent(model: ScriptedModel, counts: &Counts) -> Agent {
    Agent::builder(model)
        .instructions("Book.")
        .tools(tools![book])
        .undo_tools(tools![cancel])
        .context(counts.clone())
        .limits(|l| l.max_turns(20))
        .build()
        .unwrap()
}

/// The numbers of a sequence that looks random.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

#[tokio::test]
async fn a_fork_at_any_position_executes_and_undoes_nothing_of_before() {
    for seed in 0..size(20, 200) {
        let mut next = numbers(seed as u64);
        let (counts, mut model, mut calls) = (Counts::default(), ScriptedModel::new(), 0);
        for _ in 0..next(4) {
            let count = 1 + next(3);
            let requested = (0..count).map(|call| {
                // Arguments of some calls are refused.
                let arguments = if next(4) == 0 { "{}".to_owned() } else { format!(r#"{{"n":{call}}}"#) };
                calls += 1;
                ToolCall::new(format!("call-{calls}"), "book", arguments)
            });
            let requested: Vec<_> = requested.collect();
            model =
                model.replies(ChatResponse::new(AssistantMessage::text("Well.").with_tool_calls(requested)));
        }
        let has_failed = next(2) == 0;
        let model = if has_failed { model.fails("down") } else { model.says("Done.") };
        let mut driver = agent(model, &counts).ask("Go").start();
        while driver.advance().await.unwrap_or(false) {}
        let run = driver.into_run();
        let (before, messages) = (counts.now(), run.messages().to_vec());
        for position in 0..=messages.len() + 1 {
            let is_end_of_turn = position <= messages.len()
                && matches!(messages[..position].last(), Some(Message::User(_) | Message::Tool(_)))
                && !matches!(messages.get(position), Some(Message::Tool(_)));
            // The forked run calls the tool once more, and fails: only this call is undone.
            let model = ScriptedModel::new().calls("book", r#"{"n": 7}"#).fails("down");
            let agent = agent(model.clone(), &counts);
            let forked = match agent.fork(&run, position) {
                Ok(forked) if is_end_of_turn => forked,
                Err(_) if !is_end_of_turn => continue,
                other => panic!("{seed} {position}: {:?}", other.err()),
            };
            let earlier = counts.now();
            let failed = forked.await.unwrap_err().into_run();
            assert_eq!(failed.messages()[..position], messages[..position], "{seed} {position}");
            assert_eq!(model.requests()[0], messages[..position], "{seed} {position}");
            assert_ne!(failed.id(), run.id());
            assert_eq!(counts.now(), [earlier[0] + 1, earlier[1]], "{seed} {position}");
            agent.undo_and_end(failed).await.unwrap();
            assert_eq!(counts.now(), [earlier[0] + 1, earlier[1] + 1], "{seed} {position}");
        }
        assert_eq!(run.messages(), messages);
        assert!(counts.now()[0] > before[0]);
    }
}

#[tokio::test]
async fn a_position_that_no_request_begins_with_is_refused() {
    let counts = Counts::default();
    let calls = ["{\"n\": 1}", "{\"n\": 2}"].map(|arguments| ("book", arguments));
    let model = ScriptedModel::new().calls_all(calls).says("Done.");
    let agent = agent(model, &counts);
    let mut driver = agent.ask("Go").start();
    while driver.advance().await.unwrap() {}
    let run = driver.into_run();
    let refused = |position| refusal(agent.fork(&run, position).map(drop));
    let inside = "the position is inside a turn or behind an answer; fork behind a message of the user or behind all results of a turn";
    let outside = "the position is not behind the question of the run and within its messages";
    assert_eq!([0, 1, 7].map(refused), [outside; 3]);
    assert_eq!([3, 4, 6].map(refused), [inside; 3]);
    let mut undone = agent.fork(&run, 5).unwrap().start().into_run();
    undone.cancel();
    assert!(agent.fork(&undone, 5).is_ok(), "what another run executed is not undone");
    let mut undone = run.clone();
    undone.reject_answer("no").unwrap();
    undone.cancel();
    let expected = "calls of the run were undone, so it cannot go on from an earlier position";
    assert_eq!(refusal(agent.fork(&undone, 5).map(drop)), expected);
}

/// Deletes.
#[tool(needs_approval)]
fn delete() {}

#[tokio::test]
async fn a_call_of_a_fork_is_approved_anew() {
    let model = ScriptedModel::new().calls("delete", "{}").says("Deleted.").calls("delete", "{}");
    let agent = Agent::builder(model).tools(tools![delete]).build().unwrap();
    let mut run = agent.ask("Go").await.unwrap_err().into_run();
    run.decide_calls(&Decision::approve());
    let mut driver = agent.resume(run).start();
    while driver.advance().await.unwrap() {}
    let error = agent.fork(driver.run(), 1).unwrap().await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    assert_eq!(restored(error.into_run()).messages().len(), 2);
}

async fn finished(agent: &Agent) -> Vec<String> {
    let runs = agent.list_runs(&RunFilter::new().status(RunStatus::Finished)).await.unwrap();
    runs.into_iter().map(|run| run.id).collect()
}

#[tokio::test]
async fn finished_runs_stay_stored_as_long_as_the_agent_says() {
    for (name, store) in run_stores().await {
        let memory = ChatMemory::in_memory();
        let agent = |model: ScriptedModel, time: Option<Duration>| {
            let agent = Agent::builder(model)
                .run_store(store.clone())
                .memory(memory.clone())
                .limits(|l| l.max_turns(1));
            time.into_iter().fold(agent, |agent, time| agent.keep_finished(time)).build().unwrap()
        };
        agent(ScriptedModel::new().says("Zero."), None).ask("Go").await.unwrap();
        assert!(run_ids(&store).await.is_empty(), "{name}: removed by default");
        let model = ScriptedModel::new().says("One.").calls("nothing", "{}");
        let keeping = agent(model.clone(), Some(Duration::from_secs(3_600)));
        keeping.ask("Go").conversation("a").await.unwrap();
        let [id] = &*finished(&keeping).await else { panic!("{name}: one run has ended") };
        assert!(stored_runs(&keeping).await.is_empty(), "{name}: it cannot be continued");
        let stored = keeping.stored_run(id).await.unwrap().unwrap();
        assert_eq!((stored.status, stored.run.new_messages().len()), (RunStatus::Finished, 2), "{name}");
        assert_eq!(keeping.resume(stored.run).await.unwrap().text(), "One.", "{name}: its outcome is known");
        assert_eq!((model.remaining(), memory.messages("a").await.unwrap().len()), (1, 2), "{name}");
        // A run that stopped without an answer has ended, too.
        let error = keeping.ask("Go").await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Stopped(_)), "{error}");
        assert_eq!(finished(&keeping).await.len(), 2, "{name}");
        // The end of a run removes those that are old enough, and so does a list.
        let forgetting = agent(ScriptedModel::new().says("Two."), Some(Duration::ZERO));
        forgetting.ask("Go").await.unwrap();
        assert_eq!(run_ids(&store).await.len(), 1, "{name}: its own lease is not released yet");
        assert!(finished(&forgetting).await.is_empty() && run_ids(&store).await.is_empty(), "{name}");
    }
}
