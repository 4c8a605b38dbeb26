//! Responses and paused runs belong to the key that made them, and to its user.

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tool_core::model::RunUser;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ToolCall};
use tool_openai::server::Server;

use crate::caller::{Answer, Caller, http};

/// What distinguishes callers.
#[derive(Clone, Copy)]
enum Owners {
    Keys,
    /// All have the key of a proxy.
    Users,
}

impl Owners {
    fn server(self, server: Server) -> Server {
        match self {
            Self::Keys => server.api_key("sk-owner").api_key("sk-other"),
            Self::Users => server
                .api_key("sk-proxy")
                .user(|headers| Some(RunUser::new(headers.get("x-user")?.to_str().unwrap()))),
        }
    }

    fn sign(self, request: RequestBuilder, who: &str) -> RequestBuilder {
        match self {
            Self::Keys => request.bearer_auth(who),
            Self::Users => request.bearer_auth("sk-proxy").header("x-user", who),
        }
    }

    async fn post(self, caller: &Caller, who: &str, path: &str, body: &Value) -> Answer {
        caller.send(self.sign(caller.request(path, body), who), path).await
    }
}

/// Removes the id from the text of an error.
fn without_id(answer: &Answer, id: &str) -> (u16, String) {
    (answer.status, answer.body.to_string().replace(id, "ID"))
}

#[tokio::test]
async fn a_response_exists_only_for_its_key() {
    a_response_exists_only_for_its_owner(Owners::Keys).await;
}

#[tokio::test]
async fn a_response_exists_only_for_its_user() {
    a_response_exists_only_for_its_owner(Owners::Users).await;
}

async fn a_response_exists_only_for_its_owner(owners: Owners) {
    let model = (0..3).fold(ScriptedModel::new(), |model, _| model.says("Hi."));
    let caller = Caller::new(owners.server(Server::new().model("m", model))).await;
    let first = owners.post(&caller, "sk-owner", "responses", &json!({ "model": "m", "input": "Hi" })).await;
    let id = first.body["id"].as_str().unwrap().to_owned();
    let unknown = "resp_unknown";
    let send = async |method: &str, id: &str, key: &str| {
        let path = format!("responses/{id}");
        let request = http().request(method.parse().unwrap(), caller.url(&path));
        caller.send(owners.sign(request, key), "responses").await
    };
    let next = |id: &str| json!({ "model": "m", "input": "Hi", "previous_response_id": id });
    for method in ["GET", "DELETE"] {
        let foreign = without_id(&send(method, &id, "sk-other").await, &id);
        assert_eq!(foreign.0, 404);
        assert_eq!(foreign, without_id(&send(method, unknown, "sk-other").await, unknown), "{method}");
    }
    let foreign = without_id(&owners.post(&caller, "sk-other", "responses", &next(&id)).await, &id);
    let expected = owners.post(&caller, "sk-other", "responses", &next(unknown)).await;
    assert_eq!((foreign.0, &foreign), (404, &without_id(&expected, unknown)));
    // The owner still has it.
    assert_eq!(send("GET", &id, "sk-owner").await.status, 200);
    assert_eq!(owners.post(&caller, "sk-owner", "responses", &next(&id)).await.status, 200);
    assert_eq!(send("DELETE", &id, "sk-owner").await.status, 200);
    assert_eq!(send("GET", &id, "sk-owner").await.status, 404);
}

#[tokio::test]
async fn a_paused_run_continues_only_for_its_key() {
    a_paused_run_continues_only_for_its_owner(Owners::Keys).await;
}

#[tokio::test]
async fn a_paused_run_continues_only_for_its_user() {
    a_paused_run_continues_only_for_its_owner(Owners::Users).await;
}

async fn a_paused_run_continues_only_for_its_owner(owners: Owners) {
    let calls = [ToolCall::new("a", "locate", "{}")];
    let model = ScriptedModel::new()
        .calls_all(calls.iter().map(|call| (&*call.name, &*call.arguments)))
        .says("As rebuilt.")
        .says("As continued.");
    let agent = Agent::builder(model.clone()).instructions("Secret instructions.").build().unwrap();
    let caller = Caller::new(owners.server(Server::new().agent("agent", agent))).await;
    let tools = json!([{ "type": "function", "function": { "name": "locate" } }]);
    let question = json!({ "role": "user", "content": "Where am I?" });
    let body = json!({ "model": "agent", "messages": [question], "tools": tools });
    let paused = owners.post(&caller, "sk-owner", "chat/completions", &body).await;
    let reply = &paused.body["choices"][0]["message"];
    let result = json!({ "role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "Rome" });
    let body = json!({ "model": "agent", "messages": [question, reply, result], "tools": tools });
    for (key, expected) in [("sk-other", "As rebuilt."), ("sk-owner", "As continued.")] {
        let answer = owners.post(&caller, key, "chat/completions", &body).await;
        assert_eq!(answer.body["choices"][0]["message"]["content"], expected);
    }
    // The run that was continued has the model's own id of the call, a rebuilt one the caller's.
    let ids: Vec<_> = model.requests()[1..]
        .iter()
        .map(|messages| {
            messages.iter().find_map(|message| message.as_assistant()).unwrap().tool_calls[0].id.clone()
        })
        .collect();
    let from_caller = reply["tool_calls"][0]["id"].as_str().unwrap();
    assert_eq!((&*ids[0], ids[1] != from_caller), (from_caller, true), "{ids:?}");
}
