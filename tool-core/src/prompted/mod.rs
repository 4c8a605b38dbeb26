//! Models without tools in their API: tools in the prompt, calls in the text.

mod asking;
mod conversation;
mod error;
mod model;
mod prompt;
mod reader;
mod texts;

pub use self::error::PromptedToolsError;
pub use self::model::PromptedTools;
