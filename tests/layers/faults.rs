//! Layers that hang, fail or panic, and what is recorded then.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use tests::support::ways::restored;
use tool_core::agent::{AgentBuilder, EventStream};
use tool_core::layer::{
    AnswerVerdict, CallVerdict, Layer, LayerContext, LayerFuture, LayerPhase, NextLayer, OutputVerdict,
    QuestionVerdict, RecordedCall, TextVerdict, guard, rewrite,
};
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ChatStream, ToolDefinition, Usage};
use tool_core::run::Decision;
use tool_core::signatures::VerdictRecord;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{CallToUndo, ExternalTool, ToolExecution};
use tool_core::{Agent, CancellationToken, Event, RunError, ToolCall, ToolError, ToolOutput, tool, tools};
use tool_openai::server::Server;

use crate::entrances::post;

#[tool("Acts")]
fn act() -> String {
    "unjudged".into()
}

#[tool("Acts", return_direct)]
fn act_directly() -> String {
    "unjudged".into()
}

fn look() -> ExternalTool {
    ExternalTool::new(ToolDefinition::new("look").with_description("Looks"))
}

/// Never returns a verdict about this part. Cancels the run if it has its token.
struct Hang(LayerPhase, Option<CancellationToken>);

impl Hang {
    fn hang<'a, V: Send + 'a>(&'a self) -> LayerFuture<'a, V> {
        self.1.iter().for_each(CancellationToken::cancel);
        Box::pin(pending())
    }
}

impl Layer for Hang {
    fn name(&self) -> &str {
        "hang"
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        phase == self.0
    }

    fn output<'a>(&'a self, _: &'a ToolExecution, _: &'a LayerContext<'a>) -> LayerFuture<'a, OutputVerdict> {
        self.hang()
    }

    fn decided<'a>(
        &'a self,
        _: &'a VerdictRecord,
        _: Option<&'a ToolCall>,
        _: &'a LayerContext<'a>,
    ) -> LayerFuture<'a, ()> {
        self.hang()
    }

    fn answer<'a>(&'a self, _: &'a str, _: &'a LayerContext<'a>) -> LayerFuture<'a, AnswerVerdict> {
        self.hang()
    }
}

fn replies(calls: &[&str], text: &str) -> ScriptedModel {
    let calls = calls.iter().map(|name| ToolCall::new("call_1", *name, "{}"));
    let usage = Usage::new(5, 2);
    let message = AssistantMessage::text(text).with_tool_calls(calls);
    ScriptedModel::new().replies(ChatResponse::new(message)).with_usage(usage).says("End.")
}

/// Drives a stream to its error. Returns the text that arrives.
async fn stream_to_error(mut events: EventStream) -> (String, RunError) {
    let mut shown = String::new();
    let driven = async {
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Text(text)) => shown.push_str(&text),
                Ok(_) => {}
                Err(error) => return error,
            }
        }
        panic!("the run has an answer")
    };
    let error = tokio::time::timeout(Duration::from_secs(120), driven).await.expect("it hangs");
    (shown, error)
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_hangs_obeys_the_limits_of_the_run() {
    let cases: [(LayerPhase, &[&str], &str); 5] = [
        (LayerPhase::Answer, &[], "unjudged"),
        (LayerPhase::Answer, &["act"], "unjudged"),
        (LayerPhase::Answer, &["act_directly"], ""),
        (LayerPhase::Output, &["act"], ""),
        (LayerPhase::Output, &["look"], ""),
    ];
    for (part, calls, text) in cases {
        for is_cancelled in [false, true] {
            let token = CancellationToken::new();
            let agent = Agent::builder(replies(calls, text))
                .tools(tools![act, act_directly])
                .tools(look())
                .layer(Hang(part, is_cancelled.then(|| token.clone())))
                .build()
                .unwrap();
            let limit = if is_cancelled { Duration::from_secs(100) } else { Duration::from_millis(50) };
            let asked = agent.ask("go").limits(|l| l.max_time(limit)).cancellation_token(token.clone());
            let (mut shown, mut error) = stream_to_error(asked.stream()).await;
            if let Some(wait) = error.run().waits().pop() {
                let mut run = error.into_run();
                run.resolve(&wait.id, Decision::result(Ok(ToolOutput::text("supplied")))).unwrap();
                let resumed = agent.resume(restored(run)).cancellation_token(token);
                (shown, error) = stream_to_error(resumed.stream()).await;
            }
            let expected = match is_cancelled {
                true => "the run was cancelled",
                false => "the run took longer than 50ms; raise `max_time`",
            };
            assert_eq!(error.to_string(), expected, "{part:?} {calls:?}");
            let read = error.new_messages().iter().map(|message| message.text().into_owned());
            shown.extend(read);
            assert!(!shown.contains("unjudged"), "{part:?} {calls:?}: {shown}");
            assert_eq!(error.run().usage().total_tokens, 7, "{part:?} {calls:?}");
        }
    }
}

