//! How far a run may go.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::tool::timing::optional_micros;

/// How far a run may go. A run that would go further ends with an error that carries all that was done.
///
/// ```
/// use std::time::Duration;
/// use tool_core::RunLimits;
///
/// let mut limits = RunLimits::default();
/// limits.calls = Some(20);
/// limits.time = Some(Duration::from_secs(60));
/// assert_eq!((limits.turns, limits.repeated_calls), (10, 3));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RunLimits {
    /// How often the model is asked; 0 is 1. The calls of its last reply are made only if what they give back may be the
    /// [answer](crate::ReturnDirect).
    pub turns: u32,
    /// How many calls the model may ask for. A turn that would go beyond runs none of its calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u32>,
    /// How many tokens the model may read and write, over all turns. It is looked at when a reply is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// How long the run may be under way; the time in which it waits for a person, or is kept, does not count.
    #[serde(with = "optional_micros", skip_serializing_if = "Option::is_none")]
    pub time: Option<Duration>,
    /// How many bytes of text all calls together, also those that fail, may give back to the model. It is looked at when
    /// a turn is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<usize>,
    /// How often a call of one name with the same arguments is made. After that it is not made, and the model is
    /// told so; after as many times again the run ends. 0 is 1.
    pub repeated_calls: u32,
    /// How many answers that are not of the [form that was asked for](crate::Ask::answer_as) go back to the model.
    pub wrong_answers: u32,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            turns: 10,
            calls: None,
            tokens: None,
            time: None,
            output: None,
            repeated_calls: 3,
            wrong_answers: 2,
        }
    }
}
