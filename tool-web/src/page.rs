//! The page: its files, and the data that it shows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{OriginalUri, Path, RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream::{self, Stream};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use tokio::time::timeout;
use url::form_urlencoded;

use crate::auth::Right;
use crate::entry::Entry;
use crate::guard::{Guard, HttpError, Sender, admit, admit_page, read_json};
use crate::hub::Hub;
use crate::index::{Filter, Row, Status};
use crate::log::{Found, LogStatus, Reader};
use crate::sse;
use crate::wait::{DecideError, Described, Recorded, Verdict, describe};

const HTML: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/page.js");
const ICON: &str = include_str!("page/icon.svg");
const STYLE: &str = include_str!("page/page.css");

/// The time between two readings of a stored run that is shown.
const POLL: Duration = Duration::from_millis(1_500);

/// The number of runs in a list, by default and at most.
const DEFAULT_RUNS: usize = 100;
const MAX_RUNS: usize = 1_000;

#[derive(Debug)]
pub(crate) struct PageState {
    pub(crate) hub: Arc<Hub>,
    pub(crate) guard: Arc<Guard>,
}

type Shared = State<Arc<PageState>>;

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
        .route("/api/runs/{id}/decisions", post(decide))
        .route("/api/runs/{id}/cancel", post(cancel))
        .route("/api/runs/{id}/resume", post(resume))
        .layer(from_fn_with_state(Arc::clone(&guard), admit));
    files.merge(data).with_state(Arc::new(PageState { hub, guard }))
}

fn file(media_type: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, format!("{media_type}; charset=utf-8"))], text).into_response()
}

/// Returns the page, with the paths of its files below the path of the router.
async fn index(OriginalUri(uri): OriginalUri) -> Response {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~%".contains(&byte);
    let prefix = uri.path().trim_end_matches('/');
    if !prefix.bytes().all(is_plain) {
        return HttpError::new(StatusCode::NOT_FOUND, "unknown URL").into_response();
    }
    let html = HTML.replace("{prefix}", prefix);
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => (status, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(_) => HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error").into_response(),
    }
}

async fn list(
    State(state): Shared,
    sender: Sender,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    sender.check(Right::Read)?;
    let query: HashMap<_, _> =
        form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes()).into_owned().collect();
    let value = |name| query.get(name).filter(|value: &&String| !value.is_empty()).cloned();
    let status = value("status").map(|name| Status::from_name(&name)).transpose();
    let status = status.map_err(|error| HttpError::bad_request(format!("invalid status: {error}")))?;
    let limit: Option<usize> = value("limit")
        .map(|limit| limit.parse())
        .transpose()
        .map_err(|_| HttpError::bad_request("`limit` must be a number"))?;
    let limit = limit.unwrap_or(DEFAULT_RUNS).min(MAX_RUNS);
    let filter = Filter { status, agent: value("agent"), text: value("text"), limit };
    Ok(json(StatusCode::OK, &state.hub.list(&filter).await))
}

/// A run, as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    row: Row,
    open: Vec<ShownWait>,
    rights: Rights,
    now: u64,
}

#[derive(Debug, Serialize)]
struct ShownWait {
    #[serde(flatten)]
    wait: Described,
    /// The decision, until the driver has taken it.
    recorded: Option<Recorded>,
}

#[derive(Debug, Serialize)]
struct Rights {
    decide: bool,
    administer: bool,
}

async fn show(State(state): Shared, sender: Sender, Path(id): Path<String>) -> Result<Response, HttpError> {
    sender.check(Right::Read)?;
    let row = state.hub.row(&id).await.ok_or_else(HttpError::unknown_run)?;
    // An unreadable run is shown with its error.
    let loaded = state.hub.load(&id).await.ok().flatten();
    let waits = loaded.map(|loaded| describe(&loaded.run, loaded.source.agent.as_ref())).unwrap_or_default();
    let open =
        waits.into_iter().map(|wait| ShownWait { recorded: state.hub.recorded(&wait.pending.id), wait });
    let rights = Rights { decide: sender.0.may(Right::Decide), administer: sender.0.may(Right::Administer) };
    let shown = Shown { row, open: open.collect(), rights, now: crate::log::unix_millis() };
    Ok(json(StatusCode::OK, &shown))
}

