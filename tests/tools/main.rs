//! Tools: their declaration, sets, definitions for the model, and the reading of their arguments.

mod call_patterns;
mod closures;
mod conformance;
mod context;
mod declaring;
mod definitions;
mod duplicates;
mod dynamic;
mod engine;
mod every_option;
mod explaining;
mod extra_parameters;
mod further_turns;
mod fuzzing;
mod hostile;
mod injecting;
mod integers;
mod invariants;
mod limits;
mod options;
mod providers;
mod report;
mod schemas;
mod search;
mod sets;
mod toolboxes;
