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
#![cfg_attr(feature = "testing", doc = "[`testing`] has a scripted model for tests.")]
#![cfg_attr(not(feature = "testing"), doc = "the feature `testing` has a scripted model for tests.")]
//!
#![cfg_attr(feature = "testing", doc = "```")]
#![cfg_attr(not(feature = "testing"), doc = "```ignore")]
//! use tool_core::testing::ScriptedModel;
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
//! let model = ScriptedModel::new().calls("sum", r#"{"a": 2.5, "b": 40}"#).says("2.5 plus 40 is 42.5.");
//! let agent = Agent::builder(model).tools(tools![sum]).build()?;
//! let answer = agent.ask("What is the sum of 2.5 and 40?").await?;
//! assert_eq!(answer.text(), "2.5 plus 40 is 42.5.");
//! assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "42.5");
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
//! | `testing` | `testing`: a scripted model for tests |

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod agent;
pub mod arguments;
pub mod content;
pub mod memory;
pub mod model;
pub mod prompted;
pub mod run;
mod schema;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tool;
pub mod toolset;
pub mod transcript;

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
pub use self::arguments::Repair;
pub use self::content::{Content, Image, JsonText, Part};
#[cfg(feature = "sqlite")]
pub use self::memory::SqliteStore;
pub use self::memory::{
    ChatMemory, ChatStore, InMemoryStore, MemoryError, MemoryErrorKind, OpenConversation, RunStore,
    StoreFuture, Window, repair_history,
};
pub use self::model::{
    AssistantMessage, ChatModel, ChatRequest, ChatResponse, ChatStream, ConversationId, Delta, FinishReason,
    Message, ModelError, ModelFuture, ModelOptions, ProviderData, RequestCache, ResponseFormat, ReturnDirect,
    StrictError, TokenLogprob, ToolCall, ToolChoice, ToolDefinition, ToolDefinitions, ToolMessage,
    ToolPolicy, Usage,
};
pub use self::prompted::{PromptedTools, PromptedToolsError, PromptedToolsErrorKind};
pub use self::run::{
    Answer, Approval, ErrorPolicy, Run, RunError, RunErrorKind, RunId, RunLimits, Step, StepError, StopReason,
};
pub use self::tool::{
    Attempt, FunctionTool, IdempotencyKey, Injection, IntoToolOutput, Json, Progress, Tool, ToolArguments,
    ToolContext, ToolError, ToolErrorKind, ToolExecution, ToolFuture, ToolHandler, ToolOutput, ToolProgress,
    Undone,
};
#[cfg(feature = "dynamic")]
pub use self::tool::{DynamicTool, DynamicToolError};
pub use self::toolset::{
    ExtraParameters, Finding, FindingKind, MissingContext, ToolCost, ToolProvider, ToolProviderFuture,
    ToolProviderRequest, ToolReport, ToolSet, ToolSetError, ToolSetErrorKind, Toolbox, registered,
};
pub use self::transcript::Transcript;
