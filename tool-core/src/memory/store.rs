//! The traits of stores for conversations and runs.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::memory::{
    CompactionSummary, DriverId, LeaseRequest, LeaseState, PostOutcome, PostedCommand, RunConflict,
    RunFilter, RunLog, RunSummary,
};
use crate::model::{ConversationId, Message};
use crate::run::{Run, RunChanges, RunRevision};

/// The future of one operation of a [`ChatStore`] or a [`RunStore`].
pub type StoreFuture<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, Box<dyn Error + Send + Sync>>> + Send + 'a>>;

/// A store for the messages of conversations, used by [`ChatMemory`](crate::ChatMemory).
///
/// [`InMemoryStore`](crate::memory::InMemoryStore) holds them for the lifetime of the program;
#[cfg_attr(feature = "sqlite", doc = "[`SqliteStore`](crate::SqliteStore) stores them in a file.")]
#[cfg_attr(not(feature = "sqlite"), doc = "`SqliteStore` (feature `sqlite`) stores them in a file.")]
///
/// # Contract
///
/// - The store holds whole conversations. It does not decide how much of them a model receives.
/// - Messages are returned in the order in which they were appended.
/// - [`append`](Self::append) is atomic: it adds all of its messages or none, without other messages between them, even if
///   its future is dropped before it completes.
/// - An operation sees the effects of those that were started earlier, even if their futures were dropped: the memory
///   admits the next caller to a conversation when the future of an `append` is dropped.
/// - No operation blocks its thread.
///
/// # Examples
///
/// ```
/// use tool_core::memory::InMemoryStore;
/// use tool_core::store::{ChatStore, StoreFuture};
/// use tool_core::model::ConversationId;
/// use tool_core::Message;
///
/// /// Stores no images.
/// struct TextOnly(InMemoryStore);
///
/// impl ChatStore for TextOnly {
///     fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
///         self.0.load(id)
///     }
///
///     fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
///         Box::pin(async move {
///             let texts = messages.iter().map(|message| match message {
///                 Message::User(content) => Message::user(&*content.text()),
///                 other => other.clone(),
///             });
///             self.0.append(id, &texts.collect::<Vec<_>>()).await
///         })
///     }
///
///     fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()> {
///         self.0.clear(id)
///     }
///
///     fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
///         self.0.conversations()
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not store conversations",
    label = "not a `ChatStore`",
    note = "write `InMemoryStore::new()`, or `SqliteStore::open(\"…\")` with the feature `sqlite`"
)]
pub trait ChatStore: Send + Sync {
    /// Returns all messages of a conversation, the oldest first. An unknown conversation is empty.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the messages cannot be read.
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>>;

    /// Appends messages to a conversation: all of them or none. An empty slice has no effect.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the messages cannot be stored; none of them is stored then.
    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()>;

    /// Replaces all messages of a conversation. By default, it is cleared and then appended to, so a failure between the two leaves it
    /// empty. A store that can do both at once overrides it.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the messages cannot be replaced.
    fn replace<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.clear(id).await?;
            self.append(id, messages).await
        })
    }

    /// Stores what the next question of a conversation reads in place of its first messages, which stay. By default, it is forgotten, and
    /// the next question reads the messages. [`replace`](Self::replace) and [`clear`](Self::clear) remove it.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if it cannot be stored.
    fn store_summary<'a>(
        &'a self,
        _id: &'a ConversationId,
        _summary: &'a CompactionSummary,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Returns the summary that was stored last. By default, there is none.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if it cannot be read.
    fn load_summary<'a>(&'a self, _id: &'a ConversationId) -> StoreFuture<'a, Option<CompactionSummary>> {
        Box::pin(async { Ok(None) })
    }

    /// Removes all messages of a conversation.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the messages cannot be removed.
    fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()>;

    /// Returns the ids of all conversations that have messages, sorted.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the conversations cannot be listed.
    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>>;
}

