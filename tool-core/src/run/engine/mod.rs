//! The engine: what a world does next for a tree of runs, and what follows from it.
//!
//! `poll` decides what is done, in which order; `handle` takes the results; `time` decides whose time counts. None of them does I/O, and
//! all of them work on the outermost run, which contains the others. A world polls, performs and hands back, and has no rule of its own:
//! it reads the `view` of its runs.
//! What answers which effect: the page of `crate::engine`.

mod view;
mod poll;
mod handle;
mod time;

pub use self::handle::{EffectResult, TurnTools};
pub use self::time::Timeouts;
pub use self::view::{Engine, EngineView};
