//! Talking with a model: messages, requests, responses, and the trait that a provider implements.

mod content;
mod conversation;
mod error;
mod message;
mod model;
mod request;
mod response;

pub use self::content::{Content, Part};
pub use self::conversation::ConversationId;
pub use self::error::ModelError;
pub use self::message::{AssistantMessage, Message, ToolCall, ToolMessage};
pub use self::model::{ChatModel, ChatStream, Delta, ModelFuture};
pub use self::request::{ChatRequest, ToolChoice};
pub use self::response::{ChatResponse, FinishReason, Usage};
