//! Claude as a [`ChatModel`](tool_core::ChatModel) for `tool-core`, through Anthropic's Messages API.
//!
//! ```no_run
//! use tool_anthropic::Anthropic;
//! use tool_core::{Agent, tool, tools};
//!
//! /// Adds two numbers.
//! #[tool]
//! fn add(a: f64, b: f64) -> f64 {
//!     a + b
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::builder(Anthropic::from_env()?.chat_model("claude-sonnet-5-5")).tools(tools![add]).build()?;
//! println!("{}", agent.ask("What is 2 + 40?").await?);
//! # Ok(())
//! # }
//! ```
//!
//! | | |
//! | --- | --- |
//! | [`Anthropic`] | an endpoint: its URL, key, timeouts and retries |
//! | [`Messages`] | a model |
//! | [`Endpoint`] | the differences between servers with the same API, with constructors for the known ones |
//! | [`TokenSource`], [`bedrock_keys`] | tokens that expire, of clouds |
//! | [`Thinking`], [`Cache`], [`HostedTool`] | what a model can be configured with |
//! | [`ReplyDetails`] | the blocks of a reply, uses of hosted tools |
//! | [`Error`], [`ErrorKind`] | errors of endpoints |
//! | [`guide`] | what differs from OpenAI; the other pages are in [`tool_core::guide`] |
//!
//! # Extra fields
//!
//! [`ModelOptions`](tool_core::ModelOptions) configure the model, for an agent, a question or a turn. Their
//! [`extra`](tool_core::ModelOptions::extra) fields are added to the request. A field with the name of one that is sent anyway is
//! merged into it: objects are merged field by field, arrays are appended, and any other value replaces the value that is there.
//!
//! ```
//! use serde_json::json;
//! use tool_core::ModelOptions;
//!
//! let options = ModelOptions::default().with_extra("inference_geo", "eu");
//! ```
//!
//! Fields that the request itself controls, such as the model and the messages, are rejected.
//!
//! # Errors
//!
//! Requests are retried like in the official SDK: twice if the error is [temporary](Error::is_retryable), after the delay
//! that the server requests ([`AnthropicBuilder::max_retries`]). An [`Error`] has a [kind](Error::kind) and the id of its
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

mod endpoint;
mod presets;
mod warning;
mod known_errors;
mod rate_limits;
mod client;
mod options;
mod response;
mod request;
mod turn;
mod model_info;
mod messages;
mod config;
pub mod guide;

#[doc(inline)]
pub use tool_http::client::{
    AuthScheme, AwsCredentials, Error, ErrorKind, Retry, RetryBudget, Token, TokenSource,
};

pub use self::config::{Anthropic, AnthropicBuilder};
pub use self::endpoint::{Endpoint, Routes};
pub use self::messages::Messages;
pub use self::options::{Cache, CacheTtl, HostedTool, Thinking};
pub use self::presets::bedrock_keys;
pub use self::rate_limits::{RateLimit, RateLimits};
pub use self::response::ReplyDetails;
pub use self::warning::Warning;
