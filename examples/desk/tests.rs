//! Two replicas of the desk on one file, with the offline model; and the runs that production has kept, repeated.

use std::error::Error;
use std::sync::mpsc::{self, Receiver};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use serde_json::{Value, json};
use tool_core::agent::{RunInfo, RunResources, RunSetup};
use tool_core::layer::Redact;
use tool_core::memory::{InMemoryStore, RunFilter};
use tool_core::model::{ChatRequest, Fallback, ModelError, ModelErrorKind};
use tool_core::provider::ModelFuture;
use tool_core::run::Decision;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatModel, SqliteStore, call};
use tool_offline::OfflineModel;
use tool_testing::{Checks, KeptRuns, Replay, check_runs, export_runs};
use tower_service::Service;

use crate::users::{Logins, customer};
use crate::{agent, app};

struct Replica {
    app: Router,
    agent: Agent,
    audit: Receiver<String>,
}

impl Replica {
    fn new(store: &impl agent::Store, model: impl ChatModel + Clone + 'static) -> Self {
        let (log, audit) = mpsc::channel();
        let agent = agent::desk(model, store, move |line| _ = log.send(line)).unwrap();
        let app = app(agent.clone(), Logins::new(Some("secret".to_owned())).unwrap()).unwrap();
        Self { app, agent, audit }
    }

