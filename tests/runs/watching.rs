//! Events of a running run, and ways to stop it.

use std::future::IntoFuture;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tests::support::stores::stored_runs;
use tests::support::ways::{alike, assert_valid};
use tool_core::agent::AgentBuilder;
use tool_core::layer::{guard, rewrite};
use tool_core::memory::InMemoryStore;
use tool_core::model::ChatRequest;
use tool_core::run::StopReason;
use tool_core::signatures::ToolProgress;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Progress, ToolErrorKind};
use tool_core::{Agent, CancellationToken, Event, Message, RunErrorKind, ToolError, tool, tools};

#[tool]
async fn fetch(pages: u64, #[inject] progress: &Progress) -> u64 {
    for page in 1..=pages {
        progress.report(ToolProgress::from("fetching").completed(page, pages));
        tokio::task::yield_now().await;
    }
    pages
}

#[tokio::test]
async fn a_tool_reports_progress() {
    let model = ScriptedModel::new().calls("fetch", r#"{"pages": 3}"#).says("Done.");
    let agent = Agent::builder(model).tools(tools![fetch]).build().unwrap();
    let heard = Arc::new(AtomicU32::new(0));
    let hook = Arc::clone(&heard);
    let mut events = agent
        .ask("Fetch")
        .on_event(move |event| {
            hook.fetch_add(u32::from(matches!(event, Event::CallProgress { .. })), Ordering::SeqCst);
        })
        .stream();
    let mut reported = Vec::new();
    while let Some(event) = events.next().await {
        match event.unwrap() {
            Event::CallStarted(call) => reported.push(format!("{} starts", call.name)),
            Event::CallProgress { id, name, progress, .. } => {
                assert_eq!((&*id, &*name, &*progress.text), ("call_1_0", "fetch", "fetching"));
                reported.push(format!("{:?}/{:?}", progress.done.unwrap(), progress.total.unwrap()));
            }
            Event::CallFinished(_) => reported.push("finished".into()),
            _ => {}
        }
    }
    assert_eq!(reported, ["fetch starts", "1/3", "2/3", "3/3", "finished"]);
    assert_eq!(heard.load(Ordering::SeqCst), 3);
}

/// The stream is not read while the tool runs, so that progress exceeds the buffer.
#[tokio::test]
async fn excess_progress_is_dropped_without_blocking_the_tool() {
    #[tool]
    fn chatter(times: u32, #[inject] progress: &Progress) -> bool {
        for _ in 0..times {
            progress.report("still here");
        }
        progress.has_listener()
    }
    let script = || ScriptedModel::new().calls("chatter", r#"{"times": 100000}"#).says("Done.");
    let agent = || Agent::builder(script()).tools(tools![chatter]).build().unwrap();
    let mut events = agent().ask("Chatter").stream();
    let (mut reported, mut heard) = (0, String::new());
    while let Some(event) = events.next().await {
        match event.unwrap() {
            Event::CallProgress { .. } => reported += 1,
            Event::CallFinished(execution) => heard = execution.output().unwrap().to_string(),
            _ => {}
        }
    }
    assert!((1..100).contains(&reported), "{reported}");
    assert_eq!(heard, "true");
    // Without a listener, the tool can see that its progress is not observed.
    let answer = agent().ask("Chatter").await.unwrap();
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "false");
}

#[derive(Clone, Default)]
struct Seen(Arc<AtomicBool>);

/// Starts a task that outlives the call's future, and notifies it when the result is no longer awaited.
#[tool]
async fn spawns(#[inject] cancellation: &CancellationToken, #[inject] seen: Seen) {
    let cancellation = cancellation.clone();
    assert!(!cancellation.is_cancelled());
    tokio::spawn(async move {
        cancellation.cancelled().await;
        seen.0.store(true, Ordering::SeqCst);
    });
    std::future::pending::<()>().await;
}

fn spawning(seen: &Seen) -> Agent {
    let model = ScriptedModel::new().calls("spawns", "{}").says("never");
    Agent::builder(model).tools(tools![spawns]).context(seen.clone()).build().unwrap()
}

async fn is_seen(seen: &Seen) -> bool {
    for _ in 0..100 {
        if seen.0.load(Ordering::SeqCst) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    false
}

#[tokio::test(start_paused = true)]
async fn a_tool_observes_a_dropped_run() {
    let seen = Seen::default();
    let agent = spawning(&seen);
    let mut events = agent.ask("Spawn").stream();
    while !matches!(events.next().await.unwrap().unwrap(), Event::CallStarted(_)) {}
    let _ = tokio::time::timeout(Duration::from_millis(5), events.next()).await;
    assert!(!seen.0.load(Ordering::SeqCst));
    drop(events);
    assert!(is_seen(&seen).await);

    let seen = Seen::default();
    let agent = spawning(&seen);
    let _ = tokio::time::timeout(Duration::from_millis(5), agent.ask("Spawn").into_future()).await;
    assert!(is_seen(&seen).await);
}

#[tokio::test(start_paused = true)]
async fn a_token_cancels_the_run() {
    let seen = Seen::default();
    let agent = spawning(&seen);
    let cancellation = CancellationToken::new();
    let ask = agent.ask("Spawn").cancellation_token(cancellation.clone()).into_future();
    let canceller = async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        cancellation.cancel();
    };
    let (outcome, ()) = futures_util::future::join(ask, canceller).await;
    let error = outcome.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)) && !error.is_resumable());
    assert_eq!(error.new_messages()[2].text(), "the call was interrupted before a result was produced");
    assert!(is_seen(&seen).await);
    // A run that was cancelled before its start does not start.
    let error = agent.ask("Spawn").cancellation_token(cancellation.clone()).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)) && error.run().turns() == 0);
}

