//! Rules of runs that hold here as in one process.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tool_core::layer::{
    AnswerVerdict, Audit, Layer, LayerContext, LayerFuture, LayerPhase, OutputVerdict, guard,
};
use tool_core::model::{
    AssistantMessage, ChatModel, ChatRequest, ChatResponse, Cost, Currency, ModelError, ModelPrices, Prices,
    ToolPolicy, Usage,
};
use tool_core::provider::ModelFuture;
use tool_core::run::{Decision, ErrorPolicy, StopReason, Wait};
use tool_core::signatures::Timestamp;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{AskError, Asker, Attempt, ToolExecution};
use tool_core::{Agent, Event, FunctionTool, ToolCall, ToolError, ToolOutput, tool, tools};
use tool_restate::{RemoteOutcome, RemoteRun, Worker};

use crate::support::{agent, answer, failure, invocation_of, serve, sql, unique, waiting_calls, within};

const QUESTION: &str = r#"{"question": "?"}"#;

type Log = Arc<Mutex<Vec<&'static str>>>;

#[tool("Books", undo = "cancel")]
fn book(#[inject] log: &Log) {
    log.lock().unwrap().push("book");
}

#[tool("Cancels")]
fn cancel(#[inject] log: &Log) {
    log.lock().unwrap().push("cancel");
}

#[tool("Looks")]
fn look() {}

fn asked(calls: &[(&'static str, &'static str)]) -> ScriptedModel {
    ScriptedModel::new().calls_all(calls.to_vec())
}

/// A layer ends the run on the outcome of the first call of a turn, before the others begin.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_run_that_ends_while_calls_begin_is_undone() {
    for (is_local, other) in [(false, ("b", QUESTION)), (true, ("look", "{}"))] {
        let (name, log) = (unique("desk"), Log::default());
        let inner = |name| {
            let inner = Agent::builder(ScriptedModel::new().says("Done.")).build().unwrap();
            inner.as_tool(name, "Answers")
        };
        let model = asked(&[("book", "{}")]).calls_all([("a", "{}"), other]);
        let desk = Agent::builder(model).name(&*name).context(Arc::clone(&log));
        let desk =
            desk.tools(tools![book, look]).undo_tools(tools![cancel]).tools(inner("a")).tools(inner("b"));
        let desk = desk.layer(guard::output(|execution: &ToolExecution| match &*execution.call().name {
            "a" => OutputVerdict::End("wrong".into()),
            _ => OutputVerdict::Pass,
        }));
        let worker = Worker::new().agent(desk.build().unwrap());
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        let run = agent(&name).ask("Go").send().await.unwrap();
        let failure = within("the end", failure(&run)).await;
        assert!(matches!(failure.reason, Some(StopReason::Blocked { .. })), "{failure:?}");
        assert_eq!(*log.lock().unwrap(), ["book", "cancel"]);
    }
}

/// Answers once, and has no money for a second request.
fn poor(name: &str, log: &Log) -> Agent {
    let prices = ModelPrices::new(0.0, 10.0).with_max_output_tokens(5);
    let model = asked(&[("book", "{}")]).with_usage(Usage::new(10, 5)).says("Done.");
    let agent = Agent::builder(model).name(name).tools(tools![book]).undo_tools(tools![cancel]);
    let agent = agent.prices(Prices::from_fn(Currency::USD, move |_, _| Some(prices)));
    let agent = agent.limits(|l| l.max_cost(Cost::new(50, Currency::USD)));
    agent.context(Arc::clone(log)).build().unwrap()
}