/// A store for the states of runs, such as those that await approval, under ids chosen by the application.
///
/// A state is replaced only by a run that continues it: each save gives the run a new [revision](Run::revision), and a copy
/// that was loaded before the last save, or before the run was removed, cannot be saved any more. So if two processes resume
/// one run, one of them continues, and the other gets a [`RunConflict`] before it has executed anything.
///
/// ```
/// use tool_core::memory::InMemoryStore;
/// use tool_core::store::{RunConflict, RunStore};
/// use tool_core::run::Run;
/// use tool_core::Message;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let store = InMemoryStore::new();
/// store.save_run("order-17", &mut Run::new([Message::user("Cancel my order.")])).await?;
///
/// let mut run = store.load_run("order-17").await?.ok_or("unknown run")?;
/// let mut copy = store.load_run("order-17").await?.ok_or("unknown run")?;
/// assert_eq!(run.messages()[0].text(), "Cancel my order.");
/// store.save_run("order-17", &mut run).await?;
/// assert!(store.save_run("order-17", &mut copy).await.unwrap_err().is::<RunConflict>());
///
/// store.remove_run("order-17").await?;
/// assert!(store.save_run("order-17", &mut run).await.unwrap_err().is::<RunConflict>());
/// assert!(store.load_run("order-17").await?.is_none());
/// # Ok(())
/// # }
/// ```
///
/// # Contract
///
/// - [`append_run`](Self::append_run) compares the revision and stores all changes in one atomic operation, for all processes that use
///   the store. If its future is dropped before it completes, either all of them are stored or none.
/// - The log of a run only grows: a save adds entries, and replaces small parts whose size does not depend on the length of the run.
/// - After [`remove_run`](Self::remove_run), no earlier copy of the run is stored again. Copies with a revision find no state
///   to replace. For a copy that was never stored, the store remembers the [id](Run::id) of the removed run for a time; the
///   stores of this crate remember the last 1,000.
/// - An operation sees the effects of those that were started earlier, even if their futures were dropped.
/// - No operation blocks its thread.
///
#[cfg_attr(
    feature = "testing",
    doc = "[`check_run_store`](crate::testing::check_run_store) checks a store against this contract."
)]
#[cfg_attr(
    not(feature = "testing"),
    doc = "`testing::check_run_store` (feature `testing`) checks a store against this contract."
)]
///
/// # Several processes
///
/// Three methods are for services in which several drivers work on one store. Their default implementations support nothing:
/// all stored runs then look free, and only [`append_run`](Self::append_run) protects them, which is enough for their safety.
///
/// - The [lease](Self::lease) of a run states which driver works on it. It is stored beside the state and changes no revision.
///   It saves others from loading a run that is being driven, and nothing depends on it: a process that was suspended and wakes
///   up after its lease has expired can finish one effect, started before, that the next driver repeats or undoes. Its next
///   save is a conflict.
/// - The inbox of a run has the commands of callers that do not hold it: they [`post`](Self::post) a decision instead of saving
///   the run, which would be a conflict for its driver. The driver reads the [posted](Self::posted) commands, and the save that
///   stores their effect removes them. The inbox of a run counts for that run alone, and takes each decision and cancellation;
///   messages are [bounded](PostedCommand::fits).
///
/// ```
/// use std::collections::{BTreeMap, HashSet};
/// use std::sync::Mutex;
/// use std::time::{Duration, Instant};
///
/// use tool_core::memory::{RunFilter, RunSummary};
/// use tool_core::store::{RunChanges, RunLog, RunRevision, RunStore, SaveOutcome, StoreFuture};
/// use tool_core::run::Run;
///
/// /// A stored run as JSON. A database would have a table of parts and one of entries, and change them in a transaction.
/// #[derive(Default)]
/// struct Stored {
///     run: String,
///     summary: Option<RunSummary>,
///     saved_at: Option<Instant>,
///     parts: BTreeMap<String, String>,
///     log: BTreeMap<u64, String>,
/// }
///
/// #[derive(Default)]
/// struct JsonStore(Mutex<(BTreeMap<String, Stored>, HashSet<String>)>);
///
/// impl RunStore for JsonStore {
///     fn append_run<'a>(
///         &'a self,
///         id: &'a str,
///         expected: Option<&'a RunRevision>,
///         changes: &'a RunChanges,
///     ) -> StoreFuture<'a, SaveOutcome> {
///         Box::pin(async move {
///             let (runs, removed) = &mut *self.0.lock().unwrap();
///             let is_current = match runs.get(id) {
///                 Some(stored) => expected.is_some() && stored.summary.as_ref().map(|known| &known.revision) == expected,
///                 None => expected.is_none() && !removed.contains(changes.run_id().as_str()),
///             };
///             if !is_current {
///                 return Ok(SaveOutcome::Conflict);
///             }
///             let stored = runs.entry(id.to_owned()).or_default();
///             stored.run = changes.run_id().to_string();
///             (stored.summary, stored.saved_at) = (changes.summary().cloned(), Some(Instant::now()));
///             if changes.is_whole() {
///                 (stored.parts, stored.log) = Default::default();
///             }
///             for (key, part) in changes.parts()? {
///                 match part {
///                     Some(part) => stored.parts.insert(key, part),
///                     None => stored.parts.remove(&key),
///                 };
///             }
///             stored.log.extend(changes.entries()?);
///             Ok(SaveOutcome::Saved)
///         })
///     }
///
///     fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
///         Box::pin(async move {
///             let (runs, _) = &*self.0.lock().unwrap();
///             let run = runs.get(id).map(|stored| Run::restore(&stored.parts, stored.log.values()));
///             Ok(run.transpose()?)
///         })
///     }
///
///     fn entries<'a>(&'a self, id: &'a str, after: Option<u64>, limit: usize) -> StoreFuture<'a, Option<RunLog>> {
///         Box::pin(async move {
///             let (runs, _) = &*self.0.lock().unwrap();
///             let Some(stored) = runs.get(id) else { return Ok(None) };
///             let first = after.map_or(0, |after| after + 1);
///             let entries = stored.log.range(first..).take(limit).map(|(at, entry)| (*at, entry.clone())).collect();
///             let rest = stored.parts.get(RunChanges::REST).cloned();
///             Ok(stored.summary.clone().map(|summary| RunLog::new(summary, entries, rest)))
///         })
///     }
///
///     fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
///         Box::pin(async move {
///             let (runs, removed) = &mut *self.0.lock().unwrap();
///             removed.extend(runs.remove(id).map(|stored| stored.run));
///             Ok(())
///         })
///     }
///
///     fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
///         Box::pin(async move {
///             let (runs, _) = &*self.0.lock().unwrap();
///             let mut listed: Vec<_> = runs.values().filter_map(|stored| stored.summary.clone()).collect();
///             for run in &mut listed {
///                 run.age = runs[&run.id].saved_at.map_or(Duration::ZERO, |at| at.elapsed());
///             }
///             listed.retain(|run| filter.admits(run));
///             Ok(listed)
///         })
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// tool_core::testing::check_run_store(&JsonStore::default()).await?;
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not store runs",
    label = "not a `RunStore`",
    note = "write `InMemoryStore::new()`, or `SqliteStore::open(\"…\")` with the feature `sqlite`"
)]
pub trait RunStore: Send + Sync {
    /// Stores what has changed in a run whose stored state has the revision `expected`, or reports a conflict and changes nothing.
    ///
    /// `None` is for a run that was never stored: it is a conflict if any state is stored under the id, whatever its revision, and if a run
    /// with this [id](RunChanges::run_id) was removed. The changes are then the [whole](RunChanges::is_whole) run. A run that was stored before
    /// always has a revision, also if it comes from another store, where it is a conflict as long as no state has that revision.
    ///
    /// In one transaction, the store adds the [entries](RunChanges::entries) to the log of the run, replaces or removes its
    /// [parts](RunChanges::parts), sets its [revision](RunChanges::revision) and its [summary](RunChanges::summary), and removes the
    /// [acknowledged](RunChanges::acknowledged) commands from its inbox. If the changes are the [whole](RunChanges::is_whole) run, it first
    /// removes earlier entries and parts. Applications call [`save_run`](Self::save_run).
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the changes cannot be stored.
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome>;

