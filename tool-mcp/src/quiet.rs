//! Runs the SDK where no `tracing` subscriber of the program sees its records.
//!
//! `rmcp` records messages with their arguments and outputs, and the ids of sessions, from the level `info` on. It does so in
//! tasks that it spawns itself, which a wrapper around its futures does not reach. Its tasks are therefore spawned on a separate
//! runtime, whose threads have a subscriber that discards everything.
//!
//! That subscriber makes `tracing`'s feature `log` forward no further records of the process to a logger of the crate `log`: one
//! flag decides for all threads, and without it the logger would receive the arguments.
//!
//! All connections and servers share the runtime, and it ends with the last of them.

use std::future::{Future, poll_fn};
use std::io;
use std::num::NonZero;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use tokio::runtime::{Builder, Handle, Runtime};
use tracing::dispatcher::{Dispatch, set_default, with_default};

/// The largest number of threads. Reading a large message occupies one, which must not delay other connections.
const MAX_THREADS: usize = 4;

/// Where the SDK's tasks run.
#[derive(Clone, Debug)]
pub(crate) enum SdkRuntime {
    /// The runtime of the program, whose subscriber sees the records.
    Program,
    /// Threads that discard records. They end with the last clone of the last connection and server.
    Quiet(Arc<QuietThreads>),
}

#[derive(Debug)]
pub(crate) struct QuietThreads {
    handle: Handle,
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
}

impl SdkRuntime {
    /// Returns the runtime of the program if messages are to be recorded; otherwise the quiet one that the connections and servers
    /// of the process share, and starts it for the first of them.
    pub(crate) fn new(records_messages: bool) -> io::Result<Self> {
        if records_messages {
            return Ok(Self::Program);
        }
        static CURRENT: Mutex<Weak<QuietThreads>> = Mutex::new(Weak::new());
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = current.upgrade() {
            return Ok(Self::Quiet(running));
        }
        let started = Arc::new(QuietThreads::start()?);
        *current = Arc::downgrade(&started);
        Ok(Self::Quiet(started))
    }

    /// Calls the function, which can spawn tasks of the SDK.
    pub(crate) fn enter<T>(&self, function: impl FnOnce() -> T) -> T {
        let Self::Quiet(threads) = self else { return function() };
        let _entered = threads.handle.enter();
        with_default(&Dispatch::none(), function)
    }

    /// Polls the future in the current task, within [`enter`](Self::enter).
    pub(crate) async fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| self.enter(|| future.as_mut().poll(context))).await
    }
}

impl QuietThreads {
    fn start() -> io::Result<Self> {
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("tool-mcp")
            // The subscriber of a thread is reset when the guard is dropped.
            .on_thread_start(|| std::mem::forget(set_default(&Dispatch::none())))
            .enable_all()
            .build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }
}

impl Drop for QuietThreads {
    fn drop(&mut self) {
        // The last user can be a task of any runtime, which must not wait for the threads.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Runs a future of the program in a task of the program's runtime, where its records are seen. Dropping the returned future
/// cancels the task.
///
/// Returns `None` if the runtime has shut down, or if the future panics.
#[cfg(feature = "server")]
pub(crate) async fn run_on<F>(host: &Handle, future: F) -> Option<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut task = tokio::task::JoinSet::new();
    task.spawn_on(future, host);
    task.join_next().await?.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn threads(runtime: &SdkRuntime) -> &Arc<QuietThreads> {
        match runtime {
            SdkRuntime::Quiet(threads) => threads,
            SdkRuntime::Program => panic!("not a quiet runtime"),
        }
    }

    /// Sends a message when the thread that owns it ends.
    struct NotifyOnExit(mpsc::Sender<()>);

    impl Drop for NotifyOnExit {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }

    thread_local! {
        static EXIT: std::cell::RefCell<Option<NotifyOnExit>> = const { std::cell::RefCell::new(None) };
    }

    /// No other test of this binary uses the runtime.
    #[tokio::test(flavor = "current_thread")]
    async fn its_users_share_threads_that_end_with_the_last_of_them() {
        let first = SdkRuntime::new(false).unwrap();
        let second = SdkRuntime::new(false).unwrap();
        assert!(Arc::ptr_eq(threads(&first), threads(&second)));

        let (sender, exits) = mpsc::channel();
        let on_thread = |sender: mpsc::Sender<()>| async move {
            EXIT.set(Some(NotifyOnExit(sender)));
            thread::current().name().map(str::to_owned)
        };
        let name = second.enter(|| tokio::spawn(on_thread(sender))).await.unwrap();
        assert_eq!(name.as_deref(), Some("tool-mcp"));
        drop(first);
        // The thread still executes tasks.
        second.enter(|| tokio::spawn(async {})).await.unwrap();
        assert_eq!(exits.try_recv(), Err(mpsc::TryRecvError::Empty));

        // Its last user is a task on one of its threads, as the task of a connection is.
        let weak = Arc::downgrade(threads(&second));
        let last = second.clone();
        second.enter(move || tokio::spawn(async move { drop(last) }));
        drop(second);
        assert_eq!(exits.recv_timeout(Duration::from_secs(60)), Ok(()));
        assert_eq!(weak.strong_count(), 0);

        let next = SdkRuntime::new(false).unwrap();
        next.enter(|| tokio::spawn(async {})).await.unwrap();
    }
}
