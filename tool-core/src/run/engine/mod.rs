//! The engine: what a world does next for a tree of runs, and what follows from it.
//!
//! `poll` decides what is done, in which order; `handle` takes the results; `time` decides whose time counts. None of them does I/O, and
//! all of them work on the outermost run, which contains the others. A world polls, performs and hands back, and has no rule of its own:
//! it reads the `facts` of its runs.
//!
//! What answers which effect. Each can also be `Cancelled`, `Stalled` or `Panicked`, and of a run inside `Ended`: the agent cannot go on, and
//! its call has an outcome.
//!
//! | effect | in this process | recorded, as on Restate |
//! | --- | --- | --- |
//! | `Call` | `Finished`; `Nothing` if its agent is there again | `Finished`, or `Changed` by a step that executes it |
//! | `Begin` | `Nothing`: the run is part of the tree already; `Finished` | `Began`; `Nothing` if the run exists |
//! | `Judge(Execution)` | `Nothing`: the driver has recorded it | `Changed` |
//! | `Judge(Next)`, `CallModel` | a step, which changes the run meanwhile: `Nothing` | `Changed`, `Asked` |
//! | `Judge(Results)` | not polled: steps report results | `Changed` |
//! | `End` | a step, then `Ended` | `Ended`; `Changed` if its answer is rejected |
//! | `GiveUp` | `Nothing` | `Changed` |

mod facts;
mod poll;
mod handle;
mod time;

pub use self::facts::{Engine, Facts};
pub use self::handle::{EffectResult, TurnTools};
pub use self::time::Timeouts;
