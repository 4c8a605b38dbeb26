//! A store in memory.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::store::MAX_REMOVED;
use crate::memory::{
    BudgetPeriod, BudgetRemainder, BudgetReservation, BudgetStore, ChatStore, CompactionSummary, DriverId,
    LeaseRequest, LeaseState, OutputStore, PostOutcome, PostedCommand, RunCommand, RunFilter, RunLog,
    RunStatus, RunStore, RunSummary, SaveOutcome, StoreFuture,
};
use crate::model::{ConversationId, Message, RunUser, unique_id};
use crate::run::{Run, RunChanges, RunId, RunRevision};
use crate::tool::Timestamp;

/// The memory that a conversation takes beside its messages.
const CONVERSATION_BYTES: usize = 500;

/// The memory that a run takes beside what was saved of it.
const RUN_BYTES: usize = 2_000;

/// The memory that a message in an inbox takes beside its content.
const POSTED_BYTES: usize = 500;

/// The memory that all inboxes take at most. A sender can have any number of runs that wait.
const MAX_INBOX_BYTES: usize = 128 << 20;

/// The memory that all outputs take at most.
const MAX_OUTPUT_BYTES: usize = 256 << 20;

/// A store that holds conversations and runs for the lifetime of the program. Clones share their contents.
///
/// Conversations take at most [256 MiB](Self::max_conversation_bytes), and so do [runs](Self::max_run_bytes) and [outputs](OutputStore).
/// Messages in the inboxes of all runs take at most 128 MiB; further ones are [refused](PostOutcome::Full).
///
/// ```
/// use tool_core::memory::InMemoryStore;
/// use tool_core::store::ChatStore;
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

type IsOpen = bool;

/// The holder of a lease, and when and for how long it was taken.
struct Lease {
    holder: DriverId,
    taken: SystemTime,
    duration: Duration,
}

impl Lease {
    /// Returns `true` if the lease has not expired. One that ends later than twice its duration from now is none: the clock was ahead then.
    fn is_held(&self, now: SystemTime) -> bool {
        match now.duration_since(self.taken) {
            Ok(since) => since < self.duration,
            Err(ahead) => ahead.duration() <= self.duration,
        }
    }
}

type Leases = BTreeMap<String, Lease>;

#[derive(Default)]
struct Contents {
    conversations: Conversations,
    runs: BTreeMap<String, Stored>,
    /// The ids of the runs of each conversation and user.
    by_owner: BTreeMap<Owner, BTreeSet<String>>,
    /// The ids of the runs, in the order of their last saves, with those that have finished first.
    by_save: BTreeSet<(IsOpen, SystemTime, String)>,
    run_bytes: usize,
    run_bounds: RunBounds,
    /// The clock does not stand still in suspend.
    leases: Leases,
    inboxes: Inboxes,
    /// The runs that were removed last.
    removed: VecDeque<RunId>,
    /// What was spent in each period of a key, by its start.
    budgets: HashMap<(String, Timestamp), BudgetSum>,
    outputs: Outputs,
}

impl Contents {
    /// Returns what was spent in a period, after it has removed the periods that are over.
    fn budget_sum(&mut self, period: &BudgetPeriod) -> &mut BudgetSum {
        self.budgets.retain(|_, sum| sum.ends > period.over());
        let new = || BudgetSum { spent: 0, ends: period.ends, reserved: HashMap::new(), remainder: None };
        self.budgets.entry((period.key.clone(), period.starts)).or_insert_with(new)
    }
}

/// The outputs of calls, by the ids of their runs. The oldest are forgotten if they take too much memory.
#[derive(Default)]
struct Outputs {
    /// Each with its place in the order.
    by_run: HashMap<String, HashMap<String, (u64, String)>>,
    order: BTreeMap<u64, (String, String)>,
    bytes: usize,
    stored: u64,
}

