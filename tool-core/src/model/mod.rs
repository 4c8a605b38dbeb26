//! The vocabulary of models: messages, requests, responses, and the trait that a provider implements.

mod cache;
mod chat_model;
mod conversation_id;
mod definition;
mod delta;
mod error;
mod logprob;
mod message;
mod options;
mod provider_data;
mod request;
mod response;
mod response_format;
mod strict_error;

pub use self::cache::RequestCache;
pub use self::chat_model::{ChatModel, ChatStream, ModelFuture};
pub use self::conversation_id::ConversationId;
pub(crate) use self::conversation_id::unique_id;
pub use self::definition::{ReturnDirect, ToolDefinition, ToolDefinitions, ToolPolicy};
pub use self::delta::Delta;
pub use self::error::ModelError;
pub use self::logprob::TokenLogprob;
pub use self::message::{AssistantMessage, Message, ToolCall, ToolMessage};
pub use self::options::ModelOptions;
pub use self::provider_data::ProviderData;
pub use self::request::{ChatRequest, ToolChoice};
pub use self::response::{ChatResponse, FinishReason, Usage};
pub use self::response_format::ResponseFormat;
pub use self::strict_error::StrictError;