#[tokio::test]
async fn an_answered_run_cancels_nothing() {
    #[tool]
    fn leaves(#[inject] cancellation: &CancellationToken, #[inject] slot: &TokenSlot) {
        *slot.0.lock().unwrap() = Some(cancellation.clone());
    }
    #[derive(Clone, Default)]
    struct TokenSlot(Arc<Mutex<Option<CancellationToken>>>);
    let slot = TokenSlot::default();
    let model = ScriptedModel::new().calls("leaves", "{}").says("Done.");
    let agent = Agent::builder(model).tools(tools![leaves]).context(slot.clone()).build().unwrap();
    agent.ask("Go").await.unwrap();
    assert!(!slot.0.lock().unwrap().as_ref().unwrap().is_cancelled());
}

#[tokio::test]
async fn hooks_receive_failures() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&reported);
    let agent = Agent::builder(ScriptedModel::new().fails("the line is dead").says("Hello."))
        .on_event(move |event| {
            if let Event::Failed(text) = event {
                hook.lock().unwrap().push(text.clone());
            }
        })
        .build()
        .unwrap();
    let error = agent.ask("Hello").await.unwrap_err();
    assert_eq!(*reported.lock().unwrap(), ["the request to the model failed: the line is dead"]);
    agent.resume(error.into_run()).await.unwrap();
    assert_eq!(reported.lock().unwrap().len(), 1);
}

#[tool]
fn first() {}

#[tool]
fn second() {}

#[tokio::test]
async fn a_hook_changes_only_its_turn() {
    let names = |request: &tool_core::model::ChatRequest<'_>| -> Vec<String> {
        request.tools().iter().map(|tool| tool.name().to_owned()).collect()
    };
    let model = ScriptedModel::new()
        .expects(move |request| names(request) == ["first"] && request.options().seed == Some(1))
        // A tool that is not offered in this turn is unknown in it.
        .calls_all([("first", "{}"), ("second", "{}")])
        .expects(move |request| names(request) == ["first", "second"] && request.options().seed == Some(7))
        .says("Done.");
    let agent = Agent::builder(model)
        .tools(tools![first, second])
        .options(tool_core::ModelOptions::default().with_seed(7))
        .layer(guard::offer_with_context(|tool, at| {
            assert_eq!(at.messages.len(), if at.turn == 1 { 1 } else { 4 });
            at.turn > 1 || tool.name() == "first"
        }))
        .layer(rewrite::request_with_context(|request, at| {
            assert_eq!(at.messages.len(), if at.turn == 1 { 1 } else { 4 });
            let options = request.options().clone();
            request.with_options(if at.turn == 1 { options.with_seed(1) } else { options })
        }))
        .build()
        .unwrap();
    let answer = agent.ask("Go").await.unwrap();
    let ok: Vec<_> = answer.tool_executions().iter().map(|one| one.outcome().is_ok()).collect();
    assert_eq!(ok, [true, false]);
}

#[tool]
async fn revoked() -> Result<(), ToolError> {
    tokio::time::sleep(Duration::from_millis(20)).await;
    Err(ToolError::fatal("the key is revoked"))
}

