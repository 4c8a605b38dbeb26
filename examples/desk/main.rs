//! A support desk for customers who log in: a chat whose agent asks, confirms and refunds, and a page on which the staff decides. Start it
//! twice with other ports, and each process goes on with the runs of the other. The page *A service with many users* of `tool-web` explains it.
//!
//! ```text
//! cargo run --features web --example desk -- 8080
//! ```
//!
//! `ada` and `eve` are customers, `grace` is the staff; their passwords are `ada-pw`, `eve-pw` and `grace-pw`. Conversations and runs are in
//! the file `DESK_DB`, by default in the temporary directory, or with the feature `postgres` and a URL such as
//! `DESK_DB=postgres://desk@localhost/desk`, in that database; processes with the same `DESK_SECRET` share their logins. It uses the offline
//! model, or with `OPENAI_API_KEY` or `OPENAI_BASE_URL` set, the models `OPENAI_MODEL` and, when that fails, `OPENAI_FALLBACK_MODEL`.

mod agent;
mod users;

use std::env;
use std::error::Error;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tool_core::agent::Outcome;
use tool_core::model::Fallback;
use tool_core::{Agent, SqliteStore};
use tool_offline::OfflineModel;
use tool_openai::OpenAi;
use tool_web::Web;

use crate::users::{Login, Logins};

type Failure = Box<dyn Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let port: u16 = env::args().nth(1).as_deref().unwrap_or("8080").parse()?;
    match env::var("DESK_DB") {
        #[cfg(feature = "postgres")]
        Ok(url) if url.starts_with("postgres") => {
            serve(tool_postgres::PostgresStore::connect(url).schema("desk").migrate().await?, port).await
        }
        Ok(file) => serve(SqliteStore::open(file).await?, port).await,
        Err(_) => serve(SqliteStore::open(env::temp_dir().join("desk.db")).await?, port).await,
    }
}

async fn serve(store: impl agent::Store, port: u16) -> Result<(), Failure> {
    let agent = agent::desk(model()?, &store, |line| println!("audit: {line}"))?;
    // Goes on with what another process has left, and with what failed. A lease decides which process does.
    agent.recover().on_outcome(report).start();
    let app = app(agent, Logins::new(env::var("DESK_SECRET").ok())?)?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // Otherwise, parts of a stream can wait 40 ms.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    Ok(axum::serve(listener, app).await?)
}

fn report(run: &str, outcome: &Outcome) {
    if let Outcome::Failed(error) = outcome {
        eprintln!("{run}: {error}");
    }
}

/// Returns the website. Behind a domain, it needs `Web::allow_host` and `Web::allow_origin`.
fn app(agent: Agent, logins: Logins) -> Result<Router, Failure> {
    let logins = Arc::new(logins);
    let known = Arc::clone(&logins);
    let web = Web::new().agent(agent).authentication(move |headers: &HeaderMap| known.sender(headers));
    // A customer confirms a cancellation by herself; refunds are approved on the page.
    let chat = web.ui_stream("desk")?.approvable_tools(["cancel_order"])?;
    Ok(Router::new()
        .route("/", get(chat_page))
        .route("/login", post(log_in).delete(log_out))
        .with_state(logins)
        .nest_service("/api/chat", chat)
        .nest_service("/runs", web.service()))
}

/// The page contains no data. Its policy allows no script but its own, and no text becomes markup.
async fn chat_page() -> Result<Response, StatusCode> {
    let nonce = users::nonce().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    );
    let html = include_str!("chat.html").replace("NONCE", &nonce);
    Ok(([(header::CONTENT_SECURITY_POLICY, policy)], Html(html)).into_response())
}

async fn log_in(State(logins): State<Arc<Logins>>, Json(login): Json<Login>) -> Response {
    match logins.log_in(&login) {
        Some(cookie) => (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response(),
        None => (StatusCode::UNAUTHORIZED, "wrong name or password").into_response(),
    }
}

async fn log_out() -> Response {
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, "desk=; Max-Age=0; Path=/")]).into_response()
}

/// Returns the models of the configured endpoint, or the offline model if none is configured.
fn model() -> Result<Fallback, Failure> {
    let variable = |name| env::var(name).ok().filter(|value| !value.trim().is_empty());
    if variable("OPENAI_API_KEY").or(variable("OPENAI_BASE_URL")).is_none() {
        println!("No OPENAI_API_KEY: using the offline model");
        return Ok(Fallback::new(OfflineModel::new()));
    }
    let endpoint = OpenAi::from_env()?;
    let model =
        |variable_name, name: &str| endpoint.chat_model(variable(variable_name).unwrap_or(name.into()));
    let first = model("OPENAI_MODEL", "gpt-4.1");
    Ok(Fallback::new(first).or(model("OPENAI_FALLBACK_MODEL", "gpt-4.1-mini")))
}

#[cfg(test)]
mod tests;
