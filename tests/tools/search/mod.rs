//! Search for tools: what is found, how well, and how little of a request it needs.

mod evaluation;
