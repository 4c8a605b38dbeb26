//! Binding of addresses. Those that other machines can reach must be allowed explicitly.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, ToSocketAddrs, lookup_host};

/// How many connections can wait until they are accepted. The system limits it, too. With 128, the default of the standard library, a
/// few hundred clients that connect for each request lose some.
const BACKLOG: u32 = 1_024;

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
        _ => listen(&addresses).map_err(BindError::Io),
    }
}

/// Listens on the first of the addresses that can be bound.
fn listen(addresses: &[SocketAddr]) -> io::Result<TcpListener> {
    let mut failure = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
    for address in addresses {
        match listen_on(*address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // On Windows, the option would let other programs take the port.
    socket.set_reuseaddr(cfg!(unix))?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
