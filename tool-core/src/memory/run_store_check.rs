//! Checks a store of runs against the contract.

use std::error::Error;
use std::time::Duration;

use crate::memory::run_reader::{RunNews, RunReader};
use crate::memory::{
    DriverId, LeaseRequest, LeaseState, PostOutcome, PostedCommand, RunCommand, RunConflict, RunFilter,
    RunStatus, RunStore, RunSummary,
};
use crate::model::{AssistantMessage, ChatResponse, Message, ToolCall};
use crate::run::event::Event;
use crate::run::{Decision, MessageVolume, Run, UserMessage};
use crate::tool::{ToolExecution, ToolOutput};

type BoxError = Box<dyn Error + Send + Sync>;
type Checked = Result<(), BoxError>;

/// Long enough for any machine.
const LONG: Duration = Duration::from_secs(3_600);

/// Checks a store of runs against the contract of [`RunStore`], for the tests of a store. It stores runs under ids that begin with
/// `check-`, and removes them. Leases and inboxes are checked if the store supports them. What needs another clock is not checked: that a
/// lease that ends later than twice its duration from now [is none](RunStore::lease).
///
/// ```
/// use tool_core::memory::InMemoryStore;
/// use tool_core::testing::check_run_store;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// check_run_store(&InMemoryStore::new()).await
/// # }
/// ```
///
/// # Errors
///
/// Returns an error of the store, or the rule that it violates.
pub async fn check_run_store(store: &dyn RunStore) -> Checked {
    check_states(store).await?;
    check_entries(store).await?;
    check_leases(store).await?;
    check_inboxes(store).await?;
    check_messages(store).await?;
    check_lists(store).await
}

fn ensure(holds: bool, rule: &str) -> Checked {
    if holds { Ok(()) } else { Err(format!("the store violates a rule: {rule}").into()) }
}

fn new_run() -> Run {
    Run::new([Message::user("Go")]).with_conversation("check-conversation")
}

/// Ensures that a copy cannot be saved, and that the attempt changes nothing.
async fn ensure_conflict(store: &dyn RunStore, id: &str, copy: &mut Run, rule: &str) -> Checked {
    let before = store.load_run(id).await?;
    let is_conflict = store.save_run(id, copy).await.is_err_and(|error| error.is::<RunConflict>());
    let after = store.load_run(id).await?;
    let revision = |run: &Option<Run>| run.as_ref().map(|run| run.revision().cloned());
    ensure(is_conflict && revision(&before) == revision(&after), rule)
}

/// Returns `true` if the run is stored as it is.
async fn is_stored(store: &dyn RunStore, id: &str, run: &Run) -> Result<bool, Box<dyn Error + Send + Sync>> {
    let stored = store.load_run(id).await?.ok_or("a stored run can be loaded")?;
    Ok(serde_json::to_value(&stored)? == serde_json::to_value(run)?)
}

