//! Errors of models and agents as reported to callers.

use std::time::Duration;

use serde_json::json;
use tool_anthropic::Anthropic;
use tool_core::memory::{Budget, InMemoryStore, RunFilter, RunSummary};
use tool_core::model::{ChatRequest, ModelOptions};
use tool_core::provider::ModelFuture;
use tool_core::run::Run;
use tool_core::signatures::Timestamp;
use tool_core::store::{BudgetStore, RunChanges, RunLog, RunRevision, RunStore, SaveOutcome, StoreFuture};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatModel, tool, tools};
use tool_openai::OpenAi;
use tool_openai::server::Server;

use crate::caller::Caller;
use tests::support::{RawServer, whole_answer};

fn request(model: &str) -> serde_json::Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": "Hi" }] })
}

#[tokio::test]
async fn reports_the_kind_of_an_upstream_error_without_its_text() {
    let error = |message: &str, kind: &str, code: &str| {
        json!({ "error": { "message": message, "type": kind, "code": code } }).to_string()
    };
    let secret = "org-secret at https://internal";
    // The upstream status and body, then the expected status, type and code.
    let table = [
        (
            "429 Too Many Requests",
            error(secret, "requests", "rate_limit_exceeded"),
            429,
            "rate_limit_error",
            "rate_limit_exceeded",
        ),
        (
            "429 Too Many Requests",
            error(secret, "insufficient_quota", "insufficient_quota"),
            429,
            "insufficient_quota",
            "insufficient_quota",
        ),
        (
            "400 Bad Request",
            error(secret, "invalid_request_error", "context_length_exceeded"),
            400,
            "invalid_request_error",
            "context_length_exceeded",
        ),
        (
            "400 Bad Request",
            error(secret, "invalid_request_error", "weird"),
            400,
            "invalid_request_error",
            "",
        ),
        (
            "401 Unauthorized",
            error(secret, "invalid_request_error", "invalid_api_key"),
            502,
            "server_error",
            "",
        ),
        ("404 Not Found", error(secret, "invalid_request_error", "model_not_found"), 502, "server_error", ""),
        ("500 Internal Server Error", secret.to_owned(), 502, "server_error", ""),
        ("503 Service Unavailable", secret.to_owned(), 503, "server_error", ""),
        ("200 OK", secret.to_owned(), 502, "server_error", ""),
    ];
    for (status, body, expected, kind, code) in table {
        for is_verbose in [false, true] {
            // Enough for all retries of the client.
            let answers =
                std::iter::repeat_n(whole_answer(status, &[("retry-after-ms", "1")], body.as_bytes()), 10);
            let upstream = RawServer::answering_in_turn(answers.collect()).await;
            let model = OpenAi::builder().base_url(upstream.base_url()).build().unwrap().chat_model("x");
            let agent = Agent::builder(
                OpenAi::builder().base_url(upstream.base_url()).build().unwrap().chat_model("x"),
            );
            let server = Server::new().model("m", model).agent("a", agent.build().unwrap());
            let caller = Caller::new(server.verbose_errors(is_verbose)).await;
            for name in ["m", "a"] {
                let answer = caller.post("chat/completions", &request(name)).await;
                let error = &answer.body["error"];
                assert_eq!(
                    (answer.status, error["type"].as_str().unwrap()),
                    (expected, kind),
                    "{status} {body}"
                );
                assert_eq!(error["code"].as_str().unwrap_or_default(), code, "{status} {body}");
                assert_eq!(
                    error["message"].as_str().unwrap().contains("secret"),
                    is_verbose,
                    "{status} {body}"
                );
            }
        }
    }
}

#[tokio::test]
async fn reports_the_kind_of_an_error_of_claude() {
    let body = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "secret" } });
    let answer = whole_answer("529 Overloaded", &[("retry-after", "300")], body.to_string().as_bytes());
    let upstream = RawServer::answering_in_turn(vec![answer]).await.unchecked();
    let claude = Anthropic::builder().base_url(upstream.base_url()).build().unwrap().chat_model("x");
    let caller = Caller::new(Server::new().model("m", claude)).await;
    let answer = caller.post("chat/completions", &request("m")).await;
    let message = "the model is overloaded; try again later";
    assert_eq!((answer.status, &answer.body["error"]["message"]), (503, &json!(message)));
}

#[tool("Fails", at_most_once)]
fn fetch() -> Result<String, String> {
    Err("the password is secret".into())
}