/// The task is notified however a call ends before its tool does.
#[tokio::test(start_paused = true)]
async fn a_tool_observes_that_its_result_is_not_awaited() {
    let soon = Duration::from_millis(5);
    let table = [
        (
            "the run took too long",
            (|builder, soon| builder.limits(|l| l.max_time(soon)))
                as fn(AgentBuilder, Duration) -> AgentBuilder,
        ),
        ("the call took too long", AgentBuilder::call_timeout),
        ("another call ended the run", |builder, _| builder),
    ];
    for (why, limit) in table {
        let seen = Seen::default();
        let model = ScriptedModel::new().calls_all([("spawns", "{}"), ("revoked", "{}")]).says("Done.");
        let builder = Agent::builder(model).tools(tools![spawns, revoked]).context(seen.clone());
        let _ = limit(builder, soon).build().unwrap().ask("Spawn").await;
        assert!(is_seen(&seen).await, "{why}");
    }
}

/// The calls are looked up among the offered tools, even if the run is resumed before they are executed.
#[tokio::test]
async fn a_resumed_turn_retains_its_tools() {
    let model = ScriptedModel::new().calls("second", "{}").says("Done.");
    let only_first = guard::offer_with_context(|tool, at| {
        assert!(at.messages.len() == 1 || at.turn == 2);
        tool.name() == "first"
    });
    let agent = Agent::builder(model).tools(tools![first, second]).layer(only_first).build().unwrap();
    let mut run = agent.ask("Go").start();
    run.advance().await.unwrap();
    let answer = agent.resume(run.into_run()).await.unwrap();
    assert_eq!(answer.tool_executions()[0].outcome().unwrap_err().kind(), ToolErrorKind::UnknownTool);
}

/// This includes calls listed before a finished one, and runs that were ended by a call.
#[tokio::test(start_paused = true)]
async fn reports_calls_in_flight_at_the_end_of_the_run() {
    for last in ["revoked", "first"] {
        let reported = Arc::new(Mutex::new(Vec::new()));
        let hook = Arc::clone(&reported);
        let model = ScriptedModel::new().calls_all([("spawns", "{}"), (last, "{}"), ("spawns", "{}")]);
        let builder = Agent::builder(model).tools(tools![spawns, revoked, first]).context(Seen::default());
        let hear = move |event: &Event| {
            if let Event::CallFinished(execution) = event {
                hook.lock().unwrap().push(execution.call().id.clone());
            }
        };
        let agent =
            builder.limits(|l| l.max_time(Duration::from_millis(100))).on_event(hear).build().unwrap();
        agent.ask("Go").await.unwrap_err();
        assert_eq!(*reported.lock().unwrap(), ["call_1_1", "call_1_0", "call_1_2"], "{last}");
    }
}

/// The process may end as soon as somebody knows of an outcome.
#[tokio::test]
async fn an_outcome_is_stored_before_its_event() {
    #[tool(at_most_once)]
    fn pay() -> &'static str {
        "paid"
    }
    let store = InMemoryStore::new();
    let agent = |model| Agent::builder(model).tools(tools![pay]).run_store(store.clone());
    let panicking = agent(ScriptedModel::new().calls("pay", "{}"))
        .on_event(|event| assert!(!matches!(event, Event::CallFinished(_)), "a hook panics"))
        .build()
        .unwrap();
    let outcome = AssertUnwindSafe(panicking.ask("Pay").into_future()).catch_unwind().await;
    assert!(outcome.is_err(), "the hook panics");
    let resuming = agent(ScriptedModel::new().says("Done.")).build().unwrap();
    let run = stored_runs(&resuming).await.remove(0).run;
    let answer = resuming.resume(run).await.unwrap();
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "paid");
}

#[tool]
fn page(number: u32) -> String {
    format!("the text of page {number}")
}

