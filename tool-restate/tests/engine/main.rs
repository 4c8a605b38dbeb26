//! Durable runs on a real Restate server, which the script `run` starts.

mod support;

mod agents;
mod alike;
mod approving;
mod asking;
mod cancelling;
mod compacting;
mod conversing;
mod crashing;
mod edges;
mod handoffs;
mod large;
mod layers;
mod listing;
mod mcp;
mod measuring;
mod mistakes;
mod questions;
mod spreading;
mod streaming;
mod trees;
mod upgrading;
mod vanishing;