async fn check_states(store: &dyn RunStore) -> Checked {
    let (a, b) = ("check-a", "check-b'; --\0\u{1f600}");
    let mut run = new_run();
    let mut never_stored = run.clone();
    ensure(store.load_run(a).await?.is_none(), "an unknown run is `None`")?;
    store.remove_run(a).await?;
    store.save_run(b, &mut new_run()).await?;
    store.save_run(a, &mut run).await?;
    let listed = store.list_runs(&RunFilter::new()).await?;
    let own: Vec<_> = listed.iter().map(|run| &*run.id).filter(|id| id.starts_with("check-")).collect();
    ensure(own == [a, b], "a list has all stored runs, sorted by id")?;
    let mut copy = store.load_run(a).await?.ok_or("a stored run can be loaded")?;
    ensure(copy.revision() == run.revision(), "the loaded run has the revision of the stored state")?;
    ensure(copy.id() == run.id() && copy.messages() == run.messages(), "the loaded run is the stored one")?;
    ensure_conflict(store, a, &mut never_stored, "without an expected revision, no state is replaced")
        .await?;
    ensure_conflict(store, a, &mut new_run(), "another run does not replace a state").await?;
    for turn in 1..=3 {
        let calls = [ToolCall::new(format!("call {turn}"), "work", "{}")];
        run.record_response(ChatResponse::new(AssistantMessage::text("Well.").with_tool_calls(calls)))?;
        run.begin_call(&format!("call {turn}"))?;
        store.save_run(a, &mut run).await?;
        ensure(is_stored(store, a, &run).await?, "the loaded run has what an earlier save stored")?;
        let call = run.current_calls().next().map(|(call, _)| call.clone()).ok_or("the call is open")?;
        run.record_result(ToolExecution::new(call, Ok(ToolOutput::text("Done."))))?;
        store.save_run(a, &mut run).await?;
        ensure(is_stored(store, a, &run).await?, "a save removes parts that are no longer needed")?;
    }
    let mut run: Run = serde_json::from_str(&serde_json::to_string(&run)?)?;
    store.save_run(a, &mut run).await?;
    ensure(is_stored(store, a, &run).await?, "a whole run replaces what is stored of it")?;
    ensure_conflict(store, a, &mut copy, "only the expected revision is replaced").await?;
    store.remove_run(a).await?;
    ensure(store.load_run(a).await?.is_none(), "a removed run is not stored any more")?;
    ensure_conflict(store, a, &mut run, "a removed run does not return").await?;
    ensure_conflict(store, a, &mut never_stored, "a copy that was never stored does not return either")
        .await?;
    store.save_run(a, &mut new_run()).await?;
    store.remove_run(a).await?;
    store.remove_run(b).await
}

async fn check_entries(store: &dyn RunStore) -> Checked {
    let id = "check-entries";
    ensure(store.entries(id, None, 10).await?.is_none(), "an unknown run has no entries")?;
    let mut run = new_run();
    store.save_run(id, &mut run).await?;
    let calls = ["first", "second"].map(|id| ToolCall::new(id, "work", "{}"));
    run.record_response(ChatResponse::new(AssistantMessage::text("Well.").with_tool_calls(calls)))?;
    store.save_run(id, &mut run).await?;
    run.begin_call("first")?;
    let call = run.current_calls().next().map(|(call, _)| call.clone()).ok_or("the call is open")?;
    run.record_result(ToolExecution::new(call, Ok(ToolOutput::text("Done."))))?;
    run.require_approval("second")?;
    store.save_run(id, &mut run).await?;
    let mut copy = store.load_run(id).await?.ok_or("a stored run can be loaded")?;
    let log = async |after, limit| {
        store.entries(id, after, limit).await?.ok_or_else(|| BoxError::from("a stored run has entries"))
    };
    let all = log(None, 100).await?;
    let positions: Vec<_> = all.positions().collect();
    ensure(positions.len() == 5, "the entries of a run are those of all saves")?;
    ensure(
        positions.is_sorted() && positions.first() == Some(&0),
        "entries are in the order of their positions",
    )?;
    ensure(
        Some(&all.summary().revision) == run.revision(),
        "entries come with the summary of the last save",
    )?;
    for (at, after) in positions.iter().enumerate() {
        let rest: Vec<_> = log(Some(*after), 100).await?.positions().collect();
        ensure(rest == positions[at + 1..], "entries are those behind a position")?;
        let first: Vec<_> = log(None, at).await?.positions().collect();
        ensure(first == positions[..at], "there are at most so many entries, the first ones")?;
    }
    let (mut reader, mut again) = (RunReader::new(id), RunReader::new(id));
    let read = reader.read(store).await?.ok_or("a stored run can be read")?;
    let rests = |news: &RunNews| matches!(news.events.last().map(|last| &last.event), Some(Event::Waiting(waits)) if waits.len() == 1);
    ensure(rests(&read), "entries come with the part of the state that states how the run rests")?;
    copy.resolve_all(|_| Decision::deny("no"))?;
    store.save_run(id, &mut copy).await?;
    let read = reader.read(store).await?.ok_or("a stored run can be read")?;
    ensure(
        !read.is_beginning && !read.events.is_empty() && !rests(&read),
        "a save adds entries to the log, and removes that part",
    )?;
    let mut copy: Run = serde_json::from_str(&serde_json::to_string(&copy)?)?;
    store.save_run(id, &mut copy).await?;
    let read = reader.read(store).await?.ok_or("a stored run can be read")?;
    ensure(read.is_beginning, "a whole run begins the log anew")?;
    let whole = again.read(store).await?.ok_or("a stored run can be read")?;
    ensure(whole.events.len() == read.events.len(), "all readers read the same")?;
    store.remove_run(id).await?;
    ensure(store.entries(id, None, 10).await?.is_none(), "a removed run has no entries")
}

