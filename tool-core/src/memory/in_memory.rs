//! A store in memory.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::store::MAX_REMOVED;
use crate::memory::{
    BudgetPeriod, BudgetReservation, BudgetStore, ChatStore, DriverId, LeaseRequest, LeaseState, PostOutcome,
    PostedCommand, RunCommand, RunFilter, RunStore, RunSummary, SaveOutcome, StoreFuture,
};
use crate::model::{ConversationId, Message, unique_id};
use crate::run::{Run, RunChanges, RunId, RunRevision};
use crate::tool::Timestamp;

/// The memory that a conversation takes beside its messages.
const CONVERSATION_BYTES: usize = 500;

/// A store that holds conversations and runs for the lifetime of the program. Clones share their contents.
///
/// Conversations take at most [256 MiB](Self::max_conversation_bytes).
///
/// ```
/// use tool_core::memory::{ChatStore, InMemoryStore};
/// use tool_core::model::ConversationId;
/// use tool_core::Message;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let (store, id) = (InMemoryStore::new(), ConversationId::new("user-7"));
/// store.append(&id, &[Message::user("Hello"), Message::assistant("Good morning!")]).await?;
/// assert_eq!(store.clone().load(&id).await?.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct InMemoryStore(Arc<Mutex<Contents>>);

#[derive(Default)]
struct Contents {
    conversations: Conversations,
    runs: BTreeMap<String, Stored>,
    /// The ids of the runs of each conversation.
    by_conversation: BTreeMap<ConversationId, BTreeSet<String>>,
    max_runs: Option<usize>,
    /// The holder of each lease, with the time at which it expires. The clock does not stand still in suspend.
    leases: BTreeMap<String, (DriverId, SystemTime)>,
    inboxes: BTreeMap<String, Vec<PostedCommand>>,
    /// The runs that were removed last.
    removed: VecDeque<RunId>,
    /// What was spent in each period of a key, by its start.
    budgets: HashMap<(String, Timestamp), BudgetSum>,
}

/// A stored run.
struct Stored {
    run: Run,
    summary: RunSummary,
    at: SystemTime,
}

/// The conversations, which are forgotten in the order of their last changes if they take too much memory.
struct Conversations {
    by_id: BTreeMap<ConversationId, Conversation>,
    by_change: BTreeMap<u64, ConversationId>,
    changes: u64,
    bytes: usize,
    max_bytes: usize,
}

#[derive(Default)]
struct Conversation {
    messages: Vec<Message>,
    bytes: usize,
    changed: u64,
}

impl Default for Conversations {
    fn default() -> Self {
        let (by_id, by_change) = (BTreeMap::new(), BTreeMap::new());
        Self { by_id, by_change, changes: 0, bytes: 0, max_bytes: 256 << 20 }
    }
}

impl Conversations {
    /// Adds messages to a conversation, or replaces its messages.
    fn store(&mut self, id: &ConversationId, messages: &[Message], replaces: bool) -> Result<(), String> {
        let empty = CONVERSATION_BYTES + id.as_str().len();
        let earlier = self.by_id.get(id).filter(|_| !replaces).map_or(empty, |known| known.bytes);
        let added: usize = messages.iter().map(Message::approximate_bytes).sum();
        let bytes = earlier + added;
        if bytes > self.max_bytes {
            let max = self.max_bytes;
            return Err(format!(
                "the conversation takes more than {max} bytes; begin another one, or raise \
                 `InMemoryStore::max_conversation_bytes`"
            ));
        }
        let mut conversation = self.remove(id).filter(|_| !replaces).unwrap_or_default();
        conversation.messages.extend_from_slice(messages);
        self.changes += 1;
        self.by_change.insert(self.changes, id.clone());
        self.bytes += bytes;
        self.by_id.insert(id.clone(), Conversation { bytes, changed: self.changes, ..conversation });
        while self.bytes > self.max_bytes
            && let Some((_, oldest)) = self.by_change.first_key_value()
        {
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
        Ok(())
    }

    fn remove(&mut self, id: &ConversationId) -> Option<Conversation> {
        let removed = self.by_id.remove(id)?;
        self.by_change.remove(&removed.changed);
        self.bytes -= removed.bytes;
        Some(removed)
    }
}

/// What was spent of a budget in a period, with the reservations that are part of it.
struct BudgetSum {
    spent: u64,
    ends: Timestamp,
    /// The amounts, and when they expire.
    reserved: HashMap<String, (u64, Timestamp)>,
}

impl InMemoryStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits how many runs are stored; unlimited by default. With each further one, the oldest runs are removed that nobody drives,
    /// also if they wait for a decision.
    #[must_use]
    pub fn max_runs(self, runs: usize) -> Self {
        self.contents().max_runs = Some(runs);
        self
    }

