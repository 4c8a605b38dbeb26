//! The page: its files, and the data that it shows.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{OriginalUri, Path, RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{Html, IntoResponse, NoContent, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use futures_util::stream::{self, Stream, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use tool_core::Message;
use tool_core::memory::RunStatus;
use tool_core::run::{Decision, Run};
use tool_core::signatures::{Timestamp, VerdictRecord};
use tool_core::tool::WaitId;
use tool_http::server::{json_response, sse_response};
use url::form_urlencoded;

use crate::auth::{Principal, Right};
use crate::driving::check_budget;
use crate::guard::{Guard, HttpError, admit, admit_page, admit_stream, requires};
use crate::hub::Hub;
use crate::list::Filter;
use crate::log::{End, Found, RunLog};
use crate::row::Row;
use crate::wait::{Described, describe};
use crate::{plain, sse};

const HTML: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/page.js");
const ICON: &str = include_str!("page/icon.svg");
const STYLE: &str = include_str!("page/page.css");

/// The number of runs in a list, by default and at most.
const DEFAULT_RUNS: usize = 100;
const MAX_RUNS: usize = 1_000;

pub(crate) struct PageState {
    hub: Arc<Hub>,
    guard: Arc<Guard>,
}

type Shared = State<Arc<PageState>>;
type Sender = Extension<Principal>;
type Answer = Result<Response, HttpError>;

pub(crate) fn router(hub: Arc<Hub>, guard: Arc<Guard>) -> Router {
    let files = Router::new()
        .route("/", get(index))
        .route("/icon.svg", get(async || file("image/svg+xml", ICON)))
        .route("/page.js", get(async || file("text/javascript", SCRIPT)))
        .route("/page.css", get(async || file("text/css", STYLE)))
        .layer(from_fn_with_state(Arc::clone(&guard), admit_page));
    let data = Router::new()
        .route("/api/runs", requires(Right::Read, get(list)))
        .route("/api/runs/{id}", requires(Right::Read, get(show)))
        .route("/plain", requires(Right::Read, get(plain_list)))
        .route("/plain/{id}", requires(Right::Read, get(plain_run)))
        .route("/api/runs/{id}/state", requires(Right::Administer, get(state)))
        .route("/api/runs/{id}/turns/{turn}", requires(Right::Administer, get(turn)))
        .route("/api/runs/{id}/cancel", requires(Right::Administer, post(cancel)))
        .route("/api/runs/{id}/end", requires(Right::Administer, post(end)))
        .route("/api/runs/{id}/resume", requires(Right::Administer, post(resume)))
        .route("/api/runs/{id}/decisions", requires(Right::Decide, post(decide)))
        .route("/api/runs/{id}/messages", requires(Right::Administer, post(say)))
        .layer(from_fn_with_state(Arc::clone(&guard), admit));
    let streams = Router::new()
        .route("/api/runs/{id}/events", requires(Right::Read, get(events)))
        .layer(from_fn_with_state(Arc::clone(&guard), admit_stream));
    files.merge(data).merge(streams).with_state(Arc::new(PageState { hub, guard }))
}

fn file(media_type: &str, text: impl IntoResponse) -> Response {
    ([(header::CONTENT_TYPE, format!("{media_type}; charset=utf-8"))], text).into_response()
}

/// Returns the page, with relative links to its files: a page at `/runs` has them below `runs/`.
async fn index(OriginalUri(uri): OriginalUri) -> Response {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~%".contains(&byte);
    let last = uri.path().rsplit('/').next().filter(|last| !last.is_empty()).unwrap_or(".");
    if !last.bytes().all(is_plain) {
        return (StatusCode::NOT_FOUND, "unknown URL").into_response();
    }
    file("text/html", HTML.replace("{prefix}", last))
}

fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let text = serde_json::to_string(value).map_err(|_| HttpError::internal())?;
    Ok(json_response(status, text))
}

async fn list(State(state): Shared, RawQuery(query): RawQuery) -> Answer {
    json(StatusCode::OK, &state.hub.list(&filter(query)?).await)
}

async fn plain_list(State(state): Shared, RawQuery(query): RawQuery) -> Answer {
    Ok(Html(plain::list(&state.hub.list(&filter(query)?).await)).into_response())
}

async fn plain_run(State(state): Shared, Extension(sender): Sender, Path(id): Path<String>) -> Answer {
    let Shown { row, open, .. } = shown(&state.hub, &sender, &id).await?;
    let log = state.hub.shown_log(&id).await.ok_or_else(HttpError::unknown_run)?;
    Ok(Html(plain::run(&row, &open, &log)).into_response())
}

