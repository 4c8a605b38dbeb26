//! Tools that `#[tool]` declares as statics.

mod arguments;
#[allow(missing_docs, reason = "for generated code only")]
mod details;
mod declaration;
mod function;

pub use self::arguments::Arguments;
pub use self::declaration::ToolName;
pub(crate) use self::declaration::{Declaration, Defined};
pub use self::details::{Details, ParameterDetails};
pub use self::function::{Declared, DeclaredTool, Listed, Signature, StaticTool};
