//! All `#[tool]` functions of the program.

use crate::tool::Tool;
use crate::tool::declared::DeclaredTool;

/// One `#[tool]` function, as generated code submits it.
#[derive(Debug)]
pub struct Registration(pub &'static DeclaredTool);

inventory::collect!(Registration);

/// Every `#[tool]` function of the program, sorted by name; equal names by the place in the source.
///
/// Nothing of it is offered to a model unless it is put into a [`ToolSet`](crate::ToolSet). A library
/// crate of which nothing else is used may be left out by the linker, and its tools with it: refer to
/// them, through `tools!` or a plain `use`, where they matter.
///
/// ```standalone_crate
/// use tool_core::toolset::registered;
/// use tool_core::{Tool, tool};
///
/// /// Tells the answer.
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
    let mut tools: Vec<&'static dyn Tool> = Vec::new();
    for Registration(tool) in inventory::iter::<Registration> {
        let place = tools.partition_point(|other| key(*other) < key(*tool));
        tools.insert(place, *tool);
    }
    tools
}

/// What the tools are sorted by.
fn key(tool: &'static dyn Tool) -> (&'static str, Option<(&'static str, u32)>) {
    let place = tool.declared_at().map(|place| (place.file(), place.line()));
    (tool.definition().name(), place)
}
