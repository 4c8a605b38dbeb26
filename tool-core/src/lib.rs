//! Annotate a function, and a language model can call it.
//!
//! # Write a tool
//!
//! ```
//! use tool_core::tool;
//!
//! /// Sums two numbers.
//! #[tool]
//! fn sum(a: f64, b: f64) -> f64 {
//!     a + b
//! }
//!
//! assert_eq!(sum(2.0, 40.0), 42.0); // it stays a function
//! ```
//!
//! What `#[tool]` and `#[param]` can say stands at [`tool`](macro@tool).
//!
//! # List tools
//!
//! [`tools!`] makes a [`ToolSet`] of functions; [`ToolSet::named`] chooses by name among all of the
//! program.
//!
//! # Ask
//!
//! An [`Agent`] asks a [`ChatModel`], makes the calls that the model asks for, and asks again until the
//! model has an answer. A provider crate such as `tool-openai` has the model;
#![cfg_attr(feature = "testing", doc = "[`testing`] has models for tests, which need no network.")]
#![cfg_attr(
    not(feature = "testing"),
    doc = "the feature `testing` has models for tests, which need no network."
)]
//!
#![cfg_attr(feature = "testing", doc = "```")]
#![cfg_attr(not(feature = "testing"), doc = "```ignore")]
//! use tool_core::testing::OfflineModel;
//! use tool_core::{Agent, tool, tools};
//!
//! /// Sums two numbers.
//! #[tool]
//! fn sum(a: f64, b: f64) -> f64 {
//!     a + b
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::builder(OfflineModel::new()).tools(tools![sum]).build()?;
//! let answer = agent.ask("What is the sum of 2.5 and 40?").await?;
//! assert!(answer.text().contains("42.5"));
//! assert_eq!(answer.tool_executions()[0].call().name, "sum");
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! None is on unless it is asked for.
//!
//! | feature | |
//! | --- | --- |
//! | `sqlite` | `SqliteStore`: conversations and runs in a file; takes a C compiler |
//! | `tracing` | spans of runs, turns, and calls of models and tools |
//! | `dynamic` | `DynamicTool`: tools that are known at run time only, by a JSON Schema |
//! | `testing` | `testing`: models that need no network |

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod agent;
mod memory;
mod model;
mod prompted;
mod registry;
mod run;
mod schema;
#[cfg(feature = "testing")]
pub mod testing;
mod tool;
mod toolset;
mod transcript;

#[doc(hidden)]
#[path = "private.rs"]
#[allow(missing_docs, reason = "for generated code only")]
pub mod __private;

#[doc = include_str!("../docs/tools.md")]
#[macro_export]
macro_rules! tools {
    ($($list:tt)*) => {
        $crate::__private::expand_tools! { ($crate) $($list)* }
    };
}

pub use schemars;
/// Signals that nobody awaits a running call or run any more.
///
/// A tool can inject it, as `#[inject] cancellation: &CancellationToken`. It is cancelled when the run ends or is dropped
/// while the call is running, and when the call times out. The future of the call is then dropped without further ado;
/// work that the tool has handed to other threads or tasks has to check the token.
///
/// ```
/// use tool_core::{CancellationToken, tool};
///
/// #[tool("Counts to a number, slowly", blocking)]
/// fn count(to: u32, #[inject] cancellation: &CancellationToken) -> u32 {
///     (0..to).take_while(|_| !cancellation.is_cancelled()).count() as u32
/// }
///
/// let cancellation = CancellationToken::new();
/// cancellation.cancel();
/// assert_eq!(count(1000, &cancellation), 0);
/// ```
///
/// An application creates one to cancel a run, with [`Ask::cancellation_token`].
///
/// # tokio-util
///
/// This is the type of [`tokio_util::sync`]:
#[doc(inline)]
pub use tokio_util::sync::CancellationToken;
#[doc = include_str!("../docs/tool.md")]
pub use tool_macros::tool;
#[doc = include_str!("../docs/toolbox.md")]
pub use tool_macros::toolbox;

pub use self::agent::{
    Agent, AgentBuilder, AnswerType, Approver, ApproverFuture, Ask, BuildError, BuildErrorKind, Event,
    EventStream, RunDriver, Turn, TypedAsk,
};
#[cfg(feature = "sqlite")]
pub use self::memory::SqliteStore;
pub use self::memory::{
    ChatMemory, ChatStore, InMemoryStore, MemoryError, OpenConversation, RunStore, StoreFuture, Window,
    repair_history,
};
pub use self::model::{
    AssistantMessage, ChatModel, ChatRequest, ChatResponse, ChatStream, Content, ConversationId, Delta,
    FinishReason, Image, JsonText, Message, ModelError, ModelFuture, ModelOptions, Part, ProviderData,
    RequestCache, ResponseFormat, TokenLogprob, ToolCall, ToolChoice, ToolMessage, Usage,
};
pub use self::prompted::{PromptedTools, PromptedToolsError};
pub use self::registry::registered;
pub use self::run::{
    Answer, Approval, Attempt, ErrorPolicy, IdempotencyKey, Run, RunError, RunErrorKind, RunId, RunLimits,
    Step, StepError, StopReason, ToolExecution, Undone,
};
#[cfg(feature = "dynamic")]
pub use self::tool::{DynamicTool, DynamicToolError};
pub use self::tool::{
    FunctionTool, Injection, IntoToolOutput, Json, Progress, Repair, ReturnDirect, StrictError, Tool,
    ToolArguments, ToolContext, ToolDefinition, ToolDefinitions, ToolError, ToolErrorKind, ToolFuture,
    ToolHandler, ToolOutput, ToolPolicy, ToolProgress, Toolbox,
};
pub use self::toolset::{
    ExtraParameters, Finding, FindingKind, MissingContext, ToolCost, ToolProvider, ToolProviderFuture,
    ToolProviderRequest, ToolReport, ToolSet, ToolSetError,
};
pub use self::transcript::Transcript;
