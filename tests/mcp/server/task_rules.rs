//! Rules of tasks that a store and the end of a server show: recovery, shutdown, limits, expiry, and who decides.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tool_core::agent::Outcome;
use tool_core::content::Image;
use tool_core::memory::{InMemoryStore, RunFilter, RunStatus, RunSummary};
use tool_core::model::RunUser;
use tool_core::run::{Decision, Run, Wait};
use tool_core::signatures::Timestamp;
use tool_core::store::{
    DriverId, LeaseRequest, LeaseState, PostOutcome, PostedCommand, RunChanges, RunLog, RunRevision,
    RunStore, SaveOutcome, StoreFuture,
};
use tool_core::tool::Asker;
use tool_core::{RunErrorKind, ToolContext, ToolError, tool, tools};
use tool_mcp::server::{Credentials, Principal, ProtectedResource, Server};

use super::newest::{self, output};
use super::tasks::{about, call, follows_tasks, only_wait, send, spawn, task_id, text_of, until};
use super::tools::{Witness, wait};

/// The longest time that a test waits for an event.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn within<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, event).await.unwrap()
}

/// A store with runs that are as old, and as many, as a test wants, and whose saves wait for it.
#[derive(Clone, Default)]
pub(super) struct Stage(pub(super) Arc<Inner>);

#[derive(Default)]
pub(super) struct Inner {
    store: InMemoryStore,
    /// What is added to the ages of runs until they are stored again.
    ages: Mutex<HashMap<String, Duration>>,
    /// What all lists of an agent's runs contain instead.
    pub(super) listed: Mutex<Option<Vec<RunSummary>>>,
    /// The number of times that the runs of all users were listed for the server.
    listed_all: AtomicU32,
    /// The next save notifies the first and waits for the second, before or after it has its effect.
    gate: Mutex<Option<([Arc<Notify>; 2], Place)>>,
    /// Operations on leases wait for others, in their order.
    pub(super) has_slow_leases: AtomicBool,
    leases: tokio::sync::Mutex<()>,
    /// Commands cannot be posted.
    pub(super) has_no_inbox: AtomicBool,
    /// Posting a command fails.
    pub(super) fails_to_post: AtomicBool,
    /// The next save has its effect and fails.
    pub(super) fails_after_save: AtomicBool,
    /// A driver has worked on a run.
    pub(super) was_driven: AtomicBool,
    /// The number of runs that were loaded.
    pub(super) loaded: AtomicU32,
    /// The names of the threads of all operations.
    threads: Mutex<BTreeSet<String>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Before,
    After,
}

impl Stage {
    fn inner(&self) -> &InMemoryStore {
        let thread = std::thread::current();
        self.0.threads.lock().unwrap().insert(thread.name().unwrap_or_default().to_owned());
        &self.0.store
    }

    pub(super) async fn summaries(&self) -> Vec<RunSummary> {
        self.0.store.list_runs(&RunFilter::new()).await.unwrap()
    }

