//! Layers that fail, hang, end runs in odd places, or are added to runs that wait.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use tests::support::ways::restored;
use tokio::sync::Notify;
use tool_core::agent::AgentBuilder;
use tool_core::layer::{
    AnswerVerdict, CallVerdict, Layer, LayerPhase, NextLayer, OutputVerdict, QuestionVerdict, guard, rewrite,
};
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ChatStream, ToolDefinition, ToolPolicy};
use tool_core::run::{Decision, StopReason, WaitReason};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Asker, ExternalTool};
use tool_core::{
    Agent, CancellationToken, Event, RunError, RunErrorKind, ToolCall, ToolError, ToolOutput, tool, tools,
};

/// What the tools did.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, done: String) {
        self.0.lock().unwrap().push(done);
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[tool("Acts", undo = "take_back")]
fn act(text: String, #[inject] log: &Log) -> String {
    log.add(format!("did {text}"));
    format!("did {text}")
}

#[tool("Takes an act back")]
fn take_back(text: String, #[inject] log: &Log) -> String {
    log.add(format!("took back {text}"));
    "taken back".into()
}

fn agent(model: ScriptedModel, log: &Log) -> AgentBuilder {
    Agent::builder(model).tools(tools![act]).undo_tools(tools![take_back]).context(log.clone())
}

fn two_turns() -> ScriptedModel {
    ScriptedModel::new().calls("act", r#"{"text": "a"}"#).calls("act", r#"{"text": "b"}"#).says("Done.")
}

fn is_blocked(error: &RunError) -> bool {
    matches!(error.kind(), RunErrorKind::Stopped(StopReason::Blocked { .. }))
}

#[tokio::test]
async fn an_end_about_an_undo_neither_skips_nor_repeats_one() {
    let log = Log::default();
    let ends = guard::output(|execution| match execution.to_string().contains("did a") {
        true => OutputVerdict::Pass,
        false => OutputVerdict::end("why"),
    });
    let agent = agent(two_turns(), &log).layer(ends).build().unwrap();
    let mut driver = agent.ask("go").start();
    for _ in 0..12 {
        if !driver.advance().await.unwrap() {
            break;
        }
    }
    assert_eq!(log.all(), ["did a", "did b", "took back b", "took back a"]);
    assert!(is_blocked(&driver.finish().await.unwrap_err()));
}

/// A layer that fails until it was asked so often.
fn fails(times: usize) -> impl Fn() -> Result<(), String> + Send + Sync + 'static {
    let asked = AtomicUsize::new(0);
    move || if asked.fetch_add(1, Ordering::Relaxed) < times { Err("down".into()) } else { Ok(()) }
}

