//! The Responses API, asked through HTTP: what servers send, what goes back to them, and whole runs.

mod corpus;
mod endpoint;
#[path = "../support/schema.rs"]
mod schema;
#[path = "../support/mod.rs"]
mod support;
