//! The server under test of `checks.py`. It prints its URL and runs until its standard input ends.

use std::error::Error;
use std::io::Read;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tool_core::model::{
    AssistantMessage, ChatRequest, ChatResponse, ChatStream, Delta, FinishReason, ModelError, Usage,
};
use tool_core::provider::ModelFuture;
use tool_core::tool::Asker;
use tool_core::{Agent, ChatModel, Message, ToolCall, ToolError, tool, tools};
use tool_openai::OpenAi;
use tool_openai::server::Server;

/// A model that does what the last user message says, and streams letter by letter.
struct Puppet;

impl Puppet {
    fn reply(request: &ChatRequest<'_>) -> Result<ChatResponse, &'static str> {
        let messages = request.messages();
        let results: Vec<_> =
            messages.iter().rev().take_while(|message| matches!(message, Message::Tool(_))).collect();
        if !results.is_empty() {
            let texts: Vec<_> = results.iter().rev().map(|result| result.text()).collect();
            return Ok(ChatResponse::new(AssistantMessage::text(texts.join("; "))));
        }
        if request.response_format().is_some() {
            return Ok(ChatResponse::new(AssistantMessage::text(r#"{"city":"Rome","celsius":22}"#)));
        }
        let command = messages.last().map(Message::text).unwrap_or_default();
        let (verb, rest) = command.split_once(' ').unwrap_or((&command, ""));
        Ok(match verb {
            // Calls the named tools with a place.
            "call" => {
                let calls = rest.split(' ').enumerate().map(|(index, name)| {
                    let place = if index == 0 { "Rome" } else { "Paris" };
                    let id = format!("call_{}_{index}", messages.len());
                    ToolCall::new(id, name, format!(r#"{{"place":"{place}"}}"#))
                });
                ChatResponse::new(AssistantMessage::text("Let me see.").with_tool_calls(calls))
            }
            "think" => {
                let mut message = AssistantMessage::text(rest);
                message.reasoning = Some("Hm, let me think.".into());
                ChatResponse::new(message)
            }
            "refuse" => ChatResponse::new(AssistantMessage::refusal("I may not.")),
            "cut" => ChatResponse::new(AssistantMessage::text(rest)).with_finish_reason(FinishReason::Length),
            "count" => ChatResponse::new(AssistantMessage::text(messages.len().to_string())),
            "fail" => return Err("the password of the database is secret"),
            _ => ChatResponse::new(AssistantMessage::text(command)),
        })
    }
}

impl ChatModel for Puppet {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async {
            if request.messages().last().is_some_and(|message| message.text() == "sleep") {
                std::future::pending::<()>().await;
            }
            let response = Self::reply(request).map_err(ModelError::new)?;
            Ok(response.with_usage(Usage::new(10, 5)))
        })
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let letters = |text: String| text.chars().map(String::from).collect::<Vec<_>>();
        let deltas = match Self::reply(request) {
            Ok(response) => response.with_usage(Usage::new(10, 5)).into_deltas(),
            // Fails in the middle of the stream.
            Err(why) => {
                let broken = [Ok(Delta::Text("Well".into())), Err(ModelError::new(why))];
                return ChatStream::new(futures_util::stream::iter(broken));
            }
        };
        let deltas = deltas.into_iter().flat_map(move |delta| match delta {
            Delta::Text(text) => letters(text).into_iter().map(Delta::Text).collect(),
            Delta::Reasoning(text) => letters(text).into_iter().map(Delta::Reasoning).collect(),
            Delta::Arguments { index, text } => {
                letters(text).into_iter().map(|text| Delta::Arguments { index, text }).collect()
            }
            other => vec![other],
        });
        ChatStream::new(futures_util::stream::iter(deltas.map(Ok)))
    }

    fn supports_response_format(&self) -> bool {
        true
    }
}

#[tool("Returns the temperature")]
fn temperature(place: String) -> String {
    format!("22 degrees in {place}")
}

#[tool("Books a seat")]
async fn book(place: String, #[inject] user: &Asker) -> Result<String, ToolError> {
    let row: u8 = user.ask("Which row?").choices([1, 2]).await?;
    Ok(format!("row {row} to {place}"))
}

/// Starts an endpoint that refuses every request.
async fn refusing(status: &'static str, code: &'static str) -> std::io::Result<OpenAi> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/v1", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let body = format!(r#"{{"error":{{"message":"secret","type":"t","code":"{code}"}}}}"#);
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\nretry-after-ms: 1\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
            );
            let _ = stream.write_all((head + &body).as_bytes()).await;
        }
    });
    OpenAi::builder().base_url(url).build().map_err(std::io::Error::other)
}

pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    let agent = Agent::builder(Puppet).tools(tools![temperature, book]).build()?;
    let limited = refusing("429 Too Many Requests", "rate_limit_exceeded").await?;
    let too_long = refusing("400 Bad Request", "context_length_exceeded").await?;
    let server = Server::new()
        .model("puppet", Puppet)
        .agent("agent", agent)
        .model("limited", limited.chat_model("x"))
        .model("too-long", too_long.chat_model("x"))
        .api_key("sk-test")
        .max_body_bytes(1 << 20)
        .spawn("127.0.0.1:0")
        .await?;
    println!("{}", server.url());
    let end = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    end.await??;
    server.stop_within(Duration::from_secs(5)).await?;
    Ok(())
}
