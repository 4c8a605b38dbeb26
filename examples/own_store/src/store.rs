use std::num::TryFromIntError;
use std::time::Duration;

use sqlx::{SqlitePool, query, query_as, query_scalar, raw_sql};
use tool_core::Message;
use tool_core::memory::{RunFilter, RunSummary};
use tool_core::model::ConversationId;
use tool_core::run::Run;
use tool_core::store::{
    ChatStore, DriverId, LeaseRequest, LeaseState, PostOutcome, PostedCommand, RunChanges, RunLog,
    RunRevision, RunStore, SaveOutcome, StoreFuture,
};

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, conversation TEXT NOT NULL, message TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, run TEXT, summary TEXT, saved INTEGER);
    CREATE TABLE IF NOT EXISTS run_parts (id TEXT, key TEXT, part TEXT NOT NULL, PRIMARY KEY (id, key));
    CREATE TABLE IF NOT EXISTS run_log (id TEXT, position INTEGER, entry TEXT NOT NULL, PRIMARY KEY (id, position));
    CREATE TABLE IF NOT EXISTS removed_runs (run TEXT PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS leases (id TEXT PRIMARY KEY, driver TEXT NOT NULL, expires REAL, duration REAL);
    CREATE VIEW IF NOT EXISTS held AS SELECT id, driver FROM leases
        WHERE expires > unixepoch('subsec') AND expires <= unixepoch('subsec') + 2 * duration;
    CREATE TABLE IF NOT EXISTS inbox (number INTEGER PRIMARY KEY, id TEXT, command TEXT, posted TEXT);";

const UPDATE_RUN: &str = "UPDATE runs SET summary = ?3, saved = unixepoch()
    WHERE id = ?1 AND run = ?2 AND summary ->> 'revision' = ?4";

const INSERT_RUN: &str = "INSERT INTO runs SELECT ?1, ?2, ?3, unixepoch()
    WHERE NOT EXISTS (SELECT 1 FROM removed_runs WHERE run = ?2) ON CONFLICT DO NOTHING";

const TAKE_LEASE: &str =
    "INSERT INTO leases VALUES (?1, ?2, unixepoch('subsec') + ?3, ?3) ON CONFLICT DO UPDATE
    SET driver = ?2, expires = unixepoch('subsec') + ?3, duration = ?3
    WHERE driver = ?2 OR NOT EXISTS (SELECT 1 FROM held WHERE held.id = ?1)";

const RENEW_LEASE: &str =
    "UPDATE leases SET expires = unixepoch('subsec') + ?3, duration = ?3 WHERE id = ?1 AND driver = ?2";

const END_LEASE: &str = "DELETE FROM leases WHERE id = ?1 AND driver = ?2 AND ?3 = 0";

const LIST: &str = "SELECT summary, max(unixepoch() - saved, 0),
        EXISTS (SELECT 1 FROM held WHERE held.id = runs.id),
        EXISTS (SELECT 1 FROM inbox WHERE inbox.id = runs.id),
        EXISTS (SELECT 1 FROM inbox WHERE inbox.id = runs.id AND posted ->> 'command' = 'cancel')
    FROM runs ORDER BY id";

const LOG: &str =
    "SELECT position, entry FROM run_log WHERE id = ? AND position > ? ORDER BY position LIMIT ?";

const INBOX: &str = "SELECT posted FROM inbox WHERE id = ? ORDER BY number";

fn parse(rows: Vec<String>) -> serde_json::Result<Vec<PostedCommand>> {
    rows.iter().map(|row| serde_json::from_str(row)).collect()
}

#[derive(Clone)]
pub struct Store(SqlitePool);

impl Store {
    pub async fn new(pool: SqlitePool) -> sqlx::Result<Self> {
        raw_sql(TABLES).execute(&pool).await?;
        Ok(Self(pool))
    }
}

impl ChatStore for Store {
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
        Box::pin(async move {
            let rows = query_scalar("SELECT message FROM messages WHERE conversation = ? ORDER BY id");
            let rows: Vec<String> = rows.bind(id.as_str()).fetch_all(&self.0).await?;
            Ok(rows.iter().map(|row| serde_json::from_str(row)).collect::<Result<_, _>>()?)
        })
    }

    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut transaction = self.0.begin().await?; // all messages or none
            for message in messages {
                let insert = query("INSERT INTO messages (conversation, message) VALUES (?, ?)");
                let insert = insert.bind(id.as_str()).bind(serde_json::to_string(message)?);
                insert.execute(&mut *transaction).await?;
            }
            Ok(transaction.commit().await?)
        })
    }

    fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            query("DELETE FROM messages WHERE conversation = ?").bind(id.as_str()).execute(&self.0).await?;
            Ok(())
        })
    }

    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
        Box::pin(async move {
            let ids = query_scalar("SELECT DISTINCT conversation FROM messages ORDER BY conversation");
            Ok(ids.fetch_all(&self.0).await?.into_iter().map(|id: String| id.into()).collect())
        })
    }
}

