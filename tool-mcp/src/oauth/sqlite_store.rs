//! Logins in an SQLite file, for programs with many users.
//!
//! The file is not the one of `SqliteStore`, because those who back up or inspect runs must not get tokens.
//!
//! A lock is a row with an end and not a file, because there is one per login. Of a process that was killed, it ends when no request of it can
//! be in flight.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io};

use tool_core::store::rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use tool_core::store::{SqliteSchema, SqliteWorker, StoreFuture};

use super::file_store::{LOCK_BACKOFF, StoreError, at, beside, check_owner, run_blocking};
use super::random::random_text;
use super::store::{Credential, CredentialKey, CredentialLock, CredentialStore};

/// The application id is `mcpc` in ASCII. Times are Unix times in milliseconds.
static SCHEMA: SqliteSchema = SqliteSchema {
    application_id: 0x6d63_7063,
    version: 1,
    tables: "
        CREATE TABLE credentials (key TEXT PRIMARY KEY NOT NULL, credential TEXT NOT NULL, revision TEXT NOT NULL, expires INTEGER) WITHOUT ROWID;
        CREATE INDEX credentials_by_expiry ON credentials (expires);
        CREATE TABLE locks (key TEXT PRIMARY KEY NOT NULL, holder TEXT NOT NULL, expires INTEGER NOT NULL) WITHOUT ROWID;
    ",
    updates: &[],
};

/// The longest time of a lock. A refresh whose requests all time out can take longer; its revision then decides.
const LOCK_MILLIS: i64 = 75_000;

/// The Unix time in milliseconds, which does not stand still in suspend.
const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/// Credentials in an SQLite file, for programs with many users: all of the processes that use it share its logins. Clones share one
/// connection.
///
/// Only the owner of the file can read it, and the two files that SQLite creates next to it, ending in `-wal` and `-shm`; the contents are not
/// encrypted. On systems other than Unix, the rights of its folder apply. The lock of a process that was killed during a refresh ends after 75 seconds.
///
/// This requires the feature `sqlite`, which compiles SQLite and needs a C compiler.
///
/// ```no_run
/// use tool_mcp::oauth::{Login, OAuth, SqliteCredentials};
///
/// # async fn run() -> std::io::Result<()> {
/// let store = SqliteCredentials::open("/var/lib/my-program/logins.db").await?;
/// let oauth = OAuth::new(Login::route("https://app.example/oauth/callback")).user("ada").store(store);
/// # let _ = oauth;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SqliteCredentials(SqliteWorker);

impl SqliteCredentials {
    /// Opens the file at a path, and creates it if it does not exist. The directory must exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or written, is not a file of this store, belongs to another user, or if other users can
    /// read it.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let files = ["", "-wal", "-shm"].map(|suffix| beside(path, suffix));
        let checked = run_blocking(move || files.iter().try_for_each(|file| check_existing(file))).await;
        checked.map_err(io::Error::other)?;
        // Those that do not exist are created with the right mode.
        let worker = SqliteWorker::open(path, &SCHEMA).await.map_err(io::Error::other)?;
        // What is removed must not stay in the file.
        let set = worker.run(|connection| Ok(connection.pragma_update(None, "secure_delete", true)?)).await;
        set.map_err(io::Error::other)?;
        Ok(Self(worker))
    }
}

impl CredentialStore for SqliteCredentials {
    fn load<'a>(&'a self, key: &'a CredentialKey) -> StoreFuture<'a, Option<Credential>> {
        let key = key.to_string();
        self.0.run(move |connection| {
            let sql = "SELECT credential FROM credentials WHERE key = ?1";
            let text: Option<String> = connection.query_row(sql, [key], |row| row.get(0)).optional()?;
            // The text of serde's error could contain a part of a token.
            let read = |text: String| {
                serde_json::from_str(&text)
                    .map_err(|_| "a row of the table `credentials` is damaged; remove it")
            };
            Ok(text.map(read).transpose()?)
        })
    }

    fn swap<'a>(
        &'a self,
        key: &'a CredentialKey,
        expected: Option<&'a str>,
        new: Option<&'a Credential>,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let (key, expected) = (key.to_string(), expected.map(str::to_owned));
            let new = match new {
                Some(new) => {
                    Some((serde_json::to_string(new)?, new.revision().to_owned(), new.expires_at.map(millis)))
                }
                None => None,
            };
            self.0
                .run(move |connection| {
                    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                    transaction.execute(&format!("DELETE FROM credentials WHERE expires <= {NOW}"), [])?;
                    let sql = "SELECT revision FROM credentials WHERE key = ?1";
                    let found: Option<String> =
                        transaction.query_row(sql, [&key], |row| row.get(0)).optional()?;
                    let is_expected = found == expected;
                    match new {
                        _ if !is_expected => {}
                        Some((credential, revision, expires)) => {
                            let sql = "INSERT OR REPLACE INTO credentials VALUES (?1, ?2, ?3, ?4)";
                            transaction.execute(sql, params![key, credential, revision, expires])?;
                        }
                        None => drop(transaction.execute("DELETE FROM credentials WHERE key = ?1", [&key])?),
                    }
                    transaction.commit()?;
                    Ok(is_expected)
                })
                .await
        })
    }

    fn lock<'a>(&'a self, key: &'a CredentialKey) -> StoreFuture<'a, CredentialLock> {
        Box::pin(async move {
            let mut attempts = 0;
            loop {
                let (worker, key, holder) = (self.0.clone(), key.to_string(), random_text()?);
                let take = move |connection: &mut Connection| {
                    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                    transaction.execute(&format!("DELETE FROM locks WHERE expires <= {NOW}"), [])?;
                    let sql = format!("INSERT INTO locks VALUES (?1, ?2, {NOW} + ?3) ON CONFLICT DO NOTHING");
                    let taken = transaction.execute(&sql, params![key, holder, LOCK_MILLIS])?;
                    transaction.commit()?;
                    // Released even if the caller is dropped.
                    Ok((taken > 0).then(|| Lock { worker, key, holder }))
                };
                if let Some(lock) = self.0.run(take).await? {
                    return Ok(Box::new(lock) as CredentialLock);
                }
                tokio::time::sleep(LOCK_BACKOFF.delay(attempts)).await;
                attempts = attempts.saturating_add(1);
            }
        })
    }
}

