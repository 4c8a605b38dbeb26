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

/// Warns of stored runs that nobody continues, because a list does not have them. Only the first ids are named.
pub(in crate::agent) fn warn_of_unreadable_runs(ids: &[&str]) {
    #[cfg(feature = "tracing")]
    if !ids.is_empty() {
        let named: Vec<_> = ids.iter().take(20).map(|id| format!("`{}`", id.escape_debug())).collect();
        tracing::warn!(
            target: "tool_core",
            number = ids.len(),
            runs = &*named.join(", "),
            "stored runs cannot be read, and nobody continues them; update the program, or remove them"
        );
    }
    #[cfg(not(feature = "tracing"))]
    let _ = ids;
}

/// Warns that a stored run cannot go on with values that only its question has.
pub(in crate::agent) fn warn_of_lost_values(types: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "tool_core",
        types,
        "the run is stored, but not these values of its context: pass them when you resume it, or give them by `run_setup`"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = types;
}
