//! Events of runs, and their readers.

use std::sync::atomic::{AtomicU32, Ordering};

use tool_core::layer::rewrite;
use tool_core::model::{AssistantMessage, ChatModel, ChatRequest, ChatResponse, ChatStream, Delta};
use tool_core::provider::ModelFuture;
use tool_core::run::{Decision, Wait};
use tool_core::signatures::ToolProgress;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{AskError, Asker, Attempt, Progress};
use tool_core::{Agent, Event, tool, tools};
use tool_restate::{Client, Events, RemoteOutcome, Worker};

use crate::support::{agent, answer, client, free_address, serve, serve_at, unique, waiting_calls};

fn describe(event: &Event) -> String {
    match event {
        Event::CallAnnounced { index, name, .. } => format!("announced {index} {name}"),
        Event::Arguments { index, text, .. } => format!("arguments {index} {text}"),
        Event::Question { text, .. } => format!("question {text}"),
        Event::TurnStarted { turn, messages, .. } => format!("turn {turn}, {messages} messages"),
        Event::Text(text) => format!("text {text}"),
        Event::CallReady { index, call, .. } => format!("ready {index} {call}"),
        Event::TurnFinished { turn, response, .. } => {
            format!("turn {turn} finished {}", response.message.text)
        }
        Event::CallStarted(call) => format!("started {call}"),
        Event::CallProgress { id, name, progress, .. } => {
            format!("{name} {id} {} {:?} {:?}", progress.text, progress.done, progress.total)
        }
        Event::CallRetried(execution) => format!("retried {}", execution.error().unwrap()),
        Event::CallDecided(decision) => format!("{:?} {}", decision.record.kind, decision.call_id),
        Event::CallFinished(execution) => match execution.outcome() {
            Ok(output) => format!("finished {} {output}", execution.call()),
            Err(error) => format!("finished {} {error}", execution.call()),
        },
        Event::Waiting(waits) => format!("waiting {}", waits[0].path),
        Event::Done(answer) => format!("done {}", answer.text()),
        Event::Failed(text) => format!("failed {text}"),
        other => panic!("{other:?}"),
    }
}

async fn read(events: &mut Events, count: usize) -> Vec<String> {
    let mut read = Vec::new();
    while read.len() < count
        && let Some(event) = events.next().await.unwrap()
    {
        assert_eq!(event.position, events.position());
        read.push(describe(&event.event));
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
        let worker = Worker::new().agent(clerk).publish_events(&client());
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        let run = agent(&name).ask("Work").events().send().await.unwrap();
        let mut first = run.events(0);
        let begin = [
            "turn 1, 1 messages",
            "announced 0 work",
            "arguments 0 {}",
            "question Work",
            "ready 0 work {}",
            "turn 1 finished ",
            "waiting call_1_0",
        ];
        assert_eq!(read(&mut first, 7).await, begin);
        assert_eq!(first.position(), 7);
        run.decide(&waiting_calls(&run).await[0].id, Decision::approve()).await.unwrap();
        answer(&run).await;
        let rest = [
            "Approved call_1_0",
            "started work {}",
            "work call_1_0 working Some(1) Some(2)",
            "finished work {} worked",
            "turn 2, 3 messages",
            "text Done.",
            "turn 2 finished Done.",
            "done Done.",
        ];
        // The run has ended, and the reader was away.
        let mut second = run.events(first.position());
        assert_eq!(read(&mut second, 99).await, rest);
        assert!(second.next().await.unwrap().is_none());
        // A reader from the beginning reads all.
        assert_eq!(read(&mut run.events(0), 99).await.len(), 15);
    }
}

