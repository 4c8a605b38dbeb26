//! A store in an SQLite file.

mod database;
mod worker;
mod budgets;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{
    Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params, params_from_iter,
};
use serde::de::DeserializeOwned;

use self::database::BoxError;
pub use self::database::SqliteSchema;
pub use self::worker::SqliteWorker;
use super::error::Operation;
use super::store::MAX_REMOVED;
use crate::memory::{
    BudgetPeriod, BudgetRemainder, BudgetReservation, BudgetStore, ChatStore, CompactionSummary, DriverId,
    LeaseRequest, LeaseState, MemoryError, OutputStore, PostOutcome, PostedCommand, RunFilter, RunLog,
    RunStatus, RunStore, RunSummary, SaveOutcome, StoreFuture, UnreadableRun,
};
use crate::model::{ConversationId, Message, RunUser};
use crate::run::{MessageVolume, Run, RunChanges, RunId, RunRevision};
use crate::tool::Timestamp;

const DELETE_MESSAGES: &str = "DELETE FROM messages WHERE conversation = ?1";
const DELETE_SUMMARY: &str = "DELETE FROM summaries WHERE conversation = ?1";

/// Gives a run that has the expected revision (`?8`) a new one.
const REVISE: &str = "
    UPDATE runs SET (revision, summary, status, agent, conversation, user, updated) = (?3, ?4, ?5, ?6, ?7, ?8, unixepoch())
    WHERE id = ?1 AND run = ?2 AND revision = ?9
";

/// Adds a run that is neither stored nor removed.
const INSERT: &str = "
    INSERT INTO runs (id, run, revision, summary, status, agent, conversation, user, updated)
    SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, unixepoch()
    WHERE ?9 IS NULL AND NOT EXISTS (SELECT 1 FROM removed_runs WHERE run = ?2) ON CONFLICT DO NOTHING
";

/// Counts the messages in the inbox of a run and their bytes, as [`bytes`](crate::run::UserMessage::bytes) does.
const COUNT_MESSAGES: &str = r#"
    SELECT count(*), ifnull(sum(octet_length(ifnull(command ->> '$.say.content', command ->> '$.say'))), 0)
    FROM inbox WHERE run = ?1 AND command LIKE '{"say":%'
"#;

/// The Unix time in milliseconds, which does not stand still in suspend.
const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/// Whether a lease has not expired. One that ends later than twice its duration from now was taken by a clock that was ahead.
const IS_HELD: &str = "(expires - CAST(unixepoch('subsec') * 1000 AS INTEGER) BETWEEN 1 AND 2 * duration)";

/// A store for conversations and runs in an SQLite file. Clones share it.
///
/// Several processes can use one file. Each append is one transaction, which is on disk when the future completes; a process
/// that is killed leaves all of it or nothing. A dedicated thread performs all operations, so the store needs no runtime and
/// blocks no thread of one.
///
/// The file must not be used for other data. SQLite creates two files next to it, ending in `-wal` and `-shm`; copying the
/// file while it is in use requires SQLite's own tools. Each message is a row of the table `messages`, as JSON, and
/// `summaries` has what stands for first messages. Each run is
/// a row of `runs`, with its revision, what lists show of it, and the Unix time in seconds at which it was stored; `run_log` has what
/// has happened in it, and `run_parts` what else belongs to its state, as JSON; `leases`
/// and `inbox` have what belongs to runs in progress, `outputs` what their models need not read at once, `budgets` and `budget_reservations` what was spent of budgets, and `removed_runs` the ids of the last 1,000 removed runs. A file of an earlier version is updated when it is opened, and earlier versions of this
/// crate do not open it any more.
///
/// This requires the feature `sqlite`, which compiles SQLite and needs a C compiler.
///
/// ```no_run
/// use tool_core::memory::Window;
/// use tool_core::{ChatMemory, SqliteStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = SqliteStore::open("conversations.db").await?;
/// let memory = ChatMemory::new(store).window(Window::tokens(8_000));
/// # let _ = memory;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteStore(SqliteWorker);

