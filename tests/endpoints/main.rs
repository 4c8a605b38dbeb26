//! The clients of OpenAI-compatible endpoints and of Anthropic: requests, responses, streams and errors.

mod anthropic;
mod both;
mod broken_streams;
mod clouds;
mod endpoint;
mod fallback;
mod faults;
mod inference;
mod prefix;
mod python_server;
mod reaching;
mod real_servers;
mod responses;
mod results;
mod retrying;
mod secrets;
mod tokens;
mod tool_definitions;
mod transcripts;
mod wire;