    /// Waits until the only run has this status, and nobody drives it.
    pub(super) async fn until(&self, status: RunStatus) {
        within(async {
            while !self.summaries().await.iter().any(|run| run.status == status && !run.is_leased) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Makes the next save wait. It notifies the first of the returned values, and waits for the second.
    pub(super) fn hold_next_save(&self) -> [Arc<Notify>; 2] {
        self.hold(Place::Before)
    }

    /// Does so once the next save has had its effect.
    pub(super) fn hold_after_next_save(&self) -> [Arc<Notify>; 2] {
        self.hold(Place::After)
    }

    fn hold(&self, place: Place) -> [Arc<Notify>; 2] {
        let gate: [Arc<Notify>; 2] = Default::default();
        *self.0.gate.lock().unwrap() = Some((gate.clone(), place));
        gate
    }
}

impl RunStore for Stage {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        Box::pin(async move {
            let gate = self.0.gate.lock().unwrap().take();
            let pass = async |place| {
                if let Some(([saving, release], _)) = gate.as_ref().filter(|(_, held)| *held == place) {
                    saving.notify_one();
                    release.notified().await;
                }
            };
            pass(Place::Before).await;
            self.0.ages.lock().unwrap().remove(id);
            let saved = self.inner().append_run(id, expected, changes).await;
            pass(Place::After).await;
            match self.0.fails_after_save.swap(false, Ordering::SeqCst) {
                true => Err("the line is dead".into()),
                false => saved,
            }
        })
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        self.0.loaded.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { self.inner().load_run(id).await })
    }

    fn entries<'a>(
        &'a self,
        id: &'a str,
        after: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        Box::pin(async move { self.inner().entries(id, after, limit).await })
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move { self.inner().remove_run(id).await })
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        Box::pin(async move {
            // Recovery lists the runs of all agents.
            let of_agent = filter.agent.iter().fold(RunFilter::new(), |filter, agent| filter.agent(agent));
            if filter.agent.is_some() && *filter == of_agent {
                self.0.listed_all.fetch_add(1, Ordering::SeqCst);
            }
            let mut runs = self.inner().list_runs(&RunFilter::new()).await?;
            if filter.id.is_none() {
                runs = self.0.listed.lock().unwrap().clone().unwrap_or(runs);
            }
            for run in &mut runs {
                run.age += self.0.ages.lock().unwrap().get(&run.id).copied().unwrap_or_default();
            }
            runs.retain(|run| filter.admits(run));
            Ok(runs)
        })
    }

    fn lease<'a>(
        &'a self,
        id: &'a str,
        driver: &'a DriverId,
        request: LeaseRequest,
    ) -> StoreFuture<'a, LeaseState> {
        if matches!(request, LeaseRequest::Take(_)) {
            self.0.was_driven.store(true, Ordering::SeqCst);
        }
        Box::pin(async move {
            let _turn = self.0.leases.lock().await;
            for _ in 0..if self.0.has_slow_leases.load(Ordering::SeqCst) { 5 } else { 0 } {
                tokio::task::yield_now().await;
            }
            self.inner().lease(id, driver, request).await
        })
    }

    fn post<'a>(&'a self, id: &'a str, command: &'a PostedCommand) -> StoreFuture<'a, PostOutcome> {
        Box::pin(async move {
            if self.0.fails_to_post.load(Ordering::SeqCst) {
                return Err("the line is dead".into());
            }
            match self.0.has_no_inbox.load(Ordering::SeqCst) {
                true => Ok(PostOutcome::Unsupported),
                false => self.inner().post(id, command).await,
            }
        })
    }

    fn posted<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Vec<PostedCommand>> {
        Box::pin(async move { self.inner().posted(id).await })
    }
}

#[tool("Pays a bill", needs_approval)]
fn pay(cents: u32, #[inject] witness: &Witness) -> String {
    witness.started.notify_one();
    format!("paid {cents}")
}

#[tool("Waits for a year")]
async fn park(#[inject] user: &Asker) -> Result<String, ToolError> {
    let next_year = Timestamp::now().after(Duration::from_secs(365 * 24 * 3_600));
    match user.parked::<u32>()? {
        Some(state) => Ok(format!("parked {state}")),
        None => Err(user.park(&7, next_year).await.into()),
    }
}

#[tool("Draws a large picture")]
fn draw() -> Image {
    Image::from_bytes("image/png", vec![0; 5 << 20])
}

pub(super) fn server(store: &Stage, witness: &Witness) -> Server {
    Server::new(tools![wait, pay, park, draw])
        .name("desk")
        .context(ToolContext::new().with(witness.clone()))
        .user(|headers| Some(RunUser::new(headers.get("x-user")?.to_str().ok()?)))
        .decider(|_: &Wait| Decision::defer())
        .tasks(store.clone())
        .long_call("wait")
        .long_call("draw")
}