    async fn send(&self, cookie: &str, head: &str, body: Value) -> (StatusCode, Option<String>, String) {
        let (method, path) = head.split_once(' ').unwrap();
        let request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
        let request = request.header(header::CONTENT_TYPE, "application/json").header(header::COOKIE, cookie);
        let response =
            self.app.clone().call(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
        let status = response.status();
        let cookie = response.headers().get(header::SET_COOKIE).map(|cookie| cookie.to_str().unwrap());
        let cookie = cookie.map(|cookie| cookie.split(';').next().unwrap().to_owned());
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, cookie, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Returns the cookie of a user.
    async fn log_in(&self, name: &str) -> String {
        let login = json!({ "name": name, "password": format!("{name}-pw") });
        self.send("", "POST /login", login).await.1.unwrap()
    }

    async fn ask(&self, cookie: &str, text: &str) -> String {
        let message = json!({ "role": "user", "parts": [{ "type": "text", "text": text }] });
        self.send(cookie, "POST /api/chat", json!({ "id": "desk", "messages": [message] })).await.2
    }

    /// Sends what a browser knows about a call: a decision or an answer.
    async fn reply(&self, cookie: &str, part: Value) -> String {
        let message = json!({ "role": "assistant", "parts": [part] });
        self.send(cookie, "POST /api/chat", json!({ "id": "desk", "messages": [message] })).await.2
    }

    /// Returns the parts of the last message of the chat.
    async fn last(&self, cookie: &str) -> Vec<Value> {
        let (_, _, messages) = self.send(cookie, "GET /api/chat/desk/messages", json!(null)).await;
        let messages: Vec<Value> = serde_json::from_str(&messages).unwrap();
        messages.last().unwrap()["parts"].as_array().unwrap().clone()
    }

    /// Returns the only run that waits, and the id of what it waits for, as the staff sees them.
    async fn waiting(&self, cookie: &str) -> (String, String) {
        let get = async |path: String| -> Value {
            serde_json::from_str(&self.send(cookie, &path, json!(null)).await.2).unwrap()
        };
        // Stored runs are read in the background.
        let run = loop {
            let list = get("GET /runs/api/runs?status=waiting".to_owned()).await;
            match list["runs"][0]["id"].as_str() {
                Some(run) => break run.to_owned(),
                None => tokio::task::yield_now().await,
            }
        };
        let shown = get(format!("GET /runs/api/runs/{run}")).await;
        (run, shown["open"][0]["id"].as_str().unwrap().to_owned())
    }
}

async fn replicas() -> [Replica; 2] {
    // The script `tool-postgres/run` sets it.
    #[cfg(feature = "postgres")]
    if let Ok(url) = std::env::var("POSTGRES_URL") {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let schema = format!("desk {} {}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let connect = || tool_postgres::PostgresStore::connect(&url).schema(&schema).migrate();
        let stores = [connect().await.unwrap(), connect().await.unwrap()];
        return stores.map(|store| Replica::new(&store, OfflineModel::new()));
    }
    let store = SqliteStore::in_memory().await.unwrap();
    [(); 2].map(|()| Replica::new(&store, OfflineModel::new()))
}

#[tokio::test]
async fn the_staff_approves_a_large_refund_in_any_replica() {
    let [one, other] = replicas().await;
    let (ada, grace) = (one.log_in("ada").await, other.log_in("grace").await);
    let small = one.ask(&ada, "Refund 50 euros for order 7").await;
    assert!(small.contains("Refunded 50 euros"), "{small}");
    let large = one.ask(&ada, "Refund 80 euros for order 7").await;
    assert!(large.contains("waiting for a decision") && !large.contains("Refunded 80"), "{large}");
    let (run, wait) = other.waiting(&grace).await;
    let approval = json!({ "type": "tool-refund", "state": "approval-responded", "approval": { "id": wait, "approved": true } });
    assert_eq!(one.reply(&ada, approval).await, "the run does not wait for what was sent");
    let decide = format!("POST /runs/api/runs/{run}/decisions");
    let decision = json!({ "wait": wait, "decision": "approve" });
    assert_eq!(one.send(&ada, &decide, decision.clone()).await.0, StatusCode::FORBIDDEN);
    assert_eq!(other.send(&grace, &decide, decision).await.0, StatusCode::OK);
    while other.agent.stored_run(&run).await.unwrap().is_some_and(|stored| !stored.run.is_done()) {
        tokio::task::yield_now().await;
    }
    assert_eq!(one.last(&ada).await.last().unwrap()["text"], "Refunded 80 euros for order 7.");
    // Who decided what stands in the audit of the replica that went on.
    let audit: Vec<_> = one.audit.try_iter().chain(other.audit.try_iter()).collect();
    for line in [
        "ada: `needs_approval` demanded approval of the call `refund` (call_2)",
        "ada: grace approved the call `refund` (call_2)",
        "ada: the call `refund` (call_2) succeeded",
    ] {
        assert!(audit.iter().any(|written| written == line), "{audit:?}");
    }
}

#[tokio::test]
async fn a_customer_answers_and_confirms_in_any_replica() {
    let [one, other] = replicas().await;
    let ada = one.log_in("ada").await;
    one.ask(&ada, "Move the delivery of order 7").await;
    let mut question = other.last(&ada).await.pop().unwrap();
    assert_eq!(question["input"]["choices"], json!(["Thursday morning", "Friday evening", "Saturday"]));
    question["state"] = "output-available".into();
    question["output"] = "Saturday".into();
    let moved = other.reply(&ada, question).await;
    assert!(moved.contains("Order 7 now arrives on Saturday."), "{moved}");
    one.ask(&ada, "Cancel order 8").await;
    let mut call = other.last(&ada).await.pop().unwrap();
    call["state"] = "approval-responded".into();
    call["approval"]["approved"] = true.into();
    let cancelled = other.reply(&ada, call).await;
    assert!(cancelled.contains("Order 8, box of punched cards, is cancelled."), "{cancelled}");
}

#[tokio::test]
async fn customers_see_only_what_is_theirs() {
    let [one, other] = replicas().await;
    let (ada, eve, grace) = (one.log_in("ada").await, one.log_in("eve").await, one.log_in("grace").await);
    let refused = one.ask(&eve, "Refund 5 euros for order 7").await;
    assert!(refused.contains("you have no order 7"), "{refused}");
    one.ask(&ada, "Move the delivery of order 7").await;
    let question = other.last(&ada).await.pop().unwrap();
    let stolen = json!({ "type": "tool-ask_user", "state": "output-available", "toolCallId": question["toolCallId"], "output": "Saturday" });
    // It is taken for an answer to her own run, which has ended.
    assert_eq!(other.reply(&eve, stolen).await, "the run does not wait for what was sent");
    assert_eq!(other.last(&ada).await.pop().unwrap(), question);
    // Nobody but the staff sees the page, the staff has no chat, and a cookie cannot be made.
    let forged = ada.replacen("ada", "grace", 1);
    for (cookie, head, status) in [
        (&ada, "GET /runs/api/runs", StatusCode::FORBIDDEN),
        (&grace, "GET /api/chat/desk/messages", StatusCode::FORBIDDEN),
        (&forged, "GET /runs/api/runs", StatusCode::UNAUTHORIZED),
        (&String::new(), "GET /api/chat/desk/messages", StatusCode::UNAUTHORIZED),
    ] {
        assert_eq!(one.send(cookie, head, json!(null)).await.0, status, "{head}");
    }
    let login = json!({ "name": "grace", "password": "" });
    assert_eq!(one.send("", "POST /login", login).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn the_billing_agent_knows_the_customer_and_no_secret_leaves_it() {
    let [one, _] = replicas().await;
    let ada = one.log_in("ada").await;
    let invoice = one.ask(&ada, "Ask billing for the \"invoice of order 8\"").await;
    let expected = "Invoice for Ada Lovelace ([e-mail address]): box of punched cards, paid with the card [card number].";
    assert!(invoice.contains(expected) && !invoice.contains("4111"), "{invoice}");
    let audit: Vec<_> = one.audit.try_iter().collect();
    assert!(audit.iter().any(|line| line.contains("billing") && line.contains("`redact`")), "{audit:?}");
}

struct Down;

impl ChatModel for Down {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async { Err(ModelError::new("down").with_kind(ModelErrorKind::Unavailable)) })
    }
}

#[tokio::test]
async fn another_model_answers_while_one_is_down() {
    let store = SqliteStore::in_memory().await.unwrap();
    let one = Replica::new(&store, Fallback::new(Down).or(OfflineModel::new()));
    let ada = one.log_in("ada").await;
    let answer = one.ask(&ada, "Where are my parcels?").await;
    assert!(answer.contains("arrives tomorrow"), "{answer}");
}

/// The refund was made, and the model is down: nothing is lost, and nothing is paid twice.
#[tokio::test]
async fn what_failed_goes_on_without_the_customer() {
    let store = SqliteStore::in_memory().await.unwrap();
    let model =
        ScriptedModel::new().calls("refund", r#"{"order": 7, "euros": 5}"#).fails("down").says("Done.");
    let one = Replica::new(&store, model);
    let ada = one.log_in("ada").await;
    let failed = one.ask(&ada, "Refund 5 euros for order 7").await;
    assert!(failed.contains("the model is not available"), "{failed}");
    assert_eq!(one.agent.recover().once().await.unwrap(), 1);
    let last = one.last(&ada).await;
    let refunds = last.iter().filter(|part| part["type"] == "tool-refund");
    assert_eq!((refunds.count(), &last.last().unwrap()["text"]), (1, &json!("Done.")));
}

#[test]
fn an_empty_secret_is_refused() {
    for secret in ["", " \n"] {
        let refused = Logins::new(Some(secret.to_owned())).err().map(|error| error.to_string());
        let expected = "`DESK_SECRET` is empty; unset it, or write `export DESK_SECRET=$(head -c 32 /dev/urandom | base64)`";
        assert_eq!(refused.as_deref(), Some(expected));
    }
    assert!(Logins::new(None).is_ok());
}

/// Opens kept runs: their customers are known, and nothing is charged.
struct KnownCustomers;

impl RunSetup for KnownCustomers {
    async fn open(&self, run: &RunInfo) -> Result<RunResources, Box<dyn Error + Send + Sync>> {
        let customer = run.user().and_then(|user| customer(user.as_str()));
        Ok(RunResources::new().context(customer.ok_or("there is no such customer")?))
    }
}

fn desk(model: impl ChatModel + Clone + 'static) -> Agent {
    agent::desk(model, &InMemoryStore::new(), drop).unwrap()
}

#[tokio::test]
async fn production_still_holds() -> tool_testing::Result {
    let replay = Replay::new().run_setup(KnownCustomers);
    check_runs(KeptRuns::in_dir("desk/runs").replay(replay), [desk(OfflineModel::new())]).await
}

#[tokio::test]
async fn a_small_refund_is_paid_and_a_large_one_waits() -> tool_testing::Result {
    let desk = desk(OfflineModel::new());
    let answer = desk.ask("Refund 50 euros for order 7").user("ada").await?;
    answer.check_calls().first(call!(agent::refund { order: 7, euros: ..=50 }).ok()).check()?;
    let waits = desk.ask("Refund 80 euros for order 7").user("ada").await.unwrap_err();
    waits.check_calls().only([call!(agent::refund { euros: 51.., .. }).waiting()]).check()?;
    Ok(())
}

/// Writes the runs that `production_still_holds` repeats: `cargo test -p examples --features web --example desk -- --ignored keep`.
#[tokio::test]
#[ignore = "writes files"]
async fn keep_runs() -> tool_testing::Result {
    let desk = desk(OfflineModel::new());
    let questions = [
        ("ada", "Where are my parcels?", None),
        ("eve", "Where are my parcels?", None),
        ("ada", "Refund 20 euros for order 8", None),
        ("ada", "Refund 80 euros for order 7", Some(Decision::approve())),
        ("ada", "Refund 90 euros for order 7", Some(Decision::deny("too much"))),
        ("eve", "Refund 5 euros for order 7", None),
        ("ada", "Cancel order 8", Some(Decision::approve())),
        ("ada", "Move the delivery of order 7", Some(Decision::answer("Saturday"))),
        ("ada", "Ask billing for the \"invoice of order 8\"", None),
        ("eve", "Cancel order 9", None),
    ];
    for (user, question, decision) in questions {
        let asked = desk.ask(question).user(user).conversation(question).await;
        if let (Err(error), Some(decision)) = (asked, decision) {
            let mut run = error.into_run();
            let wait = run.waits().remove(0);
            run.resolve(&wait.id, decision.by("grace"))?;
            desk.resume(run).await?;
        }
    }
    let redact = Redact::new().card_numbers().email_addresses();
    export_runs(&desk, &RunFilter::new(), "desk/runs").redact(redact).await?;
    Ok(())
}
