//! Where logins are stored.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tool_core::store::StoreFuture;

use super::error::OAuthError;
use super::random::random_text;

/// Identifies a [`Credential`]: by the authorization server (`issuer`), the client, the resource, the MCP server and the user that it
/// is for.
///
/// `Display` is a text for the key column of a database. It contains no secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CredentialKey {
    pub(super) issuer: String,
    pub(super) client: String,
    pub(super) resource: String,
    /// A digest of the URL of the MCP server: several can state the same resource.
    pub(super) server: String,
    pub(super) user: String,
    /// A digest of the `state` of a login that is not finished, which has no other fields.
    pub(super) pending: Option<String>,
}

impl CredentialKey {
    /// Returns the user that the credential is for: see [`OAuth::user`](super::OAuth::user). It is empty for credentials of the
    /// program.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }
}

impl fmt::Display for CredentialKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = (&self.issuer, &self.client, &self.resource, &self.server, &self.user, &self.pending);
        f.write_str(&serde_json::to_string(&parts).map_err(|_| fmt::Error)?)
    }
}

/// A login in a [`CredentialStore`]. Its serialized form contains tokens, its `Debug` output does not.
#[derive(Clone, Serialize, Deserialize)]
pub struct Credential {
    revision: String,
    value: Value,
    pub(super) expires_at: Option<SystemTime>,
}

impl Credential {
    /// Returns the unique id of this version of the credential.
    #[must_use]
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// Returns `true` if the credential is useless from now on, so that the store can remove it.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.expires_at.is_some_and(|time| time <= SystemTime::now())
    }
}

/// Shows no secrets.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("revision", &self.revision).finish_non_exhaustive()
    }
}

/// A lock of a [`CredentialStore`], which ends when it is dropped.
pub type CredentialLock = Box<dyn Send>;

/// A store for logins, which several processes can share.
///
/// [`InMemoryCredentials`] holds them for the lifetime of the program; [`FileCredentials`](super::FileCredentials) stores them in a
/// file of the user, and `SqliteCredentials` (feature `sqlite`) in a database of many users.
///
/// # Contract
///
/// - [`swap`](Self::swap) is atomic, also among processes.
/// - At most one caller holds the [lock](Self::lock) of a key, also among processes. Many authorization servers accept a refresh
///   token once and end the login of a client that uses it twice, so a process must not refresh while another one does. A store
///   without locks can use leases that expire after more than a minute, the longest time of a refresh.
/// - No operation blocks its thread.
///
/// # Examples
///
/// ```
/// use tool_core::store::StoreFuture;
/// use tool_mcp::oauth::{Credential, CredentialKey, CredentialLock, CredentialStore, InMemoryCredentials};
///
/// /// Records whose credentials are stored.
/// struct Audited(InMemoryCredentials);
///
/// impl CredentialStore for Audited {
///     fn load<'a>(&'a self, key: &'a CredentialKey) -> StoreFuture<'a, Option<Credential>> {
///         self.0.load(key)
///     }
///
///     fn swap<'a>(
///         &'a self,
///         key: &'a CredentialKey,
///         expected: Option<&'a str>,
///         new: Option<&'a Credential>,
///     ) -> StoreFuture<'a, bool> {
///         println!("a credential of `{}` changes", key.user());
///         self.0.swap(key, expected, new)
///     }
///
///     fn lock<'a>(&'a self, key: &'a CredentialKey) -> StoreFuture<'a, CredentialLock> {
///         self.0.lock(key)
///     }
/// }
/// ```
pub trait CredentialStore: Send + Sync + 'static {
    /// Returns the credential.
    fn load<'a>(&'a self, key: &'a CredentialKey) -> StoreFuture<'a, Option<Credential>>;

    /// Stores the new credential, or removes the present one, if the present one has the expected revision; `None` expects none.
    /// Returns `false` without a change otherwise.
    fn swap<'a>(
        &'a self,
        key: &'a CredentialKey,
        expected: Option<&'a str>,
        new: Option<&'a Credential>,
    ) -> StoreFuture<'a, bool>;

    /// Waits for the lock of the key.
    fn lock<'a>(&'a self, key: &'a CredentialKey) -> StoreFuture<'a, CredentialLock>;
}

