//! The Responses API over HTTP: responses, items that are sent back, and complete runs.

mod compacting;
pub(crate) mod endpoint;
mod forgetting;
mod requests;
mod runs;
mod tool_search;
