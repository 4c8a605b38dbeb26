//! The vocabulary of models: messages, requests, responses, and the trait that a provider implements.
//!
//! # Without an agent
//!
//! An [`Agent`](crate::Agent) adds limits, approval, retries, memory and events to this loop, which is all that tool calling
//! needs:
//!
//! ```
//! use tool_core::model::{ChatRequest, ModelError};
//! use tool_core::{ChatModel, Message, ToolContext, ToolSet};
//!
//! async fn ask(model: &dyn ChatModel, tools: &ToolSet, question: &str) -> Result<String, ModelError> {
//!     let mut messages = vec![Message::user(question)];
//!     loop {
//!         let request = ChatRequest::borrowing(&messages).with_tools(tools);
//!         let reply = model.chat(&request).await?.message;
//!         messages.push(Message::from(reply.clone()));
//!         if reply.tool_calls.is_empty() {
//!             return Ok(reply.text);
//!         }
//!         for call in reply.tool_calls {
//!             let execution = tools.execute(call, &ToolContext::new()).await;
//!             messages.push(Message::from(&execution));
//!         }
//!     }
//! }
//! ```

mod setters;
pub(crate) mod cache;
mod conversation_id;
mod run_user;
pub(crate) mod logprob;
pub(crate) mod provider_data;
pub(crate) mod message;
pub(crate) mod repair_history;
pub(crate) mod cost;
mod response;
mod delta;
mod error;
pub(crate) mod model_info;
pub(crate) mod prices;
pub(crate) mod strict_error;
pub(crate) mod definition;
mod options;
pub(crate) mod response_format;
pub(crate) mod meter;
mod request;
mod estimate;
pub(crate) mod chat_model;
mod send;
mod member;
mod fallback;
mod router;

pub(crate) use self::cache::RequestCache;
pub(crate) use self::chat_model::DeltaSender;
pub(crate) use self::chat_model::ModelFuture;
pub use self::chat_model::{ChatModel, ChatStream};
pub use self::conversation_id::ConversationId;
pub(crate) use self::conversation_id::{impl_from_application, impl_id, unique_id};
pub use self::cost::{Cost, Currency};
pub use self::definition::{ReturnDirect, ToolDefinition, ToolPolicy};
pub(crate) use self::definition::{ToolDefinitions, ToolKind};
pub use self::delta::Delta;
pub use self::error::{ModelError, ModelErrorKind};
pub(crate) use self::estimate::estimate_tokens;
pub use self::fallback::Fallback;
pub(crate) use self::logprob::TokenLogprob;
pub use self::message::{AssistantMessage, Message, ToolCall, ToolMessage};
pub(crate) use self::meter::EarlierAttempt;
pub(crate) use self::meter::{Attempt, Begun, Meter, TokensPerText};
pub(crate) use self::model_info::ModelInfo;
pub use self::options::ModelOptions;
pub use self::prices::{ModelPrices, OnUnknownPrice, Prices};
pub(crate) use self::provider_data::ProviderData;
pub(crate) use self::repair_history::repair_history;
pub(crate) use self::repair_history::{INTERRUPTED, restore_results};
pub use self::request::{ChatRequest, ToolChoice};
pub use self::response::{ChatResponse, FinishReason, Usage};
pub(crate) use self::response_format::FINAL_TOOL;
pub(crate) use self::response_format::ResponseFormat;
pub use self::router::Router;
pub use self::run_user::RunUser;
pub(crate) use self::send::max_tokens;
pub(crate) use self::setters::setters;
pub(crate) use self::strict_error::StrictError;
