//! Runs with their logs, leases and inboxes.
//!
//! A save is one statement: what it changes follows from the row of the run, which has the expected revision or not. What has to see what others
//! have done meanwhile takes a lock in a statement before, because a statement that waits goes on with what it saw before it waited.

use std::fmt::Write;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::FutureExt;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};
use tool_core::memory::{RunFilter, RunStatus, RunSummary};
use tool_core::run::Run;
use tool_core::store::{
    DriverId, LeaseRequest, LeaseState, MessageVolume, PostOutcome, PostedCommand, RunChanges, RunLog,
    RunRevision, RunStore, SaveOutcome, StoreFuture, UnreadableRun,
};

use crate::error::{PostgresError, PostgresErrorKind};
use crate::store::{Attempt, Key, PostgresStore, read_id, snapshot, stored_id, transaction};

/// Gives a run that has the expected revision (`$16`) a new one.
const REVISE: &str = "
    UPDATE @runs SET revision = $3, summary = $4, status = $5, agent = $6, conversation = $7, run_user = $8, updated = clock_timestamp(),
        finished = CASE WHEN $5 = 'finished' THEN clock_timestamp() END
    WHERE id = $1 AND run = $2 AND revision = $16 RETURNING id
";

/// Adds a run that is neither stored nor removed.
const INSERT: &str = "
    INSERT INTO @runs (id, run, revision, summary, status, agent, conversation, run_user, updated, finished)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp(), CASE WHEN $5 = 'finished' THEN clock_timestamp() END
    WHERE $16::text IS NULL AND NOT EXISTS (SELECT 1 FROM @removed_runs WHERE run = $2) ON CONFLICT DO NOTHING RETURNING id
";

/// What belongs to a run that was saved. In place of all that it had, if it is stored as a whole.
const SAVE: &str = "
    , removed_parts AS (
        DELETE FROM @run_parts AS p USING saved WHERE p.run = saved.id AND (p.key = ANY($11) OR $9 AND p.key <> ALL($10))
    ), parts AS (
        INSERT INTO @run_parts (run, key, part) SELECT saved.id, part.key, part.part FROM saved, unnest($10, $12) AS part (key, part)
        ON CONFLICT (run, key) DO UPDATE SET part = excluded.part
    ), removed_log AS (
        DELETE FROM @run_log AS l USING saved WHERE l.run = saved.id AND $9 AND l.position <> ALL($13)
    ), log AS (
        INSERT INTO @run_log (run, position, entry)
        SELECT saved.id, log.position, log.entry FROM saved, unnest($13, $14) AS log (position, entry)
        ON CONFLICT (run, position) DO UPDATE SET entry = excluded.entry
    ), taken AS (
        DELETE FROM @inbox AS i USING saved WHERE i.run = saved.id AND i.id = ANY($15)
    )
    SELECT id FROM saved
";

/// Held until the transaction ends, so that a run that is removed is not added in the same moment.
const LOCK: &str = "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended($1, 0::bigint))";

const REVISION: &str = "SELECT revision FROM @runs WHERE id = $1 AND run = $2";

/// All of it as of one moment.
const LOAD: &str = "
    SELECT 0 AS kind, '' AS key, 0::bigint AS position, '' AS body FROM @runs WHERE id = $1
    UNION ALL SELECT 1, key, 0, part FROM @run_parts WHERE run = $1
    UNION ALL SELECT 2, '', position, entry FROM @run_log WHERE run = $1
    ORDER BY kind, position
";

const ENTRIES: &str = "
    SELECT 0 AS kind, 0::bigint AS position, part AS body FROM @run_parts WHERE run = $1 AND key = $4
    UNION ALL (SELECT 1, position, entry FROM @run_log WHERE run = $1 AND position > $2 ORDER BY position LIMIT $3)
    ORDER BY kind, position
";

const RUN: &str = "SELECT run FROM @runs WHERE id = $1";

/// What is removed with a run. Outputs of runs inside as well, whose ids are keys.
const REMOVE: &str = "
    WITH removed AS (DELETE FROM @runs WHERE id = $1 AND run = $2),
        remembered AS (
            INSERT INTO @removed_runs (run, removed) VALUES ($2, clock_timestamp()) ON CONFLICT DO NOTHING
        ),
        parts AS (DELETE FROM @run_parts WHERE run = $1 RETURNING key),
        log AS (DELETE FROM @run_log WHERE run = $1),
        leases AS (DELETE FROM @leases WHERE run = $1),
        inbox AS (DELETE FROM @inbox WHERE run = $1)
    DELETE FROM @outputs WHERE run = ANY (ARRAY(SELECT $1 UNION ALL SELECT key FROM parts))