#[tokio::test]
async fn a_reply_that_is_blocked_beside_counts_its_tokens() {
    let guard = guard::question(|_| -> LayerFuture<'static, QuestionVerdict> {
        Box::pin(async {
            // The model is first.
            tokio::task::yield_now().await;
            Ok(QuestionVerdict::end("no"))
        })
    });
    let agent = Agent::builder(replies(&[], "unjudged")).layer(guard.beside()).build().unwrap();
    let error = agent.ask("go").await.unwrap_err();
    assert_eq!(error.to_string(), "the layer `guard::question` has ended the run: no");
    assert_eq!(error.run().usage().total_tokens, 7);
}

/// A message of the user comes between a result of the caller and the model.
#[tokio::test]
async fn results_behind_a_message_of_the_user_are_judged() {
    for is_said_first in [true, false] {
        let model = ScriptedModel::new().calls("look", "{}").says("Done.");
        let redact = rewrite::output(|_, output| output.to_string().replace("secret", "…"));
        let agent = Agent::builder(model.clone()).tools(look()).layer(redact).build().unwrap();
        let mut run = agent.ask("go").await.unwrap_err().into_run();
        let wait = run.waits().remove(0);
        if is_said_first {
            run.deny_and_say("and?").unwrap();
        }
        run.resolve(&wait.id, Decision::result(Ok(ToolOutput::text("a secret")))).unwrap();
        if !is_said_first {
            run.deny_and_say("and?").unwrap();
        }
        agent.resume(restored(run)).await.unwrap();
        let read: Vec<_> = model.requests()[1].iter().map(|message| message.text().into_owned()).collect();
        assert_eq!(read, ["go", "", "a …", "and?"]);
    }
}

static EXECUTIONS: AtomicU32 = AtomicU32::new(0);

#[tool("Pays", attempts = 2)]
fn pay(is_paid: bool) -> Result<String, ToolError> {
    EXECUTIONS.fetch_add(1, Ordering::Relaxed);
    if is_paid { Ok("paid".into()) } else { Err(ToolError::failed("not paid")) }
}

/// A layer of a set sees the last attempt alone, like one of an agent.
#[tokio::test(start_paused = true)]
async fn outputs_that_a_layer_of_a_set_fails_are_not_retried() {
    let judged: Arc<AtomicU32> = Arc::default();
    let cases = [("true", "refused"), ("true", "fails"), ("false", "refused"), ("false", "fails")];
    for (is_paid, does) in cases {
        EXECUTIONS.store(0, Ordering::Relaxed);
        judged.store(0, Ordering::Relaxed);
        let count = Arc::clone(&judged);
        let guard = guard::output(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            match does {
                "refused" => Ok(OutputVerdict::fail(ToolError::failed("refused"))),
                _ => Err("the service is down"),
            }
        });
        let arguments = format!(r#"{{"is_paid": {is_paid}}}"#);
        let model = ScriptedModel::new().calls("pay", arguments).says("Done.");
        let agent = Agent::builder(model).tools(tools![pay].layer(guard)).build().unwrap();
        let answer = agent.ask("go").await.unwrap();
        let read = answer.new_messages()[2].text();
        let expected = if does == "fails" { "the layer `guard::output` failed" } else { "refused" };
        assert_eq!(read, expected, "{is_paid} {does}");
        let expected = if is_paid == "true" { 1 } else { 2 };
        assert_eq!(EXECUTIONS.load(Ordering::Relaxed), expected, "{is_paid} {does}");
        assert_eq!(judged.load(Ordering::Relaxed), 1, "{is_paid} {does}");
    }
}

