//! Events of runs, and their readers.

use std::sync::atomic::{AtomicU32, Ordering};

use tool_core::model::{
    AssistantMessage, ChatModel, ChatRequest, ChatResponse, ChatStream, Delta, ModelFuture,
};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Progress, ToolProgress};
use tool_core::{Agent, Approval, tool, tools};
use tool_restate::{Events, RunEvent, Worker};

use crate::support::{agent, answer, free_address, serve, serve_at, unique, waiting_calls};

fn ingress() -> String {
    std::env::var("RESTATE_INGRESS").unwrap()
}

fn describe(event: &RunEvent) -> String {
    match event {
        RunEvent::Text { turn, text, .. } => format!("{turn} text {text}"),
        RunEvent::Voided { turn, .. } => format!("{turn} voided"),
        RunEvent::TurnFinished { turn, text, calls, .. } => format!("{turn} finished {text} {}", calls.len()),
        RunEvent::CallProgress { id, text, done, total, .. } => format!("{id} {text} {done:?} {total:?}"),
        RunEvent::CallFinished(execution) => format!("{} {}", execution.call(), execution.output().unwrap()),
        RunEvent::Waiting(waits) => format!("approve {}", waits[0].path),
        RunEvent::Ended => "ended".to_owned(),
        other => panic!("{other:?}"),
    }
}

async fn read(events: &mut Events, count: usize) -> Vec<String> {
    let mut read = Vec::new();
    while read.len() < count
        && let Some(event) = events.next().await.unwrap()
    {
        read.push(describe(&event));
    }
    read
}

#[tool("Works", needs_approval)]
fn work(#[inject] progress: &Progress) -> &'static str {
    progress.report(ToolProgress::from("working").completed(1, 2));
    "worked"
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_reader_that_reconnects_misses_nothing() {
    for is_local in [false, true] {
        let name = unique("clerk");
        let model = ScriptedModel::new().calls("work", "{}").says("Done.");
        let clerk = Agent::builder(model).name(&*name).tools(tools![work]).build().unwrap();
        let worker = Worker::new().agent(clerk).publish_events(ingress());
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        let run = agent(&name).ask("Work").events().send().await.unwrap();
        let mut first = run.events(0);
        assert_eq!(read(&mut first, 2).await, ["1 finished  1", "approve call_1_0"]);
        run.resolve_approval(&waiting_calls(&run).await[0], Approval::Approve).await.unwrap();
        answer(&run).await;
        let rest = [
            "call_1_0 working Some(1) Some(2)",
            "work {} worked",
            "2 text Done.",
            "2 finished Done. 0",
            "ended",
        ];
        // The run has ended, and the reader was away.
        let mut second = run.events(first.position());
        assert_eq!(read(&mut second, 99).await, rest);
        assert!(second.next().await.unwrap().is_none());
        // A reader from the beginning reads all.
        assert_eq!(read(&mut run.events(0), 99).await.len(), 7);
    }
}

static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// The first request never ends; the next one is answered.
struct Stalling;

impl ChatModel for Stalling {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        unreachable!("the reply is streamed")
    }

    fn stream<'a>(&'a self, _: &'a ChatRequest<'_>) -> ChatStream<'a> {
        use futures_util::stream::{self, StreamExt};
        if REQUESTS.fetch_add(1, Ordering::SeqCst) == 0 {
            let begun = stream::iter([Ok(Delta::Text("The ans".into()))]);
            return ChatStream::new(begun.chain(stream::pending()));
        }
        let response = ChatResponse::new(AssistantMessage::text("The answer."));
        let deltas = [Delta::Text("The an".into()), Delta::Text("swer.".into()), Delta::Done(response)];
        ChatStream::new(stream::iter(deltas.map(Ok)))
    }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_reader_sees_that_a_turn_was_voided() {
    let name = unique("clerk");
    let worker = || {
        let clerk = Agent::builder(Stalling).name(&*name).build().unwrap();
        Worker::new().agent(clerk).publish_events(ingress())
    };
    let address = free_address();
    let dying = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let serving = dying.spawn(serve_at(worker(), address)).await.unwrap();
    crate::support::register_at(address).await;
    let run = agent(&name).ask("Go").events().send().await.unwrap();
    let mut events = run.events(0);
    assert_eq!(read(&mut events, 1).await, ["1 text The ans"]);
    drop(serving);
    dying.shutdown_background();
    while tokio::net::TcpListener::bind(address).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let _worker = serve_at(worker(), address).await;
    assert_eq!(answer(&run).await.text(), "The answer.");
    let rest = ["1 voided", "1 text The answer.", "1 finished The answer. 0", "ended"];
    assert_eq!(read(&mut events, 99).await, rest);
}

/// The handler that workers publish to can be reached from outside.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn events_of_others_are_refused() {
    let name = unique("clerk");
    let clerk = Agent::builder(ScriptedModel::new().says("Done.")).name(&*name).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let run = agent(&name).ask("Go").events().send().await.unwrap();
    assert_eq!(read(&mut run.events(0), 99).await, ["1 finished Done. 0", "ended"]);
    let batch =
        r#"{"token": "", "stream": "turn-1", "turn": 1, "attempt": 9, "index": 1, "events": ["ended"]}"#;
    let url = format!("{}/restate/call/{name}.events/{}/publish", ingress(), run.key());
    let sent = crate::support::http().post(url).header("content-type", "application/json").body(batch);
    let response = sent.send().await.unwrap();
    assert_eq!(response.status(), 403);
    assert!(response.text().await.unwrap().contains("the run does not publish events here"));
    assert_eq!(read(&mut run.events(0), 99).await.len(), 2);
}

#[derive(serde::Serialize)]
struct Unread;

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_events_of_a_run_that_never_started_end() {
    let name = unique("clerk");
    let clerk = Agent::builder(ScriptedModel::new()).name(&*name).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let run = agent(&name).ask("Go").context_json(&Unread).events().send().await.unwrap();
    assert_eq!(read(&mut run.events(0), 99).await, ["ended"]);
}

/// The URL accepts connections and never answers.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn events_that_cannot_be_published_do_not_stop_a_run() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let name = unique("clerk");
    let clerk = Agent::builder(ScriptedModel::new().says("Done.")).name(&*name).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk).publish_events(url)).await;
    let run = agent(&name).ask("Go").events().send().await.unwrap();
    assert_eq!(answer(&run).await.text(), "Done.");
    assert_eq!(read(&mut run.events(0), 99).await, ["1 finished Done. 0", "ended"]);
}