";

/// A driver that has not seen the end of a run for a day has ended. Leases of runs that were never stored are forgotten as well.
const FORGET: [&str; 2] = [
    "
        DELETE FROM @removed_runs WHERE run IN (
            SELECT run FROM @removed_runs WHERE removed < clock_timestamp() - interval '1 day' LIMIT 100 FOR UPDATE SKIP LOCKED
        )
    ",
    "
        DELETE FROM @leases WHERE run IN (
            SELECT run FROM @leases AS l WHERE expires < clock_timestamp() - interval '1 hour'
                AND NOT EXISTS (SELECT 1 FROM @runs WHERE id = l.run)
            LIMIT 100 FOR UPDATE SKIP LOCKED
        )
    ",
];

/// One removal in so many forgets what is old.
const REMOVALS_PER_FORGETTING: u8 = 50;

/// Takes a lease that is free, expired, or the driver's own. One that ends later than twice its duration from now was taken by a clock that was
/// ahead, such as that of another server.
const TAKE: &str = "
    INSERT INTO @leases AS l (run, driver, expires, duration)
    VALUES ($1, $2, clock_timestamp() + $3 * interval '1 millisecond', $3 * interval '1 millisecond')
    ON CONFLICT (run) DO UPDATE SET driver = excluded.driver, duration = excluded.duration,
        expires = clock_timestamp() + $3 * interval '1 millisecond'
    WHERE l.driver = excluded.driver OR l.expires <= clock_timestamp() OR l.expires > clock_timestamp() + 2 * l.duration
    RETURNING driver
";

const RENEW: &str = "
    UPDATE @leases SET expires = clock_timestamp() + $3 * interval '1 millisecond', duration = $3 * interval '1 millisecond'
    WHERE run = $1 AND driver = $2 RETURNING driver
";

const RELEASE: &str = "DELETE FROM @leases WHERE run = $1 AND driver = $2";

const HOLDER: &str = "
    SELECT driver FROM @leases
    WHERE run = $1 AND expires > clock_timestamp() AND expires <= clock_timestamp() + 2 * duration
";

/// Locked, so that of two commands that are posted at once the second sees the first.
const POST_LOCK: &str = "SELECT summary FROM @runs WHERE id = $1 FOR NO KEY UPDATE";

const POSTED: &str = "SELECT id, command FROM @inbox WHERE run = $1 ORDER BY number";
/// How many messages are in the inbox of a run, how many bytes they have, and whether a command is there.
const VOLUME: &str = "
    SELECT count(bytes), coalesce(sum(bytes), 0)::bigint, coalesce(bool_or(id = $2), false) FROM @inbox WHERE run = $1
";
const POST: &str = "
    INSERT INTO @inbox (run, id, command, bytes) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING
";

/// The greatest age of a filter, in seconds: older is nothing.
const MAX_AGE: f64 = 1e9;

/// A run that is saved.
struct Save {
    statement: String,
    lock: String,
    revision_of: String,
    id: String,
    run: String,
    revision: String,
    expected: Option<String>,
    summary: String,
    status: &'static str,
    agent: Option<String>,
    conversation: Option<String>,
    user: Option<String>,
    is_whole: bool,
    keys: Vec<String>,
    removed: Vec<String>,
    parts: Vec<String>,
    positions: Vec<i64>,
    entries: Vec<String>,
    acknowledged: Vec<String>,
}

