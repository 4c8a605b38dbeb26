//! Logins for MCP servers: OAuth 2.1, as the protocol specifies it.
//!
//! [`OAuth`] configures how tokens are obtained, [`Login`] how a person logs in, and a [`CredentialStore`] holds the result. The page
//! [Servers that need a login](crate::guide::servers_that_need_a_login) shows each of the ways.
//!
//! `rmcp`'s `AuthorizationManager` is not used: it stores neither the secrets of clients nor redirect URIs, its stores cannot compare
//! and swap, it accepts servers without PKCE, and it logs codes.

// A client that registered itself is in the store for an hour, under its redirect URI, and so are challenges of calls until the next login,
// because the next process starts the login, and a server can let everything pass but calls.

// Logins know nothing of the SDK: the HTTP client asks a `Session` for a token, and for another one if that is rejected.

mod error;
mod random;
mod store;
mod file_store;
#[cfg(feature = "sqlite")]
mod sqlite_store;
#[cfg(test)]
mod contract;
mod challenge;
mod request;
mod config;
mod metadata;
mod client;
mod tokens;
mod loopback;
mod redirect;
mod session;
mod login;

pub(crate) use self::challenge::Challenge;
pub(crate) use self::error::OAuthError;
pub(crate) use self::session::Session;
pub(crate) use self::tokens::bearer;

pub use self::config::{Login, LoginPrompt, OAuth};
pub use self::file_store::FileCredentials;
#[cfg(feature = "sqlite")]
pub use self::sqlite_store::SqliteCredentials;
pub use self::store::{Credential, CredentialKey, CredentialLock, CredentialStore, InMemoryCredentials};
