//! Tasks: calls that the server goes on with by itself, and whose results are fetched later.

use std::time::Duration;

use rmcp::model::{CallToolResult, CreateTaskResult, GetTaskParams, TaskPayload, UpdateTaskParams};
use rmcp::service::ServiceError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use tool_core::tool::{AskError, Asker, Timestamp};
use tool_core::{ToolContext, ToolError};

use super::connection_manager::ConnectionManager;
use super::input::{Given, Round};
use super::text::truncate_name;
use super::{McpError, McpTool};

/// The longest id of a task.
const MAX_ID_BYTES: usize = 1024;

/// The interval between two polls for a result: the default without a hint of the server, the minimum and the maximum.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The longest wait for a task of a call that belongs to no run, as a multiple of the call's timeout.
const MAX_TIMEOUTS: u32 = 20;

/// The number of times that a task may ask for input.
const MAX_ROUNDS: usize = 32;

/// The state of a task that asks for nothing new.
enum Polled {
    Working,
    Result(CallToolResult),
    Failed(ToolError),
}

impl From<ToolError> for Polled {
    fn from(error: ToolError) -> Self {
        Self::Failed(error)
    }
}

impl From<AskError> for Polled {
    fn from(error: AskError) -> Self {
        Self::Failed(error.into())
    }
}

/// A call that the server goes on with.
#[derive(Serialize, Deserialize)]
pub(super) struct Task {
    id: String,
    interval_ms: Option<u64>,
}

impl Task {
    pub(super) fn new(server: &str, created: CreateTaskResult) -> Result<Self, McpError> {
        let task = created.task;
        match task.task_id.len() <= MAX_ID_BYTES {
            true => Ok(Self { id: task.task_id, interval_ms: task.poll_interval_ms }),
            false => {
                Err(McpError::invalid_response(server, "names a task by an id that is too long".to_owned()))
            }
        }
    }

    /// Returns the result once the task has one. Between two questions for it, the call is parked: it ends, and is executed again later, also
    /// by another process.
    pub(super) async fn result(
        mut self,
        manager: &ConnectionManager,
        tool: &McpTool,
        context: &ToolContext,
    ) -> Result<CallToolResult, ToolError> {
        let config = manager.config();
        let (started, asker) = (Instant::now(), context.asker());
        let (mut given, mut rounds) = (Given::default(), 0);
        loop {
            // What it asks for is recorded in the order of the questions: the same text under another key is another question.
            let polled = asker.once(&format!("task round {rounds}"), self.poll(manager, tool, &given)).await;
            match polled {
                Ok(_) if rounds >= MAX_ROUNDS => {
                    let problem = format!("asked for input more than {MAX_ROUNDS} times during one task");
                    return Err(ToolError::failed(McpError::invalid_response(&config.name, problem)));
                }
                Ok(round) => {
                    given.answer(round, tool, asker).await?;
                    rounds += 1;
                    continue;
                }
                Err(Polled::Result(result)) => return Ok(result),
                Err(Polled::Failed(error)) => return Err(error),
                Err(Polled::Working) => {}
            }
            let limit = config.timeout.saturating_mul(MAX_TIMEOUTS);
            self.pause(asker, limit.saturating_sub(started.elapsed())).await;
            if started.elapsed() >= limit {
                let name = format!("the task of `{}`", truncate_name(tool.original_name()));
                return Err(ToolError::failed(McpError::timeout(&config.name, &name, started.elapsed())));
            }
        }
    }

    /// Asks for the state of the task, and sends the answers to what it still asks for. Returns what was not answered.
    async fn poll(
        &mut self,
        manager: &ConnectionManager,
        tool: &McpTool,
        given: &Given,
    ) -> Result<Round, Polled> {
        let config = manager.config();
        let connection = manager.verified().await.map_err(ToolError::failed)?;
        let asked = connection.peer().get_task(GetTaskParams::new(&*self.id));
        let known = self.within(manager, tool, asked).await?.task;
        let invalid =
            |problem: &str| ToolError::failed(McpError::invalid_response(&config.name, problem.to_owned()));
        if known.task.task_id != self.id {
            return Err(invalid("answered for another task").into());
        }
        self.interval_ms = known.task.poll_interval_ms.or(self.interval_ms);
        let ended = match known.payload {
            TaskPayload::Completed { result } => {
                let result = serde_json::from_value(Value::Object(result));
                let result = result
                    .map_err(|_| invalid("completed a task with something that is no result of a call"))?;
                return Err(Polled::Result(result));
            }
            TaskPayload::Failed { error } => {
                let message = error.get("message").and_then(Value::as_str).unwrap_or("no reason is known");
                McpError::task_failed(&config.name, message, &config.redactor)
            }
            TaskPayload::Cancelled => McpError::task_cancelled(&config.name),
            TaskPayload::InputRequired { input_requests } => {
                let round = Round::of_task(&config.name, input_requests).map_err(ToolError::failed)?;
                let (responses, open) = given.answered(round);
                if !open.is_empty() {
                    return Ok(open);
                }
                if !responses.is_empty() {
                    let update = UpdateTaskParams::new(&*self.id, responses);
                    self.within(manager, tool, connection.peer().update_task(update)).await?;
                }
                return Err(Polled::Working);
            }
            _ => return Err(Polled::Working),
        };
        Err(ToolError::failed(ended).into())
    }

    /// Parks the call, or waits no longer than `left` if it belongs to no run.
    async fn pause(&self, asker: &Asker, left: Duration) {
        let interval = self.interval_ms.map_or(DEFAULT_INTERVAL, Duration::from_millis);
        let interval = interval.clamp(MIN_INTERVAL, MAX_INTERVAL);
        // Returns only if it cannot be parked.
        let _ = asker.park(&(), Timestamp::now().after(interval)).await;
        tokio::time::sleep(interval.min(left)).await;
    }

    async fn within<T>(
        &self,
        manager: &ConnectionManager,
        tool: &McpTool,
        request: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, ToolError> {
        let config = manager.config();
        let name = format!("the task of `{}`", truncate_name(tool.original_name()));
        let answered = tokio::time::timeout(config.timeout, request).await;
        let answered = answered
            .map_err(|_| ToolError::failed(McpError::timeout(&config.name, &name, config.timeout)))?;
        answered.map_err(|error| {
            ToolError::failed(McpError::from_service_error(&config.name, &name, error, &config.redactor))
        })
    }
}
