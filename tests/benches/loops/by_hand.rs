//! A typical hand-written loop: the messages are in a list, and the tools are serialized once. Each turn writes the complete
//! body, reads the reply, and calls the tool by its name.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{INSTRUCTIONS, MODEL, QUESTION, tools};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The HTTP client and the tools as serialized in every request.
#[derive(Clone)]
pub(crate) struct Agent {
    http: reqwest::Client,
    url: String,
    tools: Box<RawValue>,
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    tools: &'a RawValue,
    messages: &'a [Message],
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Message {
    System { content: &'static str },
    User { content: &'static str },
    Assistant { content: Option<String>, tool_calls: Vec<Call> },
    Tool { tool_call_id: String, content: String },
}

#[derive(Serialize, Deserialize)]
struct Call {
    id: String,
    r#type: String,
    function: Function,
}

#[derive(Serialize, Deserialize)]
struct Function {
    name: String,
    arguments: String,
}

#[derive(Deserialize)]
struct Reply {
    choices: Vec<Choice>,
    usage: Usage,
}

#[derive(Deserialize)]
struct Choice {
    message: Answer,
}

#[derive(Deserialize)]
struct Answer {
    content: Option<String>,
    #[serde(default)]
    tool_calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Usage {
    total_tokens: u64,
}

impl Agent {
    pub(crate) fn new(base_url: &str) -> Outcome<Self> {
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let tls =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
        let http = reqwest::Client::builder()
            .no_proxy()
            .tls_backend_preconfigured(tls)
            .connect_timeout(Duration::from_secs(5))
            .read_timeout(Duration::from_secs(600))
            .build()?;
        let tools = tools::all();
        let tools = tools.definitions().iter().map(|tool| {
            serde_json::json!({
                "type": "function",
                "function": {
                    "name": tool.name(),
                    "description": tool.description(),
                    "parameters": tool.parameters(),
                    "strict": false,
                },
            })
        });
        let tools = serde_json::value::to_raw_value(&tools.collect::<Vec<_>>())?;
        Ok(Self { http, url: format!("{base_url}/chat/completions"), tools })
    }

    /// Runs the loop and returns the answer, the number of calls and the number of tokens.
    pub(crate) async fn ask(&self) -> Outcome<(String, usize, u64)> {
        let mut messages =
            vec![Message::System { content: INSTRUCTIONS }, Message::User { content: QUESTION }];
        let (mut calls, mut tokens) = (0, 0);
        loop {
            let body =
                serde_json::to_vec(&Request { model: MODEL, tools: &self.tools, messages: &messages })?;
            let request = self.http.post(&self.url).header("content-type", "application/json").body(body);
            let reply = request.send().await?.error_for_status()?.bytes().await?;
            let Reply { choices, usage } = serde_json::from_slice(&reply)?;
            tokens += usage.total_tokens;
            let Answer { content, tool_calls } =
                choices.into_iter().next().ok_or("the reply has no choice")?.message;
            if tool_calls.is_empty() {
                return Ok((content.unwrap_or_default(), calls, tokens));
            }
            calls += tool_calls.len();
            let outcomes: Vec<_> = tool_calls
                .iter()
                .map(|Call { id, function, .. }| {
                    let outcome = tools::call_by_hand(&function.name, &function.arguments);
                    let content = outcome.unwrap_or_else(|error| error.to_string());
                    Message::Tool { tool_call_id: id.clone(), content }
                })
                .collect();
            messages.push(Message::Assistant { content, tool_calls });
            messages.extend(outcomes);
        }
    }
}