/// What a run has done is not taken back because it has no money left.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_run_without_money_pauses() {
    let here = Log::default();
    poor("here", &here).ask("Go").await.unwrap_err();
    let (name, log) = (unique("desk"), Log::default());
    let _worker = serve(Worker::new().agent(poor(&name, &log))).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    for _ in 0..2 {
        match within("the pause", run.wait()).await.unwrap() {
            RemoteOutcome::Paused(reason) => assert!(reason.contains("max_cost"), "{reason}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(*log.lock().unwrap(), *here.lock().unwrap());
        // The operator's answer is of no use without money.
        run.resume().await.unwrap();
    }
    run.cancel().await.unwrap();
    within("the end", failure(&run)).await;
    assert_eq!(*log.lock().unwrap(), ["book", "cancel"]);
}

#[tool("Reports", return_direct)]
fn report(#[inject] reported: &Arc<Notify>) -> &'static str {
    reported.notify_one();
    "the secret"
}

#[tool("Ends after the report", return_direct)]
async fn slow(#[inject] reported: &Arc<Notify>) -> &'static str {
    reported.notified().await;
    // The outcome of the other call is on its way.
    tokio::time::sleep(Duration::from_millis(200)).await;
    "another secret"
}

/// The output of a tool that is the answer is in no event before layers have judged it, also while other calls work.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn events_do_not_contain_what_layers_have_not_judged() {
    let name = unique("desk");
    let desk = || {
        let model = asked(&[("report", "{}"), ("slow", "{}")]).says("Done.");
        let desk = Agent::builder(model).name(&*name).tools(tools![report, slow]);
        let desk = desk.context(Arc::new(Notify::new()));
        desk.layer(guard::answer(|_: &str| AnswerVerdict::replace("hidden")))
    };
    let finished = |event: &Event| match event {
        Event::CallFinished(one) => Some(format!("{} {}", one.call(), one.output().unwrap())),
        _ => None,
    };
    let here = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&here);
    let agent_here = desk().on_event(move |event| seen.lock().unwrap().extend(finished(event)));
    agent_here.build().unwrap().ask("Go").await.unwrap();
    let _worker = serve(Worker::new().agent(desk().build().unwrap())).await;
    let run = agent(&name).ask("Go").events().send().await.unwrap();
    let (mut events, mut there) = (run.events(0), Vec::new());
    while let Some(event) = within("an event", events.next()).await.unwrap() {
        there.extend(finished(&event.event));
    }
    let mut here = here.lock().unwrap();
    here.sort();
    there.sort();
    assert_eq!(there, *here);
    assert!(there.iter().all(|one| !one.contains("secret")), "{there:?}");
}

#[tool("Works for a while")]
async fn work() {
    tokio::time::sleep(Duration::from_millis(600)).await;
}

#[tool("Parks for a while")]
async fn park(#[inject] user: &Asker) -> Result<(), ToolError> {
    match user.parked::<()>()? {
        None => Err(user.park(&(), Timestamp::now().after(Duration::from_millis(600))).await.into()),
        Some(()) => Ok(()),
    }
}

/// The time of an agent with limits of its own is not that of the run around it.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn an_agent_with_own_limits_takes_no_time_of_the_run_around_it() {
    let desks = ["work", "park"].map(|tool| {
        let name = unique("desk");
        let inner = Agent::builder(asked(&[(tool, "{}")]).says("Worked.")).tools(tools![work, park]);
        let inner = inner.limits(|l| l.max_time(Duration::from_secs(60)));
        let model = ScriptedModel::new().calls_all([("inner", QUESTION), ("look", "{}")]).says("Done.");
        let desk = Agent::builder(model).name(&*name).tools(tools![look]);
        let desk = desk.tools(inner.build().unwrap().as_tool("inner", "Works").own_limits());
        (name, desk.limits(|l| l.max_time(Duration::from_millis(400))).build().unwrap())
    });
    let _worker =
        serve(desks.iter().fold(Worker::new(), |worker, (_, desk)| worker.agent(desk.clone()))).await;
    for (name, _) in &desks {
        let run = agent(name).ask("Go").send().await.unwrap();
        assert_eq!(within("the answer", answer(&run)).await.text(), "Done.");
    }
}

