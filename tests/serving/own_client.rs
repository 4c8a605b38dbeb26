//! The client of this crate against the server, through both APIs.

use futures_util::StreamExt;
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, Delta, FinishReason, Usage};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatModel, Event, Message, ToolCall, tool, tools};
use tool_openai::OpenAi;
use tool_openai::server::Server;

use tests::support::checked::CheckedServer;

async fn both(server: Server) -> (CheckedServer, [Box<dyn ChatModel>; 2]) {
    let server = CheckedServer::start(server).await;
    let openai = OpenAi::builder().base_url(server.base_url()).build().unwrap();
    let models: [Box<dyn ChatModel>; 2] =
        [Box::new(openai.chat_model("m")), Box::new(openai.responses_model("m"))];
    (server, models)
}

#[tool("Returns the current location")]
fn locate() -> &'static str {
    "Rome"
}

#[tool("Returns the temperature")]
fn temperature() -> &'static str {
    "22 degrees"
}

#[tokio::test]
async fn an_agent_behind_an_agent_executes_only_its_own_calls() {
    for api in [0, 1] {
        for is_streamed in [false, true] {
            let script = ScriptedModel::new()
                .calls_all([("locate", "{}"), ("temperature", "{}")])
                .calls_all([("temperature", "{}"), ("locate", "{}")])
                .says("It is warm in Rome.");
            let served = Agent::builder(script.clone()).tools(tools![temperature]).build().unwrap();
            let (_server, models) = both(Server::new().agent("m", served)).await;
            let model = models.into_iter().nth(api).unwrap();
            let agent = Agent::builder(model).tools(tools![locate]).build().unwrap();
            let ask = agent.ask("How warm is it here?");
            let answer = if is_streamed {
                let events: Vec<_> = ask.stream().collect().await;
                match events.into_iter().last() {
                    Some(Ok(Event::Done(answer))) => answer,
                    other => panic!("expected an answer, got {other:?}"),
                }
            } else {
                ask.await.unwrap()
            };
            assert_eq!(answer.text(), "It is warm in Rome.");
            let called: Vec<_> = answer.tool_executions().iter().map(|one| &*one.call().name).collect();
            assert_eq!(called, ["locate", "locate"]);
            let read: Vec<_> =
                script.requests()[2].iter().map(|message| message.text().into_owned()).collect();
            let expected = ["How warm is it here?", "", "Rome", "22 degrees", "", "22 degrees", "Rome"];
            assert_eq!(read, expected, "API {api}, streamed: {is_streamed}");
        }
    }
}

#[tokio::test]
async fn both_apis_return_the_same_reply() {
    let mut thoughtful = AssistantMessage::text("Let me see.").with_tool_calls([
        ToolCall::new("call_a1b2", "f", r#"{"a":1}"#),
        ToolCall::new("call_c3d4", "f", "{}"),
    ]);
    thoughtful.reasoning = Some("Hm.".into());
    let truncated = |reason| ChatResponse::new(AssistantMessage::text("It is")).with_finish_reason(reason);
    let replies = [
        ChatResponse::new(thoughtful).with_usage(Usage::new(10, 5)),
        ChatResponse::new(AssistantMessage::refusal("I may not.")),
        truncated(FinishReason::Length),
        truncated(FinishReason::ContentFilter),
    ];
    for reply in replies {
        let script = (0..4).fold(ScriptedModel::new(), |script, _| script.replies(reply.clone()));
        let (_server, models) = both(Server::new().model("m", script)).await;
        for model in &models {
            let request = ChatRequest::new([Message::user("Hi")]);
            let whole = model.chat(&request).await.unwrap();
            let last = model.stream(&request).map(Result::unwrap).collect::<Vec<_>>().await.pop();
            let Some(Delta::Done(streamed)) = last else { panic!("no end") };
            for response in [whole, streamed] {
                let (got, sent) = (&response.message, &reply.message);
                assert_eq!(
                    (&got.text, &got.reasoning, &got.refusal),
                    (&sent.text, &sent.reasoning, &sent.refusal)
                );
                let calls = |message: &AssistantMessage| -> Vec<_> {
                    let calls = message.tool_calls.iter();
                    calls.map(|call| (call.id.clone(), call.name.clone(), call.arguments.clone())).collect()
                };
                assert_eq!((calls(got), &response.finish_reason), (calls(sent), &reply.finish_reason));
                assert_eq!(
                    response.usage.unwrap_or_default().total_tokens,
                    reply.usage.unwrap_or_default().total_tokens
                );
            }
        }
    }
}
