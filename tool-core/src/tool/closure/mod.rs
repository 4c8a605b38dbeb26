//! Tools from functions and closures that take their arguments as one struct.

mod handler;
mod function_tool;

pub use self::function_tool::FunctionTool;
pub use self::handler::ToolHandler;
