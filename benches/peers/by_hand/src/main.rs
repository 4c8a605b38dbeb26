//! A typical loop written by hand: the messages are in a list, and the tools are serialized once. Each turn writes the
//! complete body, reads the reply, and calls the tool by its name.

use std::sync::Arc;

use harness::tools::{DESCRIPTION, Filter, NAMES, Page, look_up};
use harness::{INSTRUCTIONS, MODEL, Program, QUESTION};
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// what the places must have
    filter: Filter,
    /// which page, from 1
    page: u32,
}

macro_rules! declare {
    ($($name:ident $type:ident,)*) => {
        $(
            fn $name(filter: Filter, page: u32) -> Page {
                look_up(filter, page)
            }
        )*

        fn call(name: &str, arguments: &str) -> Outcome<String> {
            match name {
                $(
                    stringify!($name) => {
                        let Arguments { filter, page } = serde_json::from_str(arguments)?;
                        Ok(serde_json::to_string(&$name(filter, page))?)
                    }
                )*
                other => Err(format!("unknown tool {other}").into()),
            }
        }
    };
}

harness::for_all_tools!(declare);

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

#[derive(Clone)]
struct ByHand {
    http: reqwest::Client,
    url: Arc<str>,
    tools: Arc<RawValue>,
    max_turns: u32,
}

impl ByHand {
    async fn answer(self) -> Outcome<String> {
        let mut messages =
            vec![Message::System { content: INSTRUCTIONS }, Message::User { content: QUESTION }];
        for _ in 0..self.max_turns {
            let body =
                serde_json::to_vec(&Request { model: MODEL, tools: &self.tools, messages: &messages })?;
            let request = self.http.post(&*self.url).header("content-type", "application/json").body(body);
            let reply = request.send().await?.error_for_status()?.bytes().await?;
            let Reply { choices } = serde_json::from_slice(&reply)?;
            let choice = choices.into_iter().next().ok_or("the reply has no choice")?;
            let Answer { content, tool_calls } = choice.message;
            if tool_calls.is_empty() {
                return Ok(content.unwrap_or_default());
            }
            let results: Vec<_> = tool_calls
                .iter()
                .map(|Call { id, function, .. }| {
                    let result = call(&function.name, &function.arguments);
                    let content = result.unwrap_or_else(|error| error.to_string());
                    Message::Tool { tool_call_id: id.clone(), content }
                })
                .collect();
            messages.push(Message::Assistant { content, tool_calls });
            messages.extend(results);
        }
        Err("there are too many turns".into())
    }
}

impl Program for ByHand {
    type Called = String;

    fn new(base_url: &str, max_turns: u32) -> Self {
        _ = rustls::crypto::ring::default_provider().install_default();
        let parameters = schema_for!(Arguments);
        let tools = NAMES.iter().map(|name| {
            let function =
                serde_json::json!({ "name": name, "description": DESCRIPTION, "parameters": parameters });
            serde_json::json!({ "type": "function", "function": function })
        });
        let tools = serde_json::value::to_raw_value(&tools.collect::<Vec<_>>()).expect("tools are JSON");
        let url = format!("{base_url}/chat/completions").into();
        Self { http: reqwest::Client::new(), url, tools: tools.into(), max_turns }
    }

    fn ask(&self) -> impl Future<Output = String> + Send + 'static {
        let run = self.clone().answer();
        async { run.await.expect("the endpoint answers") }
    }

    async fn call(&self, name: &str, arguments: &str) -> String {
        call(name, arguments).expect("the arguments are valid")
    }

    fn text(called: String) -> String {
        called
    }
}

fn main() -> std::io::Result<()> {
    harness::run::<ByHand>()
}
