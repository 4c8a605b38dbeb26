//! Definitions as the APIs write them.

use serde_json::{Value, json};
use tests::support::RawServer;
use tool_core::model::{ChatRequest, ToolDefinition};
use tool_core::{ChatModel, Message, ToolSet, tool, tools};
use tool_openai::{
    ErrorKind, OpenAi, chat_completions_tool, chat_completions_tools, responses_tool, responses_tools,
};

/// Finds a place to stay.
#[tool]
fn find(city: String, #[param("how many", default = 1)] guests: u8) -> String {
    format!("{city} {guests}")
}

#[tool("Returns the time")]
fn now() -> &'static str {
    "noon"
}

/// Returns the tools that OpenAI's client sends.
async fn sent(tools: &ToolSet, is_responses: bool) -> Value {
    let server = RawServer::answering("400 Bad Request", &[], b"{}").await;
    let openai = OpenAi::builder().endpoint(tool_openai::Endpoint::openai()).api_key("k");
    let openai = openai.base_url(server.base_url()).max_retries(0).build().unwrap();
    let request = ChatRequest::new([Message::user("Where?")]).with_tools(tools);
    let error = match is_responses {
        true => openai.responses_model("m").chat(&request).await.unwrap_err(),
        false => openai.chat_model("m").chat(&request).await.unwrap_err(),
    };
    assert!(error.to_string().contains("status 400"), "{error}");
    let sent = server.requests().pop().unwrap();
    let mut sent: Value = serde_json::from_str(sent.split_once("\r\n\r\n").unwrap().1).unwrap();
    sent["tools"].take()
}

#[tokio::test]
async fn definitions_are_written_as_they_are_sent() {
    for set in [tools![find, now], tools![find, now].strict().unwrap()] {
        let (chat, responses) = (sent(&set, false).await, sent(&set, true).await);
        assert_eq!(chat_completions_tools(&set).unwrap(), chat);
        assert_eq!(responses_tools(&set).unwrap(), responses);
        for (index, definition) in set.definitions().iter().enumerate() {
            assert_eq!(chat_completions_tool(definition).unwrap(), chat[index]);
            assert_eq!(responses_tool(definition).unwrap(), responses[index]);
            let is_strict = json!(definition.is_strict());
            assert_eq!(
                (&chat[index]["function"]["strict"], &responses[index]["strict"]),
                (&is_strict, &is_strict)
            );
        }
    }
    assert_eq!(chat_completions_tools(&tools![]).unwrap(), json!([]));
}

#[test]
fn definitions_that_the_api_refuses_are_errors() {
    let error = responses_tool(&ToolDefinition::new("two words")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    let expected = "invalid tool name `two words`; use 1 to 64 letters, digits, `_` and `-`";
    assert_eq!(error.to_string(), expected);
}
