//! The file: how it is opened, and what stands in it.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::Failure;

/// Tells a file of this store from those of other programs: `tool` in ASCII.
const APPLICATION: i64 = 0x746f_6f6c;

/// The version of the tables. A change that other versions cannot work with raises it.
const VERSION: i64 = 1;

const TABLES: &str = "
    CREATE TABLE messages (id INTEGER PRIMARY KEY, conversation TEXT NOT NULL, message TEXT NOT NULL);
    CREATE INDEX messages_by_conversation ON messages (conversation);
    CREATE TABLE runs (id TEXT PRIMARY KEY NOT NULL, state TEXT NOT NULL, updated INTEGER NOT NULL);
";

/// How long to wait for another process. Its transactions are short, and an answer that cannot be kept is lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// Opens the file at a path, and makes one if there is none.
pub(super) fn open(path: &Path) -> Result<Connection, Failure> {
    // Without URIs: a path is a path, also if it begins with `file:`.
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    make_ready(&mut connection)?;
    log_ahead(&connection)?;
    Ok(connection)
}

pub(super) fn open_in_memory() -> Result<Connection, Failure> {
    let mut connection = Connection::open_in_memory()?;
    make_ready(&mut connection)?;
    Ok(connection)
}

/// Makes the tables unless they are there. A file that is not of this store or version is not touched.
fn make_ready(connection: &mut Connection) -> Result<(), Failure> {
    connection.busy_timeout(PATIENCE)?;
    // Others may be making them as well: the first to come does, the next finds them.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let number = |pragma| transaction.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    match (number("application_id")?, number("user_version")?) {
        (APPLICATION, VERSION) => Ok(()),
        (APPLICATION, other) => Err(format!(
            "its tables are of version {other}, and this program works with version {VERSION}; \
             update the program, or take another file"
        )
        .into()),
        (0, 0) if is_empty(&transaction)? => {
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
            Ok(transaction.commit()?)
        }
        _ => Err("it is the database of another program; take a file of its own for the store".into()),
    }
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))
}

/// Lets others read while one writes. The file remembers it; a file system that cannot have it goes on without.
fn log_ahead(connection: &Connection) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Ok(()) => return Ok(()),
            // SQLite itself does not wait here, as the one time that it is switched on takes the file alone.
            Err(error) if is_busy(&error) && begun.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}