impl SqliteStore {
    /// Opens the file at a path, and creates it if it does not exist. The directory must exist. On Unix, only the owner of a
    /// new file can read and write it; an existing file keeps its mode.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or written, is not a file of this store, or was created by another version.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, MemoryError> {
        SqliteWorker::open(path.as_ref(), &database::STORE).await.map(Self)
    }

    /// Creates a store without a file. Its contents last as long as the store or a clone of it.
    ///
    /// ```
    /// use tool_core::{ChatMemory, Message, SqliteStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let memory = ChatMemory::new(SqliteStore::in_memory().await?);
    /// memory.commit("user-7", &[Message::user("Hello"), Message::assistant("Good morning!")]).await?;
    /// assert_eq!(memory.messages("user-7").await?.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the memory or the thread cannot be allocated.
    pub async fn in_memory() -> Result<Self, MemoryError> {
        let worker = SqliteWorker::start(database::open_in_memory).await;
        worker.map(Self).map_err(|error| MemoryError::new(Operation::Open(":memory:".into()), error))
    }

    /// Adds messages to a conversation, in place of those that it has if it `replaces` them.
    fn write<'a>(
        &'a self,
        id: &'a ConversationId,
        messages: &'a [Message],
        replaces: bool,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let id = id.clone();
            let rows: Vec<_> = messages.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
            let write = self.0.run(move |connection| {
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                if replaces {
                    transaction.execute(DELETE_MESSAGES, [id.as_str()])?;
                    transaction.execute(DELETE_SUMMARY, [id.as_str()])?;
                }
                let sql = "INSERT INTO messages (conversation, message) VALUES (?1, ?2)";
                let mut insert = transaction.prepare(sql)?;
                for message in rows {
                    insert.execute(params![id.as_str(), message])?;
                }
                drop(insert);
                Ok(transaction.commit()?)
            });
            write.await
        })
    }
}

impl OutputStore for SqliteStore {
    fn store_output<'a>(&'a self, run: &'a RunId, call: &'a str, output: &'a str) -> StoreFuture<'a, ()> {
        let (run, call, output) = (run.to_string(), call.to_owned(), output.to_owned());
        self.0.run(move |connection| {
            let store = "INSERT OR REPLACE INTO outputs (run, call, output) VALUES (?1, ?2, ?3)";
            connection.execute(store, params![run, call, output])?;
            Ok(())
        })
    }

    fn load_output<'a>(&'a self, run: &'a RunId, call: &'a str) -> StoreFuture<'a, Option<String>> {
        let (run, call) = (run.to_string(), call.to_owned());
        self.0.run(move |connection| {
            let load = "SELECT output FROM outputs WHERE run = ?1 AND call = ?2";
            Ok(connection.query_row(load, params![run, call], |row| row.get(0)).optional()?)
        })
    }

    fn remove_outputs<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        let run = run.to_string();
        self.0.run(move |connection| {
            connection.execute("DELETE FROM outputs WHERE run = ?1", params![run])?;
            Ok(())
        })
    }
}

impl BudgetStore for SqliteStore {
    fn reserve<'a>(
        &'a self,
        period: &'a BudgetPeriod,
        at_least: u64,
        at_most: u64,
    ) -> StoreFuture<'a, Option<BudgetReservation>> {
        let period = period.clone();
        self.0.run(move |connection| budgets::reserve(connection, &period, at_least, at_most))
    }

    fn reserve_remainder<'a>(
        &'a self,
        period: &'a BudgetPeriod,
        at_least: u64,
    ) -> StoreFuture<'a, BudgetRemainder> {
        let period = period.clone();
        self.0.run(move |connection| budgets::reserve_remainder(connection, &period, at_least))
    }

    fn settle<'a>(
        &'a self,
        reservation: &'a BudgetReservation,
        spent: u64,
        now: Timestamp,
    ) -> StoreFuture<'a, ()> {
        let id = reservation.id.clone();
        self.0.run(move |connection| budgets::settle(connection, &id, spent, now))
    }

    fn spent<'a>(&'a self, period: &'a BudgetPeriod) -> StoreFuture<'a, u64> {
        let period = period.clone();
        self.0.run(move |connection| budgets::spent(connection, &period))
    }
}

