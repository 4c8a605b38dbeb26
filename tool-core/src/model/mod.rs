//! Talking with a model: messages, requests, responses, and the trait that a provider implements.

mod cache;
mod content;
mod conversation;
mod error;
mod format;
mod image;
mod logprob;
mod message;
mod model;
mod options;
mod part;
mod provider_data;
mod request;
mod response;

pub use self::cache::RequestCache;
pub use self::content::Content;
pub use self::conversation::ConversationId;
pub use self::error::ModelError;
pub use self::format::ResponseFormat;
pub use self::image::Image;
pub use self::logprob::TokenLogprob;
pub use self::message::{AssistantMessage, Message, ToolCall, ToolMessage};
pub use self::model::{ChatModel, ChatStream, Delta, ModelFuture};
pub use self::options::ModelOptions;
pub use self::part::{JsonText, Part};
pub use self::provider_data::ProviderData;
pub use self::request::{ChatRequest, ToolChoice};
pub use self::response::{ChatResponse, FinishReason, Usage};