#[tokio::test]
async fn a_call_whose_outcome_could_not_be_judged_is_not_executed_again() {
    for failures in 1..=3 {
        let log = Log::default();
        let down = fails(failures);
        let shout = guard::output(move |execution| {
            down().map(|()| OutputVerdict::replace(execution.output().unwrap().to_string().to_uppercase()))
        });
        let model = ScriptedModel::new()
            .calls_all([("act", r#"{"text": "a"}"#), ("act", r#"{"text": "b"}"#)])
            .says("Done.");
        let shown: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&shown);
        let agent = agent(model, &log).layer(shout).on_event(move |event| {
            if let Event::CallFinished(execution) = event {
                seen.lock().unwrap().push(execution.output().unwrap().to_string());
            }
        });
        let agent = agent.build().unwrap();
        let mut asked = agent.ask("go").await;
        while let Err(error) = asked {
            assert!(matches!(error.kind(), RunErrorKind::Layer { .. }), "{error}");
            asked = agent.resume(restored(error.into_run())).await;
        }
        let answer = asked.unwrap();
        assert_eq!(log.all(), ["did a", "did b"]);
        assert_eq!([2, 3].map(|at| answer.new_messages()[at].text().into_owned()), ["DID A", "DID B"]);
        shown.lock().unwrap().sort();
        assert_eq!(
            *shown.lock().unwrap(),
            ["DID A", "DID B"],
            "each outcome is shown once, after {failures}"
        );
        assert!(answer.tool_executions().iter().all(|execution| execution.attempts() == 1));
    }
}

#[tokio::test]
async fn a_step_driver_judges_an_outcome_again() {
    let log = Log::default();
    let down = fails(1);
    let shout = guard::output(move |_| down().map(|()| OutputVerdict::replace("seen")));
    let model = ScriptedModel::new().calls("act", r#"{"text": "a"}"#).says("Done.");
    let agent = agent(model, &log).layer(shout).build().unwrap();
    let mut driver = agent.ask("go").start();
    driver.advance().await.unwrap();
    let call = driver.run().current_calls().next().unwrap().0.clone();
    let execution = driver.execute(call).await.unwrap();
    let error = driver.record_result(execution).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Layer { .. }), "{error}");
    while driver.advance().await.unwrap() {}
    let answer = driver.finish().await.unwrap();
    assert_eq!((log.all(), &*answer.new_messages()[2].text()), (vec!["did a".to_owned()], "seen"));
}

#[tool("Pays", needs_approval)]
fn pay(cents: u32, #[inject] log: &Log) {
    log.add(format!("paid {cents}"));
}

/// A person who has approved other arguments than those that a layer writes is asked again.
#[tokio::test]
async fn an_approval_before_a_rewrite_binds_nothing() {
    for edits in [false, true] {
        let log = Log::default();
        let model = ScriptedModel::new().calls("pay", r#"{"cents": 1}"#).says("Done.");
        let before = Agent::builder(model).tools(tools![pay]).context(log.clone());
        let mut run = before.build().unwrap().ask("go").await.unwrap_err().into_run();
        let decision = if edits { Decision::approve_with(r#"{"cents": 2}"#) } else { Decision::approve() };
        let first = run.waits().remove(0).id;
        run.resolve(&first, decision).unwrap();

        let after =
            Agent::builder(ScriptedModel::new().says("Done.")).tools(tools![pay]).context(log.clone());
        let after = after.layer(rewrite::call(|_| Some(r#"{"cents":900}"#.into()))).build().unwrap();
        let mut run = after.resume(restored(run)).await.unwrap_err().into_run();
        assert_eq!(log.all(), [""; 0]);
        let wait = run.waits().remove(0);
        assert!(matches!(&wait.reason, WaitReason::Approval(call) if call.arguments == r#"{"cents":900}"#));
        assert_ne!(wait.id, first);
        run.resolve(&wait.id, Decision::approve()).unwrap();
        let answer = after.resume(restored(run)).await.unwrap();
        assert_eq!(log.all(), ["paid 900"]);
        assert_eq!(answer.tool_executions()[0].original_arguments(), r#"{"cents": 1}"#);
    }
}

#[tool("Books")]
async fn book(text: String, #[inject] log: &Log, #[inject] user: &Asker) -> Result<String, ToolError> {
    let seat: String = user.ask("Which seat?").await?;
    log.add(format!("booked {text} {seat}"));
    Ok("booked".into())
}

/// A layer that is added while a call asks a person does not change its arguments under it.
#[tokio::test]
async fn a_call_that_has_begun_is_not_rewritten() {
    let log = Log::default();
    let model = ScriptedModel::new().calls("book", r#"{"text": "a"}"#).says("Done.");
    let before = Agent::builder(model).tools(tools![book]).context(log.clone()).build().unwrap();
    let mut run = before.ask("go").await.unwrap_err().into_run();
    let wait = run.waits().remove(0).id;
    run.resolve(&wait, Decision::answer("1A")).unwrap();
    let after = Agent::builder(ScriptedModel::new().says("Done.")).tools(tools![book]).context(log.clone());
    let after = after.layer(rewrite::call(|_| Some(r#"{"text":"b"}"#.into()))).build().unwrap();
    let _ = after.resume(restored(run)).await.unwrap();
    assert_eq!(log.all(), ["booked a 1A"]);
}

#[tokio::test]
async fn an_end_inside_an_agent_is_not_retried() {
    let log = Log::default();
    let call = (r#"{"text": "a"}"#, r#"{"question": "go"}"#);
    let inner = ScriptedModel::new().calls("act", call.0).calls("act", call.0).says("Done.");
    let inner = agent(inner, &log).build().unwrap();
    let mut policy = ToolPolicy::default();
    policy.attempts = 2;
    let down = fails(1);
    let ends_once = guard::call(move |call: &ToolCall| match call.name == "act" && down().is_err() {
        true => CallVerdict::end("why"),
        false => CallVerdict::Pass,
    });
    let outer = ScriptedModel::new().calls("helper", call.1).says("Done.");
    let outer = Agent::builder(outer).tools(inner.as_tool("helper", "Helps").policy(policy)).layer(ends_once);
    let error = outer.build().unwrap().ask("go").await.unwrap_err();
    assert!(is_blocked(&error), "{error}");
    assert_eq!(log.all(), [""; 0]);
}

#[tokio::test]
async fn a_message_of_the_user_hides_no_result_of_the_caller() {
    let model = ScriptedModel::new().calls("look", "{}").says("Done.");
    let look = ExternalTool::new(ToolDefinition::new("look").with_description("Looks"));
    let hide = rewrite::output(|_, output| output.to_string().replace("secret", "…"));
    let agent = Agent::builder(model).tools(look).layer(hide).build().unwrap();
    let mut run = agent.ask("go").await.unwrap_err().into_run();
    let wait = run.waits().remove(0).id;
    run.deny_and_say("hurry").unwrap();
    run.deny_and_say("please").unwrap();
    run.resolve(&wait, Decision::result(Ok(ToolOutput::text("a secret")))).unwrap();
    let answer = agent.resume(restored(run)).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "a …");
}

/// Boxed futures are verdicts, too.
type Never<V> = Pin<Box<dyn Future<Output = V> + Send>>;

#[tokio::test(start_paused = true)]
async fn layers_that_hang_are_interrupted() {
    let builders: [fn(AgentBuilder) -> AgentBuilder; 4] = [
        |agent| agent.layer(guard::question(|_| Box::pin(pending()) as Never<QuestionVerdict>)),
        |agent| agent.layer(guard::call(|_: &ToolCall| Box::pin(pending()) as Never<CallVerdict>)),
        |agent| {
            agent.layer(guard::output(|execution| match &*execution.call().name {
                "act" => Box::pin(pending()) as Never<OutputVerdict>,
                _ => Box::pin(async { OutputVerdict::Pass }),
            }))
        },
        |agent| agent.layer(guard::answer(|_| Box::pin(pending()) as Never<AnswerVerdict>)),
    ];
    for (part, layered) in builders.into_iter().enumerate() {
        let log = Log::default();
        let agent = layered(agent(two_turns(), &log))
            .limits(|l| l.max_time(Duration::from_millis(50)))
            .build()
            .unwrap();
        let asked = tokio::time::timeout(Duration::from_secs(3), agent.ask("go")).await;
        let error = asked.unwrap_or_else(|_| panic!("part {part} hangs")).unwrap_err();
        assert_eq!(error.to_string(), "the run took longer than 50ms; raise `max_time`", "{part}");
        let expected: &[&str] = match part {
            0 | 1 => &[],
            2 => &["did a", "took back a"],
            _ => &["did a", "did b", "took back b", "took back a"],
        };
        assert_eq!(log.all(), expected, "{part}");
    }
}

#[tool("Signals after a while")]
async fn signal(#[inject] bell: &Arc<Notify>) {
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
    bell.notify_one();
}

/// An output can be judged by something that another call in flight holds.
#[tokio::test(start_paused = true)]
async fn other_calls_continue_while_an_output_is_judged() {
    let log = Log::default();
    let bell = Arc::new(Notify::new());
    let waiting = Arc::clone(&bell);
    let waits = guard::output(move |execution| {
        let is_first = execution.call().name == "act";
        let bell = Arc::clone(&waiting);
        Box::pin(async move {
            if is_first {
                bell.notified().await;
            }
            OutputVerdict::Pass
        }) as Never<OutputVerdict>
    });
    let model = ScriptedModel::new().calls_all([("act", r#"{"text": "a"}"#), ("signal", "{}")]).says("Done.");
    let agent = agent(model, &log).tools(tools![signal]).context(bell).layer(waits).build().unwrap();
    let asked = tokio::time::timeout(Duration::from_secs(3), agent.ask("go")).await;
    assert_eq!(asked.expect("the call in flight is not driven").unwrap().text(), "Done.");
}

/// All outcomes that end while one is judged are judged as well, each call is executed once, and the first that ends the run ends it.
#[tokio::test]
async fn outcomes_that_end_together_are_judged_one_by_one() {
    for calls in 1..=6 {
        for ends in [None, Some(0), Some(1)] {
            let log = Log::default();
            let judged = Arc::new(std::sync::atomic::AtomicUsize::new(0));
            let count = Arc::clone(&judged);
            let guard = guard::output(move |_| {
                let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                match ends == Some(number) {
                    true => OutputVerdict::end("enough"),
                    false => OutputVerdict::Pass,
                }
            });
            let texts: Vec<_> = (0..calls).map(|number| format!(r#"{{"text": "{number}"}}"#)).collect();
            let model =
                ScriptedModel::new().calls_all(texts.iter().map(|text| ("act", &**text))).says("Done.");
            let outcome = agent(model, &log).layer(guard).build().unwrap().ask("go").await;
            let acted = log.all().len();
            match ends.filter(|at| *at < calls) {
                None => {
                    assert_eq!(outcome.unwrap().tool_executions().len(), calls);
                    assert_eq!((acted, judged.load(std::sync::atomic::Ordering::SeqCst)), (calls, calls));
                }
                Some(_) => assert!(outcome.unwrap_err().to_string().contains("enough")),
            }
        }
    }
}

/// An agent in flight needs its state to be stored before it goes on.
#[tokio::test(start_paused = true)]
async fn agents_in_flight_continue_while_an_output_is_judged() {
    let log = Log::default();
    let bell = Arc::new(Notify::new());
    let waiting = Arc::clone(&bell);
    let waits = guard::output(move |execution| {
        let is_first = execution.call().name == "act";
        let bell = Arc::clone(&waiting);
        Box::pin(async move {
            if is_first {
                bell.notified().await;
            }
            OutputVerdict::Pass
        }) as Never<OutputVerdict>
    });
    let inner = ScriptedModel::new().calls("signal", "{}").calls("signal", "{}").says("Rung.");
    let inner = Agent::builder(inner).tools(tools![signal]).context(bell).build().unwrap();
    let calls = [("act", r#"{"text": "a"}"#), ("helper", r#"{"question": "ring"}"#)];
    let model = ScriptedModel::new().calls_all(calls).says("Done.");
    let agent = agent(model, &log).tools(inner.as_tool("helper", "Helps")).layer(waits).build().unwrap();
    let asked = tokio::time::timeout(Duration::from_secs(3), agent.ask("go")).await;
    let answer = asked.expect("the agent in flight waits for the driver").unwrap();
    assert_eq!([2, 3].map(|at| answer.new_messages()[at].text().into_owned()), ["did a", "Rung."]);
    assert_eq!(answer.inner_runs()[0].run().tool_executions().len(), 2);
}

/// A call in flight reaches a limit of the run while the output of another is judged: that one counts as interrupted, and is undone.
#[tokio::test(start_paused = true)]
async fn a_limit_that_an_agent_in_flight_reaches_ends_a_verdict() {
    let log = Log::default();
    let waits = guard::output(|execution| match &*execution.call().name {
        "act" => Box::pin(pending()) as Never<OutputVerdict>,
        _ => Box::pin(async { OutputVerdict::Pass }),
    });
    let inner = ScriptedModel::new().calls("signal", "{}").says("Rung.");
    let inner = Agent::builder(inner).tools(tools![signal]).context(Arc::new(Notify::new()));
    let inner = inner.build().unwrap().as_tool("helper", "Helps");
    let calls = [("act", r#"{"text": "a"}"#), ("helper", r#"{"question": "ring"}"#)];
    let model = ScriptedModel::new().calls_all(calls).says("Done.");
    let agent = agent(model, &log).tools(inner).layer(waits).limits(|l| l.max_calls(2)).build().unwrap();
    let asked = tokio::time::timeout(Duration::from_secs(3), agent.ask("go")).await;
    let error = asked.expect("the limit is not seen").unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxCalls(2))), "{error}");
    assert_eq!(log.all(), ["did a", "took back a"]);
}

/// What one layer has replaced stays in the record if another one ends the run because of the same outcome.
#[tokio::test]
async fn a_replacement_is_recorded_if_another_layer_ends_the_run() {
    let look = || ExternalTool::new(ToolDefinition::new("look").with_description("Looks"));
    for (tool, arguments, expected) in [
        ("act", r#"{"text": "a"}"#, &["hide"][..]),
        ("act", r#"{"text": "cached"}"#, &["cache", "hide"]),
        ("act", "{}", &["hide"]),
        ("look", "{}", &["hide"]),
    ] {
        let asked: Arc<AtomicUsize> = Arc::default();
        let count = Arc::clone(&asked);
        let cache = guard::call(|call: &ToolCall| match call.arguments.contains("cached") {
            true => CallVerdict::replace("a secret"),
            false => CallVerdict::Pass,
        });
        let hide = guard::output(|_| OutputVerdict::replace("hidden"));
        let ends = guard::output(move |execution| {
            assert!(execution.to_string().ends_with("hidden"), "{execution}");
            count.fetch_add(1, Ordering::Relaxed);
            OutputVerdict::end("why")
        });
        let model = ScriptedModel::new().calls(tool, arguments).says("Done.");
        let agent = agent(model, &Log::default()).tools(look()).layer(cache.named("cache"));
        let agent = agent.layer(hide.named("hide")).layer(ends.named("ends")).build().unwrap();
        let mut error = agent.ask("go").await.unwrap_err();
        if let Some(wait) = error.run().waits().pop() {
            let mut run = error.into_run();
            run.resolve(&wait.id, Decision::result(Ok(ToolOutput::text("a secret")))).unwrap();
            error = agent.resume(restored(run)).await.unwrap_err();
        }
        assert!(is_blocked(&error), "{error}");
        let execution = &error.run().tool_executions()[0];
        let by: Vec<_> = execution.verdicts().iter().map(|verdict| &*verdict.layer).collect();
        assert_eq!(by, expected, "{tool} {arguments}");
        assert_eq!(execution.output().unwrap().to_string(), "hidden", "{tool} {arguments}");
        assert_eq!(error.new_messages().last().unwrap().text(), "hidden");
        assert_eq!(
            asked.load(Ordering::Relaxed),
            if tool == "look" { 1 } else { 1 + usize::from(arguments.contains("\"a\"")) }
        );
    }
}

#[tokio::test]
async fn a_reply_to_a_question_that_was_not_judged_is_refused() {
    let guard = guard::question(|_| QuestionVerdict::answer("No."));
    let agent = Agent::builder(ScriptedModel::new()).layer(guard).build().unwrap();
    let mut driver = agent.ask("bomb").start();
    let reply = ChatResponse::new(AssistantMessage::text("Gladly."));
    let error = driver.record_response(reply).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Step(_)), "{error}");
    while driver.advance().await.unwrap() {}
    assert_eq!(driver.finish().await.unwrap().text(), "No.");
}

/// The response of `call_model` is for the step that asked for it.
#[tokio::test]
async fn a_reply_of_the_caller_does_not_take_the_place_of_another() {
    let model = ScriptedModel::new().says("One.").says("Two.");
    let agent = Agent::builder(model).layer(rewrite::request(|request| request)).build().unwrap();
    let mut driver = agent.ask("go").start();
    let _ = driver.call_model().await.unwrap();
    let _ = driver.next().await.unwrap();
    let reply = ChatResponse::new(AssistantMessage::text("Three."));
    let error = driver.record_response(reply).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Step(_)), "{error}");
}

/// The answer of a guard is none of the type, and the model is not asked for a better one.
#[tokio::test]
async fn a_blocked_question_is_not_asked_again_for_a_type() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let guard = guard::question(move |_| match count.fetch_add(1, Ordering::Relaxed) {
        0 => QuestionVerdict::answer("No."),
        _ => QuestionVerdict::Pass,
    });
    let model = ScriptedModel::new().calls("final_answer", r#"{"answer": 42}"#);
    let agent = Agent::builder(model.clone()).layer(guard).build().unwrap();
    let error = agent.ask("bomb").answer_as::<u32>().await.unwrap_err();
    assert_eq!(error.to_string(), "the layer `guard::question` has ended the run: No.");
    assert_eq!((asked.load(Ordering::Relaxed), model.requests().len()), (1, 0));
}

#[tool("Acts", return_direct)]
fn act_directly() -> String {
    "unjudged".into()
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_shows_no_output_that_nobody_judged() {
    let cancellation = CancellationToken::new();
    let cancels = cancellation.clone();
    let hangs = guard::answer(move |_| {
        cancels.cancel();
        Box::pin(pending()) as Never<AnswerVerdict>
    });
    let model = ScriptedModel::new().calls("act_directly", "{}");
    let agent = Agent::builder(model).tools(tools![act_directly]).layer(hangs).build().unwrap();
    let asked = agent.ask("go").cancellation_token(cancellation);
    let error = tokio::time::timeout(Duration::from_secs(3), asked).await.expect("it hangs").unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)), "{error}");
}

#[tool("Counts", pure)]
fn count(text: String) -> String {
    text.len().to_string()
}

/// An earlier output is reused only if the layers let the call pass.
#[tokio::test]
async fn a_call_is_judged_before_an_output_is_reused() {
    let down = fails(2);
    let asked = AtomicUsize::new(0);
    let judges = guard::call(move |_: &ToolCall| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Ok(CallVerdict::Pass),
        _ => down().map(|()| CallVerdict::deny("why")),
    });
    let model = ScriptedModel::new()
        .calls("count", r#"{"text": "a"}"#)
        .calls("count", r#"{"text": "a"}"#)
        .says("Done.");
    let agent = Agent::builder(model).tools(tools![count]).layer(judges).build().unwrap();
    let mut asked = agent.ask("go").await;
    while let Err(error) = asked {
        assert!(matches!(error.kind(), RunErrorKind::Layer { .. }), "{error}");
        asked = agent.resume(restored(error.into_run())).await;
    }
    assert_eq!(asked.unwrap().new_messages()[4].text(), "the call was denied: why");
}

struct Panics(bool);

impl Layer for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        phase == LayerPhase::Model
    }

    fn model<'a>(&'a self, request: ChatRequest<'a>, next: NextLayer<'a>) -> ChatStream<'a> {
        assert!(self.0, "at once");
        ChatStream::new(next.call(request).map(|_| panic!("later")))
    }
}

/// A panic on the way of a request is an error of the layer, and the run can be resumed.
#[tokio::test]
async fn a_panic_on_the_way_of_a_request_is_an_error() {
    for is_late in [false, true] {
        let model = ScriptedModel::new().says("One.").says("Two.").says("Three.");
        let agent = Agent::builder(model).layer(Panics(is_late)).build().unwrap();
        let why = if is_late { "later" } else { "at once" };
        let expected = format!("the layer `panics` failed: it panicked: {why}");
        let error = agent.ask("go").await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Layer { layer, .. } if layer == "panics"), "{error}");
        assert_eq!(error.to_string(), expected);
        let mut events = agent.ask("go").stream();
        let mut end = None;
        while let Some(event) = events.next().await {
            end = event.err();
        }
        assert_eq!(end.unwrap().to_string(), expected);
    }
}