impl Save {
    async fn save(&self, client: &Client) -> Result<SaveOutcome, PostgresError> {
        let values: [(&(dyn ToSql + Sync), Type); 16] = [
            (&self.id, Type::TEXT),
            (&self.run, Type::TEXT),
            (&self.revision, Type::TEXT),
            (&self.summary, Type::TEXT),
            (&self.status, Type::TEXT),
            (&self.agent, Type::TEXT),
            (&self.conversation, Type::TEXT),
            (&self.user, Type::TEXT),
            (&self.is_whole, Type::BOOL),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.removed, Type::TEXT_ARRAY),
            (&self.parts, Type::TEXT_ARRAY),
            (&self.positions, Type::INT8_ARRAY),
            (&self.entries, Type::TEXT_ARRAY),
            (&self.acknowledged, Type::TEXT_ARRAY),
            (&self.expected, Type::TEXT),
        ];
        let saving = async {
            if self.expected.is_none() {
                client.query_typed(LOCK, &[(&self.lock, Type::TEXT)]).await?;
            }
            Ok(client.query_typed(&self.statement, &values).await?)
        };
        let saved = transaction(client, saving).await?;
        Ok(if saved.is_empty() { SaveOutcome::Conflict } else { SaveOutcome::Saved })
    }

    /// Returns `true` if an earlier attempt has saved the run.
    async fn was_saved(&self, client: &Client) -> Result<bool, PostgresError> {
        let values = [(&self.id as _, Type::TEXT), (&self.run as _, Type::TEXT)];
        let rows = client.query_typed(&self.revision_of, &values).await?;
        Ok(rows.first().is_some_and(|row| row.get::<_, &str>(0) == self.revision))
    }
}

