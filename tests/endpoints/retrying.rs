//! Retries of requests, which follow the official SDK's policy.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use tests::support::{RawServer, whole_answer};
use tokio::time::Instant;
use tool_core::model::{ChatRequest, ChatResponse, Currency, ModelPrices, Prices, ToolDefinition};
use tool_core::provider::ToolDefinitions;
use tool_core::{Agent, ChatModel, Message};
use tool_openai::{Endpoint, Error, ErrorKind, OpenAi, OpenAiBuilder, RetryBudget};

const TEXT: &[u8] = br#"{"choices":[{"message":{"content":"Hello."},"finish_reason":"stop"}]}"#;

/// A header that keeps retry delays short.
const SOON: (&str, &str) = ("retry-after-ms", "1");

fn fine() -> Vec<u8> {
    whole_answer("200 OK", &[("content-type", "application/json")], TEXT)
}

fn failing(status: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    whole_answer(status, headers, body.as_bytes())
}

fn builder(server: &RawServer) -> OpenAiBuilder {
    OpenAi::builder().base_url(server.base_url()).api_key("sk-very-secret-key")
}

fn request() -> ChatRequest<'static> {
    ChatRequest::new([Message::user("Hello")])
}

async fn ask(openai: &OpenAi) -> Result<ChatResponse, Error> {
    let answer = openai.chat_model("m").chat(&request()).await;
    answer.map_err(|error| error.downcast::<Error>().unwrap())
}

async fn ask_streamed(openai: &OpenAi) -> Result<(), Error> {
    let (model, request) = (openai.chat_model("m"), request());
    let mut deltas = model.stream(&request);
    while let Some(delta) = deltas.next().await {
        delta.map_err(|error| error.downcast::<Error>().unwrap())?;
    }
    Ok(())
}