fn filter(query: Option<String>) -> Result<Filter, HttpError> {
    let query = query.unwrap_or_default();
    let values = form_urlencoded::parse(query.as_bytes()).filter(|(_, value)| !value.is_empty());
    let mut values: Map<_, _> = values.map(|(name, value)| (name.into_owned(), value.into())).collect();
    let limit = values.remove("limit").as_ref().and_then(Value::as_str).map_or(Ok(DEFAULT_RUNS), str::parse);
    let limit = limit.map_err(|_| HttpError::bad_request("`limit` must be a number"))?;
    let filter: Filter = serde_json::from_value(values.into())
        .map_err(|error| HttpError::bad_request(format!("invalid status: {error}")))?;
    Ok(Filter { limit: limit.min(MAX_RUNS), ..filter })
}

/// A run, as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    row: Row,
    open: Vec<Described>,
    /// What layers decided about the question and the answers.
    verdicts: Vec<VerdictRecord>,
    rights: Rights,
    /// Its questions are to another user than the one who reads it.
    is_of_other: bool,
    now: Timestamp,
}

#[derive(Debug, Serialize)]
struct Rights {
    decide: bool,
    administer: bool,
}

async fn show(State(state): Shared, Extension(sender): Sender, Path(id): Path<String>) -> Answer {
    json(StatusCode::OK, &shown(&state.hub, &sender, &id).await?)
}

async fn shown(hub: &Hub, sender: &Principal, id: &str) -> Result<Shown, HttpError> {
    let mut row = hub.row(id).await.ok_or_else(HttpError::unknown_run)?;
    // An unreadable run is shown with its error.
    let loaded = hub.load(id).await.ok().flatten();
    let verdicts = loaded.as_ref().map(|loaded| loaded.run.verdicts().to_vec()).unwrap_or_default();
    let waits = loaded.as_ref().filter(|loaded| loaded.status == RunStatus::Waiting);
    let stays = waits.and_then(|loaded| check_budget(&loaded.run).err()).map(|HttpError(_, why)| why);
    let open = loaded.map(|loaded| describe(&loaded.run, loaded.source.agent.as_ref()));
    let mut open = open.unwrap_or_default();
    row.error = row.error.or(stays);
    open.iter_mut()
        .for_each(|open| open.recorded = hub.decisions.get(&open.wait.id).map(|recorded| recorded.record));
    let rights = Rights { decide: sender.may(Right::Decide), administer: sender.may(Right::Administer) };
    let is_of_other = row.user.as_ref().is_some_and(|user| user.as_str() != sender.name());
    Ok(Shown { row, open, verdicts, rights, is_of_other, now: Timestamp::now() })
}

/// Returns the request to the model and the response of a turn, as far as they are known.
async fn turn(State(state): Shared, Path((id, turn)): Path<(String, u32)>) -> Answer {
    let log = state.hub.shown_log(&id).await.ok_or_else(HttpError::unknown_run)?;
    let (recorded, response) = log.exchange(turn);
    let recorded = recorded.and_then(|request| RawValue::from_string(request).ok());
    let loaded = state.hub.load(&id).await.ok().flatten().filter(|_| recorded.is_none());
    let messages = loaded.as_ref().and_then(|loaded| messages_before(&loaded.run, turn));
    let request = recorded.or_else(|| to_raw_value(&serde_json::json!({ "messages": messages? })).ok());
    json(StatusCode::OK, &serde_json::json!({ "request": request, "response": response }))
}

/// Returns the messages that a turn of a stored run has sent.
fn messages_before(run: &Run, turn: u32) -> Option<&[Message]> {
    let (all, new) = (run.messages(), run.new_messages());
    let mut replies = new.iter().enumerate().filter(|(_, message)| message.as_assistant().is_some());
    let earlier = run.turns().checked_sub(u32::try_from(replies.clone().count()).ok()?)?;
    let (index, _) = replies.nth(turn.checked_sub(earlier + 1)?.try_into().ok()?)?;
    all.get(..all.len() - new.len() + index)
}

async fn state(State(state): Shared, Path(id): Path<String>) -> Answer {
    match state.hub.load(&id).await? {
        Some(loaded) => json(StatusCode::OK, &loaded.run),
        None => Err(state.hub.refusal(&id).await),
    }
}

async fn cancel(State(state): Shared, Path(id): Path<String>) -> Result<NoContent, HttpError> {
    state.hub.cancel(&id).await.map(|()| NoContent)
}