#[tokio::test]
async fn the_next_server_goes_on_with_tasks_when_it_starts() {
    let (store, witness) = (Stage::default(), Witness::default());
    let first = spawn(server(&store, &witness)).await;
    let id = task_id(&call(&first.url(), "wait", json!({}), json!({})).await);
    within(witness.started.notified()).await;
    first.stop_within(Duration::ZERO).await.unwrap();
    store.until(RunStatus::Interrupted).await;
    // No request has reached it.
    let second = spawn(server(&store, &witness)).await;
    within(witness.started.notified()).await;
    witness.release.notify_one();
    assert_eq!(text_of(&until(&second.url(), &id, "completed").await), "released");
}

/// Otherwise the next server would wait until they expire. Tasks that run have some, and those that wait for their turn.
#[tokio::test]
async fn a_server_that_has_stopped_holds_no_leases() {
    let (store, witness) = (Stage::default(), Witness::default());
    let running = spawn(server(&store, &witness)).await;
    for _ in 0..33 {
        task_id(&call(&running.url(), "wait", json!({}), json!({})).await);
    }
    let mut started = witness.max_running.subscribe();
    drop(within(started.wait_for(|max| *max == 32)).await.unwrap());
    store.0.has_slow_leases.store(true, Ordering::SeqCst);
    let leased = async || store.summaries().await.iter().filter(|run| run.is_leased).count();
    assert_eq!(leased().await, 33);
    running.stop_within(Duration::ZERO).await.unwrap();
    assert_eq!(leased().await, 0);
}

/// The time that tasks have is that of other calls in flight. What waits for a time or for its start is left to the next server.
#[tokio::test]
async fn a_server_that_stops_waits_for_tasks_that_run() {
    let (store, witness) = (Stage::default(), Witness::default());
    let first = spawn(server(&store, &witness)).await;
    let id = task_id(&call(&first.url(), "wait", json!({}), json!({})).await);
    within(witness.started.notified()).await;
    let address = first.address();
    let stopping = tokio::spawn(first.stop());
    within(async { while TcpStream::connect(address).await.is_ok() {} }).await;
    assert!(!stopping.is_finished());
    witness.release.notify_one();
    within(stopping).await.unwrap().unwrap();
    store.until(RunStatus::Finished).await;

    let second = spawn(server(&store, &witness)).await;
    assert_eq!(text_of(&until(&second.url(), &id, "completed").await), "released");
    let parked = task_id(&call(&second.url(), "park", json!({}), json!({})).await);
    store.until(RunStatus::Waiting).await;
    let [saving, release] = store.hold_next_save();
    let url = second.url();
    let calling = tokio::spawn(async move { call(&url, "wait", json!({}), json!({})).await });
    within(saving.notified()).await;
    let address = second.address();
    let stopping = tokio::spawn(second.stop());
    within(async { while TcpStream::connect(address).await.is_ok() {} }).await;
    release.notify_one();
    let stored = task_id(&within(calling).await.unwrap());
    within(stopping).await.unwrap().unwrap();
    store.until(RunStatus::Interrupted).await;
    assert_eq!(witness.max_running.borrow().to_owned(), 1);

    let third = spawn(server(&store, &witness)).await;
    within(witness.started.notified()).await;
    witness.release.notify_one();
    assert_eq!(text_of(&until(&third.url(), &stored, "completed").await), "released");
    until(&third.url(), &parked, "working").await;
}

/// `notifications/cancelled` and the end of a connection never cancel a task, but before a host has its id, there is only its request. It counts
/// as in flight until the task is stored.
#[tokio::test]
async fn a_call_that_is_cancelled_before_its_host_knows_the_task_leaves_none() {
    for fails_to_post in [false, true] {
        let (store, witness) = (Stage::default(), Witness::default());
        store.0.fails_to_post.store(fails_to_post, Ordering::SeqCst);
        let server = server(&store, &witness).record_messages().max_concurrent_requests(1).max_connections(1);
        let running = spawn(server).await;
        let [saving, release] = store.hold_next_save();
        let url = running.url();
        let calling = tokio::spawn(async move { call(&url, "wait", json!({}), json!({})).await });
        within(saving.notified()).await;
        calling.abort();
        let list = async || {
            let list = newest::request(&running.url(), "tools/list", json!({}), &follows_tasks());
            within(list.header("x-user", "ada").send()).await.unwrap().status()
        };
        // The server has noticed it once it has another connection.
        for _ in 0..3 {
            assert_eq!(list().await, 503);
        }
        release.notify_one();
        store.until(RunStatus::Finished).await;
        let ended = store.load_run(&store.summaries().await[0].id).await.unwrap().unwrap();
        assert!(ended.tool_executions().is_empty(), "the call was executed");
        assert_eq!(list().await, 200);
    }
}

