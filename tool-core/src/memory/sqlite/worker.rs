//! The thread that works on a file.

use std::sync::mpsc;
use std::thread;

use futures_channel::oneshot;
use rusqlite::Connection;

use super::Failure;
use crate::memory::StoreFuture;

/// Hands work to the thread that has the connection. It is done in the order in which it is handed over. The thread
/// ends when all clones are gone and all work is done.
///
/// A thread of its own, and not one of a runtime's: it needs no runtime, and keeps the order.
#[derive(Clone)]
pub(super) struct Worker(mpsc::Sender<Work>);

type Work = Box<dyn FnOnce(&mut Connection) + Send>;

impl Worker {
    /// Starts a thread and opens the connection there.
    pub(super) async fn start(
        open: impl FnOnce() -> Result<Connection, Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let (hand_over, work) = mpsc::channel::<Work>();
        let (tell, opened) = oneshot::channel();
        let body = move || {
            let connection = open().map(|connection| (connection, work));
            match connection {
                Ok((mut connection, work)) => {
                    // Whoever opens the store may be gone; the channel is then, too.
                    let _ = tell.send(Ok(()));
                    work.into_iter().for_each(|work| work(&mut connection));
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        };
        thread::Builder::new().name("tool-core sqlite".to_owned()).spawn(body)?;
        opened.await.map_err(|_| gone())??;
        Ok(Self(hand_over))
    }

    /// Has work done. If nobody waits for it any more when its turn comes, it is not begun.
    pub(super) fn run<'a, T: Send + 'static>(
        &'a self,
        work: impl FnOnce(&mut Connection) -> Result<T, Failure> + Send + 'static,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let (tell, done) = oneshot::channel();
            let work = move |connection: &mut Connection| {
                if !tell.is_canceled() {
                    let _ = tell.send(work(connection));
                }
            };
            self.0.send(Box::new(work)).map_err(|_| gone())?;
            done.await.map_err(|_| gone())?
        })
    }
}

#[cold]
fn gone() -> Failure {
    "the thread of the store has ended; open the store anew".into()
}
