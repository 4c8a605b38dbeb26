//! Warnings in the trace.

/// Warns that a tool of a provider is not offered, because its name is taken.
pub(in crate::agent) fn warn_of_taken_name(tool: &str, provider: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tool_core", tool, provider, "left out a tool whose name is taken");
    #[cfg(not(feature = "tracing"))]
    let _ = (tool, provider);
}

/// Warns that a run is no longer compacted as its author wants.
pub(in crate::agent) fn warn_of_compaction(run: &str, model: &str, why: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tool_core", run, model, "{why}");
    #[cfg(not(feature = "tracing"))]
    let _ = (run, model, why);
}

/// Warns that a stored run cannot go on with values that only its question has.
pub(in crate::agent) fn warn_of_lost_values(types: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "tool_core",
        types,
        "the run is stored, but not these values of its context: whoever resumes it must pass them, or `per_run` gives them"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = types;
}