fn check_existing(path: &Path) -> Result<(), StoreError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        metadata => check_owner(path, &metadata.map_err(at(path))?),
    }
}

fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A row of the table `locks`.
struct Lock {
    worker: SqliteWorker,
    key: String,
    holder: String,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let (key, holder) = (std::mem::take(&mut self.key), std::mem::take(&mut self.holder));
        self.worker.send(move |connection| {
            connection.execute("DELETE FROM locks WHERE key = ?1 AND holder = ?2", [key, holder])?;
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::contract::{Folder, credential, key};
    use super::*;

    #[cfg(unix)]
    #[tokio::test]
    async fn only_the_owner_can_read_the_file() {
        use std::fs::{Permissions, read_dir, set_permissions};
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new();
        let path = folder.path("logins.db");
        let store = SqliteCredentials::open(&path).await.unwrap();
        assert!(store.swap(&key("ada"), None, Some(&credential("1", json!(null)))).await.unwrap());
        let mode = |file: std::io::Result<std::fs::DirEntry>| {
            file.unwrap().metadata().unwrap().permissions().mode() & 0o777
        };
        let modes: Vec<_> = read_dir(path.parent().unwrap()).unwrap().map(mode).collect();
        assert_eq!(modes, [0o600; 3]);
        for suffix in ["", "-wal", "-shm"] {
            let file = beside(&path, suffix);
            set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
            let error = SqliteCredentials::open(&path).await.unwrap_err().to_string();
            let name = file.display();
            assert_eq!(error, format!("other users can read `{name}`; run `chmod 600 {name}`"));
            set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        }
        SqliteCredentials::open(&path).await.unwrap();
    }

    /// It is not opened at all.
    #[cfg(unix)]
    #[tokio::test]
    async fn a_file_of_others_stays_as_it_is() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let folder = Folder::new();
        let path = folder.path("logins.db");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        SqliteCredentials::open(&path).await.unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"");
        // Only root can give a file away, and has this one.
        let path = chown(&path, Some(1), None).map_or_else(|_| "/etc/passwd".into(), |()| path);
        let error = SqliteCredentials::open(&path).await.unwrap_err().to_string();
        let (path, user) = (path.display(), rustix::process::geteuid());
        assert_eq!(error, format!("another user owns `{path}`; run `chown {user} {path}`"));
    }

    /// The process of the first holder was killed.
    #[tokio::test]
    async fn a_lock_ends_with_its_time_or_its_holder() {
        let folder = Folder::new();
        let store = SqliteCredentials::open(folder.path("logins.db")).await.unwrap();
        std::mem::forget(store.lock(&key("ada")).await.unwrap());
        let held = "SELECT max(expires) > CAST(unixepoch('subsec') * 1000 AS INTEGER) + 70000 FROM locks";
        let is_held: bool =
            store.0.run(|connection| Ok(connection.query_row(held, [], |row| row.get(0))?)).await.unwrap();
        assert!(is_held);
        store.0.run(|connection| Ok(connection.execute("UPDATE locks SET expires = 1", [])?)).await.unwrap();
        drop(store.lock(&key("ada")).await.unwrap());
        let count: i64 = store
            .0
            .run(|connection| Ok(connection.query_row("SELECT count(*) FROM locks", [], |row| row.get(0))?))
            .await
            .unwrap();
        assert_eq!(count, 0);
    }

    #[tokio::test]
    async fn a_damaged_row_is_not_quoted_and_another_file_is_refused() {
        let folder = Folder::new();
        let path = folder.path("logins.db");
        let store = SqliteCredentials::open(&path).await.unwrap();
        assert!(store.swap(&key("ada"), None, Some(&credential("1", json!(null)))).await.unwrap());
        let damage = "UPDATE credentials SET credential = '{\"a\": \"a secret'";
        store.0.run(|connection| Ok(connection.execute(damage, [])?)).await.unwrap();
        let error = store.load(&key("ada")).await.unwrap_err().to_string();
        assert_eq!(error, "a row of the table `credentials` is damaged; remove it");

        let path = folder.path("runs.db");
        tool_core::SqliteStore::open(&path).await.unwrap();
        let error = SqliteCredentials::open(&path).await.unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "could not open the store `{}`: it is the database of another program; use a separate file for the store",
                path.display()
            )
        );
    }
}
