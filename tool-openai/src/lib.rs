//! Any OpenAI-compatible endpoint as a [`ChatModel`](tool_core::ChatModel) for `tool-core`.
//!
//! ```no_run
//! use tool_core::{Agent, tool, tools};
//! use tool_openai::OpenAi;
//!
//! /// Adds two numbers.
//! #[tool]
//! fn add(a: f64, b: f64) -> f64 {
//!     a + b
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::builder(OpenAi::from_env()?.chat_model("gpt-4.1-mini")).tools(tools![add]).build()?;
//! println!("{}", agent.ask("What is 2 + 40?").await?);
//! # Ok(())
//! # }
//! ```
//!
//! | | |
//! | --- | --- |
//! | [`OpenAi`] | an endpoint: its URL, key, timeouts and retries |
//! | [`ChatCompletions`] | a model that uses the Chat Completions API, which every endpoint supports |
//! | [`Responses`] | a model that uses the Responses API |
//! | [`Endpoint`] | the differences between providers, with constructors for the known ones |
//! | [`chat_completions_tool`], [`responses_tool`] | a tool's definition as the API writes it |
//! | [`TokenSource`], [`bedrock_keys`] | tokens that expire, of clouds |
//! | [`Error`], [`ErrorKind`] | errors of endpoints |
//! | [`guide`] | endpoints and serving, as a guide; the other pages are in [`tool_core::guide`] |
//! | `server` (feature `server`) | a model, or an agent with its tools, as an OpenAI-compatible endpoint |
//!
//! # Endpoints
//!
//! The endpoint is detected from the host of the base URL, or set explicitly:
//!
//! ```no_run
//! use tool_openai::{Endpoint, OpenAi};
//!
//! let azure = OpenAi::builder().endpoint(Endpoint::azure("my-resource")).api_key_from_env().build()?;
//! let local = OpenAi::builder().endpoint(Endpoint::ollama()).build()?;
//! # Ok::<_, tool_openai::Error>(())
//! ```
//!
//! Wrap a model whose API has no tools in `tool_core::PromptedTools` (feature `prompted`). Tools are constrained to their
//! schemas if they are in [strict form](tool_core::ToolSet::strict), or [where they have
//! one](tool_core::ToolSet::strict_where_possible).
//!
//! # Extra fields
//!
//! [`ModelOptions`](tool_core::ModelOptions) configure the model, for an agent, a question or a turn. Their
//! [`extra`](tool_core::ModelOptions::extra) fields are added to the request, in the same way for both APIs. A
//! field with the name of one that is sent anyway is merged into it: objects are merged field by field, arrays are
//! appended, and any other value replaces the value that is there. So `tools` adds the provider's own tools to the tools of the
//! run:
//!
//! ```
//! use serde_json::json;
//! use tool_core::ModelOptions;
//!
//! let options = ModelOptions::default()
//!     .with_extra("top_k", 40)
//!     .with_extra("tools", json!([{ "type": "web_search" }]));
//! ```
//!
//! Fields that the request itself controls, such as the model and the messages, are rejected.
//!
//! # Errors
//!
//! Requests are retried like in the official SDK: twice if the error is [temporary](Error::is_retryable), after the delay
//! that the server requests ([`OpenAiBuilder::max_retries`]). An [`Error`] has a [kind](Error::kind) and the id of its
//! request; it is inside the [`ModelError`](tool_core::model::ModelError) that a model returns.
//!
//! # Another HTTP client in the same program
//!
//! This crate configures the TLS of its `reqwest` clients itself, which enables the feature `rustls-no-provider` of
//! `reqwest`. A program that creates its own `reqwest::Client`, and has not chosen a TLS provider, must install one first:
//!
//! ```
//! let _ = rustls::crypto::ring::default_provider().install_default();
//! let client = reqwest::Client::new();
//! ```

// Links from the other crates do not depend on the order in which they are documented.
#![doc(html_root_url = "..")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod json;
mod lenient;
mod endpoint;
mod presets;
mod warning;
mod known_errors;
mod quirks;
mod tools;
mod body;
mod client;
mod context;
mod malformed_call;
mod api;
mod content;
mod json_schema;
mod logprobs;
mod annotations;
mod usage;
mod chat_completions;
mod responses;
mod config;
#[cfg(feature = "server")]
pub mod server;
pub mod guide;

#[doc(inline)]
pub use tool_http::client::{
    AuthScheme, AwsCredentials, Error, ErrorKind, Retry, RetryBudget, Token, TokenSource,
};

pub use self::chat_completions::ChatCompletions;
pub use self::config::{OpenAi, OpenAiBuilder};
pub use self::endpoint::{CallIdFormat, Endpoint, ReasoningReplay};
pub use self::presets::bedrock_keys;
pub use self::responses::Responses;
pub use self::tools::{chat_completions_tool, chat_completions_tools, responses_tool, responses_tools};
pub use self::warning::Warning;