    /// Returns the last stored state of a run, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the state cannot be read.
    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>>;

    /// Returns what others read of a run: the summary of its last save; the entries of its log behind the position `after`, or from the first
    /// one, in the order of their positions and at most `limit`; and the part of its state with the key [`RunChanges::REST`]. All of it is of one state. Returns `None` if there is no such run. A [`RunReader`](crate::store::RunReader)
    /// makes events of it.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the log cannot be read.
    fn entries<'a>(
        &'a self,
        id: &'a str,
        after: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>>;

    /// Removes a run, so that no copy of it can be saved any more. Removing an unknown run has no effect.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the state cannot be removed.
    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()>;

    /// Returns the runs that a filter [admits](RunFilter::admits), sorted by id. For each, it is the [summary](RunChanges::summary)
    /// of the last save, with its age and what [lease](Self::lease) and [inbox](Self::post) add, if the store supports them. No state
    /// is read, because lists are long and states are large.
    ///
    /// A summary that cannot be read, for example because a newer version of the program has written it, hides no other run: it is left
    /// out, and among the [unreadable](Self::unreadable_runs).
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the runs cannot be listed, or if the filter names the [run](RunFilter::id) or the
    /// [conversation](RunFilter::conversation) of a summary that cannot be read: callers that name one act on what is there. That error is
    /// an [`UnreadableRun`].
    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>>;