#[tokio::test]
async fn retries_by_status_header_and_code() {
    let quota = r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#;
    let long = r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#;
    let rate = r#"{"error":{"message":"slow down","code":"429"}}"#;
    // Gemini also uses this message for the limit of requests per minute.
    let minute = r#"[{"error":{"code":429,"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED"}}]"#;
    let unending = whole_answer("200 OK", &[("content-length", "1000")], TEXT);
    // The first answer, and whether the request is retried after it.
    let table = [
        (failing("408 Timeout", &[SOON], ""), true),
        (failing("409 Conflict", &[SOON], ""), true),
        (failing("429 Too Many", &[SOON], ""), true),
        (failing("500 Oh", &[SOON], ""), true),
        (failing("503 Busy", &[SOON], "<html>"), true),
        (failing("529 Busy", &[SOON], ""), true),
        (failing("400 Bad", &[SOON], ""), false),
        (failing("401 Who", &[SOON], ""), false),
        (failing("404 Where", &[SOON], ""), false),
        (failing("422 What", &[SOON], ""), false),
        (failing("400 Bad", &[SOON, ("x-should-retry", "true")], ""), true),
        (failing("500 Oh", &[SOON, ("x-should-retry", "false")], ""), false),
        (failing("429 Too Many", &[("retry-after", "121")], ""), false),
        (failing("429 Too Many", &[SOON, ("x-should-retry", "true")], quota), false),
        (failing("429 Too Many", &[SOON], minute), true),
        (failing("500 Oh", &[SOON], long), false),
        // Status 200 with an error in the body.
        (failing("200 OK", &[SOON], rate), true),
        (failing("200 OK", &[SOON], quota), false),
        (failing("200 OK", &[], r#"{"choices":null}"#), true),
        (failing("200 OK", &[], "<html>"), false),
        // The connection closes before the answer and in the middle of it.
        (Vec::new(), true),
        (b"HTTP/1.1 200".to_vec(), true),
        (unending, true),
    ];
    // At once, because some answers leave the delay to the client.
    let cases = table.map(async |(first, is_retried)| {
        let shown = String::from_utf8_lossy(&first).into_owned();
        let server = RawServer::answering_in_turn(vec![first, fine()]).await;
        let outcome = ask(&builder(&server).build().unwrap()).await;
        assert_eq!(outcome.is_ok(), is_retried, "{shown}: {outcome:?}");
        assert_eq!(server.requests().len(), 1 + usize::from(is_retried), "{shown}");
    });
    join_all(cases).await;
}

#[tokio::test]
async fn a_retry_sends_the_same_request() {
    let server = RawServer::answering_in_turn(vec![failing("500 Oh", &[SOON], ""), fine()]).await;
    ask(&builder(&server).build().unwrap()).await.unwrap();
    let requests = server.requests();
    assert_eq!(requests[0], requests[1]);
    assert!(requests[1].contains("authorization: Bearer sk-very-secret-key"));
}

#[tokio::test]
async fn retries_twice_by_default() {
    let oh = || failing("500 Oh", &[SOON, ("x-request-id", "req_1")], "");
    for (retries, requests) in [(None, 3), (Some(0), 1), (Some(1), 2), (Some(4), 5)] {
        let server = RawServer::answering_in_turn((0..9).map(|_| oh()).collect()).await;
        let mut builder = builder(&server);
        if let Some(retries) = retries {
            builder = builder.max_retries(retries);
        }
        let error = ask(&builder.build().unwrap()).await.unwrap_err();
        assert_eq!((error.status(), error.request_id()), (Some(500), Some("req_1")));
        assert!(error.kind() == ErrorKind::Server && error.is_retryable());
        assert_eq!(server.requests().len(), requests);
    }
}

#[tokio::test(start_paused = true)]
async fn follows_and_reports_the_delay_that_the_server_requests() {
    let answers =
        vec![failing("429 Slow", &[("retry-after", "0.2")], ""), failing("500 Oh", &[], ""), fine()];
    let server = RawServer::answering_in_turn(answers).await;
    let retries = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let retries = Arc::clone(&retries);
        move |retry: &tool_openai::Retry<'_>| {
            retries.lock().unwrap().push((retry.number, retry.delay, retry.error.status()));
        }
    };
    let clock = Instant::now();
    ask(&builder(&server).on_retry(hook).build().unwrap()).await.unwrap();
    let retries = retries.lock().unwrap();
    assert_eq!(retries[0], (1, Duration::from_millis(200), Some(429)));
    let (number, delay, status) = retries[1];
    assert_eq!((number, status), (2, Some(500)));
    assert!(delay > Duration::from_millis(740) && delay <= Duration::from_secs(1), "{delay:?}");
    assert!(clock.elapsed() >= retries[0].1 + delay);
}