async fn check_leases(store: &dyn RunStore) -> Checked {
    let (id, first, second) = ("check-lease", DriverId::unique(), DriverId::unique());
    let take = LeaseRequest::Take(LONG);
    if store.lease(id, &first, LeaseRequest::Check).await? == LeaseState::Unsupported {
        let posted = store.post(id, &PostedCommand::new(RunCommand::Cancel)).await?;
        return ensure(
            posted == PostOutcome::Unsupported,
            "a store with inboxes has leases, because the driver that holds the lease reads the inbox",
        );
    }
    // The driver, its request, the state, and the rule.
    let steps = [
        (&first, LeaseRequest::Check, LeaseState::Free, "no driver holds a new lease"),
        (&first, LeaseRequest::Renew(LONG), LeaseState::Free, "a lease that was not taken is not renewed"),
        (&first, take, LeaseState::Held, "a free lease can be taken before its run is stored"),
        (&first, take, LeaseState::Held, "the holder can take its lease again"),
        (&first, LeaseRequest::Renew(LONG), LeaseState::Held, "the holder can renew its lease"),
        (&second, LeaseRequest::Check, LeaseState::HeldElsewhere, "others see the lease"),
        (&second, take, LeaseState::HeldElsewhere, "others cannot take the lease"),
        (&second, LeaseRequest::Renew(LONG), LeaseState::HeldElsewhere, "others cannot renew the lease"),
        (&second, LeaseRequest::Release, LeaseState::HeldElsewhere, "others cannot release the lease"),
        (&first, LeaseRequest::Check, LeaseState::Held, "the holder still has the lease"),
        (&first, LeaseRequest::Release, LeaseState::Free, "the holder can release its lease"),
        (&first, LeaseRequest::Renew(LONG), LeaseState::Free, "a lease that was released is not renewed"),
        (&second, take, LeaseState::Held, "a lease that was released can be taken"),
        (&second, LeaseRequest::Take(Duration::ZERO), LeaseState::Free, "a lease expires"),
        (&first, take, LeaseState::Held, "a lease that has expired can be taken"),
        (
            &second,
            LeaseRequest::Renew(LONG),
            LeaseState::HeldElsewhere,
            "a lease that was lost is not renewed",
        ),
    ];
    for (driver, request, expected, rule) in steps {
        let mut state = store.lease(id, driver, request).await?;
        if request == LeaseRequest::Take(Duration::ZERO) {
            state = store.lease(id, driver, LeaseRequest::Check).await?;
        }
        ensure(state == expected, rule)?;
    }
    let mut run = new_run();
    store.save_run(id, &mut run).await?;
    let revision = run.revision().cloned();
    let _ = store.lease(id, &first, LeaseRequest::Renew(LONG)).await?;
    let stored = store.load_run(id).await?;
    ensure(
        stored.is_some_and(|run| run.revision() == revision.as_ref()),
        "a lease does not change the revision",
    )?;
    store.remove_run(id).await?;
    let state = store.lease(id, &second, LeaseRequest::Check).await?;
    ensure(state == LeaseState::Free, "a removed run has no lease")
}