/// Loads a value and its revision, unless it has expired.
pub(super) async fn load<T: DeserializeOwned>(
    store: &dyn CredentialStore,
    key: &CredentialKey,
) -> Result<Option<(T, String)>, OAuthError> {
    let stored = store.load(key).await.map_err(OAuthError::store)?;
    let Some(stored) = stored.filter(|stored| !stored.is_expired()) else { return Ok(None) };
    // The text of serde's error could contain a part of a token.
    let value = serde_json::from_value(stored.value)
        .map_err(|_| OAuthError::store("a credential is not readable; remove it and log in again"))?;
    Ok(Some((value, stored.revision)))
}

/// Stores a value in place of the expected revision, or removes that. Returns `false` if the revision is another one.
pub(super) async fn swap<T: Serialize>(
    store: &dyn CredentialStore,
    key: &CredentialKey,
    expected: Option<&str>,
    value: Option<&T>,
    expires_at: Option<SystemTime>,
) -> Result<bool, OAuthError> {
    let value = value.map(serde_json::to_value).transpose().map_err(OAuthError::store)?;
    let revision = random_text()?;
    let new = value.map(|value| Credential { revision, value, expires_at });
    store.swap(key, expected, new.as_ref()).await.map_err(OAuthError::store)
}

/// Stores a value in place of any other, or removes that. Returns the value before.
pub(super) async fn replace<T: Serialize + DeserializeOwned>(
    store: &dyn CredentialStore,
    key: &CredentialKey,
    value: Option<&T>,
) -> Result<Option<T>, OAuthError> {
    loop {
        let (before, revision) = load::<T>(store, key).await?.unzip();
        if before.is_none() && value.is_none() || swap(store, key, revision.as_deref(), value, None).await? {
            return Ok(before);
        }
    }
}

/// Credentials by the texts of their keys.
pub(super) type Entries = BTreeMap<String, Credential>;

/// Implements [`CredentialStore::swap`].
pub(super) fn swap_entry(
    entries: &mut Entries,
    key: String,
    expected: Option<&str>,
    new: Option<Credential>,
) -> bool {
    entries.retain(|_, entry| !entry.is_expired());
    let is_expected = entries.get(&key).map(Credential::revision) == expected;
    match new {
        _ if !is_expected => None,
        Some(new) => entries.insert(key, new),
        None => entries.remove(&key),
    };
    is_expected
}

/// Credentials for the lifetime of the program, which clones share.
#[derive(Clone, Default)]
pub struct InMemoryCredentials(Arc<Mutex<Contents>>);

#[derive(Default)]
struct Contents {
    entries: Entries,
    /// Removed when nobody uses them.
    locks: HashMap<CredentialKey, Weak<tokio::sync::Mutex<()>>>,
}

impl InMemoryCredentials {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CredentialStore for InMemoryCredentials {
    fn load<'a>(&'a self, key: &'a CredentialKey) -> StoreFuture<'a, Option<Credential>> {
        Box::pin(async { Ok(self.contents().entries.get(&key.to_string()).cloned()) })
    }

    fn swap<'a>(
        &'a self,
        key: &'a CredentialKey,
        expected: Option<&'a str>,
        new: Option<&'a Credential>,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            Ok(swap_entry(&mut self.contents().entries, key.to_string(), expected, new.cloned()))
        })
    }

    fn lock<'a>(&'a self, key: &'a CredentialKey) -> StoreFuture<'a, CredentialLock> {
        Box::pin(async move {
            let lock = {
                let locks = &mut self.contents().locks;
                locks.retain(|_, lock| lock.strong_count() > 0);
                let lock = locks.get(key).and_then(Weak::upgrade).unwrap_or_default();
                locks.insert(key.clone(), Arc::downgrade(&lock));
                lock
            };
            Ok(Box::new(lock.lock_owned().await) as CredentialLock)
        })
    }
}

/// Shows no credentials.
impl fmt::Debug for InMemoryCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryCredentials").finish_non_exhaustive()
    }
}
