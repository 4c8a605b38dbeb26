//! A deterministic chat model that runs offline, for examples and tests.
//!
//! ```
//! use tool_core::{Agent, tool, tools};
//! use tool_offline::OfflineModel;
//!
//! #[tool("Sums two numbers")]
//! fn sum(a: f64, b: f64) -> f64 { a + b }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::builder(OfflineModel::new()).tools(tools![sum]).build()?;
//! println!("{}", agent.ask("What is 2.5 plus 40?").await?); // 2.5 plus 40 is 42.5.
//! # Ok(())
//! # }
//! ```
//!
//! [`OfflineModel`] reads plain English with rules, not with a language model: the same question always gets the same
//! calls and the same answer, and it needs neither a key nor a network. It is not meant for production.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod arithmetic;
mod candidates;
mod clauses;
mod clock;
mod facts;
mod fill;
mod fit;
mod matching;
mod nulls;
mod planner;
mod progress;
mod reply;
mod slots;
mod structured;
#[cfg(test)]
mod tests;
mod thesaurus;
mod tokens;
mod wording;

use futures_util::stream;
use tool_core::ChatModel;
use tool_core::model::{ChatRequest, ChatStream, Delta, ModelFuture};

/// The model's name, as reported in its responses.
const NAME: &str = "offline";

/// A model for tests, examples and first steps that needs no key and no network, and chooses among the tools of each
/// request by itself.
///
/// It compares the words of the question with the names, descriptions and parameters of the tools, fills in arguments
/// according to their schemas, calls tools one after another where one needs the result of another, and words its
/// answer from the results. No tool and no answer is built in; it knows only how English words relate to each other.
///
/// ```
/// use tool_core::{Agent, tool, tools};
/// use tool_offline::OfflineModel;
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
/// assert_eq!(answer.text(), "I cannot answer that with the tools I have (sum, square_root); I read English only.");
/// # Ok(())
/// # }
/// ```
///
/// # Capabilities
///
/// - Chooses tools by words, their stems and a small thesaurus: `sum` is called for "add", "plus" and "total".
/// - Fills in numbers, texts, e-mail addresses, links, dates, booleans, enums, lists and nested objects from the
///   question, guided by names next to the values, prepositions, types and order.
/// - Uses results: of an inner operation in an outer one ("the square root of the sum of …"), of the previous step for
///   "that" and "it", and fields of an object by their names.
/// - Calls independent tools in one turn, unless the request forbids parallel calls.
/// - Answers in the JSON of a [schema](tool_core::model::ResponseFormat), filled in from results and the question.
/// - Reports missing values, failed calls and questions that no tool fits. A failed call is not retried.
///
/// # Limitations
///
/// It does not understand language. It reads plain English that states what is wanted in the words of the tools or near
/// synonyms, knows no facts, does not follow instructions in system messages, draws no conclusions from results, and
/// plans only calls that the question mentions. It cannot fill in lists of objects. It reads the first 4000 tokens of a
/// question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OfflineModel;

impl OfflineModel {
    /// Creates the model. It has no state and no settings.
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}

impl ChatModel for OfflineModel {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move { Ok(reply::respond(request)) })
    }

    fn supports_response_format(&self) -> bool {
        true
    }

    /// Streams the text word by word.
    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let deltas = reply::respond(request).into_deltas().into_iter().flat_map(|delta| match delta {
            Delta::Text(text) => text.split_inclusive(' ').map(|word| Delta::Text(word.to_owned())).collect(),
            other => vec![other],
        });
        ChatStream::new(stream::iter(deltas.map(Ok).collect::<Vec<_>>()))
    }

    fn provider_name(&self) -> Option<&str> {
        Some("tool_offline")
    }

    fn model_name(&self) -> Option<&str> {
        Some(NAME)
    }
}