async fn check_inboxes(store: &dyn RunStore) -> Checked {
    let id = "check-inbox";
    let approval = RunCommand::resolve("check-wait", Decision::deny("no"));
    let commands = [PostedCommand::new(approval), PostedCommand::new(RunCommand::Cancel)];
    match store.post(id, &commands[0]).await? {
        PostOutcome::Unsupported => return Ok(()),
        outcome => ensure(outcome == PostOutcome::UnknownRun, "a run that is not stored has no inbox")?,
    }
    let mut run = new_run();
    store.save_run(id, &mut run).await?;
    for command in [&commands[0], &commands[1], &commands[0]] {
        let outcome = store.post(id, command).await?;
        ensure(outcome == PostOutcome::Posted, "commands can be posted to a stored run")?;
    }
    let second = RunCommand::resolve("check-wait", Decision::approve());
    for command in [second, RunCommand::Cancel].map(PostedCommand::new) {
        let outcome = store.post(id, &command).await?;
        let rule =
            "the inbox has one decision about each wait and one cancellation, and posting again is no error";
        ensure(outcome == PostOutcome::Posted && store.posted(id).await? == commands, rule)?;
    }
    for _ in 0..2 {
        let posted = store.posted(id).await?;
        ensure(posted == commands, "posted commands stay in the inbox in their order, each once")?;
    }
    let acknowledged = [commands[0].id.clone(), "unknown".to_owned()];
    let mut outdated = store.load_run(id).await?.ok_or("a stored run can be loaded")?;
    store.save_run(id, &mut run).await?;
    let refused = store.save_run_after(id, &mut outdated, &acknowledged).await;
    ensure(refused.is_err() && store.posted(id).await? == commands, "a conflict acknowledges no command")?;
    store.save_run_after(id, &mut run, &acknowledged).await?;
    let posted = store.posted(id).await?;
    ensure(posted == commands[1..], "a save removes the commands that it acknowledges, and no others")?;
    store.remove_run(id).await?;
    ensure(store.posted(id).await?.is_empty(), "a removed run has no inbox")
}

async fn check_messages(store: &dyn RunStore) -> Checked {
    let [id, other] = ["check-messages", "check-messages-other"];
    if store.post(id, &PostedCommand::new(RunCommand::Cancel)).await? == PostOutcome::Unsupported {
        return Ok(());
    }
    // The bytes of the texts count, and neither their characters nor who sent them.
    let say_as = |bytes: usize, by: Option<&str>| {
        let message = UserMessage::new("é".repeat(bytes / 2) + &"x".repeat(bytes % 2));
        PostedCommand::new(RunCommand::Say(by.into_iter().fold(message, UserMessage::by)))
    };
    let say = |bytes| say_as(bytes, None);
    let long = UserMessage::MAX_BYTES;
    let mut run = new_run();
    store.save_run(id, &mut run).await?;
    store.save_run(other, &mut new_run()).await?;
    // What is posted, how often, the outcome of each, and the rule.
    let steps = [
        (long + 1, 1, PostOutcome::Full, "a message of more than 256 KiB is refused"),
        (long, 16, PostOutcome::Posted, "messages are posted up to 4 MiB"),
        (1, 1, PostOutcome::Full, "messages of more than 4 MiB that no driver has taken are refused"),
        (0, 84, PostOutcome::Posted, "messages are posted up to 100"),
        (0, 1, PostOutcome::Full, "more than 100 messages that no driver has taken are refused"),
    ];
    for (bytes, count, expected, rule) in steps {
        for number in 0..count {
            let message = say_as(bytes, Some("check-sender").filter(|_| number % 2 == 0));
            ensure(store.post(id, &message).await? == expected, rule)?;
        }
    }
    let posted = store.posted(id).await?;
    ensure(posted.len() == 100, "a message that is refused is not in the inbox")?;
    let again = posted.first().ok_or("the inbox has messages")?;
    ensure(store.post(id, again).await? == PostOutcome::Posted, "a command is not refused if it is there")?;
    let approval = RunCommand::resolve("check-wait", Decision::approve());
    for command in [approval, RunCommand::Cancel].map(PostedCommand::new) {
        let outcome = store.post(id, &command).await?;
        ensure(outcome == PostOutcome::Posted, "decisions and cancellations are posted to every stored run")?;
    }
    let outcome = store.post(other, &say(long)).await?;
    ensure(outcome == PostOutcome::Posted, "the inbox of a run counts for that run alone")?;
    // Taken by a driver, and read.
    let taken: Vec<_> = posted.iter().map(|posted| posted.id.clone()).collect();
    run.count_message_bytes(MessageVolume::MAX_BYTES - long);
    store.save_run_after(id, &mut run, &taken).await?;
    let outcome = store.post(id, &say(long)).await?;
    ensure(outcome == PostOutcome::Posted, "a message is posted once a driver has taken the others")?;
    let outcome = store.post(id, &say(1)).await?;
    ensure(outcome == PostOutcome::Full, "messages of more than 16 MiB to a run are refused")?;
    store.remove_run(id).await?;
    store.remove_run(other).await
}

