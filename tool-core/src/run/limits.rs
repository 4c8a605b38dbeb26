//! The limits of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::Cost;
use crate::tool::timing::optional_micros;

/// Limits of a run. A run that would exceed one of them stops with an error that carries all the work done so far.
///
/// ```
/// use std::time::Duration;
/// use tool_core::run::RunLimits;
///
/// let limits = RunLimits::new().max_calls(20).max_time(Duration::from_secs(60));
/// assert_eq!((limits.max_turns, limits.max_calls, limits.max_total_tokens), (10, Some(20), None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
#[must_use]
pub struct RunLimits {
    /// The number of model requests; 10 by default, and 0 counts as 1. Calls in the last reply are executed only if their
    /// output can be the [answer](crate::model::ReturnDirect).
    #[serde(rename = "turns")]
    pub max_turns: u32,
    /// The number of calls that the model may request. A turn that would exceed it executes none of its calls.
    #[serde(rename = "calls", skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u32>,
    /// The number of tokens that the model may read and write over all turns; checked after each reply. A request of unknown
    /// or incredible usage counts with a token per byte of its messages and its reply, 50,000 per image, and exceeds the limit if it
    /// contains a file.
    #[serde(rename = "tokens", skip_serializing_if = "Option::is_none")]
    pub max_total_tokens: Option<u64>,
    /// The money that the run may spend on models, with all agents that it asks. Before each request, its worst case is reserved: all
    /// input and the longest possible answer, which is [limited](crate::ModelOptions::max_output_tokens) by what is left. It requires
    /// [prices](crate::agent::AgentBuilder::prices). A run that stops here returns [`MaxCost`](crate::RunErrorKind::MaxCost) and
    /// can be resumed with a higher limit.
    #[serde(rename = "cost", skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<Cost>,
    /// The time that the run may take. Time spent awaiting approval, or stored, does not count.
    #[serde(rename = "time", with = "optional_micros", skip_serializing_if = "Option::is_none")]
    pub max_time: Option<Duration>,
    /// The number of characters (Unicode scalar values) that all calls together, including failed ones, may return to the
    /// model; checked at the end of each turn.
    #[serde(rename = "output", skip_serializing_if = "Option::is_none")]
    pub max_total_output_chars: Option<usize>,
    /// The number of times that a call with the same name and arguments is executed; 3 by default, and 0 counts as 1.
    /// Further repetitions are not executed and the model reads why; after as many again, the run ends. Calls before a
    /// handoff count as well, so that two agents cannot repeat each other's calls without end.
    ///
    /// The count restarts after another call that succeeded, that is not [`pure`](crate::model::ToolPolicy::pure), and that was not
    /// executed with its arguments before: tests can be run again after each new edit. That of calls of
    /// [`at_most_once`](crate::model::ToolPolicy::at_most_once) tools never restarts.
    #[serde(rename = "repeated_calls")]
    pub max_repeated_calls: u32,
    /// The number of calls with the same name and arguments in the whole run, whatever was called in between; 30 by default, and a
    /// number below [`max_repeated_calls`](Self::max_repeated_calls) counts as that one. Further ones are not executed and the model
    /// reads why. This alone never ends the run.
    #[serde(rename = "equal_calls", skip_serializing_if = "is_default_equal_calls")]
    pub max_equal_calls: u32,
    /// The number of answers that are sent back to the model because they do not have the
    /// [requested form](crate::agent::Ask::answer_as); 2 by default.
    #[serde(rename = "wrong_answers")]
    pub max_wrong_answers: u32,
    /// The number of levels of agents that can be [called as tools](crate::Agent::as_tool) below each other in the run; 4 by
    /// default, and 12 at most: a higher number counts as 12. Calls of further agents fail, and the model reads why.
    #[serde(rename = "depth", skip_serializing_if = "is_default_depth")]
    pub max_depth: u32,
}

/// The highest value of [`max_depth`](RunLimits#structfield.max_depth). Deeper runs could overflow the stack of a thread, and
/// their states exceed the depth of JSON that is read.
pub(crate) const MAX_DEPTH: u32 = 12;

const DEFAULT_MAX_DEPTH: u32 = 4;

const DEFAULT_MAX_EQUAL_CALLS: u32 = 30;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_default_equal_calls(calls: &u32) -> bool {
    *calls == DEFAULT_MAX_EQUAL_CALLS
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_default_depth(depth: &u32) -> bool {
    *depth == DEFAULT_MAX_DEPTH
}

impl RunLimits {
    /// Returns the default limits.
    pub fn new() -> Self {
        Self::default()
    }
}

/// Defines the functions that set a field.
macro_rules! setters {
    ($($field:ident: $type:ty,)*) => {
        impl RunLimits {$(
            #[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
            pub fn $field(mut self, limit: $type) -> Self {
                self.$field = limit.into();
                self
            }
        )*}
    };
}

setters! {
    max_turns: u32,
    max_calls: u32,
    max_total_tokens: u64,
    max_cost: Cost,
    max_time: Duration,
    max_total_output_chars: usize,
    max_repeated_calls: u32,
    max_equal_calls: u32,
    max_wrong_answers: u32,
    max_depth: u32,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            max_turns: 10,
            max_calls: None,
            max_total_tokens: None,
            max_cost: None,
            max_time: None,
            max_total_output_chars: None,
            max_repeated_calls: 3,
            max_equal_calls: DEFAULT_MAX_EQUAL_CALLS,
            max_wrong_answers: 2,
            max_depth: DEFAULT_MAX_DEPTH,
        }
    }
}
