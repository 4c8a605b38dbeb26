//! The connection of one caller, of whom it is noticed in any case that it went away, or takes nothing of its answer.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Sleep, sleep};

/// How long after its end a connection is dropped, and how often it is looked for while nobody reads. Who only closed
/// its own half still gets an answer that is quick.
const PAUSE: Duration = Duration::from_secs(1);

/// What is read and written.
pub(super) struct Connection {
    // Also read from: hyper wants both in one value, and the other half is the presence.
    socket: OwnedWriteHalf,
    patience: Patience,
}

/// How long is waited for a caller who takes nothing of what is written.
struct Patience {
    time: Duration,
    /// Runs while nothing is taken.
    ends: Option<Pin<Box<Sleep>>>,
}

/// Whether the caller is still there. hyper looks for the end only where the next request may begin: not while there are
/// bytes that it has not taken yet.
pub(super) struct Presence(OwnedReadHalf);

/// The connection, and what tells of its end. To write fails when nothing was taken for so long.
pub(super) fn of(stream: TcpStream, write_timeout: Duration) -> (Connection, Presence) {
    let (reading, writing) = stream.into_split();
    let patience = Patience { time: write_timeout, ends: None };
    (Connection { socket: writing, patience }, Presence(reading))
}

impl Patience {
    /// What came of writing, unless nothing has come of it for too long.
    fn with(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.ends = None;
            return written;
        }
        let time = self.time;
        ready!(self.ends.get_or_insert_with(|| Box::pin(sleep(time))).as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Presence {
    /// Waits until the caller closed the connection, or broke it off.
    pub(super) async fn ended(&self) {
        while let Ok(state) = self.0.ready(Interest::READABLE).await {
            sleep(PAUSE).await;
            if state.is_read_closed() {
                return;
            }
        }
        // There is nothing that could tell.
        pending().await
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
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.patience.with(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, pieces);
        self.patience.with(context, written)
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn patience_ends_when_nothing_is_taken_and_begins_anew_with_what_is() {
        let second = Duration::from_secs(1);
        let mut patience = Patience { time: second * 10, ends: None };
        let mut write = async |waits: Duration| {
            let mut waiting = Box::pin(sleep(waits));
            poll_fn(|context| {
                let written = waiting.as_mut().poll(context).map(|()| Ok(1));
                patience.with(context, written)
            })
            .await
        };
        for waits in [0, 9, 9, 9] {
            assert_eq!(write(second * waits).await.unwrap(), 1);
        }
        assert_eq!(write(second * 11).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
