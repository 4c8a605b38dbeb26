//! A page to watch the runs of agents and to decide about their calls, and streams for web frontends.
//!
//! ```no_run
//! use tool_core::{Agent, ChatModel, tool, tools};
//! use tool_core::memory::InMemoryStore;
//!
//! #[tool("Pays money back for an order", needs_approval, at_most_once)]
//! fn refund(order: u32, euros: u32) {}
//!
//! async fn run(model: impl ChatModel + 'static) -> Result<(), Box<dyn std::error::Error>> {
//!     let agent = Agent::builder(model).tools(tools![refund]).run_store(InMemoryStore::new()).build()?;
//!     let server = tool_web::serve(agent.clone()).await?;
//!     println!("runs and approvals: {}", server.url());
//!     agent.ask("Refund order 7").await?;
//!     Ok(())
//! }
//! ```
//!
//! - [`serve`] and [`Web`]: the page, alone or as part of an application; see [the page](#the-page).
//! - [`ui_stream`] and [`ag_ui`]: chats with an agent for frontends of the Vercel AI SDK and of AG-UI; see
//!   [web frontends](#web-frontends).
//! - Both with users, rights, budgets and several processes: [a service with many users](#a-service-with-many-users).
//!
//! Everything that a model, a tool or a browser wrote is text, never markup, and the page loads nothing from elsewhere.
//!
#![cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#![doc = include_str!("../docs/page.md")]
#![doc = include_str!("../docs/frontends.md")]
#![doc = include_str!("../docs/service.md")]

mod auth;
mod bounded;
mod guard;
mod entry;
mod sse;
mod wait;
mod source;
mod log;
mod row;
mod index;
mod decisions;
mod hub;
mod driving;
mod list;
mod frontend;
mod plain;
mod page;
mod web;

use std::io;

use tool_core::Agent;

pub use self::auth::{AuthFuture, Authenticate, Principal, Right};
pub use self::frontend::{Frontend, UnknownToolError};
pub use self::web::{UnknownAgentError, Web, ag_ui, ui_stream};
pub use tool_http::server::{HttpService, ResponseBody, RunningServer};

/// Serves the page for the runs of an agent on a free loopback port, without login, until the returned server is dropped.
///
/// ```
/// use tool_core::Agent;
/// use tool_core::testing::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(ScriptedModel::new().says("Good morning!")).build()?;
/// let server = tool_web::serve(agent.clone()).await?;
/// println!("runs: {}", server.url());
/// agent.ask("Hello").await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns an error if no port can be bound.
pub async fn serve(agent: Agent) -> io::Result<RunningServer> {
    Web::new().agent(agent).spawn("127.0.0.1:0").await
}
