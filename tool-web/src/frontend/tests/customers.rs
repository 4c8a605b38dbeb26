//! Chats of a product: customers who log in, answer the questions of their own runs, and approve what the author names; staff who
//! decide the rest. The attacker is another customer, or the customer herself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use http::HeaderMap;
use serde_json::{Value, json};
use tokio::time::timeout;
use tool_core::agent::AgentBuilder;
use tool_core::memory::{ChatMemory, InMemoryStore, RunFilter, RunStatus};
use tool_core::model::{ToolDefinition, ToolPolicy};
use tool_core::run::{Decision, Run};
use tool_core::store::RunStore;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Asker, ExternalTool};
use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest, provide};
use tool_core::{Agent, ToolError, tool, tools};
use tool_offline::OfflineModel;
use tower_service::Service;

use crate::frontend::Frontend;
use crate::{Principal, Right, Web};

#[tool("Pays", needs_approval)]
fn pay(euros: u32) -> String {
    format!("paid {euros}")
}

#[tool("Cancels", needs_approval)]
fn cancel(order: u32, #[inject] executed: &Arc<AtomicU32>) -> String {
    executed.fetch_add(1, Ordering::SeqCst);
    format!("cancelled {order}")
}

#[tool("Asks")]
async fn choose(#[inject] asker: &Asker) -> Result<String, ToolError> {
    let size: String = asker.ask("Which size?").choices(["small", "large"]).await?;
    Ok(format!("chose {size}"))
}

/// A model that makes one call of this tool in each run.
fn calling(tool: &str, arguments: &str) -> ScriptedModel {
    (0..4).fold(ScriptedModel::new(), |model, _| model.calls(tool, arguments).says("Done."))
}

fn web(agent: Agent) -> Web {
    Web::new().agent(agent).authentication(|headers: &HeaderMap| {
        let name = headers.get("x-user")?.to_str().ok()?;
        let staff = [Right::Read, Right::Decide, Right::Chat];
        Some(match name {
            "staff" => Principal::new(name, staff),
            _ => Principal::new(name, [Right::Chat]),
        })
    })
}

fn desk(agent: AgentBuilder) -> Web {
    web(agent.run_store(InMemoryStore::new()).build().unwrap())
}

