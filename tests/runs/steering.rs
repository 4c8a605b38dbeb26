//! Messages to a run that works, by `Agent::say`.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::pending;
use tests::support::stores::{post_command, run_ids};
use tool_core::agent::{Ask, CommandError, CommandErrorKind, OnDrop};
use tool_core::engine::{AgentExt, AskExt};
use tool_core::layer::{QuestionVerdict, guard};
use tool_core::memory::{InMemoryStore, RunFilter, RunSummary};
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse};
use tool_core::provider::ModelFuture;
use tool_core::run::{Decision, Run, Step, UserMessage};
use tool_core::signatures::StepErrorKind;
use tool_core::store::{
    DriverId, LeaseRequest, LeaseState, MessageVolume, PostOutcome, PostedCommand, RunChanges, RunCommand,
    RunLog, RunRevision, RunStore, SaveOutcome, StoreFuture,
};
use tool_core::testing::ScriptedModel;
use tool_core::{
    Agent, Answer, ChatModel, Event, FunctionTool, Message, RunError, RunErrorKind, ToolCall, tool, tools,
};

/// Posts messages to the only run of a store, whose operations are done at once.
fn post(store: &InMemoryStore, messages: &[&str]) {
    let id = run_ids(store).now_or_never().unwrap().remove(0);
    for message in messages {
        let command = PostedCommand::new(RunCommand::Say((*message).into()));
        let _ = store.post(&id, &command).now_or_never().unwrap().unwrap();
    }
}

/// An agent with a tool during whose call two messages arrive.
fn agent(model: &ScriptedModel, store: &InMemoryStore) -> Agent {
    let inbox = store.clone();
    let work = FunctionTool::new("work", move |_: ()| {
        post(&inbox, &["One", "Two"]);
        async { "worked" }
    });
    Agent::builder(model.clone()).tools(work).run_store(store.clone()).build().unwrap()
}

async fn stream(ask: Ask) -> Result<Answer, RunError> {
    let mut events = ask.stream();
    while let Some(event) = events.next().await {
        if let Event::Done(answer) = event? {
            return Ok(answer);
        }
    }
    panic!("the stream ended without a final event");
}