/// The limit of an agent that waits for a person does not count on while another one works.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_time_of_an_agent_that_waits_for_a_person_stops() {
    let worker = || asked(&[("work", "{}")]).says("Worked.");
    let (name, model) = (unique("desk"), asked(&[("ask", "{}")]).says("Asked."));
    let asks = Agent::builder(model).tools(tools![ask]).limits(|l| l.max_time(Duration::from_millis(400)));
    let works = Agent::builder(worker()).tools(tools![work]).build().unwrap();
    let model = ScriptedModel::new().calls_all([("asks", QUESTION), ("works", QUESTION)]).says("Done.");
    let (ended, mut end) = unbounded_channel();
    let works = works.as_tool("works", "Works");
    let desk = Agent::builder(model).name(&*name).tools(asks.build().unwrap().as_tool("asks", "Asks"));
    let desk = desk.tools(works).limits(|l| l.max_time(Duration::from_secs(60)));
    let desk = desk.layer(guard::output(move |one: &ToolExecution| {
        let _ = ended.send(one.call().name.clone());
        OutputVerdict::Pass
    }));
    let _worker = serve(Worker::new().agent(desk.build().unwrap())).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let RemoteOutcome::Waiting(waits) = within("waits", run.wait()).await.unwrap() else { panic!() };
    while within("the end", end.recv()).await.unwrap() != "works" {}
    run.decide(&waits[0].id, Decision::answer("Yes")).await.unwrap();
    let answered = within("the answer", answer(&run)).await;
    let results: Vec<_> = answered.new_messages()[2..4].iter().map(|one| one.text().into_owned()).collect();
    assert_eq!(results, ["Asked.", "Worked."]);
}

#[tool("Parks for an hour")]
async fn park_long(#[inject] user: &Asker) -> Result<(), ToolError> {
    Err(user.park(&(), Timestamp::now().after(Duration::from_secs(3600))).await.into())
}

/// A parked call, or an agent with one, leaves its room to others.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn what_is_parked_holds_no_room() {
    let desks = [("inner", QUESTION), ("park_long", "{}")].map(|first| {
        let (name, reported) = (unique("desk"), Arc::new(Notify::new()));
        let inner = Agent::builder(asked(&[("park_long", "{}")])).tools(tools![park_long]).build().unwrap();
        let desk = Agent::builder(asked(&[first, ("report", "{}")])).name(&*name);
        let desk = desk.tools(tools![park_long, report]).tools(inner.as_tool("inner", "Waits"));
        let desk = desk.max_concurrent_calls(1).context(Arc::clone(&reported));
        (name, reported, desk.build().unwrap())
    });
    let worker = desks.iter().fold(Worker::new(), |worker, (.., desk)| worker.agent(desk.clone()));
    let _worker = serve(worker).await;
    for (name, reported, _) in &desks {
        let run = agent(name).ask("Go").send().await.unwrap();
        within("the other call", reported.notified()).await;
        run.cancel().await.unwrap();
    }
}

/// Calls a tool that fails, and answers later requests.
struct Refusing(AtomicU32);

impl ChatModel for Refusing {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let reply = match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => AssistantMessage::default().with_tool_calls([ToolCall::new("close", "close", "{}")]),
            _ => AssistantMessage::text("It is open."),
        };
        Box::pin(async move { Ok(ChatResponse::new(reply)) })
    }
}

/// A timer, so that others go on meanwhile.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn an_agent_is_asked_again_after_a_delay_that_holds_up_nothing() {
    let name = unique("desk");
    let inner = Agent::builder(Refusing(AtomicU32::new(0))).tools(tools![close]).build().unwrap();
    let mut policy = ToolPolicy::default();
    policy.attempts = 2;
    let desk = Agent::builder(asked(&[("inner", QUESTION)]).says("Done.")).name(&*name);
    let desk = desk.tools(inner.as_tool("inner", "Looks").policy(policy)).build().unwrap();
    let _worker = serve(Worker::new().agent(desk)).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let answer = within("the answer", answer(&run)).await;
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "It is open.");
    assert_eq!(answer.tool_executions()[0].attempts(), 2);
    assert_eq!(timers(&name, &run).await, 1);
}

/// Returns the number of timers that a run has set.
pub(crate) async fn timers(name: &str, run: &RemoteRun) -> u64 {
    let id = invocation_of(name, run.key()).await;
    let query = format!(
        "SELECT CAST(COUNT(*) AS BIGINT) AS timers FROM sys_journal WHERE id = '{id}' AND entry_type = 'Command: Sleep'"
    );
    sql(&query).await["timers"].as_u64().unwrap()
}

