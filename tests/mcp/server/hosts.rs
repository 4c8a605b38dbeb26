//! A call ends alike for every host, whatever it waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction, Implementation,
};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, ErrorData, RoleClient};
use serde_json::{Value, json};
use tool_core::agent::on_approval;
use tool_core::memory::InMemoryStore;
use tool_core::model::RunUser;
use tool_core::run::Decision;
use tool_core::signatures::Timestamp;
use tool_core::tool::Asker;
use tool_core::{ToolContext, ToolError, tool, tools};
use tool_mcp::server::{RunningServer, Server};

use super::client::{Connection, connect_http, params, text};
use super::newest;
use super::tasks::{about, follows_tasks, send, spawn, task_id};

#[tool("Asks, with a default")]
async fn greet(#[inject] user: &Asker) -> Result<String, ToolError> {
    Ok(format!("hello {}", user.ask::<String>("What is your name?").default("you").await?))
}

#[tool("Asks, without a default")]
async fn register(#[inject] user: &Asker) -> Result<String, ToolError> {
    Ok(format!("registered {}", user.ask::<String>("What is your name?").await?))
}

#[tool("Fails once", attempts = 2)]
fn attempt(#[inject] attempts: &Arc<AtomicU32>) -> Result<String, ToolError> {
    match attempts.fetch_add(1, Ordering::SeqCst) % 2 {
        0 => Err(ToolError::failed("not yet")),
        _ => Ok("done".into()),
    }
}

#[tool("Asks, and then fails once", attempts = 2)]
async fn order(#[inject] user: &Asker, #[inject] attempts: &Arc<AtomicU32>) -> Result<String, ToolError> {
    let name: String = user.ask("What is your name?").default("you").await?;
    match attempts.fetch_add(1, Ordering::SeqCst) % 2 {
        0 => Err(ToolError::failed("not yet")),
        _ => Ok(format!("ordered for {name}")),
    }
}

#[tool("Pays a bill", needs_approval)]
fn pay(cents: u32) -> String {
    format!("paid {cents}")
}

#[tool("Parks its call for a moment")]
async fn park(#[inject] user: &Asker) -> Result<String, ToolError> {
    match user.parked::<u32>()? {
        Some(state) => Ok(format!("parked {state}")),
        None => Err(user.park(&7, Timestamp::now()).await.into()),
    }
}

#[tool("Refuses")]
fn refuse() -> Result<String, ToolError> {
    Err(ToolError::failed("the shop is closed"))
}

/// What a host can do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Host {
    /// It sends the answers with the sealed state of the call.
    Newest,
    /// It is asked while the call is open.
    Older,
    FollowsTasks,
    /// It shows no forms.
    CannotAsk,
}

impl Host {
    const ALL: [Self; 4] = [Self::Newest, Self::Older, Self::FollowsTasks, Self::CannotAsk];
}

/// A client of an older revision whose user is Ada.
#[derive(Clone)]
struct Ada;

impl ClientHandler for Ada {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("tests", "1"))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "answer": "Ada" })))
    }
}

/// Answers all that is asked for.
fn answers(requests: &Value) -> Value {
    let accepted = json!({ "action": "accept", "content": { "answer": "Ada" } });
    let requests = requests.as_object().unwrap().keys();
    requests.map(|key| (key.clone(), accepted.clone())).collect::<serde_json::Map<_, _>>().into()
}

/// Returns the text of a complete result, and `true` if it is an error.
fn outcome(result: &Value) -> (String, bool) {
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"));
    (text.to_owned(), result["isError"] == true)
}

async fn call(host: Host, server: &RunningServer, tool: &str, arguments: Value) -> (String, bool) {
    let url = server.url();
    let capabilities = match host {
        Host::Older => {
            let client = connect_http(&url, None, Connection::Http, Ada).await.unwrap();
            return text(&client.call_tool(params(tool, arguments)).await.unwrap());
        }
        Host::Newest => json!({ "elicitation": {} }),
        Host::FollowsTasks => follows_tasks(),
        Host::CannotAsk => json!({}),
    };
    let mut params = json!({ "name": tool, "arguments": arguments });
    loop {
        let message = send(&url, "ada", "tools/call", params.clone(), capabilities.clone()).await;
        match message["result"]["resultType"].as_str() {
            Some("input_required") => {
                assert_eq!(host, Host::Newest, "{message}");
                params["requestState"] = message["result"]["requestState"].clone();
                params["inputResponses"] = answers(&message["result"]["inputRequests"]);
            }
            Some("task") => {
                assert_eq!(host, Host::FollowsTasks, "{message}");
                return follow(&url, &task_id(&message)).await;
            }
            _ => return (newest::output(&message).to_owned(), outcome(&message["result"]).1),
        }
    }
}

/// Follows a task to its end.
async fn follow(url: &str, id: &str) -> (String, bool) {
    loop {
        let task = about(url, "ada", "tasks/get", id, json!({})).await["result"].take();
        match task["status"].as_str() {
            Some("input_required") => {
                let more = json!({ "inputResponses": answers(&task["inputRequests"]) });
                about(url, "ada", "tasks/update", id, more).await;
            }
            Some("working") => tokio::task::yield_now().await,
            _ => return outcome(&task["result"]),
        }
    }
}

#[tokio::test]
async fn a_call_ends_alike_for_every_host() {
    let decider = on_approval(|call| match &*call.arguments {
        r#"{"cents":1}"# => Decision::approve(),
        r#"{"cents":2}"# => Decision::approve_with(r#"{"cents": 20}"#),
        _ => Decision::deny("too much"),
    });
    let long = ["greet", "register", "attempt", "order", "pay", "park", "refuse"];
    let server = Server::new(tools![greet, register, attempt, order, pay, park, refuse])
        .context(ToolContext::new().with(Arc::<AtomicU32>::default()))
        .user(|_| Some(RunUser::new("ada")))
        .decider(decider)
        .tasks(InMemoryStore::new());
    let server = spawn(long.into_iter().fold(server, Server::long_call)).await;
    let nobody = "the tool has to ask the user, and nobody can be asked here: the host has not declared that it \
                  shows forms to its user";
    // A host that cannot ask gets the default, or reads why there is no answer. Parking needs an `Asker` that can ask, too.
    let table = [
        ("greet", json!({}), ("hello Ada", false), Some(("hello you", false))),
        ("register", json!({}), ("registered Ada", false), Some((nobody, true))),
        ("attempt", json!({}), ("done", false), None),
        ("order", json!({}), ("ordered for Ada", false), Some(("ordered for you", false))),
        ("pay", json!({ "cents": 1 }), ("paid 1", false), None),
        ("pay", json!({ "cents": 2 }), ("paid 20", false), None),
        ("pay", json!({ "cents": 3 }), ("the call was denied: too much", true), None),
        ("park", json!({}), ("parked 7", false), Some((nobody, true))),
        ("refuse", json!({}), ("the shop is closed", true), None),
    ];
    for (tool, arguments, expected, unable) in table {
        for host in Host::ALL {
            let called = call(host, &server, tool, arguments.clone());
            let (text, is_error) = tokio::time::timeout(Duration::from_secs(120), called).await.unwrap();
            let expected = unable.filter(|_| host == Host::CannotAsk).unwrap_or(expected);
            assert_eq!((&*text, is_error), expected, "{tool} {arguments} for {host:?}");
        }
    }
    server.stop().await.unwrap();
}
