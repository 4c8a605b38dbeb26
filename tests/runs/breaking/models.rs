//! Models that loop, invent or repeat calls, break off, and reply with nothing or far too much.

use futures_util::{StreamExt, stream};
use tool_core::agent::AgentBuilder;
use tool_core::model::{
    AssistantMessage, ChatRequest, ChatResponse, ChatStream, Delta, FinishReason, ModelError, Usage,
};
use tool_core::provider::ModelFuture;
use tool_core::run::{Run, Step, StopReason};
use tool_core::tool::{OutcomeOrigin, ToolErrorKind};
use tool_core::{Agent, ChatModel, RunErrorKind, ToolCall, tool, tools};

use super::{Puppet, assert_sound, call, conversation, in_all_ways, memories, reply};
use tests::support::sampling::size;
use tests::support::ways::assert_valid;

#[tool]
fn look(at: Option<u64>) -> String {
    at.map_or_else(|| "seen".to_owned(), |at| format!("seen {at}"))
}

#[tool]
fn feel() {}

fn agent(model: impl ChatModel + 'static) -> AgentBuilder {
    Agent::builder(model).tools(tools![look, feel])
}

/// Returns an id that contains no counter, like the ids of many servers.
fn id(turn: usize) -> String {
    format!("call-{turn}xT2")
}