/// Those of agents and of searches do not come first.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn calls_start_in_the_order_of_the_reply() {
    let name = unique("desk");
    let desk = || {
        let inner = Agent::builder(ScriptedModel::new().says("Done.")).build().unwrap();
        let model = asked(&[("look", "{}"), ("inner", QUESTION), ("work", "{}")]).says("Done.");
        Agent::builder(model).name(&*name).tools(tools![look, work]).tools(inner.as_tool("inner", "Answers"))
    };
    let started = |event: &Event| match event {
        Event::CallStarted(call) => Some(call.name.clone()),
        _ => None,
    };
    let here = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&here);
    let agent_here = desk().on_event(move |event| seen.lock().unwrap().extend(started(event)));
    agent_here.build().unwrap().ask("Go").await.unwrap();
    let _worker = serve(Worker::new().agent(desk().build().unwrap())).await;
    let run = agent(&name).ask("Go").events().send().await.unwrap();
    let (mut events, mut there) = (run.events(0), Vec::new());
    while let Some(event) = within("an event", events.next()).await.unwrap() {
        there.extend(started(&event.event));
    }
    assert_eq!(there, *here.lock().unwrap());
}

#[tool("Pays", needs_approval)]
fn pay() {}

#[tool("Books after the notification")]
async fn book_later(#[inject] reported: &Arc<Notify>) {
    reported.notified().await;
}

#[tool("Fails after the notification")]
async fn close_later(#[inject] reported: &Arc<Notify>) -> Result<(), ToolError> {
    reported.notified().await;
    Err(ToolError::fatal("closed"))
}

/// Layers that record hear of each call once, also while a result of the caller is not judged, and if the run ends meanwhile.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn layers_record_each_call_once() {
    for (last, outcome) in [("book_later", "succeeded"), ("close_later", "failed: failed")] {
        let (name, reported) = (unique("desk"), Arc::new(Notify::new()));
        let (records, mut recorded) = unbounded_channel();
        let locate = FunctionTool::new("locate", || "never").external();
        let model = ScriptedModel::new().calls_all([("locate", "{}"), (last, "{}")]).says("Done.");
        let desk = Agent::builder(model).name(&*name).tools(tools![book_later, close_later]).tools(locate);
        let desk = desk.default_error_policy(ErrorPolicy::EndRun).context(Arc::clone(&reported));
        let desk = desk.layer(guard::output(|_| OutputVerdict::Pass));
        let desk = desk.layer(Audit::new(move |record| drop(records.send(record.to_string()))));
        let _worker = serve(Worker::new().agent(desk.build().unwrap())).await;
        let run = agent(&name).ask("Go").send().await.unwrap();
        let RemoteOutcome::Waiting(waits) = within("waits", run.wait()).await.unwrap() else { panic!() };
        let supplied = Decision::result(Ok(ToolOutput::text("there")));
        run.decide(&waits[0].id, supplied).await.unwrap();
        reported.notify_one();
        while let RemoteOutcome::Waiting(_) = within("the end", run.wait()).await.unwrap() {}
        let mut recorded: Vec<_> = std::iter::from_fn(|| recorded.try_recv().ok()).collect();
        recorded.sort();
        let expected = [
            "somebody supplied the result of the call `locate` (call_1_0)".to_owned(),
            format!("the call `{last}` (call_1_1) {outcome}"),
            "the call `locate` (call_1_0) succeeded".to_owned(),
        ];
        assert_eq!(recorded, expected, "{last}");
    }
}

