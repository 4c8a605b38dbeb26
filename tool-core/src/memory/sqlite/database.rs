//! Opens the database and creates its tables.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

/// An error of a job on the database.
pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// The tables of a kind of file.
#[derive(Debug)]
pub struct SqliteSchema {
    /// Distinguishes these files from files of other programs.
    pub application_id: i64,
    /// An incompatible change increments it.
    pub version: i64,
    /// The statements that create the tables.
    pub tables: &'static str,
    /// The statements that update the tables of each earlier version to the next one.
    pub updates: &'static [&'static str],
}

/// The schema of the store. The application id is `tool` in ASCII, and the times of leases and budgets are Unix times in milliseconds.
pub(super) static STORE: SqliteSchema = SqliteSchema {
    application_id: 0x746f_6f6c,
    version: 3,
    tables: TABLES,
    updates: &[ADD_DETAILS, ADD_DURATION],
};

const TABLES: &str = "
    CREATE TABLE messages (id INTEGER PRIMARY KEY, conversation TEXT NOT NULL, message TEXT NOT NULL);
    CREATE INDEX messages_by_conversation ON messages (conversation);
    CREATE TABLE summaries (
        conversation TEXT PRIMARY KEY NOT NULL, messages INTEGER NOT NULL, text TEXT NOT NULL, details TEXT
    );
    CREATE TABLE runs (
        id TEXT PRIMARY KEY NOT NULL, run TEXT NOT NULL, revision TEXT NOT NULL, updated INTEGER NOT NULL,
        summary TEXT NOT NULL, status TEXT NOT NULL, agent TEXT, conversation TEXT, user TEXT
    );
    CREATE INDEX runs_by_status ON runs (status, updated);
    CREATE INDEX runs_by_agent ON runs (agent);
    CREATE INDEX runs_by_conversation ON runs (conversation);
    CREATE INDEX runs_by_user ON runs (user);
    CREATE TABLE run_parts (run TEXT NOT NULL, key TEXT NOT NULL, part TEXT NOT NULL, PRIMARY KEY (run, key)) WITHOUT ROWID;
    CREATE TABLE run_log (
        run TEXT NOT NULL, position INTEGER NOT NULL, entry TEXT NOT NULL, PRIMARY KEY (run, position)
    ) WITHOUT ROWID;
    CREATE TABLE removed_runs (number INTEGER PRIMARY KEY, run TEXT NOT NULL);
    CREATE INDEX removed_runs_by_run ON removed_runs (run);
    CREATE TABLE leases (run TEXT PRIMARY KEY NOT NULL, driver TEXT NOT NULL, expires INTEGER NOT NULL, duration INTEGER NOT NULL);
    CREATE TABLE inbox (
        number INTEGER PRIMARY KEY, run TEXT NOT NULL, id TEXT NOT NULL, command TEXT NOT NULL, UNIQUE (run, id)
    );
    CREATE TABLE outputs (run TEXT NOT NULL, call TEXT NOT NULL, output TEXT NOT NULL, PRIMARY KEY (run, call));
    CREATE TABLE budgets (
        key TEXT NOT NULL, starts INTEGER NOT NULL, ends INTEGER NOT NULL, spent INTEGER NOT NULL,
        PRIMARY KEY (key, starts)
    );
    CREATE TABLE budget_reservations (
        id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, starts INTEGER NOT NULL, amount INTEGER NOT NULL,
        expires INTEGER NOT NULL
    );
";

/// Some files of the first version already have the column.
const ADD_DETAILS: &str = "
    ALTER TABLE summaries RENAME TO earlier_summaries;
    CREATE TABLE summaries (
        conversation TEXT PRIMARY KEY NOT NULL, messages INTEGER NOT NULL, text TEXT NOT NULL, details TEXT
    );
    INSERT INTO summaries (conversation, messages, text) SELECT conversation, messages, text FROM earlier_summaries;
    DROP TABLE earlier_summaries;
";

/// Leases that are longer than twice those of an agent by default can be taken by others once. Of two drivers, the next save then decides.
const ADD_DURATION: &str = "ALTER TABLE leases ADD COLUMN duration INTEGER NOT NULL DEFAULT 30000";

/// The longest wait for another process. Its transactions are short, and an answer that cannot be stored is lost.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest wait after one that was in vain.
const LOCKED_TIMEOUT: Duration = Duration::from_millis(100);

/// Opens the file at a path, and creates it if it does not exist.
pub(super) fn open(path: &Path, schema: &SqliteSchema) -> Result<Connection, BoxError> {
    create_file(path)?;
    // URIs are disabled, so that a path can begin with `file:`.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    run(&mut connection, |connection| {
        initialize(connection, schema)?;
        enable_wal(connection)
    })?;
    Ok(connection)
}