#[tokio::test]
async fn reports_the_limit_that_stopped_an_agent() {
    let endless = (0..5).fold(ScriptedModel::new(), |model, _| model.calls("fetch", "{}"));
    let agent = Agent::builder(endless).tools(tools![fetch]).limits(|l| l.max_turns(2)).build().unwrap();
    let caller = Caller::new(Server::new().agent("a", agent)).await;
    let answer = caller.post("chat/completions", &request("a")).await;
    assert_eq!((answer.status, &answer.body["error"]["code"]), (500, &json!("agent_limit")));
    assert_eq!(answer.body["error"]["message"], "the agent stopped: it reached the limit of turns");
}

struct Panicking;

impl ChatModel for Panicking {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async { panic!("deliberate panic of a model") })
    }
}

#[tokio::test]
async fn a_panic_affects_only_one_request() {
    let agent = Agent::builder(Panicking).build().unwrap();
    let server =
        Server::new().model("m", Panicking).agent("a", agent).model("good", ScriptedModel::new().says("Hi."));
    let caller = Caller::new(server).await;
    for name in ["m", "a"] {
        for is_streamed in [false, true] {
            let mut body = request(name);
            body["stream"] = json!(is_streamed);
            let answer = caller.post("chat/completions", &body).await;
            assert_eq!((answer.status, &answer.body["error"]["type"]), (500, &json!("server_error")));
            let response = json!({ "model": name, "input": "Hi", "stream": is_streamed });
            assert_eq!(caller.post("responses", &response).await.status, 500);
        }
    }
    caller.ask("chat/completions", &request("good")).await;
}

#[tokio::test]
async fn treats_invalid_utf8_in_a_url_as_an_unknown_url() {
    let caller = Caller::new(Server::new().model("m", ScriptedModel::new())).await;
    for path in ["responses/%ff", "models/%ff", "models/", "nothing"] {
        let answer = caller.get(path).await;
        assert_eq!((answer.status, &answer.body["error"]["message"]), (404, &json!("unknown URL")), "{path}");
    }
}

/// A store in which another process has always continued the run.
struct Contended;

impl RunStore for Contended {
    fn append_run<'a>(
        &'a self,
        _: &'a str,
        _: Option<&'a RunRevision>,
        _: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        Box::pin(async { Ok(SaveOutcome::Conflict) })
    }

    fn load_run<'a>(&'a self, _: &'a str) -> StoreFuture<'a, Option<Run>> {
        Box::pin(async { Ok(None) })
    }

    fn entries<'a>(
        &'a self,
        _id: &'a str,
        _after: Option<u64>,
        _limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        Box::pin(async { Ok(None) })
    }

    fn remove_run<'a>(&'a self, _: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn list_runs<'a>(&'a self, _: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

#[tokio::test]
async fn reports_a_run_that_was_continued_elsewhere_as_a_conflict() {
    let agent = Agent::builder(ScriptedModel::new().says("Hi.")).run_store(Contended).build().unwrap();
    let caller = Caller::new(Server::new().agent("a", agent)).await;
    let answer = caller.post("chat/completions", &request("a")).await;
    let error = &answer.body["error"];
    assert_eq!((answer.status, error["code"].as_str()), (409, Some("run_conflict")));
    let expected =
        "the run was continued or removed elsewhere while this request was answered; send the request again";
    assert_eq!(error["message"], expected);
}

/// A shorter question can have room in what is left.
#[tokio::test]
async fn reports_whether_a_budget_is_used_up_or_the_request_is_too_long_for_it() {
    let table = [
        (0, "the budget for this request is used up; send it again later"),
        (50, "the request is too long for what is left of its budget; send a shorter one, or this one later"),
    ];
    for (left, message) in table {
        let store = InMemoryStore::new();
        let key = Budget::tokens(store.clone(), 1_000, Duration::from_secs(24 * 3_600)).key("ada");
        let period = key.period_at(Timestamp::now());
        store.reserve(&period, 1_000 - left, 1_000 - left).await.unwrap().unwrap();
        let options = ModelOptions::default().with_max_output_tokens(16);
        let agent = Agent::builder(ScriptedModel::new().says("Hi.")).options(options).budget(key);
        let caller = Caller::new(Server::new().agent("a", agent.build().unwrap())).await;
        let answer = caller.post("chat/completions", &request("a")).await;
        let error = &answer.body["error"];
        assert_eq!((answer.status, error["code"].as_str()), (429, Some("insufficient_quota")));
        assert_eq!(error["message"], message);
    }
}