impl RunStore for Store {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        Box::pin(async move {
            let mut transaction = self.0.begin().await?; // all changes or none
            let save = query(if expected.is_some() { UPDATE_RUN } else { INSERT_RUN });
            let save = save.bind(id).bind(changes.run_id().as_str());
            let save = save.bind(serde_json::to_string(&changes.summary())?);
            let save = save.bind(expected.map(RunRevision::as_str));
            if save.execute(&mut *transaction).await?.rows_affected() == 0 {
                return Ok(SaveOutcome::Conflict);
            }
            if changes.is_whole() {
                query("DELETE FROM run_parts WHERE id = ?").bind(id).execute(&mut *transaction).await?;
                query("DELETE FROM run_log WHERE id = ?").bind(id).execute(&mut *transaction).await?;
            }
            for (key, part) in changes.parts()? {
                let change = match &part {
                    Some(_) => query("INSERT OR REPLACE INTO run_parts VALUES (?1, ?2, ?3)"),
                    None => query("DELETE FROM run_parts WHERE id = ?1 AND key = ?2 AND ?3 IS NULL"),
                };
                change.bind(id).bind(key).bind(part).execute(&mut *transaction).await?;
            }
            for (position, entry) in changes.entries()? {
                let add = query("INSERT INTO run_log VALUES (?, ?, ?)").bind(id);
                add.bind(i64::try_from(position)?).bind(entry).execute(&mut *transaction).await?;
            }
            for command in changes.acknowledged() {
                let taken = query("DELETE FROM inbox WHERE id = ? AND command = ?").bind(id).bind(command);
                taken.execute(&mut *transaction).await?;
            }
            transaction.commit().await?;
            Ok(SaveOutcome::Saved)
        })
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        Box::pin(async move {
            let mut transaction = self.0.begin().await?; // one state, whatever others save meanwhile
            let parts = query_as("SELECT key, part FROM run_parts WHERE id = ?").bind(id);
            let parts: Vec<(String, String)> = parts.fetch_all(&mut *transaction).await?;
            let log = query_scalar("SELECT entry FROM run_log WHERE id = ? ORDER BY position").bind(id);
            let log: Vec<String> = log.fetch_all(&mut *transaction).await?;
            Ok(if log.is_empty() { None } else { Some(Run::restore(parts, log)?) })
        })
    }

    fn entries<'a>(
        &'a self,
        id: &'a str,
        after: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        Box::pin(async move {
            let mut transaction = self.0.begin().await?; // one state
            let summary = query_scalar("SELECT summary FROM runs WHERE id = ?").bind(id);
            let summary: Option<String> = summary.fetch_optional(&mut *transaction).await?;
            let Some(summary) = summary else { return Ok(None) };
            let (after, limit) = (after.map_or(Ok(-1), i64::try_from)?, i64::try_from(limit)?);
            let log = query_as(LOG).bind(id).bind(after).bind(limit).fetch_all(&mut *transaction).await?;
            let rest = query_scalar("SELECT part FROM run_parts WHERE id = ? AND key = ?").bind(id);
            let rest = rest.bind(RunChanges::REST).fetch_optional(&mut *transaction).await?;
            let entry = |(position, entry): (i64, String)| Ok((u64::try_from(position)?, entry));
            let entries = log.into_iter().map(entry).collect::<Result<_, TryFromIntError>>()?;
            Ok(Some(RunLog::new(serde_json::from_str(&summary)?, entries, rest)))
        })
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut transaction = self.0.begin().await?;
            for change in [
                "INSERT OR IGNORE INTO removed_runs SELECT run FROM runs WHERE id = ?",
                "DELETE FROM runs WHERE id = ?",
                "DELETE FROM run_parts WHERE id = ?",
                "DELETE FROM run_log WHERE id = ?",
                "DELETE FROM leases WHERE id = ?",
                "DELETE FROM inbox WHERE id = ?",
            ] {
                query(change).bind(id).execute(&mut *transaction).await?;
            }
            Ok(transaction.commit().await?)
        })
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        Box::pin(async move {
            let rows: Vec<(String, u32, bool, bool, bool)> = query_as(LIST).fetch_all(&self.0).await?;
            let mut runs = Vec::new();
            for (summary, age, is_leased, is_command_posted, is_cancellation_posted) in rows {
                let mut run: RunSummary = serde_json::from_str(&summary)?;
                run.age = Duration::from_secs(age.into());
                (run.is_leased, run.is_command_posted) = (is_leased, is_command_posted);
                run.is_cancellation_posted = is_cancellation_posted;
                runs.extend(filter.admits(&run).then_some(run)); // or indexed columns for what is filtered
            }
            Ok(runs)
        })
    }

    fn lease<'a>(
        &'a self,
        id: &'a str,
        driver: &'a DriverId,
        request: LeaseRequest,
    ) -> StoreFuture<'a, LeaseState> {
        Box::pin(async move {
            let mut transaction = self.0.begin().await?;
            let (change, duration) = match request {
                LeaseRequest::Take(duration) => (TAKE_LEASE, duration),
                LeaseRequest::Renew(duration) => (RENEW_LEASE, duration),
                LeaseRequest::Release => (END_LEASE, Duration::ZERO),
                _ => ("SELECT ?1, ?2, ?3", Duration::ZERO), // only checks
            };
            let change = query(change).bind(id).bind(driver.as_str()).bind(duration.as_secs_f64());
            change.execute(&mut *transaction).await?;
            let holder = query_scalar("SELECT driver FROM held WHERE id = ?").bind(id);
            let holder: Option<String> = holder.fetch_optional(&mut *transaction).await?;
            transaction.commit().await?;
            Ok(match holder {
                Some(holder) if holder == driver.as_str() => LeaseState::Held,
                Some(_) => LeaseState::HeldElsewhere,
                None => LeaseState::Free,
            })
        })
    }

    fn post<'a>(&'a self, id: &'a str, command: &'a PostedCommand) -> StoreFuture<'a, PostOutcome> {
        Box::pin(async move {
            let mut transaction = self.0.begin_with("BEGIN IMMEDIATE").await?; // one post after the other
            let summary = query_scalar("SELECT summary FROM runs WHERE id = ?").bind(id);
            let summary: Option<String> = summary.fetch_optional(&mut *transaction).await?;
            let Some(summary) = summary else { return Ok(PostOutcome::UnknownRun) };
            let inbox = parse(query_scalar(INBOX).bind(id).fetch_all(&mut *transaction).await?)?;
            if command.is_in(&inbox) {
                return Ok(PostOutcome::Posted);
            }
            if !command.fits(&serde_json::from_str(&summary)?, &inbox) {
                return Ok(PostOutcome::Full);
            }
            let add = query("INSERT INTO inbox (id, command, posted) VALUES (?, ?, ?)").bind(id);
            let add = add.bind(&command.id).bind(serde_json::to_string(command)?);
            add.execute(&mut *transaction).await?;
            transaction.commit().await?;
            Ok(PostOutcome::Posted)
        })
    }

    fn posted<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Vec<PostedCommand>> {
        Box::pin(async move { Ok(parse(query_scalar(INBOX).bind(id).fetch_all(&self.0).await?)?) })
    }
}
