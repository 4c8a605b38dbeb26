//! The loop: every scripted run is awaited, streamed, and driven step by step with the run serialized and restored
//! at every step, with the same outcome.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use tests::support::ways::alike;
use tool_core::agent::AgentBuilder;
use tool_core::model::{AssistantMessage, ChatResponse, FinishReason, ToolChoice, Usage};
use tool_core::run::{Step, StopReason};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, Answer, ChatModel, Event, Message, RunError, RunErrorKind, ToolCall, tool, tools};

/// Sums two numbers.
#[tool]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

/// Returns the square root of a number.
#[tool]
fn square_root(x: f64) -> Result<f64, String> {
    if x < 0.0 { Err("must not be negative".into()) } else { Ok(x.sqrt()) }
}

/// Waits for this time.
#[tool]
async fn wait(milliseconds: u64) -> u64 {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    milliseconds
}

#[tool]
fn panics() -> u8 {
    panic!("secret")
}

fn agent(model: impl ChatModel + 'static) -> AgentBuilder {
    Agent::builder(model).tools(tools![sum, square_root, wait, panics])
}

/// Runs a script in all three ways and returns the first outcome.
async fn run(
    script: impl Fn() -> ScriptedModel,
    build: impl Fn(AgentBuilder) -> AgentBuilder,
) -> Result<Answer, RunError> {
    alike(|| build(agent(script()))).await
}

async fn run_plain(script: impl Fn() -> ScriptedModel) -> Result<Answer, RunError> {
    run(script, |builder| builder).await
}

#[tokio::test]
async fn answers_in_one_turn() {
    let answer =
        run_plain(|| ScriptedModel::new().says("Good morning!").with_usage(Usage::new(10, 2))).await.unwrap();
    assert_eq!((answer.text(), answer.turns(), answer.usage()), ("Good morning!", 1, Usage::new(10, 2)));
    assert_eq!(answer.new_messages(), [Message::user("What now?"), Message::assistant("Good morning!")]);
    assert!(answer.tool_executions().is_empty());
    assert_eq!(answer.to_string(), "Good morning!");
}

