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

mod words;
mod text;
mod question;
mod parameters;
mod fill;
mod plan;
mod answer;
mod reply;

use futures_util::stream;
use tool_core::ChatModel;
use tool_core::model::{ChatRequest, ChatStream, Delta};
use tool_core::provider::ModelFuture;

/// A model for tests, examples and first steps that needs no key and no network, and chooses among the tools of each
/// request by itself.
///
/// It compares the words of the question with the names, descriptions and parameters of the tools, fills in arguments
/// according to their schemas, calls tools one after another where one needs the result of another, and words its
/// answer from the results. No tool and no answer is built in.
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
/// # What it understands
///
/// - Tools: a clause mentions a tool by the words of its name or description, their stems, or one of a dozen groups of synonyms: `sum`
///   is called for "add", "plus" and "total". Of the tools that a clause mentions, each takes the values behind it, and the result of
///   the next one: "the square root of the sum of …".
/// - Values: numbers, quotations, e-mail addresses, links and dates; choices and flags by their words ("without breakfast"); and as a
///   text, the words that neither name a tool or a parameter nor are common English words. They are assigned by type, names
///   beside them, prepositions and order, to parameters and members of nested objects.
/// - Results: "that" and "it" stand for the previous result, also across questions.
/// - Several clauses: "and", commas, "then" and sentences separate calls. Calls that do not depend on each other are in one turn, unless
///   the request forbids parallel calls. A clause without a tool repeats the one before: "the weather in Paris and in Rome".
/// - A [schema](tool_core::provider::ResponseFormat) for the answer, whose JSON is filled in from results and the question.
///
/// It reports missing values, failed calls and questions that no tool fits. A failed call is not retried.
///
/// # Limitations
///
/// It does not understand language: it knows no facts, ignores system messages and draws no conclusions from results. A clause with
/// a number or a quotation that no tool takes is declined. Chains of operators ("2 + 3 * 4") have no precedence and are declined, and
/// lists cannot be filled in. It reads the first 1000 words and marks of a question.
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
        Some(reply::NAME)
    }
}

#[cfg(test)]
mod tests;
