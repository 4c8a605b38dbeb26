//! Conversations, runs and budgets of [`tool_core`] in PostgreSQL, shared by many machines.
//!
//! ```no_run
//! use tool_core::{Agent, ChatMemory, ChatModel};
//! use tool_postgres::PostgresStore;
//!
//! # async fn sample(model: impl ChatModel + 'static) -> Result<(), Box<dyn std::error::Error>> {
//! let store = PostgresStore::connect("postgres://desk@db.example.com/desk?sslmode=require").await?;
//! let agent = Agent::builder(model).memory(ChatMemory::new(store.clone())).run_store(store).build()?;
//! # let _ = agent;
//! # Ok(())
//! # }
//! ```
//!
//! [`PostgresStore`] says what it does, and the [guide] when to take it, with its tables, rights and what to watch.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod error;
mod clients;
mod tables;
mod store;
mod chats;
mod runs;
mod budgets;
mod outputs;

#[cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}

pub use tokio_postgres;

pub use self::error::{PostgresError, PostgresErrorKind};
pub use self::store::{Connect, PostgresStore};
