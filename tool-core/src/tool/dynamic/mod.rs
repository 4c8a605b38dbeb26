//! Tools that are defined at run time by a name, a description and a JSON Schema.

mod error;
mod limits;
mod numbers;
mod dynamic_tool;

pub use self::dynamic_tool::DynamicTool;
pub use self::error::{DynamicToolError, DynamicToolErrorKind};
