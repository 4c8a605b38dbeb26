//! The vocabulary of models: messages, requests, responses, and the trait that a provider implements.

mod cache;
mod chat_model;
mod content;
mod conversation_id;
mod delta;
mod error;
mod image;
mod logprob;
mod message;
mod options;
mod part;
mod provider_data;
mod request;
mod response;
mod response_format;

pub use self::cache::RequestCache;
pub use self::chat_model::{ChatModel, ChatStream, ModelFuture};
pub use self::content::Content;
pub use self::conversation_id::ConversationId;
pub use self::delta::Delta;
pub use self::error::ModelError;
pub use self::image::Image;
pub use self::logprob::TokenLogprob;
pub use self::message::{AssistantMessage, Message, ToolCall, ToolMessage};
pub use self::options::ModelOptions;
pub use self::part::{JsonText, Part};
pub use self::provider_data::ProviderData;
pub use self::request::{ChatRequest, ToolChoice};
pub use self::response::{ChatResponse, FinishReason, Usage};
pub use self::response_format::ResponseFormat;