/// Runs a job. If it has waited in vain for another process, the next ones wait only briefly until one succeeds: saving a run can be
/// several jobs.
pub(super) fn run<T>(
    connection: &mut Connection,
    job: impl FnOnce(&mut Connection) -> Result<T, BoxError>,
) -> Result<T, BoxError> {
    let result = job(connection);
    let is_locked = |error: &BoxError| error.downcast_ref().is_some_and(is_busy);
    let is_locked = result.as_ref().err().is_some_and(is_locked);
    connection.busy_timeout(if is_locked { LOCKED_TIMEOUT } else { BUSY_TIMEOUT })?;
    match result {
        Err(_) if is_locked => Err(format!(
            "another program has locked the file `{}`; close it, or let it end its transaction",
            connection.path().unwrap_or_default()
        )
        .into()),
        result => result,
    }
}

/// Creates the file if it does not exist, so that only its owner can read it. SQLite gives the files that it creates next to
/// it the same mode.
fn create_file(path: &Path) -> Result<(), BoxError> {
    /// Closing a file releases the locks that SQLite has on it in this process, so no store may open the new file earlier.
    static CREATING: Mutex<()> = Mutex::new(());

    // SQLite's names of databases without a file.
    if matches!(path.to_str(), Some("" | ":memory:")) {
        return Ok(());
    }
    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}

pub(super) fn open_in_memory() -> Result<Connection, BoxError> {
    let mut connection = Connection::open_in_memory()?;
    initialize(&mut connection, &STORE)?;
    Ok(connection)
}

/// Creates the tables if the file is empty, and updates those of an earlier version. A file of another program or a later version is not
/// modified.
fn initialize(connection: &mut Connection, schema: &SqliteSchema) -> Result<(), BoxError> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Another process may do the same at this time; the transaction ensures that only one creates the tables.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let number = |pragma| transaction.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let SqliteSchema { application_id, version, tables, updates } = schema;
    match (number("application_id")?, number("user_version")?) {
        (id, found) if id == *application_id && found == *version => Ok(()),
        (id, found) if id == *application_id && (1..*version).contains(&found) => {
            let applied = usize::try_from(found - 1)?;
            for update in updates.iter().skip(applied) {
                transaction.execute_batch(update)?;
            }
            transaction.pragma_update(None, "user_version", version)?;
            Ok(transaction.commit()?)
        }
        (id, other) if id == *application_id => Err(format!(
            "its tables have version {other}, but this program supports version {version}; \
             use the program that created it or another file"
        )
        .into()),
        (0, 0) if is_empty(&transaction)? => {
            transaction.execute_batch(tables)?;
            transaction.pragma_update(None, "application_id", application_id)?;
            transaction.pragma_update(None, "user_version", version)?;
            Ok(transaction.commit()?)
        }
        _ => Err("it is the database of another program; use a separate file for the store".into()),
    }
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))
}

/// Enables the write-ahead log, so that others can read during a write. The setting is stored in the file. File systems
/// that do not support it work without it.
fn enable_wal(connection: &Connection) -> Result<(), BoxError> {
    let started = Instant::now();
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Ok(()) => return Ok(()),
            // SQLite does not apply its busy timeout here, because enabling the log requires exclusive access.
            Err(error) if is_busy(&error) && started.elapsed() < BUSY_TIMEOUT => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_wait_in_vain_the_next_are_short_until_a_job_succeeds() {
        let path = std::env::temp_dir().join(format!("tool-core-locked-{}.db", std::process::id()));
        let (mut one, mut other) = (open(&path, &STORE).unwrap(), open(&path, &STORE).unwrap());
        let begin = |connection: &mut Connection| {
            Ok(connection.transaction_with_behavior(TransactionBehavior::Immediate)?.commit()?)
        };
        let wait = |connection: &Connection| {
            connection.pragma_query_value(None, "busy_timeout", |row| row.get::<_, i64>(0)).unwrap()
        };
        let lock = one.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        other.busy_timeout(Duration::ZERO).unwrap();
        let error = run(&mut other, begin).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "another program has locked the file `{}`; close it, or let it end its transaction",
                other.path().unwrap()
            )
        );
        assert_eq!(wait(&other), 100);
        drop(lock);
        run(&mut other, begin).unwrap();
        assert_eq!(wait(&other), 10_000);
        drop((one, other));
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", path.display()));
        }
    }
}
