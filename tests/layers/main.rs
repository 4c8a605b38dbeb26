//! The boundary around agents: each entrance × each rule, and every order of what layers decide.

mod entrances;
mod matrix;
mod mistakes;
mod orders;
mod rules;
