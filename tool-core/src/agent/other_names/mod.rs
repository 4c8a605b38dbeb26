//! Names that users of other frameworks write first. Each compiles with a warning that states what to write instead, or, if nothing here does
//! the same, fails with a message that does.
//!
//! They are hidden from the documentation, because they are no second way: `#[deprecated]` where a method has the same effect, and otherwise a bound
//! that nothing meets.

mod agent;
mod answer;
mod ask;
mod builder;
mod recovery;
