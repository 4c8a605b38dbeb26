//! Values that can be offered to a model as tools.

use crate::toolset::ToolSet;

/// A value that can be offered to a model as tools: a [`ToolSet`], by value or by reference, or a
/// [toolbox](crate::toolset::Toolbox), by value or in an `Arc`.
///
/// It is implemented for everything that converts into a `ToolSet`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a set of tools",
    label = "neither a `ToolSet` nor a toolbox",
    note = "`#[tool]` functions are passed in a list: `tools![sum, square_root]`; a single other tool is passed with `.tool(…)`, or added to a set with `ToolSet::default().with(tool)?`",
    note = "a toolbox has `#[toolbox]` above an `impl` block and `#[tool]` above its methods, and is passed by value or in an `Arc`",
    note = "a provider such as the tools of an MCP server is passed with `.tool_provider(…)`, and an agent with `.tool(agent.as_tool(\"name\", \"description\"))`",
    note = "methods such as `union` return a `Result` of a set: write `?` behind them"
)]
pub trait IntoToolSet {
    /// Converts the value into a set.
    fn into_tool_set(self) -> ToolSet;
}

#[diagnostic::do_not_recommend]
impl<T: Into<ToolSet>> IntoToolSet for T {
    fn into_tool_set(self) -> ToolSet {
        self.into()
    }
}