async fn by_hand(ask: Ask) -> Result<Answer, RunError> {
    let mut run = ask.start();
    loop {
        match run.next().await? {
            Step::CallModel(_) => {
                let response = run.call_model().await?;
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

/// Asks a question in each way of driving.
async fn in_all_ways(agent: impl Fn() -> Agent, check: impl Fn(Result<Answer, RunError>)) {
    check(agent().ask("Go").await);
    check(stream(agent().ask("Go")).await);
    check(by_hand(agent().ask("Go")).await);
}

fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|message| message.text().into_owned()).collect()
}

#[tokio::test]
async fn messages_follow_the_results_of_the_calls_in_flight_in_their_order() {
    let agent = || {
        let model = ScriptedModel::new().calls_all([("work", "{}"), ("rest", "{}")]).says("Done.");
        let agent = agent(&model, &InMemoryStore::new());
        assert!(agent.run_store().is_some());
        agent
    };
    in_all_ways(agent, |answer| {
        let answer = answer.unwrap();
        let unknown = "the tool `rest` does not exist; the available tools are: `work`";
        let [question, reply, result, other, rest @ ..] = &*texts(answer.new_messages()) else { panic!() };
        assert_eq!((&**question, &**reply, &**result), ("Go", "", "worked"));
        assert!(other.contains("rest"), "{other} is not {unknown}");
        assert_eq!(rest, ["One", "Two", "Done."]);
    })
    .await;
}

#[tokio::test]
async fn a_message_that_arrives_with_the_answer_is_answered_too() {
    for (turns, expected) in [(10, &["Go", "Rome?", "One", "By train."][..]), (1, &["Go", "Rome?"])] {
        let (store, model) = (InMemoryStore::new(), ScriptedModel::new().says("Rome?").says("By train."));
        let agent = agent(&model, &store);
        agent.watch_requests(move |_, turn, _| {
            if turn == 1 {
                post(&store, &["One"]);
            }
        });
        let answer = agent.ask("Go").limits(|l| l.max_turns(turns)).await.unwrap();
        assert_eq!(texts(answer.new_messages()), expected, "no message is read after the last turn");
    }
}

#[tokio::test]
async fn a_message_to_a_waiting_run_decides_nothing_and_is_said_once_it_works() {
    let agent = Agent::builder(pays().says("Done."))
        .tools(tools![pay])
        .run_store(InMemoryStore::new())
        .build()
        .unwrap();
    let run = agent.ask("Go").await.unwrap_err().into_run();
    let (id, wait) = (run.id().as_str(), run.waits().remove(0));
    agent.say(id, "One").await.unwrap();
    let still = agent.resume(agent.stored_run(id).await.unwrap().unwrap().run).await.unwrap_err();
    assert!(matches!(still.kind(), RunErrorKind::Waiting));
    assert_eq!(still.run().waits()[0].id, wait.id);
    agent.say(id, "Two").await.unwrap();
    let decided = agent.decide(id, &wait.id, Decision::approve()).await.unwrap();
    let answer = decided.resume().unwrap().await.unwrap();
    assert_eq!(texts(answer.new_messages()), ["Go", "", "paid 5", "One", "Two", "Done."]);
    let error = agent.say(id, "Three").await.unwrap_err();
    assert!(matches!(error.kind(), CommandErrorKind::UnknownRun), "{error}");
    assert_eq!(error.to_string(), "no run of this agent is stored under this id; it may have ended");
}

#[tokio::test]
async fn a_run_that_is_cancelled_takes_no_messages() {
    let store = InMemoryStore::new();
    let agent = agent(&ScriptedModel::new().fails("the line is dead"), &store);
    let mut run = agent.ask("Go").await.unwrap_err().into_run();
    run.cancel();
    let id = run.id().clone();
    store.save_run(&id, &mut run).await.unwrap();
    let error = agent.say(&id, "One").await.unwrap_err();
    assert!(matches!(error.kind(), CommandErrorKind::Ended), "{error}");
    assert_eq!(error.to_string(), "the run has ended; a further message is a new question");
    assert_eq!(store.posted(&id).await.unwrap(), []);
}

#[tokio::test]
async fn a_finished_run_that_is_kept_takes_no_messages() {
    let store = InMemoryStore::new();
    let kept = Agent::builder(ScriptedModel::new().says("Done.")).run_store(store.clone());
    let kept = kept.keep_finished(Duration::from_secs(60)).build().unwrap();
    kept.ask("Go").await.unwrap();
    let id = store.list_runs(&RunFilter::new()).await.unwrap()[0].id.clone();
    let error = kept.say(&*id, "One").await.unwrap_err();
    assert!(matches!(error.kind(), CommandErrorKind::Ended), "{error}");
    assert_eq!(store.posted(&id).await.unwrap(), []);
}

#[tokio::test]
async fn a_cancellation_without_effect_says_why() {
    let store = InMemoryStore::new();
    let named = |name: &str| {
        let model = ScriptedModel::new().fails("the line is dead").says("Done.");
        Agent::builder(model)
            .name(name)
            .run_store(store.clone())
            .keep_finished(Duration::from_secs(60))
            .build()
            .unwrap()
    };
    let desk = named("desk");
    let failed = desk.ask("Go").await.unwrap_err().into_run();
    let other = named("other").cancel(failed.id()).await.unwrap_err();
    let done = desk.resume(failed.clone()).await.map(|_| failed.id().clone()).unwrap();
    let ended = desk.cancel(done).await.unwrap_err();
    let storeless =
        Agent::builder(ScriptedModel::new()).build().unwrap().cancel(failed.id()).await.unwrap_err();
    assert!(matches!(ended.kind(), CommandErrorKind::Ended), "{ended}");
    for unknown in [other, storeless] {
        assert!(matches!(unknown.kind(), CommandErrorKind::UnknownRun), "{unknown}");
    }
}

#[tokio::test]
async fn messages_pass_the_layers_of_questions() {
    let agent = || {
        let model = ScriptedModel::new().calls("work", "{}").says("Done.");
        let store = InMemoryStore::new();
        let inbox = store.clone();
        let work = FunctionTool::new("work", move |_: ()| {
            post(&inbox, &["One", "Two"]);
            async { "worked" }
        });
        let guard = guard::question(|question| match &*question.text() {
            "Two" => QuestionVerdict::end("no"),
            _ => QuestionVerdict::Pass,
        });
        Agent::builder(model).tools(work).layer(guard).run_store(store).build().unwrap()
    };
    in_all_ways(agent, |answer| {
        let error = answer.unwrap_err();
        assert!(error.to_string().contains("no"), "{error}");
        assert_eq!(error.run().turns(), 1, "the model was not asked");
    })
    .await;
}

const FULL: &str = "a run takes messages of up to 256 KiB, 100 messages or 4 MiB that it has not read, and 16 MiB in all; send a \
                    shorter one, or wait until the run has read the others";

fn is_full(error: &CommandError) -> bool {
    matches!(error.kind(), CommandErrorKind::Full)
        && error.to_string() == format!("the message was not sent: {FULL}")
}

#[tool("Pays", needs_approval)]
fn pay(cents: u32) -> String {
    format!("paid {cents}")
}

fn pays() -> ScriptedModel {
    ScriptedModel::new().calls("pay", r#"{"cents": 5}"#)
}

#[tokio::test]
async fn too_many_and_too_long_messages_are_refused_and_decisions_and_cancellations_are_not() {
    for cancels in [false, true] {
        let store = InMemoryStore::new();
        let agent =
            Agent::builder(pays().says("Done.")).tools(tools![pay]).run_store(store.clone()).build().unwrap();
        let run = agent.ask("Go").await.unwrap_err().into_run();
        let (id, wait) = (run.id().as_str(), run.waits().remove(0));
        assert!(is_full(&agent.say(id, "x".repeat(300 << 10)).await.unwrap_err()));
        for _ in 0..99 {
            agent.say(id, "Hurry").await.unwrap();
        }
        let hurry = RunCommand::Say("Hurry".into());
        assert_eq!(post_command(&agent, id, hurry.clone()).await, PostOutcome::Posted);
        assert!(is_full(&agent.say(id, "Hurry").await.unwrap_err()));
        assert_eq!(post_command(&agent, id, hurry).await, PostOutcome::Full);
        assert_eq!(store.posted(id).await.unwrap().len(), 100);
        if cancels {
            agent.cancel(id).await.unwrap();
            let error = agent.resume(run).await.unwrap_err();
            assert_eq!(error.to_string(), "the run was cancelled");
            continue;
        }
        let decided = agent.decide(id, &wait.id, Decision::approve()).await.unwrap();
        let answer = decided.resume().unwrap().await.unwrap();
        assert_eq!(answer.new_messages().len(), 104);
        assert_eq!(texts(&answer.new_messages()[101..]), ["Hurry", "Hurry", "Done."]);
    }
}

/// Otherwise, a driver that takes them during a long call would make room for ever.
#[tokio::test]
async fn messages_that_wait_for_the_results_of_calls_count_as_unread() {
    let store = InMemoryStore::new();
    let model = pays().says("Done.").says("Again.");
    let agent = Agent::builder(model).tools(tools![pay]).run_store(store.clone()).build().unwrap();
    let mut run = agent.ask("Go").await.unwrap_err().into_run();
    let id = run.id().to_string();
    for _ in 0..100 {
        agent.say(&id, "Hurry").await.unwrap();
    }
    // What was posted is not lost, although its driver has added one more.
    run.say("Now").unwrap();
    let run = agent.resume(run).await.unwrap_err().into_run();
    assert_eq!(store.posted(&id).await.unwrap(), []);
    assert_eq!((run.message_volume().unread, run.message_volume().bytes), (101, 503));
    assert!(is_full(&agent.say(&id, "Hurry").await.unwrap_err()));
}

#[test]
fn a_run_takes_messages_up_to_its_bounds_in_each_stage() {
    let long = UserMessage::MAX_BYTES;
    let mut asking = Run::new([Message::user("Go")]);
    let error = asking.say("x".repeat(long + 1)).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (StepErrorKind::Full, format!("the run does not expect this: {FULL}"))
    );
    for _ in 0..64 {
        asking.say("x".repeat(long)).unwrap();
    }
    assert_eq!(asking.say("x").unwrap_err().kind(), StepErrorKind::Full, "16 MiB");
    assert_eq!(asking.deny_and_say("x").unwrap_err().kind(), StepErrorKind::Full);
    assert_eq!(
        (asking.message_volume().unread, asking.message_volume().bytes),
        (0, MessageVolume::MAX_BYTES)
    );
    let mut calling = Run::new([Message::user("Go")]);
    let reply = AssistantMessage::text("").with_tool_calls([ToolCall::new("call", "pay", "{}")]);
    calling.record_response(ChatResponse::new(reply)).unwrap();
    for _ in 0..16 {
        calling.say("x".repeat(long)).unwrap();
    }
    assert_eq!(calling.say("x").unwrap_err().kind(), StepErrorKind::Full, "4 MiB");
    calling.cancel();
    assert_eq!(calling.say("x").unwrap_err().kind(), StepErrorKind::Unexpected, "it has ended");
}

#[tokio::test]
async fn drivers_and_those_who_decide_are_refused_too_long_messages() {
    let agent = Agent::builder(pays().says("Done."))
        .tools(tools![pay])
        .run_store(InMemoryStore::new())
        .build()
        .unwrap();
    let long = || "x".repeat(UserMessage::MAX_BYTES + 1);
    assert_eq!(agent.ask("Go").start().deny_and_say(long()).unwrap_err().kind(), StepErrorKind::Full);
    let run = agent.ask("Go").await.unwrap_err().into_run();
    let wait = run.waits().remove(0).id;
    let decided = agent.decide(run.id().as_str(), &wait, Decision::approve()).await.unwrap();
    let mut asked = decided.resume().unwrap().with_message(UserMessage::new("Hurry").by("ada")).unwrap();
    for _ in 0..99 {
        asked = asked.with_message("Hurry").unwrap();
    }
    assert_eq!(asked.with_message("Hurry").unwrap_err().kind(), StepErrorKind::Full);
}

/// As users and conversations are.
#[tokio::test]
async fn a_run_that_is_told_something_is_named_by_its_id_or_by_any_text() {
    let agent = Agent::builder(pays()).tools(tools![pay]).run_store(InMemoryStore::new()).build().unwrap();
    let run = agent.ask("Go").await.unwrap_err().into_run();
    let (id, text) = (run.id(), run.id().to_string());
    agent.say(id, "One").await.unwrap();
    agent.say(id.clone(), "Two").await.unwrap();
    agent.say(id.as_str(), "Three").await.unwrap();
    agent.say(&text, "Four").await.unwrap();
    agent.say(text, "Five").await.unwrap();
    let listed = agent.list_runs(&RunFilter::new()).await.unwrap();
    assert_eq!((listed.len(), listed[0].id.as_str()), (1, id.as_str()));
}

/// Also through a store, a restart and a fork.
#[tokio::test]
async fn who_sent_a_message_is_recorded_with_it() {
    let store = InMemoryStore::new();
    let builder = Agent::builder(pays().says("Done.")).tools(tools![pay]).run_store(store.clone());
    let agent = builder.keep_finished(Duration::from_secs(3_600)).build().unwrap();
    let run = agent.ask("Go").await.unwrap_err().into_run();
    let (id, wait) = (run.id().to_string(), run.waits().remove(0));
    agent.say(&id, "Hurry").await.unwrap();
    agent.say(&id, UserMessage::new("By train").by("ada")).await.unwrap();
    let waiting = agent.resume(run).await.unwrap_err().into_run();
    let json = serde_json::to_string(&waiting).unwrap();
    assert!(json.contains(r#""said":["Hurry",{"content":"By train","by":"ada"}]"#), "{json}");
    let decided = agent.decide(&id, &wait.id, Decision::approve()).await.unwrap();
    decided.resume().unwrap().await.unwrap();
    let finished = store.load_run(&id).await.unwrap().unwrap();
    let restored: Run = serde_json::from_str(&serde_json::to_string(&finished).unwrap()).unwrap();
    let forked = agent.fork(&finished, 5).unwrap().start();
    let senders: Vec<_> = (0..6).map(|position| forked.run().sender_of(position)).collect();
    assert_eq!(senders, [None, None, None, None, Some("ada"), None], "a fork");
    for run in [finished, restored] {
        assert_eq!(texts(run.new_messages()), ["Go", "", "paid 5", "Hurry", "By train", "Done."]);
        let senders: Vec<_> = (0..6).map(|position| run.sender_of(position)).collect();
        assert_eq!(senders, [None, None, None, None, Some("ada"), None]);
    }
}

/// A store that dies before or after one of its operations.
#[derive(Clone)]
struct Dying {
    store: InMemoryStore,
    operations: Arc<AtomicUsize>,
    dies_at: usize,
}

impl Dying {
    fn through<'a, T: Send + 'a>(&'a self, work: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        Box::pin(async move {
            if self.operations.fetch_add(1, Ordering::Relaxed) >= self.dies_at {
                return pending().await;
            }
            let done = work.await;
            if self.operations.fetch_add(1, Ordering::Relaxed) >= self.dies_at {
                return pending().await;
            }
            done
        })
    }
}

impl RunStore for Dying {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        self.through(Box::pin(async move { self.store.append_run(id, expected, changes).await }))
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        self.store.load_run(id)
    }

    fn entries<'a>(
        &'a self,
        id: &'a str,
        after: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        self.store.entries(id, after, limit)
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        self.through(Box::pin(async move { self.store.remove_run(id).await }))
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        self.store.list_runs(filter)
    }

    fn lease<'a>(
        &'a self,
        id: &'a str,
        driver: &'a DriverId,
        request: LeaseRequest,
    ) -> StoreFuture<'a, LeaseState> {
        // The lease of a driver that dies has expired in the next life.
        let request = match request {
            LeaseRequest::Take(_) => LeaseRequest::Take(Duration::ZERO),
            request => request,
        };
        self.through(Box::pin(async move { self.store.lease(id, driver, request).await }))
    }

    fn posted<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Vec<PostedCommand>> {
        self.through(Box::pin(async move { self.store.posted(id).await }))
    }
}

