//! A task as its host reads it.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat};
use rmcp::model::{DetailedTask, InputRequests, Task, TaskPayload, TaskStatus};
use serde_json::{Value, json};
use tool_core::memory::{RunStatus, RunSummary};
use tool_core::run::{Run, StopReason, Wait};
use tool_core::signatures::Timestamp;
use tool_core::tool::ToolErrorKind;
use tool_core::{Message, ToolError, ToolOutput};

use super::form::form_of;
use super::output::{self, OutputSchema};
use super::questions::why_not_asked;
use super::task_id::TaskId;

/// The milliseconds after which a host asks again for a task that works, and for one that a person decides.
const POLL_WORKING_MS: u64 = 1_000;
const POLL_DECIDED_MS: u64 = 5_000;

/// A task of a caller.
pub(super) struct FoundTask {
    pub(super) id: TaskId,
    pub(super) run: Run,
    pub(super) listed: RunSummary,
}

impl FoundTask {
    /// Returns the name of the tool.
    pub(super) fn tool(&self) -> Option<&str> {
        // Also of a call that was never executed.
        let mut replies = self.run.messages().iter().filter_map(Message::as_assistant);
        replies.find_map(|reply| Some(&*reply.tool_calls.first()?.name))
    }

    /// Returns the task as hosts read it. `unable` says why the host cannot ask its user, if so.
    pub(super) fn describe(
        &self,
        schemas: &BTreeMap<String, OutputSchema>,
        unable: Option<&'static str>,
        lifetime: Duration,
    ) -> DetailedTask {
        let schema = self.tool().and_then(|tool| schemas.get(tool));
        let payload = self.payload(schema, unable);
        let age = u64::try_from(self.listed.age.as_millis()).unwrap_or(u64::MAX);
        let changed = Timestamp::from_millis(Timestamp::now().as_millis().saturating_sub(age));
        let mut task = task_of(&self.id, payload.status(), changed.max(self.id.created()), lifetime);
        let message = match (&payload, self.listed.status) {
            (TaskPayload::Cancelled, RunStatus::Expired) => Some("the call has not ended in time"),
            (TaskPayload::Cancelled, RunStatus::NotUndone) => {
                Some("the call is cancelled, and could not be undone")
            }
            (TaskPayload::Working, _) if self.run.waits().iter().any(|wait| !wait.is_until()) => {
                task.poll_interval_ms = Some(POLL_DECIDED_MS);
                Some("a person of this service decides about it")
            }
            _ => None,
        };
        task.status_message = message.map(str::to_owned);
        DetailedTask::new(task, payload)
    }

    fn payload(&self, schema: Option<&OutputSchema>, unable: Option<&'static str>) -> TaskPayload {
        let (run, status) = (&self.run, self.listed.status);
        if run.is_done() {
            return match (run.stop_reason(), run.tool_executions().first()) {
                (Some(StopReason::Cancelled), _) => TaskPayload::Cancelled,
                (_, Some(execution)) => ended(execution.outcome(), schema),
                (_, None) => failed("the call could not be executed"),
            };
        }
        // What can still change is not reported as the end, except that what has expired or cannot be undone ends as cancelled.
        if matches!(status, RunStatus::Expired | RunStatus::NotUndone) {
            return TaskPayload::Cancelled;
        }
        // It is about to end, and nobody is asked any more.
        if status == RunStatus::Cancelled {
            return TaskPayload::Working;
        }
        let asked = |wait: Wait| Some((wait.id.to_string(), form_of(wait.question()?)?));
        let open = run.waits().into_iter().filter(|wait| unable.or_else(|| why_not_asked(wait)).is_none());
        let input_requests: InputRequests = open.filter_map(asked).collect();
        match input_requests.is_empty() {
            true => TaskPayload::Working,
            false => TaskPayload::InputRequired { input_requests },
        }
    }
}

/// Returns the result of a call, or what is an error of the protocol.
fn ended(outcome: Result<&ToolOutput, &ToolError>, schema: Option<&OutputSchema>) -> TaskPayload {
    let result = match outcome {
        Ok(output) => output::success(output, schema),
        Err(error) if matches!(error.kind(), ToolErrorKind::UnknownTool | ToolErrorKind::Panicked) => {
            return failed(&error.to_string());
        }
        Err(error) => output::failure(&error.to_string()),
    };
    match serde_json::to_value(result) {
        Ok(Value::Object(result)) => TaskPayload::Completed { result },
        _ => failed("the result cannot be sent"),
    }
}

fn failed(message: &str) -> TaskPayload {
    let error = [("code", json!(-32603)), ("message", json!(message))];
    TaskPayload::Failed { error: error.into_iter().map(|(name, value)| (name.to_owned(), value)).collect() }
}

/// Returns what hosts read of a task in each status.
pub(super) fn task_of(id: &TaskId, status: TaskStatus, changed: Timestamp, lifetime: Duration) -> Task {
    let lifetime = changed.after(lifetime).since(id.created());
    Task::new(id.as_str(), status, rfc3339(id.created()), rfc3339(changed))
        .with_ttl_ms(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX))
        .with_poll_interval_ms(POLL_WORKING_MS)
}

fn rfc3339(time: Timestamp) -> String {
    let time = i64::try_from(time.as_millis()).ok().and_then(DateTime::from_timestamp_millis);
    time.unwrap_or_default().to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    use tool_core::engine::CallRequest;
    use tool_core::memory::{InMemoryStore, RunFilter};
    use tool_core::{Agent, ToolCall, tool, tools};

    use super::super::task_model::NothingToSay;
    use super::*;

    /// Its process may have ended before it marked the run as finished.
    #[tokio::test]
    async fn a_result_that_is_stored_is_final() {
        #[tool("Works")]
        fn work() -> &'static str {
            "done"
        }
        let builder = Agent::builder(NothingToSay).tools(tools![work]).run_store(InMemoryStore::new());
        let agent = builder.build().unwrap();
        let request = CallRequest::standalone(ToolCall::new("call_1", "work", "{}"));
        let mut driver = agent.resume(request.into_run(agent.name(), "Go on").unwrap()).start();
        while driver.advance().await.unwrap() {}
        let mut listed = agent.list_runs(&RunFilter::new()).await.unwrap().remove(0);
        listed.status = RunStatus::Expired;
        let found = FoundTask { id: TaskId::new().unwrap(), run: driver.run().clone(), listed };
        let task = found.describe(&BTreeMap::new(), None, Duration::from_secs(60));
        let task = serde_json::to_value(task).unwrap();
        assert_eq!((&task["status"], &task["statusMessage"]), (&json!("completed"), &Value::Null));
    }
}
