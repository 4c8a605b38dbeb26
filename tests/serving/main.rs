//! The OpenAI-compatible server over HTTP on this machine, with requests as any client sends them.
//!
//! Responses are checked against the published schemas.

mod access;
mod caller;
mod callers_tools;
mod chat;
mod cost;
mod errors;
mod events;
mod going_away;
mod guarding;
mod hostile;
mod options;
mod own_client;
mod owners;
mod published;
mod questions;
mod repeating;
mod responses;
mod restarts;
mod retention;
mod stopping;
