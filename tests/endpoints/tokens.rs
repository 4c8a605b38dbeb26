//! Tokens that expire, of both clients, against a fake cloud with a clock.

use std::collections::VecDeque;
use std::fmt;
use std::future::{pending, ready};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use futures_util::future::{join, join_all, poll_immediate};
use serde_json::{Value, json};
use tests::support::pass;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tool_core::memory::{InMemoryStore, RunFilter};
use tool_core::model::{ChatRequest, Delta, ModelError};
use tool_core::{Agent, ChatModel, Message};
use tool_openai::{AwsCredentials, Error, ErrorKind, Token, TokenSource, bedrock_keys};
use tracing::field::{Field, Visit};
use tracing::span;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// A server of tokens, and endpoints of both APIs that accept them.
struct Cloud {
    origin: String,
    state: Arc<CloudState>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct CloudState {
    /// The number of tokens that were given.
    given: Mutex<usize>,
    /// The tokens that requests to the endpoints had.
    seen: Mutex<Vec<String>>,
    /// The number of the first token that is accepted.
    first_accepted: Mutex<usize>,
    /// What the endpoints answer to the next requests, whatever their token is: a status, a body and a location.
    answers: Mutex<VecDeque<(StatusCode, String, String)>>,
    /// Is notified about each request to an endpoint.
    asked: Notify,
    /// Holds requests to the endpoints.
    gate: Mutex<Option<Arc<Semaphore>>>,
}

/// Returns a token with characters that JSON and URLs escape.
fn token(number: usize) -> String {
    format!("secret/token+{number:04}==")
}

impl Cloud {
    async fn start() -> Self {
        let state = Arc::new(CloudState::default());
        let routes = Router::new().route("/token", post(give)).route("/v1/{*path}", any(answer));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let routes = routes.with_state(Arc::clone(&state));
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { origin, state, task }
    }

    /// Returns a source that asks the server of tokens.
    fn source(&self) -> impl TokenSource + use<> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (client, url) =
            (reqwest::Client::builder().no_proxy().build().unwrap(), format!("{}/token", self.origin));
        move || {
            let request = client.post(&url).send();
            async move {
                let text = request.await?.text().await?;
                let json: Value = serde_json::from_str(&text).unwrap();
                let seconds = json["expires_in"].as_u64().unwrap();
                let token = Token::new(json["access_token"].as_str().unwrap());
                Ok::<_, reqwest::Error>(token.expires_in(Duration::from_secs(seconds)))
            }
        }
    }

    fn refuse_tokens_before(&self, number: usize) {
        *self.state.first_accepted.lock().unwrap() = number;
    }

    fn answer_next(&self, status: StatusCode, body: &str) {
        self.state.answers.lock().unwrap().push_back((status, body.into(), String::new()));
    }

    /// Returns how many tokens were given, and the numbers of those in requests.
    fn counts(&self) -> (usize, Vec<usize>) {
        let seen = self.state.seen.lock().unwrap();
        let number =
            |text: &String| (0..10).find(|number| *text == format!("Bearer {}", token(*number))).unwrap();
        (*self.state.given.lock().unwrap(), seen.iter().map(number).collect())
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn give(State(cloud): State<Arc<CloudState>>) -> String {
    let mut given = cloud.given.lock().unwrap();
    *given += 1;
    json!({ "access_token": token(*given - 1), "expires_in": 3600 }).to_string()
}

async fn answer(State(cloud): State<Arc<CloudState>>, request: Request) -> Response {
    let sent = request.headers().get(header::AUTHORIZATION);
    let sent = sent.map_or("", |value| value.to_str().unwrap()).to_owned();
    cloud.seen.lock().unwrap().push(sent.clone());
    cloud.asked.notify_one();
    let gate = cloud.gate.lock().unwrap().clone();
    if let Some(gate) = gate {
        gate.acquire().await.unwrap().forget();
    }
    let json = (header::CONTENT_TYPE, "application/json".to_owned());
    if let Some((status, body, location)) = cloud.answers.lock().unwrap().pop_front() {
        let location = (header::LOCATION, location);
        return (status, [json, location], body).into_response();
    }
    let accepted = *cloud.first_accepted.lock().unwrap()..*cloud.given.lock().unwrap();
    if !accepted.into_iter().any(|number| sent == format!("Bearer {}", token(number))) {
        let message = json!({ "error": { "message": format!("refused {sent}"), "code": sent } });
        // Some servers escape slashes.
        let body = message.to_string().replace('/', "\\/");
        return (StatusCode::UNAUTHORIZED, [json], body).into_response();
    }
    let body = match request.uri().path().ends_with("/messages") {
        true => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "content": [{ "type": "text", "text": "Hello." }], "usage": { "input_tokens": 1, "output_tokens": 1 },
        }),
        false => json!({ "choices": [{ "message": { "content": "Hello." }, "finish_reason": "stop" }] }),
    };
    ([json], body.to_string()).into_response()
}

