//! Runs the SDK where no `tracing` subscriber of the program sees its records.
//!
//! `rmcp` records messages with their arguments and outputs, and the ids of sessions, from the level `info` on. It does so in
//! tasks that it spawns itself, which a wrapper around its futures does not reach. Its tasks are therefore spawned on a separate
//! runtime, whose threads have a subscriber that discards everything.
//!
//! From then on, `tracing` has a subscriber in the process, so its feature `log` no longer forwards records to a logger of the
//! crate `log`.

use std::future::{Future, poll_fn};
use std::io;
use std::num::NonZero;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::thread;

use tokio::runtime::{Builder, Handle, Runtime};
use tracing::dispatcher::{Dispatch, set_default, with_default};

/// The largest number of threads. Reading a large message occupies one, which must not delay other connections.
const MAX_THREADS: usize = 4;

/// The runtime of the SDK's tasks. All connections and servers of the process share it.
#[derive(Clone, Debug)]
pub(crate) struct QuietRuntime(Handle);

impl QuietRuntime {
    /// Returns the runtime and starts it the first time. It is never shut down.
    pub(crate) fn get() -> io::Result<Self> {
        static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);
        let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = match &mut *runtime {
            Some(runtime) => runtime,
            none => none.insert(start()?),
        };
        Ok(Self(runtime.handle().clone()))
    }

    /// Calls the function without a subscriber. The tasks that it spawns run on this runtime.
    pub(crate) fn enter<T>(&self, function: impl FnOnce() -> T) -> T {
        let _entered = self.0.enter();
        with_default(&Dispatch::none(), function)
    }

    /// Polls the future in the current task, within [`enter`](Self::enter).
    pub(crate) async fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| self.enter(|| future.as_mut().poll(context))).await
    }
}

fn start() -> io::Result<Runtime> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS);
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("tool-mcp")
        // The subscriber of a thread is reset when the guard is dropped.
        .on_thread_start(|| std::mem::forget(set_default(&Dispatch::none())))
        .enable_all()
        .build()
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
