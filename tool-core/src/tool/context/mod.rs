//! The values that an application provides to its tools, invisible to the model.

mod attempt;
mod progress;
mod injectable;
mod tool_context;
mod injection;
mod call_request;

pub use self::attempt::{Attempt, CallToUndo, IdempotencyKey};
pub use self::call_request::CallRequest;
pub use self::injectable::{Injectable, InjectableByValue, for_call};
pub use self::injection::{Injection, look_up, missing_context};
pub(crate) use self::progress::ProgressSink;
pub use self::progress::{Progress, ToolProgress};
pub use self::tool_context::ToolContext;
pub(crate) use self::tool_context::{AttemptContext, RunRules};
