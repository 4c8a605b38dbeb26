//! Each request of a run starts with the bytes of the previous one, so that the provider's prompt cache hits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use serde_json::{Value, json};
use tests::support::sampling::cases;
use tests::support::{RawServer, whole_answer};
use tool_anthropic::Anthropic;
use tool_core::agent::{Compaction, ToolSearch};
use tool_core::content::Image;
use tool_core::layer::rewrite;
use tool_core::memory::{InMemoryStore, Window};
use tool_core::model::{
    AssistantMessage, ChatRequest, ChatResponse, ModelFuture, ResponseFormat, ToolChoice,
};
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
        RawServer::replying_in_turn((0..TURNS).map(|turn| reply(turn, search.is_some())).collect()).await;
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

/// A model whose provider summarizes, and another server for its summaries.
struct Summarized {
    model: Box<dyn ChatModel>,
    summaries: Box<dyn ChatModel>,
}

impl Summarized {
    fn boxed(model: impl ChatModel + 'static, summaries: impl ChatModel + 'static) -> Box<dyn ChatModel> {
        assert!(model.supports_compaction());
        Box::new(Self { model: Box::new(model), summaries: Box::new(summaries) })
    }
}

impl ChatModel for Summarized {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        if request.is_compaction() { self.summaries.chat(request) } else { self.model.chat(request) }
    }

    fn binds_reasoning(&self, reply: &AssistantMessage) -> bool {
        self.model.binds_reasoning(reply)
    }

    fn reasoning_bytes(&self, reply: &AssistantMessage) -> usize {
        self.model.reasoning_bytes(reply)
    }

    fn supports_compaction(&self) -> bool {
        true
    }

    fn reads_summary(&self, summary: &AssistantMessage) -> bool {
        self.model.reads_summary(summary)
    }
}

impl Wire {
    fn model(self, server: &RawServer, summaries: &RawServer) -> Box<dyn ChatModel> {
        let openai =
            || OpenAi::builder().endpoint(Endpoint::openai()).api_key("k").base_url(server.base_url());
        match self {
            Self::ChatCompletions => Box::new(openai().build().unwrap().chat_model("m")),
            Self::Responses => {
                let mut endpoint = Endpoint::openai();
                endpoint.supports_compaction = false;
                Box::new(openai().endpoint(endpoint).build().unwrap().responses_model("m"))
            }
            Self::Messages => {
                let anthropic = Anthropic::builder().api_key("k").base_url(server.base_url());
                Box::new(anthropic.build().unwrap().chat_model("claude-haiku-5-5"))
            }
            Self::Summarized => {
                let claude = |server: &RawServer| {
                    let mut endpoint = tool_anthropic::Endpoint::anthropic();
                    endpoint.base_url = Some(server.base_url().into());
                    let anthropic = Anthropic::builder().api_key("k").endpoint(endpoint);
                    anthropic.base_url(server.base_url()).build().unwrap().chat_model("claude-sonnet-5-5")
                };
                Summarized::boxed(claude(server), claude(summaries))
            }
            Self::Compacted => {
                let model = |server: &RawServer| {
                    // The name under which what belongs to the provider is stored is that of its address.
                    let mut endpoint = Endpoint::openai();
                    endpoint.base_url = Some(server.base_url().into());
                    let openai =
                        OpenAi::builder().endpoint(endpoint).api_key("k").base_url(server.base_url());
                    openai.build().unwrap().responses_model("m")
                };
                Summarized::boxed(model(server), model(summaries))
            }
        }
    }

    /// Starts a server that answers each request with a summary.
    async fn summaries(self) -> RawServer {
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
        let headers = [("content-type", "application/json")];
        RawServer::answering("200 OK", &headers, body.to_string().as_bytes()).await
    }

