//! Annotate a function, and a language model can call it.
//!
//! ```
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
//! [`#[tool]`](macro@tool) turns a function into a tool and leaves the function as it is. [`tools!`] builds a [`ToolSet`] of
//! such functions. An [`Agent`] sends the question and the tools to a [`ChatModel`], executes the calls that the model
//! requests, and returns the [`Answer`]. A provider crate such as `tool-openai` implements the model.
//!
//! # Capabilities
//!
//! The [guide](guide) begins with a [first agent](guide::first_agent), and has a page for each framework one may come from:
//! [LangChain4j](guide::langchain4j), [Spring AI](guide::spring_ai), [LangChain](guide::langchain) and [rig](guide::rig).
//!
//! | | |
//! | --- | --- |
//! | [Tools](guide::declaring_tools) | [functions](macro@tool), [methods](macro@toolbox), [closures](FunctionTool), [JSON Schemas](guide::declaring_tools), [own types](Tool); [sets](ToolSet) with filters, names and a [review](ToolSet::check); [found by search](guide::tool_search) |
//! | [Arguments](guide::arguments_and_errors) | [typed parameters](macro@tool#types) with [limits](macro@tool#options-of-a-parameter), [injected values](macro@tool#injected-parameters), [repairs](signatures::Repair) |
//! | [Errors](guide::arguments_and_errors#failed-calls) | all mistakes in one message, [policies](run::ErrorPolicy), [retries](macro@tool#retries), [undo](macro@tool#undoing-calls) |
//! | [Runs](guide::runs_and_limits) | [limits](run::RunLimits), [typed answers](agent::Ask::answer_as), [steps](agent::RunDriver), [stored and resumed](agent::AgentBuilder::run_store) |
//! | [Composition](guide::composition) | [a trait that a model implements](macro@assistant), [agents as tools](Agent::as_tool), patterns in plain Rust |
//! | [Costs](guide::costs) | [prices](model::Prices), [limits](agent::AgentBuilder::limits), [budgets](memory::Budget), [fallback](model::Fallback), [routing](model::Router) |
//! | [Approval](guide::approval) | by [policy](macro@tool#options-of-a-tool) or [predicate](layer::guard::needs_approval), [at once](agent::Decider) or [later](Agent::list_runs) |
//! | [Memory](guide::memory) | [conversations](ChatMemory), [windows](memory::Window), [stores](memory::ChatStore) |
//! | [Streaming](guide::streaming_and_uis) | [events](Event), [progress](tool::Progress), [cancellation](CancellationToken), traces (feature `tracing`), [transcripts](signatures::Transcript) |
//! | [Models](ChatModel) | [options](ModelOptions), [requests by hand](model::ChatRequest), [a provider of your own](provider) |
//! | [Testing](guide::testing) | a scripted model, the review of descriptions |
//! | [Production](guide::production_checklist) | a checklist |
//! | other crates | [endpoints](../tool_openai/guide/endpoints/index.html) and [serving](../tool_openai/guide/serving/index.html) (`tool-openai`), [Claude](../tool_anthropic/index.html) (`tool-anthropic`), [MCP](../tool_mcp/guide/index.html) (`tool-mcp`), [a page and web frontends](../tool_web/index.html) (`tool-web`), [a terminal chat](../tool_cli/index.html) (`tool-cli`), [an offline model](../tool_offline/index.html) (`tool-offline`) |
//!
//! # Modules
//!
//! Programs with agents use these. Each module imports only from those above it.
//!
//! | module | contents |
//! | --- | --- |
//! | [`content`] | text, images and files in messages and outputs |
//! | [`model`] | messages, requests, responses, tool definitions, prices, and the [`ChatModel`] trait |
//! | [`mod@tool`] | the [`Tool`] trait, its context, outputs and errors; tools from closures and JSON Schemas |
//! | [`layer`] | layers around agents and sets: guards and rewriting |
//! | [`toolset`] | sets of tools, the registry, toolboxes, providers, resolvers |
//! | [`run`] | what a run is: its limits, waits, decisions, answers and errors |
//! | [`memory`] | stored conversations, runs and budgets |
#![cfg_attr(feature = "testing", doc = "| [`testing`] | a scripted model for tests, and a check of stores |")]
#![cfg_attr(
    not(feature = "testing"),
    doc = "| `testing` | a scripted model for tests, and a check of stores |"
)]
//! | [`agent`] | agents, questions, events |
//!
//! These are for those who extend the project. They only export:
//!
//! | module | for |
//! | --- | --- |
//! | [`store`] | stores of conversations, runs, budgets and outputs |
//! | [`engine`] | what drives runs in place of the drivers of this process, such as durable engines |
//! | [`provider`] | models of an API of your own |
//! | [`signatures`] | bounds, records and errors that programs rarely name |
//!
//! [`guide`] contains no items, only documentation.
//!
//! # Features
//!
//! All features are off by default.
//!
//! | feature | |
//! | --- | --- |
//! | `sqlite` | `SqliteStore`: conversations and runs in a file; needs a C compiler |
//! | `tracing` | spans of runs, turns, and calls of models and tools |
//! | `dynamic` | `DynamicTool`: tools whose JSON Schema is known only at run time |
//! | `prompted` | `PromptedTools`: tools for models that have none in their API |
//! | `rate-limit` | `layer::RateLimit`: requests and tokens per minute |
//! | `testing` | `testing`: a scripted model for tests |
//! | `toml` | tables of prices in TOML |
//!
//! `tool-core` switches on the feature `preserve_order` of `serde_json` and `schemars`, for every crate of the program: members of a
//! `serde_json::Value` keep their order instead of being sorted. Prompts depend on it: parameters are described in the order in which
//! they are declared, and the same tools give the same bytes.