impl Outputs {
    fn store(&mut self, run: &str, call: &str, output: &str) {
        self.remove_one(run, call);
        self.bytes += output.len();
        self.stored += 1;
        let stored = (self.stored, output.to_owned());
        self.by_run.entry(run.to_owned()).or_default().insert(call.to_owned(), stored);
        self.order.insert(self.stored, (run.to_owned(), call.to_owned()));
        while self.bytes > MAX_OUTPUT_BYTES
            && let Some((_, (run, call))) = self.order.pop_first()
        {
            self.remove_one(&run, &call);
        }
    }

    fn remove_one(&mut self, run: &str, call: &str) {
        let Some(outputs) = self.by_run.get_mut(run) else { return };
        if let Some((place, removed)) = outputs.remove(call) {
            self.bytes -= removed.len();
            self.order.remove(&place);
        }
        if outputs.is_empty() {
            self.by_run.remove(run);
        }
    }

    fn remove(&mut self, run: &str) {
        for (place, removed) in self.by_run.remove(run).into_iter().flat_map(HashMap::into_values) {
            self.bytes -= removed.len();
            self.order.remove(&place);
        }
    }
}

/// The inboxes, by the ids of their runs.
struct Inboxes {
    by_run: BTreeMap<String, Vec<PostedCommand>>,
    /// About the memory that the messages take. Decisions are few, and always fit.
    bytes: usize,
    max_bytes: usize,
}

impl Default for Inboxes {
    fn default() -> Self {
        Self { by_run: BTreeMap::new(), bytes: 0, max_bytes: MAX_INBOX_BYTES }
    }
}

impl Inboxes {
    fn of(&self, run: &str) -> &[PostedCommand] {
        self.by_run.get(run).map_or(&[], Vec::as_slice)
    }

    /// Adds a command unless it is a message that exceeds the bound.
    fn post(&mut self, run: &str, command: &PostedCommand) -> PostOutcome {
        let bytes = posted_bytes(command);
        if bytes > 0 && self.bytes + bytes > self.max_bytes {
            return PostOutcome::Full;
        }
        self.bytes += bytes;
        self.by_run.entry(run.to_owned()).or_default().push(command.clone());
        PostOutcome::Posted
    }

    /// Removes the commands with these ids.
    fn acknowledge(&mut self, run: &str, ids: &[String]) {
        let Entry::Occupied(mut inbox) = self.by_run.entry(run.to_owned()) else { return };
        let taken = inbox.get_mut().extract_if(.., |posted| ids.contains(&posted.id));
        self.bytes -= taken.map(|posted| posted_bytes(&posted)).sum::<usize>();
        if inbox.get().is_empty() {
            inbox.remove();
        }
    }

    fn remove(&mut self, run: &str) {
        let removed = self.by_run.remove(run).unwrap_or_default();
        self.bytes -= removed.iter().map(posted_bytes).sum::<usize>();
    }
}

fn posted_bytes(posted: &PostedCommand) -> usize {
    posted
        .command
        .message()
        .map_or(0, |message| POSTED_BYTES + message.bytes() + message.by.as_ref().map_or(0, String::len))
}

/// A stored run.
struct Stored {
    run: RunId,
    /// As JSON, like the log.
    parts: BTreeMap<String, String>,
    log: BTreeMap<u64, String>,
    summary: RunSummary,
    at: SystemTime,
    size: RunSize,
}

/// About the memory that a run takes, without its inbox, which is bounded: what is posted to a run removes no other. Each save adds what it
/// brings: walking the run would take longer with each turn.
#[derive(Clone, Copy, Default)]
struct RunSize {
    log: usize,
    parts: usize,
}

impl RunSize {
    fn bytes(self) -> usize {
        RUN_BYTES + self.log + self.parts
    }
}

/// How many runs are stored that nobody drives, how much memory all runs take, and for how long they are stored.
#[derive(Clone, Copy)]
struct RunBounds {
    runs: Option<usize>,
    bytes: usize,
    age: Option<Duration>,
}

impl Default for RunBounds {
    fn default() -> Self {
        Self { runs: None, bytes: 256 << 20, age: None }
    }
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
    summary: Option<CompactionSummary>,
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

