//! Logins in a file of the user.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tool_core::memory::StoreFuture;
use tool_http::Backoff;

use super::random::{digest, random_text};
use super::store::{Credential, CredentialKey, CredentialLock, CredentialStore, Entries, swap_entry};

/// The delays between attempts to lock a file: waiting for it would block a thread for as long as another process takes.
const LOCK_BACKOFF: Backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(100));

type StoreError = Box<dyn Error + Send + Sync>;

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

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Runs a function on a thread for blocking work.
async fn run_blocking<T: Send + 'static>(
    function: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(function).await?
}

/// Adds the name of the file to an error.
fn at(path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |error| format!("`{}`: {error}", path.display()).into()
}

fn read(path: &Path) -> Result<Entries, StoreError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Entries::new()),
        opened => opened.map_err(at(path))?,
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = file.metadata().map_err(at(path))?.permissions().mode();
        if mode & 0o077 != 0 {
            let path = path.display();
            return Err(format!("other users can read `{path}`; run `chmod 600 {path}`").into());
        }
    }
    let text = io::read_to_string(file).map_err(at(path))?;
    // The text of serde's error could contain a part of a token.
    serde_json::from_str(&text).map_err(|_| format!("`{}` is damaged; remove it", path.display()).into())
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
    use std::future::Future;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use serde_json::{Value, json};

    use super::super::store::InMemoryCredentials;
    use super::*;

    /// A folder that is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            Self(std::env::temp_dir().join(tool_http::random_id("tool_mcp_store_")))
        }

        fn store(&self) -> FileCredentials {
            FileCredentials::new(self.0.join("a").join("logins.json"))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn key(user: &str) -> CredentialKey {
        CredentialKey { user: user.to_owned(), ..CredentialKey::default() }
    }

    fn credential(revision: &str, expires_at: Value) -> Credential {
        let json = json!({ "revision": revision, "value": "a secret", "expires_at": expires_at });
        serde_json::from_value(json).unwrap()
    }

    /// Runs a check with both stores; the file with two handles, as two processes have it.
    async fn with_each<Checking: Future>(check: impl Fn([Box<dyn CredentialStore>; 2]) -> Checking) {
        let (folder, memory) = (Folder::new(), InMemoryCredentials::default());
        check([Box::new(memory.clone()), Box::new(memory)]).await;
        check([Box::new(folder.store()), Box::new(folder.store())]).await;
    }

    async fn revision(store: &dyn CredentialStore, key: &CredentialKey) -> Option<String> {
        store.load(key).await.unwrap().map(|credential| credential.revision().to_owned())
    }

    #[tokio::test]
    async fn a_credential_is_replaced_only_from_its_revision() {
        with_each(|[one, other]| async move {
            let (ada, grace) = (key("ada"), key("grace"));
            let (first, second) = (credential("1", Value::Null), credential("2", Value::Null));
            assert!(!one.swap(&ada, Some("1"), Some(&second)).await.unwrap());
            assert!(one.swap(&ada, None, Some(&first)).await.unwrap());
            assert!(!other.swap(&ada, None, Some(&second)).await.unwrap());
            assert!(!other.swap(&ada, Some("2"), None).await.unwrap());
            assert_eq!(revision(&*other, &ada).await.as_deref(), Some("1"));
            assert!(other.swap(&ada, Some("1"), Some(&second)).await.unwrap());
            assert_eq!(revision(&*one, &ada).await.as_deref(), Some("2"));
            assert_eq!(revision(&*one, &grace).await, None);
            assert!(one.swap(&ada, Some("2"), None).await.unwrap());
            assert_eq!(revision(&*other, &ada).await, None);
        })
        .await;
    }

    #[tokio::test]
    async fn of_many_swaps_at_once_one_succeeds() {
        with_each(|stores| async move {
            let key = key("ada");
            let credentials: Vec<_> =
                (0..20).map(|number| credential(&number.to_string(), Value::Null)).collect();
            let swaps = credentials
                .iter()
                .enumerate()
                .map(|(number, new)| stores[number % 2].swap(&key, None, Some(new)));
            let swapped = join_all(swaps).await;
            assert_eq!(swapped.iter().filter(|swapped| *swapped.as_ref().unwrap()).count(), 1);
        })
        .await;
    }

    #[tokio::test]
    async fn one_caller_holds_a_lock() {
        with_each(|stores| async move {
            let (key, holders, most) = (key("ada"), AtomicUsize::new(0), AtomicUsize::new(0));
            let hold = |store: usize| {
                let (stores, key, holders, most) = (&stores, &key, &holders, &most);
                async move {
                    let lock = stores[store].lock(key).await.unwrap();
                    most.fetch_max(holders.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    for _ in 0..10 {
                        tokio::task::yield_now().await;
                    }
                    holders.fetch_sub(1, Ordering::SeqCst);
                    drop(lock);
                }
            };
            join_all((0..10).map(|number| hold(number % 2))).await;
            assert_eq!(most.load(Ordering::SeqCst), 1);
            // Locks of other keys are other locks.
            let _held = stores[0].lock(&key).await.unwrap();
            drop(stores[1].lock(&super::tests::key("grace")).await.unwrap());
        })
        .await;
    }

    #[tokio::test]
    async fn expired_credentials_are_removed() {
        with_each(|[store, _]| async move {
            let (ada, grace) = (key("ada"), key("grace"));
            let past = json!({ "secs_since_epoch": 1, "nanos_since_epoch": 0 });
            assert!(store.swap(&ada, None, Some(&credential("1", past))).await.unwrap());
            assert!(store.swap(&grace, None, Some(&credential("1", Value::Null))).await.unwrap());
            assert_eq!(revision(&*store, &ada).await, None);
            assert_eq!(revision(&*store, &grace).await.as_deref(), Some("1"));
        })
        .await;
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn only_the_owner_can_read_the_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new();
        let store = folder.store();
        assert!(store.swap(&key("ada"), None, Some(&credential("1", Value::Null))).await.unwrap());
        drop(store.lock(&key("ada")).await.unwrap());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let files: Vec<_> =
            fs::read_dir(folder.0.join("a")).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 3, "{files:?}");
        assert!(files.iter().all(|file| mode(file) == 0o600), "{files:?}");
        assert_eq!(mode(&folder.0.join("a")), 0o700);

        fs::set_permissions(&store.path, fs::Permissions::from_mode(0o640)).unwrap();
        let path = store.path.display();
        let error = store.load(&key("ada")).await.unwrap_err().to_string();
        assert_eq!(error, format!("other users can read `{path}`; run `chmod 600 {path}`"));
    }

    #[tokio::test]
    async fn a_damaged_file_is_named_and_not_quoted() {
        let folder = Folder::new();
        let store = folder.store();
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
