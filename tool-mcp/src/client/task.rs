//! Tasks: calls that the server goes on with by itself, and whose results are fetched later.
//!
//! A call that is dropped cancels its task only if its run was cancelled or it belongs to none, because a run whose process ends goes on
//! elsewhere. If the run is stopped while the call waits, or the call must not go on, the driver of the run reports that (`Tool::give_up`).

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolResult, CancelTaskParams, CreateTaskResult, GetTaskParams, TaskPayload, UpdateTaskParams,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tool_core::signatures::Timestamp;
use tool_core::tool::AskError;
use tool_core::{CancellationToken, ToolContext, ToolError};

use super::config::ServerConfig;
use super::connection_manager::ConnectionManager;
use super::input::{Given, Round};
use super::login_page::LoginPage;
use super::text::truncate_name;
use super::{McpError, McpErrorKind, McpTool};

/// The longest id of a task.
const MAX_ID_BYTES: usize = 1024;

/// The interval between two polls for a result: the default without a hint of the server, the minimum and the maximum.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The longest wait for a task of a call that belongs to no run, as a multiple of the call's timeout.
const MAX_TIMEOUTS: u32 = 20;

/// The longest time for a request that cancels a task.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(60);

/// The number of times that a task may ask for input.
const MAX_ROUNDS: usize = 32;

/// The time for which the polls for a task may fail if its server does not state how long it keeps the task, and at most.
const DEFAULT_TTL: Duration = Duration::from_secs(24 * 60 * 60);
const MAX_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The state of a task that asks for nothing new.
enum Polled {
    Working,
    Ended(Result<CallToolResult, ToolError>),
    /// The server can be asked again later.
    Unanswered(McpError),
    /// The call ends, and so does the task if it can be cancelled.
    Abandoned(McpError),
    /// The call cannot be continued here.
    Lost(AskError),
}

impl From<McpError> for Polled {
    fn from(error: McpError) -> Self {
        match error.is_unanswered() {
            true => Self::Unanswered(error),
            false => Self::Abandoned(error),
        }
    }
}

impl From<AskError> for Polled {
    fn from(error: AskError) -> Self {
        Self::Lost(error)
    }
}

/// The logins that polls have required.
#[derive(Default)]
struct Logins {
    shown: usize,
    pages: usize,
}

/// A call that the server goes on with.
#[derive(Serialize, Deserialize)]
pub(super) struct Task {
    id: String,
    interval_ms: Option<u64>,
    ttl_ms: Option<u64>,
}

impl Task {
    pub(super) fn new(server: &str, created: CreateTaskResult) -> Result<Self, McpError> {
        let task = created.task;
        match task.task_id.len() <= MAX_ID_BYTES {
            true => Ok(Self { id: task.task_id, interval_ms: task.poll_interval_ms, ttl_ms: task.ttl_ms }),
            false => {
                Err(McpError::invalid_response(server, "names a task by an id that is too long".to_owned()))
            }
        }
    }

    /// Returns the result once the task has one. Between two questions for it, the call is parked: it ends, and is executed again later, also
    /// by another process.
    ///
    /// A poll without an answer is repeated in the same way, because the server goes on with the task.
    pub(super) async fn result(
        mut self,
        manager: &Arc<ConnectionManager>,
        tool: &McpTool,
        context: &ToolContext,
    ) -> Result<CallToolResult, ToolError> {
        let config = manager.config();
        let (started, asker) = (Instant::now(), context.asker());
        let (mut given, mut rounds) = (Given::default(), 0);
        // The round and the time since which the polls have failed.
        let mut failing = asker.parked::<Option<(usize, Timestamp)>>()?.flatten();
        let mut logins = Logins::default();
        let mut cancel_on_drop = CancelOnDrop {
            manager: Some(Arc::clone(manager)),
            id: self.id.clone(),
            cancellation: context.cancellation().clone(),
            is_abandoned: false,
        };
        let error = loop {
            // What it asks for is recorded in the order of the questions: the same text under another key is another question.
            let mut polled =
                asker.once(&format!("task round {rounds}"), self.poll(manager, tool, &given)).await;
            if let Err(Polled::Unanswered(error)) = polled {
                match log_in(config, context, error, &mut logins).await {
                    Ok(()) => continue,
                    Err(reason) => polled = Err(reason),
                }
            }
            match polled {
                Ok(_) if rounds >= MAX_ROUNDS => {
                    let problem = format!("asked for input more than {MAX_ROUNDS} times during one task");
                    break McpError::invalid_response(&config.name, problem);
                }
                Ok(round) => {
                    given.answer(round, tool, asker).await?;
                    rounds += 1;
                    continue;
                }
                Err(Polled::Ended(ended)) => {
                    cancel_on_drop.manager = None;
                    return ended;
                }
                Err(Polled::Lost(error)) => return Err(error.into()),
                Err(Polled::Abandoned(error)) => break error,
                Err(Polled::Unanswered(error)) => {
                    let now = Timestamp::now();
                    let since = failing.filter(|(round, _)| *round == rounds).map_or(now, |(_, since)| since);
                    if now.since(since) >= self.ttl() {
                        break error;
                    }
                    failing = Some((rounds, since));
                }
                Err(Polled::Working) => failing = None,
            }
            let limit = config.timeout.saturating_mul(MAX_TIMEOUTS);
            let until = Timestamp::now().after(self.interval());
            // A parked call is given up by its run.
            let armed = cancel_on_drop.manager.take();
            // Returns only in a call that is not parked, whose task nobody else asks for.
            let _ = asker.park(&failing, until).await;
            (cancel_on_drop.manager, cancel_on_drop.is_abandoned) = (armed, true);
            tokio::time::sleep(self.interval().min(limit.saturating_sub(started.elapsed()))).await;
            if started.elapsed() >= limit {
                break McpError::timeout(&config.name, &request_name(tool), started.elapsed());
            }
        };
        cancel_on_drop.is_abandoned = true;
        Err(ToolError::failed(error.with_unknown_outcome()))
    }