/// Works in its first turn, and answers in the second.
struct Worker;

impl ChatModel for Worker {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let has_worked = request.messages().iter().any(|message| message.as_assistant().is_some());
        let call = (!has_worked).then(|| ToolCall::new("call_1", "work", "{}"));
        let text = if has_worked { "Done." } else { "" };
        let reply = AssistantMessage::text(text).with_tool_calls(call);
        Box::pin(async { Ok(ChatResponse::new(reply)) })
    }
}

/// Without a runtime, nothing is done after a life has ended.
#[test]
fn nothing_is_lost_or_said_twice_by_a_process_that_dies() {
    for dies_at in 0.. {
        let (store, calls) = (InMemoryStore::new(), Arc::new(AtomicUsize::new(0)));
        let life = |dies_at: usize| {
            let dying = Dying { store: store.clone(), operations: Arc::default(), dies_at };
            let (inbox, calls) = (store.clone(), calls.clone());
            let work = FunctionTool::new("work", move |_: ()| {
                if calls.fetch_add(1, Ordering::Relaxed) == 0 {
                    post(&inbox, &["One", "Two"]);
                }
                async { "worked" }
            });
            let agent =
                Agent::builder(Worker).tools(work).run_store(dying).on_drop(OnDrop::Keep).build().unwrap();
            let stored = run_ids(&store).now_or_never().unwrap().pop();
            let run = stored.map(|id| store.load_run(&id).now_or_never().unwrap().unwrap().unwrap());
            let ask = run.map_or_else(|| agent.ask("Go"), |run| agent.resume(run));
            ask.into_future().now_or_never()
        };
        if let Some(answer) = life(dies_at) {
            assert_eq!(texts(answer.unwrap().new_messages()), ["Go", "", "worked", "One", "Two", "Done."]);
            assert!(dies_at > 20, "{dies_at} points");
            return;
        }
        let has_ended =
            calls.load(Ordering::Relaxed) > 0 && run_ids(&store).now_or_never().unwrap().is_empty();
        if !has_ended {
            let answer = life(usize::MAX).unwrap().unwrap();
            assert_eq!(
                texts(answer.new_messages()),
                ["Go", "", "worked", "One", "Two", "Done."],
                "died at {dies_at}"
            );
        }
    }
}