async fn state(State(state): Shared, sender: Sender, Path(id): Path<String>) -> Result<Response, HttpError> {
    sender.check(Right::Administer)?;
    let loaded = state.hub.load(&id).await.map_err(|_| HttpError::store())?;
    match loaded {
        Some(loaded) => Ok(json(StatusCode::OK, &loaded.run)),
        None => Err(refusal(&state.hub, &id).await),
    }
}

/// Explains why nothing can be done with a run.
async fn refusal(hub: &Hub, id: &str) -> HttpError {
    let is_stored = matches!(hub.load(id).await, Ok(Some(_)));
    match hub.log(id).map(|log| log.summary().status) {
        None if !is_stored => HttpError::unknown_run(),
        Some(LogStatus::Done | LogStatus::Failed | LogStatus::Cancelled) if !is_stored => {
            HttpError::new(StatusCode::CONFLICT, "the run has ended")
        }
        _ => {
            HttpError::new(StatusCode::CONFLICT, "the run is in progress, or its agent is in another program")
        }
    }
}

async fn cancel(State(state): Shared, sender: Sender, Path(id): Path<String>) -> Result<Response, HttpError> {
    sender.check(Right::Administer)?;
    match state.hub.cancel(&id).await {
        Ok(true) => Ok(StatusCode::NO_CONTENT.into_response()),
        Ok(false) => Err(refusal(&state.hub, &id).await),
        Err(_) => Err(HttpError::store()),
    }
}

async fn resume(State(state): Shared, sender: Sender, Path(id): Path<String>) -> Result<Response, HttpError> {
    sender.check(Right::Administer)?;
    match state.hub.resume(&id).await {
        Ok(true) => Ok(StatusCode::NO_CONTENT.into_response()),
        Ok(false) => Err(refusal(&state.hub, &id).await),
        Err(_) => Err(HttpError::store()),
    }
}

/// A decision, as the page sends it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    wait: String,
    decision: SentKind,
    /// The new arguments of an edited call, in which numbers keep every digit.
    #[serde(default, deserialize_with = "present")]
    arguments: Option<Box<RawValue>>,
    /// The answer to a question.
    #[serde(default, deserialize_with = "present")]
    answer: Option<Box<RawValue>>,
    reason: Option<String>,
}

/// Reads a member that can be `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum SentKind {
    Approve,
    Edit,
    Answer,
    Deny,
}

async fn decide(
    State(state): Shared,
    sender: Sender,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, HttpError> {
    sender.check(Right::Decide)?;
    let sent: Sent = read_json(&state.guard, request).await?;
    let verdict = match (sent.decision, sent.arguments, sent.answer) {
        (SentKind::Approve, None, None) => Ok(Verdict::Approve),
        (SentKind::Edit, Some(arguments), None) => Ok(Verdict::Edit(arguments.get().to_owned())),
        (SentKind::Answer, None, Some(answer)) => Ok(Verdict::Answer(answer.get().to_owned())),
        (SentKind::Deny, None, None) => {
            Ok(Verdict::Deny(sent.reason.filter(|reason| !reason.trim().is_empty())))
        }
        (SentKind::Edit, None, _) => Err("the decision `edit` needs `arguments`, the new ones as JSON"),
        (SentKind::Answer, _, None) => Err("the decision `answer` needs `answer`, a JSON value"),
        (_, Some(_), None) => Err("`arguments` belongs to the decision `edit`"),
        (_, _, Some(_)) => Err("`answer` belongs to the decision `answer`"),
    };
    let verdict = verdict.map_err(HttpError::bad_request)?;
    match state.hub.decide(&id, sender.0.name(), vec![(sent.wait, verdict)]).await {
        Ok(recorded) => Ok(json(StatusCode::OK, &recorded.first())),
        Err(DecideError::AlreadyDecided(recorded)) => Ok(json(StatusCode::CONFLICT, &recorded)),
        Err(DecideError::UnknownRun) => Err(refusal(&state.hub, &id).await),
        Err(error) => Err(error.into()),
    }
}

impl From<DecideError> for HttpError {
    fn from(error: DecideError) -> Self {
        match error {
            DecideError::UnknownRun => Self::unknown_run(),
            DecideError::NotWaiting => {
                Self::new(StatusCode::CONFLICT, "the run does not wait for this any more; read it again")
            }
            DecideError::AlreadyDecided(recorded) => {
                let by = recorded.by.as_deref().unwrap_or("somebody");
                Self::new(StatusCode::CONFLICT, format!("`{by}` has decided otherwise"))
            }
            DecideError::DecidedElsewhere => {
                Self::new(StatusCode::CONFLICT, "another program drives the run, or has decided already")
            }
            DecideError::Invalid(text) => Self::bad_request(text),
            DecideError::Store => Self::store(),
        }
    }
}

async fn events(
    State(state): Shared,
    sender: Sender,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    sender.check(Right::Read)?;
    if state.hub.row(&id).await.is_none() {
        return Err(HttpError::unknown_run());
    }
    let after = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    Ok(sse::response(watch(Arc::clone(&state.hub), id, after)))
}

/// Where the events of a run come from.
enum Feed {
    Nothing {
        after: Option<u64>,
    },
    Log(Reader),
    /// The entries of the stored run that were sent.
    Store(Vec<Entry>),
}

/// Streams the entries of a run for as long as it is watched: from its log while it is driven here, otherwise from the store. Where
/// one does not continue the other, a `reset` says that the run follows from its beginning.
fn watch(hub: Arc<Hub>, id: String, after: Option<u64>) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(Some(Feed::Nothing { after }), move |from| {
        let (hub, id) = (Arc::clone(&hub), id.clone());
        async move {
            let mut from = from?;
            loop {
                let (next, out) = from.next(&hub, &id).await?;
                if let Some(out) = out.filter(|out| !out.is_empty()) {
                    return Some((Bytes::from(out), next));
                }
                from = next?;
            }
        }
    })
}

