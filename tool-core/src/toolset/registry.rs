//! The registry of all `#[tool]` functions of the program.

use crate::tool::Tool;
use crate::tool::declared::DeclaredTool;

/// A registered `#[tool]` function, submitted by generated code.
#[derive(Debug)]
pub struct Registration(pub &'static DeclaredTool);

inventory::collect!(Registration);

/// Returns all `#[tool]` functions of the program, sorted by name; equal names are sorted by source location.
///
/// A model can call a tool only if the tool is part of a [`ToolSet`](crate::ToolSet). A library crate of which the program uses nothing is
/// not linked, and its tools are not among these, even if it is named in `Cargo.toml`. `use team_tools as _;` links the crate
/// `team_tools`, in all profiles.
///
/// ```standalone_crate
/// use tool_core::toolset::registered;
/// use tool_core::{Tool, tool};
///
/// /// Returns the answer.
/// #[tool]
/// fn answer() -> u32 {
///     42
/// }
///
/// let names: Vec<_> = registered().into_iter().map(|tool| tool.definition().name()).collect();
/// assert_eq!(names, ["answer"]);
/// ```
#[must_use]
pub fn registered() -> Vec<&'static dyn Tool> {
    let registered = inventory::iter::<Registration>.into_iter();
    let mut tools: Vec<&'static dyn Tool> = registered.map(|Registration(tool)| *tool as _).collect();
    tools.sort_by_key(|tool| {
        let location = tool.declared_at().map(|location| (location.file(), location.line()));
        (tool.definition().name(), location)
    });
    tools
}