impl ChatStore for SqliteStore {
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
        let id = id.clone();
        self.0.run(move |connection| {
            let sql = "SELECT id, message FROM messages WHERE conversation = ?1 ORDER BY id";
            let mut statement = connection.prepare(sql)?;
            let messages = statement.query_and_then([id.as_str()], |row| {
                let what = format!("row {} of the table `messages`", row.get::<_, i64>(0)?);
                parse_column(row.get_ref(1)?, &what)
                    .map_err(|error| format!("{error}; delete the row or clear the conversation").into())
            })?;
            messages.collect()
        })
    }

    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        self.write(id, messages, false)
    }

    fn replace<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        self.write(id, messages, true)
    }

    fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()> {
        let id = id.clone();
        self.0.run(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute(DELETE_MESSAGES, [id.as_str()])?;
            transaction.execute(DELETE_SUMMARY, [id.as_str()])?;
            Ok(transaction.commit()?)
        })
    }

    fn store_summary<'a>(
        &'a self,
        id: &'a ConversationId,
        summary: &'a CompactionSummary,
    ) -> StoreFuture<'a, ()> {
        let (id, summary) = (id.clone(), summary.clone());
        self.0.run(move |connection| {
            let store = "INSERT OR REPLACE INTO summaries (conversation, messages, text, details) VALUES (?1, ?2, ?3, ?4)";
            let messages = i64::try_from(summary.messages)?;
            connection.execute(store, params![id.as_str(), messages, summary.text, summary.details])?;
            Ok(())
        })
    }

    fn load_summary<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<CompactionSummary>> {
        let id = id.clone();
        self.0.run(move |connection| {
            let load = "SELECT messages, text, details FROM summaries WHERE conversation = ?1";
            let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?));
            let found = connection.query_row(load, [id.as_str()], read).optional()?;
            let found = found.map(|(messages, text, details)| {
                let messages = usize::try_from(messages)?;
                Ok::<_, BoxError>(CompactionSummary { messages, text, details })
            });
            found.transpose()
        })
    }

    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
        self.0.run(|connection| {
            let mut ids =
                connection.prepare("SELECT DISTINCT conversation FROM messages ORDER BY conversation")?;
            let ids = ids.query_map([], |row| Ok(ConversationId::from(row.get::<_, String>(0)?)))?;
            Ok(ids.collect::<Result<_, _>>()?)
        })
    }
}

