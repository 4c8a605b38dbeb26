//! The connection of one caller, of whom it is noticed in any case that it went away.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{future, io};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// How long after its end a connection is dropped, and how often it is looked for while nobody reads. Who only closed
/// its own half still gets an answer that is quick.
const PAUSE: Duration = Duration::from_secs(1);

/// What is read and written.
pub(super) struct Connection {
    // Also read from: hyper wants both in one value, and the other half is the presence.
    socket: OwnedWriteHalf,
}

/// Whether the caller is still there. hyper looks for the end only where the next request may begin: not while there are
/// bytes that it has not taken yet.
pub(super) struct Presence(OwnedReadHalf);

/// The connection, and what tells of its end.
pub(super) fn of(stream: TcpStream) -> (Connection, Presence) {
    let (reading, writing) = stream.into_split();
    (Connection { socket: writing }, Presence(reading))
}

impl Presence {
    /// Waits until the caller closed the connection, or broke it off.
    pub(super) async fn ended(&self) {
        while let Ok(state) = self.0.ready(Interest::READABLE).await {
            tokio::time::sleep(PAUSE).await;
            if state.is_read_closed() {
                return;
            }
        }
        // There is nothing that could tell.
        future::pending().await
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket: &TcpStream = self.socket.as_ref();
        loop {
            ready!(socket.poll_read_ready(context))?;
            match socket.try_read(buffer.initialize_unfilled()) {
                Ok(read) => {
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
