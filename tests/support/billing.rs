//! A model that bills as a provider with a prompt cache does.

use std::sync::{Arc, Mutex};

use tool_core::model::{
    AssistantMessage, ChatRequest, ChatResponse, Message, ModelError, ModelFuture, Usage,
};
use tool_core::{ChatModel, ToolCall};

/// What tokens cost, in input tokens: read from the cache, written to it, and of the output.
const CACHED: f64 = 0.1;
const WRITTEN: f64 = 1.25;
const OUTPUT: f64 = 5.0;

/// The bytes of one token.
const BYTES_PER_TOKEN: usize = 4;

/// A model that calls a tool for a number of turns, and bills each request by the part that is not in the cache: the last requests
/// of the same prefix.
#[derive(Clone)]
pub(crate) struct BillingModel {
    turns: usize,
    tool: &'static str,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    turn: usize,
    cached: Vec<String>,
    bill: Bill,
}

/// What the requests have cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bill {
    /// In input tokens.
    pub(crate) price: f64,
    pub(crate) tokens: usize,
    /// The tokens that were read from the cache.
    pub(crate) cached: usize,
    /// The tokens that the request before had sent.
    pub(crate) repeated: usize,
    pub(crate) summaries: usize,
}

impl BillingModel {
    /// Calls this tool with a page, in so many turns.
    pub(crate) fn new(turns: usize, tool: &'static str) -> Self {
        Self { turns, tool, state: Arc::default() }
    }

    pub(crate) fn bill(&self) -> Bill {
        self.state.lock().unwrap().bill
    }
}

fn tokens(text: &str) -> usize {
    text.len().div_ceil(BYTES_PER_TOKEN)
}

fn text(message: &Message) -> String {
    let calls = message.as_assistant().map(|reply| &*reply.tool_calls).unwrap_or_default();
    let calls: String = calls.iter().map(|call| format!("{}{}", call.name, call.arguments)).collect();
    format!("{}{calls}", message.text())
}

impl ChatModel for BillingModel {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let reply = || -> Result<ChatResponse, ModelError> {
            let mut state = self.state.lock().unwrap();
            let tools: String = request.tools().iter().map(|tool| tool.name().to_owned()).collect();
            let sent: Vec<_> = [tools].into_iter().chain(request.messages().iter().map(text)).collect();
            let same = sent.iter().zip(&state.cached).take_while(|(one, other)| one == other).count();
            let cached: usize = sent[..same].iter().map(|text| tokens(text)).sum();
            let all: usize = sent.iter().map(|text| tokens(text)).sum();
            let is_summary = sent.last().is_some_and(|text| text.starts_with("Summarize this"));
            let message = if is_summary {
                AssistantMessage::text("The pages were read, and their numbers noted. ".repeat(40))
            } else if state.turn < self.turns {
                state.turn += 1;
                let call = ToolCall::new("", self.tool, format!(r#"{{"page": {}}}"#, state.turn));
                AssistantMessage::default().with_tool_calls([call])
            } else {
                AssistantMessage::text("Done.")
            };
            let output = tokens(&message.text) + 30;
            let repeated = state.cached.iter().map(|text| tokens(text)).sum::<usize>().min(all);
            let bill = &mut state.bill;
            bill.tokens += all;
            bill.cached += cached;
            bill.repeated += repeated;
            bill.summaries += usize::from(is_summary);
            bill.price += cached as f64 * CACHED + (all - cached) as f64 * WRITTEN + output as f64 * OUTPUT;
            state.cached = sent;
            let mut usage = Usage::new(all as u64, output as u64);
            usage.cached_tokens = Some(cached as u64);
            Ok(ChatResponse::new(message).with_usage(usage))
        };
        Box::pin(std::future::ready(reply()))
    }
}
