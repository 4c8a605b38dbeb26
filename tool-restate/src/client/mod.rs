//! The client: it starts runs, waits for them, and decides about their calls.

mod remote_agent;
mod run;
mod reader;
mod question;
mod admin;

pub use self::admin::register;
pub use self::question::Question;
pub use self::reader::Events;
pub use self::remote_agent::{Client, RemoteAgent};
pub use self::run::{Decided, Outcome, Run};
