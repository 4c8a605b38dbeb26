#![cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#![doc = include_str!("../docs/engine.md")]

pub use crate::agent::agent_ext::AgentExt;
pub use crate::agent::ask::AskExt;
pub use crate::agent::decide::{decide_in_store, may_decide};
pub use crate::agent::driver::RunDriverExt;
pub use crate::agent::repeat::{ReplayEnd, ReplayedRun, rehearse, replay};
pub use crate::agent::replay::{ReplayParts, is_said_instead, is_unrecorded};
pub use crate::agent::waiting_tools::waiting_tools;
pub use crate::arguments::names::{list_names, nearest_name};
pub use crate::memory::stored_runs::stored_run;
pub use crate::run::effect::{Effect, EffectId, LayerSubject, RunPath};
pub use crate::run::engine::{EffectResult, Engine, EngineView, Timeouts, TurnTools};
pub use crate::run::recorded::run_of_answer;
pub use crate::run::state::{AgentProfile, EmittedCalls, InnerRun, LayerSight};
pub use crate::tool::context::{CallRequest, Injection};
pub use crate::tool::panic::{Panicked, panic_text};
pub use crate::tool::waiting::CallDecision;
pub use crate::toolset::tool_set_ext::ToolSetExt;
