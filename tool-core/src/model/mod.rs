//! Talking with a model: messages, requests, responses, and the trait that a provider implements.

mod cache;
mod conversation;
mod definition;
mod error;
mod format;
mod logprob;
mod message;
mod model;
mod options;
mod provider_data;
mod request;
mod response;
mod strict_error;

pub use self::cache::RequestCache;
pub use self::conversation::ConversationId;
pub(crate) use self::conversation::unique_id;
pub use self::definition::{ReturnDirect, ToolDefinition, ToolDefinitions, ToolPolicy};
pub use self::error::ModelError;
pub use self::format::ResponseFormat;
pub use self::logprob::TokenLogprob;
pub use self::message::{AssistantMessage, Message, ToolCall, ToolMessage};
pub use self::model::{ChatModel, ChatStream, Delta, ModelFuture};
pub use self::options::ModelOptions;
pub use self::provider_data::ProviderData;
pub use self::request::{ChatRequest, ToolChoice};
pub use self::response::{ChatResponse, FinishReason, Usage};
pub use self::strict_error::StrictError;