    fn store_summary(&mut self, id: &ConversationId, summary: &CompactionSummary) {
        let Some(known) = self.by_id.get_mut(id) else { return };
        let earlier = known.summary.replace(summary.clone()).map_or(0, |earlier| earlier.len());
        known.bytes = known.bytes + summary.len() - earlier;
        self.bytes = self.bytes + summary.len() - earlier;
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
    /// The last reservation of all that was left.
    remainder: Option<String>,
}

impl BudgetSum {
    /// Adds a reservation.
    fn reserve(&mut self, amount: u64, period: &BudgetPeriod) -> BudgetReservation {
        let reservation = BudgetReservation { id: unique_id("reservation"), amount };
        self.spent += amount;
        self.reserved.retain(|_, (_, expires)| *expires > period.now);
        self.reserved.insert(reservation.id.clone(), (amount, period.expires));
        reservation
    }
}

impl InMemoryStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits how many runs are stored that nobody drives; unlimited by default. With each further one, the oldest of them that has finished is
    /// removed, or else the oldest, also if it waits for a decision.
    #[must_use]
    pub fn max_runs(self, runs: usize) -> Self {
        self.contents().run_bounds.runs = Some(runs);
        self
    }

    /// Limits the memory that all runs take, about 256 MiB by default. If they take more, the oldest runs are removed that nobody drives: first
    /// those that have finished, then others, also if they wait for a decision. Inboxes are not counted: what is posted to
    /// a run removes no other.
    #[must_use]
    pub fn max_run_bytes(self, bytes: usize) -> Self {
        self.contents().run_bounds.bytes = bytes;
        self
    }

    /// Limits the time since the last save of a run; unlimited by default. Older runs are removed, unless somebody drives them.
    #[must_use]
    pub fn max_run_age(self, age: Duration) -> Self {
        self.contents().run_bounds.age = Some(age);
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

/// Whose runs a list can have without looking at the others.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Conversation(ConversationId),
    User(RunUser),
}

fn is_open(run: &RunSummary) -> IsOpen {
    run.status != RunStatus::Finished
}

fn owners(run: &RunSummary) -> impl Iterator<Item = Owner> + use<> {
    let user = run.user.clone().map(Owner::User);
    run.conversation.clone().map(Owner::Conversation).into_iter().chain(user)
}

impl Contents {
    fn remove_run(&mut self, id: &str) {
        self.leases.remove(id);
        self.inboxes.remove(id);
        self.outputs.remove(id);
        if let Some(Stored { run, parts, summary, at, size, .. }) = self.runs.remove(id) {
            self.outputs.remove(run.as_str());
            // Of runs inside, whose ids are keys.
            parts.keys().for_each(|key| self.outputs.remove(key));
            self.by_save.remove(&(is_open(&summary), at, id.to_owned()));
            self.run_bytes -= size.bytes();
            self.forget_owners(&summary);
            if self.removed.len() == MAX_REMOVED {
                self.removed.pop_front();
            }
            self.removed.push_back(run);
        }
    }

    fn forget_owners(&mut self, run: &RunSummary) {
        for owner in owners(run) {
            if let Entry::Occupied(mut ids) = self.by_owner.entry(owner) {
                ids.get_mut().remove(&run.id);
                if ids.get().is_empty() {
                    ids.remove();
                }
            }
        }
    }

    /// Returns a run as a list has it.
    fn listed(&self, stored: &Stored, now: SystemTime) -> RunSummary {
        let id = &stored.summary.id;
        let mut inbox = self.inboxes.of(id).iter();
        RunSummary {
            age: now.duration_since(stored.at).unwrap_or_default(),
            is_leased: self.leases.get(id).is_some_and(|lease| lease.is_held(now)),
            is_command_posted: inbox.len() > 0,
            is_cancellation_posted: inbox.any(|posted| posted.command == RunCommand::Cancel),
            ..stored.summary.clone()
        }
    }

    /// Sets the size of a stored run.
    fn resize(&mut self, id: &str, size: RunSize) {
        if let Some(stored) = self.runs.get_mut(id) {
            self.run_bytes -= std::mem::replace(&mut stored.size, size).bytes();
            self.run_bytes += stored.size.bytes();
        }
    }