impl RunStore for PostgresStore {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        Box::pin(async move {
            let summary = changes.summary().ok_or("the changes are not part of a save")?;
            let optional = |id: Option<String>| id.as_deref().map(stored_id).transpose();
            let (mut keys, mut removed, mut parts) = (Vec::new(), Vec::new(), Vec::new());
            for (key, part) in changes.parts()? {
                match part {
                    Some(part) => {
                        keys.push(stored_id(&key)?);
                        parts.push(part);
                    }
                    None => removed.push(stored_id(&key)?),
                }
            }
            let (mut positions, mut entries) = (Vec::new(), Vec::new());
            for (position, entry) in changes.entries()? {
                positions.push(i64::try_from(position)?);
                entries.push(entry);
            }
            let change = if expected.is_some() { REVISE } else { INSERT };
            let save = Save {
                statement: self.sql(&format!("WITH saved AS ({change}) {SAVE}")),
                lock: self.lock_of(id),
                revision_of: self.sql(REVISION),
                id: stored_id(id)?,
                run: stored_id(changes.run_id())?,
                revision: summary.revision.to_string(),
                expected: expected.map(ToString::to_string),
                summary: serde_json::to_string(summary)?,
                status: summary.status.as_str(),
                agent: optional(summary.agent.clone())?,
                conversation: optional(summary.conversation.as_ref().map(ToString::to_string))?,
                user: optional(summary.user.as_ref().map(ToString::to_string))?,
                is_whole: changes.is_whole(),
                keys,
                removed,
                parts,
                positions,
                entries,
                acknowledged: changes
                    .acknowledged()
                    .iter()
                    .map(|id| stored_id(id))
                    .collect::<Result<_, _>>()?,
            };
            let saved = self.perform(Key::run(id), save, |client, save, attempt| {
                async move {
                    match save.save(client).await? {
                        SaveOutcome::Conflict if attempt.is_repeated && save.was_saved(client).await? => {
                            Ok(SaveOutcome::Saved)
                        }
                        outcome => Ok(outcome),
                    }
                }
                .boxed()
            });
            saved.await
        })
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        let values = (self.sql(LOAD), id.to_owned());
        self.perform(Key::run(id), values, |client, (sql, id), _| {
            async move {
                let rows = client.query_typed(sql, &[(&stored_id(id)?, Type::TEXT)]).await?;
                let of_kind = |kind: i32| rows.iter().filter(move |row| row.get::<_, i32>("kind") == kind);
                if of_kind(0).next().is_none() {
                    return Ok(None);
                }
                let parts = of_kind(1).map(|row| (read_id(row.get("key")), row.get::<_, &str>("body")));
                let log = of_kind(2).map(|row| row.get::<_, &str>("body"));
                let run = Run::restore(parts.collect::<Vec<_>>(), log.collect::<Vec<_>>());
                let run = run.map_err(|error| {
                    let what = format!("the state of the run `{}`", id.escape_debug());
                    PostgresError::corrupt(&what, &error, "remove the run")
                });
                run.map(Some)
            }
            .boxed()
        })
    }

    fn entries<'a>(
        &'a self,
        id: &'a str,
        after: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        let filter = RunFilter::new().id(id);
        let after = after.map_or(-1, |after| i64::try_from(after).unwrap_or(i64::MAX));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let values = (List::new(self, &filter), self.sql(ENTRIES), id.to_owned(), after, limit);
        let read = self.perform(Key::run(id), values, |client, values, _| {
            let reading = async move {
                let (list, sql, id, after, limit) = values;
                let summary = match list.list(client).await? {
                    Ok(mut listed) => listed.pop(),
                    Err(run) => return Ok(Err(run)),
                };
                let Some(summary) = summary else { return Ok(Ok(None)) };
                let id = stored_id(id)?;
                let values = [
                    (&id as _, Type::TEXT),
                    (after as _, Type::INT8),
                    (limit as _, Type::INT8),
                    (&RunChanges::REST as _, Type::TEXT),
                ];
                let rows = client.query_typed(sql, &values).await?;
                let (mut rest, mut entries) = (None, Vec::new());
                for row in &rows {
                    let (position, body): (i64, String) = (row.get("position"), row.get("body"));
                    match row.get("kind") {
                        0 => rest = Some(body),
                        _ => entries.push((position.unsigned_abs(), body)),
                    }
                }
                Ok(Ok(Some(RunLog::new(summary, entries, rest))))
            };
            snapshot(client, reading).boxed()
        });
        Box::pin(async move { Ok(read.await??) })
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        let remove = Remove {
            lock: self.lock_of(id),
            run_of: self.sql(RUN),
            remove: self.sql(REMOVE),
            forget: FORGET.map(|sql| self.sql(sql)),
            id: id.to_owned(),
            run: OnceLock::new(),
        };
        self.perform(Key::run(id), remove, |client, remove, _| {
            transaction(client, remove.remove(client)).boxed()
        })
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        let key = filter.id.as_deref().map_or(Key::All, Key::run);
        let listed = self.perform(key, List::new(self, filter), |client, list, _| list.list(client).boxed());
        Box::pin(async move { Ok(listed.await??) })
    }

    fn unreadable_runs(&self) -> StoreFuture<'_, Vec<UnreadableRun>> {
        let sql = self.sql("SELECT id, agent, summary FROM @runs ORDER BY id");
        self.perform(Key::All, sql, |client, sql, _| {
            async move {
                let rows = client.query_typed(sql, &[]).await?;
                let mut runs: Vec<_> = rows.iter().filter_map(|row| read_summary(row).err()).collect();
                runs.sort_unstable_by(|one, other| one.id.cmp(&other.id));
                Ok(runs)
            }
            .boxed()
        })
    }

    fn lease<'a>(
        &'a self,
        id: &'a str,
        driver: &'a DriverId,
        request: LeaseRequest,
    ) -> StoreFuture<'a, LeaseState> {
        let (change, duration) = match request {
            LeaseRequest::Take(duration) => (Some(TAKE), duration),
            LeaseRequest::Renew(duration) => (Some(RENEW), duration),
            LeaseRequest::Release => (Some(RELEASE), Duration::ZERO),
            _ => (None, Duration::ZERO),
        };
        let millis = i32::try_from(duration.as_millis()).unwrap_or(i32::MAX);
        let values = (
            change.map(|sql| self.sql(sql)),
            self.sql(HOLDER),
            id.to_owned(),
            driver.to_string(),
            request,
            millis,
        );
        Box::pin(async move {
            let leased = self.perform(Key::run(id), values, |client, values, _| {
                let leasing = async move {
                    let (change, holder, id, driver, request, millis) = values;
                    let (id, driver) = (&stored_id(id)?, &stored_id(driver)?);
                    let all = [(id as _, Type::TEXT), (driver as _, Type::TEXT), (millis as _, Type::INT4)];
                    let values = if matches!(request, LeaseRequest::Release) { &all[..2] } else { &all[..] };
                    if let Some(change) = change
                        && !client.query_typed(change, values).await?.is_empty()
                    {
                        return Ok(LeaseState::Held);
                    }
                    if matches!(request, LeaseRequest::Take(_)) {
                        return Ok(LeaseState::HeldElsewhere);
                    }
                    let rows = client.query_typed(holder, &all[..1]).await?;
                    Ok(match rows.first() {
                        Some(row) if row.get::<_, &str>(0) == driver => LeaseState::Held,
                        Some(_) => LeaseState::HeldElsewhere,
                        None => LeaseState::Free,
                    })
                };
                transaction(client, leasing).boxed()
            });
            leased.await
        })
    }

    fn post<'a>(&'a self, id: &'a str, command: &'a PostedCommand) -> StoreFuture<'a, PostOutcome> {
        Box::pin(async move {
            // Whatever the run has: nobody waits for a message that no run takes.
            if !command.command.fits(MessageVolume::default()) {
                return Ok(PostOutcome::Full);
            }
            let json = serde_json::to_string(&command.command)?;
            let statements = [POST_LOCK, POSTED, VOLUME, POST].map(|sql| self.sql(sql));
            let ids = (stored_id(id)?, stored_id(&command.id)?);
            let values = (statements, ids, command.clone(), json);
            let posted = self.perform(Key::run(id), values, |client, values, attempt| {
                let (statements, ids, command, json) = values;
                transaction(client, post(client, statements, ids, command, json, attempt)).boxed()
            });
            posted.await
        })
    }

    fn posted<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Vec<PostedCommand>> {
        let values = (self.sql(POSTED), id.to_owned());
        self.perform(Key::run(id), values, |client, (sql, id), _| {
            async move {
                let rows = client.query_typed(sql, &[(&stored_id(id)?, Type::TEXT)]).await?;
                let posted = rows.iter().map(|row| {
                    read_command(row).map_err(|error| {
                        PostgresError::corrupt("a row of the table `inbox`", &error, "delete the row")
                    })
                });
                posted.collect()
            }
            .boxed()
        })
    }
}