    /// Returns the runs that [lists](Self::list_runs) leave out because their summaries cannot be read, sorted by id. By default, there are
    /// none, as in a store whose lists fail instead.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the runs cannot be listed.
    fn unreadable_runs(&self) -> StoreFuture<'_, Vec<UnreadableRun>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Stores the state of a run and gives it a new revision, unless it was saved or removed elsewhere since this copy was
    /// loaded. If an earlier save of this copy failed or was dropped, the stored state shows whether it took effect.
    /// Implementations do not override this.
    ///
    /// # Errors
    ///
    /// The future resolves to a [`RunConflict`] if the stored state is not the one that this copy continues, and to another
    /// error if the state cannot be stored.
    fn save_run<'a>(&'a self, id: &'a str, run: &'a mut Run) -> StoreFuture<'a, ()> {
        self.save_run_after(id, run, &[])
    }

    /// Stores the state of a run like [`save_run`](Self::save_run), and removes the commands with these ids, whose effect is part of it,
    /// from its inbox. Implementations do not override this.
    ///
    /// # Errors
    ///
    /// Fails like [`save_run`](Self::save_run).
    fn save_run_after<'a>(
        &'a self,
        id: &'a str,
        run: &'a mut Run,
        commands: &'a [String],
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if run.is_save_in_doubt() {
                let stored = self.list_runs(&RunFilter::new().id(id)).await?.pop();
                run.end_save(stored.as_ref().map(|stored| &stored.revision));
            }
            let (expected, changes) = run.begin_save();
            let changes = changes.saved_with(run.summary(id), commands);
            let outcome = self.append_run(id, expected.as_ref(), &changes).await?;
            let stored = run.revision().cloned().filter(|_| outcome == SaveOutcome::Saved);
            run.end_save(stored.as_ref());
            match outcome {
                SaveOutcome::Saved => Ok(()),
                SaveOutcome::Conflict => Err(RunConflict::new(id).into()),
            }
        })
    }

    /// Takes, renews, releases or checks the lease of a run, in one atomic operation for all processes that use the store.
    /// A lease can be taken before the run is stored for the first time, and [`remove_run`](Self::remove_run) ends it. It expires
    /// by the clock of the store, which must not stand still while a process is suspended. One that ends later than twice its duration from
    /// now is none: it was taken by a clock that was ahead, and nobody would drive the run until then. One that ends earlier is held, because
    /// a clock that steps back a little must not end the leases of drivers that work. By default, there are no leases.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the lease cannot be read or stored.
    fn lease<'a>(
        &'a self,
        _id: &'a str,
        _driver: &'a DriverId,
        _request: LeaseRequest,
    ) -> StoreFuture<'a, LeaseState> {
        Box::pin(async { Ok(LeaseState::Unsupported) })
    }

    /// Adds a command to the inbox of a stored run. The state and its revision stay as they are. A command that [is in](PostedCommand::is_in)
    /// the inbox, or has no effect after one that is, changes nothing: the outcome is [`Posted`](PostOutcome::Posted). Otherwise, and in one atomic operation with the addition, the store checks that the command
    /// [fits](PostedCommand::fits), by the summary of the last save and what is in the inbox, and answers
    /// [`Full`](PostOutcome::Full) if it does not.
    /// [`remove_run`](Self::remove_run) removes the inbox, too. By default, there are no inboxes.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the command cannot be stored.
    fn post<'a>(&'a self, _id: &'a str, _command: &'a PostedCommand) -> StoreFuture<'a, PostOutcome> {
        Box::pin(async { Ok(PostOutcome::Unsupported) })
    }

    /// Returns the commands in the inbox of a run, in the order in which they were posted. They stay there.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the commands cannot be read.
    fn posted<'a>(&'a self, _id: &'a str) -> StoreFuture<'a, Vec<PostedCommand>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// The outcome of [`RunStore::append_run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "nothing was stored if there was a conflict"]
