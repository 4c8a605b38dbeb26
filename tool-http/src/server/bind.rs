//! Binding of addresses. Those that other machines can reach must be allowed explicitly.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, ToSocketAddrs, lookup_host};

/// The reason that an address was not bound.
#[derive(Debug)]
pub enum BindError {
    /// Other machines can reach this address.
    Remote(SocketAddr),
    /// The system refused to bind the address.
    Io(io::Error),
}

impl BindError {
    /// Converts the error of a server whose callers can be made to log in, as in "require a key with `key`".
    #[must_use]
    pub fn into_io(self, login: &str) -> io::Error {
        match self {
            Self::Io(error) => error,
            Self::Remote(address) => io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "`{address}` can be reached from other machines; bind to `127.0.0.1`, {login}, or call \
                     `allow_remote()`"
                ),
            ),
        }
    }
}

/// Binds an address. It must be a loopback address unless `allows_remote` is `true`.
///
/// # Errors
///
/// Returns an error if the address is not a loopback address, or cannot be bound.
pub async fn bind(address: impl ToSocketAddrs, allows_remote: bool) -> Result<TcpListener, BindError> {
    let addresses: Vec<_> = lookup_host(address).await.map_err(BindError::Io)?.collect();
    let is_remote = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
    match addresses.iter().find(is_remote) {
        Some(remote) if !allows_remote => Err(BindError::Remote(*remote)),
        _ => TcpListener::bind(&addresses[..]).await.map_err(BindError::Io),
    }
}