    /// Limits the memory that all conversations take together, about 256 MiB by default. If they take more, those that were changed least
    /// recently are forgotten. Storing a conversation that alone takes more is an error, and changes nothing.
    #[must_use]
    pub fn max_conversation_bytes(self, bytes: usize) -> Self {
        self.contents().conversations.max_bytes = bytes;
        self
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        // A panic leaves no partial change, because every change is a single operation on a map.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    fn remove_run(&mut self, id: &str) {
        self.leases.remove(id);
        self.inboxes.remove(id);
        if let Some(Stored { run, summary, .. }) = self.runs.remove(id) {
            self.forget_conversation(&summary);
            if self.removed.len() == MAX_REMOVED {
                self.removed.pop_front();
            }
            self.removed.push_back(run.id().clone());
        }
    }

    fn forget_conversation(&mut self, run: &RunSummary) {
        if let Some(Entry::Occupied(mut ids)) =
            run.conversation.clone().map(|id| self.by_conversation.entry(id))
        {
            ids.get_mut().remove(&run.id);
            if ids.get().is_empty() {
                ids.remove();
            }
        }
    }

    /// Returns a run as a list has it.
    fn listed(&self, stored: &Stored, now: SystemTime) -> RunSummary {
        let id = &stored.summary.id;
        let mut inbox = self.inboxes.get(id).into_iter().flatten();
        RunSummary {
            age: now.duration_since(stored.at).unwrap_or_default(),
            is_leased: self.leases.get(id).is_some_and(|(_, expires)| *expires > now),
            is_cancellation_posted: inbox.any(|posted| posted.command == RunCommand::Cancel),
            ..stored.summary.clone()
        }
    }

    /// Removes the oldest runs that nobody drives if there are too many.
    fn make_room_beside(&mut self, saved: &str) {
        let now = SystemTime::now();
        while self.max_runs.is_some_and(|max| self.runs.len() > max) {
            let is_free = |id: &str| self.leases.get(id).is_none_or(|(_, expires)| *expires <= now);
            let free = self.runs.iter().filter(|(id, _)| *id != saved && is_free(id));
            let oldest = free.min_by_key(|(_, stored)| stored.at).map(|(id, _)| id.clone());
            let Some(oldest) = oldest else { return };
            self.remove_run(&oldest);
        }
    }
}

impl BudgetStore for InMemoryStore {
    fn reserve<'a>(
        &'a self,
        period: &'a BudgetPeriod,
        at_least: u64,
        at_most: u64,
    ) -> StoreFuture<'a, Option<BudgetReservation>> {
        Box::pin(async move {
            let budgets = &mut self.contents().budgets;
            budgets.retain(|_, sum| sum.ends > period.over());
            let sum = budgets.entry((period.key.clone(), period.starts)).or_insert_with(|| BudgetSum {
                spent: 0,
                ends: period.ends,
                reserved: HashMap::new(),
            });
            let left = period.limit.saturating_sub(sum.spent);
            if left < at_least {
                return Ok(None);
            }
            let reservation = BudgetReservation { id: unique_id("reservation"), amount: at_most.min(left) };
            sum.spent += reservation.amount;
            sum.reserved.retain(|_, (_, expires)| *expires > period.now);
            sum.reserved.insert(reservation.id.clone(), (reservation.amount, period.expires));
            Ok(Some(reservation))
        })
    }

    fn settle<'a>(
        &'a self,
        reservation: &'a BudgetReservation,
        spent: u64,
        now: Timestamp,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            for sum in self.contents().budgets.values_mut() {
                if let Some((amount, _)) =
                    sum.reserved.remove(&reservation.id).filter(|(_, expires)| *expires > now)
                {
                    sum.spent = sum.spent.saturating_sub(amount).saturating_add(spent);
                }
            }
            Ok(())
        })
    }

    fn spent<'a>(&'a self, period: &'a BudgetPeriod) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            let contents = self.contents();
            Ok(contents.budgets.get(&(period.key.clone(), period.starts)).map_or(0, |sum| sum.spent))
        })
    }
}