pub enum SaveOutcome {
    /// The state was stored.
    Saved,
    /// The stored state has another revision than expected, or the run was removed. Nothing was changed.
    Conflict,
}

/// A stored run whose [summary](RunSummary) cannot be read, and the error of a [list](RunStore::list_runs) of this run alone.
///
/// ```
/// use tool_core::store::UnreadableRun;
///
/// let run = UnreadableRun::new("order-17", None, "the summary is of another version");
/// assert_eq!((&*run.id, run.error.to_string()), ("order-17", "the summary is of another version".to_owned()));
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct UnreadableRun {
    /// The id under which the run is stored.
    pub id: String,
    /// The name of the agent that was asked, if it is known.
    pub agent: Option<String>,
    /// Why the summary cannot be read. It does not include the content.
    pub error: Box<dyn Error + Send + Sync>,
}

impl UnreadableRun {
    /// Creates the entry of a run that is stored under an id.
    #[must_use]
    pub fn new(
        id: impl Into<String>,
        agent: Option<String>,
        error: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { id: id.into(), agent, error: error.into() }
    }
}

/// The number of removed runs that a store remembers, so that copies that were never stored do not return.
pub(super) const MAX_REMOVED: usize = 1_000;

impl<S: ChatStore + ?Sized> ChatStore for Arc<S> {
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
        (**self).load(id)
    }

    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        (**self).append(id, messages)
    }

    fn replace<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        (**self).replace(id, messages)
    }

    fn store_summary<'a>(
        &'a self,
        id: &'a ConversationId,
        summary: &'a CompactionSummary,
    ) -> StoreFuture<'a, ()> {
        (**self).store_summary(id, summary)
    }

    fn load_summary<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<CompactionSummary>> {
        (**self).load_summary(id)
    }

    fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()> {
        (**self).clear(id)
    }

    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
        (**self).conversations()
    }
}

impl<S: RunStore + ?Sized> RunStore for Arc<S> {
    fn entries<'a>(
        &'a self,
        id: &'a str,
        after: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        (**self).entries(id, after, limit)
    }

    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        (**self).append_run(id, expected, changes)
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        (**self).load_run(id)
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        (**self).remove_run(id)
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        (**self).list_runs(filter)
    }

    fn unreadable_runs(&self) -> StoreFuture<'_, Vec<UnreadableRun>> {
        (**self).unreadable_runs()
    }

    fn lease<'a>(
        &'a self,
        id: &'a str,
        driver: &'a DriverId,
        request: LeaseRequest,
    ) -> StoreFuture<'a, LeaseState> {
        (**self).lease(id, driver, request)
    }

    fn post<'a>(&'a self, id: &'a str, command: &'a PostedCommand) -> StoreFuture<'a, PostOutcome> {
        (**self).post(id, command)
    }

    fn posted<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Vec<PostedCommand>> {
        (**self).posted(id)
    }
}