#[derive(Clone, Copy, Debug)]
enum Client {
    OpenAi,
    Anthropic,
}

const CLIENTS: [Client; 2] = [Client::OpenAi, Client::Anthropic];

/// Returns a model whose requests are not retried, at most a hundred at a time.
fn model(client: Client, origin: &str, source: impl TokenSource + 'static) -> Box<dyn ChatModel> {
    limited(client, origin, source, 100)
}

fn limited(
    client: Client,
    origin: &str,
    source: impl TokenSource + 'static,
    max: usize,
) -> Box<dyn ChatModel> {
    // Hours pass in these tests.
    let (url, patience) = (format!("{origin}/v1"), Duration::MAX);
    match client {
        Client::OpenAi => {
            let builder = tool_openai::OpenAi::builder().base_url(url).max_retries(0).token_source(source);
            Box::new(
                builder.max_concurrent_requests(max).read_timeout(patience).build().unwrap().chat_model("m"),
            )
        }
        Client::Anthropic => {
            let builder =
                tool_anthropic::Anthropic::builder().base_url(url).max_retries(0).token_source(source);
            Box::new(
                builder.max_concurrent_requests(max).read_timeout(patience).build().unwrap().chat_model("m"),
            )
        }
    }
}

async fn ask(model: &dyn ChatModel) -> Result<String, ModelError> {
    let response = model.chat(&ChatRequest::new([Message::user("Hello")])).await;
    Ok(response?.message.text)
}

/// Asks with a stream.
async fn ask_streamed(model: &dyn ChatModel) -> Result<String, ModelError> {
    let request = ChatRequest::new([Message::user("Hello")]);
    let mut deltas = model.stream(&request);
    let mut text = String::new();
    while let Some(delta) = deltas.next().await {
        if let Delta::Done(response) = delta? {
            text = response.message.text;
        }
    }
    Ok(text)
}

/// Checks that a text has no token and no secret of a source.
fn assert_no_secret(text: &str) {
    assert!(!text.replace("may contain secrets", "").contains("secret"), "{text}");
}

/// Returns the kind and the text of an error, which shows no secret.
async fn failure(model: &dyn ChatModel) -> (ErrorKind, String, Error) {
    let error = ask(model).await.unwrap_err();
    assert_no_secret(&format!("{error} {error:?}"));
    let error = error.downcast::<Error>().unwrap();
    assert_no_secret(&format!("{:?} {:?} {:?}", error.body(), error.code(), error.message()));
    assert!(!error.is_retryable());
    (error.kind(), error.to_string(), error)
}

#[tokio::test]
async fn a_token_is_stored_until_shortly_before_it_expires() {
    for client in CLIENTS {
        let cloud = Cloud::start().await;
        let model = model(client, &cloud.origin, cloud.source());
        for _ in 0..3 {
            assert_eq!(ask(&*model).await.unwrap(), "Hello.");
        }
        pass(Duration::from_secs(3470)).await;
        ask(&*model).await.unwrap();
        assert_eq!(cloud.counts(), (1, vec![0; 4]), "{client:?}");
        pass(Duration::from_secs(10)).await;
        ask(&*model).await.unwrap();
        assert_eq!(cloud.counts(), (2, vec![0, 0, 0, 0, 1]), "{client:?}");
    }
}

