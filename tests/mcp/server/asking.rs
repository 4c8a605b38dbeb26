//! Tools that ask the user of the host.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rmcp::model::{
    CallToolRequest, CallToolResult, ClientCapabilities, ClientConfig, ClientRequest, ElicitRequestParams,
    ElicitResult, ElicitationAction, Implementation,
};
use rmcp::service::{PeerRequestOptions, RequestContext, RunningService};
use rmcp::{ClientHandler, ClientServiceExt, ErrorData, RoleClient};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tool_core::agent::on_approval;
use tool_core::model::RunUser;
use tool_core::run::{Decision, Run};
use tool_core::signatures::Timestamp;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Asker, IdempotencyKey};
use tool_core::{Agent, RunErrorKind, ToolContext, ToolError, ToolSet, schemars, tool, tools};
use tool_mcp::McpServer;
use tool_mcp::server::{RunningServer, Server};

use super::client::{Client, Connection, connect_http, params, text};
use super::newest::{meta, output, request, send};
use super::tools::sum;

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema, PartialEq)]
struct Seat {
    row: u8,
    letter: char,
}

#[tool("Books a seat", at_most_once)]
async fn book(flight: String, #[inject] user: &Asker) -> Result<String, ToolError> {
    let seat: Seat = user
        .ask("Which seat?")
        .choices_with_labels([
            (Seat { row: 3, letter: 'A' }, "by the window"),
            (Seat { row: 12, letter: 'C' }, "aisle"),
        ])
        .await?;
    match user.ask::<bool>("Book it?").await? {
        true => Ok(format!("{}{} on {flight}", seat.row, seat.letter)),
        false => Ok("not booked".into()),
    }
}

#[tool("Asks for a name and an age")]
async fn register(#[inject] user: &Asker) -> Result<String, ToolError> {
    let (name, age) = (user.ask::<String>("What is your name?"), user.ask::<u8>("How old are you?"));
    let (name, age) = futures_util::future::join(name.into_future(), age.into_future()).await;
    Ok(format!("{} is {}", name?, age?))
}

#[tool("Asks for a secret")]
async fn log_in(#[inject] user: &Asker) -> Result<String, ToolError> {
    Ok(user.ask::<String>("What is your password?").secret().await?)
}

#[tool("Asks for a list of texts")]
async fn list_names(#[inject] user: &Asker) -> Result<String, ToolError> {
    Ok(user.ask::<Vec<String>>("Who comes?").await?.join(", "))
}

#[tool("Asks, with a default")]
async fn greet(#[inject] user: &Asker) -> Result<String, ToolError> {
    Ok(format!("hello {}", user.ask::<String>("What is your name?").default("you").await?))
}

/// Counts what the tools do.
#[derive(Clone, Default)]
struct Counts {
    started: Arc<AtomicU32>,
    held: Arc<AtomicU32>,
    paid: Arc<AtomicU32>,
    keys: Arc<Mutex<Vec<String>>>,
}

#[tool("Pays a bill", at_most_once)]
async fn pay(
    cents: u32,
    #[inject] user: &Asker,
    #[inject] key: &IdempotencyKey,
    #[inject] counts: &Counts,
) -> Result<String, ToolError> {
    counts.started.fetch_add(1, Ordering::SeqCst);
    counts.keys.lock().unwrap().push(key.to_string());
    let hold = user
        .once("hold", async { Ok::<_, ToolError>(counts.held.fetch_add(1, Ordering::SeqCst) + 17) })
        .await?;
    if !user.ask::<bool>(format!("Pay {cents} cents?")).await? {
        return Ok("not paid".into());
    }
    counts.paid.fetch_add(1, Ordering::SeqCst);
    Ok(format!("paid {cents} with hold {hold}"))
}

fn all_tools() -> ToolSet {
    tools![book, register, log_in, list_names, greet, sum]
}

