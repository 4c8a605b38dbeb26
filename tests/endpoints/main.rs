//! The client of OpenAI-compatible endpoints: requests, responses, streams and errors.

mod audit;
mod broken_streams;
mod endpoint;
mod faults;
mod inference;
mod prefix;
mod reaching;
mod responses;
mod results;
mod retrying;
mod transcripts;
mod wire;