/// Layers that record hear of calls that were denied or whose results were supplied, inside of agents, at the end of a run, and while it
/// waits for something else.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn layers_record_calls_that_nobody_executes() {
    let decide = |wait: &Wait| match wait.tool.as_str() {
        "pay" => Decision::deny("not today"),
        _ => Decision::result(Ok(ToolOutput::text("there"))),
    };
    let name = unique("desk");
    let desk = |records: UnboundedSender<String>| {
        let locate = || FunctionTool::new("locate", || "never").external();
        let model = asked(&[("pay", "{}"), ("locate", "{}")]).says("Done.");
        let inner = Agent::builder(model).tools(tools![pay]).tools(locate()).build().unwrap();
        let model = asked(&[("inner", QUESTION)]).calls_all([("pay", "{}"), ("locate", "{}")]);
        // The turn is taken again, and reports nothing again.
        let model = model.fails("away").says("Done.");
        let desk = Agent::builder(model).name(&*name).tools(tools![pay]).tools(locate());
        let desk = desk.tools(inner.as_tool("inner", "Pays")).layer(guard::output(|_| OutputVerdict::Pass));
        desk.layer(Audit::new(move |record| drop(records.send(record.to_string())))).build().unwrap()
    };
    let all = |mut records: UnboundedReceiver<String>| {
        let mut all: Vec<_> = std::iter::from_fn(|| records.try_recv().ok()).collect();
        all.sort();
        all
    };
    let (sender, here) = unbounded_channel();
    let agent_here = desk(sender);
    let mut outcome = agent_here.ask("Go").await;
    while let Err(error) = outcome {
        let mut run = error.into_run();
        run.waits().iter().for_each(|wait| run.resolve(&wait.id, decide(wait)).unwrap());
        outcome = agent_here.resume(run).await;
    }
    let (sender, mut there) = unbounded_channel();
    let _worker = serve(Worker::new().agent(desk(sender))).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let mut recorded = Vec::new();
    loop {
        let waits = match within("a wait", run.wait()).await.unwrap() {
            RemoteOutcome::Waiting(waits) => waits,
            RemoteOutcome::Answer(_) => break,
            other => panic!("{other:?}"),
        };
        // Both records of one decision are there while the other one is awaited.
        let wait = &waits[0];
        run.decide(&wait.id, decide(wait)).await.unwrap();
        for _ in 0..2 {
            recorded.extend(within("a record", there.recv()).await);
        }
    }
    recorded.extend(std::iter::from_fn(|| there.try_recv().ok()));
    recorded.sort();
    assert_eq!(recorded, all(here));
}

#[tool("Fails for good")]
fn close() -> Result<(), ToolError> {
    Err(ToolError::fatal("closed"))
}

mod slowly {
    use super::{Duration, Log, tool};

    #[tool("Cancels for a while")]
    pub(super) async fn cancel(#[inject] log: &Log) {
        tokio::time::sleep(Duration::from_millis(800)).await;
        log.lock().unwrap().push("cancel");
    }
}

/// The time of a run that is up while a call inside is undone ends it afterwards, and no timer is set meanwhile.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn time_limits_do_not_interrupt_what_is_undone() {
    let (name, log) = (unique("desk"), Log::default());
    let inner = Agent::builder(asked(&[("book", "{}"), ("work", "{}")]).calls("close", "{}"));
    let inner =
        inner.tools(tools![book, work, close]).undo_tools(tools![slowly::cancel]).context(Arc::clone(&log));
    let desk = Agent::builder(asked(&[("inner", QUESTION)]).says("Done.")).name(&*name);
    let desk = desk.tools(inner.build().unwrap().as_tool("inner", "Books"));
    let desk = desk.limits(|l| l.max_time(Duration::from_millis(800))).build().unwrap();
    let _worker = serve(Worker::new().agent(desk)).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let failure = within("the end", failure(&run)).await;
    assert!(matches!(failure.reason, Some(StopReason::MaxTime(_))), "{failure:?}");
    assert_eq!(*log.lock().unwrap(), ["book", "cancel"]);
    let timers = timers(&name, &run).await;
    assert!((1..=3).contains(&timers), "{timers}");
}

#[tool("Asks")]
async fn ask(#[inject] user: &Asker) -> Result<String, AskError> {
    user.ask("Which seat?").expires(Duration::from_millis(1500)).await
}

/// Fails the first request once it is notified, and answers the others.
struct Failing(Arc<Notify>, AtomicU32);

impl ChatModel for Failing {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move {
            if self.1.fetch_add(1, Ordering::SeqCst) > 0 {
                return Ok(ChatResponse::new(AssistantMessage::text("I am here.")));
            }
            self.0.notified().await;
            Err(ModelError::new("away"))
        })
    }
}

