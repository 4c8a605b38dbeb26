//! The server as its callers see it: over HTTP on this machine, with requests as any client would send them.
//!
//! What it sends is checked against the published schemas wherever they lie beside the repository.

mod caller;
mod callers_tools;
mod chat;
mod errors;
mod events;
mod going_away;
mod guarding;
mod keeping;
mod own_client;
mod published;
mod responses;
mod stopping;