/// What follows is the run from its beginning.
const RESET: &str = "data: {\"type\":\"reset\"}\n\n";

/// The run has ended in another process.
const GONE: &str = "data: {\"type\":\"gone\"}\n\n";

impl Feed {
    /// Returns what to send, and the source after it; `None` if the run is gone.
    async fn next(self, hub: &Hub, id: &str) -> Option<(Option<Self>, Option<String>)> {
        match self {
            Self::Nothing { after } => match hub.log(id).filter(|log| log.is_driven() || log.has_end()) {
                Some(log) => {
                    let known = after.filter(|after| *after < log.end());
                    let reader = log.read(known.map_or(0, |after| after + 1));
                    Some((Some(Self::Log(reader)), known.is_none().then(|| RESET.to_owned())))
                }
                None => Some((Some(Self::Store(Vec::new())), Some(RESET.to_owned()))),
            },
            Self::Log(mut reader) => {
                match reader.try_next() {
                    Found::Entry(position, entry) => {
                        let text = serde_json::to_string(&*entry).unwrap_or_default();
                        return Some((Some(Self::Log(reader)), Some(sse::frames(&[text], Some(position)))));
                    }
                    Found::Gap => {}
                    Found::End { is_driven: true } => {
                        reader.changed().await;
                        return Some((Some(Self::Log(reader)), None));
                    }
                    Found::End { is_driven: false } => {
                        if timeout(POLL, reader.changed()).await.is_ok() {
                            return Some((Some(Self::Log(reader)), None));
                        }
                        // Another process may have continued the run.
                        return match hub.load(id).await {
                            Ok(Some(loaded)) if !reader.log().agrees_with(&loaded.run) => {
                                Some((Some(Self::Store(Vec::new())), Some(RESET.to_owned())))
                            }
                            Ok(None) if !reader.log().has_end() => Some((None, Some(GONE.to_owned()))),
                            _ => Some((Some(Self::Log(reader)), None)),
                        };
                    }
                }
                Some((Some(Self::Log(reader)), Some(RESET.to_owned())))
            }
            Self::Store(sent) => {
                if let Some(log) = hub.log(id).filter(|log| log.is_driven()) {
                    return Some((Some(Self::Log(log.read(0))), Some(RESET.to_owned())));
                }
                let Some(loaded) = hub.load(id).await.ok()? else {
                    return match hub.log(id).filter(|log| log.has_end()) {
                        Some(log) => Some((Some(Self::Log(log.read(0))), Some(RESET.to_owned()))),
                        None => Some((None, Some(GONE.to_owned()))),
                    };
                };
                let entries = Entry::replay(&loaded.run);
                let continues = entries.starts_with(&sent);
                let mut out = if continues { String::new() } else { RESET.to_owned() };
                let rest = entries.iter().skip(if continues { sent.len() } else { 0 });
                let texts: Vec<_> = rest.filter_map(|entry| serde_json::to_string(entry).ok()).collect();
                out.push_str(&sse::frames(&texts, None));
                if out.is_empty() {
                    tokio::time::sleep(POLL).await;
                }
                Some((Some(Self::Store(entries)), Some(out)))
            }
        }
    }
}
