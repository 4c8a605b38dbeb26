//! Logins in a file of the user.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tool_core::store::StoreFuture;
use tool_http::Backoff;

use super::random::{digest, random_text};
use super::store::{Credential, CredentialKey, CredentialLock, CredentialStore, Entries, swap_entry};

/// The delays between attempts to lock a file: waiting for it would block a thread for as long as another process takes.
pub(super) const LOCK_BACKOFF: Backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(100));

pub(super) type StoreError = Box<dyn Error + Send + Sync>;

/// Credentials in a file, for the programs of one user: all of the processes that use it share its logins.
///
/// Only its owner can read the file, which is replaced as a whole. Beside it are lock files, whose names begin with its name. The
/// contents are not encrypted. On systems other than Unix, the rights of its folder apply.
///
/// ```no_run
/// use tool_mcp::oauth::{FileCredentials, Login, OAuth};
///
/// let store = FileCredentials::new("/home/me/.config/my-program/logins.json");
/// let oauth = OAuth::new(Login::loopback(|login| println!("open {}", login.url))).store(store);
/// # let _ = oauth;
/// ```
#[derive(Clone, Debug)]
pub struct FileCredentials {
    path: PathBuf,
}

impl FileCredentials {
    /// Stores credentials in the file, which is created with its folder when there is something to store.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Waits for the lock of a file beside this one.
    async fn lock_file(&self, suffix: &str) -> Result<File, StoreError> {
        let path = beside(&self.path, suffix);
        let mut attempts = 0;
        loop {
            let path = path.clone();
            if let Some(locked) = run_blocking(move || try_lock(&path)).await? {
                return Ok(locked);
            }
            tokio::time::sleep(LOCK_BACKOFF.delay(attempts)).await;
            attempts = attempts.saturating_add(1);
        }
    }
}

impl CredentialStore for FileCredentials {
    fn load<'a>(&'a self, key: &'a CredentialKey) -> StoreFuture<'a, Option<Credential>> {
        let path = self.path.clone();
        Box::pin(async move { Ok(run_blocking(move || read(&path)).await?.remove(&key.to_string())) })
    }

    fn swap<'a>(
        &'a self,
        key: &'a CredentialKey,
        expected: Option<&'a str>,
        new: Option<&'a Credential>,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let lock = self.lock_file(".lock").await?;
            let (path, key, expected) = (self.path.clone(), key.to_string(), expected.map(str::to_owned));
            let new = new.cloned();
            run_blocking(move || {
                // Held until the file is replaced, even if this future is dropped.
                let _lock = lock;
                let mut entries = read(&path)?;
                let is_swapped = swap_entry(&mut entries, key, expected.as_deref(), new);
                if is_swapped {
                    replace(&path, &entries)?;
                }
                Ok(is_swapped)
            })
            .await
        })
    }

    fn lock<'a>(&'a self, key: &'a CredentialKey) -> StoreFuture<'a, CredentialLock> {
        Box::pin(async move {
            let suffix = format!(".{}.lock", &digest(&key.to_string())[..16]);
            Ok(Box::new(self.lock_file(&suffix).await?) as CredentialLock)
        })
    }
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Runs a function on a thread for blocking work.
pub(super) async fn run_blocking<T: Send + 'static>(
    function: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(function).await?
}

/// Adds the name of the file to an error.
pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |error| format!("`{}`: {error}", path.display()).into()
}

fn read(path: &Path) -> Result<Entries, StoreError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Entries::new()),
        opened => opened.map_err(at(path))?,
    };
    check_owner(path, &file.metadata().map_err(at(path))?)?;
    let text = io::read_to_string(file).map_err(at(path))?;
    // The text of serde's error could contain a part of a token.
    serde_json::from_str(&text).map_err(|_| format!("`{}` is damaged; remove it", path.display()).into())
}

/// # Errors
///
/// Returns an error if the file is not this user's, or if other users can read or write it.
pub(super) fn check_owner(path: &Path, metadata: &fs::Metadata) -> Result<(), StoreError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let (owner, path) = (rustix::process::geteuid().as_raw(), path.display());
        if metadata.uid() != owner {
            return Err(format!("another user owns `{path}`; run `chown {owner} {path}`").into());
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(format!("other users can read `{path}`; run `chmod 600 {path}`").into());
        }
    }
    let _ = (path, metadata);
    Ok(())
}

