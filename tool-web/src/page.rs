//! The page: its files, and the data that it shows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{OriginalUri, Path, RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream::{self, Stream, StreamExt};
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::timeout;
use tool_core::Message;
use tool_core::run::{Decision, Run};
use tool_core::tool::{DecisionRecord, Timestamp, VerdictRecord, WaitId};
use url::form_urlencoded;

use crate::auth::Right;
use crate::guard::{Guard, HttpError, Sender, admit, admit_page, read_json};
use crate::hub::Hub;
use crate::list::Filter;
use crate::log::{Found, Row, RunLog, Status};
use crate::plain;
use crate::sse;
use crate::wait::{DecideError, Described, describe};

const HTML: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/page.js");
const ICON: &str = include_str!("page/icon.svg");
const STYLE: &str = include_str!("page/page.css");

/// The time between two readings of a stored run that is shown.
const POLL: Duration = Duration::from_millis(1_500);

/// The number of runs in a list, by default and at most.
const DEFAULT_RUNS: usize = 100;
const MAX_RUNS: usize = 1_000;

pub(crate) struct PageState {
    pub(crate) hub: Arc<Hub>,
    pub(crate) guard: Arc<Guard>,
}

type Shared = State<Arc<PageState>>;
type Answer = Result<Response, HttpError>;

pub(crate) fn router(hub: Arc<Hub>, guard: Arc<Guard>) -> Router {
    let files = Router::new()
        .route("/", get(index))
        .route("/icon.svg", get(async || file("image/svg+xml", ICON)))
        .route("/page.js", get(async || file("text/javascript", SCRIPT)))
        .route("/page.css", get(async || file("text/css", STYLE)))
        .layer(from_fn_with_state(Arc::clone(&guard), admit_page));
    let data = Router::new()
        .route("/api/runs", get(list))
        .route("/api/runs/{id}", get(show))
        .route("/api/runs/{id}/events", get(events))
        .route("/api/runs/{id}/state", get(state))
        .route("/api/runs/{id}/turns/{turn}", get(turn))
        .route("/plain", get(plain_list))
        .route("/plain/{id}", get(plain_run))
        .route("/api/runs/{id}/decisions", post(decide))
        .route("/api/runs/{id}/cancel", post(cancel))
        .route("/api/runs/{id}/resume", post(resume))
        .layer(from_fn_with_state(Arc::clone(&guard), admit));
    files.merge(data).with_state(Arc::new(PageState { hub, guard }))
}

fn file(media_type: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, format!("{media_type}; charset=utf-8"))], text).into_response()
}

/// Returns the page, with relative links to its files: a page at `/runs` has them below `runs/`.
async fn index(OriginalUri(uri): OriginalUri) -> Response {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~%".contains(&byte);
    let last = uri.path().rsplit('/').next().filter(|last| !last.is_empty()).unwrap_or(".");
    if !last.bytes().all(is_plain) {
        return HttpError::new(StatusCode::NOT_FOUND, "unknown URL").into_response();
    }
    let html = HTML.replace("{prefix}", last);
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => (status, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(_) => HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error").into_response(),
    }
}

async fn list(State(state): Shared, sender: Sender, RawQuery(query): RawQuery) -> Answer {
    sender.check(Right::Read)?;
    Ok(json(StatusCode::OK, &state.hub.list(&filter(query)?).await))
}

async fn plain_list(State(state): Shared, sender: Sender, RawQuery(query): RawQuery) -> Answer {
    sender.check(Right::Read)?;
    Ok(Html(plain::list(&state.hub.list(&filter(query)?).await)).into_response())
}

async fn plain_run(State(state): Shared, sender: Sender, Path(id): Path<String>) -> Answer {
    let Shown { row, open, .. } = shown(&state.hub, &sender, &id).await?;
    let waits: Vec<_> = open.into_iter().map(|open| open.wait).collect();
    let log = state.hub.shown_log(&id).await.ok_or_else(HttpError::unknown_run)?;
    Ok(Html(plain::run(&row, &waits, &log)).into_response())
}