async fn send(chats: &Frontend, user: &str, head: &str, body: Value) -> (u16, String) {
    let (method, path) = head.split_once(' ').unwrap();
    let request = http::Request::builder().method(method).uri(path).header("host", "localhost");
    let request = request.header("content-type", "application/json").header("x-user", user);
    let response = chats.clone().call(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = to_bytes(Body::new(response.into_body()), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn ask(chats: &Frontend, user: &str, text: &str) -> (u16, String) {
    let message = json!({ "role": "user", "parts": [{ "type": "text", "text": text }] });
    send(chats, user, "POST /", json!({ "id": "c", "messages": [message] })).await
}

/// Approves the call of a wait.
async fn approve(chats: &Frontend, user: &str, wait: &str) -> (u16, String) {
    let part = json!({ "type": "tool-x", "state": "approval-responded", "approval": { "id": wait, "approved": true } });
    send(chats, user, "POST /", json!({ "id": "c", "messages": [{ "role": "assistant", "parts": [part] }] }))
        .await
}

#[tool("Cancels an order", needs_approval)]
fn cancel_order(order: u32) -> String {
    format!("Order {order} is cancelled.")
}

/// Returns the blocks of the page on web frontends that begin like this.
fn documented(begin: &str) -> impl Iterator<Item = &'static str> {
    let blocks = include_str!("../../../docs/frontends.md").split("```").skip(1).step_by(2);
    blocks.filter_map(move |block| {
        block.split_once('\n').map(|(_, text)| text).filter(|text| text.starts_with(begin))
    })
}

/// Sends what the page on web frontends documents, and compares what it documents of the responses.
#[tokio::test]
async fn the_documented_streams_are_sent() {
    let web = || desk(Agent::builder(OfflineModel::new()).tools(tools![cancel_order]));
    for (chats, request, response) in [
        (web().ui_stream("agent").unwrap(), r#"{ "id": "main""#, r#"data: {"type":"start""#),
        (web().ag_ui("agent").unwrap(), r#"{ "threadId""#, r#"data: {"type":"RUN_STARTED""#),
    ] {
        let chats = chats.approvable_tools(["cancel_order"]).unwrap();
        let exchanges: Vec<_> = documented(request).zip(documented(response)).collect();
        let [(question, asking), (approval, done)] = exchanges[..] else { panic!("{exchanges:?}") };
        let send = async |request: &str| {
            let request = serde_json::from_str(request).unwrap();
            send(&chats, "ada", "POST /", request).await.1
        };
        let asked = send(question).await;
        let (run, wait) = waiting(&chats).await;
        let decided = send(&approval.replace("9a037d60", &wait)).await;
        for (sent, expected) in [(asked, asking), (decided, done)] {
            let sent = sent.replace(run.id().as_str(), "run_27d1").replace(&wait, "9a037d60");
            let events: Vec<_> = sent.lines().filter(|line| line.starts_with("data: ")).collect();
            assert_eq!(
                without_deltas(&events.join("\n")),
                without_deltas(&expected.replace("\n       ", ""))
            );
        }
    }
}

/// Leaves out how a reply is divided, which depends on when it is read.
fn without_deltas(events: &str) -> Vec<String> {
    let is_delta =
        |line: &&str| ["inputTextDelta", "text-delta", "_CONTENT"].iter().any(|part| line.contains(part));
    events.lines().filter(|line| !is_delta(line)).map(str::to_owned).collect()
}

async fn ask_ag_ui(chats: &Frontend, user: &str, resume: Value) -> String {
    let message = json!({ "role": "user", "content": "Go" });
    let body = json!({ "threadId": "c", "runId": "r", "messages": [message], "resume": resume });
    send(chats, user, "POST /", body).await.1
}

/// On the one thread of the test, the run of the last question begins, and is stored, after a reader has come.
#[tokio::test]
async fn a_reader_that_comes_before_a_run_is_stored_gets_the_conversation() {
    let model = ScriptedModel::new().says("First.").says("Second.");
    let chats = desk(Agent::builder(model)).ag_ui("agent").unwrap();
    let begin = async |head: &str, text: &str| {
        let (method, path) = head.split_once(' ').unwrap();
        let request = http::Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.header("content-type", "application/json").header("x-user", "ada");
        let message = json!({ "role": "user", "content": text });
        let body = json!({ "threadId": "c", "runId": "r", "messages": [message] }).to_string();
        chats.clone().call(request.body(Body::from(body)).unwrap()).await.unwrap().into_body()
    };
    let read = async |body| {
        String::from_utf8(to_bytes(Body::new(body), usize::MAX).await.unwrap().to_vec()).unwrap()
    };
    read(begin("POST /", "One?").await).await;
    let _running = begin("POST /", "Two?").await;
    assert_eq!(
        chats.chats.source.store.list_runs(&RunFilter::new()).await.unwrap().len(),
        1,
        "the first run"
    );
    let events = read(begin("GET /c/stream", "").await).await;
    let snapshot = events
        .lines()
        .find_map(|line| line.strip_prefix("data: ").filter(|line| line.contains("MESSAGES_SNAPSHOT")));
    let snapshot: Value = serde_json::from_str(snapshot.expect(&events)).unwrap();
    let texts: Vec<_> =
        snapshot["messages"].as_array().unwrap().iter().map(|message| &message["content"]).collect();
    assert_eq!(texts, ["One?", "First.", "Two?"]);
}

async fn messages(chats: &Frontend, user: &str) -> Value {
    let (status, messages) = send(chats, user, "GET /c/messages", json!(null)).await;
    assert_eq!(status, 200, "{messages}");
    serde_json::from_str(&messages).unwrap()
}

/// Returns the only run that waits, and the id of the only thing that it waits for.
async fn waiting(chats: &Frontend) -> (Run, String) {
    let store = &chats.chats.source.store;
    let waiting = store.list_runs(&RunFilter::new().status(RunStatus::Waiting)).await.unwrap();
    let [listed] = &waiting[..] else { panic!("{waiting:?}") };
    let run = store.load_run(&listed.id).await.unwrap().unwrap();
    let wait = run.waits().remove(0).id.to_string();
    (run, wait)
}

#[tokio::test]
async fn a_customer_approves_nothing_by_default() {
    let web = || desk(Agent::builder(calling("pay", r#"{"euros": 80}"#)).tools(tools![pay]));
    let staff = web().ui_stream("agent").unwrap();
    let web = web();
    let (chats, ag_ui) = (web.ui_stream("agent").unwrap(), web.ag_ui("agent").unwrap());
    let (_, shown) = ask(&chats, "ada", "Go").await;
    assert!(!shown.contains("tool-approval-request"), "{shown}");
    let pending = r#""output":"waiting for a decision""#;
    assert!(shown.contains(pending), "{shown}");
    let (_, wait) = waiting(&chats).await;
    let refused = (409, "the run does not wait for what was sent".to_owned());
    assert_eq!(approve(&chats, "ada", &wait).await, refused);
    let resume = json!([{ "interruptId": wait, "status": "resolved", "payload": { "approved": true } }]);
    let error = ask_ag_ui(&ag_ui, "ada", resume).await;
    assert!(error.contains("the run does not wait for what was sent"), "{error}");
    assert_eq!(waiting(&chats).await.1, wait);
    // The staff sees and decides it in a chat of its own.
    let (_, shown) = ask(&staff, "staff", "Go").await;
    assert!(shown.contains("tool-approval-request"), "{shown}");
}

#[tokio::test]
async fn a_customer_approves_calls_of_named_tools_as_they_are() {
    let executed = Arc::new(AtomicU32::new(0));
    let agent = Agent::builder(calling("cancel", r#"{"order": 7}"#)).tools(tools![cancel]);
    let web = desk(agent.context(Arc::clone(&executed)));
    let chats = web.ui_stream("agent").unwrap().approvable_tools(["cancel"]).unwrap();
    let ag_ui = web.ag_ui("agent").unwrap().approvable_tools(["cancel"]).unwrap();
    let (_, shown) = ask(&chats, "ada", "Go").await;
    assert!(shown.contains("tool-approval-request"), "{shown}");
    let (_, wait) = waiting(&chats).await;
    let (status, done) = approve(&chats, "ada", &wait).await;
    assert!(status == 200 && done.contains("cancelled 7"), "{done}");
    let shown = ask_ag_ui(&ag_ui, "eve", json!([])).await;
    assert!(shown.contains(r#""reason":"tool_call""#) && !shown.contains("editedArgs"), "{shown}");
    let (_, wait) = waiting(&chats).await;
    let edited = json!({ "approved": true, "editedArgs": { "order": 8 } });
    let resume = json!([{ "interruptId": wait, "status": "resolved", "payload": edited }]);
    let error = ask_ag_ui(&ag_ui, "eve", resume).await;
    assert!(error.contains("`eve` may not decide"), "{error}");
    assert_eq!(executed.load(Ordering::SeqCst), 1);
}

/// Its name is known only once a question is asked.
#[tokio::test]
async fn a_customer_approves_calls_of_a_named_tool_of_a_provider() {
    for (name, is_approvable) in [("pay", true), ("pa", false), ("pay ", false)] {
        let agent =
            Agent::builder(calling("pay", r#"{"euros": 80}"#)).tool_provider(provide(|_| tools![pay]));
        let chats = desk(agent).ui_stream("agent").unwrap().approvable_tools([name]).unwrap();
        let (_, shown) = ask(&chats, "ada", "Go").await;
        assert_eq!(shown.contains("tool-approval-request"), is_approvable, "{shown}");
        let (_, wait) = waiting(&chats).await;
        let (status, done) = approve(&chats, "ada", &wait).await;
        assert_eq!(
            (status, done.contains("paid 80")),
            (if is_approvable { 200 } else { 409 }, is_approvable)
        );
    }
}

/// Other agents can have tools of the same name.
#[tokio::test]
async fn a_named_tool_is_the_agents_own() {
    let inner = || {
        let agent = Agent::builder(calling("cancel", r#"{"order": 7}"#)).tools(tools![cancel]);
        agent.context(Arc::new(AtomicU32::new(0))).build().unwrap()
    };
    let outer = || {
        let outer = Agent::builder(calling("helper", r#"{"question": "Cancel"}"#));
        outer.tools(inner().as_tool("helper", "Helps"))
    };
    let handing = || Agent::builder(calling("other", "{}")).handoff_to("other", "Helps", &inner());
    let supplied = |agent: AgentBuilder| agent.tool_provider(provide(|_| tools![cancel]));
    let cases = [
        outer().tools(tools![cancel]),
        handing().tools(tools![cancel]),
        supplied(outer()),
        supplied(handing()),
    ];
    for agent in cases {
        let agent = agent.context(Arc::new(AtomicU32::new(0)));
        let chats = desk(agent).ui_stream("agent").unwrap().approvable_tools(["cancel"]).unwrap();
        let (_, shown) = ask(&chats, "ada", "Go").await;
        assert!(!shown.contains("tool-approval-request"), "{shown}");
        let (_, wait) = waiting(&chats).await;
        assert_eq!(approve(&chats, "ada", &wait).await.0, 409);
        assert_eq!(waiting(&chats).await.1, wait);
    }
}

#[tokio::test]
async fn names_of_other_tools_are_refused() {
    let inner = Agent::builder(calling("cancel", "{}")).tools(tools![cancel]).build().unwrap();
    let web = |agent: AgentBuilder| desk(agent.name("desk"));
    let outer =
        Agent::builder(calling("pay", "{}")).tools(tools![pay]).tools(inner.as_tool("helper", "Helps"));
    let [outer, empty] = [outer, Agent::builder(ScriptedModel::new())].map(web);
    for (web, expected) in [
        (&outer, "the agent `desk` has no tool `cancel` of its own; it has `pay`, `helper`"),
        (&empty, "the agent `desk` has no tool `cancel` of its own; add it with `AgentBuilder::tools`"),
    ] {
        for chats in [web.ui_stream("desk").unwrap(), web.ag_ui("desk").unwrap()] {
            assert_eq!(chats.approvable_tools(["cancel"]).unwrap_err().to_string(), expected);
        }
    }
}

#[tokio::test]
async fn a_customer_neither_reads_nor_decides_the_runs_of_others() {
    let agent = Agent::builder(calling("choose", "{}")).tools(tools![choose]);
    let chats = desk(agent).ui_stream("agent").unwrap();
    ask(&chats, "ada", "Go").await;
    let (run, wait) = waiting(&chats).await;
    let answer = json!({ "type": "tool-ask_user", "state": "output-available", "toolCallId": wait, "output": "large" });
    let answer = |chat: &str| json!({ "id": chat, "messages": [{ "role": "assistant", "parts": [answer] }] });
    for chat in ["c", run.id().as_str()] {
        assert_eq!(send(&chats, "eve", "POST /", answer(chat)).await.0, 404);
        let stop = format!("DELETE /{chat}/stream");
        assert_eq!(send(&chats, "eve", &stop, json!(null)).await.0, 404);
    }
    // Names of users and chats cannot be confused.
    assert_eq!(send(&chats, "ada/c", "POST /", answer("c")).await.0, 404);
    assert_eq!(send(&chats, "eve", "POST /", answer("../ada/c")).await.0, 400);
    assert_eq!(messages(&chats, "eve").await, json!([]));
    assert_eq!(waiting(&chats).await.1, wait);
    let (_, done) = send(&chats, "ada", "POST /", answer("c")).await;
    assert!(done.contains("chose large"), "{done}");
}

/// "How long does it take?" is no denial.
#[tokio::test]
async fn a_message_denies_nothing_that_the_staff_decides() {
    let agent = Agent::builder(calling("pay", r#"{"euros": 80}"#)).tools(tools![pay]);
    let chats = desk(agent).ui_stream("agent").unwrap();
    ask(&chats, "ada", "Refund my order").await;
    let (run, wait) = waiting(&chats).await;
    let (status, shown) = ask(&chats, "ada", "How long does it take?").await;
    assert!(status == 200 && shown.ends_with("data: [DONE]\n\n"), "{shown}");
    let shown = messages(&chats, "ada").await;
    assert_eq!(shown[2]["parts"][0]["text"], "How long does it take?");
    assert_eq!(waiting(&chats).await.1, wait);
    let agent = chats.chats.source.agent.as_ref().unwrap();
    let decided = agent.decide(run.id().as_str(), wait.as_str(), Decision::approve()).await;
    let answer = decided.unwrap().resume().unwrap().await.unwrap();
    let texts: Vec<_> = answer.new_messages().iter().map(|message| message.text().into_owned()).collect();
    assert_eq!(texts, ["Refund my order", "", "paid 80", "How long does it take?", "Done."]);
}

#[tokio::test]
async fn the_arguments_of_an_external_call_are_not_shown_before_its_approval_by_others() {
    let mut policy = ToolPolicy::default();
    policy.needs_approval = true;
    let lookup = ToolDefinition::new("lookup").with_policy(policy);
    let agent = || {
        let model = calling("lookup", r#"{"card": "visa"}"#);
        Agent::builder(model).tools(ExternalTool::new(lookup.clone()))
    };
    for (chats, is_shown) in [
        (desk(agent()).ui_stream("agent").unwrap(), false),
        (desk(agent()).ui_stream("agent").unwrap().approvable_tools(["lookup"]).unwrap(), true),
    ] {
        let (_, shown) = ask(&chats, "ada", "Go").await;
        assert_eq!(shown.contains("visa"), is_shown, "{shown}");
        assert_eq!(messages(&chats, "ada").await.to_string().contains("visa"), is_shown);
    }
}

/// The client knows that the run has ended before its driver has left it.
#[tokio::test(start_paused = true)]
async fn a_message_right_after_the_end_is_a_new_question() {
    let chats =
        desk(Agent::builder(ScriptedModel::new().says("One.").says("Two."))).ui_stream("agent").unwrap();
    assert!(ask(&chats, "ada", "1").await.1.contains("One."));
    let runs = chats.chats.source.store.list_runs(&RunFilter::new()).await.unwrap();
    chats.chats.hub.log(&runs[0].id).unwrap().driver_joined();
    let asked = timeout(Duration::from_secs(60), ask(&chats, "ada", "2")).await;
    let (status, answer) = asked.expect("the message is answered");
    assert!(status == 200 && answer.contains("Two."), "{answer}");
}

/// A browser that is opened again reads the chat, also from another process.
#[tokio::test]
async fn the_messages_of_a_chat_are_read_in_each_process() {
    let (runs, memory) = (InMemoryStore::new(), ChatMemory::in_memory());
    let agent = |model: ScriptedModel| {
        let agent = Agent::builder(model).tools(tools![pay, choose]);
        agent.memory(memory.clone()).run_store(runs.clone()).build().unwrap()
    };
    let one = ScriptedModel::new().calls("choose", "{}").calls("pay", r#"{"euros": 80}"#);
    let other = ScriptedModel::new().says("Noted.").calls("pay", r#"{"euros": 9}"#);
    let one = web(agent(one)).ui_stream("agent").unwrap();
    let other = web(agent(other)).ui_stream("agent").unwrap();
    ask(&one, "ada", "Go").await;
    let shown = messages(&other, "ada").await;
    assert_eq!(shown, messages(&one, "ada").await);
    let user = json!({ "id": "message_0", "role": "user", "parts": [{ "type": "text", "text": "Go" }] });
    assert_eq!(shown[0], user);
    let [step, call, question] = &shown[1]["parts"].as_array().unwrap()[..] else { panic!("{shown}") };
    assert_eq!(step["type"], "step-start");
    assert_eq!((&call["type"], &call["output"]), (&json!("tool-choose"), &json!("waiting for a decision")));
    assert_eq!(question["type"], "tool-ask_user");
    assert_eq!(question["input"]["choices"], json!(["small", "large"]));
    let answer = json!({
        "type": "tool-ask_user", "state": "output-available", "toolCallId": question["toolCallId"], "output": "large",
    });
    let answer = json!({ "id": "c", "messages": [{ "role": "assistant", "parts": [answer] }] });
    let (_, done) = send(&other, "ada", "POST /", answer).await;
    assert!(done.contains("Noted."), "{done}");
    let shown = messages(&one, "ada").await;
    let parts = shown[1]["parts"].as_array().unwrap();
    assert_eq!(
        (&parts[1]["state"], &parts[1]["output"]),
        (&json!("output-available"), &json!("chose large"))
    );
    assert_eq!(parts[3], json!({ "type": "text", "text": "Noted.", "state": "done" }));
    // The first process knows the earlier run, and finds the later one of the other.
    ask(&other, "ada", "Again").await;
    let shown = messages(&one, "ada").await;
    assert_eq!(shown.as_array().unwrap().len(), 4);
    assert_eq!(shown[3]["parts"][1]["input"], json!({ "euros": 9 }));
    assert_eq!(shown[3]["parts"][1]["output"], "waiting for a decision");
    let (status, _) = ask(&one, "ada", "And?").await;
    let finished = RunFilter::new().status(RunStatus::Finished);
    let others = runs.list_runs(&RunFilter::new()).await.unwrap().len()
        - runs.list_runs(&finished).await.unwrap().len();
    assert_eq!((status, others), (200, 1));
}

/// Asks each user to log in before a turn.
struct LoginFirst;

impl ToolProvider for LoginFirst {
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(async {
            let is_logged_in = request.asker().ask::<bool>("Have you logged in?").await;
            Ok(is_logged_in.map_or_else(|_| tools![], |_| tools![choose]))
        })
    }
}

/// A question before a turn stands at no call and in no message of the model.
#[tokio::test]
async fn a_question_before_a_turn_is_shown_again_in_each_process() {
    let runs = InMemoryStore::new();
    let desk = |model: ScriptedModel| {
        web(Agent::builder(model).tool_provider(LoginFirst).run_store(runs.clone()).build().unwrap())
    };
    let [one, other] = [desk(calling("choose", "{}")), desk(calling("choose", "{}"))];
    let chats = one.ui_stream("agent").unwrap();
    let (_, shown) = ask(&chats, "ada", "Go").await;
    let (run, wait) = waiting(&chats).await;
    let question = json!({ "text": "Have you logged in?", "schema": { "type": "boolean" } });
    assert!(shown.contains(&wait) && shown.contains(&question.to_string()), "{shown}");
    let part =
        json!({ "type": "tool-ask_user", "toolCallId": wait, "state": "input-available", "input": question });
    let user = json!({ "id": "message_0", "role": "user", "parts": [{ "type": "text", "text": "Go" }] });
    let id = format!("msg_{}_1", run.id());
    assert!(shown.contains(&json!(id).to_string()), "the stream continues the message");
    let expected = json!([user, { "id": id, "role": "assistant", "parts": [part] }]);
    let interrupt = json!({
        "id": wait, "reason": "input_required", "message": "Have you logged in?", "responseSchema": { "type": "boolean" },
    });
    let open = json!({ "id": "message_0", "role": "user", "content": "Go", "metadata": { "interrupts": [interrupt] } });
    for web in [&one, &other] {
        assert_eq!(messages(&web.ui_stream("agent").unwrap(), "ada").await, expected);
        assert_eq!(messages(&web.ag_ui("agent").unwrap(), "ada").await, json!([open]));
    }
    let resume = json!([{ "interruptId": wait, "status": "resolved", "payload": true }]);
    let done = ask_ag_ui(&other.ag_ui("agent").unwrap(), "ada", resume).await;
    assert!(done.contains("Which size?"), "{done}");
    let shown = messages(&other.ag_ui("agent").unwrap(), "ada").await;
    assert_eq!(shown[1]["metadata"]["interrupts"][0]["message"], "Which size?");
    assert_eq!(shown[1]["toolCalls"][0]["function"]["name"], "choose");
}

#[tool("Books")]
async fn book(#[inject] asker: &Asker) -> Result<String, ToolError> {
    let hold: u32 = asker.once("hold", async { Ok::<_, ToolError>(7) }).await?;
    let size: String = asker.ask("Which size?").await?;
    let is_final: bool = asker.ask(format!("Book {size} of {hold}?")).await?;
    Ok(format!("booked: {is_final}"))
}

/// A server whose user is logged in or not.
struct Tickets(Arc<AtomicU32>);

impl ToolProvider for Tickets {
    fn tools<'a>(&'a self, _: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        let is_logged_in = self.0.load(Ordering::SeqCst) > 0;
        Box::pin(async move { is_logged_in.then(|| tools![book]).ok_or_else(|| "log in first".into()) })
    }
}

/// The earlier failure is no end of the message that goes on with the run, and its question follows a message of the user.
#[tokio::test]
async fn a_run_that_failed_goes_on_with_the_next_message_and_shows_what_it_asks() {
    for protocol in ["ui", "ag_ui"] {
        let (runs, login) = (InMemoryStore::new(), Arc::new(AtomicU32::new(1)));
        let desk = || {
            let agent = Agent::builder(calling("book", "{}")).tool_provider(Tickets(Arc::clone(&login)));
            web(agent.run_store(runs.clone()).build().unwrap())
        };
        ask(&desk().ui_stream("agent").unwrap(), "ada", "Go").await;
        let web = desk();
        let chats = web.ui_stream("agent").unwrap();
        let ag_ui = web.ag_ui("agent").unwrap();
        let (_, wait) = waiting(&chats).await;
        login.store(0, Ordering::SeqCst);
        let resume = json!([{ "interruptId": wait, "status": "resolved", "payload": "small" }]);
        let failed = ask_ag_ui(&ag_ui, "ada", resume).await;
        assert!(failed.contains("the tools are not available"), "{failed}");
        login.store(1, Ordering::SeqCst);
        let shown = match protocol {
            "ui" => ask(&chats, "ada", "Go on").await.1,
            _ => ask_ag_ui(&ag_ui, "ada", json!([])).await,
        };
        assert!(shown.contains("Book small of 7?"), "{shown}");
        let (run, wait) = waiting(&chats).await;
        let shown = messages(&chats, "ada").await;
        assert_eq!(shown[2]["role"], "user");
        assert_eq!(shown[3]["id"], format!("msg_{}_2", run.id()));
        assert_eq!(shown[3]["parts"][0]["toolCallId"], wait);
        let shown = messages(&ag_ui, "ada").await;
        assert_eq!(shown[2]["metadata"]["interrupts"][0]["id"], wait);
        let resume = json!([{ "interruptId": wait, "status": "resolved", "payload": true }]);
        let done = ask_ag_ui(&ag_ui, "ada", resume).await;
        assert!(done.contains("booked: true"), "{done}");
    }
}
