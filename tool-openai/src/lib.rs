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
//! # Endpoints
//!
//! What is particular to an endpoint is an [`Endpoint`]: a value of plain switches, of which there are some ready-made, and
//! which is told by the host of the base URL otherwise. Its documentation has the table.
//!
//! ```no_run
//! use tool_openai::{Endpoint, OpenAi};
//!
//! let azure = OpenAi::builder().endpoint(Endpoint::azure("my-resource")).key_from_env().build()?;
//! let local = OpenAi::builder().endpoint(Endpoint::ollama()).build()?;
//! # Ok::<_, tool_openai::Error>(())
//! ```
//!
//! [`OpenAi::chat_model`] speaks Chat Completions, which all of them have, and [`OpenAi::responses_model`] the Responses
//! API. A model without tools in its API is wrapped in [`PromptedTools`](tool_core::PromptedTools). How a model is to answer is
//! said by [`ModelOptions`](tool_core::ModelOptions), of an agent, a question or a turn; tools are held to their schemas where
//! they are in [strict form](tool_core::ToolSet::strict), or in it [where they have one](tool_core::ToolSet::strict_where_possible).
//!
//! # When something fails
//!
//! Requests are sent again as the official SDK does it: twice, if the failure may pass, after as long as the server wishes
//! ([`OpenAiBuilder::max_retries`]). An [`Error`] says what kind it is, whether to try again and when, and which
//! request it was; it is inside the [`ModelError`](tool_core::ModelError) that a model gives.
//!
//! # Another HTTP client in the same program
//!
//! This crate gives `reqwest` its TLS ready-made, and so switches on its feature `rustls-no-provider`. A `reqwest::Client` of
//! one's own, in a program in which nothing else has chosen a provider, must be told of one first:
//!
//! ```
//! let _ = rustls::crypto::ring::default_provider().install_default();
//! let client = reqwest::Client::new();
//! ```
//!
//! # Serving
//!
//! With the feature `server`, the other way round: a model, or an agent with its tools, as an
//! OpenAI-compatible endpoint.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod asking;
mod chat_completions;
mod client;
mod config;
mod encoding;
mod endpoint;
mod error;
mod fields;
mod http;
mod json;
mod lenient;
mod logprobs;
mod pieces;
mod quirks;
mod rejected;
mod responses;
mod retry;
#[cfg(feature = "server")]
pub mod server;
mod sse;
mod streaming;
mod tools;

pub use self::chat_completions::ChatCompletions;
pub use self::config::{OpenAi, OpenAiBuilder};
pub use self::endpoint::{AuthScheme, CallIds, Endpoint, ReasoningReplay};
pub use self::error::Error;
pub use self::responses::Responses;
pub use self::retry::{Retry, RetryBudget};
pub use self::tools::Warning;