fn filter(query: Option<String>) -> Result<Filter, HttpError> {
    let query: HashMap<_, _> =
        form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes()).into_owned().collect();
    let value = |name| query.get(name).filter(|value: &&String| !value.is_empty()).cloned();
    let status = |name: String| Status::deserialize(StrDeserializer::<ValueError>::new(&name));
    let status = value("status").map(status).transpose();
    let status = status.map_err(|error| HttpError::bad_request(format!("invalid status: {error}")))?;
    let limit: Option<usize> = value("limit")
        .map(|limit| limit.parse())
        .transpose()
        .map_err(|_| HttpError::bad_request("`limit` must be a number"))?;
    let limit = limit.unwrap_or(DEFAULT_RUNS).min(MAX_RUNS);
    Ok(Filter { status, agent: value("agent"), text: value("text"), limit })
}

/// A run, as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    row: Row,
    open: Vec<ShownWait>,
    /// What layers decided about the question and the answers.
    verdicts: Vec<VerdictRecord>,
    rights: Rights,
    now: Timestamp,
}

#[derive(Debug, Serialize)]
struct ShownWait {
    #[serde(flatten)]
    wait: Described,
    /// The decision, until the driver has taken it.
    recorded: Option<DecisionRecord>,
}

#[derive(Debug, Serialize)]
struct Rights {
    decide: bool,
    administer: bool,
}

async fn show(State(state): Shared, sender: Sender, Path(id): Path<String>) -> Answer {
    Ok(json(StatusCode::OK, &shown(&state.hub, &sender, &id).await?))
}

async fn shown(hub: &Hub, sender: &Sender, id: &str) -> Result<Shown, HttpError> {
    sender.check(Right::Read)?;
    let row = hub.row(id).await.ok_or_else(HttpError::unknown_run)?;
    // An unreadable run is shown with its error.
    let loaded = hub.load(id).await.ok().flatten();
    let verdicts = loaded.as_ref().map(|loaded| loaded.run.verdicts().to_vec()).unwrap_or_default();
    let waits = loaded.map(|loaded| describe(&loaded.run, loaded.source.agent.as_ref())).unwrap_or_default();
    let open = waits.into_iter().map(|wait| {
        let recorded = hub.recorded(&wait.wait.id).map(|recorded| recorded.record);
        ShownWait { recorded, wait }
    });
    let rights = Rights { decide: sender.0.may(Right::Decide), administer: sender.0.may(Right::Administer) };
    Ok(Shown { row, open: open.collect(), verdicts, rights, now: Timestamp::now() })
}

/// Returns the request to the model and the response of a turn, as far as they are known.
async fn turn(State(state): Shared, sender: Sender, Path((id, turn)): Path<(String, u32)>) -> Answer {
    sender.check(Right::Administer)?;
    let log = state.hub.shown_log(&id).await.ok_or_else(HttpError::unknown_run)?;
    let (recorded, response) = log.exchange(turn);
    let recorded = recorded.and_then(|request| RawValue::from_string(request).ok());
    let loaded = state.hub.load(&id).await.ok().flatten().filter(|_| recorded.is_none());
    let messages = loaded.as_ref().and_then(|loaded| messages_before(&loaded.run, turn));
    let request = recorded.or_else(|| to_raw_value(&serde_json::json!({ "messages": messages? })).ok());
    Ok(json(StatusCode::OK, &serde_json::json!({ "request": request, "response": response })))
}

/// Returns the messages that a turn of a stored run has sent.
fn messages_before(run: &Run, turn: u32) -> Option<&[Message]> {
    let (all, new) = (run.messages(), run.new_messages());
    let mut replies = new.iter().enumerate().filter(|(_, message)| message.as_assistant().is_some());
    let earlier = run.turns().checked_sub(u32::try_from(replies.clone().count()).ok()?)?;
    let (index, _) = replies.nth(turn.checked_sub(earlier + 1)?.try_into().ok()?)?;
    all.get(..all.len() - new.len() + index)
}

async fn state(State(state): Shared, sender: Sender, Path(id): Path<String>) -> Answer {
    sender.check(Right::Administer)?;
    let loaded = state.hub.load(&id).await?;
    match loaded {
        Some(loaded) => Ok(json(StatusCode::OK, &loaded.run)),
        None => Err(refusal(&state.hub, &id).await),
    }
}