impl ChatStore for InMemoryStore {
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
        Box::pin(async move {
            let contents = self.contents();
            Ok(contents.conversations.by_id.get(id).map(|known| known.messages.clone()).unwrap_or_default())
        })
    }

    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if !messages.is_empty() {
                self.contents().conversations.store(id, messages, false)?;
            }
            Ok(())
        })
    }

    fn replace<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let conversations = &mut self.contents().conversations;
            match messages {
                [] => drop(conversations.remove(id)),
                _ => conversations.store(id, messages, true)?,
            }
            Ok(())
        })
    }

    fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.contents().conversations.remove(id);
            Ok(())
        })
    }

    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
        Box::pin(async move { Ok(self.contents().conversations.by_id.keys().cloned().collect()) })
    }
}

impl RunStore for InMemoryStore {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        Box::pin(async move {
            let contents = &mut *self.contents();
            let summary = changes.summary().ok_or("the changes are not part of a save")?.clone();
            let stored = match contents.runs.entry(id.to_owned()) {
                Entry::Occupied(stored) if expected == Some(&stored.get().summary.revision) => {
                    stored.into_mut()
                }
                Entry::Vacant(vacant)
                    if expected.is_none() && !contents.removed.contains(changes.run_id()) =>
                {
                    let (run, at) = (Run::new([]), SystemTime::now());
                    vacant.insert(Stored { run, summary: summary.clone(), at })
                }
                _ => return Ok(SaveOutcome::Conflict),
            };
            stored.run.apply_changes(changes)?;
            stored.run.confirm_save();
            stored.at = SystemTime::now();
            let earlier = std::mem::replace(&mut stored.summary, summary.clone());
            contents.forget_conversation(&earlier);
            if let Some(conversation) = summary.conversation {
                contents.by_conversation.entry(conversation).or_default().insert(id.to_owned());
            }
            if let Some(inbox) = contents.inboxes.get_mut(id) {
                inbox.retain(|posted| !changes.acknowledged().contains(&posted.id));
            }
            contents.make_room_beside(id);
            Ok(SaveOutcome::Saved)
        })
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        Box::pin(
            async move { Ok(self.contents().runs.get(id).map(|stored| stored.run.clone().into_loaded(1))) },
        )
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.contents().remove_run(id);
            Ok(())
        })
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        Box::pin(async move {
            let (contents, now) = (self.contents(), SystemTime::now());
            let ids: Box<dyn Iterator<Item = &String>> = match (&filter.id, &filter.conversation) {
                (Some(id), _) => Box::new([id].into_iter()),
                (None, Some(id)) => Box::new(contents.by_conversation.get(id).into_iter().flatten()),
                (None, None) => Box::new(contents.runs.keys()),
            };
            let listed = ids.filter_map(|id| contents.runs.get(id)).map(|run| contents.listed(run, now));
            Ok(listed.filter(|run| filter.admits(run)).collect())
        })
    }

    fn lease<'a>(
        &'a self,
        id: &'a str,
        driver: &'a DriverId,
        request: LeaseRequest,
    ) -> StoreFuture<'a, LeaseState> {
        Box::pin(async move {
            let contents = &mut *self.contents();
            let now = SystemTime::now();
            let lease = contents.leases.get(id);
            let is_held = lease.is_some_and(|(_, expires)| *expires > now);
            let is_own = lease.is_some_and(|(holder, _)| holder == driver);
            if is_held && !is_own {
                return Ok(LeaseState::HeldElsewhere);
            }
            match request {
                LeaseRequest::Take(duration) | LeaseRequest::Renew(duration)
                    if is_own || matches!(request, LeaseRequest::Take(_)) =>
                {
                    // Leases of runs that were never stored, which nobody removes.
                    let runs = &contents.runs;
                    contents.leases.retain(|id, (_, expires)| *expires > now || runs.contains_key(id));
                    let expires = now.checked_add(duration).ok_or("the lease is too long")?;
                    contents.leases.insert(id.to_owned(), (driver.clone(), expires));
                    return Ok(LeaseState::Held);
                }
                LeaseRequest::Check if is_held => return Ok(LeaseState::Held),
                LeaseRequest::Release if is_own => drop(contents.leases.remove(id)),
                _ => {}
            }
            Ok(LeaseState::Free)
        })
    }

    fn post<'a>(&'a self, id: &'a str, command: &'a PostedCommand) -> StoreFuture<'a, PostOutcome> {
        Box::pin(async move {
            let mut contents = self.contents();
            if !contents.runs.contains_key(id) {
                return Ok(PostOutcome::UnknownRun);
            }
            let inbox = contents.inboxes.entry(id.to_owned()).or_default();
            if inbox.iter().all(|posted| posted.id != command.id) {
                inbox.push(command.clone());
            }
            Ok(PostOutcome::Posted)
        })
    }

    fn posted<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Vec<PostedCommand>> {
        Box::pin(async move { Ok(self.contents().inboxes.get(id).cloned().unwrap_or_default()) })
    }
}

