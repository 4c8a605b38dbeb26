//! Each request of a run starts with the bytes of the previous one, so that the provider's prompt cache hits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use serde_json::{Value, json};
use tests::support::sampling::cases;
use tests::support::{RawServer, whole_answer};
use tool_anthropic::Anthropic;
use tool_core::agent::{Compaction, ToolSearch};
use tool_core::content::Image;
use tool_core::layer::rewrite;
use tool_core::memory::{InMemoryStore, Window};
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ChatStream, ToolChoice};
use tool_core::provider::{ModelFuture, ResponseFormat};
use tool_core::{Agent, ChatMemory, ChatModel, Event, ModelOptions, ToolOutput, tool, tools};
use tool_openai::{ChatCompletions, Endpoint, OpenAi};

/// The number of replies.
const TURNS: usize = 20;

/// Sums two numbers.
#[tool]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

/// Reads a text, “quoted”.
#[tool]
fn read() -> String {
    "22 °C\n\"quoted\" \u{2028} \\ </script>".into()
}

/// Draws a dot.
#[tool]
fn draw() -> ToolOutput {
    ToolOutput::text("a dot").with_part(Image::from_bytes("image/png", [0, 1, 2]))
}

/// Does nothing.
#[tool]
fn rest() {}

/// Lists all entries.
#[tool]
fn list(names: Option<Vec<String>>) -> Vec<Option<String>> {
    names.unwrap_or_default().into_iter().map(Some).chain([None]).collect()
}

/// Fails.
#[tool]
fn fail() -> Result<(), String> {
    Err("no such city".into())
}