impl RunStore for SqliteStore {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        Box::pin(async move {
            let summary = changes.summary().ok_or("the changes are not part of a save")?.clone();
            let (summary_text, run) = (serde_json::to_string(&summary)?, changes.run_id().to_string());
            let expected = expected.map(ToString::to_string);
            let (id, acknowledged) = (id.to_owned(), changes.acknowledged().to_vec());
            let (parts, entries, is_whole) = (changes.parts()?, changes.entries()?, changes.is_whole());
            let append = self.0.run(move |connection| {
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let sql = if expected.is_some() { REVISE } else { INSERT };
                let (revision, status) = (summary.revision.as_str(), summary.status.as_str());
                let conversation = summary.conversation.as_ref().map(ConversationId::as_str);
                let user = summary.user.as_ref().map(RunUser::as_str);
                let columns = params![
                    id,
                    run,
                    revision,
                    summary_text,
                    status,
                    summary.agent,
                    conversation,
                    user,
                    expected
                ];
                if transaction.execute(sql, columns)? == 0 {
                    return Ok(SaveOutcome::Conflict);
                }
                if is_whole {
                    transaction.execute("DELETE FROM run_parts WHERE run = ?1", [&id])?;
                    transaction.execute("DELETE FROM run_log WHERE run = ?1", [&id])?;
                }
                let mut set = transaction.prepare("INSERT OR REPLACE INTO run_parts VALUES (?1, ?2, ?3)")?;
                let mut remove = transaction.prepare("DELETE FROM run_parts WHERE run = ?1 AND key = ?2")?;
                for (key, part) in parts {
                    match part {
                        Some(part) => set.execute(params![id, key, part])?,
                        None => remove.execute(params![id, key])?,
                    };
                }
                let mut add = transaction.prepare("INSERT INTO run_log VALUES (?1, ?2, ?3)")?;
                for (position, entry) in entries {
                    add.execute(params![id, i64::try_from(position)?, entry])?;
                }
                for command in acknowledged {
                    transaction
                        .execute("DELETE FROM inbox WHERE run = ?1 AND id = ?2", params![id, command])?;
                }
                drop((set, remove, add));
                transaction.commit()?;
                Ok(SaveOutcome::Saved)
            });
            append.await
        })
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        let id = id.to_owned();
        self.0.run(move |connection| {
            // One state, whatever others save meanwhile.
            load_run(&connection.transaction()?, &id)
        })
    }

    fn entries<'a>(
        &'a self,
        id: &'a str,
        after: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        let id = id.to_owned();
        self.0.run(move |connection| {
            let transaction = connection.transaction()?;
            let Some(summary) = list(&transaction, &RunFilter::new().id(&*id))?.pop() else { return Ok(None) };
            let sql = "SELECT position, entry FROM run_log WHERE run = ?1 AND position > ?2 ORDER BY position LIMIT ?3";
            let after = after.map_or(Ok(-1), i64::try_from)?;
            let mut log = transaction.prepare(sql)?;
            let rows = log.query_and_then(params![id, after, i64::try_from(limit)?], |row| {
                Ok::<_, BoxError>((row.get::<_, i64>(0)?.try_into()?, row.get(1)?))
            })?;
            let entries = rows.collect::<Result<_, _>>()?;
            let sql = "SELECT part FROM run_parts WHERE run = ?1 AND key = ?2";
            let rest = transaction.query_row(sql, params![id, RunChanges::REST], |row| row.get(0)).optional()?;
            Ok(Some(RunLog::new(summary, entries, rest)))
        })
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        let id = id.to_owned();
        self.0.run(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let remember = "INSERT INTO removed_runs (run) SELECT run FROM runs WHERE id = ?1";
            transaction.execute(remember, [&id])?;
            let forget =
                "DELETE FROM removed_runs WHERE number <= (SELECT max(number) FROM removed_runs) - ?1";
            transaction.execute(forget, [MAX_REMOVED as i64])?;
            for delete in [
                "DELETE FROM runs WHERE id = ?1",
                // Of runs inside, whose ids are keys.
                "DELETE FROM outputs WHERE run IN (SELECT key FROM run_parts WHERE run = ?1)",
                "DELETE FROM run_parts WHERE run = ?1",
                "DELETE FROM run_log WHERE run = ?1",
                "DELETE FROM leases WHERE run = ?1",
                "DELETE FROM inbox WHERE run = ?1",
                "DELETE FROM outputs WHERE run = ?1",
            ] {
                transaction.execute(delete, [&id])?;
            }
            Ok(transaction.commit()?)
        })
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        let filter = filter.clone();
        self.0.run(move |connection| list(connection, &filter))
    }

    fn unreadable_runs(&self) -> StoreFuture<'_, Vec<UnreadableRun>> {
        self.0.run(|connection| {
            let mut statement = connection.prepare("SELECT id, agent, summary FROM runs ORDER BY id")?;
            let mut rows = statement.query([])?;
            let mut unreadable = Vec::new();
            while let Some(row) = rows.next()? {
                unreadable.extend(read_summary(row).err());
            }
            Ok(unreadable)
        })
    }

    fn lease<'a>(
        &'a self,
        id: &'a str,
        driver: &'a DriverId,
        request: LeaseRequest,
    ) -> StoreFuture<'a, LeaseState> {
        let (id, driver) = (id.to_owned(), driver.to_string());
        self.0.run(move |connection| {
            let (change, duration) = match request {
                LeaseRequest::Take(duration) => (
                    format!(
                        "INSERT INTO leases VALUES (?1, ?2, {NOW} + ?3, ?3) ON CONFLICT (run) DO UPDATE \
                         SET driver = ?2, expires = {NOW} + ?3, duration = ?3 WHERE driver = ?2 OR NOT {IS_HELD}"
                    ),
                    duration,
                ),
                LeaseRequest::Renew(duration) => (
                    format!(
                        "UPDATE leases SET expires = {NOW} + ?3, duration = ?3 WHERE run = ?1 AND driver = ?2"
                    ),
                    duration,
                ),
                LeaseRequest::Release => {
                    let sql = "DELETE FROM leases WHERE run = ?1 AND driver = ?2 AND ?3 = 0";
                    (sql.to_owned(), Duration::ZERO)
                }
                LeaseRequest::Check => (String::new(), Duration::ZERO),
            };
            // Others may read and write while a lease is only checked.
            let transaction = if change.is_empty() {
                connection.transaction()?
            } else {
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                transaction.execute(&change, params![id, driver, i64::try_from(duration.as_millis())?])?;
                transaction
            };
            if matches!(request, LeaseRequest::Take(_)) {
                // Leases of runs that were never stored, which nobody removes.
                let forget =
                    format!("DELETE FROM leases WHERE NOT {IS_HELD} AND run NOT IN (SELECT id FROM runs)");
                transaction.execute(&forget, [])?;
            }
            let sql = format!("SELECT driver FROM leases WHERE run = ?1 AND {IS_HELD}");
            let holder = transaction.query_row(&sql, [&id], |row| row.get::<_, String>(0)).optional()?;
            transaction.commit()?;
            Ok(match holder {
                Some(holder) if holder == driver => LeaseState::Held,
                Some(_) => LeaseState::HeldElsewhere,
                None => LeaseState::Free,
            })
        })
    }

    fn post<'a>(&'a self, id: &'a str, command: &'a PostedCommand) -> StoreFuture<'a, PostOutcome> {
        Box::pin(async move {
            // Whatever the run has: nobody waits for a message that no run takes.
            if !command.command.fits(MessageVolume::default()) {
                return Ok(PostOutcome::Full);
            }
            let (run, posted) = (id.to_owned(), command.clone());
            let json = serde_json::to_string(&posted.command)?;
            let post = self.0.run(move |connection| {
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let sql = "SELECT EXISTS (SELECT 1 FROM runs WHERE id = ?1)";
                if !transaction.query_row(sql, [&run], |row| row.get(0))? {
                    return Ok(PostOutcome::UnknownRun);
                }
                let sql = "SELECT EXISTS (SELECT 1 FROM inbox WHERE run = ?1 AND id = ?2)";
                if transaction.query_row(sql, [&run, &posted.id], |row| row.get(0))? {
                    return Ok(PostOutcome::Posted);
                }
                match posted.command.message() {
                    Some(message) if !message_volume(&transaction, &run)?.takes(message) => {
                        return Ok(PostOutcome::Full);
                    }
                    // What always fits needs no summary, which can be unreadable.
                    None if posted.is_in(&decisions(&transaction, &run)?) => return Ok(PostOutcome::Posted),
                    _ => {}
                }
                let sql = "INSERT INTO inbox (run, id, command) VALUES (?1, ?2, ?3)";
                transaction.execute(sql, params![run, posted.id, json])?;
                transaction.commit()?;
                Ok(PostOutcome::Posted)
            });
            post.await
        })
    }

    fn posted<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Vec<PostedCommand>> {
        let run = id.to_owned();
        self.0.run(move |connection| {
            let sql = "SELECT id, command FROM inbox WHERE run = ?1 ORDER BY number";
            let mut statement = connection.prepare(sql)?;
            let posted = statement.query_and_then([run], |row| {
                let command = parse_column(row.get_ref(1)?, "a row of the table `inbox`")?;
                Ok(PostedCommand { id: row.get(0)?, command })
            })?;
            posted.collect()
        })
    }
}