    /// Returns the field that has the conversation.
    fn field(self) -> &'static str {
        if matches!(self, Self::Responses | Self::Compacted) { "input" } else { "messages" }
    }

    /// Returns a reply with these calls, or a text if there are none.
    fn reply(self, turn: usize, calls: &[(&str, Value)]) -> Vec<u8> {
        let id = |index: usize| format!("call_{turn}_{index}");
        let calls = calls.iter().enumerate();
        // Not credible, so that the run estimates how long it is.
        let (input, output) = (0, 10);
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

    fn replies(&self, turns: &[Vec<usize>], last: &[(&str, Value)]) -> Vec<Vec<u8>> {
        let calls = turns.iter().enumerate().map(|(turn, numbers)| {
            let calls: Vec<_> = numbers.iter().map(|number| self.call(*number, turn)).collect();
            self.wire.reply(turn, &calls)
        });
        calls.chain([self.wire.reply(turns.len(), last)]).collect()
    }

    async fn server(&self, turns: &[Vec<usize>], last: &[(&str, Value)], runs: usize) -> RawServer {
        let replies = self.replies(turns, last);
        RawServer::replying_in_turn(replies.iter().cycle().take(replies.len() * runs).cloned().collect())
            .await
    }

    fn agent(&self, server: &RawServer, summaries: &RawServer) -> tool_core::agent::AgentBuilder {
        let mut agent = Agent::builder(self.wire.model(server, summaries))
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
            agent = agent.compaction(compaction.summarize_with(Summarizes).offer_tool());
        }
        if self.stores_outputs {
            agent = agent.max_output_chars(1_000).output_store(InMemoryStore::new());
        }
        agent
    }

    /// Fails unless the requests of each run begin with those before, but for this number of them.
    fn check(&self, server: &RawServer, turns: usize, runs: usize, mut compactions: usize) {
        let bodies: Vec<_> = server
            .requests()
            .into_iter()
            .map(|request| {
                let body = request.split_once("\r\n\r\n").unwrap().1;
                // A cache point is no part of the prompt, and moves with each turn.
                body.replace(r#","cache_control":{"type":"ephemeral"}"#, "")
            })
            .collect();
        assert_eq!(bodies.len(), turns * runs);
        for run in bodies.chunks(turns) {
            for pair in run.windows(2) {
                if !pair[1].starts_with(up_to_the_messages(&pair[0], self.wire.field())) {
                    assert!(compactions > 0, "{}\n{}", pair[0], pair[1]);
                    compactions -= 1;
                }
            }
        }
    }

    async fn run(&self) {
        const QUESTIONS: usize = 3;
        let helped = self.turns.iter().flatten().filter(|number| **number == HELPER).count();
        let handoff = [("second", json!({}))];
        let last: &[_] = if self.after.is_some() { &handoff } else { &[] };
        let outer = self.server(&self.turns, last, QUESTIONS).await;
        let inner_case = Self { searches: false, compacts: false, ..self.clone() };
        let inner = inner_case.server(&self.inner, &[], QUESTIONS * helped).await;
        let after = self.after.clone().unwrap_or_default();
        let second = self.server(&after, &[], QUESTIONS).await;
        let summaries = self.wire.summaries().await;
        let compactions = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&compactions);
        let mut agent = self
            .agent(&outer, &summaries)
            .tool(inner_case.agent(&inner, &summaries).build().unwrap().as_tool("helper", "Helps"))
            .memory(ChatMemory::new(InMemoryStore::new()).window(Window::messages(self.window)))
            .on_event(move |event| {
                if let Event::Compacted { .. } = event {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
        if self.after.is_some() {
            let other = self.agent(&second, &summaries).instructions("You are the second.").build().unwrap();
            agent = agent.handoff_to("second", "Takes over", &other);
        }
        let agent = agent.build().unwrap();
        for _ in 0..QUESTIONS {
            assert_eq!(agent.ask("Go").conversation("c").await.unwrap().text(), "Done.");
        }
        let compactions = compactions.load(Ordering::Relaxed);
        self.check(&outer, self.turns.len() + 1, QUESTIONS, compactions);
        inner_case.check(&inner, self.inner.len() + 1, QUESTIONS * helped, 0);
        if self.after.is_some() {
            self.check(&second, after.len() + 1, QUESTIONS, compactions);
        }
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
    let features = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), 4_usize..40);
    (wire, outer, turns(0..7, 4), after, features).prop_map(|(wire, turns, inner, after, features)| {
        let (searches, has_layers, compacts, stores_outputs, window) = features;
        Case { wire, turns, inner, after, searches, has_layers, compacts, stores_outputs, window }
    })
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
