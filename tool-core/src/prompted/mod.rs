//! Tools for models that have none in their API: tools in the prompt, calls in the text.
//!
//! A model that follows the prompt writes JSON in `<tool_call>` tags. Others write the form in which they were trained, from which the
//! server removes the special tokens. What remains is understood if it is JSON:
//!
//! | form | models |
//! | --- | --- |
//! | `<tool_call>{"name": …, "arguments": …}</tool_call>` | Hermes, Qwen 2.5 and 3; recorded also with Python dictionaries |
//! | `{"name": …, "parameters": …}`, several separated by `;` | Llama 3 |
//! | `[{"name": …, "arguments": …}, …]` | Mistral, Granite 3, xLAM |
//! | one of the two in a code block, `{"tool": …, "parameters": …}` | Qwen 2.5 Coder, models without training for tools |
//!
//! Other forms are not understood: calls in the objects of an API (`{"tool_calls": […]}`) or as Python code (Llama 4, Gemma), parameters
//! as XML (Qwen 3 Coder, GLM, MiniMax) and names between special tokens (DeepSeek, Kimi).

pub(crate) mod error;
mod text_joiner;
mod prompt;
mod conversation;
mod parser;
mod exchange;
mod model;

pub use self::model::PromptedTools;
