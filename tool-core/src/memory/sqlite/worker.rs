//! The thread that owns the connection to the database.

use std::fmt;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use futures_channel::oneshot;
use rusqlite::Connection;

use super::super::error::{MemoryError, Operation};
use super::super::store::StoreFuture;
use super::database::{self, BoxError, SqliteSchema};

/// Sends jobs to the thread that owns the connection. Jobs run in the order in which they are sent. The thread ends when all
/// clones are dropped and all jobs are done.
///
/// A dedicated thread needs no runtime and preserves the order, unlike the blocking threads of a runtime.
#[derive(Clone)]
pub struct SqliteWorker(mpsc::Sender<Job>);

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

impl SqliteWorker {
    /// Opens the file at a path, and creates it if it does not exist, so that only its owner can read it.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or written, or if it has another schema.
    pub async fn open(path: &Path, schema: &'static SqliteSchema) -> Result<Self, MemoryError> {
        let (path, opened_path) = (path.to_owned(), path.to_owned());
        let worker = Self::start(move || database::open(&opened_path, schema)).await;
        worker.map_err(|error| MemoryError::new(Operation::Open(path), error))
    }

    /// Starts a thread and opens the connection there.
    pub(super) async fn start(
        open: impl FnOnce() -> Result<Connection, BoxError> + Send + 'static,
    ) -> Result<Self, BoxError> {
        let (sender, jobs) = mpsc::channel::<Job>();
        let (opened_sender, opened) = oneshot::channel();
        let body = move || match open() {
            Ok(mut connection) => {
                // Sending fails if the caller was dropped, and then there are no jobs either.
                let _ = opened_sender.send(Ok(()));
                jobs.into_iter().for_each(|job| job(&mut connection));
            }
            Err(error) => drop(opened_sender.send(Err(error))),
        };
        thread::Builder::new().name("tool-core sqlite".to_owned()).spawn(body)?;
        opened.await.map_err(|_| thread_ended())??;
        Ok(Self(sender))
    }

    /// Runs a job whose result nobody needs.
    pub fn send(&self, job: impl FnOnce(&mut Connection) -> Result<(), BoxError> + Send + 'static) {
        let job = |connection: &mut Connection| drop(database::run(connection, job));
        // Without its thread, the store has reported that to all others.
        let _ = self.0.send(Box::new(job));
    }

    /// Runs a job. It is skipped if the future was dropped before its turn.
    pub fn run<'a, T: Send + 'static>(
        &'a self,
        job: impl FnOnce(&mut Connection) -> Result<T, BoxError> + Send + 'static,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let (sender, done) = oneshot::channel();
            let job = move |connection: &mut Connection| {
                if !sender.is_canceled() {
                    let _ = sender.send(database::run(connection, job));
                }
            };
            self.0.send(Box::new(job)).map_err(|_| thread_ended())?;
            done.await.map_err(|_| thread_ended())?
        })
    }
}

#[cold]
fn thread_ended() -> BoxError {
    "the thread of the store has ended; open the store again".into()
}

impl fmt::Debug for SqliteWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteWorker").finish_non_exhaustive()
    }
}
