//! The agent: a model with instructions and tools, and the drivers of its runs.

mod lock;
mod gate;
mod approver;
mod answerer;
mod event;
mod event_record;
mod emitter;
mod spending;
mod delegation;
mod stored_run_options;
mod build_error;
mod undo_tools;
mod tool_search;
mod trace;
mod shared;
mod builder;
mod run_options;
mod layers;
mod run_tools;
mod executor;
mod driver;
mod handoff;
mod ask;
mod stored_runs;
mod waiting_tools;
mod command_error;
mod decide;
mod outcome;
mod typed;
mod agent_tool;
mod execute_request;
pub(crate) mod assistant;

pub use self::agent_tool::AgentTool;
pub use self::answerer::{Answerer, AnswererFuture};
pub use self::approver::{Approver, ApproverFuture};
pub use self::ask::Ask;
pub use self::build_error::{BuildError, BuildErrorKind};
pub use self::builder::AgentBuilder;
pub use self::command_error::{CommandError, CommandErrorKind};
pub use self::decide::Decided;
#[cfg(feature = "unstable-internals")]
pub use self::decide::decide_elsewhere;
pub use self::driver::RunDriver;
pub use self::event::{Event, EventStream};
pub use self::event_record::EventRecord;
pub use self::outcome::Outcome;
pub use self::shared::Agent;
pub use self::stored_run_options::{OnDrop, WhileWaiting};
pub use self::tool_search::{IntoToolNames, ToolSearch};
pub use self::typed::TypedAsk;
#[cfg(feature = "unstable-internals")]
pub use self::waiting_tools::{WaitingTool, waiting_tools};
