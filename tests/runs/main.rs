//! Runs: the loop and its policies, approvals, memory, stored states, and what happens when a run is interrupted.

mod approving;
mod breaking;
mod control;
mod crash;
mod exploration;
mod keys;
mod memory;
mod policies;
mod prompted;
mod remembering;
mod running;
mod states;
mod tracing;
mod typed;
mod undoing;
mod watching;