struct PanicsAtRequests;

impl Layer for PanicsAtRequests {
    fn name(&self) -> &str {
        "panics"
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        phase == LayerPhase::Model
    }

    fn model<'a>(&'a self, _: ChatRequest<'a>, _: NextLayer<'a>) -> ChatStream<'a> {
        panic!("here")
    }
}

#[tokio::test]
async fn a_panic_on_the_way_to_the_model_is_an_error_of_the_layer() {
    let add: fn(&str, AgentBuilder) -> AgentBuilder = |name, agent| match name {
        "panics" => agent.layer(PanicsAtRequests),
        "guard::text" => agent.layer(guard::text(9, |_| panic!("here"))),
        _ => agent.layer(rewrite::request(|_| panic!("here"))),
    };
    for name in ["panics", "guard::text", "rewrite::request"] {
        for is_streamed in [false, true] {
            let model = ScriptedModel::new().says("Done.");
            // A layer around it sees an error.
            let passing = rewrite::request(|request| request).named("passing");
            let agent = add(name, Agent::builder(model).layer(passing)).build().unwrap();
            let error = match is_streamed {
                true => stream_to_error(agent.ask("go").stream()).await.1,
                false => agent.ask("go").await.unwrap_err(),
            };
            assert_eq!(error.to_string(), format!("the layer `{name}` failed: it panicked: here"));
            assert!(!error.run().is_done());
        }
    }
}

/// Both agents have a guard of the same name.
#[tokio::test]
async fn the_end_of_an_inner_reply_ends_the_run_of_its_layer() {
    let guard = |word: &'static str| {
        guard::text(
            9,
            move |text| if text.contains(word) { TextVerdict::end(word) } else { TextVerdict::Pass },
        )
    };
    for (word, expected) in
        [("inner", Ok("Done.")), ("outer", Err("the layer `guard::text` has ended the run: outer"))]
    {
        let inner = Agent::builder(ScriptedModel::new().says(word)).layer(guard("inner")).build().unwrap();
        let model = ScriptedModel::new().calls("inner", r#"{"question": "?"}"#).says("Done.");
        let tool = inner.as_tool("inner", "Helps");
        let agent = Agent::builder(model).tools(tool).layer(guard("outer")).build().unwrap();
        let answer = agent.ask("go").await;
        let answer = answer.map(|answer| answer.text().to_owned()).map_err(|error| error.to_string());
        assert_eq!(answer.as_deref().map_err(String::as_str), expected);
    }
}