async fn end(State(state): Shared, Path(id): Path<String>) -> Result<NoContent, HttpError> {
    state.hub.end(&id).await.map(|()| NoContent)
}

async fn resume(
    State(state): Shared,
    Extension(sender): Sender,
    Path(id): Path<String>,
) -> Result<NoContent, HttpError> {
    state.hub.resume(&id, sender.name()).await.map(|()| NoContent)
}

/// A decision, as the page sends it. In new arguments and answers, numbers keep every digit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    wait: WaitId,
    decision: SentDecision,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum SentDecision {
    Approve,
    Edit(Box<RawValue>),
    Answer(Box<RawValue>),
    Deny(Option<String>),
}

async fn decide(
    State(state): Shared,
    Extension(sender): Sender,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let sent: Sent = state.guard.read_json(request).await?;
    let decision = match sent.decision {
        SentDecision::Approve => Decision::approve(),
        SentDecision::Edit(arguments) => Decision::approve_with(arguments.get()),
        SentDecision::Answer(answer) => Decision::answer_json(answer.get()),
        SentDecision::Deny(reason) => {
            reason.filter(|why| !why.trim().is_empty()).map_or_else(Decision::decline, Decision::deny)
        }
    };
    match state.hub.decide(&id, sender.name(), vec![(sent.wait, decision)]).await? {
        Ok(recorded) => json(StatusCode::OK, &recorded.first().map(|recorded| &recorded.record)),
        Err(earlier) => json(StatusCode::CONFLICT, &earlier),
    }
}

/// A message to a run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SentMessage {
    text: String,
}

async fn say(
    State(state): Shared,
    Extension(sender): Sender,
    Path(id): Path<String>,
    request: Request,
) -> Result<NoContent, HttpError> {
    let SentMessage { text } = state.guard.read_json(request).await?;
    state.hub.say(&id, &text.into(), sender.name()).await.map(|()| NoContent)
}

async fn events(State(state): Shared, Path(id): Path<String>, headers: HeaderMap) -> Answer {
    let log = state.hub.shown_log(&id).await.ok_or_else(HttpError::unknown_run)?;
    Ok(sse_response(watch(&log, sse::last_event(&headers))))
}

/// What follows is the run from its beginning.
const RESET: Bytes = Bytes::from_static(b"data: {\"type\":\"reset\"}\n\n");

/// The run has ended in another process.
const GONE: Bytes = Bytes::from_static(b"data: {\"type\":\"gone\"}\n\n");

/// Streams the entries of a run for as long as it is watched. Where the log does not go on, a `reset` says that the run follows from its
/// beginning.
fn watch(log: &Arc<RunLog>, after: Option<u64>) -> impl Stream<Item = Bytes> + Send + use<> {
    let after = after.filter(|after| log.last().is_some_and(|last| *after <= last));
    let after = after.filter(|_| !log.has_dropped_after(after));
    let rest = stream::unfold(Some(log.reader(after)), |state| async {
        let mut reader = state?;
        loop {
            let frame = match reader.next().await {
                Found::Entry(logged) | Found::Delta(logged) => logged.frame.clone(),
                Found::Gap => RESET,
                Found::End(End::Gone) => return Some((GONE, None)),
                Found::End(_) => {
                    reader.wait().await;
                    continue;
                }
            };
            return Some((frame, Some(reader)));
        }
    });
    stream::iter(after.is_none().then_some(RESET)).chain(rest)
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tool_core::Agent;
    use tool_core::testing::ScriptedModel;

    use super::*;
    use crate::source::Source;

    /// A watcher that does not read holds one.
    #[tokio::test]
    async fn all_watchers_are_sent_the_same_bytes() {
        let agent = Agent::builder(ScriptedModel::new().says("x".repeat(1 << 20))).build().unwrap();
        let hub = Hub::new(vec![Arc::new(Source::agent(agent.clone()))], false);
        agent.ask("Go").await.unwrap();
        let log = hub.shown_log(&hub.logs()[0].id).await.unwrap();
        let sent = async || {
            let is_large = |frame: &Bytes| ready(frame.len() > 1 << 20);
            Box::pin(watch(&log, None).filter(is_large)).next().await.unwrap()
        };
        let (one, other) = (sent().await, sent().await);
        assert!(one.starts_with(b"id: 2\ndata: "), "{:?}", one.slice(..20));
        assert_eq!(one.as_ptr(), other.as_ptr());
    }
}
