//! Tools: how they are declared, put into sets, described to a model, and how they read their arguments.

mod augmenting;
mod closures;
mod conformance;
mod context;
mod declaring;
mod definitions;
mod dynamic;
mod every_word;
mod further_turns;
mod hostile;
mod injecting;
mod providers;
mod report;
mod schemas;
mod sets;
mod toolboxes;
mod words;