#[tokio::test]
async fn executes_calls_of_successive_turns() {
    let script = || {
        ScriptedModel::new()
            .expects(|request| request.tools().len() == 4 && request.messages().len() == 2)
            .calls("sum", r#"{"a": 9, "b": 16}"#)
            .with_usage(Usage::new(100, 10))
            .expects(|request| request.messages().last().unwrap().text() == "25.0")
            .calls("square_root", r#"{"x": 25.0}"#)
            .with_usage(Usage::new(120, 10))
            .expects(|request| request.messages().last().unwrap().text() == "5.0")
            .says("It is 5.")
            .with_usage(Usage::new(140, 5))
    };
    let answer = run(script, |builder| builder.instructions("Use the tools.")).await.unwrap();
    assert_eq!((answer.text(), answer.turns(), answer.usage()), ("It is 5.", 3, Usage::new(360, 25)));
    let names: Vec<_> = answer.tool_executions().iter().map(|execution| &*execution.call().name).collect();
    assert_eq!(names, ["sum", "square_root"]);
    // The instructions are not among the messages that the run added.
    assert_eq!(answer.new_messages().len(), 6);
    assert_eq!(answer.new_messages()[0], Message::user("What now?"));
}

#[tokio::test(start_paused = true)]
async fn results_are_in_the_order_of_the_calls() {
    let script = || {
        let calls = [
            ("wait", r#"{"milliseconds": 60}"#),
            ("wait", r#"{"milliseconds": 1}"#),
            ("sum", r#"{"a": 1, "b": 2}"#),
        ];
        let results = |messages: &[Message]| {
            let results: Vec<_> =
                messages.iter().rev().take(3).map(|message| message.text().into_owned()).collect();
            results == ["3.0", "1", "60"]
        };
        ScriptedModel::new()
            .calls_all(calls)
            .expects(move |request| results(request.messages()))
            .says("Done.")
    };
    let answer = run_plain(script).await.unwrap();
    let outputs: Vec<_> =
        answer.tool_executions().iter().map(|one| one.outcome().unwrap().to_string()).collect();
    assert_eq!(outputs, ["60", "1", "3.0"]);
}

static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);
static MOST_IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);

/// Counts its concurrent executions.
#[tool]
async fn crowd() {
    MOST_IN_FLIGHT.fetch_max(IN_FLIGHT.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    IN_FLIGHT.fetch_sub(1, Ordering::SeqCst);
}

#[tokio::test]
async fn calls_of_one_turn_run_concurrently_up_to_a_limit() {
    for (limit, expected) in [(None, 8), (Some(1), 1), (Some(3), 3), (Some(0), 1)] {
        MOST_IN_FLIGHT.store(0, Ordering::SeqCst);
        let model = ScriptedModel::new().calls_all([("crowd", "{}"); 20]).says("Done.");
        let builder = Agent::builder(model).tools(tools![crowd]).limits(|l| l.max_repeated_calls(20));
        let builder = if let Some(limit) = limit { builder.max_concurrent_calls(limit) } else { builder };
        let answer = builder.build().unwrap().ask("Gather").await.unwrap();
        assert_eq!(MOST_IN_FLIGHT.load(Ordering::SeqCst), expected);
        assert_eq!(answer.tool_executions().len(), 20);
        assert!(answer.tool_executions().iter().all(|one| one.started_at().is_some()));
    }
}

#[tokio::test]
async fn reports_failures_to_the_model_and_continues() {
    let table = [
        (
            "squareroot",
            "{}",
            "there is no tool `squareroot`; the tools are `sum`, `square_root`, `wait`, `panics`; did you mean `square_root`?",
        ),
        ("sum", "{\"a\": 1}", "invalid arguments: `b` is missing, expected a number"),
        ("sum", "{ broken", "invalid arguments: not valid JSON: key must be a string at line 1 column 3"),
        ("square_root", "{\"x\": -1}", "must not be negative"),
        ("panics", "{}", "the tool failed (reference call_1_0)"),
    ];
    for (name, arguments, expected) in table {
        let script = || {
            let check = move |messages: &[Message]| match messages.last() {
                Some(Message::Tool(message)) => message.is_error && message.content.text() == expected,
                _ => false,
            };
            ScriptedModel::new()
                .calls(name, arguments)
                .expects(move |request| check(request.messages()))
                .says("Sorry.")
        };
        let answer = run_plain(script).await.unwrap();
        assert_eq!(answer.text(), "Sorry.", "{name}");
        assert!(answer.tool_executions()[0].outcome().is_err(), "{name}");
    }
}

#[tokio::test]
async fn the_turn_limit_ends_the_run_and_keeps_its_messages() {
    let script = || {
        let model = ScriptedModel::new();
        (0..3).fold(model, |model, _| model.calls("sum", r#"{"a": 1, "b": 1}"#).with_usage(Usage::new(1, 1)))
    };
    let error = run(script, |builder| builder.limits(|l| l.max_turns(3))).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTurns(_))));
    assert!(error.to_string().starts_with("the model still called tools after 3 turns"), "{error}");
    // The results of the third turn would not be read, so its call was not executed; but it has a result.
    assert_eq!(error.tool_executions().len(), 2);
    assert_eq!(error.new_messages().len(), 7);
    assert!(error.new_messages()[6].text().starts_with("the call was not executed"));
    assert_eq!(error.into_run().turns(), 3);
}

#[tokio::test]
async fn the_default_limit_is_ten_turns() {
    let script = || {
        (0..10).fold(ScriptedModel::new(), |model, turn| {
            model.calls("sum", format!(r#"{{"a": {turn}, "b": 1}}"#))
        })
    };
    let error = run_plain(script).await.unwrap_err();
    assert!(
        matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTurns(_)))
            && error.tool_executions().len() == 9
    );
}

#[tokio::test]
async fn never_executes_calls_of_a_truncated_reply() {
    let script = || {
        let call = ToolCall::new("1", "sum", r#"{"a": 1, "b": 2}"#);
        let message = AssistantMessage::default().with_tool_calls([call]);
        ScriptedModel::new().replies(ChatResponse::new(message).with_finish_reason(FinishReason::Length))
    };
    let error = run_plain(script).await.unwrap_err();
    assert!(
        matches!(error.kind(), RunErrorKind::Stopped(StopReason::Truncated(_)))
            && error.tool_executions().is_empty()
    );
    assert_eq!(
        error.new_messages().last().unwrap().text(),
        "the call was not executed: the reply was cut short"
    );
}

#[tokio::test]
async fn marks_a_truncated_answer() {
    let response =
        || ChatResponse::new(AssistantMessage::text("It is")).with_finish_reason(FinishReason::Length);
    let answer = run_plain(move || ScriptedModel::new().replies(response())).await.unwrap();
    assert_eq!((answer.text(), answer.finish_reason()), ("It is", &FinishReason::Length));
}

#[tokio::test]
async fn makes_ids_unique() {
    let reply = |ids: &[&str]| {
        let calls = ids.iter().map(|id| ToolCall::new(*id, "sum", r#"{"a": 1, "b": 2}"#));
        ChatResponse::new(AssistantMessage::default().with_tool_calls(calls))
    };
    let script = move || {
        ScriptedModel::new()
            .replies(reply(&["", "0", "0", " "]))
            .replies(reply(&["0", "call_1_0"]))
            .says("Done.")
    };
    let answer = run_plain(script).await.unwrap();
    let ids: Vec<_> = answer.tool_executions().iter().map(|one| &*one.call().id).collect();
    assert_eq!(ids, ["call_1_0", "0", "call_1_2", "call_1_3", "call_2_0", "call_2_1"]);
}

#[tokio::test]
async fn a_run_can_be_resumed_after_a_model_failure() {
    let script = || ScriptedModel::new().calls("sum", r#"{"a": 1, "b": 2}"#).fails("the line is dead");
    let error = run_plain(script).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Model(_)));
    assert_eq!(error.to_string(), "the request to the model failed: the line is dead");
    assert_eq!(format!("{error:?}"), "the request to the model failed: the line is dead");
    let mut run = error.into_run();
    assert!(
        matches!(run.next(&Default::default()), Step::CallModel(request) if request.messages().len() == 3)
    );
    run.record_response(ChatResponse::new(AssistantMessage::text("3"))).unwrap();
    let answer = run.finish().unwrap();
    assert_eq!((answer.text(), answer.tool_executions().len()), ("3", 1));
}

#[tokio::test]
async fn applies_a_required_tool_choice_once() {
    let script = || {
        ScriptedModel::new()
            .expects(|request| *request.tool_choice() == ToolChoice::Required)
            .calls("sum", r#"{"a": 1, "b": 2}"#)
            .expects(|request| {
                *request.tool_choice() == ToolChoice::Auto && request.parallel_tool_calls() == Some(false)
            })
            .says("3")
    };
    run(script, |builder| builder.tool_choice(ToolChoice::Required).parallel_tool_calls(false))
        .await
        .unwrap();
    let error = Agent::builder(ScriptedModel::new()).tool_choice(ToolChoice::Required).build().unwrap_err();
    assert_eq!(error.to_string(), "the model must call a tool, but there is none; add one with `tools`");
    let error = agent(ScriptedModel::new()).tool_choice(ToolChoice::Tool("root".into())).build().unwrap_err();
    assert_eq!(error.to_string(), "the model must call the tool `root`, which does not exist");
}

#[tokio::test]
async fn a_question_can_have_a_tool_choice_of_its_own() {
    let sum = || ToolChoice::Tool("sum".into());
    let model = ScriptedModel::new()
        .expects(|request| *request.tool_choice() == ToolChoice::Tool("sum".into()))
        .calls("sum", r#"{"a": 1, "b": 2}"#)
        .expects(|request| *request.tool_choice() == ToolChoice::Auto)
        .says("3")
        .expects(|request| *request.tool_choice() == ToolChoice::None)
        .says("Three.");
    let agent = agent(model).tool_choice(ToolChoice::None).build().unwrap();
    assert_eq!(agent.ask("What is 1 + 2?").tool_choice(sum()).await.unwrap().text(), "3");
    assert_eq!(agent.ask("What is 1 + 2?").await.unwrap().text(), "Three.");
    let error = agent.ask("Hello").tool_choice(ToolChoice::Tool("root".into())).await.unwrap_err();
    let expected = "the tools cannot be offered: the model must call the tool `root`, which does not exist";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn an_agent_refuses_duplicate_tool_names() {
    let error = agent(ScriptedModel::new()).tools(tools![sum]).build().unwrap_err();
    assert!(
        error.to_string().starts_with("two tools are named `sum`: one at tests/runs/running.rs:"),
        "{error}"
    );
}

#[tokio::test]
async fn continues_a_conversation_from_its_messages() {
    let model = ScriptedModel::new()
        .calls("sum", r#"{"a": 1, "b": 2}"#)
        .says("3")
        .expects(|request| request.messages().len() == 6 && request.messages()[0].text() == "Be brief.")
        .says("You are welcome.");
    let agent = agent(model).instructions("Be brief.").build().unwrap();
    let first = agent.ask("What is 1 + 2?").await.unwrap();
    let second = agent.ask("Thanks!").history(first.new_messages()).await.unwrap();
    assert_eq!(second.new_messages(), [Message::user("Thanks!"), Message::assistant("You are welcome.")]);
}

#[tokio::test]
async fn a_stream_reports_all_events() {
    let model = ScriptedModel::new()
        .calls_all([("wait", r#"{"milliseconds": 30}"#), ("sum", r#"{"a": 1, "b": 2}"#)])
        .with_usage(Usage::new(5, 1))
        .says("Three.");
    let events: Vec<_> =
        agent(model).build().unwrap().ask("What?").stream().map(Result::unwrap).collect().await;
    let actual: Vec<_> = events
        .iter()
        .map(|event| match event {
            Event::TurnStarted { turn, messages, .. } => format!("turn {turn} with {messages}"),
            Event::TurnFinished { turn, response, .. } => {
                format!("turn {turn} took {}", response.usage.map_or(0, |one| one.total_tokens))
            }

            Event::Text(text) => text.clone(),
            Event::CallAnnounced { index, name, .. } => format!("{index} is {name}"),
            Event::Arguments { index, text, .. } => format!("{index} has {text}"),
            Event::CallReady { index, call, .. } => format!("{index} {} is ready", call.name),
            Event::CallStarted(call) => format!("{} starts", call.name),
            Event::CallFinished(execution) => {
                format!("{} gives {}", execution.call().name, execution.outcome().unwrap())
            }
            Event::Done(answer) => format!("done: {answer}"),
            other => format!("{other:?}"),
        })
        .collect();
    let expected = [
        "Question(5 bytes)",
        "turn 1 with 1",
        "0 is wait",
        r#"0 has {"milliseconds": 30}"#,
        "1 is sum",
        r#"1 has {"a": 1, "b": 2}"#,
        "0 wait is ready",
        "1 sum is ready",
        "turn 1 took 6",
        "wait starts",
        "sum starts",
        "sum gives 3.0",
        "wait gives 30",
        "turn 2 with 4",
        "Three.",
        "turn 2 took 0",
        "done: Three.",
    ];
    assert_eq!(actual, expected);
}

static STALLED: AtomicUsize = AtomicUsize::new(0);

struct Stalled;

impl Drop for Stalled {
    fn drop(&mut self) {
        STALLED.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Never returns.
#[tool]
async fn stall() {
    STALLED.fetch_add(1, Ordering::SeqCst);
    let _stalled = Stalled;
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn dropping_a_stream_cancels_running_calls() {
    let model = ScriptedModel::new().calls("stall", "{}").says("Done.");
    let mut events = Agent::builder(model).tools(tools![stall]).build().unwrap().ask("Stall").stream();
    while !matches!(events.next().await.unwrap().unwrap(), Event::CallStarted(_)) {}
    assert!(futures_util::poll!(Box::pin(events.next())).is_pending());
    assert_eq!(STALLED.load(Ordering::SeqCst), 1);
    drop(events);
    assert_eq!(STALLED.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn marks_an_answer_that_is_a_refusal() {
    let refusal = || {
        let mut message = AssistantMessage::default();
        message.refusal = Some("I will not.".into());
        ChatResponse::new(message)
    };
    let answer = run_plain(move || ScriptedModel::new().replies(refusal())).await.unwrap();
    assert_eq!((answer.text(), answer.refusal()), ("", Some("I will not.")));
    assert_eq!(answer.to_string(), "I will not.");
}

#[tokio::test]
async fn events_contain_run_ids_and_tool_failures() {
    let calls = ["", ""].map(|id| ToolCall::new(id, "panics", "{}"));
    let response = ChatResponse::new(AssistantMessage::default().with_tool_calls(calls));
    let model = ScriptedModel::new().replies(response).says("Sorry.");
    let events: Vec<_> = agent(model).build().unwrap().ask("?").stream().map(Result::unwrap).collect().await;
    let mut ids = [Vec::new(), Vec::new(), Vec::new()];
    for event in &events {
        match event {
            Event::TurnFinished { turn: 1, response, .. } => {
                ids[0].extend(response.message.tool_calls.iter().map(|call| call.id.clone()));
            }
            Event::CallStarted(call) => ids[1].push(call.id.clone()),
            Event::CallFinished(execution) => {
                ids[2].push(execution.call().id.clone());
                let failure = execution.outcome().unwrap_err().failure().unwrap();
                assert_eq!(failure.to_string(), "panicked: secret");
            }
            _ => {}
        }
    }
    assert_eq!(ids[0], ["call_1_0", "call_1_1"]);
    assert!(ids[0] == ids[1] && ids[1] == ids[2], "{ids:?}");
}

#[tokio::test]
async fn the_context_reaches_a_manual_driver() {
    let agent =
        agent(ScriptedModel::new()).context(UserId(1)).context(String::from("agent's")).build().unwrap();
    let run = agent.ask("?").context(UserId(2)).start();
    let context = run.context();
    assert_eq!(context.get::<UserId>(), Some(&UserId(2)));
    assert_eq!(context.get::<String>().map(String::as_str), Some("agent's"));
}

#[derive(Clone, Debug, PartialEq)]
struct UserId(u32);

#[test]
fn futures_are_send() {
    fn assert_send<T: Send + 'static>(_: T) {}
    let agent = agent(ScriptedModel::new()).build().unwrap();
    assert_send(agent.ask("What now?").into_future());
    assert_send(agent.ask("What now?").stream());
    assert_send(agent);
}