    /// Removes the oldest runs that nobody drives, as long as the runs exceed a bound. Those that have finished are removed first.
    fn make_room_beside(&mut self, saved: Option<&str>) {
        let (now, RunBounds { runs, bytes, age }) = (SystemTime::now(), self.run_bounds);
        let is_driven = |leases: &Leases, id: &str| leases.get(id).is_some_and(|lease| lease.is_held(now));
        let is_too_old = |at| age.is_some_and(|age| now.duration_since(at).is_ok_and(|since| since > age));
        let max_runs = runs.filter(|max| self.runs.len() > *max).map(|max| {
            max + self
                .leases
                .keys()
                .filter(|id| self.runs.contains_key(*id) && is_driven(&self.leases, id))
                .count()
        });
        loop {
            let is_full = self.run_bytes > bytes || max_runs.is_some_and(|max| self.runs.len() > max);
            let first_open = (true, SystemTime::UNIX_EPOCH, String::new());
            let [finished, open] = [self.by_save.range(..&first_open), self.by_save.range(&first_open..)]
                .map(|runs| runs.take_while(|(_, at, _)| is_full || is_too_old(*at)));
            let mut surplus = finished.chain(open);
            let oldest = surplus.find(|(_, _, id)| saved != Some(&**id) && !is_driven(&self.leases, id));
            let Some((_, _, oldest)) = oldest.cloned() else { return };
            self.remove_run(&oldest);
        }
    }
}

impl OutputStore for InMemoryStore {
    fn store_output<'a>(&'a self, run: &'a RunId, call: &'a str, output: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.contents().outputs.store(run.as_str(), call, output);
            Ok(())
        })
    }

    fn load_output<'a>(&'a self, run: &'a RunId, call: &'a str) -> StoreFuture<'a, Option<String>> {
        Box::pin(async move {
            let contents = self.contents();
            let stored = contents.outputs.by_run.get(run.as_str()).and_then(|outputs| outputs.get(call));
            Ok(stored.map(|(_, output)| output.clone()))
        })
    }

    fn remove_outputs<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.contents().outputs.remove(run.as_str());
            Ok(())
        })
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
            let contents = &mut *self.contents();
            let sum = contents.budget_sum(period);
            let left = period.limit.saturating_sub(sum.spent);
            Ok((left >= at_least).then(|| sum.reserve(at_most.min(left), period)))
        })
    }

    fn reserve_remainder<'a>(
        &'a self,
        period: &'a BudgetPeriod,
        at_least: u64,
    ) -> StoreFuture<'a, BudgetRemainder> {
        Box::pin(async move {
            let contents = &mut *self.contents();
            let sum = contents.budget_sum(period);
            let open = sum.remainder.as_ref().and_then(|id| sum.reserved.get(id));
            if open.is_some_and(|(_, expires)| *expires > period.now) {
                return Ok(BudgetRemainder::InUse);
            }
            let left = period.limit.saturating_sub(sum.spent);
            if left < at_least.max(1) {
                return Ok(BudgetRemainder::TooLittle);
            }
            let reservation = sum.reserve(left, period);
            sum.remainder = Some(reservation.id.clone());
            Ok(BudgetRemainder::Reserved(reservation))
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

    fn store_summary<'a>(
        &'a self,
        id: &'a ConversationId,
        summary: &'a CompactionSummary,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.contents().conversations.store_summary(id, summary);
            Ok(())
        })
    }

    fn load_summary<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<CompactionSummary>> {
        Box::pin(async move {
            Ok(self.contents().conversations.by_id.get(id).and_then(|known| known.summary.clone()))
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
            let (entries, parts) = (changes.entries()?, changes.parts()?);
            let contents = &mut *self.contents();
            let summary = changes.summary().ok_or("the changes are not part of a save")?.clone();
            let stored = match contents.runs.entry(id.to_owned()) {
                Entry::Occupied(stored) if expected == Some(&stored.get().summary.revision) => {
                    stored.into_mut()
                }
                Entry::Vacant(vacant)
                    if expected.is_none() && !contents.removed.contains(changes.run_id()) =>
                {
                    let (run, at, size) = (changes.run_id().clone(), SystemTime::now(), RunSize::default());
                    contents.run_bytes += size.bytes();
                    let (parts, log) = (BTreeMap::new(), BTreeMap::new());
                    vacant.insert(Stored { run, parts, log, summary: summary.clone(), at, size })
                }
                _ => return Ok(SaveOutcome::Conflict),
            };
            let mut size = stored.size;
            if changes.is_whole() {
                (stored.parts, stored.log, size) = Default::default();
            }
            for (key, part) in parts {
                size.parts += part.as_ref().map_or(0, String::len);
                let replaced = match part {
                    Some(part) => stored.parts.insert(key, part),
                    None => stored.parts.remove(&key),
                };
                size.parts -= replaced.map_or(0, |replaced| replaced.len());
            }
            size.log += entries.iter().map(|(_, entry)| entry.len()).sum::<usize>();
            stored.log.extend(entries);
            let now = SystemTime::now();
            let saved_before = std::mem::replace(&mut stored.at, now);
            let earlier = std::mem::replace(&mut stored.summary, summary.clone());
            contents.by_save.remove(&(is_open(&earlier), saved_before, id.to_owned()));
            contents.by_save.insert((is_open(&summary), now, id.to_owned()));
            contents.forget_owners(&earlier);
            for owner in owners(&summary) {
                contents.by_owner.entry(owner).or_default().insert(id.to_owned());
            }
            contents.inboxes.acknowledge(id, changes.acknowledged());
            contents.resize(id, size);
            contents.make_room_beside(Some(id));
            Ok(SaveOutcome::Saved)
        })
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        Box::pin(async move {
            let mut contents = self.contents();
            contents.make_room_beside(None);
            let stored = contents.runs.get(id).map(|stored| Run::restore(&stored.parts, stored.log.values()));
            Ok(stored.transpose()?)
        })
    }

    fn entries<'a>(
        &'a self,
        id: &'a str,
        after: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        Box::pin(async move {
            let (contents, now) = (self.contents(), SystemTime::now());
            let Some(stored) = contents.runs.get(id) else { return Ok(None) };
            let behind = stored.log.range(after.map_or(0, |after| after.saturating_add(1))..);
            let entries = behind.take(limit).map(|(position, entry)| (*position, entry.clone())).collect();
            let rest = stored.parts.get(RunChanges::REST).cloned();
            Ok(Some(RunLog::new(contents.listed(stored, now), entries, rest)))
        })
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.contents().remove_run(id);
            Ok(())
        })
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        Box::pin(async move {
            let (mut contents, now) = (self.contents(), SystemTime::now());
            contents.make_room_beside(None);
            let conversation = filter.conversation.clone().map(Owner::Conversation);
            let owner = conversation.or_else(|| filter.user.clone().map(Owner::User));
            let ids: Box<dyn Iterator<Item = &String>> = match (&filter.id, owner) {
                (Some(id), _) => Box::new([id].into_iter()),
                (None, Some(owner)) => Box::new(contents.by_owner.get(&owner).into_iter().flatten()),
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
            let is_held = lease.is_some_and(|lease| lease.is_held(now));
            let is_own = lease.is_some_and(|lease| lease.holder == *driver);
            if is_held && !is_own {
                return Ok(LeaseState::HeldElsewhere);
            }
            match request {
                LeaseRequest::Take(duration) | LeaseRequest::Renew(duration)
                    if is_own || matches!(request, LeaseRequest::Take(_)) =>
                {
                    // Leases of runs that were never stored, which nobody removes.
                    let runs = &contents.runs;
                    contents.leases.retain(|id, lease| lease.is_held(now) || runs.contains_key(id));
                    let lease = Lease { holder: driver.clone(), taken: now, duration };
                    contents.leases.insert(id.to_owned(), lease);
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
            let contents = &mut *self.contents();
            let Some(stored) = contents.runs.get(id) else { return Ok(PostOutcome::UnknownRun) };
            let inbox = contents.inboxes.of(id);
            if command.is_in(inbox) {
                return Ok(PostOutcome::Posted);
            }
            if !command.fits(&stored.summary, inbox) {
                return Ok(PostOutcome::Full);
            }
            Ok(contents.inboxes.post(id, command))
        })
    }

    fn posted<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Vec<PostedCommand>> {
        Box::pin(async move { Ok(self.contents().inboxes.of(id).to_vec()) })
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
    use crate::run::Decision;

    async fn ids(store: &InMemoryStore) -> Vec<String> {
        store.list_runs(&RunFilter::new()).await.unwrap().into_iter().map(|run| run.id).collect()
    }

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
        assert_eq!(ids(&store).await, ["b", "c", "driven"]);
        // Such a run is removed for good.
        let removed = store.load_run("b").await.unwrap().unwrap();
        save("d").await;
        assert_eq!(ids(&store).await, ["c", "d", "driven"]);
        let changes = removed.changes().saved_with(removed.summary("b"), &[]);
        let outcome = store.append_run("b", None, &changes).await.unwrap();
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
    async fn runs_that_have_finished_make_room_before_others() {
        let store = InMemoryStore::new().max_runs(3);
        let save = async |id: &str, is_finished: bool| {
            let mut run = Run::new([Message::user("x".repeat(20_000))]);
            if is_finished {
                run.end();
                run.set_finished();
            }
            store.save_run(id, &mut run).await.unwrap();
            let listed = store.list_runs(&RunFilter::new().id(id)).await.unwrap().remove(0);
            assert_eq!(listed.bytes.is_some_and(|bytes| bytes >= 20_000), is_finished);
        };
        for (id, is_finished) in [("a", false), ("b", false), ("y", true), ("z", true)] {
            save(id, is_finished).await;
        }
        assert_eq!(ids(&store).await, ["a", "b", "z"]);
        for (id, left) in [("c", ["a", "b", "c"]), ("d", ["b", "c", "d"])] {
            save(id, false).await;
            assert_eq!(ids(&store).await, left);
        }
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
        assert_eq!(ids(&store).await, ["a", "b", "c"]);
        for id in ["a", "b", "c"] {
            let state = store.lease(id, &driver, LeaseRequest::Release).await.unwrap();
            assert_eq!(state, LeaseState::Free);
        }
        store.save_run("d", &mut Run::new([Message::user("Hello")])).await.unwrap();
        assert_eq!(ids(&store).await, ["d"]);
    }

    #[tokio::test]
    async fn the_oldest_runs_are_removed_if_they_take_too_much_memory() {
        let store = InMemoryStore::new().max_run_bytes(100_000);
        let text = "x".repeat(20_000);
        for id in ["a", "b", "c", "d"] {
            store.save_run(id, &mut Run::new([Message::user(text.clone())])).await.unwrap();
        }
        // A run that grows counts with what is added.
        let mut run = store.load_run("a").await.unwrap().unwrap();
        run.say(text.clone()).unwrap();
        store.save_run("a", &mut run).await.unwrap();
        assert_eq!(ids(&store).await, ["a", "c", "d"]);
        store.save_run("e", &mut Run::new([Message::user(text)])).await.unwrap();
        assert_eq!(ids(&store).await, ["a", "d", "e"]);
        for id in ["a", "d", "e"] {
            store.remove_run(id).await.unwrap();
        }
        let contents = store.contents();
        assert_eq!((contents.run_bytes, contents.by_save.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_lease_that_ends_later_than_twice_its_duration_from_now_is_none() {
        let (store, driver) = (InMemoryStore::new(), DriverId::unique());
        let take = LeaseRequest::Take(Duration::from_secs(60));
        store.save_run("a", &mut Run::new([Message::user("Hello")])).await.unwrap();
        assert_eq!(store.lease("a", &driver, take).await.unwrap(), LeaseState::Held);
        let moves_ahead = |seconds| {
            store.contents().leases.get_mut("a").unwrap().taken += Duration::from_secs(seconds);
        };
        // The clock has stepped back a little.
        moves_ahead(1);
        assert!(store.list_runs(&RunFilter::new().id("a")).await.unwrap()[0].is_leased);
        assert_eq!(store.lease("a", &DriverId::unique(), take).await.unwrap(), LeaseState::HeldElsewhere);
        moves_ahead(120);
        assert!(!store.list_runs(&RunFilter::new().id("a")).await.unwrap()[0].is_leased);
        assert_eq!(store.lease("a", &DriverId::unique(), take).await.unwrap(), LeaseState::Held);
        assert_eq!(store.lease("a", &driver, take).await.unwrap(), LeaseState::HeldElsewhere);
    }

    #[tokio::test]
    async fn messages_to_a_run_remove_no_other_run() {
        let store = InMemoryStore::new().max_run_bytes(100_000);
        for id in ["waits", "works"] {
            store.save_run(id, &mut Run::new([Message::user("Hello")])).await.unwrap();
        }
        let mut posted = 0;
        for _ in 0..120 {
            let say = PostedCommand::new(RunCommand::Say("x".repeat(100_000).into()));
            posted += usize::from(store.post("works", &say).await.unwrap() == PostOutcome::Posted);
        }
        assert_eq!((posted, store.posted("works").await.unwrap().len()), (41, 41), "4 MiB");
        assert_eq!(ids(&store).await, ["waits", "works"]);
    }

    #[tokio::test]
    async fn messages_to_all_runs_together_are_bounded_and_decisions_are_not() {
        let store = InMemoryStore::new();
        store.contents().inboxes.max_bytes = 10_000;
        let mut runs = ["a", "b", "c"].map(|id| (id, Run::new([Message::user("Hello")])));
        for (id, run) in &mut runs {
            store.save_run(id, run).await.unwrap();
        }
        let say = || PostedCommand::new(RunCommand::Say("x".repeat(4_000).into()));
        let [first, second] = [say(), say()];
        assert_eq!(store.post("a", &first).await.unwrap(), PostOutcome::Posted);
        assert_eq!(store.post("b", &second).await.unwrap(), PostOutcome::Posted);
        assert_eq!(store.post("c", &say()).await.unwrap(), PostOutcome::Full);
        assert_eq!(store.post("b", &second).await.unwrap(), PostOutcome::Posted, "it is there");
        let denies = RunCommand::resolve("wait", Decision::deny("x".repeat(4_000)));
        for command in [denies, RunCommand::Cancel].map(PostedCommand::new) {
            assert_eq!(store.post("c", &command).await.unwrap(), PostOutcome::Posted);
        }
        assert_eq!(ids(&store).await, ["a", "b", "c"]);
        // Taken by a driver, and removed with its run.
        store.save_run_after("a", &mut runs[0].1, &[first.id]).await.unwrap();
        assert_eq!(store.post("c", &say()).await.unwrap(), PostOutcome::Posted);
        assert_eq!(store.post("a", &say()).await.unwrap(), PostOutcome::Full);
        store.remove_run("b").await.unwrap();
        assert_eq!(store.post("a", &say()).await.unwrap(), PostOutcome::Posted);
        for id in ["a", "c"] {
            store.remove_run(id).await.unwrap();
        }
        let contents = store.contents();
        assert_eq!((contents.inboxes.bytes, contents.inboxes.by_run.len()), (0, 0));
    }

    #[tokio::test]
    async fn old_runs_are_removed_unless_somebody_drives_them() {
        let store = InMemoryStore::new();
        let driver = DriverId::unique();
        let take = LeaseRequest::Take(Duration::from_secs(60));
        assert_eq!(store.lease("driven", &driver, take).await.unwrap(), LeaseState::Held);
        for id in ["driven", "waits"] {
            store.save_run(id, &mut Run::new([Message::user("Hello")])).await.unwrap();
        }
        assert_eq!(ids(&store).await, ["driven", "waits"]);
        let store = store.max_run_age(Duration::ZERO);
        while SystemTime::now() <= store.contents().runs["waits"].at {}
        assert!(store.load_run("waits").await.unwrap().is_none());
        assert_eq!(ids(&store).await, ["driven"]);
        assert_eq!(store.lease("driven", &driver, LeaseRequest::Release).await.unwrap(), LeaseState::Free);
        assert!(store.load_run("driven").await.unwrap().is_none());
    }
}