async fn check_lists(store: &dyn RunStore) -> Checked {
    let [first, second] = ["check-list-1", "check-list-2"];
    let mut run = new_run();
    store.save_run(first, &mut run).await?;
    let mut waiting = Run::new([Message::user("Go")]).with_conversation("check-other");
    waiting.set_agent_name(Some("check-agent"));
    let call = ToolCall::new("call", "work", "{}");
    waiting.record_response(ChatResponse::new(AssistantMessage::text("Well.").with_tool_calls([call])))?;
    store.save_run(second, &mut waiting).await?;
    waiting.require_approval("call")?;
    store.save_run(second, &mut waiting).await?;
    let any = RunFilter::new;
    let filters: [(RunFilter, &[&str]); 11] = [
        (any(), &[first, second]),
        (any().id(second), &[second]),
        (any().id("check-list"), &[]),
        (any().agent("check-agent"), &[second]),
        (any().conversation("check-conversation"), &[first]),
        (any().conversation("check"), &[]),
        (any().status(RunStatus::Waiting), &[second]),
        (any().status(RunStatus::Interrupted), &[first]),
        (any().status(RunStatus::Waiting).conversation("check-conversation"), &[]),
        (any().min_age(Duration::ZERO), &[first, second]),
        (any().min_age(LONG), &[]),
    ];
    for (filter, expected) in filters {
        let mut listed = store.list_runs(&filter).await?;
        listed.retain(|run| run.id.starts_with("check-list"));
        let ids: Vec<_> = listed.iter().map(|run| &*run.id).collect();
        ensure(ids == expected, "a list has the runs that the filter admits, sorted by id")?;
    }
    let listed = listed_run(store, first).await?;
    ensure(Some(&listed.revision) == run.revision(), "a list has the revision of the stored state")?;
    ensure(listed.age < LONG, "a run is new when it was stored")?;
    ensure(!listed.is_leased && !listed.is_command_posted, "nobody drives or cancels a new run")?;
    let driver = DriverId::unique();
    if store.lease(first, &driver, LeaseRequest::Take(LONG)).await? == LeaseState::Held {
        ensure(listed_run(store, first).await?.is_leased, "a list shows that a run is leased")?;
        let _ = store.lease(first, &driver, LeaseRequest::Release).await?;
        ensure(!listed_run(store, first).await?.is_leased, "a list shows that a lease was released")?;
    }
    for (command, is_cancellation) in
        [(RunCommand::resolve("wait", Decision::approve()), false), (RunCommand::Cancel, true)]
    {
        if store.post(first, &PostedCommand::new(command)).await? == PostOutcome::Posted {
            let listed = listed_run(store, first).await?;
            ensure(listed.is_command_posted, "a list shows that a command was posted")?;
            ensure(listed.is_cancellation_posted == is_cancellation, "a list shows posted cancellations")?;
        }
    }
    store.remove_run(first).await?;
    store.remove_run(second).await?;
    let left = store.list_runs(&RunFilter::new()).await?;
    ensure(!left.iter().any(|run| run.id.starts_with("check-list")), "a list has no removed run")
}

async fn listed_run(store: &dyn RunStore, id: &str) -> Result<RunSummary, Box<dyn Error + Send + Sync>> {
    let run = store.list_runs(&RunFilter::new().id(id)).await?.pop();
    run.ok_or_else(|| "the store violates a rule: a list has every stored run".into())
}