#[tokio::test]
async fn a_refused_token_is_replaced_and_the_request_repeated_once() {
    for client in CLIENTS {
        let cloud = Cloud::start().await;
        let model = model(client, &cloud.origin, cloud.source());
        ask(&*model).await.unwrap();
        cloud.refuse_tokens_before(1);
        assert_eq!(ask(&*model).await.unwrap(), "Hello.");
        assert_eq!(cloud.counts(), (2, vec![0, 0, 1]), "{client:?}");
        cloud.refuse_tokens_before(2);
        assert_eq!(ask_streamed(&*model).await.unwrap(), "Hello.");
        assert_eq!(cloud.counts(), (3, vec![0, 0, 1, 1, 2]), "{client:?}");
    }
}

#[tokio::test]
async fn a_token_that_expires_in_flight_is_replaced() {
    for client in CLIENTS {
        let cloud = Cloud::start().await;
        let model = model(client, &cloud.origin, cloud.source());
        let gate = Arc::new(Semaphore::new(0));
        *cloud.state.gate.lock().unwrap() = Some(Arc::clone(&gate));
        let expire = async {
            cloud.state.asked.notified().await;
            pass(Duration::from_secs(3600)).await;
            cloud.refuse_tokens_before(1);
            gate.add_permits(2);
        };
        assert_eq!(join(ask(&*model), expire).await.0.unwrap(), "Hello.");
        assert_eq!(cloud.counts(), (2, vec![0, 1]), "{client:?}");
    }
}

#[tokio::test]
async fn the_source_is_asked_once_a_request_may_be_sent() {
    for client in CLIENTS {
        let cloud = Cloud::start().await;
        let model = limited(client, &cloud.origin, cloud.source(), 1);
        let gate = Arc::new(Semaphore::new(0));
        *cloud.state.gate.lock().unwrap() = Some(Arc::clone(&gate));
        // The second request waits for longer than its token would be valid.
        let expire = async {
            cloud.state.asked.notified().await;
            pass(Duration::from_secs(3600)).await;
            gate.add_permits(2);
        };
        let (first, second, ()) = futures_util::join!(ask(&*model), ask(&*model), expire);
        assert_eq!((first.unwrap(), second.unwrap()), ("Hello.".into(), "Hello.".into()));
        assert_eq!(cloud.counts(), (2, vec![0, 1]), "{client:?}");
    }
}

#[tokio::test]
async fn a_token_that_is_refused_twice_ends_the_request() {
    for client in CLIENTS {
        let cloud = Cloud::start().await;
        let model = model(client, &cloud.origin, cloud.source());
        cloud.refuse_tokens_before(9);
        let (kind, text, error) = failure(&*model).await;
        assert_eq!((kind, error.status()), (ErrorKind::Authentication, Some(401)));
        assert!(text.ends_with("failed with status 401, Bearer [key]: refused Bearer [key]"), "{text}");
        assert_eq!(cloud.counts(), (2, vec![0, 1]), "{client:?}");
        // No other request sends either of them.
        failure(&*model).await;
        assert_eq!(cloud.counts(), (4, vec![0, 1, 2, 3]), "{client:?}");
    }
}

#[tokio::test]
async fn the_refused_token_is_not_sent_again() {
    for client in CLIENTS {
        let cloud = Cloud::start().await;
        *cloud.state.given.lock().unwrap() = 1;
        cloud.refuse_tokens_before(1);
        let source = || async { Ok::<_, io::Error>(Token::new(token(0))) };
        let model = model(client, &cloud.origin, source);
        let (kind, text, error) = failure(&*model).await;
        assert_eq!((kind, error.status()), (ErrorKind::Authentication, Some(401)));
        let again = "the token source gave the refused token again";
        assert!(text.ends_with(&format!("refused Bearer [key]; {again}")), "{text}");
        // Another request is not sent at all.
        let (kind, text, error) = failure(&*model).await;
        assert_eq!((kind, &*text, error.status()), (ErrorKind::Authentication, again, None));
        assert_eq!(cloud.counts().1, [0], "{client:?}");
    }
}

