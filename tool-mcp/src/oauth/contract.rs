//! The contract of [`CredentialStore`], with each store.

use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::file_store::FileCredentials;
#[cfg(feature = "sqlite")]
use super::sqlite_store::SqliteCredentials;
use super::store::{Credential, CredentialKey, CredentialStore, InMemoryCredentials};

/// A folder that is removed at the end.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        let folder = std::env::temp_dir().join(tool_http::random_id("tool_mcp_store_"));
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn key(user: &str) -> CredentialKey {
    CredentialKey { user: user.to_owned(), ..CredentialKey::default() }
}

pub(super) fn credential(revision: &str, expires_at: Value) -> Credential {
    let json = json!({ "revision": revision, "value": "a secret", "expires_at": expires_at });
    serde_json::from_value(json).unwrap()
}

/// Runs a check with each store; files with two handles, as two processes have them.
async fn with_each<Checking: Future>(check: impl Fn([Box<dyn CredentialStore>; 2]) -> Checking) {
    let (folder, memory) = (Folder::new(), InMemoryCredentials::default());
    check([Box::new(memory.clone()), Box::new(memory)]).await;
    let file = || Box::new(FileCredentials::new(folder.path("logins.json")));
    check([file(), file()]).await;
    #[cfg(feature = "sqlite")]
    {
        let open = async || Box::new(SqliteCredentials::open(folder.path("logins.db")).await.unwrap());
        check([open().await, open().await]).await;
    }
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
        drop(stores[1].lock(&super::contract::key("grace")).await.unwrap());
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
