//! A connection that notices when the caller disconnects or stops reading.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Sleep, sleep};

/// The grace period between the end of the caller's half and closing the connection, so that a caller that only shut down its
/// writing half still receives a quick response. Also the polling interval while unread bytes are pending.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// The stream that hyper reads and writes.
pub(super) struct Connection {
    // Used for reading as well: hyper needs both in one value, and the watcher owns the other half.
    socket: OwnedWriteHalf,
    write_timeout: WriteTimeout,
}

/// Limits how long a write may make no progress.
struct WriteTimeout {
    timeout: Duration,
    /// Runs while a write is blocked.
    sleep: Option<Pin<Box<Sleep>>>,
}

/// Notices when the caller disconnects. hyper checks for the end only where the next request may begin, not while there are
/// bytes that it has not read.
pub(super) struct DisconnectWatcher(OwnedReadHalf);

/// Splits a stream into a connection, whose writes fail after `write_timeout` without progress, and a watcher of its end.
pub(super) fn split(stream: TcpStream, write_timeout: Duration) -> (Connection, DisconnectWatcher) {
    let (read_half, write_half) = stream.into_split();
    let write_timeout = WriteTimeout { timeout: write_timeout, sleep: None };
    (Connection { socket: write_half, write_timeout }, DisconnectWatcher(read_half))
}

impl WriteTimeout {
    /// Returns the result of a write, or an error if writes have been blocked for too long.
    fn apply(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.sleep = None;
            return written;
        }
        let timeout = self.timeout;
        ready!(self.sleep.get_or_insert_with(|| Box::pin(sleep(timeout))).as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl DisconnectWatcher {
    /// Waits until the caller closed or reset the connection.
    pub(super) async fn disconnected(&self) {
        while let Ok(state) = self.0.ready(Interest::READABLE).await {
            sleep(GRACE_PERIOD).await;
            if state.is_read_closed() {
                return;
            }
        }
        // The end cannot be observed.
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
        self.write_timeout.apply(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.write_timeout.apply(context, written)
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
    async fn write_timeout_restarts_with_every_successful_write() {
        let second = Duration::from_secs(1);
        let mut timeout = WriteTimeout { timeout: second * 10, sleep: None };
        let mut write = async |blocked_for: Duration| {
            let mut blocked = Box::pin(sleep(blocked_for));
            poll_fn(|context| {
                let written = blocked.as_mut().poll(context).map(|()| Ok(1));
                timeout.apply(context, written)
            })
            .await
        };
        for seconds in [0, 9, 9, 9] {
            assert_eq!(write(second * seconds).await.unwrap(), 1);
        }
        assert_eq!(write(second * 11).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
