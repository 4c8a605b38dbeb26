//! Reads the log of a stored run.
//!
//! A reader asks for the entries after the last one that it has, so following a run costs what is new in it. The events are derived from the
//! entries in one place (`run/reader.rs`), for pages, streams and tests, in any process.

use super::error::Operation;
use crate::memory::{MemoryError, RunStatus, RunStore, RunSummary};
use crate::run::event_record::EventRecord;
use crate::run::{LogReader, RunRevision};

/// The number of entries that are read at once.
const PAGE: usize = 500;

/// Reads the events of a stored run, in the process that drives it or in another one: those that the driver emits, except for the deltas of
/// replies and the progress of calls.
///
/// Events have the positions of the entries that they are derived from, which are the same in each process; several events can have one
/// position. The event with which a run rests, such as [`Waiting`](crate::Event::Waiting) or [`Done`](crate::Event::Done), is part of the state
/// and not of the log: a reader gets the last one.
///
/// ```
/// use tool_core::memory::InMemoryStore;
/// use tool_core::store::RunReader;
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, Event, tool, tools};
///
/// #[tool("Deletes the account", needs_approval)]
/// fn delete() {}
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (store, model) = (InMemoryStore::new(), ScriptedModel::new().calls("delete", "{}"));
/// let agent = Agent::builder(model).tools(tools![delete]).run_store(store.clone()).build()?;
/// let run = agent.ask("Delete my account").await.unwrap_err().into_run();
///
/// let mut reader = RunReader::new(run.id().as_str());
/// let read = reader.read(&store).await?.ok_or("unknown run")?;
/// let events: Vec<_> = read.events.iter().map(|record| &record.event).collect();
/// assert!(matches!(events[..], [
///     Event::Question { .. },
///     Event::TurnStarted { .. },
///     Event::CallReady { .. },
///     Event::TurnFinished { .. },
///     Event::Waiting(_),
/// ]));
/// assert!(reader.read(&store).await?.ok_or("unknown run")?.events.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RunReader {
    id: String,
    log: LogReader,
    /// The save that has begun the log, once it was read.
    begun: Option<Option<RunRevision>>,
    /// The position of the last event with which the run rested.
    rested: Option<u64>,
}

/// What a [`RunReader`] has read.
#[derive(Debug)]
#[non_exhaustive]
pub struct RunNews {
    /// What a list shows of the run now.
    pub summary: RunSummary,
    /// What is new.
    pub events: Vec<EventRecord>,
    /// The events are those of the run from its beginning: of the first reading, and of a run that was saved as a whole since, because its
    /// application has loaded it from elsewhere.
    pub is_beginning: bool,
    /// There are no further entries for now.
    pub is_end: bool,
}

impl RunReader {
    /// Creates a reader of the run that is stored under an id.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), log: LogReader::default(), begun: None, rested: None }
    }

    /// Reads what is new, at most some hundred entries at once. Returns `None` if the run is not stored, for example because it has ended and
    /// is not [kept](crate::agent::AgentBuilder::keep_finished).
    ///
    /// # Errors
    ///
    /// Fails if the log cannot be read. The next call tries again.
    pub async fn read(&mut self, store: &dyn RunStore) -> Result<Option<RunNews>, MemoryError> {
        self.read_page(store)
            .await
            .map_err(|error| MemoryError::new(Operation::LoadRun(self.id.clone()), error))
    }

    async fn read_page(&mut self, store: &dyn RunStore) -> Result<Option<RunNews>, BoxError> {
        let after = self.begun.is_some().then(|| self.log.next_position().checked_sub(1)).flatten();
        let Some(mut log) = store.entries(&self.id, after, PAGE).await? else { return Ok(None) };
        let is_beginning = self.begun.as_ref() != Some(&log.summary.begun);
        if is_beginning && after.is_some() {
            let Some(whole) = store.entries(&self.id, None, PAGE).await? else { return Ok(None) };
            log = whole;
        }
        // Nothing counts as read if an entry cannot be read.
        let (mut reader, mut rested) = match is_beginning {
            true => Default::default(),
            false => (self.log.clone(), self.rested),
        };
        let is_end = log.entries.len() < PAGE;
        let mut events = Vec::new();
        for (position, entry) in &log.entries {
            events.extend(reader.read(*position, entry)?);
        }
        // Each save of a run that rests adds an entry.
        let last = reader.next_position().checked_sub(1);
        if let Some(rest) = log.rest.as_deref().filter(|_| is_end && last > rested) {
            if log.summary.status == RunStatus::Finished {
                events.extend(reader.end());
            }
            let mut record: EventRecord = serde_json::from_str(rest)?;
            record.position = last.unwrap_or_default();
            events.push(record);
            rested = last;
        }
        (self.log, self.rested) = (reader, rested);
        self.begun = Some(log.summary.begun.clone());
        Ok(Some(RunNews { summary: log.summary, events, is_beginning, is_end }))
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
