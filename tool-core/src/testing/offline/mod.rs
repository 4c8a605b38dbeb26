//! A model without a network, which really chooses among the tools that it is offered.

mod answer;
mod candidates;
mod chains;
mod choose;
mod clauses;
mod facts;
mod fill;
mod fit;
mod phrase;
mod plan;
mod progress;
mod schema;
#[cfg(test)]
mod table;
#[cfg(test)]
mod tests;
mod thesaurus;
mod words;

use futures_util::stream;

use self::choose::Tools;
use self::progress::Standing;
use crate::{
    AssistantMessage, ChatModel, ChatRequest, ChatResponse, ChatStream, Delta, Message, ModelFuture,
    ToolCall, ToolChoice, ToolDefinition, Usage,
};

/// The model's name, as its responses tell it.
const NAME: &str = "offline";

/// A model for tests, examples and first steps: it needs no key and no network, and really chooses among
/// the tools that it is offered.
///
/// It compares the words of the question with the names, descriptions and parameters of the tools, fills
/// the arguments by their schemas, calls tools one after another where one needs the other's result, and
/// words its answer from the results. No tool and no answer is built into it: what it knows is how English
/// words hang together.
///
/// ```
/// use tool_core::testing::OfflineModel;
/// use tool_core::{Agent, tool, tools};
///
/// /// Sums two numbers.
/// #[tool]
/// fn sum(a: f64, b: f64) -> f64 {
///     a + b
/// }
///
/// /// Returns the square root of a number.
/// #[tool]
/// fn square_root(x: f64) -> f64 {
///     x.sqrt()
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(OfflineModel::new()).tools(tools![sum, square_root]).build()?;
/// let answer = agent.ask("What is the square root of the sum of 9 and 16?").await?;
/// assert_eq!(answer.text(), "The square root of the sum of 9 and 16 is 5.0.");
///
/// let answer = agent.ask("Who wrote Hamlet?").await?;
/// assert_eq!(answer.text(), "I cannot answer that with the tools I have (sum, square_root).");
/// # Ok(())
/// # }
/// ```
///
/// # What it can do
///
/// - Choose by words, their stems and a small thesaurus: `sum` is called for "add", "plus" and "total".
/// - Fill numbers, texts, e-mail addresses, links, dates, booleans, enums, lists and nested objects from
///   what the question says: by the names beside the values, by prepositions, by type, by order.
/// - Use results: of the inner operation in the outer ("the square root of the sum of …"), of the last step
///   for "that" and "it", and fields of an object by their names.
/// - Call independent tools in one turn, unless the request asks for one at a time.
/// - Answer in the JSON of a [schema](crate::ResponseFormat), filled as arguments are from results and the question.
/// - Say what it lacks, which call failed, and that no tool fits. A failed call is not tried again.
///
/// # What it cannot do
///
/// It does not understand. It reads plain English that says what is wanted in the words of the tools, or
/// near them; knows no facts; follows no instructions of system messages; draws no conclusions from what
/// results say; and plans no call that the question does not speak of. Lists of objects are beyond it. A
/// question is read up to its 4000th word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OfflineModel;

impl OfflineModel {
    /// The model. All of them are alike.
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}

impl ChatModel for OfflineModel {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move { Ok(reply(request)) })
    }

    fn supports_response_format(&self) -> bool {
        true
    }

    /// The text comes word by word.
    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let deltas = reply(request).into_deltas().into_iter().flat_map(|delta| match delta {
            Delta::Text(text) => text.split_inclusive(' ').map(|word| Delta::Text(word.to_owned())).collect(),
            other => vec![other],
        });
        Box::pin(stream::iter(deltas.map(Ok).collect::<Vec<_>>()))
    }

    fn provider_name(&self) -> Option<&str> {
        Some("tool_core")
    }

    fn model_name(&self) -> Option<&str> {
        Some(NAME)
    }
}

fn reply(request: &ChatRequest<'_>) -> ChatResponse {
    let message = message(request);
    let read: usize = request.messages().iter().map(|message| message.text().len()).sum();
    let offered = request.tools().iter();
    let offered: usize = offered.map(|tool| tool.name().len() + tool.description().unwrap_or("").len()).sum();
    let written = message.tool_calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>();
    let usage = Usage::new(tokens(read + offered), tokens(written + message.text.len()));
    let mut response = ChatResponse::new(message).with_usage(usage);
    response.model = Some(NAME.to_owned());
    response
}

/// A rough estimate, for English.
fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes / 4).unwrap_or(u64::MAX).max(1)
}

fn message(request: &ChatRequest<'_>) -> AssistantMessage {
    let messages = request.messages();
    let last = messages.iter().rposition(|message| matches!(message, Message::User(_)));
    let (before, rest) = messages.split_at(last.unwrap_or(0));
    let question = rest.first().map(Message::text).filter(|_| last.is_some()).unwrap_or_default();
    let made = progress::made(rest);
    let choice = request.tool_choice();
    let is_offered = |tool: &&ToolDefinition| match choice {
        ToolChoice::None => !made.is_empty(),
        ToolChoice::Tool(name) => tool.name() == name,
        _ => true,
    };
    let must = matches!(choice, ToolChoice::Required | ToolChoice::Tool(_));
    let tools = Tools::new(request.tools().iter().filter(is_offered));
    let earlier = before.iter().rev().find_map(|message| match message {
        Message::Tool(result) if !result.is_error => Some(result.content.text()),
        _ => None,
    });
    let plan = plan::plan(&question, &tools, earlier.as_deref(), must);
    let progress = progress::progress(&plan, &tools, &made);
    let mut calls: Vec<(String, String)> = Vec::new();
    for (step, standing) in plan.steps.iter().zip(&progress.standings) {
        if let (Some(tool), Standing::Ready(arguments)) = (tools.get(step.tool), standing) {
            let call = (tool.name().to_owned(), arguments.to_string());
            if !calls.contains(&call) {
                calls.push(call);
            }
        }
    }
    if *choice == ToolChoice::None {
        calls.clear();
    } else if request.parallel_tool_calls() == Some(false) {
        calls.truncate(1);
    }
    if calls.is_empty() {
        let formatted = request.response_format().map(|format| answer::formatted(format, messages));
        return AssistantMessage::text(match formatted {
            Some(Ok(json)) => json,
            Some(Err(missing)) => phrase::lacking(&missing),
            None => phrase::answer(&plan, &tools, &progress, &made),
        });
    }
    let first = next_number(messages);
    let calls = calls.into_iter().zip(first..);
    let calls =
        calls.map(|((name, arguments), number)| ToolCall::new(format!("call_{number}"), name, arguments));
    AssistantMessage::default().with_tool_calls(calls)
}

/// A number that no call of the conversation has, nor any after it.
fn next_number(messages: &[Message]) -> u64 {
    let calls = messages.iter().flat_map(|message| match message {
        Message::Assistant(message) => &message.tool_calls[..],
        _ => &[],
    });
    let numbers = calls.filter_map(|call| call.id.strip_prefix("call_")?.parse::<u32>().ok());
    numbers.max().map_or(1, |number| u64::from(number) + 1)
}
