//! Runs: the loop and its policies, approvals, memory, stored states, and what happens when a run is interrupted.

mod agents;
mod approving;
mod asking;
mod asking_first;
mod assistant;
mod attempts;
mod breaking;
mod budgets;
mod caching;
mod compacting;
mod compacting_decisions;
mod compacting_models;
mod compacting_orders;
mod compacting_providers;
mod contending;
mod costs;
mod control;
mod crash;
mod deciding;
mod editing;
mod events;
mod exploration;
mod fallback;
mod forking;
mod keys;
mod leasing;
mod logged;
mod memory;
mod names;
mod opening;
mod policies;
mod prompted;
mod recovering;
mod remembering;
mod repeating;
mod replaying;
mod requesting;
mod running;
mod sharing;
mod spilling;
mod states;
mod steering;
mod tool_search;
mod tracing;
mod timing;
mod tree_orders;
mod typed;
mod undoing;
mod users;
mod watching;

/// Returns the reason why a run refused a step.
fn refusal<T>(outcome: Result<T, tool_core::signatures::StepError>) -> String {
    let error = outcome.err().expect("the run refuses the step").to_string();
    error.strip_prefix("the run does not expect this: ").expect("the error has its prefix").to_owned()
}
