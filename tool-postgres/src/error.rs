//! Errors of the store, with what is known of the operation.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;
use std::{io, iter};

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

const TAKES_NO_WRITES: &str = "the database takes no writes; connect to the primary server";

/// The error of an operation of a [`PostgresStore`](crate::PostgresStore). The methods of the stores return it boxed: a program that matches
/// it calls `downcast_ref`.
///
/// ```
/// use tool_core::store::RunStore;
/// use tool_postgres::{PostgresError, PostgresErrorKind, PostgresStore};
///
/// async fn is_down(store: &PostgresStore) -> bool {
///     let Err(error) = store.posted("run-7").await else { return false };
///     let error = error.downcast_ref::<PostgresError>();
///     error.is_some_and(|error| error.kind() == PostgresErrorKind::Connection)
/// }
/// ```
pub struct PostgresError {
    kind: PostgresErrorKind,
    was_done: Option<bool>,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kind of a [`PostgresError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostgresErrorKind {
    /// The URL or the name of the schema is invalid.
    Config,
    /// The server cannot be reached, refuses the user, its password or the database, or the connection broke.
    Connection,
    /// All connections were in use for too long.
    NoConnectionFree,
    /// The tables are missing, or those of another version.
    Tables,
    /// Another transaction held a lock for too long, or the operation met others in a deadlock again and again.
    Locked,
    /// The operation took too long.
    Timeout,
    /// The server takes no writes, for example because it is a standby.
    ReadOnly,
    /// The server has no space left.
    Full,
    /// The connection broke while a message was posted to a run, whose driver may have taken the message.
    Unknown,
    /// An id or a value cannot be stored.
    Value,
    /// What is stored cannot be read.
    Corrupt,
    /// The server has refused a statement for another reason.
    Server,
}

impl PostgresError {
    pub(crate) fn new(kind: PostgresErrorKind, message: impl Into<String>) -> Self {
        Self { kind, was_done: Some(false), message: message.into(), source: None }
    }

    pub(crate) fn with_source(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// Returns this error of an operation of which it is not known whether it was done.
    pub(crate) fn in_doubt(self) -> Self {
        Self { was_done: None, ..self }
    }

    /// Returns this error of an operation that was not done.
    pub(crate) fn not_done(self) -> Self {
        Self { was_done: Some(false), ..self }
    }

    /// The operation has taken this time.
    pub(crate) fn timeout(limit: Duration) -> Self {
        Self::new(PostgresErrorKind::Timeout, format!("the operation took longer than {limit:?}")).in_doubt()
    }

    pub(crate) fn corrupt(what: &str, error: &serde_json::Error, way_out: &str) -> Self {
        // Without the content, which may be a secret.
        let place = format!("line {}, column {}", error.line(), error.column());
        let message = format!("{what} is corrupt or was written by another version ({place}); {way_out}");
        Self::new(PostgresErrorKind::Corrupt, message)
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> PostgresErrorKind {
        self.kind
    }

    /// Returns `Some(false)` if the operation was not done, so that it can be repeated, and `None` if that is not known.
    #[must_use]
    pub fn was_done(&self) -> Option<bool> {
        self.was_done
    }

    /// Returns `true` if the connection is of no further use.
    pub(crate) fn is_of_connection(&self) -> bool {
        // After a failover, the name of the server leads to another one.
        matches!(
            self.kind,
            PostgresErrorKind::Connection | PostgresErrorKind::Timeout | PostgresErrorKind::ReadOnly
        )
    }

    /// Returns `true` if the transaction was ended because of another one.
    pub(crate) fn is_of_transaction(&self) -> bool {
        let ended = [&SqlState::T_R_DEADLOCK_DETECTED, &SqlState::T_R_SERIALIZATION_FAILURE];
        self.source_code().is_some_and(|code| ended.contains(&code))
    }

    fn source_code(&self) -> Option<&SqlState> {
        self.source.as_ref()?.downcast_ref::<tokio_postgres::Error>()?.code()
    }
}

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        use PostgresErrorKind as Kind;

        let Some(code) = error.code() else {
            let why = io_error(&error).map(|error| format!(": {error}"));
            let Some(why) = why.or_else(|| error.is_closed().then(String::new)) else {
                let message = "the database and this program do not understand each other's values";
                return Self::new(Kind::Value, message).with_source(error);
            };
            let message = format!("the connection to the database broke{why}");
            return Self::new(Kind::Connection, message).in_doubt().with_source(error);
        };
        let (kind, message) = match code.code() {
            "40P01" | "40001" | "55P03" => {
                (Kind::Locked, "another transaction holds what the operation needs")
            }
            "57014" | "25P03" | "25P04" => {
                (Kind::Timeout, "the server has cancelled the operation, which took too long")
            }
            "25006" => (Kind::ReadOnly, TAKES_NO_WRITES),
            "53100" | "53200" => (Kind::Full, "the server has no space left"),
            "53300" => (
                Kind::Connection,
                "the server has too many connections; lower `max_connections` of the stores",
            ),
            "42P01" | "3F000" | "42703" => {
                (Kind::Tables, "the tables are missing or of another version; call `migrate`")
            }
            "22021" | "22P05" | "54000" => (Kind::Value, "the database cannot store the value"),
            code if code.starts_with("08") || code.starts_with("57P") => {
                // The server ends, or begins: a transaction that it has ended was not done.
                (Kind::Connection, "the server has ended the connection")
            }
            code if code.starts_with("28") || code == "3D000" => {
                (Kind::Connection, "the server refuses the user, its password or the database")
            }
            "42501" => (Kind::Server, "the role may not do this; grant it the rights that the guide lists"),
            _ => (Kind::Server, "the server has refused a statement"),
        };
        Self::new(kind, message).with_source(error)
    }
}

/// Returns what the system or TLS says of a connection, which is no secret.
fn io_error(error: &tokio_postgres::Error) -> Option<&io::Error> {
    iter::successors(error.source(), |&error| error.source()).find_map(|error| error.downcast_ref())
}

/// Returns `true` if no server takes writes, which the client finds out when it connects.
fn is_standby(error: &tokio_postgres::Error) -> bool {
    // The system refuses a socket with a number.
    io_error(error).is_some_and(|error| {
        error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none()
    })
}

impl From<PoolError> for PostgresError {
    fn from(error: PoolError) -> Self {
        match error {
            // Nothing was sent.
            PoolError::Backend(error) => match error.code() {
                Some(_) => Self::from(error).not_done(),
                None if is_standby(&error) => {
                    Self::new(PostgresErrorKind::ReadOnly, TAKES_NO_WRITES).with_source(error)
                }
                None => {
                    let why = io_error(&error).map_or_else(|| error.to_string(), ToString::to_string);
                    let message = format!("the database cannot be reached: {why}");
                    Self::new(PostgresErrorKind::Connection, message).with_source(error)
                }
            },
            PoolError::Timeout(deadpool_postgres::TimeoutType::Wait) => Self::new(
                PostgresErrorKind::NoConnectionFree,
                "all connections to the database were in use for too long; raise `max_connections`",
            ),
            PoolError::Timeout(_) => {
                Self::new(PostgresErrorKind::Connection, "the database has not answered in time")
            }
            other => {
                Self::new(PostgresErrorKind::Connection, "the database cannot be reached").with_source(other)
            }
        }
    }
}

impl fmt::Display for PostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(code) = self.source_code() {
            write!(f, " (SQLSTATE {})", code.code())?;
        }
        match self.was_done {
            Some(_) => Ok(()),
            None => f.write_str("; it is not known whether the operation was done"),
        }
    }
}

/// Without the source, whose details can contain values.
impl fmt::Debug for PostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresError")
            .field("kind", &self.kind)
            .field("was_done", &self.was_done)
            .field("message", &self.to_string())
            .finish_non_exhaustive()
    }
}

impl StdError for PostgresError {}