/// A layer of the first agent has the name under which layers of later agents are recorded.
#[tokio::test]
async fn layers_of_several_agents_judge_a_question_each() {
    let asked: Arc<AtomicU32> = Arc::default();
    let guard = |name: &str| {
        let asked = Arc::clone(&asked);
        guard::question(move |_| {
            asked.fetch_add(1, Ordering::Relaxed);
            QuestionVerdict::Pass
        })
        .named(name)
    };
    let second = Agent::builder(ScriptedModel::new().says("Done.")).layer(guard("x")).build().unwrap();
    let first =
        Agent::builder(ScriptedModel::new().calls("second", "{}")).handoff_to("second", "Helps", &second);
    let answer = first.layer(guard("1/x")).build().unwrap().ask("go").await.unwrap();
    assert_eq!(answer.text(), "Done.");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn reasoning_without_a_text_that_was_judged_is_not_shown() {
    for (text, expected) in [("", ""), ("Looking.", "unjudged")] {
        let mut message =
            AssistantMessage::text(text).with_tool_calls([ToolCall::new("call_1", "act", "{}")]);
        message.reasoning = Some("unjudged".into());
        let model = ScriptedModel::new().replies(ChatResponse::new(message)).says("Done.");
        let pass = guard::answer(|_| AnswerVerdict::Pass);
        let agent = Agent::builder(model).tools(tools![act]).layer(pass).build().unwrap();
        let mut events = agent.ask("go").stream();
        let (mut streamed, mut in_turns) = (String::new(), String::new());
        while let Some(event) = events.next().await {
            match event.unwrap() {
                Event::Reasoning(text) => streamed.push_str(&text),
                Event::TurnFinished { response, .. } => {
                    in_turns.push_str(response.message.reasoning.as_deref().unwrap_or_default());
                }
                _ => {}
            }
        }
        assert_eq!((&*streamed, &*in_turns), (expected, expected), "{text}");
    }
}

/// A server shows the reasoning of all turns.
#[tokio::test]
async fn reasoning_without_a_text_that_was_judged_is_in_no_record() {
    for is_streamed in [false, true] {
        let mut message = AssistantMessage::default().with_tool_calls([ToolCall::new("call_1", "act", "{}")]);
        message.reasoning = Some("a secret".into());
        let model = ScriptedModel::new().replies(ChatResponse::new(message)).says("Done.");
        let pass = guard::answer(|_| AnswerVerdict::Pass);
        let agent = Agent::builder(model).tools(tools![act]).layer(pass).build().unwrap();
        let server = Server::new().agent("a", agent).spawn("127.0.0.1:0").await.unwrap();
        let url = format!("{}/chat/completions", server.url());
        let question = json!({ "role": "user", "content": "go" });
        let body = json!({ "model": "a", "stream": is_streamed, "messages": [question] });
        let replies = json!(post(&url, &body).await).to_string();
        assert!(replies.contains("Done.") && !replies.contains("a secret"), "{replies}");
    }
}

/// A reader sends the position that it has, which can be any number.
#[tokio::test]
async fn positions_of_events_do_not_overflow() {
    let agent = Agent::builder(ScriptedModel::new().says("Done.")).build().unwrap();
    let records: Vec<_> = agent.ask("go").stream().records(u64::MAX - 1).collect().await;
    let positions: Vec<_> = records.into_iter().map(|record| record.unwrap().position).collect();
    assert_eq!(positions, [u64::MAX; 5]);
}

#[tool("Looks up", return_direct, undo = "cancel")]
fn book() -> ToolOutput {
    ToolOutput::text("booking 7").with_data(json!(7))
}

#[tool("Cancels")]
fn cancel(#[inject] undone: &CallToUndo) -> String {
    undone.output.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string)
}

/// A layer that learns of a decision must not hold the run for ever.
#[tokio::test(start_paused = true)]
async fn a_report_that_hangs_is_interrupted() {
    let model = || ScriptedModel::new().says("a");
    let agents = [
        Agent::builder(model()).layer(guard::text(8, |_| TextVerdict::end("why"))),
        Agent::builder(model()).layer(guard::question(|_| QuestionVerdict::answer("b")).beside()),
        Agent::builder(model()).layer(guard::answer(|_| AnswerVerdict::replace("b"))),
    ];
    for agent in agents {
        let token = CancellationToken::new();
        let agent = agent.layer(Hang(LayerPhase::Judge, Some(token.clone()))).build().unwrap();
        let asked = agent.ask("go").cancellation_token(token);
        let error = tokio::time::timeout(Duration::from_secs(3), asked).await.expect("it hangs").unwrap_err();
        assert_eq!(error.to_string(), "the run was cancelled");
    }
}

/// Counts what it records, each after a second, and then fails or hangs.
struct Recorder(&'static str, Arc<AtomicU32>);

impl Layer for Recorder {
    fn name(&self) -> &str {
        self.0
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        phase == LayerPhase::Record
    }

    fn record<'a>(&'a self, _: RecordedCall<'a>, _: &'a LayerContext<'a>) -> LayerFuture<'a, ()> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.1.fetch_add(1, Ordering::Relaxed);
            match self.0 {
                "fails" => Err("the disk is full".into()),
                "hangs" => pending().await,
                _ => Ok(()),
            }
        })
    }
}