/// Shows only counts, because conversations are private.
impl fmt::Debug for InMemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contents = self.contents();
        f.debug_struct("InMemoryStore")
            .field("conversations", &contents.conversations.by_id.len())
            .field("runs", &contents.runs.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::content::{Image, Part};

    #[tokio::test]
    async fn the_oldest_run_that_nobody_drives_is_removed() {
        let store = InMemoryStore::new().max_runs(2);
        let save =
            async |id: &str| store.save_run(id, &mut Run::new([Message::user("Hello")])).await.unwrap();
        save("driven").await;
        let driver = DriverId::unique();
        let state =
            store.lease("driven", &driver, LeaseRequest::Take(Duration::from_secs(60))).await.unwrap();
        assert_eq!(state, LeaseState::Held);
        for id in ["a", "b", "c"] {
            save(id).await;
        }
        assert_eq!(store.runs().await.unwrap(), ["c", "driven"]);
        // Such a run is removed for good.
        let removed = store.load_run("c").await.unwrap().unwrap();
        save("d").await;
        assert_eq!(store.runs().await.unwrap(), ["d", "driven"]);
        let changes = removed.changes().saved_with(removed.summary("c"), &[]);
        let outcome = store.append_run("c", None, &changes).await.unwrap();
        assert_eq!(outcome, SaveOutcome::Conflict);
    }

    #[tokio::test]
    async fn conversations_that_were_changed_least_recently_are_forgotten_if_they_take_too_much_memory() {
        let image = Image::from_bytes("image/png", vec![0; 20_000]);
        let message = Message::user(Part::from(image));
        let store = InMemoryStore::new().max_conversation_bytes(100_000);
        let [a, b, c] = ["a", "b", "c"].map(ConversationId::new);
        for id in [&a, &b, &a, &c] {
            store.append(id, std::slice::from_ref(&message)).await.unwrap();
        }
        assert_eq!(store.conversations().await.unwrap(), [a.clone(), c.clone()]);
        let messages = vec![message; 4];
        for stored in [store.append(&c, &messages).await, store.replace(&c, &messages).await] {
            assert_eq!(
                stored.unwrap_err().to_string(),
                "the conversation takes more than 100000 bytes; begin another one, or raise \
                 `InMemoryStore::max_conversation_bytes`"
            );
        }
        assert_eq!([store.load(&a).await.unwrap().len(), store.load(&c).await.unwrap().len()], [2, 1]);
        store.replace(&a, &messages[..1]).await.unwrap();
        store.replace(&b, &messages[..1]).await.unwrap();
        store.clear(&a).await.unwrap();
        store.append(&b, &messages[..1]).await.unwrap();
        assert_eq!(store.conversations().await.unwrap(), [b, c]);
    }

    #[tokio::test]
    async fn runs_that_were_driven_make_room_once_they_are_free() {
        let store = InMemoryStore::new().max_runs(1);
        let driver = DriverId::unique();
        for id in ["a", "b", "c"] {
            store.save_run(id, &mut Run::new([Message::user("Hello")])).await.unwrap();
            let take = LeaseRequest::Take(Duration::from_secs(60));
            assert_eq!(store.lease(id, &driver, take).await.unwrap(), LeaseState::Held);
        }
        assert_eq!(store.runs().await.unwrap(), ["a", "b", "c"]);
        for id in ["a", "b", "c"] {
            let state = store.lease(id, &driver, LeaseRequest::Release).await.unwrap();
            assert_eq!(state, LeaseState::Free);
        }
        store.save_run("d", &mut Run::new([Message::user("Hello")])).await.unwrap();
        assert_eq!(store.runs().await.unwrap(), ["d"]);
    }
}
