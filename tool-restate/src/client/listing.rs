//! The runs of all agents on a server, for those who operate it.

use std::time::Duration;

use http::HeaderMap;
use serde::Deserialize;
use tool_core::tool::WaitId;

use super::admin::Admin;
use super::remote_agent::Client;
use crate::error::Error;
use crate::names::Waiting;
use crate::signals::WAITING;

/// What [`Client::list_runs`] says about a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunListing {
    /// The name of the agent that was asked.
    pub agent: String,
    /// The [key](crate::RemoteRun::key) of the run.
    pub key: String,
    /// What it does.
    pub status: ListedStatus,
    /// The time since it was asked.
    pub age: Duration,
}

/// What a listed run does.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ListedStatus {
    /// Its question has not reached a worker yet.
    Queued,
    /// It works.
    Running,
    /// Somebody has to decide about these: see [`RemoteRun::wait`](crate::RemoteRun::wait) and [`decide`](crate::RemoteRun::decide).
    Waiting(Vec<WaitId>),
    /// It waits for an operator, for this reason: see [`RemoteRun::resume`](crate::RemoteRun::resume).
    Paused(String),
    /// Its worker cannot be reached or does not go on, for this reason, and the engine tries again.
    Retried(String),
    /// It has ended.
    Ended,
}

/// Selects the runs that are listed; all by default.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ListFilter {
    agent: Option<String>,
    is_open: bool,
}

impl ListFilter {
    /// Selects all runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects the runs of one agent.
    pub fn agent(mut self, name: impl Into<String>) -> Self {
        self.agent = Some(name.into());
        self
    }

    /// Leaves out the runs that have ended.
    pub fn open(mut self) -> Self {
        self.is_open = true;
        self
    }
}

#[derive(Deserialize)]
struct Rows {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    agent: String,
    key: String,
    status: String,
    failure: Option<String>,
    age: Option<f64>,
    waiting: Option<String>,
}

impl Client {
    /// Lists the runs on a server, the oldest first, by its administration at `admin_url`. The server knows a run for as long as it
    /// [retains](crate::Worker::retention) it.
    ///
    /// # Errors
    ///
    /// Fails if the URL is not valid, or if the administration cannot be reached or refuses the request.
    pub async fn list_runs(&self, admin_url: &str, filter: &ListFilter) -> Result<Vec<RunListing>, Error> {
        list(Admin::new(admin_url, self.headers())?, filter).await
    }

    /// Lists the runs of all agents that wait for somebody, for a decision or for an operator.
    ///
    /// ```no_run
    /// # async fn example(client: tool_restate::Client) -> Result<(), tool_restate::Error> {
    /// for run in client.waiting("http://localhost:9070").await? {
    ///     println!("{} has waited for {:?}: {:?}", run.key, run.age, run.status);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails for the reasons of [`list_runs`](Self::list_runs).
    pub async fn waiting(&self, admin_url: &str) -> Result<Vec<RunListing>, Error> {
        let mut listed = self.list_runs(admin_url, &ListFilter::new().open()).await?;
        listed.retain(|run| matches!(run.status, ListedStatus::Waiting(_) | ListedStatus::Paused(_)));
        Ok(listed)
    }

    fn headers(&self) -> HeaderMap {
        self.http.headers.clone()
    }
}

async fn list(admin: Admin, filter: &ListFilter) -> Result<Vec<RunListing>, Error> {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let of_agent = filter.agent.iter().map(|agent| format!(" AND i.target_service_name = {}", quoted(agent)));
    let open = filter.is_open.then_some(" AND i.status <> 'completed'".to_owned());
    let conditions: String = of_agent.chain(open).collect();
    let query = format!(
        "SELECT i.target_service_name AS agent, i.target_service_key AS key, i.status AS status, i.last_failure AS failure, \
         date_part('epoch', now()) - date_part('epoch', i.created_at) AS age, s.value_utf8 AS waiting \
         FROM sys_invocation i LEFT JOIN state s ON s.service_name = i.target_service_name \
         AND s.service_key = i.target_service_key AND s.key = {} \
         WHERE i.target_handler_name = 'run' AND i.target_service_ty = 'workflow'{conditions} ORDER BY i.created_at",
        quoted(WAITING)
    );
    let Rows { rows } = admin.query(&query).await?;
    // Workflows of other programs have no such service beside them.
    let agents = admin.agents().await?;
    let own = rows.into_iter().filter(|row| agents.contains(&row.agent));
    Ok(own.map(Row::into_listing).collect())
}

impl Row {
    fn into_listing(self) -> RunListing {
        let waiting = self.waiting.and_then(|json| serde_json::from_str::<Waiting>(&json).ok());
        let Waiting { waits, paused, .. } = waiting.unwrap_or_default();
        let status = match (&*self.status, paused) {
            ("completed", _) => ListedStatus::Ended,
            ("backing-off" | "paused", _) => ListedStatus::Retried(self.failure.unwrap_or_default()),
            (_, Some(reason)) => ListedStatus::Paused(reason),
            _ if !waits.is_empty() => ListedStatus::Waiting(waits),
            ("pending" | "scheduled" | "ready", _) => ListedStatus::Queued,
            _ => ListedStatus::Running,
        };
        let age = self.age.and_then(|age| Duration::try_from_secs_f64(age).ok()).unwrap_or_default();
        RunListing { agent: self.agent, key: self.key, status, age }
    }
}
