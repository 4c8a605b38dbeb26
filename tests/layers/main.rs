//! The boundary around agents: each entrance × each rule, and every order of what layers decide.

mod attacks;
mod attribution;
mod broken;
mod choosing;
mod elsewhere;
mod entrances;
mod faults;
mod matrix;
mod mistakes;
mod orders;
mod ready;
mod rules;
mod sets;
mod undoing;