async fn post(
    client: &Client,
    [lock, posted, volume, post]: &[String; 4],
    (run, id): &(String, String),
    command: &PostedCommand,
    json: &String,
    attempt: Attempt,
) -> Result<PostOutcome, PostgresError> {
    let of_run = [(run as _, Type::TEXT)];
    let locked = client.query_typed(lock, &of_run).await?;
    let Some(locked) = locked.first() else { return Ok(PostOutcome::UnknownRun) };
    let counted = client.query_typed(volume, &[(run, Type::TEXT), (id, Type::TEXT)]).await?;
    let (messages, unread, is_posted): (i64, i64, bool) =
        counted.first().map_or((0, 0, false), |row| (row.get(0), row.get(1), row.get(2)));
    if is_posted {
        return Ok(PostOutcome::Posted);
    }
    if attempt.is_repeated && command.command.message().is_some() {
        // The driver of the run may have taken it.
        let message = "the connection to the database broke while a message was posted";
        return Err(PostgresError::new(PostgresErrorKind::Unknown, message));
    }
    let bytes = match command.command.message() {
        Some(message) => {
            let summary: RunSummary = serde_json::from_str(locked.get(0)).map_err(|error| {
                PostgresError::corrupt(&summary_of(run), &error, "update the program, or remove the run")
            })?;
            let size = |value: i64| usize::try_from(value).unwrap_or_default();
            if !summary.message_volume.with_unread(size(messages), size(unread)).takes(message) {
                return Ok(PostOutcome::Full);
            }
            i64::try_from(message.bytes()).ok()
        }
        // What always fits needs no summary, which can be unreadable. What cannot be read has no effect on others.
        None => {
            let rows = client.query_typed(posted, &of_run).await?;
            let earlier: Vec<_> = rows.iter().filter_map(|row| read_command(row).ok()).collect();
            if command.is_in(&earlier) {
                return Ok(PostOutcome::Posted);
            }
            None
        }
    };
    let values =
        [(run as _, Type::TEXT), (id as _, Type::TEXT), (json as _, Type::TEXT), (&bytes as _, Type::INT8)];
    client.execute_typed(post, &values).await?;
    Ok(PostOutcome::Posted)
}

fn read_command(row: &Row) -> Result<PostedCommand, serde_json::Error> {
    let mut posted = PostedCommand::new(serde_json::from_str(row.get(1))?);
    posted.id = read_id(row.get(0));
    Ok(posted)
}

/// A run that is removed.
struct Remove {
    lock: String,
    run_of: String,
    remove: String,
    forget: [String; 2],
    id: String,
    /// What the first attempt has found, so that another one removes no later run of the id.
    run: OnceLock<Option<String>>,
}

impl Remove {
    async fn remove(&self, client: &Client) -> Result<(), PostgresError> {
        client.query_typed(LOCK, &[(&self.lock, Type::TEXT)]).await?;
        let id = &stored_id(&self.id)?;
        let run = match self.run.get() {
            Some(run) => run,
            None => {
                let rows = client.query_typed(&self.run_of, &[(id, Type::TEXT)]).await?;
                self.run.get_or_init(|| rows.first().map(|row| row.get(0)))
            }
        };
        if let Some(run) = run {
            client.query_typed(&self.remove, &[(id, Type::TEXT), (run, Type::TEXT)]).await?;
        }
        if fastrand::u8(..REMOVALS_PER_FORGETTING) == 0 {
            for forget in &self.forget {
                client.query_typed(forget, &[]).await?;
            }
        }
        Ok(())
    }
}

