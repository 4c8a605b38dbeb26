//! The names under which the handlers of a run share what they know and reach each other: of states, promises and signals.

use std::time::Duration;

use tool_core::tool::WaitId;

/// The state of a run that its handlers share: the id of its invocation, the digest of its question, and what it waits for.
pub(crate) const INVOCATION: &str = "invocation";
pub(crate) const QUESTION: &str = "question";
pub(crate) const WAITING: &str = "waiting";

/// Returns the name of the state that has this part of the end of a run.
pub(crate) fn part_key(part: u32) -> String {
    format!("part-{part}")
}

/// Resolved when the run first waits for a person, or with the messages that it adds to its conversation.
pub(crate) const FIRST_STOP: &str = "first-stop";

/// The longest time for which a handler waits for a run.
pub(crate) const WAIT_TIME: Duration = Duration::from_secs(60);

/// Resolved when the run is cancelled.
pub(crate) const CANCELLED: &str = "cancelled";

/// Returns the name of the promise that is resolved when the run waits or ends for the time with this number.
pub(crate) fn stop(round: u32) -> String {
    format!("stop-{round}")
}

/// Returns the name of the promise that is resolved when the run was killed, which resolves nothing, after it has waited or ended so often.
pub(crate) fn killed(round: u32) -> String {
    format!("killed-{round}")
}

/// Returns the name of the signal of a decision about a wait.
pub(crate) fn decision_signal(wait: &WaitId) -> String {
    format!("decision-{wait}")
}

/// Returns the name of the signal of a message to a run that has got this number of messages before.
pub(crate) fn message_signal(messages: u32) -> String {
    format!("message-{messages}")
}

/// Returns the name of the signal that resumes a run that waits for an operator for the time with this number.
pub(crate) fn resume_signal(round: u32) -> String {
    format!("resume-{round}")
}
