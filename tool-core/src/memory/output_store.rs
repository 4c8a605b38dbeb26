//! The trait of stores for outputs that are too long for a model.
//!
//! They are beside the run and not in its log, because a run is loaded whole, and its messages become those of the conversation. An output is
//! shortened after the layers (`agent/layers.rs`), where all ways of a call meet, so that nothing is stored which they took out.

use std::sync::Arc;

use crate::memory::StoreFuture;
use crate::run::RunId;

/// A store for the outputs of calls that are too long for a model to read at once, used by
/// [`AgentBuilder::output_store`](crate::agent::AgentBuilder::output_store).
///
/// They are stored beside the run and not in it, because a run is loaded whole, and its messages become those of its conversation.
///
/// # Contract
///
/// - An output belongs to one run, and is read only by that run.
/// - A [`RunStore`](crate::store::RunStore) that also stores outputs removes those of a run, and of the runs inside, together with the run.
/// - An operation sees the effects of those that were started earlier, and no operation blocks its thread.
///
/// ```
/// use tool_core::Message;
/// use tool_core::memory::InMemoryStore;
/// use tool_core::store::OutputStore;
/// use tool_core::run::Run;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let (store, run) = (InMemoryStore::new(), Run::new([Message::user("Read the log.")]));
/// store.store_output(run.id(), "call_1", "a very long text").await?;
/// assert_eq!(store.load_output(run.id(), "call_1").await?.as_deref(), Some("a very long text"));
/// store.remove_outputs(run.id()).await?;
/// assert_eq!(store.load_output(run.id(), "call_1").await?, None);
/// # Ok(())
/// # }
/// ```
pub trait OutputStore: Send + Sync {
    /// Stores the text of the output of a call, and replaces an earlier one.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if it cannot be stored. The run then stops before the model is asked, and can be resumed.
    fn store_output<'a>(&'a self, run: &'a RunId, call: &'a str, output: &'a str) -> StoreFuture<'a, ()>;

    /// Returns the text of an output, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if it cannot be read.
    fn load_output<'a>(&'a self, run: &'a RunId, call: &'a str) -> StoreFuture<'a, Option<String>>;

    /// Removes all outputs of a run, which has ended.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if they cannot be removed.
    fn remove_outputs<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()>;
}

impl<S: OutputStore + ?Sized> OutputStore for Arc<S> {
    fn store_output<'a>(&'a self, run: &'a RunId, call: &'a str, output: &'a str) -> StoreFuture<'a, ()> {
        (**self).store_output(run, call, output)
    }

    fn load_output<'a>(&'a self, run: &'a RunId, call: &'a str) -> StoreFuture<'a, Option<String>> {
        (**self).load_output(run, call)
    }

    fn remove_outputs<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        (**self).remove_outputs(run)
    }
}
