//! Logins for MCP servers, against the fake authorization server.

mod hostile;
mod login;
mod loopback;
mod processes;
mod secrets;
mod support;
mod users;