impl PostgresStore {
    /// Returns what is locked while a run is added or removed.
    fn lock_of(&self, id: &str) -> String {
        self.sql(&format!("run @ {}", id.replace(['@', '\0'], "-")))
    }
}

/// The runs that a filter admits.
struct List {
    sql: String,
    values: Vec<String>,
    is_named: bool,
}

impl List {
    /// Each condition has an index, but the age.
    fn new(store: &PostgresStore, filter: &RunFilter) -> Self {
        let columns = [
            ("id", filter.id.clone()),
            ("agent", filter.agent.clone()),
            ("conversation", filter.conversation.as_ref().map(ToString::to_string)),
            ("run_user", filter.user.as_ref().map(ToString::to_string)),
            ("status", filter.status.map(|status| status.as_str().to_owned())),
        ];
        let mut sql = "SELECT id, agent, status, summary,
                greatest(floor(extract(epoch FROM clock_timestamp() - updated))::bigint, 0) AS age,
                EXISTS (
                    SELECT 1 FROM @leases AS l WHERE l.run = r.id AND l.expires > clock_timestamp()
                        AND l.expires <= clock_timestamp() + 2 * l.duration
                ) AS is_leased,
                EXISTS (SELECT 1 FROM @inbox WHERE run = r.id) AS is_command_posted,
                EXISTS (SELECT 1 FROM @inbox WHERE run = r.id AND command = '\"cancel\"') AS is_cancellation_posted
            FROM @runs AS r WHERE TRUE"
            .to_owned();
        let mut values = Vec::new();
        for (column, value) in columns {
            if let Some(value) = value {
                values.push(value);
                // Writing to a text does not fail.
                let _ = write!(sql, " AND {column} = ${}", values.len());
            }
        }
        if let Some(age) = filter.min_age {
            // Finished runs have an index by time.
            let updated = if filter.status == Some(RunStatus::Finished) { "finished" } else { "updated" };
            let seconds = age.as_secs_f64().min(MAX_AGE);
            let _ = write!(sql, " AND {updated} <= clock_timestamp() - interval '1 second' * {seconds}");
        }
        sql.push_str(" ORDER BY id");
        Self { sql: store.sql(&sql), values, is_named: filter.id.is_some() || filter.conversation.is_some() }
    }

    /// Returns the runs, or one that is asked for by its name and cannot be read.
    async fn list(&self, client: &Client) -> Result<Result<Vec<RunSummary>, UnreadableRun>, PostgresError> {
        let values: Vec<_> = self.values.iter().map(|value| stored_id(value)).collect::<Result<_, _>>()?;
        let values: Vec<(&(dyn ToSql + Sync), Type)> =
            values.iter().map(|value| (value as _, Type::TEXT)).collect();
        let mut runs = Vec::new();
        for row in client.query_typed(&self.sql, &values).await? {
            let mut run = match read_summary(&row) {
                Ok(run) => run,
                // One that has finished changes nothing for its conversation.
                Err(run) if self.is_named && row.get::<_, &str>("status") != RunStatus::Finished.as_str() => {
                    return Ok(Err(run));
                }
                Err(_) => continue,
            };
            run.age = Duration::from_secs(row.get::<_, i64>("age").unsigned_abs());
            run.is_leased = row.get("is_leased");
            run.is_command_posted = row.get("is_command_posted");
            run.is_cancellation_posted = row.get("is_cancellation_posted");
            runs.push(run);
        }
        // Stored ids are ordered otherwise if they have a backslash or NUL.
        runs.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(Ok(runs))
    }
}

fn summary_of(run: &str) -> String {
    format!("the summary of the run `{}`", run.escape_debug())
}

/// Reads the summary in a row of the table `runs`. Returns what is known of the run if it cannot be read.
fn read_summary(row: &Row) -> Result<RunSummary, UnreadableRun> {
    let id = read_id(row.get("id"));
    serde_json::from_str(row.get("summary")).map_err(|error| {
        let error = PostgresError::corrupt(&summary_of(&id), &error, "update the program, or remove the run");
        let agent: Option<&str> = row.get("agent");
        UnreadableRun::new(id, agent.map(read_id), error)
    })
}
