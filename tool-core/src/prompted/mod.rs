//! Tools for models that have none in their API: tools in the prompt, calls in the text.

mod conversation;
mod error;
mod exchange;
mod model;
mod parser;
mod prompt;
mod text_joiner;

pub use self::error::{PromptedToolsError, PromptedToolsErrorKind};
pub use self::model::PromptedTools;
