//! Sessions belong to the token or the user that began them, and calls to their user.

use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use tool_core::agent::{RunInfo, RunResources, RunSetup};
use tool_core::model::RunUser;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, tool, tools};
use tool_mcp::server::Server;

use super::client::http;
use super::guarding::{initialize, post};
use super::tools::sum;

async fn send(request: RequestBuilder, token: &str, session: &str) -> (u16, String) {
    let response: Response =
        request.bearer_auth(token).header("mcp-session-id", session).send().await.unwrap();
    let status = response.status().as_u16();
    // The body of a stream has no end.
    let body = if status == 200 { String::new() } else { response.text().await.unwrap() };
    (status, body)
}

#[tokio::test]
async fn a_session_exists_only_for_its_token() {
    let server = Server::new(tools![sum]).bearer_token("owner").bearer_token("other");
    let server = server.spawn("127.0.0.1:0").await.unwrap();
    let url = server.url();
    let response = initialize(&url).bearer_auth("owner").send().await.unwrap();
    let session = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
    assert_eq!(send(post(&url, initialized.clone()), "owner", &session).await.0, 202);
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }).to_string();
    let stream = || http().get(&url).header("accept", "text/event-stream");
    let requests: [&dyn Fn() -> RequestBuilder; 3] =
        [&|| http().delete(&url), &stream, &|| stream().header("last-event-id", "0")];
    for request in requests {
        let foreign = send(request(), "other", &session).await;
        assert_eq!(foreign, (404, "Not Found: Session not found".to_owned()));
        assert_eq!(foreign, send(request(), "other", "unknown").await);
    }
    for body in [&list, &initialized] {
        let foreign = send(post(&url, body.clone()), "other", &session).await;
        assert_eq!(foreign, (404, "Not Found: Session not found".to_owned()));
        assert_eq!(foreign, send(post(&url, body.clone()), "other", "unknown").await);
    }
    // The session is untouched.
    assert_eq!(send(post(&url, list.clone()), "owner", &session).await.0, 200);
    assert_eq!(send(http().delete(&url), "owner", &session).await.0, 202);
    assert_eq!(send(post(&url, list), "owner", &session).await.0, 404);
    assert_eq!(send(http().delete(&url), "owner", &session).await.0, 404);
}

#[tool]
fn whoami(#[inject] user: &RunUser) -> String {
    format!("you are {user}")
}

/// Opens a run for each user.
struct Users;

impl RunSetup for Users {
    async fn open(&self, run: &RunInfo) -> Result<RunResources, Box<dyn std::error::Error + Send + Sync>> {
        match run.user().map(RunUser::as_str) {
            Some("ada") => Ok(RunResources::new()),
            _ => Err("nobody asks".into()),
        }
    }
}

#[tokio::test]
async fn a_call_is_of_the_user_of_its_request() {
    let model = ScriptedModel::new().calls("whoami", "{}").says("Done.");
    let helper = Agent::builder(model).tools(tools![whoami]).run_setup(Users).build().unwrap();
    let server = Server::new(tools![whoami].with(helper.as_tool("helper", "Helps")).unwrap());
    let server = server.user(|headers| Some(RunUser::new(headers.get("x-user")?.to_str().ok()?)));
    let server = server.spawn("127.0.0.1:0").await.unwrap();
    let url = server.url();
    let begin = initialize(&url).header("x-user", "ada").send().await.unwrap();
    let session = begin.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let call = async |user: &str, tool: &str, arguments: Value| {
        let params = json!({ "name": tool, "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": tool, "method": "tools/call", "params": params });
        let request = post(&url, call.to_string()).header("x-user", user).header("mcp-session-id", &session);
        request.send().await.unwrap().text().await.unwrap()
    };
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
    let initialized = post(&url, initialized).header("x-user", "ada").header("mcp-session-id", &session);
    assert_eq!(initialized.send().await.unwrap().status(), 202);
    let own = call("ada", "whoami", json!({})).await;
    assert!(own.contains("you are ada"), "{own}");
    let inside = call("ada", "helper", json!({ "question": "Who am I?" })).await;
    assert!(inside.contains("Done."), "{inside}");
    // The user's word in the arguments is refused, and the session of a user is no other's.
    let forged = call("ada", "whoami", json!({ "user": "grace" })).await;
    assert!(forged.contains("isError\":true"), "{forged}");
    assert_eq!(call("eve", "whoami", json!({})).await, "Not Found: Session not found");

    let anybody = initialize(&url).send().await.unwrap();
    let session = anybody.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let params = json!({ "name": "whoami", "arguments": {} });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let request = post(&url, request.to_string()).header("mcp-session-id", session);
    let nobody = request.send().await.unwrap().text().await.unwrap();
    assert!(nobody.contains("isError\":true") && !nobody.contains("you are"), "{nobody}");
}