/// What is judged before a turn is recorded, and published once.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_reader_sees_a_question_as_layers_have_rewritten_it() {
    let name = unique("clerk");
    let clerk = Agent::builder(ScriptedModel::new().says("Done.")).name(&*name);
    let clerk = clerk.layer(rewrite::question(|question| Some(question.text().replace("7", "x"))));
    let _worker = serve(Worker::new().agent(clerk.build().unwrap()).publish_events(&client())).await;
    let run = agent(&name).ask("Pay 7").events().send().await.unwrap();
    answer(&run).await;
    let expected =
        ["turn 1, 1 messages", "question Pay x", "text Done.", "turn 1 finished Done.", "done Done."];
    assert_eq!(read(&mut run.events(0), 99).await, expected);
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
async fn a_reader_sees_that_a_turn_begins_again() {
    let name = unique("clerk");
    let worker = || {
        let clerk = Agent::builder(Stalling).name(&*name).build().unwrap();
        Worker::new().agent(clerk).publish_events(&client())
    };
    let address = free_address();
    let dying = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let serving = dying.spawn(serve_at(worker(), address)).await.unwrap();
    crate::support::register_at(address).await;
    let run = agent(&name).ask("Go").events().send().await.unwrap();
    let mut events = run.events(0);
    assert_eq!(read(&mut events, 2).await, ["turn 1, 1 messages", "text The ans"]);
    drop(serving);
    dying.shutdown_background();
    while tokio::net::TcpListener::bind(address).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let _worker = serve_at(worker(), address).await;
    assert_eq!(answer(&run).await.text(), "The answer.");
    let rest = [
        "turn 1, 1 messages",
        "text The answer.",
        "question Go",
        "turn 1 finished The answer.",
        "done The answer.",
    ];
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
    let expected = ["turn 1, 1 messages", "question Go", "turn 1 finished Done.", "done Done."];
    assert_eq!(read(&mut run.events(0), 99).await, expected);
    let batch =
        r#"{"token": "", "stream": "turn-1", "turn": [1, 1], "attempt": 9, "index": 1, "events": []}"#;
    let url = format!(
        "{}/restate/call/{name}.events/{}/publish",
        std::env::var("RESTATE_INGRESS").unwrap(),
        run.key()
    );
    let sent = crate::support::http().post(url).header("content-type", "application/json").body(batch);
    let response = sent.send().await.unwrap();
    assert_eq!(response.status(), 403);
    assert!(response.text().await.unwrap().contains("the run does not publish events here"));
    assert_eq!(read(&mut run.events(0), 99).await.len(), 4);
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
    let read = read(&mut run.events(0), 99).await;
    assert!(read.len() == 1 && read[0].starts_with("failed the question has a context `Unread`"), "{read:?}");
}

/// The URL accepts connections and never answers.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn events_that_cannot_be_published_do_not_stop_a_run() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let name = unique("clerk");
    let clerk = Agent::builder(ScriptedModel::new().says("Done.")).name(&*name).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk).publish_events(&Client::connect(&url).unwrap())).await;
    let run = agent(&name).ask("Go").events().send().await.unwrap();
    assert_eq!(answer(&run).await.text(), "Done.");
    let expected = ["turn 1, 1 messages", "question Go", "turn 1 finished Done.", "done Done."];
    assert_eq!(read(&mut run.events(0), 99).await, expected);
}

#[tool("Is busy at first", attempts = 2)]
fn busy(#[inject] attempt: &Attempt) -> Result<&'static str, &'static str> {
    if attempt.number == 1 { Err("busy") } else { Ok("idle") }
}

#[tool("Asks", needs_approval)]
async fn ask(#[inject] user: &Asker) -> Result<String, AskError> {
    user.ask("Which?").await
}

/// The same events as in one process, also of calls that were denied, retried, or have waited.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn events_are_those_of_one_process() {
    let model = || {
        let calls = [("ask", "{}"), ("busy", "{}"), ("work", "{}")];
        ScriptedModel::new().calls_all(calls).says("Done.")
    };
    let name = unique("clerk");
    let clerk = |name: &str| {
        let builder = Agent::builder(model()).name(name).tools(tools![ask, busy, work]);
        builder.max_concurrent_calls(1).build().unwrap()
    };
    let decision = |wait: &Wait| match &*wait.path {
        "call_1_2" => Decision::deny("no"),
        _ if wait.question().is_some() => Decision::answer("this"),
        _ => Decision::approve(),
    };
    let kind = |event: &Event| match describe(event) {
        // One process waits once nothing else is to be done.
        text if text.starts_with("waiting") => None,
        text => Some(text),
    };
    let (mut run, mut expected) = (None::<tool_core::run::Run>, Vec::new());
    let here = clerk(&name);
    loop {
        let asked = match run.take() {
            Some(run) => here.resume(run),
            None => here.ask("Go"),
        };
        let mut events = asked.stream();
        let ended = loop {
            match events.next().await.unwrap() {
                Ok(Event::Text(_) | Event::CallAnnounced { .. } | Event::Arguments { .. }) => {}
                Ok(Event::Done(answer)) => break Ok(answer),
                Ok(event) => expected.extend(kind(&event)),
                Err(error) => break Err(error),
            }
        };
        let Err(error) = ended else { break };
        let mut waiting = error.into_run();
        for wait in waiting.waits() {
            waiting.resolve(&wait.id, decision(&wait)).unwrap();
        }
        run = Some(waiting);
    }
    let _worker = serve(Worker::new().agent(clerk(&name))).await;
    let run = agent(&name).ask("Go").events().send().await.unwrap();
    loop {
        match run.wait().await.unwrap() {
            RemoteOutcome::Waiting(waits) => {
                for wait in waits {
                    let _ = run.decide(&wait.id, decision(&wait)).await;
                }
            }
            RemoteOutcome::Answer(_) => break,
            other => panic!("{other:?}"),
        }
    }
    let (mut events, mut read) = (run.events(0), Vec::new());
    while let Some(record) = events.next().await.unwrap() {
        if !matches!(record.event, Event::Done(_)) {
            read.extend(kind(&record.event));
        }
    }
    // Calls run beside waits, in another order.
    expected.sort();
    read.sort();
    assert_eq!(read, expected);
}
