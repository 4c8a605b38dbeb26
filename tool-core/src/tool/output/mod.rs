//! The outputs of tools, and the conversion of returned values by their types.

mod tool_output;
mod outcome;
mod value;
mod returned;
mod into_output;

pub use self::into_output::{IntoToolOutput, Json};
pub(crate) use self::outcome::{Outcome, limit_outcome, truncate_outcome, write_outcome};
pub use self::returned::{FallibleOptionKind, PlainKind, Returned, ToolFailure};
pub use self::tool_output::ToolOutput;
pub(crate) use self::tool_output::write_output;
pub use self::value::ToolReturn;
