//! The Responses API over HTTP: responses, items that are sent back, and complete runs.

pub(crate) mod endpoint;
mod compacting;
mod requests;
mod runs;
mod tool_search;
