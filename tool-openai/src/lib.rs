//! Any OpenAI-compatible endpoint as a [`ChatModel`](tool_core::ChatModel) for `tool-core`.
//!
//! ```no_run
//! use tool_core::{Agent, tool, tools};
//! use tool_openai::OpenAi;
//!
//! /// Sums two numbers.
//! #[tool]
//! fn sum(a: f64, b: f64) -> f64 {
//!     a + b
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::builder(OpenAi::from_env()?.chat_model("gpt-4.1-mini")).tools(tools![sum]).build()?;
//! println!("{}", agent.ask("What is 2 + 40?").await?);
//! # Ok(())
//! # }
//! ```
//!
//! With the feature `server`, the other way round: a model, or an agent with its tools, as an
//! OpenAI-compatible endpoint.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod chat_completions;
mod client;
mod config;
mod endpoint;
mod error;
mod http;
mod json;
mod lenient;
mod pieces;
mod quirks;
mod retry;
#[cfg(feature = "server")]
pub mod server;
mod sse;
mod streaming;
mod tools;

pub use self::chat_completions::ChatCompletions;
pub use self::config::{OpenAi, OpenAiBuilder};
pub use self::endpoint::{CallIds, Endpoint, KeyHeader, ReasoningBack};
pub use self::error::Error;
pub use self::retry::{Retry, RetryBudget};
pub use self::tools::Warning;