#[tokio::test]
async fn responses_that_report_an_expired_token_are_known() {
    // The two bodies of Bedrock, and others that do not concern the token.
    let table = [
        (
            StatusCode::FORBIDDEN,
            r#"{"message":"The security token included in the request is expired"}"#,
            true,
        ),
        (StatusCode::FORBIDDEN, r#"{"Message":"Bearer Token has expired"}"#, true),
        (StatusCode::FORBIDDEN, r#"{"Message":"You may not use this model"}"#, false),
        (StatusCode::BAD_REQUEST, r#"{"Message":"Bearer Token has expired"}"#, false),
        // Vertex, and Azure with a token for something else.
        (
            StatusCode::UNAUTHORIZED,
            r#"{"error":{"code":401,"status":"UNAUTHENTICATED","message":"Invalid","details":[{"reason":"ACCESS_TOKEN_EXPIRED"}]}}"#,
            true,
        ),
        (
            StatusCode::UNAUTHORIZED,
            r#"{"error":{"code":"401","message":"Access token audience is incorrect"}}"#,
            true,
        ),
    ];
    for client in CLIENTS {
        for (status, body, is_repeated) in table {
            let cloud = Cloud::start().await;
            let model = model(client, &cloud.origin, cloud.source());
            cloud.answer_next(status, body);
            assert_eq!(ask(&*model).await.is_ok(), is_repeated, "{client:?}: {body}");
            assert_eq!(cloud.counts().1.len(), 1 + usize::from(is_repeated), "{client:?}: {body}");
        }
    }
}

#[tokio::test]
async fn many_requests_at_the_same_time_ask_for_one_token() {
    for client in CLIENTS {
        let cloud = Cloud::start().await;
        let model = model(client, &cloud.origin, cloud.source());
        for first_accepted in 0..2 {
            cloud.refuse_tokens_before(first_accepted);
            for answer in join_all((0..1000).map(|_| ask(&*model))).await {
                assert_eq!(answer.unwrap(), "Hello.");
            }
            assert_eq!(cloud.counts().0, first_accepted + 1, "{client:?}");
        }
    }
}

#[tokio::test]
async fn requests_that_wait_get_the_token_that_a_cancelled_request_asked_for() {
    for client in CLIENTS {
        let cloud = Cloud::start().await;
        *cloud.state.given.lock().unwrap() = 1;
        let (asked, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
        let (is_asked, opened) = (Arc::clone(&asked), Arc::clone(&gate));
        let source = move || {
            let opened = Arc::clone(&opened);
            is_asked.notify_one();
            async move {
                opened.acquire().await.unwrap().forget();
                Ok::<_, io::Error>(Token::new(token(0)))
            }
        };
        let model = model(client, &cloud.origin, source);
        let mut first = Box::pin(ask(&*model));
        let mut others = [Box::pin(ask(&*model)), Box::pin(ask(&*model))];
        assert!(poll_immediate(&mut first).await.is_none());
        for other in &mut others {
            assert!(poll_immediate(other).await.is_none());
        }
        asked.notified().await;
        drop(first);
        // One answer is enough for both.
        gate.add_permits(1);
        for answer in join_all(others).await {
            assert_eq!(answer.unwrap(), "Hello.");
        }
        assert_eq!(cloud.counts().1, [0, 0], "{client:?}");
    }
}

/// Headers do not preserve white space around a secret, so that a server quotes it without.
#[tokio::test]
async fn secrets_with_white_space_around_them_are_redacted() {
    let cloud = Cloud::start().await;
    let padded = || format!("\t{} ", token(0));
    let source = move || async move { Ok::<_, io::Error>(Token::new(padded())) };
    let builder = || tool_openai::OpenAi::builder().base_url(format!("{}/v1", cloud.origin)).max_retries(0);
    for builder in [builder().token_source(source), builder().api_key(padded())] {
        let model = builder.build().unwrap().chat_model("m");
        let (kind, text, _) = failure(&model).await;
        assert_eq!(kind, ErrorKind::Authentication);
        assert!(text.contains("refused Bearer [key]"), "{text}");
    }
}

/// How a source fails.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Error,
    Hang,
    Panic,
}

#[tokio::test]
async fn a_source_that_fails_ends_the_request_and_shows_no_secret() {
    let table = [
        (
            Fault::Error,
            "the token source failed; its error, which may contain secrets, is in `Error::token_error`",
        ),
        (Fault::Hang, "the token source gave no token within 30 seconds"),
        (Fault::Panic, "the token source panicked"),
    ];
    for client in CLIENTS {
        for (fault, expected) in table {
            let cloud = Cloud::start().await;
            let asked = Arc::new(Notify::new());
            let (refuses, is_asked) = (Arc::new(Mutex::new(false)), Arc::clone(&asked));
            let is_failing = Arc::clone(&refuses);
            // Fails at once, and when its token was refused.
            let source = move || {
                is_asked.notify_one();
                let is_first = std::mem::take(&mut *is_failing.lock().unwrap());
                async move {
                    match fault {
                        _ if is_first => Ok(Token::new(token(0))),
                        Fault::Error => Err(io::Error::other("the client secret-0123 is wrong")),
                        Fault::Hang => pending().await,
                        Fault::Panic => panic!("secret-0123"),
                    }
                }
            };
            let model = model(client, &cloud.origin, source);
            let hang = async |count: usize| {
                for _ in 0..count {
                    asked.notified().await;
                }
                if matches!(fault, Fault::Hang) {
                    pass(Duration::from_secs(30)).await;
                }
            };
            let (kind, text, error) = join(failure(&*model), hang(1)).await.0;
            assert_eq!((kind, &*text, error.status()), (ErrorKind::Authentication, expected, None));
            let cause = error.token_error().map(ToString::to_string);
            assert_eq!(cause.is_some(), matches!(fault, Fault::Error), "{cause:?}");
            assert_eq!(
                cause.unwrap_or("the client secret-0123 is wrong".into()),
                "the client secret-0123 is wrong"
            );
            assert_eq!(cloud.counts(), (0, vec![]), "{client:?}");

            *refuses.lock().unwrap() = true;
            let (kind, text, error) = join(failure(&*model), hang(2)).await.0;
            assert_eq!((kind, error.status()), (ErrorKind::Authentication, Some(401)));
            assert!(text.ends_with(&format!("refused Bearer [key]; {expected}")), "{text}");
            assert_eq!(error.token_error().is_some(), matches!(fault, Fault::Error));
            assert_eq!(cloud.counts().1, [0], "{client:?}");
        }
    }
}

#[tokio::test]
async fn no_token_is_sent_to_a_redirect() {
    for client in CLIENTS {
        let (cloud, other) = (Cloud::start().await, Cloud::start().await);
        let model = model(client, &cloud.origin, cloud.source());
        let location = format!("{}/v1/{}?from={}", other.origin, token(0), token(0));
        cloud.state.answers.lock().unwrap().push_back((
            StatusCode::TEMPORARY_REDIRECT,
            String::new(),
            location,
        ));
        let (kind, text, _) = failure(&*model).await;
        assert_eq!(kind, ErrorKind::InvalidResponse);
        assert!(text.contains("is redirected to http://127.0.0.1:"), "{text}");
        assert_eq!(other.counts(), (0, vec![]), "{client:?}");
    }
}

#[test]
fn settings_that_could_disclose_a_token_are_refused() {
    let source = || || async { Ok::<_, io::Error>(Token::new(token(0))) };
    let openai = || tool_openai::OpenAi::builder().base_url("https://example.org/v1").token_source(source());
    let anthropic =
        || tool_anthropic::Anthropic::builder().base_url("https://example.org").token_source(source());
    let key = "a key and `token_source` cannot be combined; leave out one of them";
    let http = "a token is only sent over `https`, or to this machine without a proxy; change the base URL";
    let client = "`http_client` and `token_source` cannot be combined, because the client may follow redirects; leave out one of them";
    let _ = rustls::crypto::ring::default_provider().install_default();
    let table = [
        (openai(), None),
        (openai().base_url("http://localhost:1"), None),
        (openai().base_url("http://[::1]:1"), None),
        (openai().header("x-gateway", "a"), None),
        (openai().api_key("secret"), Some(key)),
        (openai().api_key_from_env(), Some(key)),
        (openai().header("Authorization", "secret"), Some(key)),
        (openai().header("api-key", "secret"), Some(key)),
        (openai().header("X-Api-Key", "secret"), Some(key)),
        (openai().base_url("http://example.org"), Some(http)),
        (openai().base_url("http://localhost.example.org"), Some(http)),
        (openai().base_url("http://a.localhost:1"), Some(http)),
        (openai().http_client(reqwest::Client::new()), Some(client)),
    ];
    for (builder, expected) in table {
        assert!(!format!("{builder:?}").contains("secret"));
        let built = builder.build().map_err(|error| (error.kind(), error.to_string()));
        let error = expected.map(|text| (ErrorKind::Config, text.to_owned()));
        assert_eq!(built.err(), error);
    }
    for (builder, expected) in [
        (anthropic(), None),
        (anthropic().api_key("secret"), Some(key)),
        (anthropic().base_url("http://example.org"), Some(http)),
    ] {
        assert_eq!(builder.build().err().map(|error| error.to_string()).as_deref(), expected);
    }
}

/// All spans and events of this thread, as text.
#[derive(Clone, Default)]
struct Records(Arc<Mutex<String>>);

impl Visit for Records {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.lock().unwrap().push_str(&format!(" {field}={value:?}"));
    }
}

impl<S: tracing::Subscriber> Layer<S> for Records {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        self.0.lock().unwrap().push_str(attributes.metadata().name());
        attributes.record(&mut self.clone());
    }

    fn on_record(&self, _: &span::Id, values: &span::Record<'_>, _: Context<'_, S>) {
        values.record(&mut self.clone());
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        event.record(&mut self.clone());
    }
}

#[tokio::test]
async fn no_token_is_in_the_events_the_spans_or_the_stored_run() {
    // What a source does, and the number of requests with a token.
    let table = [("fresh", 2), ("repeated", 1), ("signed", 2), ("error", 0), ("panic", 0)];
    for (client, (case, count)) in CLIENTS.into_iter().flat_map(|client| table.map(|row| (client, row))) {
        // While one dispatcher lives, no thread without one disables a call site for all.
        static KEPT: LazyLock<tracing::Dispatch> =
            LazyLock::new(|| tracing::Dispatch::new(tracing_subscriber::registry()));
        LazyLock::force(&KEPT);
        let records = Records::default();
        let _captured =
            tracing::subscriber::set_default(tracing_subscriber::registry().with(records.clone()));
        let cloud = Cloud::start().await;
        cloud.refuse_tokens_before(9);
        let number = AtomicUsize::new(0);
        let source = move || {
            let number = number.fetch_add(1, Ordering::Relaxed);
            async move {
                let credentials = AwsCredentials::new(format!("AKID{number}"), "secret-access-key");
                let credentials = credentials.session_token("secret-session-token");
                let signed = bedrock_keys("eu-west-1", || ready(Ok::<_, io::Error>(credentials.clone())));
                match case {
                    "fresh" => Ok(Token::new(token(number))),
                    "repeated" => Ok(Token::new(token(0))),
                    "signed" => signed.token(None).await,
                    "error" => Err(token(0).into()),
                    _ => panic!("{}", token(0)),
                }
            }
        };
        let store = Arc::new(InMemoryStore::new());
        let agent =
            Agent::builder(model(client, &cloud.origin, source)).name("clerk").run_store(Arc::clone(&store));
        let agent = agent.build().unwrap();
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&events);
        let outcome =
            agent.ask("Hello").on_event(move |event| seen.lock().unwrap().push(format!("{event:?}"))).await;
        let events = events.lock().unwrap().clone();
        let runs = agent.list_runs(&RunFilter::default()).await.unwrap();
        let stored = agent.stored_run(&runs[0].id).await.unwrap().unwrap();
        let texts = [
            format!("{:?} {events:?} {runs:?}", outcome.unwrap_err()),
            serde_json::to_string(&stored.run).unwrap(),
            records.0.lock().unwrap().clone(),
        ];
        let sent = cloud.state.seen.lock().unwrap().clone();
        for text in texts {
            assert_no_secret(&text);
            for token in &sent {
                let token = token.strip_prefix("Bearer ").unwrap();
                assert!(!text.contains(token.strip_prefix("bedrock-api-key-").unwrap_or(token)), "{text}");
            }
        }
        assert!(!events.is_empty());
        assert!(records.0.lock().unwrap().contains("chat m"), "{:?}", records.0);
        assert_eq!(sent.len(), count, "{client:?}: {case}");
    }
}
