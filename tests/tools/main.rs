//! Tools: their declaration, sets, definitions for the model, and the reading of their arguments.

mod augmenting;
mod closures;
mod conformance;
mod context;
mod declaring;
mod definitions;
mod duplicates;
mod dynamic;
mod every_word;
mod further_turns;
mod hostile;
mod injecting;
mod integers;
mod providers;
mod report;
mod schemas;
mod sets;
mod toolboxes;
mod words;