/// What was taken from the run to be told is told to everybody, also if a layer cannot record it.
#[tokio::test(start_paused = true)]
async fn a_layer_that_cannot_record_keeps_nothing_from_the_others() {
    for (name, message) in [
        ("fails", "the layer `fails` failed: the disk is full"),
        ("hangs", "the layer `hangs` failed: it took longer than 10s to record"),
    ] {
        let counts: [Arc<AtomicU32>; 3] = Default::default();
        let [of_failing, of_other, of_hook] = counts.clone();
        let agent =
            Agent::builder(ScriptedModel::new().calls_all([("act", "{}"), ("act", r#"{ }"#)]).says("b"))
                .tools(tools![act])
                .layer(Recorder(name, of_failing))
                .layer(Recorder("records", of_other))
                .layer(guard::call(|_: &ToolCall| CallVerdict::deny("no")))
                .on_event(move |event| {
                    of_hook.fetch_add(matches!(event, Event::CallFinished(_)).into(), Ordering::Relaxed);
                })
                .build()
                .unwrap();
        let error = agent.ask("go").await.unwrap_err();
        assert_eq!(error.to_string(), message);
        let answer = agent.resume(error.into_run()).await.unwrap();
        assert_eq!(answer.text(), "b");
        assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [2, 2, 2], "{name}");
    }
}

/// The calls of a run that ends early are recorded as all others.
#[tokio::test(start_paused = true)]
async fn neither_a_cancellation_nor_a_limit_interrupts_records() {
    for is_cancelled in [true, false] {
        let (count, token) = (Arc::<AtomicU32>::default(), CancellationToken::new());
        let ends = token.clone();
        let agent = Agent::builder(ScriptedModel::new().calls("act", "{}").says("b"))
            .tools(tools![act])
            .limits(|l| l.max_time(Duration::from_millis(500)))
            .layer(Recorder("records", Arc::clone(&count)))
            .layer(guard::output(move |_: &ToolExecution| {
                if is_cancelled {
                    ends.cancel();
                }
                OutputVerdict::Pass
            }))
            .build()
            .unwrap();
        agent.ask("go").cancellation_token(token).await.unwrap_err();
        assert_eq!(count.load(Ordering::Relaxed), 1, "{is_cancelled}");
    }
}

/// The run in memory has what a stored one has.
#[tokio::test]
async fn a_rejected_answer_of_tools_is_rejected_in_the_record() {
    let model = ScriptedModel::new().calls("book", "{}").fails("the line is dead");
    let retry = guard::answer(|_| AnswerVerdict::retry("no"));
    let agent = Agent::builder(model).tools(tools![book, cancel]).layer(retry).build().unwrap();
    let run = agent.ask("go").await.unwrap_err().into_run();
    for run in [&run, &restored(run.clone())] {
        let execution = &run.tool_executions()[0];
        let output = execution.output().unwrap();
        assert_eq!((&*output.to_string(), output.data()), ("(this answer was rejected)", None));
        assert_eq!(execution.original_outcome().unwrap().to_string(), "booking 7");
    }
}

/// What layers make of an outcome changes nothing about the effect of the call.
#[tokio::test]
async fn calls_are_undone_by_the_outcome_before_layers() {
    let verdicts = [
        OutputVerdict::Pass,
        OutputVerdict::replace("…"),
        OutputVerdict::fail(ToolError::failed("no")),
        OutputVerdict::fail(ToolError::denied(None)),
    ];
    for verdict in verdicts {
        let model = ScriptedModel::new().calls("book", "{}").says("Done.");
        let name = format!("{verdict:?}");
        let output = guard::output(move |execution| match execution.call().name.as_str() {
            "book" => verdict.clone(),
            _ => OutputVerdict::Pass,
        });
        let end = guard::answer(|_| AnswerVerdict::end("no"));
        let agent =
            Agent::builder(model).tools(tools![book, cancel]).layer(output).layer(end).build().unwrap();
        let error = agent.ask("go").await.unwrap_err();
        let undone: Vec<_> =
            error.run().undo_executions().iter().map(|one| one.output().map(ToString::to_string)).collect();
        assert_eq!(undone, [Some("booking 7".to_owned())], "{name}");
    }
}
