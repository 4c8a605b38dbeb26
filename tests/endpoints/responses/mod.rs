//! The Responses API, asked through HTTP: what servers send, what goes back to them, and whole runs.

mod corpus;
mod endpoint;
mod requests;
mod runs;
