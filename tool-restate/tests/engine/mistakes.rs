//! Bad input: each has one clear error, and nothing is lost.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tool_core::agent::{AgentTool, on_approval};
use tool_core::memory::{ChatMemory, InMemoryStore};
use tool_core::model::ToolDefinition;
use tool_core::run::Decision;
use tool_core::testing::ScriptedModel;
use tool_core::tool::ToolFuture;
use tool_core::toolset::ToolProviderRequest;
use tool_core::{Agent, Event, Tool, ToolContext, ToolSet, tool, tools};
use tool_restate::{Client, ErrorKind, Worker, register};

use crate::support::{
    admin, agent, answer, client, end_by_engine, failure, free_address, http, open_invocations, serve,
    serve_at, unique, waiting_calls, within,
};

fn builder() -> tool_core::agent::AgentBuilder {
    Agent::builder(ScriptedModel::new())
}

/// Does what the agent does.
struct Wrapped(AgentTool);

impl Tool for Wrapped {
    fn definition(&self) -> &ToolDefinition {
        self.0.definition()
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        self.0.call(arguments, context)
    }
}

#[test]
fn an_agent_that_cannot_run_durably_is_refused() {
    let clerk = || builder().name("clerk");
    let refuse = |agent: tool_core::agent::AgentBuilder| {
        Worker::new().agent(agent.build().unwrap()).endpoint().err().unwrap().to_string()
    };
    let table = [
        (
            clerk().memory(ChatMemory::in_memory()),
            "the agent `clerk` has a `memory`, but the conversations of durable runs are objects of the engine: \
             leave it out, and ask with `.conversation(id)`",
        ),
        (
            clerk().run_store(InMemoryStore::new()),
            "the agent `clerk` has a `run_store`, but the engine stores durable runs: leave it out; conversations are \
             objects of the engine, too, with `.conversation(id)`",
        ),
        (
            clerk().decider(on_approval(|_| Decision::approve())),
            "the agent `clerk` has a `decider`, but durable runs wait for decisions without a process: leave it out, \
             and decide with `RemoteRun::decide`",
        ),
        (
            clerk().handoff_to(
                "billing",
                "Bills",
                &builder().decider(on_approval(|_| Decision::approve())).build().unwrap(),
            ),
            "the agent of the handoff `billing` of the agent `clerk` has a `decider`, but durable runs wait for decisions \
             without a process: leave it out, and decide with `RemoteRun::decide`",
        ),
        (
            clerk().tools(
                builder()
                    .decider(on_approval(|_| Decision::approve()))
                    .build()
                    .unwrap()
                    .as_tool("billing", "Bills"),
            ),
            "the agent of the tool `billing` of the agent `clerk` has a `decider`, but durable runs wait for decisions without \
             a process: leave it out, and decide with `RemoteRun::decide`",
        ),
        (
            clerk().tools(
                builder()
                    .memory(ChatMemory::in_memory())
                    .build()
                    .unwrap()
                    .as_tool("billing", "Bills")
                    .own_conversation(),
            ),
            "the agent of the tool `billing` of the agent `clerk` has an `own_conversation` in its `memory`, but conversations \
             are objects of the engine, and of the agents that clients ask: leave it out",
        ),
        (
            clerk().tools(Wrapped(builder().build().unwrap().as_tool("billing", "Bills"))),
            "the agent `clerk` has a tool that contains an agent, whose own calls would not be recorded: add the agent itself, \
             and judge its calls by a layer",
        ),
        (builder(), "a durable agent needs a name, by which clients ask it; set `.name(\"clerk\")`"),
        (
            builder().name("my clerk"),
            "the engine does not accept the name `my clerk`: it must begin with a letter and consist of letters, \
             digits, `.`, `_` and `-`",
        ),
    ];
    for (agent, expected) in table {
        assert_eq!(refuse(agent), expected);
    }
    let billing = ToolSet::default().with(builder().build().unwrap().as_tool("ask", "Bills")).unwrap();
    let renamed = Worker::tools_only("shop", billing.prefix("billing_").unwrap());
    let expected = "the tools `shop` cannot be executed: the tool `billing_ask` is an agent, whose run is driven by the worker \
                    that asks it: leave it out, and do not name it in `tools_at`";
    assert_eq!(renamed.endpoint().err().unwrap().to_string(), expected);
    let billing = builder().tools(tools![long]).build().unwrap().as_tool("billing", "Bills");
    for routed in ["billing", "long"] {
        let clerk = clerk().tools(billing.clone()).build().unwrap();
        let worker = Worker::new().agent(clerk).tools_at("shop", [routed]);
        let expected = format!(
            "the agent `clerk` has an agent as a tool, and `tools_at` names `{routed}`, which is this tool or one of that \
             agent: leave it out of `tools_at`"
        );
        assert_eq!(worker.endpoint().err().unwrap().to_string(), expected);
    }
    let twice = Worker::new().agent(clerk().build().unwrap()).agent(clerk().build().unwrap());
    assert_eq!(twice.endpoint().err().unwrap().to_string(), "two parts of the worker have the name `clerk`");
    let empty = Worker::new().endpoint().err().unwrap().to_string();
    assert_eq!(empty, "the worker has nothing to execute; add an agent with `.agent(agent)`");
}