fn other_place(turn: usize) -> String {
    format!(r#"{{"at": {turn}}}"#)
}

type Calls = fn(usize) -> Vec<ToolCall>;
type Limit = fn(AgentBuilder) -> AgentBuilder;
type Is = fn(&StopReason) -> bool;

const TURNS: Is = |reason| matches!(reason, StopReason::MaxTurns(_));
const CALLS: Is = |reason| matches!(reason, StopReason::MaxCalls(_));
const REPEATED: Is = |reason| matches!(reason, StopReason::RepeatedCall(_));

#[tokio::test]
async fn limits_stop_an_endless_model() {
    let same: Calls = |turn| vec![call(&id(turn), "look", "{}")];
    let alternating: Calls = |turn| vec![call(&id(turn), ["look", "feel"][turn % 2], "{}")];
    let other: Calls = |turn| vec![call(&id(turn), "look", &other_place(turn))];
    let invented: Calls = |turn| vec![call(&id(turn), "google", &other_place(turn))];
    let no_id: Calls = |turn| vec![call("", "look", &other_place(turn)), call("", "feel", "{}")];
    let same_id: Calls = |turn| vec![call("xyz-1T2", "look", &other_place(turn))];
    let same_call_and_id: Calls = |_| vec![call("xyz-1T2", "look", "{}")];
    let wrong: Calls = |turn| vec![call(&id(turn), "look", "{\"at\": ")];
    let unnamed: Calls = |turn| vec![call(&id(turn), "", "")];
    let all: Calls =
        |turn| (0..20).map(|n| call(&format!("{n}-{turn}T2z"), "look", &other_place(n))).collect();
    let many_turns: Limit = |builder| builder.limits(|l| l.max_turns(40));
    let as_it_is: Limit = |builder| builder;
    let table: [(&str, Calls, Limit, Is); 14] = [
        ("same", same, as_it_is, REPEATED),
        ("same, with few turns", same, |builder| builder.limits(|l| l.max_turns(2)), TURNS),
        ("same, with one turn", same, |builder| builder.limits(|l| l.max_turns(0)), TURNS),
        ("alternating", alternating, as_it_is, TURNS),
        ("alternating for long", alternating, many_turns, REPEATED),
        ("another each time", other, as_it_is, TURNS),
        ("another, counted", other, |builder| builder.limits(|l| l.max_calls(4)), CALLS),
        ("invented", invented, as_it_is, TURNS),
        ("without ids", no_id, many_turns, TURNS),
        ("one id", same_id, as_it_is, TURNS),
        ("one id and call", same_call_and_id, many_turns, REPEATED),
        ("no JSON", wrong, many_turns, REPEATED),
        ("no name", unnamed, many_turns, REPEATED),
        ("many at once", all, |builder| builder.limits(|l| l.max_turns(40).max_calls(100)), CALLS),
    ];
    for (name, calls, limit, is) in table {
        let error = in_all_ways(|| limit(agent(Puppet::calling(calls)))).await.unwrap_err();
        let RunErrorKind::Stopped(reason) = error.kind() else { panic!("{name}: {error}") };
        assert!(is(reason) && reason.is_limit() && !error.is_resumable(), "{name}: {error}");
    }
}

#[tokio::test]
async fn token_counts_saturate_and_end_the_run() {
    let build = || {
        let model = Puppet::new(|turn, _| {
            let mut response = reply(vec![call(&id(turn), "look", &other_place(turn))]);
            let mut usage = Usage::default();
            (usage.input_tokens, usage.output_tokens, usage.total_tokens) = (u64::MAX, u64::MAX, u64::MAX);
            response.usage = Some(usage);
            Ok(response)
        });
        agent(model)
    };
    assert!(matches!(
        in_all_ways(build).await.unwrap_err().kind(),
        RunErrorKind::Stopped(StopReason::MaxTurns(_))
    ));
    assert!(matches!(
        in_all_ways(|| build().limits(|l| l.max_total_tokens(1000))).await.unwrap_err().kind(),
        RunErrorKind::Stopped(StopReason::MaxTotalTokens(_))
    ));
}

#[tokio::test]
async fn distinguishes_repeated_ids() {
    let model = || {
        Puppet::calling(|turn| match turn {
            0 => vec![call("x-a", "look", "{}"), call("x-a", "feel", "{}"), call("x-a", "look", "{}")],
            1 => vec![call("x-a", "look", "{}"), call("x-a", "look", "{}"), call(" ", "look", "{}")],
            2 => vec![call("x-a", "look", r#"{"at": 7}"#), call("x-b", "feel", "{}")],
            3 => vec![call("call_3_0", "feel", r#"{"no": 1}"#), call("call_4_0", "feel", r#"{"no": 2}"#)],
            4 => vec![call("", "feel", r#"{"no": 3}"#)],
            _ => vec![],
        })
    };
    let answer = in_all_ways(|| agent(model())).await.unwrap();
    let executions = answer.tool_executions();
    assert_eq!(executions.len(), 3 + 3 + 2 + 2 + 1);
    // A repeated id refers to the earlier call in a later turn, and to another call in the same turn.
    let from_record: Vec<_> = executions.iter().map(|one| one.origin() == OutcomeOrigin::Recorded).collect();
    assert_eq!(from_record[..6], [false, false, false, true, false, false]);
    assert_eq!(executions[6].outcome().unwrap_err().kind(), ToolErrorKind::NotExecuted);
    assert!(executions[7].outcome().is_ok());
}

/// A model whose stream breaks off after some text with this error; `chat` fails with the same error.
struct BreaksOff(Option<&'static str>);

impl ChatModel for BreaksOff {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let why = self.0.unwrap_or("the stream ended before the response was complete");
        Box::pin(async move { Err(ModelError::new(why)) })
    }

    fn stream<'a>(&'a self, _: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let started = ["It is", " a"].map(|text| Ok(Delta::Text(text.into())));
        let end = self.0.map(|why| Err(ModelError::new(why)));
        ChatStream::new(stream::iter(started).chain(stream::iter(end)))
    }
}

#[tokio::test]
async fn a_run_can_be_resumed_after_an_interrupted_reply() {
    for why in [None, Some("the line is dead")] {
        let error = in_all_ways(|| agent(BreaksOff(why))).await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Model(_)) && error.is_resumable());
        assert_eq!(error.new_messages().len(), 1, "the partial reply is not in the conversation");
        let agent = agent(Puppet::calling(|_| vec![])).build().unwrap();
        assert_eq!(agent.resume(error.into_run()).await.unwrap().text(), "That was all.");
    }
}

#[tokio::test]
async fn does_not_execute_calls_of_a_truncated_reply() {
    for reason in [FinishReason::Length, FinishReason::ContentFilter] {
        let cut = reason.clone();
        let model = Puppet::new(move |turn, _| {
            let calls = vec![call("", "look", "{}"), call("", "look", r#"{"at": 1"#)];
            let mut response = reply(calls);
            if turn == 1 {
                response.finish_reason = cut.clone();
            }
            Ok(response)
        });
        let error = in_all_ways(|| agent(model.clone())).await.unwrap_err();
        assert!(
            matches!(error.kind(), RunErrorKind::Stopped(StopReason::Truncated(_))),
            "{reason:?}: {error}"
        );
        assert_eq!((error.tool_executions().len(), error.run().turns()), (2, 2));
    }
}

#[tokio::test]
async fn an_empty_reply_is_an_answer() {
    let model = || Puppet::new(|_, _| Ok(ChatResponse::new(AssistantMessage::default())));
    let answer = in_all_ways(|| agent(model())).await.unwrap();
    assert_eq!((answer.text(), answer.new_messages().len()), ("", 2));
    // The same holds for a reply whose finish reason announces calls.
    let model = || {
        Puppet::new(|_, _| {
            let mut response = ChatResponse::new(AssistantMessage::default());
            response.finish_reason = FinishReason::ToolCalls;
            Ok(response)
        })
    };
    assert_eq!(in_all_ways(|| agent(model())).await.unwrap().turns(), 1);
}

/// Ten thousand, or fewer in a sample.
fn many() -> usize {
    size(400, 10_000)
}

fn ten_thousand() -> Puppet {
    Puppet::calling(|turn| match turn {
        0 => (0..many()).map(|n| call("", "look", &other_place(n))).collect(),
        _ => vec![],
    })
}

#[tokio::test]
async fn executes_or_refuses_ten_thousand_calls_as_limited() {
    let error = in_all_ways(|| agent(ten_thousand()).limits(|l| l.max_calls(100))).await.unwrap_err();
    assert!(
        matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxCalls(_)))
            && error.tool_executions().is_empty()
    );

    for (memory, is_streamed) in memories().await.into_iter().zip([false, true]) {
        let agent = agent(ten_thousand()).memory(memory.clone()).context(conversation()).build().unwrap();
        let outcome = if is_streamed {
            let mut events = agent.ask("What now?").stream();
            loop {
                match events.next().await.expect("the stream has a final event") {
                    Ok(tool_core::Event::Done(answer)) => break Ok(answer),
                    Ok(_) => {}
                    Err(error) => break Err(error),
                }
            }
        } else {
            agent.ask("What now?").await
        };
        assert_eq!(outcome.as_ref().unwrap().tool_executions().len(), many());
        assert_sound(&outcome, &memory).await;
    }
}

/// Drives the run step by step, and restores it now and then.
#[tokio::test]
async fn executes_ten_thousand_calls_step_by_step() {
    let agent = agent(ten_thousand()).build().unwrap();
    let mut run = agent.ask("What now?").start();
    loop {
        match run.next().await.unwrap() {
            Step::CallModel(request) => {
                let response = agent.model().chat(&request).await.unwrap();
                run.record_response(response).await.unwrap();
            }
            Step::CallTools(calls) => {
                for call in calls.into_iter().take(many() / 4) {
                    let execution = run.execute(call).await.unwrap();
                    run.record_result(execution).await.unwrap();
                }
            }
            _ => break,
        }
        let state = serde_json::to_string(run.run()).unwrap();
        run = agent.resume(serde_json::from_str::<Run>(&state).unwrap()).start();
    }
    let answer = run.finish().await.unwrap();
    assert_eq!((answer.tool_executions().len(), answer.turns()), (many(), 2));
    assert_valid(answer.new_messages());
}

#[tokio::test]
async fn reports_malformed_calls_to_the_model() {
    let deep = "[".repeat(size(5_000, 200_000));
    let long = format!(r#"{{"at": "{}"}}"#, "9".repeat(size(50_000, 2_000_000)));
    let table = [
        ("look", deep),
        ("look", long),
        ("look", "\u{0}".into()),
        (
            "multi_tool_use.parallel",
            r#"{"tool_uses": [{"recipient_name": "multi_tool_use.parallel", "parameters": {}}]}"#.into(),
        ),
        ("lo\nok", "{}".into()),
        ("\u{202e}look", "{}".into()),
    ];
    for (name, arguments) in &table {
        let (name, arguments) = (name.to_string(), arguments.clone());
        let model = Puppet::calling(move |turn| match turn {
            0 => vec![call("a", &name, &arguments), call("b", "look", "{}")],
            _ => vec![],
        });
        let answer = in_all_ways(|| agent(model.clone())).await.unwrap();
        assert!(answer.tool_executions()[0].outcome().is_err());
        assert!(answer.tool_executions()[1].outcome().is_ok());
    }
}