// Links from the other crates do not depend on the order in which they are documented.
#![doc(html_root_url = "..")]
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod content;
mod schema;
mod arguments;
pub mod model;
#[cfg(feature = "prompted")]
mod prompted;
pub mod tool;
pub mod layer;
pub mod toolset;
mod transcript;
pub mod run;
pub mod memory;
/// For tests: a scripted model, and a check of stores.
#[cfg(feature = "testing")]
pub mod testing {
    mod scripted;

    pub use self::scripted::ScriptedModel;
    pub use crate::memory::run_store_check::check_run_store;
}
pub mod agent;
pub mod store;
pub mod engine;
pub mod provider;
pub mod signatures;
pub mod guide;

#[doc(hidden)]
#[allow(missing_docs, reason = "for generated code only")]
pub mod __private;

/// Creates a [`ToolSet`] of `#[tool]` functions from their paths.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#[doc = include_str!("../docs/tools.md")]
#[macro_export]
macro_rules! tools {
    ($($list:tt)*) => {
        $crate::__private::expand_tools! { ($crate) $($list)* }
    };
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#[doc = include_str!("../docs/call.md")]
#[macro_export]
macro_rules! call {
    ($($pattern:tt)*) => {
        $crate::__private::expand_call! { ($crate) $($pattern)* }
    };
}

pub use schemars;
/// Signals that a running call or run is no longer awaited.
///
/// A tool can inject it, as `#[inject] cancellation: &CancellationToken`. It is cancelled when the run ends or is dropped
/// while the call is running, and when the call times out. The future of the call is then dropped; work
/// that the tool has handed to other threads or tasks has to check the token.
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
/// An application creates one to cancel a run, with [`Ask::cancellation_token`](agent::Ask::cancellation_token).
///
/// # tokio-util
///
/// This is the type of [`tokio_util::sync`]:
#[doc(inline)]
pub use tokio_util::sync::CancellationToken;
/// Implements a trait by questions to a model, for a struct that contains an [`Agent`].
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#[doc = include_str!("../docs/assistant.md")]
pub use tool_macros::assistant;
/// Turns a function into a tool that a language model can call.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#[doc = include_str!("../docs/tool.md")]
pub use tool_macros::tool;
/// Turns the methods of an `impl` block into tools.
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#[doc = include_str!("../docs/toolbox.md")]
pub use tool_macros::toolbox;

pub use self::agent::{Agent, BuildError, Event};
pub use self::memory::ChatMemory;
#[cfg(feature = "sqlite")]
pub use self::memory::SqliteStore;
pub use self::model::{ChatModel, ConversationId, Message, ModelOptions, ToolCall};
#[cfg(feature = "prompted")]
pub use self::prompted::PromptedTools;
pub use self::run::{Answer, RunError, RunErrorKind};
pub use self::tool::{FunctionTool, Tool, ToolContext, ToolError, ToolExecution, ToolOutput};
pub use self::toolset::ToolSet;