/// Explains why nothing can be done with a run.
async fn refusal(hub: &Hub, id: &str) -> HttpError {
    let is_stored = matches!(hub.load(id).await, Ok(Some(_)));
    match hub.log(id).map(|log| log.status()) {
        None if !is_stored => HttpError::unknown_run(),
        Some(status) if !is_stored && status.is_end() => {
            HttpError::new(StatusCode::CONFLICT, "the run has ended")
        }
        _ => {
            HttpError::new(StatusCode::CONFLICT, "the run is in progress, or its agent is in another program")
        }
    }
}

async fn cancel(State(state): Shared, sender: Sender, Path(id): Path<String>) -> Answer {
    sender.check(Right::Administer)?;
    answer_action(&state.hub, &id, state.hub.cancel(&id).await?).await
}

async fn resume(State(state): Shared, sender: Sender, Path(id): Path<String>) -> Answer {
    sender.check(Right::Administer)?;
    answer_action(&state.hub, &id, state.hub.resume(&id).await?).await
}

async fn answer_action(hub: &Hub, id: &str, was_done: bool) -> Answer {
    if was_done { Ok(StatusCode::NO_CONTENT.into_response()) } else { Err(refusal(hub, id).await) }
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

async fn decide(State(state): Shared, sender: Sender, Path(id): Path<String>, request: Request) -> Answer {
    sender.check(Right::Decide)?;
    let sent: Sent = read_json(&state.guard, request).await?;
    let decision = match sent.decision {
        SentDecision::Approve => Decision::approve(),
        SentDecision::Edit(arguments) => Decision::approve_with(arguments.get()),
        SentDecision::Answer(answer) => Decision::answer_json(answer.get()),
        SentDecision::Deny(reason) => {
            reason.filter(|why| !why.trim().is_empty()).map_or_else(Decision::decline, Decision::deny)
        }
    };
    match state.hub.decide(&id, sender.0.name(), vec![(sent.wait, decision)]).await {
        Ok(recorded) => Ok(json(StatusCode::OK, &recorded.first().map(|recorded| &recorded.record))),
        Err(DecideError::AlreadyDecided(record)) => Ok(json(StatusCode::CONFLICT, &record)),
        Err(DecideError::UnknownRun) => Err(refusal(&state.hub, &id).await),
        Err(error) => Err(error.into()),
    }
}

async fn events(State(state): Shared, sender: Sender, Path(id): Path<String>, headers: HeaderMap) -> Answer {
    sender.check(Right::Read)?;
    let log = state.hub.shown_log(&id).await.ok_or_else(HttpError::unknown_run)?;
    let after = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    Ok(sse::response(watch(Arc::clone(&state.hub), log, after)))
}

/// What follows is the run from its beginning.
const RESET: &str = "data: {\"type\":\"reset\"}\n\n";

/// The run has ended in another process.
const GONE: &str = "data: {\"type\":\"gone\"}\n\n";

/// Streams the entries of a run for as long as it is watched. While nobody drives it here, the store is read again and again. Where
/// the log does not go on, a `reset` says that the run follows from its beginning.
fn watch(hub: Arc<Hub>, log: Arc<RunLog>, after: Option<u64>) -> impl Stream<Item = Bytes> + Send {
    let after = after.filter(|after| *after < log.end());
    let opening = after.is_none().then(|| Bytes::from_static(RESET.as_bytes()));
    let reader = log.read(after.map_or(0, |after| after + 1));
    let rest = stream::unfold(Some(reader), move |reader| {
        let hub = Arc::clone(&hub);
        async move {
            let mut reader = reader?;
            loop {
                match reader.try_next() {
                    Found::Entry(position, logged) => {
                        let frame = sse::frames(&[&logged.json], Some(position));
                        return Some((frame.into(), Some(reader)));
                    }
                    Found::Gap => return Some((Bytes::from_static(RESET.as_bytes()), Some(reader))),
                    Found::End { is_driven: true } => reader.changed().await,
                    Found::End { is_driven: false } => {
                        if timeout(POLL, reader.changed()).await.is_ok() {
                            continue;
                        }
                        match hub.log(&reader.log().id).filter(|log| !Arc::ptr_eq(log, reader.log())) {
                            Some(log) => {
                                let reset = Bytes::from_static(RESET.as_bytes());
                                return Some((reset, Some(log.read(log.first()))));
                            }
                            None if hub.refresh(reader.log()).await => {}
                            None => return Some((Bytes::from_static(GONE.as_bytes()), None)),
                        }
                    }
                }
            }
        }
    });
    stream::iter(opening).chain(rest)
}