#[tokio::test]
async fn a_client_reports_what_is_wrong_before_or_without_a_server() {
    for url in ["localhost:8080", "ftp://localhost", "", "http://"] {
        let error = Client::connect(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
    }
    let address = free_address();
    let clerk = Client::connect(&format!("http://{address}")).unwrap().agent("clerk");
    let error = clerk.ask("Hello").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    let expected = format!(
        "no Restate server can be reached at http://{address}/; start one with `npx @restatedev/restate-server`"
    );
    assert_eq!(error.to_string(), expected);
    let error = clerk.ask("x".repeat(17 << 20)).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let error = clerk.ask("Hello").key("").send().await.unwrap_err();
    assert_eq!(error.to_string(), "the key of a run must not be empty");
}

/// A server before 1.7 takes the first segment of the path for the name of a service.
#[tokio::test]
async fn a_server_that_is_too_old_is_named() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let _ = stream.read(&mut request).await.unwrap();
        let body = r#"{"message":"service 'restate' not found, make sure to register the service"}"#;
        let head = format!(
            "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    });
    let error = Client::connect(&url).unwrap().agent("clerk").ask("Hello").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServerTooOld, "{error}");
    assert!(error.to_string().contains("must be 1.7 or newer"), "{error}");
}

/// For a hosted server, or for a proxy in front of it.
#[tokio::test]
async fn a_client_sends_its_headers() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::connect(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let client = client.header("authorization", "Bearer k3y").unwrap().header("x-team", "desk").unwrap();
    assert!(!format!("{client:?}").contains("k3y"));
    let received = async || {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    };
    let (asked, sent) = tokio::join!(received(), client.agent("clerk").ask("Hello").send());
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::Connect);
    let admin = format!("http://{}", listener.local_addr().unwrap());
    let (registers, registered) = tokio::join!(received(), client.register(&admin, "http://worker:9080"));
    assert_eq!(registered.unwrap_err().kind(), ErrorKind::Connect);
    for request in [asked, registers] {
        assert!(request.contains("\r\nauthorization: Bearer k3y\r\nx-team: desk\r\n"), "{request}");
    }
    let error = client.header("x-team", "a\nb").unwrap_err();
    assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::InvalidInput, "invalid header `x-team`"));
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn unknown_agents_and_runs_are_named() {
    let error = agent("nobody").ask("Hello").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownAgent, "{error}");
    assert!(error.to_string().contains("no registered worker has the agent `nobody`"), "{error}");
    let name = unique("clerk");
    let _worker = serve(Worker::new().agent(builder().name(&*name).build().unwrap())).await;
    let run = client().agent(&*name).run("never-started");
    let expected = format!("the agent `{name}` has no run `never-started`");
    for error in [run.wait().await.unwrap_err(), run.cancel().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::UnknownRun, "{error}");
        assert_eq!(error.to_string(), expected);
    }
    let wait = "0123";
    for error in
        [run.decide(wait, Decision::approve()).await.unwrap_err(), run.say("Hello").await.unwrap_err()]
    {
        assert_eq!(error.to_string(), expected);
    }
}

/// Calls can be invoked by runs only, and so can the handlers that move messages.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn private_handlers_cannot_be_reached_from_outside() {
    let name = unique("clerk");
    let _worker = serve(Worker::new().agent(builder().name(&*name).build().unwrap())).await;
    let ingress = std::env::var("RESTATE_INGRESS").unwrap();
    let http = http();
    for path in [
        format!("{name}.calls/call"),
        format!("{name}.conversations/c/append"),
        format!("{name}/k/first_stop"),
    ] {
        let sent =
            http.post(format!("{ingress}/restate/call/{path}")).header("content-type", "application/json");
        let response = sent.body("{}").send().await.unwrap();
        let (status, body) = (response.status(), response.text().await.unwrap());
        assert_eq!(status, 400, "{path}: {body}");
        assert!(body.contains("not public"), "{path}: {body}");
    }
}

#[tool("Returns a long text")]
fn long(bytes: usize) -> String {
    "x".repeat(bytes)
}

