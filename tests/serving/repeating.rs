//! Requests that send the results of the caller's tools more than once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tool_core::agent::AgentBuilder;
use tool_core::model::{AssistantMessage, ChatResponse};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ToolCall, tool, tools};
use tool_openai::server::Server;

use crate::caller::Caller;
use crate::callers_tools::{APIS, ask, first_request, second_request};

pub(crate) const CHAT: &str = "chat/completions";
pub(crate) const SOON: Duration = Duration::from_secs(120);

/// Observes the calls of the agent's own tools.
#[derive(Clone, Default)]
pub(crate) struct Bookings {
    count: Arc<AtomicUsize>,
    pub(crate) started: Arc<Notify>,
    pub(crate) release: Arc<Notify>,
    pub(crate) dropped: Arc<Notify>,
}

impl Bookings {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

struct OnDrop(Arc<Notify>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tool("Books a table")]
fn book(#[inject] bookings: &Bookings) -> usize {
    bookings.count.fetch_add(1, Ordering::SeqCst) + 1
}

/// Books when it is released.
async fn book_later(bookings: &Bookings) -> usize {
    let _dropped = OnDrop(Arc::clone(&bookings.dropped));
    bookings.started.notify_one();
    bookings.release.notified().await;
    bookings.count.fetch_add(1, Ordering::SeqCst) + 1
}

#[tool("Books a table, slowly")]
async fn book_slowly(#[inject] bookings: &Bookings) -> usize {
    book_later(bookings).await
}

#[tool("Books a table, slowly and never twice", at_most_once)]
async fn book_once(#[inject] bookings: &Bookings) -> usize {
    book_later(bookings).await
}

/// Serves an agent whose model calls the caller's tool `locate` and then does what the rest of the script says.
async fn serve(
    bookings: &Bookings,
    script: impl FnOnce(ScriptedModel) -> ScriptedModel,
) -> (Caller, ScriptedModel) {
    let model = script(ScriptedModel::new().calls("locate", "{}"));
    let agent = agent(bookings, &model).build().unwrap();
    (Caller::new(Server::new().agent("agent", agent)).await, model)
}

/// Returns an agent with tools that book.
pub(crate) fn agent(bookings: &Bookings, model: &ScriptedModel) -> AgentBuilder {
    Agent::builder(model.clone()).tools(tools![book, book_slowly, book_once]).context(bookings.clone())
}

/// Returns the request with the results.
pub(crate) async fn results(caller: &Caller, api: &str, is_streamed: bool) -> Value {
    let (content, calls, _) = ask(caller, api, &first_request(api), is_streamed).await;
    assert_eq!(calls.len(), 1);
    second_request(api, &content, &calls)
}

#[tokio::test]
async fn a_repeated_request_receives_the_same_answer() {
    for api in APIS {
        for (first, second) in [(false, false), (false, true), (true, false), (true, true)] {
            let bookings = Bookings::default();
            let (caller, model) =
                serve(&bookings, |model| model.calls("book", "{}").says("Booked.").says("Again.")).await;
            let request = results(&caller, api, first).await;
            let answer = ask(&caller, api, &request, first).await;
            assert_eq!((&*answer.0, bookings.count()), ("Booked.", 1), "{api}");
            for is_streamed in [first, second] {
                assert_eq!(ask(&caller, api, &request, is_streamed).await, answer, "{api}");
            }
            assert_eq!((bookings.count(), model.requests().len()), (1, 3), "{api}");
        }
    }
}

#[tokio::test]
async fn requests_at_the_same_time_receive_the_same_answer() {
    for api in APIS {
        for (first, second) in [(false, false), (false, true), (true, false), (true, true)] {
            let bookings = Bookings::default();
            let (caller, model) =
                serve(&bookings, |model| model.calls("book_slowly", "{}").says("Booked.").says("Again."))
                    .await;
            let request = results(&caller, api, first).await;
            let repeated = async {
                tokio::time::timeout(SOON, bookings.started.notified()).await.unwrap();
                let others = join_all([second, first, second].map(|is| ask(&caller, api, &request, is)));
                let release = async { bookings.release.notify_one() };
                futures_util::future::join(others, release).await.0
            };
            let (answer, repeated) =
                futures_util::future::join(ask(&caller, api, &request, first), repeated).await;
            assert_eq!(answer.0, "Booked.", "{api}");
            assert!(repeated.iter().all(|other| *other == answer), "{api}: {repeated:?}");
            assert_eq!((bookings.count(), model.requests().len()), (1, 3), "{api}");
        }
    }
}

/// Also if the answer consists of calls of the caller's tools.
#[tokio::test]
async fn a_repeated_request_receives_the_same_calls() {
    let bookings = Bookings::default();
    let (caller, model) = serve(&bookings, |model| {
        model.calls("book", "{}").calls("locate", r#"{"precise": true}"#).says("There.").says("Again.")
    })
    .await;
    let request = results(&caller, CHAT, false).await;
    let (content, calls, tokens) = ask(&caller, CHAT, &request, false).await;
    assert_eq!((content.as_str(), calls.len()), ("", 1));
    assert_eq!(ask(&caller, CHAT, &request, true).await, (content, calls.clone(), tokens));
    // Each of them can continue, but only one does.
    let mut third = request;
    let reply = json!({ "role": "assistant", "content": null, "tool_calls": [
        { "id": calls[0].0, "type": "function", "function": { "name": "locate", "arguments": calls[0].1 } },
    ] });
    let result = json!({ "role": "tool", "tool_call_id": calls[0].0, "content": "Rome, Via Appia 1" });
    third["messages"].as_array_mut().unwrap().extend([reply, result]);
    for _ in 0..2 {
        assert_eq!(ask(&caller, CHAT, &third, false).await.0, "There.");
    }
    assert_eq!((bookings.count(), model.requests().len()), (1, 4));
}

#[tokio::test]
async fn other_results_do_not_repeat_the_request() {
    let (caller, model) = serve(&Bookings::default(), |model| model.says("Rome.").says("Paris.")).await;
    let request = results(&caller, CHAT, false).await;
    assert_eq!(ask(&caller, CHAT, &request, false).await.0, "Rome.");
    let mut other = request.clone();
    other["messages"][2]["content"] = json!("Paris");
    assert_eq!(ask(&caller, CHAT, &other, false).await.0, "Paris.");
    assert_eq!(ask(&caller, CHAT, &request, false).await.0, "Rome.");
    assert_eq!(model.requests().len(), 3);
}

#[tokio::test]
async fn after_an_error_a_repeated_request_executes_nothing_twice() {
    for is_streamed in [false, true] {
        let bookings = Bookings::default();
        let (caller, model) = serve(&bookings, |model| {
            let model = model.calls("book", "{}").fails("the line is dead").fails("the line is dead");
            model.says("Booked.").says("Again.")
        })
        .await;
        let request = results(&caller, CHAT, is_streamed).await;
        for _ in 0..2 {
            assert_eq!(caller.post(CHAT, &request).await.status, 500);
        }
        for _ in 0..2 {
            assert_eq!(ask(&caller, CHAT, &request, is_streamed).await.0, "Booked.");
        }
        assert_eq!((bookings.count(), model.requests().len()), (1, 5));
    }
}

/// Sends a request and disconnects when the agent's tool has started.
pub(crate) async fn disconnect(caller: &Caller, bookings: &Bookings, body: &Value) {
    let body = body.to_string();
    let head = format!(
        "POST /v1/{CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(caller.server.address()).await.unwrap();
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    tokio::time::timeout(SOON, bookings.started.notified()).await.unwrap();
    drop(stream);
}

#[tokio::test]
async fn a_request_can_be_repeated_after_a_disconnect() {
    let bookings = Bookings::default();
    let (caller, model) =
        serve(&bookings, |model| model.calls("book_slowly", "{}").says("Booked.").says("Again.")).await;
    let request = results(&caller, CHAT, false).await;
    disconnect(&caller, &bookings, &request).await;
    tokio::time::timeout(SOON, bookings.dropped.notified()).await.unwrap();
    bookings.release.notify_one();
    for _ in 0..2 {
        assert_eq!(ask(&caller, CHAT, &request, false).await.0, "Booked.");
    }
    assert_eq!((bookings.count(), model.requests().len()), (1, 3), "the model is not asked again");
}

#[tokio::test]
async fn a_disconnect_does_not_cancel_what_another_request_waits_for() {
    let bookings = Bookings::default();
    let booking =
        AssistantMessage::text("One moment. ").with_tool_calls([ToolCall::new("a", "book_once", "{}")]);
    let (caller, model) =
        serve(&bookings, |model| model.replies(ChatResponse::new(booking)).says("Booked.").says("Again."))
            .await;
    let request = results(&caller, CHAT, false).await;
    let mut streamed = request.clone();
    streamed["stream"] = json!(true);
    let body = streamed.to_string();
    let head = format!(
        "POST /v1/{CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut first = TcpStream::connect(caller.server.address()).await.unwrap();
    first.write_all((head + &body).as_bytes()).await.unwrap();
    tokio::time::timeout(SOON, bookings.started.notified()).await.unwrap();
    // Its stream has started as soon as it shares the answer.
    let mut second = caller.request(CHAT, &streamed).send().await.unwrap();
    drop(first);
    bookings.release.notify_one();
    let mut text = String::new();
    while let Some(chunk) = second.chunk().await.unwrap() {
        text += std::str::from_utf8(&chunk).unwrap();
    }
    assert!(text.contains("Booked.") && text.contains("[DONE]"), "{text}");
    assert_eq!(ask(&caller, CHAT, &request, false).await.0, "One moment. Booked.");
    assert_eq!((bookings.count(), model.requests().len()), (1, 3));
}

#[tokio::test]
async fn an_interrupted_call_that_must_not_be_repeated_is_reported() {
    let bookings = Bookings::default();
    let (caller, model) = serve(&bookings, |model| model.calls("book_once", "{}").says("Let us see.")).await;
    let request = results(&caller, CHAT, false).await;
    disconnect(&caller, &bookings, &request).await;
    tokio::time::timeout(SOON, bookings.dropped.notified()).await.unwrap();
    for _ in 0..2 {
        let answer = caller.post(CHAT, &request).await;
        assert_eq!((answer.status, &answer.body["error"]["code"]), (409, &json!("outcome_unknown")));
    }
    assert_eq!((bookings.count(), model.requests().len()), (0, 2), "nothing was executed");
    // With a word of the user, the agent continues from the messages.
    let mut decided = request;
    decided["messages"].as_array_mut().unwrap().push(json!({ "role": "user", "content": "And now?" }));
    assert_eq!(ask(&caller, CHAT, &decided, false).await.0, "Let us see.");
}