/// Calls a tool over HTTP and returns the JSON-RPC message. `more` is added to the parameters.
async fn call_as(url: &str, user: &str, tool: &str, arguments: Value, more: Value) -> Value {
    let mut params = json!({ "name": tool, "arguments": arguments });
    more.as_object().into_iter().flatten().for_each(|(name, value)| params[name] = value.clone());
    let request = request(url, "tools/call", params, &json!({ "elicitation": {} }));
    send(request.header("x-user", user)).await
}

async fn call(url: &str, tool: &str, arguments: Value, more: Value) -> Value {
    call_as(url, "ada", tool, arguments, more).await
}

async fn spawn(server: Server) -> RunningServer {
    let server = server.user(|headers| Some(RunUser::new(headers.get("x-user")?.to_str().ok()?)));
    server.spawn("127.0.0.1:0").await.unwrap()
}

/// Returns the keys of what is asked for.
fn keys(required: &Value) -> Vec<String> {
    assert_eq!(required["result"]["resultType"], "input_required", "{required}");
    required["result"]["inputRequests"].as_object().unwrap().keys().cloned().collect()
}

fn state(required: &Value) -> &Value {
    assert!(required["result"]["requestState"].is_string(), "{required}");
    &required["result"]["requestState"]
}

/// Returns the parameters that answer the one question of a call.
fn answer(required: &Value, response: Value) -> Value {
    json!({ "inputResponses": { &*keys(required)[0]: response }, "requestState": state(required) })
}

fn accept(answer: Value) -> Value {
    json!({ "action": "accept", "content": { "answer": answer } })
}

fn is_refused(message: &Value) -> bool {
    message["error"]["code"] == -32602 && message["error"]["data"]["reason"] == "invalid_request_state"
}

/// A client of the SDK whose user answers, and the messages that it has shown.
#[derive(Clone, Default)]
struct User(Arc<Mutex<Vec<String>>>);

impl ClientHandler for User {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("tests", "1"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = request else { unreachable!() };
        self.0.lock().unwrap().push(message.clone());
        let answer = match &*message {
            "Which seat?" => json!(r#"{"row":12,"letter":"C"}"#),
            "What is your name?" => json!("Ada"),
            "How old are you?" => json!(300),
            age if age.starts_with("How old are you?\n") => json!(36),
            "Pay 1 cents?" => return Ok(ElicitResult::new(ElicitationAction::Decline)),
            "Pay 2 cents?" => return Err(ErrorData::internal_error("no window", None)),
            _ => json!(true),
        };
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "answer": answer })))
    }
}

#[tokio::test]
async fn the_user_of_a_host_answers() {
    for connection in Connection::ALL {
        let (user, counts) = (User::default(), Counts::default());
        let context = ToolContext::new().with(counts.clone());
        let server = Server::new(tools![book, register, log_in, pay]).context(context);
        let (client, _server);
        if matches!(connection, Connection::Http | Connection::HttpNewest) {
            // The answer to a question is accepted while its call is the one that is allowed.
            let limit = if connection.is_newest() { 100 } else { 1 };
            let server = server.max_concurrent_requests(limit).spawn("127.0.0.1:0").await.unwrap();
            client = connect_http(&server.url(), None, connection, user.clone()).await.unwrap();
            _server = Some(server);
        } else {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let (input, output) = tokio::io::split(theirs);
            tokio::spawn(async move { server.serve_streams(input, output).await.unwrap() });
            client = user.clone().serve_with_lifecycle(ours, connection.lifecycle()).await.unwrap();
            _server = None;
        }
        let mut table = vec![
            ("book", json!({ "flight": "OS 87" }), "12C on OS 87", false, 2),
            ("register", json!({}), "Ada is 36", false, 3),
            ("pay", json!({ "cents": 5 }), "paid 5 with hold 17", false, 1),
            ("pay", json!({ "cents": 1 }), "the user declined to answer", true, 1),
        ];
        let nobody = "the tool has to ask the user, and nobody can be asked here: ";
        let secret = format!("{nobody}the answer is secret, and the host would read it");
        let failed = format!("{nobody}the host has not answered the question");
        table.push(("log_in", json!({}), &secret, true, 0));
        if !connection.is_newest() {
            table.push(("pay", json!({ "cents": 2 }), &failed, true, 1));
        }
        for (tool, arguments, expected, is_error, questions) in table {
            // The call before counts until all of its response is sent.
            let called = async {
                loop {
                    match client.call_tool(params(tool, arguments.clone())).await {
                        Err(rmcp::ServiceError::TransportSend(_)) => tokio::task::yield_now().await,
                        called => break called.unwrap(),
                    }
                }
            };
            let result: CallToolResult =
                tokio::time::timeout(Duration::from_secs(120), called).await.unwrap();
            assert_eq!(text(&result), (expected.into(), is_error), "{connection:?}");
            let asked = std::mem::take(&mut *user.0.lock().unwrap());
            assert_eq!(asked.len(), questions, "{connection:?}: {asked:?}");
        }
        assert_eq!(counts.paid.load(Ordering::SeqCst), 1);
    }
}