/// Replaces the file, so that a crash leaves either the old contents or the new ones.
fn replace(path: &Path, entries: &Entries) -> Result<(), StoreError> {
    let temporary = beside(path, &format!(".{}.tmp", random_text()?));
    let written = private_options().create_new(true).open(&temporary).and_then(|mut file| {
        file.write_all(&serde_json::to_vec(entries)?)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    });
    written.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        at(path)(error)
    })
}

/// Returns options that create files only their owner can read and write.
fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Locks a file, and creates it first if necessary. Returns `None` while another holder has the lock, which ends with its process.
fn try_lock(path: &Path) -> Result<Option<File>, StoreError> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(folder).map_err(at(folder))?;
    }
    let mut options = private_options();
    options.create(true);
    lock_exclusively(&options, path).map_err(at(path))
}

#[cfg(unix)]
fn lock_exclusively(options: &OpenOptions, path: &Path) -> io::Result<Option<File>> {
    use rustix::fs::{FlockOperation, flock};
    let file = options.open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A file that is not shared can be opened once.
#[cfg(windows)]
fn lock_exclusively(options: &OpenOptions, path: &Path) -> io::Result<Option<File>> {
    const ERROR_SHARING_VIOLATION: i32 = 32;
    let mut options = options.clone();
    std::os::windows::fs::OpenOptionsExt::share_mode(&mut options, 0);
    match options.open(path) {
        Err(error) if error.raw_os_error() == Some(ERROR_SHARING_VIOLATION) => Ok(None),
        opened => opened.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::contract::{Folder, credential, key};
    use super::*;

    #[cfg(unix)]
    #[tokio::test]
    async fn only_the_owner_can_read_the_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new();
        let store = FileCredentials::new(folder.path("a/logins.json"));
        assert!(store.swap(&key("ada"), None, Some(&credential("1", Value::Null))).await.unwrap());
        drop(store.lock(&key("ada")).await.unwrap());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let files: Vec<_> =
            fs::read_dir(folder.path("a")).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 3, "{files:?}");
        assert!(files.iter().all(|file| mode(file) == 0o600), "{files:?}");
        assert_eq!(mode(&folder.path("a")), 0o700);

        fs::set_permissions(&store.path, fs::Permissions::from_mode(0o640)).unwrap();
        let path = store.path.display();
        let error = store.load(&key("ada")).await.unwrap_err().to_string();
        assert_eq!(error, format!("other users can read `{path}`; run `chmod 600 {path}`"));

        // Only root can give a file away, and has this one.
        let chowned = std::os::unix::fs::chown(&store.path, Some(1), None);
        let store = chowned.map_or_else(|_| FileCredentials::new("/etc/passwd"), |()| store);
        let (path, user) = (store.path.display(), rustix::process::geteuid());
        let error = store.load(&key("ada")).await.unwrap_err().to_string();
        assert_eq!(error, format!("another user owns `{path}`; run `chown {user} {path}`"));
    }

    #[tokio::test]
    async fn a_damaged_file_is_named_and_not_quoted() {
        let folder = Folder::new();
        let store = FileCredentials::new(folder.path("a/logins.json"));
        assert!(store.swap(&key("ada"), None, Some(&credential("1", Value::Null))).await.unwrap());
        fs::write(&store.path, "{\"a\": \"a secret").unwrap();
        let error = store.load(&key("ada")).await.unwrap_err().to_string();
        assert_eq!(error, format!("`{}` is damaged; remove it", store.path.display()));
        let error = store.swap(&key("ada"), None, None).await.unwrap_err().to_string();
        assert_eq!(error, format!("`{}` is damaged; remove it", store.path.display()));
    }

    #[test]
    fn keys_differ_if_a_part_does_and_secrets_are_not_shown() {
        let key = |issuer: &str, client: &str| CredentialKey {
            issuer: issuer.to_owned(),
            client: client.to_owned(),
            ..CredentialKey::default()
        };
        assert_ne!(key("a", "b\",\"c").to_string(), key("a\",\"b", "c").to_string());
        assert_eq!(key("a", "b").to_string(), r#"["a","b","","","",null]"#);
        let shown = format!("{:?}", credential("1", Value::Null));
        assert_eq!(shown, r#"Credential { revision: "1", .. }"#);
    }
}
