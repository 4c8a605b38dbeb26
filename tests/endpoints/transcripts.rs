//! Recorded conversations with models, end to end over HTTP: the replies are recorded, and the tools are executed.

#[path = "recording.rs"]
mod recording;

use std::time::Duration;

use recording::Recording;
use serde_json::Value;
use tests::support::checked::CheckedServer;
use tool_core::run::Step;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, Answer, ChatModel, Event, Message, ToolSet, tool, tools};
use tool_offline::OfflineModel;
use tool_openai::server::Server;
use tool_openai::{ChatCompletions, OpenAi};

/// Sums two numbers.
#[tool]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

/// Returns the square root of a number.
#[tool]
fn square_root(x: f64) -> f64 {
    x.sqrt()
}

#[tool("模拟获取天气的工具")]
async fn get_current_weather(location: String) -> String {
    tokio::time::sleep(Duration::from_millis(1)).await;
    format!("{location}的天气是晴朗的，22摄氏度。")
}

#[tool("模拟发送邮件的工具")]
async fn send_email(to: String, subject: String, body: String) -> String {
    tokio::time::sleep(Duration::from_millis(1)).await;
    let _ = (subject, body);
    format!("邮件已成功发送至 {to}。")
}

async fn serve(model: impl ChatModel + 'static) -> (CheckedServer, ChatCompletions) {
    let server = CheckedServer::start(Server::new().model("m", model)).await;
    let openai = OpenAi::builder().base_url(server.base_url()).build().unwrap();
    (server, openai.chat_model("m"))
}

/// Runs an agent against a recorded conversation over HTTP.
async fn replay(transcript: &str, tools: ToolSet, is_streamed: bool) -> (Recording, Answer, ScriptedModel) {
    let recording = Recording::read(transcript).unwrap();
    let script = recording.model();
    let (_server, model) = serve(script.clone()).await;
    let agent = Agent::builder(model).tools(tools).build().unwrap();
    if !is_streamed {
        let answer = agent.ask(&*recording.user).await.unwrap();
        return (recording, answer, script);
    }
    let mut events = agent.ask(&*recording.user).stream();
    while let Some(event) = events.next().await {
        if let Event::Done(answer) = event.unwrap() {
            return (recording, answer, script);
        }
    }
    panic!("the stream ended without a response");
}

#[tokio::test]
async fn replays_the_recorded_conversations() {
    let transcripts = [
        include_str!("transcripts/weather.json"),
        include_str!("transcripts/parallel.json"),
        include_str!("transcripts/serial.json"),
    ];
    for (transcript, is_streamed) in transcripts.iter().flat_map(|one| [(*one, false), (*one, true)]) {
        let (recording, answer, script) =
            replay(transcript, tools![get_current_weather, send_email], is_streamed).await;
        assert_eq!(script.remaining(), 0);
        let calls: Vec<_> = recording.turns.iter().flat_map(|turn| &turn.tool_calls).collect();
        let results: Vec<_> = recording.turns.iter().flat_map(|turn| &turn.results).collect();
        assert_eq!(answer.tool_executions().len(), calls.len());
        for ((execution, call), result) in answer.tool_executions().iter().zip(calls).zip(results) {
            assert_eq!(Some(&execution.call().id), call.id.as_ref());
            assert_eq!(execution.call().name, call.name);
            let arguments: Value = serde_json::from_str(&execution.call().arguments).unwrap();
            assert_eq!(arguments, call.arguments);
            assert_eq!(execution.outcome().unwrap().to_string(), *result);
        }
        let results =
            answer.new_messages().iter().filter(|message| matches!(message, Message::Tool(_))).count();
        assert_eq!(results, answer.tool_executions().len());
        if let Some(text) = &recording.answer {
            assert_eq!(answer.text(), text);
        }
    }
}

#[tokio::test]
async fn replays_the_recorded_conversations_with_a_restored_run_at_every_step() {
    let transcripts = [
        include_str!("transcripts/weather.json"),
        include_str!("transcripts/parallel.json"),
        include_str!("transcripts/serial.json"),
    ];
    for transcript in transcripts {
        let recording = Recording::read(transcript).unwrap();
        let (_server, model) = serve(recording.model()).await;
        let agent = Agent::builder(model).tools(tools![get_current_weather, send_email]).build().unwrap();
        let mut run = agent.ask(&*recording.user).start();
        let answer = loop {
            let state = serde_json::to_string(run.run()).unwrap();
            run = agent.resume(serde_json::from_str(&state).unwrap()).start();
            match run.next().await.unwrap() {
                Step::CallModel(request) => {
                    let response = agent.model().chat(&request).await.unwrap();
                    run.record_response(response).await.unwrap();
                }
                Step::CallTools(calls) => {
                    let execution = run.execute(calls[0].clone()).await.unwrap();
                    run.record_result(execution).await.unwrap();
                }
                _ => break run.finish().await.unwrap(),
            }
        };
        let (_, expected, _) = replay(transcript, tools![get_current_weather, send_email], false).await;
        assert_eq!(answer.new_messages(), expected.new_messages());
        assert_eq!(answer.usage(), expected.usage());
    }
}

#[tokio::test]
async fn sums_the_tokens_of_the_recorded_turns() {
    let transcript = include_str!("transcripts/serial.json");
    for is_streamed in [false, true] {
        let (_, answer, _) = replay(transcript, tools![get_current_weather, send_email], is_streamed).await;
        let usage = answer.usage();
        assert_eq!(usage.input_tokens, 781 + 838 + 1198);
        assert_eq!(usage.output_tokens, 21 + 74 + 33);
        assert_eq!(usage.total_tokens, 802 + 912 + 1231);
        assert_eq!(answer.turns(), 3);
    }
}

#[tokio::test]
async fn replays_the_recorded_square_root() {
    #[tool(name = "squareRoot")]
    fn recorded_root(x: f64) -> String {
        format!("{:.6}", x.sqrt())
    }

    let transcript = include_str!("../transcripts/square_root.json");
    let (recording, answer, _) = replay(transcript, tools![sum, recorded_root], false).await;
    let execution = &answer.tool_executions()[0];
    assert!(!execution.call().id.is_empty(), "a call without an id gets one");
    assert_eq!(execution.outcome().unwrap().to_string(), recording.turns[0].results[0]);
    assert_eq!(answer.text(), "The square root of 475695037565 is 689706.486532.");
}

#[tokio::test]
async fn answers_the_question_of_the_quickstart() {
    let (_server, model) = serve(OfflineModel::new()).await;
    let question = "What is the square root of 475695037565?";
    let agent = Agent::builder(model.clone()).tools(tools![sum, square_root]).build().unwrap();
    let answer = agent.ask(question).await.unwrap();
    assert!(answer.text().contains("689706.486532"), "{answer}");

    // The number comes from the tool: another tool gives another number.
    #[tool("Returns the square root of a number", name = "square_root")]
    fn half(x: f64) -> f64 {
        x / 2.0
    }
    let agent = Agent::builder(model).tools(tools![sum, half]).build().unwrap();
    let answer = agent.ask(question).await.unwrap();
    assert!(answer.text().contains("237847518782.5"), "{answer}");
}
