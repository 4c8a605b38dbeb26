//! Whose time counts: of the program, of models and tools, but not of persons.

use std::time::Duration;

use tool_core::agent::{AgentBuilder, Decider, DeciderFuture, OnDrop, RunDriver};
use tool_core::memory::InMemoryStore;
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ToolCall};
use tool_core::provider::ModelFuture;
use tool_core::run::{Decision, RunLimits, Step, StopReason, Wait};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatMemory, ChatModel, RunErrorKind, tool, tools};

const HOUR: Duration = Duration::from_secs(3600);
const LIMIT: Duration = Duration::from_secs(60);

/// Takes an hour for each decision.
struct Person;

impl Decider for Person {
    fn decide<'a>(&'a self, _: &'a Wait) -> DeciderFuture<'a> {
        Box::pin(async {
            tokio::time::sleep(HOUR).await;
            Decision::approve()
        })
    }
}

#[tool("Pays", needs_approval)]
fn pay(cents: u32) -> String {
    format!("paid {cents}")
}

#[tool("Looks")]
fn look() {}

/// Takes as long as it is asked to.
#[tool("Works")]
async fn work(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn limited(limits: RunLimits) -> RunLimits {
    limits.max_time(LIMIT)
}

/// Pays twice in one reply, then looks and pays beside each other.
fn desk() -> AgentBuilder {
    let two = [("pay", r#"{"cents": 1}"#), ("pay", r#"{"cents": 2}"#)];
    let model = ScriptedModel::new().calls_all(two).calls_all([("look", "{}"), two[0]]).says("Done.");
    Agent::builder(model).tools(tools![pay, look, work])
}

/// Returns the time that a run took which its caller drives step by step.
async fn elapsed_step_by_step(mut run: RunDriver) -> Duration {
    loop {
        match run.next().await.unwrap() {
            Step::CallModel(_) => {
                let response = run.call_model().await.unwrap();
                run.record_response(response).await.unwrap();
            }
            Step::CallTools(calls) => {
                for call in calls {
                    let executed = run.execute(call).await.unwrap();
                    run.record_result(executed).await.unwrap();
                }
            }
            _ => return run.run().elapsed(),
        }
    }
}

/// Several decisions of one round, decisions beside finished calls, and decisions inside do not count.
#[tokio::test(start_paused = true)]
async fn the_time_of_persons_does_not_count() {
    let asked = || desk().build().unwrap().ask("Go").decider(Person).limits(limited);
    assert_eq!(asked().await.unwrap().text(), "Done.");
    assert!(elapsed_step_by_step(asked().start()).await < LIMIT);
    for decides_inside in [false, true] {
        let outer = || {
            let model = ScriptedModel::new().calls("desk", r#"{"question": "Go"}"#).says("Paid.");
            let desk = if decides_inside { desk().decider(Person) } else { desk() }.build().unwrap();
            let desk = Agent::builder(model).tools(desk.as_tool("desk", "Pays").limits(limited));
            let asked = desk.build().unwrap().ask("Go").limits(limited);
            if decides_inside { asked } else { asked.decider(Person) }
        };
        assert_eq!(outer().await.unwrap().text(), "Paid.");
        assert!(elapsed_step_by_step(outer().start()).await < LIMIT);
    }
}

/// It does not count either if the caller asks the persons, between two steps, with or without a listener; also not if a step is dropped
/// while a decider is asked.
#[tokio::test(start_paused = true)]
async fn the_time_between_steps_in_which_a_run_waits_does_not_count() {
    for (listens, has_decider) in [(false, false), (true, false), (true, true)] {
        let mut asked = desk().build().unwrap().ask("Go").limits(limited);
        if listens {
            asked = asked.on_event(|_| {});
        }
        if has_decider {
            asked = asked.decider(Person);
        }
        let mut run = asked.start();
        loop {
            let step = tokio::time::timeout(Duration::from_secs(1), run.advance()).await;
            match step {
                Ok(Ok(true)) => continue,
                Ok(Ok(false)) => break,
                Ok(Err(error)) => assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}"),
                Err(_) => assert!(has_decider),
            }
            for wait in run.run().waits() {
                tokio::time::sleep(HOUR).await;
                run.resolve(&wait.id, Decision::approve()).unwrap();
            }
        }
        assert!(run.run().elapsed() < LIMIT, "{listens} {has_decider}: {:?}", run.run().elapsed());
        assert_eq!(run.finish().await.unwrap().text(), "Done.");
    }
}

/// What the caller of a run does itself counts, also if persons are to decide after it.
#[tokio::test(start_paused = true)]
async fn the_time_of_the_caller_counts() {
    let own = |calls: &[(&'static str, &'static str)]| {
        let calls = calls.iter().enumerate().map(|(at, call)| ToolCall::new(at.to_string(), call.0, call.1));
        ChatResponse::new(AssistantMessage::default().with_tool_calls(calls))
    };
    for calls in [&[("pay", r#"{"cents": 1}"#)][..], &[("look", "{}"), ("pay", r#"{"cents": 1}"#)]] {
        let mut run = desk().build().unwrap().ask("Go").limits(limited).start();
        assert!(matches!(run.next().await.unwrap(), Step::CallModel(_)));
        tokio::time::sleep(LIMIT * 2).await;
        run.record_response(own(calls)).await.unwrap();
        let stopped = run.run().clone().finish().unwrap_err();
        assert!(matches!(stopped.kind(), RunErrorKind::Stopped(StopReason::MaxTime(_))), "{stopped}");
        assert_eq!(run.run().elapsed(), LIMIT * 2);
    }
    let mut run = desk().build().unwrap().ask("Go").limits(limited).start();
    run.next().await.unwrap();
    let calls = [("work", r#"{"seconds": 50}"#), ("pay", r#"{"cents": 1}"#)];
    run.record_response(own(&calls)).await.unwrap();
    let Step::CallTools(calls) = run.next().await.unwrap() else { panic!() };
    let executed = run.execute(calls[0].clone()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    run.record_result(executed).await.unwrap();
    assert_eq!(run.run().elapsed(), Duration::from_secs(55));
    // Only a person is awaited from here on.
    tokio::time::sleep(HOUR).await;
    run.resolve(run.run().waits()[0].id.clone(), Decision::approve()).unwrap();
    assert_eq!(run.run().elapsed(), Duration::from_secs(55));
}

/// Takes ten seconds for each reply.
struct Slow(ScriptedModel);

impl ChatModel for Slow {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'a>) -> ModelFuture<'a> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            self.0.chat(request).await
        })
    }
}

/// The step in which a question goes on with an earlier run of its conversation counts like others.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_run_that_a_question_goes_on_with_counts() {
    let store = InMemoryStore::new();
    let agent =
        Agent::builder(Slow(ScriptedModel::new().calls("look", "{}").says("Done."))).tools(tools![look]);
    let memory = ChatMemory::new(store.clone());
    let agent = agent.memory(memory).run_store(store).on_drop(OnDrop::Keep).build().unwrap();
    let mut interrupted = agent.ask("Go").conversation("ada").start();
    assert!(interrupted.advance().await.unwrap() && interrupted.advance().await.unwrap());
    drop(interrupted);
    let mut run = agent.ask("Go on").conversation("ada").limits(limited).start();
    assert!(run.advance().await.unwrap());
    assert_eq!((run.run().tool_executions().len(), run.run().elapsed().as_secs()), (1, 20));
}