/// Returns what is in the inbox of a run except messages, which are long. What cannot be read has no effect on others.
fn decisions(transaction: &Transaction<'_>, run: &str) -> Result<Vec<PostedCommand>, BoxError> {
    let sql = r#"SELECT id, command FROM inbox WHERE run = ?1 AND command NOT LIKE '{"say":%'"#;
    let mut statement = transaction.prepare(sql)?;
    let rows = statement.query_map([run], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
    let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
    let read =
        |(id, json): (_, String)| Some(PostedCommand { id, command: serde_json::from_str(&json).ok()? });
    Ok(rows.into_iter().filter_map(read).collect())
}

/// Returns how much was sent to a stored run in messages, with those in its inbox.
fn message_volume(transaction: &Transaction<'_>, run: &str) -> Result<MessageVolume, BoxError> {
    let summary = "SELECT summary FROM runs WHERE id = ?1";
    let parse = |row: &Row<'_>| Ok(parse_column(row.get_ref(0)?, "a summary in the table `runs`"));
    let summary: RunSummary = transaction.query_row(summary, [run], parse)??;
    let counts = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
    let (messages, bytes) = transaction.query_row(COUNT_MESSAGES, [run], counts)?;
    Ok(summary.message_volume.with_unread(messages.try_into()?, bytes.try_into()?))
}

fn list(connection: &Connection, filter: &RunFilter) -> Result<Vec<RunSummary>, BoxError> {
    let (sql, values) = list_query(filter);
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut runs = Vec::new();
    let is_named = filter.id.is_some() || filter.conversation.is_some();
    while let Some(row) = rows.next()? {
        let summary = match read_summary(row) {
            Ok(summary) => summary,
            // One that has finished changes nothing for its conversation.
            Err(run)
                if is_named && row.get_ref("status")?.as_str().ok() != Some(RunStatus::Finished.as_str()) =>
            {
                return Err(run.into());
            }
            Err(_) => continue,
        };
        runs.push(RunSummary {
            age: Duration::from_secs(row.get::<_, i64>("age")?.unsigned_abs()),
            is_leased: row.get("is_leased")?,
            is_command_posted: row.get("is_command_posted")?,
            is_cancellation_posted: row.get("is_cancellation_posted")?,
            ..summary
        });
    }
    Ok(runs)
}

/// Returns the statement that lists the runs that a filter admits, and its values. It reads no state, and each condition has an index.
fn list_query(filter: &RunFilter) -> (String, Vec<String>) {
    let columns = [
        ("id", filter.id.clone()),
        ("agent", filter.agent.clone()),
        ("conversation", filter.conversation.as_ref().map(ToString::to_string)),
        ("user", filter.user.as_ref().map(ToString::to_string)),
        ("status", filter.status.map(|status| status.as_str().to_owned())),
    ];
    let mut sql = format!(
        "SELECT id, agent, status, summary, max(unixepoch() - updated, 0) AS age,
            EXISTS (SELECT 1 FROM leases WHERE run = runs.id AND {IS_HELD}) AS is_leased,
            EXISTS (SELECT 1 FROM inbox WHERE run = runs.id) AS is_command_posted,
            EXISTS (SELECT 1 FROM inbox WHERE run = runs.id AND command = '\"cancel\"') AS is_cancellation_posted
        FROM runs WHERE TRUE"
    );
    let mut values = Vec::new();
    for (column, value) in columns {
        if let Some(value) = value {
            sql.push_str(&format!(" AND {column} = ?"));
            values.push(value);
        }
    }
    if let Some(age) = filter.min_age {
        let seconds = age.as_secs().saturating_add(u64::from(age.subsec_nanos() > 0));
        sql.push_str(&format!(" AND updated <= unixepoch() - {seconds}"));
    }
    sql.push_str(" ORDER BY id");
    (sql, values)
}

/// Reads the summary in a row of the table `runs`. Returns what is known of the run if it cannot be read.
fn read_summary(row: &Row<'_>) -> Result<RunSummary, UnreadableRun> {
    let text = |column: &str| {
        let value = row.get_ref(column).ok().and_then(|value| value.as_bytes().ok());
        value.map(|value| String::from_utf8_lossy(value).into_owned())
    };
    let id = || text("id").unwrap_or_default();
    let parse = || {
        let what = format!("the summary of the run `{}`", id().escape_debug());
        parse_column(row.get_ref("summary")?, &what)
    };
    parse().map_err(|error| {
        UnreadableRun::new(id(), text("agent"), format!("{error}; update the program, or remove the run"))
    })
}

/// Parses the JSON in a column of what is named. The error does not include the content, which may be a secret.
fn parse_column<T: DeserializeOwned>(value: ValueRef<'_>, what: &str) -> Result<T, BoxError> {
    let text = value.as_str().map_err(|_| corrupt(what, "it is not text"))?;
    Ok(serde_json::from_str(text).map_err(|error| corrupt(what, &location(&error)))?)
}

fn load_run(transaction: &Transaction<'_>, id: &str) -> Result<Option<Run>, BoxError> {
    let is_stored = "SELECT EXISTS (SELECT 1 FROM runs WHERE id = ?1)";
    if !transaction.query_row(is_stored, [id], |row| row.get(0))? {
        return Ok(None);
    }
    let mut parts = transaction.prepare("SELECT key, part FROM run_parts WHERE run = ?1")?;
    let parts = parts.query_map([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let parts: Vec<(String, String)> = parts.collect::<Result<_, _>>()?;
    let mut log = transaction.prepare("SELECT entry FROM run_log WHERE run = ?1 ORDER BY position")?;
    let log: Vec<String> = log.query_map([id], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let run = Run::restore(parts, log).map_err(|error| {
        let what = format!("the state of the run `{}`", id.escape_debug());
        corrupt(&what, &location(&error)) + "; remove the run"
    })?;
    Ok(Some(run))
}

fn corrupt(what: &str, location: &str) -> String {
    format!("{what} is corrupt or was written by another version ({location})")
}

/// Returns the location of an error. It does not include the content, which may be a secret.
fn location(error: &serde_json::Error) -> String {
    format!("line {}, column {}", error.line(), error.column())
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::RunStatus;

    /// Returns how SQLite answers the list of a filter.
    fn plan(filter: &RunFilter) -> Vec<String> {
        let connection = database::open_in_memory().unwrap();
        let (sql, values) = list_query(filter);
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = statement.query_map(params_from_iter(values), |row| row.get(3)).unwrap();
        steps.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn a_filtered_list_of_runs_scans_no_table() {
        let any = RunFilter::new;
        for filter in [
            any().id("a"),
            any().agent("desk"),
            any().conversation("user-7"),
            any().user("ada"),
            any().status(RunStatus::Waiting),
            any().status(RunStatus::Waiting).min_age(Duration::from_secs(60)),
            any().conversation("user-7").status(RunStatus::Waiting),
        ] {
            let plan = plan(&filter);
            assert!(plan.iter().any(|step| step.starts_with("SEARCH runs USING INDEX")), "{plan:?}");
            assert!(!plan.iter().any(|step| step.starts_with("SCAN")), "{plan:?}");
        }
        assert!(plan(&any()).iter().any(|step| step.starts_with("SCAN runs")));
    }
}