/// Neither its lock nor an operation of the store for it.
#[tokio::test]
async fn a_caller_whose_task_is_stored_does_not_make_others_wait() {
    let (store, witness) = (Stage::default(), Witness::default());
    let running = spawn(server(&store, &witness)).await;
    let [saving, release] = store.hold_next_save();
    let pay = |user: &'static str| {
        let (url, params) = (running.url(), json!({ "name": "pay", "arguments": { "cents": 5 } }));
        tokio::spawn(async move { send(&url, user, "tools/call", params, follows_tasks()).await })
    };
    let of_ada = pay("ada");
    within(saving.notified()).await;
    task_id(&within(pay("eve")).await.unwrap());
    assert!(!of_ada.is_finished());
    release.notify_one();
    task_id(&within(of_ada).await.unwrap());
}

#[tokio::test]
async fn the_number_of_tasks_is_bounded() {
    let (store, witness) = (Stage::default(), Witness::default());
    let running = spawn(server(&store, &witness)).await;
    task_id(&call(&running.url(), "pay", json!({ "cents": 1 }), json!({})).await);
    store.until(RunStatus::Waiting).await;
    let sample = store.summaries().await.remove(0);
    let runs = |start: &str, status, number: usize| {
        let copies = std::iter::repeat_n(&sample, number).enumerate().map(|(index, sample)| {
            let mut run = sample.clone();
            (run.id, run.status) = (format!("{start}{index}"), status);
            run
        });
        copies.collect::<Vec<_>>()
    };
    let (own, others) = (&sample.id[.."task_".len() + 17], "task_0123456789abcdef_");
    let (open, ended) = (RunStatus::Waiting, RunStatus::Finished);
    let table = [
        (vec![runs(own, open, 99), runs(others, open, 9_900)], true),
        (vec![runs(own, open, 100)], false),
        (vec![runs(own, RunStatus::NotUndone, 100), runs(own, RunStatus::Cancelled, 100)], true),
        (vec![runs(own, open, 99), runs("task_", ended, 5_000)], true),
        (vec![runs(own, RunStatus::NotUndone, 999)], true),
        (vec![runs(own, RunStatus::NotUndone, 1_000)], false),
        (vec![runs(own, ended, 1_500)], true),
        (vec![runs(own, RunStatus::NotUndone, 100), runs(own, ended, 1_500)], false),
        (vec![runs(others, open, 9_999)], true),
        (vec![runs(others, open, 10_000)], false),
    ];
    for (row, (listed, is_accepted)) in table.into_iter().enumerate() {
        // Another process, which knows nothing of the tasks of all callers.
        let running = spawn(server(&store, &witness)).await;
        *store.0.listed.lock().unwrap() = Some(listed.concat());
        let answer = call(&running.url(), "pay", json!({ "cents": 1 }), json!({})).await;
        match is_accepted {
            true => drop(task_id(&answer)),
            false => assert_eq!(output(&answer), "too many calls wait; try again later", "row {row}"),
        }
    }
    *store.0.listed.lock().unwrap() = None;
    for (excess, is_accepted) in [(0, true), (1, false)] {
        let shortest = json!({ "cents": 1, "why": "" }).to_string().len();
        let arguments = json!({ "cents": 1, "why": "9".repeat((64 << 10) - shortest + excess) });
        let answer = call(&running.url(), "pay", arguments, json!({})).await;
        match is_accepted {
            true => drop(task_id(&answer)),
            false => assert!(output(&answer).contains("too long to be stored"), "{answer}"),
        }
    }
}