/// An answer that was accepted reaches the run, also if its question would have expired while the run waited for an operator.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn an_accepted_answer_does_not_expire_while_the_run_pauses() {
    let (name, fails) = (unique("desk"), Arc::new(Notify::new()));
    let asks = Agent::builder(asked(&[("ask", "{}")]).says("Asked.")).tools(tools![ask]).build().unwrap();
    let fails_first = Agent::builder(Failing(Arc::clone(&fails), AtomicU32::new(0))).build().unwrap();
    // The second agent is asked once the first one waits.
    let middle = Agent::builder(asked(&[("work", "{}")]).calls("last", QUESTION).says("Done."));
    let middle =
        middle.tools(tools![work]).tools(fails_first.as_tool("last", "Fails first")).build().unwrap();
    let desk = Agent::builder(asked(&[("asks", QUESTION), ("middle", QUESTION)]).says("Done.")).name(&*name);
    let desk = desk.tools(asks.as_tool("asks", "Asks")).tools(middle.as_tool("middle", "Works"));
    let worker = Worker::new().agent(desk.build().unwrap());
    let _worker = serve(worker.model_patience(Duration::from_millis(100))).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let wait = waiting_calls(&run).await.remove(0);
    // The model of the last agent is being asked.
    tokio::time::sleep(Duration::from_millis(900)).await;
    run.decide(&wait.id, Decision::answer("12C")).await.unwrap();
    fails.notify_one();
    match within("the pause", run.wait()).await.unwrap() {
        RemoteOutcome::Paused(reason) => assert!(reason.contains("away"), "{reason}"),
        other => panic!("{other:?}"),
    }
    tokio::time::sleep(Duration::from_millis(1000)).await;
    run.resume().await.unwrap();
    let answer = within("the answer", answer(&run)).await;
    let asks = answer.inner_runs().iter().find(|inner| inner.agent() == "asks").unwrap();
    assert_eq!(asks.run().tool_executions()[0].output().unwrap().to_string(), "12C");
}

mod desk {
    use super::tool;

    #[tool("Cancels a booking of the desk")]
    pub(super) fn cancel() {}
}

mod travel {
    use super::{Attempt, tool};

    #[tool("Cancels a booking of the travel agency", attempts = 2)]
    pub(super) fn cancel(#[inject] attempt: &Attempt) -> Result<(), &'static str> {
        if attempt.number == 1 { Err("busy") } else { Ok(()) }
    }
}

/// Both agents have an undo tool of this name.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_tool_of_the_agent_that_booked_says_how_to_undo() {
    let (name, log) = (unique("desk"), Log::default());
    let model = asked(&[("book", "{}")]).calls("close", "{}");
    let travel = Agent::builder(model).tools(tools![book, close]).undo_tools(tools![travel::cancel]);
    let travel = travel.context(Arc::clone(&log)).build().unwrap();
    let desk = Agent::builder(asked(&[("book", "{}")]).calls("travel", "{}")).name(&*name);
    let desk = desk.tools(tools![book]).undo_tools(tools![desk::cancel]).context(log);
    let desk = desk.handoff_to("travel", "Books", &travel).build().unwrap();
    let _worker = serve(Worker::new().agent(desk)).await;
    let failure = failure(&agent(&name).ask("Book").send().await.unwrap()).await;
    let undone: Vec<_> =
        failure.undo_executions.iter().map(|one| (one.outcome().is_ok(), one.attempts())).collect();
    assert_eq!(undone, [(true, 2), (true, 1)]);
}

/// Has never an opinion.
struct Broken;

impl Layer for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        phase == LayerPhase::Output
    }

    fn output<'a>(&'a self, _: &'a ToolExecution, _: &'a LayerContext<'a>) -> LayerFuture<'a, OutputVerdict> {
        Box::pin(async { Err("broken".into()) })
    }
}

/// A layer that fails is asked again for as long as the run has time.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_layer_takes_no_more_time_than_its_run_has() {
    let name = unique("desk");
    let desk = Agent::builder(asked(&[("look", "{}")]).says("Done.")).name(&*name).tools(tools![look]);
    let desk = desk.layer(Broken).limits(|l| l.max_time(Duration::from_millis(700))).build().unwrap();
    let _worker = serve(Worker::new().agent(desk)).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let failure = within("the end", failure(&run)).await;
    assert!(matches!(failure.reason, Some(StopReason::MaxTime(_))), "{failure:?}");
}