/// The engine would refuse the value and try again without end.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_value_that_is_too_large_ends_its_run() {
    for is_local in [false, true] {
        let name = unique("clerk");
        let model = ScriptedModel::new().calls("long", r#"{"bytes": 200000}"#).says("y".repeat(200_000));
        let clerk = Agent::builder(model).name(&*name).tools(tools![long]).build().unwrap();
        let worker = Worker::new().agent(clerk).max_value_bytes(100_000);
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        for expected in ["the output of the tool has ", "the reply of the model has "] {
            let failure = failure(&agent(&name).ask("Go").send().await.unwrap()).await;
            assert!(failure.message.contains(expected), "{}", failure.message);
            assert!(failure.message.contains(" bytes, more than the "), "{}", failure.message);
        }
        let failure = failure(&agent(&name).ask("x".repeat(200_000)).send().await.unwrap()).await;
        assert!(failure.message.starts_with("the run with its history has "), "{}", failure.message);
    }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_failure_that_is_larger_than_a_value_has_its_records() {
    let name = unique("clerk");
    let long = |bytes| ("long", format!(r#"{{"bytes": {bytes}}}"#));
    let model = ScriptedModel::new().calls_all([long(40_000), long(40_001), long(40_002)]).fails("dead");
    let clerk = Agent::builder(model).name(&*name).tools(tools![long]).build().unwrap();
    let _worker = serve(Worker::new().model_attempts(1).agent(clerk).max_value_bytes(100_000)).await;
    let failure = failure(&agent(&name).ask("Go").events().send().await.unwrap()).await;
    assert!(failure.message.contains("dead"), "{}", failure.message);
    let lengths: Vec<_> =
        failure.tool_executions.iter().map(|one| one.output().unwrap().to_string().len()).collect();
    assert_eq!(lengths, [40_000, 40_001, 40_002]);
}

/// Also if it waited for a person, and adds its messages to the conversation later.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn an_answer_that_is_larger_than_a_value_is_stored_in_parts() {
    for needs_approval in [false, true] {
        let name = unique("clerk");
        let call = |bytes| ("long", format!(r#"{{"bytes": {bytes}}}"#));
        let calls = [call(40_000), call(40_001)];
        let model = ScriptedModel::new().calls_all(calls);
        let model = if needs_approval { model.calls("ask_person", "{}") } else { model };
        let model = model.calls("long", r#"{"bytes": 40002}"#).says("Done – ä.");
        let clerk = Agent::builder(model).name(&*name).tools(tools![long, ask_person]).build().unwrap();
        let _worker = serve(Worker::new().agent(clerk).max_value_bytes(100_000)).await;
        let run = agent(&name).ask("Go").conversation("c").send().await.unwrap();
        if needs_approval {
            let calls = waiting_calls(&run).await;
            run.decide(&calls[0].id, Decision::approve()).await.unwrap();
        }
        let answer = within("the answer", answer(&run)).await;
        assert_eq!(answer.text(), "Done – ä.");
        let texts = |messages: &[tool_core::Message]| -> Vec<usize> {
            messages.iter().map(|one| one.text().len()).filter(|length| *length >= 40_000).collect()
        };
        assert_eq!(texts(answer.new_messages()), [40_000, 40_001, 40_002]);
        // The conversation is too large to be read at once, which shows that it has the messages.
        let is_stored = async {
            while agent(&name).conversation("c").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within("the messages", is_stored).await;
        let error = agent(&name).conversation("c").await.unwrap_err().to_string();
        assert!(error.starts_with("the conversation has 120"), "{error}");
    }
}

/// Its tools are known only when the model is asked.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_provider_that_offers_an_agent_fails_the_run() {
    let name = unique("clerk");
    let provide = |_: &ToolProviderRequest<'_>| {
        ToolSet::default().with(builder().build().unwrap().as_tool("billing", "Bills")).unwrap()
    };
    let model = ScriptedModel::new().calls("billing", r#"{"question": "Why?"}"#).says("Done.");
    let clerk = Agent::builder(model).name(&*name).tool_provider(provide).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let failure = failure(&agent(&name).ask("Go").send().await.unwrap()).await;
    let expected = "the tool `billing` of a provider is an agent, which another worker could not find for its next step; add it \
                    to the agent with `.tools(..)`";
    assert_eq!(failure.message, expected);
}

#[test]
fn an_invalid_key_of_a_server_is_refused() {
    let worker = Worker::new().agent(builder().name("clerk").build().unwrap()).identity_key("abc");
    let error = worker.endpoint().err().unwrap().to_string();
    assert!(error.starts_with("invalid key of a server, `abc`: "), "{error}");
}

/// The server of the tests signs nothing.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_worker_with_a_key_refuses_requests_that_are_not_signed() {
    let key = "publickeyv1_w7YHemBctH5Ck2nQRQ47iBBqhNHy4FV7t2Usbye2A6f";
    let worker = Worker::new().agent(builder().name(unique("clerk")).build().unwrap()).identity_key(key);
    let worker = serve_at(worker, free_address()).await;
    let error = register(&admin(), &format!("http://{}", worker.address)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Server);
    assert!(error.to_string().contains("401"), "{error}");
}

#[tool("Needs a person", needs_approval)]
fn ask_person() {}

static STUCK: AtomicU32 = AtomicU32::new(0);

#[tool("Never returns")]
async fn stuck() {
    STUCK.fetch_add(1, Ordering::SeqCst);
    std::future::pending().await
}

/// One request after the other, each by its name, to an agent with a run that waits for a person.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn every_request_ends_if_no_worker_lives() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("ask_person", "{}");
    let clerk = Agent::builder(model).name(&*name).tools(tools![ask_person]).build().unwrap();
    let worker = serve(Worker::new().agent(clerk)).await;
    let key = "waits";
    let waiting = agent(&name).ask("Go").key(key).events().send().await.unwrap();
    waiting_calls(&waiting).await;
    drop(worker);
    let clerk = client().timeout(Duration::from_millis(500)).agent(&*name);
    let run = clerk.run(key);
    let no_response = |limit| format!("there was no response within {limit}; check that a worker lives");
    let wait = "0123";
    let calls: [(&str, BoxFuture<'_, Result<(), tool_restate::Error>>); 6] = [
        ("decide", run.decide(wait, Decision::approve()).map_ok(drop).boxed()),
        ("say", run.say("No").boxed()),
        ("resume", run.resume().boxed()),
        ("cancel", run.cancel().boxed()),
        ("conversation", clerk.conversation("c").map_ok(drop).boxed()),
        ("events", async { run.events(1000).next().await.map(drop) }.boxed()),
    ];
    for (what, call) in calls {
        let error = within(what, call).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{what}: {error}");
        assert_eq!(error.to_string(), no_response("500ms"), "{what}");
    }
    let run = client().wait_timeout(Duration::from_millis(700)).agent(&*name).run(key);
    assert_eq!(within("wait", run.wait()).await.unwrap_err().to_string(), no_response("700ms"));
    assert_eq!(within("next", run.events(1000).next()).await.unwrap_err().to_string(), no_response("700ms"));
    // Without a limit of its own, waiting ends as well.
    let run = client().timeout(Duration::from_millis(500)).agent(&*name).run(key);
    assert_eq!(within("wait", run.wait()).await.unwrap_err().to_string(), no_response("60.5s"));
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_killed_run_ends_those_who_wait_for_it() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("stuck", "{}");
    let clerk = Agent::builder(model).name(&*name).tools(tools![stuck]).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let run = agent(&name).ask("Go").events().send().await.unwrap();
    // One client waits already: it does not see the call, about which a person has decided.
    while STUCK.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let waiting = tokio::spawn({
        let run = run.clone();
        async move { run.wait().await }
    });
    let reading = tokio::spawn({
        let mut events = run.events(0);
        async move {
            while events.next().await?.is_some() {}
            Ok::<_, tool_restate::Error>(())
        }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    end_by_engine("kill", &name, run.key()).await;
    let expected = format!(
        "the run `{}` of the agent `{name}` was killed by the tools of the engine; nothing was undone",
        run.key()
    );
    let errors = [
        within("one that waited", waiting).await.unwrap().unwrap_err(),
        within("a reader", reading).await.unwrap().unwrap_err(),
        within("one that waits later", run.wait()).await.unwrap_err(),
        run.peek().await.unwrap_err(),
        run.cancel().await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Killed, "{error}");
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(open_invocations(&name, run.key()).await, 0);
}

/// The engine would repeat the call without end.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_hook_that_panics_at_a_call_ends_its_run() {
    for is_local in [false, true] {
        let name = unique("clerk");
        let model = ScriptedModel::new().calls("long", r#"{"bytes": 1}"#);
        let clerk = Agent::builder(model).name(&*name).tools(tools![long]);
        let clerk = clerk.on_event(|event| {
            assert!(!matches!(event, Event::CallStarted(_)), "the line is dead");
        });
        let worker = Worker::new().agent(clerk.build().unwrap());
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        let run = agent(&name).ask("Go").send().await.unwrap();
        let failure = within("the failure", failure(&run)).await;
        let expected = "the tool `long` ended the run: the agent panicked: the line is dead";
        assert_eq!(failure.message, expected);
    }
}