/// The cost of a task does not grow with the tasks of other callers.
#[tokio::test]
async fn a_task_does_not_read_those_of_all_callers() {
    let (store, witness) = (Stage::default(), Witness::default());
    let running = spawn(server(&store, &witness)).await;
    for _ in 0..3 {
        for user in ["ada", "eve"] {
            let params = json!({ "name": "pay", "arguments": { "cents": 5 } });
            task_id(&send(&running.url(), user, "tools/call", params, follows_tasks()).await);
        }
    }
    assert_eq!(store.0.listed_all.load(Ordering::SeqCst), 1);
}

/// The oldest that have ended, and none that is open or of another caller.
#[tokio::test]
async fn tasks_that_have_ended_are_removed_if_they_take_too_much() {
    let (store, witness) = (Stage::default(), Witness::default());
    let running = spawn(server(&store, &witness)).await;
    let url = running.url();
    let ids = async || store.summaries().await.into_iter().map(|run| run.id).collect::<BTreeSet<_>>();
    let draw = async |user: &str| {
        let earlier = ids().await;
        let params = json!({ "name": "draw", "arguments": {} });
        send(&url, user, "tools/call", params, follows_tasks()).await;
        within(async {
            while store.summaries().await.iter().any(|run| run.is_leased || run.status != RunStatus::Finished)
            {
                tokio::task::yield_now().await;
            }
        })
        .await;
        ids().await.difference(&earlier).next().unwrap().clone()
    };
    let (oldest, of_other) = (draw("ada").await, draw("eve").await);
    let (second, last) = (draw("ada").await, draw("ada").await);
    task_id(&call(&url, "pay", json!({ "cents": 5 }), json!({})).await);
    let earlier = ids().await;
    let table =
        [(10, 10, 10, vec![]), (10, 30, 30, vec![&oldest]), (70, 10, 70, vec![&oldest, &second, &last])];
    for (of_oldest, of_second, of_last, removed) in table {
        let ages =
            [(&oldest, 4, of_oldest), (&of_other, 3, 100), (&second, 2, of_second), (&last, 1, of_last)];
        let mut listed = store.summaries().await;
        for (id, minutes, mebibytes) in ages {
            if let Some(run) = listed.iter_mut().find(|run| run.id == *id) {
                run.age = Duration::from_secs(60 * minutes);
                run.bytes = Some(mebibytes << 20);
            }
        }
        *store.0.listed.lock().unwrap() = Some(listed);
        task_id(&call(&url, "pay", json!({ "cents": 5 }), json!({})).await);
        let expected: BTreeSet<_> = earlier.iter().filter(|id| !removed.contains(id)).cloned().collect();
        within(async {
            while ids().await.intersection(&earlier).ne(&expected) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// It is in the inbox of its run until the keeper of its lease finds it, and has its effect before its turn.
#[tokio::test]
async fn a_task_that_waits_for_its_turn_is_cancelled_once() {
    let (store, witness) = (Stage::default(), Witness::default());
    let running = spawn(server(&store, &witness)).await;
    for _ in 0..32 {
        task_id(&call(&running.url(), "wait", json!({}), json!({})).await);
    }
    let mut started = witness.max_running.subscribe();
    drop(within(started.wait_for(|max| *max == 32)).await.unwrap());
    let id = task_id(&call(&running.url(), "wait", json!({}), json!({})).await);
    for _ in 0..3 {
        about(&running.url(), "ada", "tasks/cancel", &id, json!({})).await;
    }
    let mut posted = 0;
    for run in store.summaries().await {
        posted += store.posted(&run.id).await.unwrap().len();
    }
    assert!(posted <= 1, "{posted} commands are in the inbox");
    until(&running.url(), &id, "cancelled").await;
    assert_eq!(*witness.max_running.borrow(), 32);
    running.stop_within(Duration::ZERO).await.unwrap();
}

/// Of all callers, and of each: those of one do not make others wait.
#[tokio::test]
async fn the_number_of_tasks_that_are_driven_is_bounded() {
    for (numbers, driven) in [(&[32, 32, 32, 32, 32, 32, 32, 31, 2][..], 256), (&[33, 1], 33)] {
        let (store, witness) = (Stage::default(), Witness::default());
        let running = spawn(server(&store, &witness)).await;
        for (user, number) in numbers.iter().enumerate() {
            for _ in 0..*number {
                let params = json!({ "name": "wait", "arguments": {} });
                let request = newest::request(&running.url(), "tools/call", params, &follows_tasks());
                task_id(&newest::send(request.header("x-user", format!("user {user}"))).await);
            }
        }
        let mut max = witness.max_running.subscribe();
        drop(within(max.wait_for(|max| *max >= driven)).await.unwrap());
        // The last one begins once another has ended.
        let begun = Arc::clone(&witness.started);
        within(begun.notified()).await;
        witness.release.notify_one();
        within(begun.notified()).await;
        assert_eq!(*witness.max_running.borrow(), driven);
        running.stop_within(Duration::ZERO).await.unwrap();
    }
}

/// Also for the caller that began it, whose token can have fewer scopes later.
#[tokio::test]
async fn each_request_about_a_task_needs_the_scopes_of_its_tool() {
    let (store, witness) = (Stage::default(), Witness::default());
    let authorize = |credentials: &Credentials<'_>| {
        let scopes = credentials.bearer_token().filter(|token| *token == "pays").map(|_| "money");
        Ok(Principal::new("ada", scopes))
    };
    let resource = ProtectedResource::new("https://tools.example/mcp");
    let server = Server::new(tools![pay])
        .protect(resource.authorization_server("https://login.example"), authorize)
        .scope("pay", "money")
        .context(ToolContext::new().with(witness))
        .decider(|_: &Wait| Decision::defer())
        .tasks(store);
    let running = spawn(server).await;
    let url = running.url();
    let send = async |token: &str, method: &str, params: Value| {
        let request = newest::request(&url, method, params, &follows_tasks());
        newest::send(request.bearer_auth(token)).await
    };
    let call = json!({ "name": "pay", "arguments": { "cents": 5 } });
    let id = task_id(&send("pays", "tools/call", call).await);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({ "taskId": id, "inputResponses": {} });
        let refused = send("reads", method, params.clone()).await;
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        assert_eq!(refused["error"]["message"], "the task needs further scopes");
        let answered = send("pays", method, params).await;
        assert!(answered["error"].is_null(), "{answered}");
    }
}

/// An approval is for the tool that was shown.
#[tokio::test]
async fn an_approval_is_not_for_a_tool_that_was_replaced() {
    mod other {
        #[tool_core::tool("Pays a bill twice", needs_approval)]
        pub(super) fn pay(cents: u32) -> String {
            format!("paid {cents} twice")
        }
    }
    let (store, witness) = (Stage::default(), Witness::default());
    let server = server(&store, &witness);
    let (agent, handle) = (server.task_agent().unwrap(), server.tools_handle());
    let running = spawn(server).await;
    let id = task_id(&call(&running.url(), "pay", json!({ "cents": 5 }), json!({})).await);
    let (run, wait) = only_wait(&agent).await;
    handle.replace(tools![wait, park, draw, other::pay]).unwrap();
    let approve = async |(run, wait): (String, Wait)| {
        let decided = agent.decide(&run, &wait.id, Decision::approve()).await.unwrap();
        decided.resume().unwrap().outcome().await
    };
    // It is asked for again.
    assert!(matches!(approve((run, wait)).await, Outcome::Waiting(_)));
    approve(only_wait(&agent).await).await;
    assert_eq!(text_of(&until(&running.url(), &id, "completed").await), "paid 5 twice");
}

/// Also a call that the decider defers before it becomes a task, and one that is a task from its beginning.
#[tokio::test]
async fn the_decider_is_asked_once_for_a_call() {
    for is_long in [false, true] {
        let (store, witness, asked) = (Stage::default(), Witness::default(), Arc::new(AtomicU32::new(0)));
        let count = Arc::clone(&asked);
        let server = server(&store, &witness).decider(move |_: &Wait| {
            count.fetch_add(1, Ordering::SeqCst);
            Decision::defer()
        });
        let server = if is_long { server.long_call("pay") } else { server };
        let agent = server.task_agent().unwrap();
        let running = spawn(server).await;
        let id = task_id(&call(&running.url(), "pay", json!({ "cents": 5 }), json!({})).await);
        let (run, wait) = only_wait(&agent).await;
        let decided = agent.decide(&run, &wait.id, Decision::approve()).await.unwrap();
        decided.resume().unwrap().await.unwrap();
        assert_eq!(text_of(&until(&running.url(), &id, "completed").await), "paid 5");
        assert_eq!(asked.load(Ordering::SeqCst), 1, "long: {is_long}");
    }
}

/// What has expired is cancelled, and nobody continues it once a host has read that. A call that was never executed is known, too.
#[tokio::test]
async fn a_task_has_one_final_status() {
    let (store, witness) = (Stage::default(), Witness::default());
    let server = server(&store, &witness);
    let agent = server.task_agent().unwrap();
    let running = spawn(server).await;
    let url = running.url();
    let age = |run: &str| {
        store.0.ages.lock().unwrap().insert(run.to_owned(), Duration::from_secs(2 * 24 * 3_600));
    };
    let get = async |id: &str| about(&url, "ada", "tasks/get", id, json!({})).await["result"].take();
    let id = task_id(&call(&url, "pay", json!({ "cents": 5 }), json!({})).await);
    let (run, wait) = only_wait(&agent).await;
    let stored = agent.stored_run(&run).await.unwrap().unwrap().run;
    age(&run);
    let expired = get(&id).await;
    assert_eq!(expired["status"], "cancelled", "{expired}");
    assert_eq!(expired["statusMessage"], "the call has not ended in time");
    let outcome = agent.resume(stored).ignore_expiry().outcome().await;
    assert!(matches!(&outcome, Outcome::Failed(error) if matches!(error.kind(), RunErrorKind::Conflict)));
    assert!(agent.decide(&run, &wait.id, Decision::approve()).await.is_err());
    assert_eq!(get(&id).await["status"], "cancelled");

    // Also what was cancelled, and did not end.
    let id = task_id(&call(&url, "park", json!({}), json!({})).await);
    let (run, _) = only_wait(&agent).await;
    agent.cancel(&run).await.unwrap();
    assert_eq!(get(&id).await["status"], "working");
    age(&run);
    assert_eq!(get(&id).await["status"], "cancelled");

    let id = task_id(&call(&url, "pay", json!({ "cents": 5 }), json!({})).await);
    about(&url, "ada", "tasks/cancel", &id, json!({})).await;
    until(&url, &id, "cancelled").await;
}

/// The threads of the SDK have neither the program's runtime nor its subscriber.
#[tokio::test]
async fn the_store_is_used_in_the_runtime_of_the_program() {
    let (store, witness) = (Stage::default(), Witness::default());
    let running = spawn(server(&store, &witness)).await;
    let url = running.url();
    let id = task_id(&call(&url, "wait", json!({}), json!({})).await);
    until(&url, &id, "working").await;
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let answer = about(&url, "ada", method, &id, json!({ "inputResponses": {} })).await;
        assert!(answer["error"].is_null(), "{answer}");
    }
    let threads = store.0.threads.lock().unwrap();
    let this = std::thread::current();
    assert_eq!(threads.iter().map(|name| &**name).collect::<Vec<_>>(), [this.name().unwrap()]);
}

#[tokio::test]
async fn a_large_output_is_not_stored() {
    let (store, witness) = (Stage::default(), Witness::default());
    let running = spawn(server(&store, &witness)).await;
    let id = task_id(&call(&running.url(), "draw", json!({}), json!({})).await);
    let drawn = until(&running.url(), &id, "completed").await;
    assert!(text_of(&drawn).ends_with("bytes are left out, because the output is too large]"), "{drawn}");
}
