//! Models that loop, invent, repeat themselves, break off and say nothing or far too much.

use futures_util::{StreamExt, stream};
use tool_core::{
    Agent, AgentBuilder, AssistantMessage, ChatModel, ChatRequest, ChatResponse, ChatStream, Delta,
    FinishReason, ModelError, ModelFuture, Run, RunError, Step, ToolCall, Usage, tool, tools,
};

use super::{Puppet, assert_sound, broken, call, conversation, memories, reply};
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

/// An id as servers make them up: no count.
fn id(turn: usize) -> String {
    format!("call-{turn}xT2")
}

fn other_place(turn: usize) -> String {
    format!(r#"{{"at": {turn}}}"#)
}

type Calls = fn(usize) -> Vec<ToolCall>;
type Limit = fn(AgentBuilder) -> AgentBuilder;
type Is = fn(&RunError) -> bool;

#[tokio::test]
async fn a_model_that_goes_on_for_ever_is_stopped() {
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
    let many_turns: Limit = |builder| builder.max_turns(40);
    let as_it_is: Limit = |builder| builder;
    let table: [(&str, Calls, Limit, Is); 14] = [
        ("same", same, as_it_is, RunError::is_repeat_limit),
        ("same, with few turns", same, |builder| builder.max_turns(2), RunError::is_turn_limit),
        ("same, with one turn", same, |builder| builder.max_turns(0), RunError::is_turn_limit),
        ("alternating", alternating, as_it_is, RunError::is_turn_limit),
        ("alternating for long", alternating, many_turns, RunError::is_repeat_limit),
        ("another each time", other, as_it_is, RunError::is_turn_limit),
        ("another, counted", other, |builder| builder.max_calls(4), RunError::is_call_limit),
        ("invented", invented, as_it_is, RunError::is_turn_limit),
        ("without ids", no_id, many_turns, RunError::is_repeat_limit),
        ("one id", same_id, as_it_is, RunError::is_turn_limit),
        ("one id and call", same_call_and_id, many_turns, RunError::is_repeat_limit),
        ("no JSON", wrong, many_turns, RunError::is_repeat_limit),
        ("no name", unnamed, many_turns, RunError::is_repeat_limit),
        ("many at once", all, |builder| builder.max_turns(40).max_calls(100), RunError::is_call_limit),
    ];
    for (name, calls, limit, is) in table {
        let error = broken(|| limit(agent(Puppet::calling(calls)))).await.unwrap_err();
        assert!(is(&error) && error.is_limit() && !error.is_resumable(), "{name}: {error}");
    }
}

#[tokio::test]
async fn tokens_beyond_counting_end_a_run_and_do_not_overflow() {
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
    assert!(broken(build).await.unwrap_err().is_turn_limit());
    assert!(broken(|| build().max_tokens(1000)).await.unwrap_err().is_token_limit());
}

#[tokio::test]
async fn ids_that_are_repeated_are_told_apart() {
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
    let answer = broken(|| agent(model())).await.unwrap();
    let executions = answer.tool_executions();
    assert_eq!(executions.len(), 3 + 3 + 2 + 2 + 1);
    // One that comes again in a later turn names the call of then; beside it, it is another call.
    let from_record: Vec<_> = executions.iter().map(tool_core::ToolExecution::is_from_record).collect();
    assert_eq!(from_record[..6], [false, false, false, true, false, false]);
    assert!(executions[6].outcome().unwrap_err().is_not_made());
    assert!(executions[7].outcome().is_ok());
}

/// Streams some text and then this; whole, it fails as the stream does.
struct BreaksOff(Option<&'static str>);

impl ChatModel for BreaksOff {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let why = self.0.unwrap_or("the stream ended before the response was whole");
        Box::pin(async move { Err(ModelError::new(why)) })
    }

    fn stream<'a>(&'a self, _: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let begun = ["It is", " a"].map(|text| Ok(Delta::Text(text.into())));
        let end = self.0.map(|why| Err(ModelError::new(why)));
        Box::pin(stream::iter(begun).chain(stream::iter(end)))
    }
}

#[tokio::test]
async fn a_reply_that_breaks_off_leaves_a_run_that_can_be_resumed() {
    for why in [None, Some("the line is dead")] {
        let error = broken(|| agent(BreaksOff(why))).await.unwrap_err();
        assert!(error.is_model() && error.is_resumable());
        assert_eq!(error.messages().len(), 1, "nothing of it is in the conversation");
        let agent = agent(Puppet::calling(|_| vec![])).build().unwrap();
        assert_eq!(agent.resume(error.into_run()).await.unwrap().text(), "That was all.");
    }
}

#[tokio::test]
async fn calls_of_a_reply_that_is_cut_short_are_not_made() {
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
        let error = broken(|| agent(model.clone())).await.unwrap_err();
        assert!(error.is_cut_short(), "{reason:?}: {error}");
        assert_eq!((error.tool_executions().len(), error.run().turns()), (2, 2));
    }
}

#[tokio::test]
async fn nothing_at_all_is_an_answer() {
    let model = || Puppet::new(|_, _| Ok(ChatResponse::new(AssistantMessage::default())));
    let answer = broken(|| agent(model())).await.unwrap();
    assert_eq!((answer.text(), answer.messages().len()), ("", 2));
    // With the calls of a reply that says that there are some, too.
    let model = || {
        Puppet::new(|_, _| {
            let mut response = ChatResponse::new(AssistantMessage::default());
            response.finish_reason = FinishReason::ToolCalls;
            Ok(response)
        })
    };
    assert_eq!(broken(|| agent(model())).await.unwrap().turns(), 1);
}

/// Ten thousand, or fewer in a sample.
fn many() -> usize {
    size(1_000, 10_000)
}

fn ten_thousand() -> Puppet {
    Puppet::calling(|turn| match turn {
        0 => (0..many()).map(|n| call("", "look", &other_place(n))).collect(),
        _ => vec![],
    })
}

#[tokio::test]
async fn ten_thousand_calls_are_made_or_refused_as_one_says() {
    let error = broken(|| agent(ten_thousand()).max_calls(100)).await.unwrap_err();
    assert!(error.is_call_limit() && error.tool_executions().is_empty());

    for (memory, is_streamed) in memories().await.into_iter().zip([false, true]) {
        let agent = agent(ten_thousand()).memory(memory.clone()).context(conversation()).build().unwrap();
        let outcome = if is_streamed {
            let mut events = agent.ask("What now?").stream();
            loop {
                match events.next().await.expect("the stream ends with an end") {
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

/// By hand, and restored now and then.
#[tokio::test]
async fn ten_thousand_calls_by_hand() {
    let agent = agent(ten_thousand()).build().unwrap();
    let mut run = agent.start("What now?");
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
        let state = serde_json::to_string(run.state()).unwrap();
        run = agent.resume(serde_json::from_str::<Run>(&state).unwrap()).start();
    }
    let answer = run.finish().await.unwrap();
    assert_eq!((answer.tool_executions().len(), answer.turns()), (many(), 2));
    assert_valid(answer.messages());
}

#[tokio::test]
async fn what_no_reader_of_arguments_should_meet() {
    let deep = "[".repeat(size(20_000, 200_000));
    let long = format!(r#"{{"at": "{}"}}"#, "9".repeat(size(200_000, 2_000_000)));
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
        let answer = broken(|| agent(model.clone())).await.unwrap();
        assert!(answer.tool_executions()[0].outcome().is_err());
        assert!(answer.tool_executions()[1].outcome().is_ok());
    }
}