/// A client whose user is asked, and does not answer. It notifies the second once a question is void.
#[derive(Clone, Default)]
struct Nobody(Arc<Notify>, Arc<Notify>);

impl ClientHandler for Nobody {
    fn get_info(&self) -> ClientConfig {
        User::default().get_info()
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.0.notify_one();
        context.ct.cancelled().await;
        self.1.notify_one();
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_server_that_stops_waits_for_no_answer() {
    let nobody = Nobody::default();
    let server = Server::new(tools![register]).spawn("127.0.0.1:0").await.unwrap();
    let client = connect_http(&server.url(), None, Connection::Http, nobody.clone()).await.unwrap();
    let stopping = async {
        nobody.0.notified().await;
        tokio::time::timeout(Duration::from_secs(120), server.stop()).await.unwrap().unwrap();
    };
    let called = client.call_tool(params("register", json!({})));
    let (result, ()) = futures_util::future::join(called, stopping).await;
    let expected = "the tool has to ask the user, and nobody can be asked here: the server stops";
    assert_eq!(text(&result.unwrap()), (expected.into(), true));
}

/// Connects a client whose user does not answer, over streams.
async fn connect_nobody(server: Server) -> RunningService<RoleClient, Nobody> {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (input, output) = tokio::io::split(theirs);
    tokio::spawn(async move { server.serve_streams(input, output).await.unwrap() });
    Nobody::default().serve_with_lifecycle(ours, Connection::Streams.lifecycle()).await.unwrap()
}

#[tokio::test]
async fn the_question_of_a_call_that_is_cancelled_is_void() {
    let client = connect_nobody(Server::new(tools![register])).await;
    let call = ClientRequest::CallToolRequest(CallToolRequest::new(params("register", json!({}))));
    let calling = client.send_cancellable_request(call, PeerRequestOptions::no_options()).await.unwrap();
    let Nobody(shown, void) = client.service();
    let voided = async {
        shown.notified().await;
        calling.cancel(None).await.unwrap();
        void.notified().await;
    };
    tokio::time::timeout(Duration::from_secs(60), voided).await.unwrap();
}

/// Each holds a permit of the requests in flight.
#[tokio::test]
async fn the_number_of_questions_that_are_open_is_bounded() {
    let client = connect_nobody(Server::new(tools![register])).await;
    let mut calls: FuturesUnordered<_> =
        (0..65).map(|_| client.call_tool(params("register", json!({})))).collect();
    let refused = tokio::time::timeout(Duration::from_secs(120), calls.next()).await.unwrap().unwrap();
    let expected = "the tool has to ask the user, and nobody can be asked here: too many questions are open";
    assert_eq!(text(&refused.unwrap()), (expected.into(), true));
}

#[tokio::test(start_paused = true)]
async fn a_question_is_open_until_it_expires() {
    #[tool("Asks, with a default, for half a minute")]
    async fn greet(#[inject] user: &Asker) -> Result<String, ToolError> {
        let name = user.ask::<String>("What is your name?").default("you").expires(Duration::from_secs(30));
        Ok(format!("hello {}", name.await?))
    }
    let client = connect_nobody(Server::new(tools![greet]).record_messages()).await;
    let called = client.call_tool(params("greet", json!({})));
    let greeting = tokio::time::timeout(Duration::from_secs(60), called).await.expect("the question is open");
    assert_eq!(text(&greeting.unwrap()), ("hello you".into(), false));
}

#[tokio::test]
async fn questions_are_forms_in_their_order() {
    let server = spawn(Server::new(all_tools())).await;
    let url = server.url();
    let asked = call(&url, "register", json!({}), json!({})).await;
    let (keys, state) = (keys(&asked), state(&asked));
    let request = |key: &str| &asked["result"]["inputRequests"][key]["params"];
    assert_eq!(
        *request(&keys[0]),
        json!({ "mode": "form", "message": "What is your name?", "requestedSchema": {
            "type": "object", "properties": { "answer": { "type": "string" } }, "required": ["answer"],
        } })
    );
    assert_eq!(
        *request(&keys[1]),
        json!({ "mode": "form", "message": "How old are you?", "requestedSchema": {
            "type": "object", "properties": { "answer": { "type": "integer", "minimum": 0, "maximum": 255 } },
            "required": ["answer"],
        } })
    );
    // What is missing is asked for again, and what was not asked is ignored.
    let responses = json!({ &*keys[0]: accept(json!("Ada")), "other": accept(json!("Eve")), "second": 7 });
    let partly = json!({ "inputResponses": responses, "requestState": state });
    let again = call(&url, "register", json!({}), partly).await;
    assert_eq!(again["result"]["inputRequests"].as_object().unwrap().len(), 1, "{again}");
    let wrong = call(&url, "register", json!({}), answer(&again, accept(json!(300)))).await;
    let asked_again = wrong["result"]["inputRequests"][&*self::keys(&wrong)[0]]["params"]["message"].as_str();
    assert!(asked_again.unwrap().starts_with("How old are you?\n("), "{wrong}");
    let done = call(&url, "register", json!({}), answer(&wrong, accept(json!(36)))).await;
    assert_eq!(output(&done), "Ada is 36");
}

#[tokio::test]
async fn a_person_declines_or_cancels() {
    let server = spawn(Server::new(all_tools())).await;
    let url = server.url();
    for action in ["decline", "cancel"] {
        let asked = call(&url, "book", json!({ "flight": "OS 87" }), json!({})).await;
        let declined = answer(&asked, json!({ "action": action }));
        let done = call(&url, "book", json!({ "flight": "OS 87" }), declined).await;
        assert_eq!(
            (output(&done), &done["result"]["isError"]),
            ("the user declined to answer", &json!(true))
        );
    }
}

#[tokio::test]
async fn secrets_and_what_no_form_expresses_are_not_asked_for() {
    let server = spawn(Server::new(all_tools())).await;
    for (tool, why) in [
        ("log_in", "the answer is secret, and the host would read it"),
        ("list_names", "no form of the host can express the answer"),
    ] {
        let done = call(&server.url(), tool, json!({}), json!({})).await;
        let expected = format!("the tool has to ask the user, and nobody can be asked here: {why}");
        assert_eq!((output(&done), &done["result"]["isError"]), (&*expected, &json!(true)));
    }
}

#[tokio::test]
async fn a_host_that_shows_no_forms_is_not_asked() {
    let counts = Counts::default();
    let context = ToolContext::new().with(counts.clone());
    let server = Server::new(tools![greet, pay]).context(context);
    let server = spawn(server).await;
    for capabilities in [json!({}), json!({ "elicitation": { "url": {} } })] {
        let more = json!({ "_meta": meta(&capabilities) });
        let done = call(&server.url(), "pay", json!({ "cents": 1 }), more.clone()).await;
        let why = "the host has not declared that it shows forms to its user";
        assert_eq!(
            output(&done),
            format!("the tool has to ask the user, and nobody can be asked here: {why}")
        );
        assert_eq!(output(&call(&server.url(), "greet", json!({}), more).await), "hello you");
    }
    // Nothing is executed twice.
    assert_eq!(counts.started.load(Ordering::SeqCst), 2);
    // Also not when it goes on with a call.
    let asked = call(&server.url(), "greet", json!({}), json!({})).await;
    let mut more = json!({ "requestState": state(&asked), "_meta": meta(&json!({})) });
    assert_eq!(output(&call(&server.url(), "greet", json!({}), more.clone()).await), "hello you");
    let asked = call(&server.url(), "greet", json!({}), json!({})).await;
    more["requestState"] = state(&asked).clone();
    more["inputResponses"] = answer(&asked, accept(json!("Ada")))["inputResponses"].clone();
    assert_eq!(output(&call(&server.url(), "greet", json!({}), more).await), "hello Ada");
    for connection in [Connection::Streams, Connection::Http] {
        let client = Client::connect(connection, Server::new(all_tools())).await;
        let (answer, is_error) = client.text("register", json!({})).await;
        let why = "the host has not declared that it shows forms to its user";
        let expected = format!("the tool has to ask the user, and nobody can be asked here: {why}");
        assert_eq!((answer, is_error), (expected, true));
    }
}

#[tokio::test]
async fn the_effect_after_the_last_question_happens_once() {
    let counts = Counts::default();
    let server = spawn(Server::new(tools![pay]).context(ToolContext::new().with(counts.clone()))).await;
    let url = server.url();
    let arguments = json!({ "cents": 5 });
    let asked = call(&url, "pay", arguments.clone(), json!({})).await;
    let paying = answer(&asked, accept(json!(true)));
    let same = || call(&url, "pay", arguments.clone(), paying.clone());
    let done = futures_util::future::join_all((0..8).map(|_| same())).await;
    let (refused, done): (Vec<_>, Vec<_>) = done.into_iter().partition(is_refused);
    assert_eq!((refused.len(), done.len()), (7, 1));
    assert_eq!(output(&done[0]), "paid 5 with hold 17");
    assert_eq!((counts.held.load(Ordering::SeqCst), counts.paid.load(Ordering::SeqCst)), (1, 1));
    let keys = counts.keys.lock().unwrap();
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
}

mod other {
    #[tool_core::tool("Books two seats")]
    pub(super) fn book(flight: String) -> String {
        flight
    }
}

#[tokio::test]
async fn a_state_is_valid_for_its_call_alone() {
    let tools = || tools![register, greet, book];
    let server = Server::new(tools());
    let handle = server.tools_handle();
    let server = spawn(server).await;
    let other_server = spawn(Server::new(tools())).await;
    let url = server.url();
    let flight = json!({ "flight": "OS 87" });
    let asked = call(&url, "book", flight.clone(), json!({})).await;
    let given = answer(&asked, accept(json!(r#"{"row":3,"letter":"A"}"#)));

    let mut changed = given.clone();
    let mut state = changed["requestState"].as_str().unwrap().to_owned();
    let other = if &state[20..21] == "A" { "B" } else { "A" };
    state.replace_range(20..21, other);
    changed["requestState"] = state.into();
    let mut oversized = given.clone();
    oversized["requestState"] = "A".repeat(40_000).into();
    for (refused, what) in [
        (call(&url, "book", flight.clone(), changed).await, "a changed state"),
        (call(&url, "book", flight.clone(), oversized).await, "an oversized state"),
        (call(&url, "book", json!({ "flight": "OS 88" }), given.clone()).await, "other arguments"),
        (call(&url, "greet", flight.clone(), given.clone()).await, "another tool"),
        (call(&url, "missing", flight.clone(), given.clone()).await, "an unknown tool"),
        (call_as(&url, "eve", "book", flight.clone(), given.clone()).await, "another user"),
        (call(&other_server.url(), "book", flight.clone(), given.clone()).await, "another server"),
    ] {
        assert!(is_refused(&refused), "{what}: {refused}");
    }
    // None of these has used it up, and neither does a response that is none.
    let malformed = answer(&asked, json!(12345));
    let refused = call(&url, "book", flight.clone(), malformed).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let asked = call(&url, "book", flight.clone(), given).await;
    let done = answer(&asked, accept(json!(true)));
    assert_eq!(output(&call(&url, "book", flight.clone(), done.clone()).await), "3A on OS 87");
    assert!(is_refused(&call(&url, "book", flight.clone(), done).await));

    // A tool that was replaced by another one asks again.
    let asked = call(&url, "book", flight.clone(), json!({})).await;
    let given = answer(&asked, accept(json!(r#"{"row":3,"letter":"A"}"#)));
    handle.replace(tools![other::book]).unwrap();
    assert!(is_refused(&call(&url, "book", flight, given).await));
}

#[tokio::test]
async fn answers_without_a_state_are_ignored() {
    let server = spawn(Server::new(all_tools())).await;
    let flight = json!({ "flight": "OS 87" });
    let asked = call(&server.url(), "book", flight.clone(), json!({})).await;
    let mut given = answer(&asked, accept(json!(r#"{"row":3,"letter":"A"}"#)));
    given.as_object_mut().unwrap().remove("requestState");
    let again = call(&server.url(), "book", flight, given).await;
    let message = &again["result"]["inputRequests"][&*keys(&again)[0]]["params"]["message"];
    assert_eq!(message, "Which seat?");
    // A tool that does not ask takes no notice.
    let more = json!({ "inputResponses": { "a": accept(json!(1)) } });
    assert_eq!(output(&call(&server.url(), "sum", json!({ "a": 1, "b": 2 }), more).await), "3.0");
}

#[tokio::test]
async fn the_order_of_the_arguments_does_not_matter() {
    #[tool("Sums after asking")]
    async fn ask_sum(a: u32, b: u32, #[inject] user: &Asker) -> Result<u32, ToolError> {
        Ok(a + b + user.ask::<u32>("What else?").await?)
    }
    let server = spawn(Server::new(tools![ask_sum])).await;
    let asked = call(&server.url(), "ask_sum", json!({ "a": 1, "b": 2 }), json!({})).await;
    let given = answer(&asked, accept(json!(3)));
    assert_eq!(output(&call(&server.url(), "ask_sum", json!({ "b": 2, "a": 1 }), given).await), "6");
}

#[tokio::test]
async fn oversized_and_foreign_answers_are_asked_for_again_at_most_ten_times() {
    let server = spawn(Server::new(all_tools())).await;
    let (url, flight) = (server.url(), json!({ "flight": "OS 87" }));
    let mut asked = call(&url, "book", flight.clone(), json!({})).await;
    for wrong in [json!("by the window"), json!("a".repeat(70_000)), json!(null)].iter().cycle().take(9) {
        asked = call(&url, "book", flight.clone(), answer(&asked, accept(wrong.clone()))).await;
    }
    let done = call(&url, "book", flight, answer(&asked, accept(json!("no seat")))).await;
    assert_eq!(output(&done), "the user was asked 10 times without an end; the call may have had an effect");
}

#[tokio::test]
async fn a_call_that_has_recorded_too_much_cannot_ask() {
    #[tool("Records a long text")]
    async fn record(#[inject] user: &Asker) -> Result<bool, ToolError> {
        user.once("text", async { Ok::<_, ToolError>("a".repeat(40_000)) }).await?;
        Ok(user.ask::<bool>("Really?").await?)
    }
    let server = spawn(Server::new(tools![record])).await;
    let done = call(&server.url(), "record", json!({}), json!({})).await;
    let expected = "the tool has to ask the user, but has recorded too much to continue later; \
                    the call may have had an effect";
    assert_eq!((output(&done), &done["result"]["isError"]), (expected, &json!(true)));
}

/// A person of the service decides about approvals, once for a call, and never the host.
#[tokio::test]
async fn approvals_are_never_asked_of_the_host() {
    #[tool("Refunds after asking", needs_approval)]
    async fn refund(cents: u32, #[inject] user: &Asker) -> Result<String, ToolError> {
        let why = user.ask::<String>("Why?").await?;
        Ok(format!("refunded {cents}: {why}"))
    }
    let decided = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&decided);
    let server = Server::new(tools![refund]).decider(on_approval(move |call| {
        count.fetch_add(1, Ordering::SeqCst);
        match &*call.arguments {
            r#"{"cents":1}"# => Decision::approve_with(r#"{"cents": 20}"#),
            r#"{"cents":3}"# => Decision::approve_with(""),
            _ => Decision::defer(),
        }
    }));
    let server = spawn(server).await;
    let url = server.url();
    let asked = call(&url, "refund", json!({ "cents": 1 }), json!({})).await;
    let done = call(&url, "refund", json!({ "cents": 1 }), answer(&asked, accept(json!("late")))).await;
    assert_eq!(output(&done), "refunded 20: late");
    assert_eq!(decided.load(Ordering::SeqCst), 1);
    let deferred = call(&url, "refund", json!({ "cents": 2 }), json!({})).await;
    assert_eq!(output(&deferred), "the call was denied: no one is available to approve it");
    // If a person empties the arguments, the host's arguments do not come back.
    let emptied = call(&url, "refund", json!({ "cents": 3 }), json!({})).await;
    assert!(
        output(&emptied).starts_with("the call was denied: the decision about it is invalid"),
        "{emptied}"
    );
}

/// The host waits for a call that is parked, because there is no run that stores it.
#[tokio::test]
async fn a_parked_call_continues_by_itself() {
    #[tool("Parks once")]
    async fn park(#[inject] user: &Asker) -> Result<String, ToolError> {
        match user.parked::<u32>()? {
            Some(state) => Ok(format!("parked {state}")),
            None => Err(user.park(&7, Timestamp::now()).await.into()),
        }
    }
    let server = spawn(Server::new(tools![park])).await;
    assert_eq!(output(&call(&server.url(), "park", json!({}), json!({})).await), "parked 7");
}

/// An agent of this project is the host: its run waits for the answers, and can go on in another process.
#[tokio::test]
async fn a_run_of_an_agent_waits_for_what_a_served_tool_asks() {
    let server = Server::new(all_tools()).spawn("127.0.0.1:0").await.unwrap();
    let connected = McpServer::http(server.url()).name("seats").trusted().connect().await.unwrap();
    let model = ScriptedModel::new().calls("book", r#"{"flight": "OS 87"}"#).says("Booked.");
    let agent = Agent::builder(model).tools(connected.tools().await.unwrap()).build().unwrap();
    let mut outcome = agent.ask("Book a seat").await;
    let mut asked = Vec::new();
    while let Err(error) = outcome {
        assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
        let run = serde_json::to_string(error.run()).unwrap();
        let mut run: Run = serde_json::from_str(&run).unwrap();
        let wait = run.waits().remove(0);
        let question = wait.question().unwrap().text().to_owned();
        let answer = match question.contains("Which seat?") {
            true => json!({ "answer": r#"{"row":12,"letter":"C"}"# }),
            false => json!({ "answer": true }),
        };
        asked.push(question);
        run.resolve(&wait.id, Decision::answer(answer)).unwrap();
        outcome = agent.resume(run).await;
    }
    let expected = ["The server `seats` asks: Which seat?", "The server `seats` asks: Book it?"];
    assert_eq!(asked, expected);
    let answer = outcome.unwrap();
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "12C on OS 87");
}
