//! Runs the SDK where no `tracing` subscriber of the program sees its records.
//!
//! `rmcp` records messages with their arguments and outputs, and the ids of sessions, from the level `info` on. It does so in
//! tasks that it spawns itself, which a wrapper around the futures handed to it does not cover. Its tasks are therefore
//! spawned on a runtime with one thread of its own, whose subscriber discards everything.
//!
//! `tracing` counts it as a subscriber of the process: its feature `log`, which forwards records of all crates to a logger of
//! the crate `log` as long as there is no subscriber, forwards nothing from then on.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tracing::dispatcher::{Dispatch, with_default};

/// The runtime of the SDK's tasks. All connections and servers of the process share it.
#[derive(Clone, Debug)]
pub(crate) struct QuietRuntime(Handle);

impl QuietRuntime {
    /// Returns the runtime and starts it the first time.
    pub(crate) fn get() -> io::Result<Self> {
        static RUNTIME: Mutex<Option<QuietRuntime>> = Mutex::new(None);
        let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &*runtime {
            return Ok(runtime.clone());
        }
        Ok(runtime.insert(Self::start()?).clone())
    }

    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let run = move || with_default(&Dispatch::none(), || runtime.block_on(pending::<()>()));
        thread::Builder::new().name("tool-mcp".into()).spawn(run)?;
        Ok(Self(handle))
    }

    /// Calls the function without a subscriber. The tasks that it spawns run on this runtime.
    pub(crate) fn enter<T>(&self, function: impl FnOnce() -> T) -> T {
        let _entered = self.0.enter();
        with_default(&Dispatch::none(), function)
    }

    /// Polls the future in the current task, each time as in [`enter`](Self::enter).
    pub(crate) async fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| self.enter(|| future.as_mut().poll(context))).await
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