/// Returns the calls of a turn: all kinds of outputs, errors, repaired and broken arguments, an unknown tool, and names
/// with garbage.
fn calls(turn: usize) -> &'static [(&'static str, &'static str)] {
    const CALLS: [&[(&str, &str)]; 9] = [
        &[("sum", r#"{"a": 1, "b": 2.5}"#)],
        &[("read", ""), ("draw", "{}")],
        &[("sum", r#"{"a": "1", "b": 2}"#)],
        &[("draw", "{}"), ("rest", "null")],
        &[("list", r#"{"names": ["é", "\u00e9", "😀"]}"#), ("fail", "{}")],
        &[("nothing", "{}")],
        &[("sum", "{broken"), ("sum", r#"{"a": 1}"#)],
        &[("read\" />", r#"{  }"#)],
        &[("list", r#"{"names": "one"}"#)],
    ];
    CALLS[turn % CALLS.len()]
}

/// Returns the answer of a turn. Some ids are missing or repeated.
fn reply(turn: usize, is_called_through: bool) -> Vec<u8> {
    let message = if turn + 1 == TURNS {
        json!({ "role": "assistant", "content": "{}" })
    } else {
        let call = |(index, (name, arguments)): (usize, &(&str, &str))| {
            let id = if turn.is_multiple_of(3) { Value::Null } else { json!(format!("call_{index}")) };
            let (name, arguments) = match is_called_through {
                true => ("call_tool", json!({ "name": name, "arguments": arguments }).to_string()),
                false => (*name, (*arguments).to_owned()),
            };
            json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
        };
        let mut calls: Vec<_> = calls(turn).iter().enumerate().map(call).collect();
        if is_called_through && turn.is_multiple_of(4) {
            let query = json!({ "query": "sum, read, draw, list" }).to_string();
            let function = json!({ "name": "search_tools", "arguments": query });
            calls.push(json!({ "id": format!("search_{turn}"), "type": "function", "function": function }));
        }
        let text = turn.is_multiple_of(2).then_some("Let me see.");
        json!({ "role": "assistant", "content": text, "tool_calls": calls })
    };
    let body = json!({ "choices": [{ "message": message }], "usage": { "prompt_tokens": turn } }).to_string();
    whole_answer("200 OK", &[("content-type", "application/json")], body.as_bytes())
}

/// Sends each request with the same options and answer format.
struct WithOptions(ChatCompletions, ModelOptions, Option<ResponseFormat>);

impl ChatModel for WithOptions {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async {
            let request = request.clone().with_options(self.1.clone()).with_response_format(self.2.clone());
            self.0.chat(&request).await
        })
    }
}

/// Returns the bodies that a run sends.
async fn bodies(
    choice: ToolChoice,
    is_streamed: bool,
    search: Option<ToolSearch>,
    model: impl FnOnce(ChatCompletions) -> Box<dyn ChatModel>,
) -> Vec<String> {
    let server =
        RawServer::answering_in_turn((0..TURNS).map(|turn| reply(turn, search.is_some())).collect()).await;
    let openai = OpenAi::builder().base_url(server.base_url()).build().unwrap();
    let builder = Agent::builder(model(openai.chat_model("m")));
    let builder = match search {
        Some(search) => builder.tool_search(search).limits(|l| l.max_repeated_calls(100)),
        None => builder,
    };
    let agent = builder
        .instructions("Use the tools.")
        .tools(tools![sum, read, draw, rest, list, fail])
        .tool_choice(choice)
        .limits(|l| l.max_turns(u32::try_from(TURNS).unwrap()))
        .build()
        .unwrap();
    let ask = agent.ask("What is there?");
    if is_streamed {
        let mut events = ask.stream();
        while let Some(event) = events.next().await {
            event.unwrap();
        }
    } else {
        assert_eq!(ask.await.unwrap().turns() as usize, TURNS);
    }
    let body = |request: String| request.split_once("\r\n\r\n").unwrap().1.to_owned();
    server.requests().into_iter().map(body).collect()
}

/// Returns the part of a body up to its last message. The messages are in the field of this name.
fn up_to_the_messages<'a>(body: &'a str, field: &str) -> &'a str {
    let read: Value = serde_json::from_str(body).unwrap();
    let messages = &read[field];
    let keys = read.as_object().unwrap().keys().map(String::as_str);
    let following: Vec<_> = keys.skip_while(|key| *key != field).collect();
    let end = match following[..] {
        [_] => "]}".to_owned(),
        [_, "tool_choice"] => format!(r#"],"tool_choice":{}}}"#, read["tool_choice"]),
        ref other => panic!("unexpected fields after the messages: {other:?}"),
    };
    assert!(!messages.as_array().unwrap().is_empty());
    body.strip_suffix(&end).unwrap()
}

#[tokio::test]
async fn a_turn_starts_with_the_bytes_of_the_previous_one() {
    let plain = |model| Box::new(model) as Box<dyn ChatModel>;
    let with_options = |model| {
        let options = ModelOptions::default().with_temperature(0.1).with_stop(["END"]).with_seed(7);
        let format = ResponseFormat::json_schema("nothing", json!({ "type": "object", "properties": {} }));
        Box::new(WithOptions(model, options, Some(format))) as Box<dyn ChatModel>
    };
    let search = Some(ToolSearch::bm25().min_tools(1).call_through());
    let runs = [
        ("awaited", bodies(ToolChoice::Auto, false, None, plain).await),
        ("streamed", bodies(ToolChoice::Auto, true, None, plain).await),
        ("with options", bodies(ToolChoice::Auto, false, None, with_options).await),
        ("called through", bodies(ToolChoice::Auto, false, search.clone(), plain).await),
        ("called through and streamed", bodies(ToolChoice::Auto, true, search, plain).await),
        ("with a call that is required", bodies(ToolChoice::Required, false, None, plain).await),
        (
            "with a tool that is required",
            bodies(ToolChoice::Tool("sum".into()), false, None, with_options).await,
        ),
    ];
    for (name, bodies) in runs {
        assert_eq!(bodies.len(), TURNS, "{name}");
        for (turn, pair) in bodies.windows(2).enumerate() {
            let before = up_to_the_messages(&pair[0], "messages");
            assert!(
                pair[1].starts_with(before) && pair[1].len() > pair[0].len(),
                "{name}, turn {turn}:\n{}\n{}",
                pair[0],
                pair[1]
            );
        }
        if name.starts_with("called through") {
            let last = bodies.last().unwrap();
            assert!(
                last.contains(r#""name":"call_tool""#) && !last.contains(r#""function":{"name":"draw""#),
                "{last}"
            );
            assert!(last.contains("the best match first"), "{last}");
        }
        // Options of the request are present in every turn.
        let last = bodies.last().unwrap();
        let words = [r#""tools":["#, r#""temperature":0.1"#, r#""response_format":{"#];
        let has = words.map(|word| last.contains(word));
        let has_options = name.starts_with("with options") || name.starts_with("with a tool");
        assert_eq!(has, [true, has_options, has_options], "{name}: {last}");
        assert!(last.contains(r#""image_url""#) && last.contains("no such city"), "{name}: {last}");
    }
}

/// Reads a page.
#[tool(pure)]
fn page(number: u32) -> String {
    format!("page {number}: {}", "lorem ipsum ".repeat(200))
}

/// The APIs whose bytes are compared.
#[derive(Clone, Copy, Debug)]
enum Wire {
    ChatCompletions,
    Responses,
    Messages,
    /// Of a model whose provider summarizes, and that thinks.
    Summarized,
    /// Of a model whose provider compacts.
    Compacted,
}

/// What happens in a case, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Happened {
    /// A question was asked. A window begins behind so many messages.
    Asked(usize),
    /// A run inside started.
    HelperAsked,
    /// The run is one of the second agent from here on.
    HandedOff,
    /// An agent has sent the next request of its turns, or one for a summary of its own.
    Sent(Agents),
    Summarized(Agents),
    /// The provider was asked for a summary.
    SummarizedByProvider(Agents),
    Compacted(Agents),
    /// The same, by a summary.
    Replaced(Agents),
}

/// The agents of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Agents {
    Outer,
    Helper,
    Second,
}

type Log = Arc<Mutex<Vec<Happened>>>;

/// A model of an agent, whose requests are recorded.
struct Recorded {
    agent: Agents,
    model: Box<dyn ChatModel>,
    log: Log,
}

impl Recorded {
    fn record(&self, request: &ChatRequest<'_>) {
        let is_own = request.messages().last().is_some_and(|last| last.text().starts_with("Summarize this"));
        let happened = match (request.is_compaction(), is_own) {
            (true, _) => Happened::SummarizedByProvider(self.agent),
            (false, true) => Happened::Summarized(self.agent),
            (false, false) => Happened::Sent(self.agent),
        };
        self.log.lock().unwrap().push(happened);
    }
}

impl ChatModel for Recorded {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        self.record(request);
        self.model.chat(request)
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        self.record(request);
        self.model.stream(request)
    }

    fn binds_reasoning(&self, reply: &AssistantMessage) -> bool {
        self.model.binds_reasoning(reply)
    }

    fn reasoning_bytes(&self, reply: &AssistantMessage) -> usize {
        self.model.reasoning_bytes(reply)
    }

    fn supports_compaction(&self) -> bool {
        self.model.supports_compaction()
    }

    fn reads_summary(&self, summary: &AssistantMessage) -> bool {
        self.model.reads_summary(summary)
    }
}

impl Wire {
    fn model(self, server: &RawServer) -> Box<dyn ChatModel> {
        let openai =
            || OpenAi::builder().endpoint(Endpoint::openai()).api_key("k").base_url(server.base_url());
        match self {
            Self::ChatCompletions => Box::new(openai().build().unwrap().chat_model("m")),
            Self::Responses => Box::new(openai().build().unwrap().responses_model("m")),
            Self::Messages => {
                let anthropic = Anthropic::builder().api_key("k").base_url(server.base_url());
                Box::new(anthropic.build().unwrap().chat_model("claude-haiku-5-5"))
            }
            Self::Summarized => {
                let mut endpoint = tool_anthropic::Endpoint::anthropic();
                endpoint.base_url = Some(server.base_url().into());
                let anthropic = Anthropic::builder().api_key("k").endpoint(endpoint);
                let anthropic = anthropic.base_url(server.base_url()).build().unwrap();
                Box::new(anthropic.chat_model("claude-sonnet-5-5"))
            }
            Self::Compacted => {
                // The name under which what belongs to the provider is stored is that of its address.
                let mut endpoint = Endpoint::openai();
                endpoint.base_url = Some(server.base_url().into());
                let openai = OpenAi::builder().endpoint(endpoint).api_key("k").base_url(server.base_url());
                Box::new(openai.build().unwrap().responses_model("m"))
            }
        }
    }

    /// Returns the provider's summary.
    fn summary(self) -> Vec<u8> {
        let body = match self {
            Self::Compacted => json!({
                "id": "resp_c", "object": "response.compaction", "created_at": 1,
                "output": [{ "id": "cmp_1", "type": "compaction", "encrypted_content": "ZW5j" }],
                "usage": { "input_tokens": 0, "output_tokens": 0, "total_tokens": 0 },
            }),
            _ => json!({
                "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5",
                "content": [{ "type": "compaction", "content": "Pages were read.", "signature": "s" }],
                "stop_reason": "compaction", "stop_sequence": null, "usage": { "input_tokens": 0, "output_tokens": 0 },
            }),
        };
        whole_answer("200 OK", &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    /// Returns the field that has the conversation.
    fn field(self) -> &'static str {
        if matches!(self, Self::Responses | Self::Compacted) { "input" } else { "messages" }
    }

    /// Returns a reply with these calls, or a text if there are none, to a request of so many tokens.
    fn reply(self, turn: usize, calls: &[(&str, Value)], input: usize) -> Vec<u8> {
        let id = |index: usize| format!("call_{turn}_{index}");
        let calls = calls.iter().enumerate();
        let output = 10;
        let body = match self {
            Self::ChatCompletions => {
                let calls = calls.map(|(index, (name, arguments))| {
                    let function = json!({ "name": name, "arguments": arguments.to_string() });
                    json!({ "id": id(index), "type": "function", "function": function })
                });
                let calls: Vec<_> = calls.collect();
                let message = match calls.is_empty() {
                    true => json!({ "role": "assistant", "content": "Done." }),
                    false => json!({ "role": "assistant", "content": null, "tool_calls": calls }),
                };
                let usage = json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output });
                json!({ "choices": [{ "message": message }], "usage": usage })
            }
            Self::Responses | Self::Compacted => {
                let calls = calls.map(|(index, (name, arguments))| {
                    json!({
                        "id": format!("fc_{turn}_{index}"), "type": "function_call", "status": "completed", "call_id": id(index),
                        "name": name, "arguments": arguments.to_string(),
                    })
                });
                let mut items: Vec<_> = calls.collect();
                if items.is_empty() {
                    let part =
                        json!({ "type": "output_text", "text": "Done.", "annotations": [], "logprobs": [] });
                    items.push(json!({
                        "id": "msg", "type": "message", "status": "completed", "role": "assistant", "content": [part],
                    }));
                }
                let usage =
                    json!({ "input_tokens": input, "output_tokens": output, "total_tokens": input + output });
                json!({ "id": "resp_1", "status": "completed", "output": items, "usage": usage })
            }
            Self::Messages | Self::Summarized => {
                let calls = calls.map(|(index, (name, arguments))| {
                    json!({ "type": "tool_use", "id": id(index), "name": name, "input": arguments })
                });
                let mut blocks: Vec<_> = calls.collect();
                let reason = if blocks.is_empty() { "end_turn" } else { "tool_use" };
                if blocks.is_empty() {
                    blocks.push(json!({ "type": "text", "text": "Done." }));
                }
                if let Self::Summarized = self {
                    blocks.insert(0, json!({ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" }));
                }
                json!({
                    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5", "content": blocks,
                    "stop_reason": reason, "stop_sequence": null,
                    "usage": { "input_tokens": input, "output_tokens": output },
                })
            }
        };
        whole_answer("200 OK", &[("content-type", "application/json")], body.to_string().as_bytes())
    }
}

/// A run with random calls, and the features that it uses.
#[derive(Clone, Debug)]
struct Case {
    wire: Wire,
    /// The calls of each turn, by their numbers.
    turns: Vec<Vec<usize>>,
    /// Those of the agent that a call asks.
    inner: Vec<Vec<usize>>,
    /// Those after a handoff, if there is one.
    after: Option<Vec<Vec<usize>>>,
    searches: bool,
    has_layers: bool,
    compacts: bool,
    stores_outputs: bool,
    is_streamed: bool,
    /// The run's own model summarizes, and not another one.
    summarizes_itself: bool,
    /// The usage is not zero, so that the run need not estimate how long it is.
    reports_usage: bool,
    window: usize,
}

const HELPER: usize = 9;

impl Case {
    /// Returns a call.
    fn call(&self, number: usize, turn: usize) -> (&'static str, Value) {
        let (name, arguments) = match number {
            0..4 => ("page", json!({ "number": turn })),
            4 => ("sum", json!({ "a": "1", "b": 2.5 })),
            5 => ("fail", json!({})),
            6 => ("nothing", json!({})),
            7 => ("compact_conversation", json!({})),
            8 => ("read_output", json!({ "search": "page 1" })),
            _ => ("helper", json!({ "question": "Help" })),
        };
        // These are offered beside the search.
        match self.searches && !(7..9).contains(&number) {
            true => ("call_tool", json!({ "name": name, "arguments": arguments })),
            false => (name, arguments),
        }
    }

    async fn server(
        &self,
        turns: &[Vec<usize>],
        last: &[(&str, Value)],
        runs: usize,
        log: &Log,
    ) -> RawServer {
        let tokens = |turn: usize| if self.reports_usage { 500 + 700 * turn } else { 0 };
        let calls = turns.iter().enumerate().map(|(turn, numbers)| {
            let calls: Vec<_> = numbers.iter().map(|number| self.call(*number, turn)).collect();
            self.wire.reply(turn, &calls, tokens(turn))
        });
        let replies: Vec<_> =
            calls.chain([self.wire.reply(turns.len(), last, tokens(turns.len()))]).collect();
        let mut replies: VecDeque<_> = replies.iter().cycle().take(replies.len() * runs).cloned().collect();
        let (wire, log) = (self.wire, Arc::clone(log));
        let answers = std::iter::from_fn(move || {
            let log = log.lock().unwrap();
            log.iter().rev().find_map(|happened| match happened {
                Happened::Sent(_) => Some(replies.pop_front().unwrap_or_default()),
                Happened::Summarized(_) => Some(wire.reply(0, &[], 0)),
                Happened::SummarizedByProvider(_) => Some(wire.summary()),
                _ => None,
            })
        });
        RawServer::replying_from(answers).await
    }

    fn agent(&self, agent: Agents, server: &RawServer, log: &Log) -> tool_core::agent::AgentBuilder {
        let model = Recorded { agent, model: self.wire.model(server), log: Arc::clone(log) };
        let mut agent = Agent::builder(model)
            .instructions("Use the tools.")
            .tools(tools![page, sum, fail])
            .limits(|l| l.max_turns(100).max_repeated_calls(1_000));
        if self.searches {
            agent = agent.tool_search(ToolSearch::bm25().min_tools(1).call_through());
        }
        if self.has_layers {
            agent = agent.layer(rewrite::output(|_, output| output.to_string().replace("lorem", "dolor")));
            agent = agent.layer(rewrite::request(|request| request.with_instructions("You are watched.")));
        }
        if self.compacts {
            let compaction = Compaction::when_it_pays().at_tokens(4_000).keep_recent_tokens(1_000);
            let compaction = match self.summarizes_itself {
                true => compaction,
                false => compaction.summarize_with(Summarizes),
            };
            agent = agent.compaction(compaction.offer_tool());
        }
        if self.stores_outputs {
            agent = agent.max_output_chars(1_000).output_store(InMemoryStore::new());
        }
        agent
    }

    /// Fails unless each request begins with the one before of its agent, but right after a compaction of the run, or a step of the window.
    fn check(&self, log: &[Happened], servers: [&RawServer; 3]) {
        let bodies = |server: &RawServer| {
            let bodies = server.requests().into_iter().map(|request| {
                let body = request.split_once("\r\n\r\n").unwrap().1;
                // A cache point is no part of the prompt, and moves with each turn; nor is it how the reply is sent: summaries are not streamed.
                let mut body = body.to_owned();
                for other in [
                    r#","cache_control":{"type":"ephemeral"}"#,
                    r#""stream":true,"#,
                    r#""stream_options":{"include_usage":true},"#,
                ] {
                    body = body.replace(other, "");
                }
                body
            });
            bodies.collect::<VecDeque<_>>()
        };
        let mut sent = servers.map(bodies);
        let mut last: [Option<String>; 3] = Default::default();
        let mut may_break = [false; 3];
        let (mut window, mut has_summary) = (0, false);
        for happened in log {
            match *happened {
                // A question reads a summary in place of the question that the one before had kept.
                Happened::Asked(start) => {
                    if start != window || has_summary {
                        may_break = [true; 3];
                    }
                    (window, has_summary) = (start, false);
                }
                Happened::HelperAsked => last[Agents::Helper as usize] = None,
                Happened::Compacted(Agents::Helper) | Happened::Replaced(Agents::Helper) => {
                    may_break[Agents::Helper as usize] = true;
                }
                // Both agents send the messages of one run.
                Happened::Compacted(_) | Happened::Replaced(_) => {
                    has_summary |= matches!(happened, Happened::Replaced(_));
                    (may_break[Agents::Outer as usize], may_break[Agents::Second as usize]) = (true, true);
                }
                // Claude's thinking is bound to the instructions of an agent, and is left out in front of that of another one.
                Happened::HandedOff if matches!(self.wire, Wire::Summarized) => {
                    (may_break[Agents::Outer as usize], may_break[Agents::Second as usize]) = (true, true);
                }
                Happened::HandedOff => {}
                Happened::SummarizedByProvider(agent) => {
                    let body = sent[agent as usize].pop_front().unwrap();
                    if self.after.is_some() && matches!(self.wire, Wire::Summarized) {
                        // Thinking before that of another agent is left out, but not in a request that ends before it.
                        continue;
                    }
                    // It ends before the last messages, which stay, and which another agent can have added.
                    if let Some(before) = last[agent as usize].as_ref().filter(|_| !may_break[agent as usize])
                    {
                        let messages = |body: &str| {
                            let body: Value = serde_json::from_str(body).unwrap();
                            body[self.wire.field()].as_array().unwrap().clone()
                        };
                        let (before, sent) = (messages(before), messages(&body));
                        let continues = before.starts_with(&sent) || sent.starts_with(&before);
                        assert!(!sent.is_empty() && continues, "{before:?}\n{body}");
                    }
                }
                Happened::Sent(agent) | Happened::Summarized(agent) => {
                    let agent = agent as usize;
                    let body = sent[agent].pop_front().unwrap();
                    if let Some(before) = last[agent].as_ref().filter(|_| !may_break[agent]) {
                        let prefix = up_to_the_messages(before, self.wire.field());
                        assert!(body.starts_with(prefix), "{happened:?} of {log:?}\n{before}\n{body}");
                    }
                    if let Happened::Sent(_) = happened {
                        (last[agent], may_break[agent]) = (Some(body), false);
                    }
                }
            }
        }
        assert!(sent.iter().all(VecDeque::is_empty), "{log:?}");
    }

    async fn run(&self) {
        const QUESTIONS: usize = 3;
        let log = Log::default();
        let helped = self.turns.iter().flatten().filter(|number| **number == HELPER).count();
        let handoff = [("second", json!({}))];
        let last: &[_] = if self.after.is_some() { &handoff } else { &[] };
        let outer = self.server(&self.turns, last, QUESTIONS, &log).await;
        let inner_case = Self { searches: false, ..self.clone() };
        let inner = inner_case.server(&self.inner, &[], QUESTIONS * helped, &log).await;
        let after = self.after.clone().unwrap_or_default();
        let second = self.server(&after, &[], QUESTIONS, &log).await;
        let helper = inner_case.agent(Agents::Helper, &inner, &log).build().unwrap();
        let window = Window::messages(self.window);
        let memory = ChatMemory::new(InMemoryStore::new()).window(window.clone());
        let seen = Arc::clone(&log);
        let mut agent = self
            .agent(Agents::Outer, &outer, &log)
            .tools(helper.as_tool("helper", "Helps"))
            .memory(memory.clone())
            .on_event(move |event| {
                let happened = match event {
                    Event::CallStarted(call) if call.name == "helper" => Happened::HelperAsked,
                    Event::Agent { event, .. } if matches!(**event, Event::Compacted { .. }) => {
                        Happened::Compacted(Agents::Helper)
                    }
                    Event::Compacted { messages: 1.., .. } => Happened::Replaced(Agents::Outer),
                    Event::Compacted { .. } => Happened::Compacted(Agents::Outer),
                    Event::HandedOff { .. } => Happened::HandedOff,
                    _ => return,
                };
                seen.lock().unwrap().push(happened);
            });
        if self.after.is_some() {
            let other = self.agent(Agents::Second, &second, &log);
            agent = agent.handoff_to(
                "second",
                "Takes over",
                &other.instructions("You are the second.").build().unwrap(),
            );
        }
        let agent = agent.build().unwrap();
        for _ in 0..QUESTIONS {
            let stored = memory.messages("c").await.unwrap();
            let start = stored.len() - window.apply(stored.clone()).len();
            log.lock().unwrap().push(Happened::Asked(start));
            let ask = agent.ask("Go").conversation("c");
            let answer = if self.is_streamed {
                let (mut events, mut answer) = (ask.stream(), None);
                while let Some(event) = events.next().await {
                    if let Event::Done(done) = event.unwrap() {
                        answer = Some(done);
                    }
                }
                answer.unwrap()
            } else {
                ask.await.unwrap()
            };
            assert_eq!(answer.text(), "Done.");
        }
        self.check(&log.lock().unwrap(), [&outer, &inner, &second]);
    }
}

struct Summarizes;

impl ChatModel for Summarizes {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async { Ok(ChatResponse::new(AssistantMessage::text("Pages were read."))) })
    }
}

fn turns(calls: std::ops::Range<usize>, most: usize) -> impl Strategy<Value = Vec<Vec<usize>>> {
    prop::collection::vec(prop::collection::vec(calls, 1..4), 1..most)
}

fn any_case() -> impl Strategy<Value = Case> {
    let wires = [Wire::ChatCompletions, Wire::Responses, Wire::Messages, Wire::Summarized, Wire::Compacted];
    let wire = prop::sample::select(wires.to_vec());
    // Two runs inside at once would share their replies.
    let outer = turns(0..HELPER + 1, 12).prop_map(|mut turns| {
        for calls in &mut turns {
            let first = calls.iter().position(|number| *number == HELPER);
            let mut position = 0;
            calls.retain(|number| {
                position += 1;
                *number != HELPER || Some(position - 1) == first
            });
        }
        turns
    });
    let after = prop::option::of(turns(0..HELPER, 6));
    let features = prop::array::uniform7(any::<bool>());
    (wire, outer, turns(0..HELPER, 4), after, features, 4_usize..40).prop_map(
        |(wire, turns, inner, after, features, window)| {
            let [
                searches,
                has_layers,
                compacts,
                stores_outputs,
                is_streamed,
                summarizes_itself,
                reports_usage,
            ] = features;
            Case {
                wire,
                turns,
                inner,
                after,
                searches,
                has_layers,
                compacts,
                stores_outputs,
                is_streamed,
                summarizes_itself,
                reports_usage,
                window,
            }
        },
    )
}

proptest! {
    #![proptest_config(cases(12, 500))]

    /// Whatever features a run uses, only a compaction changes what was sent.
    #[test]
    fn only_a_compaction_changes_what_was_sent(case in any_case()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(case.run());
    }
}