fn reader() -> ScriptedModel {
    ScriptedModel::new()
        .calls_all([("page", r#"{"number": 1}"#), ("page", r#"{"number": 2}"#)])
        .calls("page", r#"{"number": 3}"#)
}

fn sent(request: &ChatRequest<'_>) -> Vec<String> {
    request.messages().iter().map(|message| message.text().into_owned()).collect()
}

#[tokio::test]
async fn a_layer_changes_the_messages_of_a_request_only() {
    let build = || {
        let model = reader()
            .expects(|request| {
                let texts = sent(request);
                texts
                    == [
                        "Be brief.",
                        "What now?",
                        "",
                        "the text of page 1",
                        "[read]",
                        "",
                        "the text of page 3",
                    ]
            })
            .says("Done.");
        let shorten = rewrite::request_with_context(|mut request, at| {
            assert_eq!(request.messages().len(), [2, 5, 7][at.turn as usize - 1]);
            if at.turn == 3
                && let Message::Tool(result) = &mut request.messages_mut()[4]
            {
                result.content = "[read]".into();
            }
            request
        });
        Agent::builder(model).instructions("Be brief.").tools(tools![page]).layer(shorten)
    };
    let answer = alike(build).await.unwrap();
    // The run has what the tool returned.
    assert_eq!(answer.new_messages()[3].text(), "the text of page 2");
}

#[tokio::test]
async fn a_layer_sets_the_instructions_of_a_turn() {
    for of_agent in [None, Some("Be brief.")] {
        let model = ScriptedModel::new()
            .expects(|request| sent(request) == ["You help Ada.", "What now?"])
            .calls("page", r#"{"number": 1}"#)
            .expects(move |request| sent(request)[0] == of_agent.unwrap_or("What now?"))
            .says("Done.");
        let personal = rewrite::request_with_context(|request, at| {
            let name = at.context.get::<&'static str>().copied().unwrap_or_default();
            if at.turn == 1 { request.with_instructions(format!("You help {name}.")) } else { request }
        });
        let builder = Agent::builder(model).tools(tools![page]).layer(personal);
        let agent = match of_agent {
            Some(instructions) => builder.instructions(instructions),
            None => builder,
        };
        agent.build().unwrap().ask("What now?").context("Ada").await.unwrap();
    }
}

#[tokio::test]
async fn calls_and_results_of_changed_messages_stay_together() {
    type Change = fn(&mut Vec<Message>);
    let table: [(Change, &[&str]); 4] = [
        // The first reply without its results.
        (|messages| drop(messages.remove(1)), &["What now?", "", "the text of page 3"]),
        // A result without its call, which is restored in its place.
        (
            |messages| drop(messages.remove(2)),
            &["What now?", "", "the text of page 1", "the text of page 2", "", "the text of page 3"],
        ),
        (|messages| messages.truncate(2), &["What now?", "", "the text of page 1", "the text of page 2"]),
        (
            |messages| messages.push(Message::user("Hurry.")),
            &[
                "What now?",
                "",
                "the text of page 1",
                "the text of page 2",
                "",
                "the text of page 3",
                "Hurry.",
            ],
        ),
    ];
    for (change, expected) in table {
        let build = || {
            let model = reader()
                .expects(move |request| {
                    assert_valid(request.messages());
                    assert_eq!(sent(request), expected);
                    true
                })
                .says("Done.");
            let change = rewrite::request_with_context(move |mut request, at| {
                if at.turn == 3 {
                    change(request.messages_mut());
                }
                request
            });
            Agent::builder(model).tools(tools![page]).layer(change)
        };
        assert_eq!(alike(build).await.unwrap().new_messages().len(), 7);
    }
}

#[tokio::test]
async fn earlier_turns_can_be_left_out_of_requests() {
    let build = || {
        let model = ScriptedModel::new()
            .calls_all([("page", r#"{"number": 1}"#), ("page", r#"{"number": 2}"#)])
            .expects(|request| sent(request).len() == 4)
            .calls("page", r#"{"number": 3}"#)
            .expects(|request| sent(request) == ["What now?", "", "the text of page 3"])
            .says("Done.");
        Agent::builder(model).tools(tools![page]).send_earlier_turns(false)
    };
    assert_eq!(alike(build).await.unwrap().new_messages().len(), 7);

    // The conversation before the question, and what the user says during the run, are sent.
    let model = reader()
        .expects(|request| sent(request) == ["Hi", "Hello!", "Read", "Faster!", "", "the text of page 3"])
        .says("Done.");
    let agent = Agent::builder(model).tools(tools![page]).send_earlier_turns(false).build().unwrap();
    let mut run = agent.ask("Read").history([Message::user("Hi"), Message::assistant("Hello!")]).start();
    run.advance().await.unwrap();
    run.deny_and_say("Faster!").unwrap();
    while run.advance().await.unwrap() {}
    assert_eq!(run.finish().await.unwrap().text(), "Done.");
}
