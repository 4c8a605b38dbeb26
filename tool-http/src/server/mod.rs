//! The parts that servers share: admission of requests, limits, forms of responses, connections and shutdown.
//!
//! A [`Rejection`] is sent as plain text, unless a server converts it to the form of its own protocol.

mod authority;
mod caller;
mod rejection;
mod access;
mod bind;
mod limits;
mod permits;
mod response;
mod connection;
mod shutdown;
mod running_server;
mod service;

pub use self::access::Access;
pub use self::bind::{BindError, bind};
pub use self::caller::Caller;
pub use self::limits::{LimitedBody, Limiter, Limits, hold_until_sent, is_json, require_json};
pub use self::permits::{PermitLimit, SenderPermit, SenderPermits};
pub use self::rejection::Rejection;
pub use self::response::{MAX_SILENCE, json_response, respond_admitted, sse_response};
pub use self::running_server::RunningServer;
pub use self::service::{HttpService, ResponseBody};
pub use self::shutdown::{RequestGuard, Shutdown, ShutdownPhase};