    /// Asks for the state of the task, and sends the answers to what it still asks for. Returns what was not answered.
    async fn poll(
        &mut self,
        manager: &ConnectionManager,
        tool: &McpTool,
        given: &Given,
    ) -> Result<Round, Polled> {
        let config = manager.config();
        let connection = manager.verified().await?;
        let (peer, name) = (connection.peer(), request_name(tool));
        let known = config.await_response(&name, peer.get_task(GetTaskParams::new(&*self.id))).await?.task;
        let invalid = |problem: &str| McpError::invalid_response(&config.name, problem.to_owned());
        if known.task.task_id != self.id {
            return Err(invalid("answered for another task").into());
        }
        self.interval_ms = known.task.poll_interval_ms.or(self.interval_ms);
        let ended = match known.payload {
            TaskPayload::Completed { result } => {
                let result = serde_json::from_value(Value::Object(result));
                let result = result
                    .map_err(|_| invalid("completed a task with something that is no result of a call"))?;
                return Err(Polled::Ended(Ok(result)));
            }
            TaskPayload::Failed { error } => {
                let message = error.get("message").and_then(Value::as_str).unwrap_or("no reason is known");
                McpError::task_failed(&config.name, message, &config.redactor)
            }
            TaskPayload::Cancelled => McpError::task_cancelled(&config.name),
            TaskPayload::InputRequired { input_requests } => {
                let round = Round::of_task(&config.name, input_requests)?;
                let (responses, open) = given.answered(round);
                if !open.is_empty() {
                    return Ok(open);
                }
                if !responses.is_empty() {
                    let update = UpdateTaskParams::new(&*self.id, responses);
                    config.await_response(&name, peer.update_task(update)).await?;
                }
                return Err(Polled::Working);
            }
            _ => return Err(Polled::Working),
        };
        Err(Polled::Ended(Err(ToolError::failed(ended))))
    }

    /// Cancels the task at the server, which need not do so.
    pub(super) async fn cancel(self, manager: &ConnectionManager) {
        let cancelling = async {
            let connection = match manager.verified().await {
                Err(error) if error.is_unanswered() && manager.is_reconnected(0).await => {
                    manager.verified().await
                }
                verified => verified,
            };
            if let Ok(connection) = connection {
                let _ = connection.peer().cancel_task(CancelTaskParams::new(self.id)).await;
            }
        };
        let _ = tokio::time::timeout(CANCEL_TIMEOUT, cancelling).await;
    }

    fn interval(&self) -> Duration {
        let interval = self.interval_ms.map_or(DEFAULT_INTERVAL, Duration::from_millis);
        interval.clamp(MIN_INTERVAL, MAX_INTERVAL)
    }

    fn ttl(&self) -> Duration {
        self.ttl_ms.map_or(DEFAULT_TTL, Duration::from_millis).min(MAX_TTL)
    }
}

/// Lets the user log in after a poll that requires it, so that it can be repeated. Otherwise returns the reason.
async fn log_in(
    config: &ServerConfig,
    context: &ToolContext,
    error: McpError,
    earlier: &mut Logins,
) -> Result<(), Polled> {
    let error = match config.log_in(error, &mut earlier.shown, true).await {
        Err(error) if error.kind() == McpErrorKind::LoginRequired => error,
        logged_in => return Ok(logged_in?),
    };
    let page = async { Ok::<_, Polled>(LoginPage::for_call(config, context, error)?) };
    let page = context.asker().once(&format!("task login {}", earlier.pages), page).await?;
    earlier.pages += 1;
    match page.confirm(&config.name, context.asker()).await? {
        true => Ok(()),
        false => Err(Polled::Abandoned(McpError::not_logged_in(&config.name))),
    }
}

fn request_name(tool: &McpTool) -> String {
    format!("the task of `{}`", truncate_name(tool.original_name()))
}

/// Cancels a task at the server whose result nobody awaits any more. A call of a run is dropped while it waits, and while its process
/// ends, and goes on later: then its task does, too.
struct CancelOnDrop {
    /// `None` once the task has ended or the call is parked.
    manager: Option<Arc<ConnectionManager>>,
    id: String,
    /// Cancelled with the run of the call.
    cancellation: CancellationToken,
    /// The call cannot go on later.
    is_abandoned: bool,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(manager) = self.manager.take() else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        if self.is_abandoned || self.cancellation.is_cancelled() {
            let task = Task { id: std::mem::take(&mut self.id), interval_ms: None, ttl_ms: None };
            runtime.spawn(async move { task.cancel(&manager).await });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_fail_for_at_most_a_month() {
        let ttl = |ttl_ms| Task { id: String::new(), interval_ms: None, ttl_ms }.ttl().as_secs() / (60 * 60);
        assert_eq!([None, Some(3_600_000), Some(u64::MAX)].map(ttl), [24, 1, 30 * 24]);
    }
}
