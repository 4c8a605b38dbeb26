//! The tool by which the model orders a compaction.

use crate::tool::FunctionTool;

/// The name of the tool.
pub(in crate::agent) const COMPACT: &str = "compact_conversation";

/// Creates the tool. Its call is what orders: the run is compacted before the next request.
pub(in crate::agent) fn compact_tool() -> FunctionTool {
    FunctionTool::new(COMPACT, || "Earlier outputs and messages are removed before your next message, as far as that saves much.")
        .description(
            "Removes earlier outputs and messages from this conversation to save room, and leaves you a summary where needed. Call it \
             when a part of the work is done whose outputs you no longer need. What was removed can still be read with `read_output`.",
        )
}