#[tokio::test]
async fn retries_a_stream_only_before_it_starts() {
    let event = |data: &str| format!("data: {data}\n\n").into_bytes();
    let head = |body: &[u8]| whole_answer("200 OK", &[("content-type", "text/event-stream")], body);
    let rate = r#"{"error":{"message":"slow down","code":429}}"#;
    let chunk = r#"{"choices":[{"delta":{"content":"Hel"}}]}"#;
    let end = r#"{"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}]}"#;
    let table = [
        (failing("500 Oh", &[SOON], ""), true),
        (Vec::new(), true),
        // An error with status 200 is not streamed.
        (failing("200 OK", &[("content-type", "application/json")], rate), true),
        (head(&event(chunk)), false),
        (head(&event(r#"{"error":{"message":"busy","code":503}}"#)), false),
    ];
    let cases = table.map(async |(first, is_opened_again)| {
        let shown = String::from_utf8_lossy(&first).into_owned();
        let server = RawServer::answering_in_turn(vec![first, head(&event(end))]).await;
        let outcome = ask_streamed(&builder(&server).build().unwrap()).await;
        assert_eq!(outcome.is_ok(), is_opened_again, "{shown}");
        assert_eq!(server.requests().len(), 1 + usize::from(is_opened_again), "{shown}");
        if let Err(error) = outcome {
            // The error is retryable and has the partial response.
            assert!(error.is_retryable(), "{error}");
            assert!(error.partial().is_some());
        }
    });
    join_all(cases).await;
}

#[tokio::test(start_paused = true)]
async fn retries_after_a_timeout() {
    let server = RawServer::start(vec![vec![]], Duration::from_secs(600)).await;
    let openai = builder(&server).read_timeout(Duration::from_secs(5)).max_retries(1).build().unwrap();
    let error = ask(&openai).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Timeout && error.is_retryable(), "{error}");
}

#[tokio::test]
async fn a_budget_limits_the_retries_of_all_requests() {
    let server =
        RawServer::answering_in_turn((0..99).map(|_| failing("500 Oh", &[SOON], "")).collect()).await;
    let budget = RetryBudget::new(3, 0.5);
    let first = builder(&server).retry_budget(budget.clone()).build().unwrap();
    let second = builder(&server).retry_budget(budget).build().unwrap();
    let mut so_far = 0;
    // Two of the three retries, the last one, those that two requests have added, and so on.
    for (openai, expected) in [(&first, 3), (&second, 2), (&first, 2), (&first, 1), (&second, 2)] {
        ask(openai).await.unwrap_err();
        let requests = server.requests().len();
        assert_eq!(requests - so_far, expected);
        so_far = requests;
    }
}

#[tokio::test]
async fn sends_a_malformed_call_back_to_the_model() {
    const FAILED: &str = r#"{"error":{"message":"Failed to call a function.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"<function=now{}"}}"#;
    let failed = || failing("400 Bad", &[], FAILED);
    let groq = |server: &RawServer| builder(server).endpoint(Endpoint::groq()).build().unwrap();
    let tools = ToolDefinitions::from_iter([ToolDefinition::new("now").with_description("Returns the time")]);
    let request = request().with_tools(tools);

    let server = RawServer::answering_in_turn(vec![failed(), fine()]).await;
    assert_eq!(groq(&server).chat_model("m").chat(&request).await.unwrap().message.text, "Hello.");
    let sent = server.requests();
    let body = sent[1].split_once("\r\n\r\n").unwrap().1;
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["messages"].as_array().unwrap().len(), 3);
    assert_eq!(body["messages"][1]["content"], "<function=now{}");
    assert_eq!(body["messages"][2]["role"], "user");
    assert_eq!(body["tools"][0]["function"]["name"], "now");

    // The same error with status 200, for a stream.
    let failed_softly = failing("200 OK", &[("content-type", "application/json")], FAILED);
    let server = RawServer::answering_in_turn(vec![failed_softly, fine()]).await;
    let model = groq(&server).chat_model("m");
    assert!(model.stream(&request).all(|delta| async move { delta.is_ok() }).await);
    assert_eq!(server.requests().len(), 2);

    let server = RawServer::answering_in_turn(vec![failed(), failed(), failed(), fine()]).await;
    let error = groq(&server).chat_model("m").chat(&request).await.unwrap_err();
    let error = error.downcast::<Error>().unwrap();
    assert!(error.kind() == ErrorKind::MalformedToolCall && !error.is_retryable());
    assert_eq!(error.failed_generation(), Some("<function=now{}"));
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_malformed_call_is_part_of_the_price_of_the_next_request() {
    const FAILED: &str = r#"{"error":{"message":"Failed to call a function.","code":"tool_use_failed","failed_generation":"<function=now{}"}}"#;
    let prices = Prices::from_fn(Currency::USD, |_, _| {
        Some(ModelPrices::new(1.0, 10.0).with_max_output_tokens(1_000))
    });
    let mut costs = Vec::new();
    for answers in [vec![fine()], vec![failing("400 Bad", &[], FAILED), fine()]] {
        let server = RawServer::answering_in_turn(answers).await;
        let model = builder(&server).endpoint(Endpoint::groq()).build().unwrap().chat_model("m");
        let agent = Agent::builder(model).prices(prices.clone()).build().unwrap();
        costs.push(agent.ask("Hello").await.unwrap().cost().unwrap().micros());
    }
    // The worst case of both; the second one reads the first one's answer.
    assert_eq!(costs, [64 + 16 + 5 + 10_000, 3 * (64 + 16 + 5 + 10_000)]);
}
