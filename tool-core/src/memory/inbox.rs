//! The inbox of a stored run: what others want from the driver that holds the run.
//!
//! A process that does not hold a run never saves it: decisions, cancellations and messages are posted to its inbox, because a click must not
//! give a driver a conflict. The save that stores the effect of a command removes it from the inbox, because a crash between the two would leave a
//! command that is found again.
//!
//! A driver can work for an hour before it reads the inbox, and callers that may decide can post without end. So an inbox has what can still have
//! an effect: the first decision about each wait, one cancellation, and messages up to their bounds.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::unique_id;
use crate::run::summary::RunSummary;
use crate::run::{Decision, MessageVolume, Run, UserMessage};
use crate::tool::{DecisionRecord, WaitId};

/// A command to a stored run from a caller that does not hold it, such as a web page on which a person approves a call.
///
/// ```
/// use tool_core::store::RunCommand;
/// use tool_core::run::Decision;
///
/// let approve = RunCommand::resolve("3f2a", Decision::approve().by("ada"));
/// assert_eq!(format!("{approve:?}"), "Resolve(WaitId(\"3f2a\"), Decision(Approved))");
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunCommand {
    /// Records a decision, like [`Run::resolve`]. Ignored if the run does not wait for this, if it was decided before, or if the
    /// decision does not fit. The inbox contains the answer until the driver of the run has taken it, also that to a question for a secret.
    #[non_exhaustive]
    Resolve {
        /// The id of the wait.
        wait: WaitId,
        /// The decision.
        decision: Decision,
        /// The arguments of the decision were checked by the agent that posts it.
        #[serde(rename = "checked", default, skip_serializing_if = "std::ops::Not::not")]
        has_checked_arguments: bool,
    },
    /// Cancels the run, like [`Run::cancel`]. Ignored if the run has an answer.
    Cancel,
    /// Adds a message of the user, like [`Run::say`]. Ignored if the run has ended. Stores take it only if it [fits](Self::fits).
    Say(UserMessage),
}

impl RunCommand {
    /// Creates the command that records a decision about this wait.
    #[must_use]
    pub fn resolve(wait: impl Into<WaitId>, decision: Decision) -> Self {
        let has_checked_arguments = decision.has_checked_arguments;
        Self::Resolve { wait: wait.into(), decision, has_checked_arguments }
    }

    /// Returns the message, if the command adds one.
    #[must_use]
    pub fn message(&self) -> Option<&UserMessage> {
        match self {
            Self::Say(message) => Some(message),
            _ => None,
        }
    }

    /// Returns `true` if a run [takes](MessageVolume::takes) the command. `volume` is that of the [stored run](crate::memory::RunSummary::message_volume)
    /// with the messages in its inbox. Decisions and cancellations always fit.
    #[must_use]
    pub fn fits(&self, volume: MessageVolume) -> bool {
        self.message().is_none_or(|message| volume.takes(message))
    }

    /// Returns the decision about this wait, if the command records one.
    pub(crate) fn record_about(&self, about: &WaitId) -> Option<DecisionRecord> {
        match self {
            Self::Resolve { wait, decision, .. } if wait == about => decision.record(wait),
            _ => None,
        }
    }

    /// Returns `true` if a later command has no effect after this one.
    fn precludes(&self, later: &Self) -> bool {
        match (self, later) {
            (Self::Cancel, Self::Cancel) => true,
            // A wait that was deferred is still open.
            (Self::Resolve { wait: about, decision: first, .. }, Self::Resolve { wait, decision, .. }) => {
                about == wait && (decision.is_deferred() || !first.is_deferred())
            }
            _ => false,
        }
    }

    /// Applies the command. The save that stores its effect removes it from the inbox.
    pub(crate) fn apply(self, run: &mut Run) {
        match self {
            // Fails if it was decided before: the first decision holds.
            Self::Resolve { wait, mut decision, has_checked_arguments } => {
                decision.has_checked_arguments = has_checked_arguments;
                drop(run.resolve(&wait, decision));
            }
            Self::Cancel => run.cancel(),
            Self::Say(message) => drop(run.add_posted_message(message)),
        }
    }
}

/// Omits arguments, reasons and messages.
impl fmt::Debug for RunCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve { wait, decision, .. } => {
                f.debug_tuple("Resolve").field(wait).field(decision).finish()
            }
            Self::Cancel => f.write_str("Cancel"),
            Self::Say(_) => f.write_str("Say"),
        }
    }
}

/// A command in the inbox of a run, with an id that is unique in this inbox.
///
/// ```
/// use tool_core::memory::InMemoryStore;
/// use tool_core::store::{PostOutcome, PostedCommand, RunCommand, RunStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let posted = PostedCommand::new(RunCommand::Cancel);
/// assert_eq!(InMemoryStore::new().post("order-17", &posted).await?, PostOutcome::UnknownRun);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PostedCommand {
    /// The id of the command. A command that is posted twice is in the inbox once.
    pub id: String,
    /// The command.
    pub command: RunCommand,
}

impl PostedCommand {
    /// Gives a command a unique id.
    #[must_use]
    pub fn new(command: RunCommand) -> Self {
        Self { id: unique_id("post"), command }
    }
}

impl PostedCommand {
    /// Returns `true` if an inbox with these commands has this one, or another one after which it has no effect: a cancellation if there is
    /// one, and a decision about what is decided there, because the first decision is final. A store does not add it then.
    ///
    /// ```
    /// use tool_core::store::{PostedCommand, RunCommand};
    /// use tool_core::run::Decision;
    ///
    /// let decides = |decision| PostedCommand::new(RunCommand::resolve("3f2a", decision));
    /// let inbox = [decides(Decision::deny("too expensive"))];
    /// assert!(decides(Decision::approve()).is_in(&inbox));
    /// assert!(!PostedCommand::new(RunCommand::Cancel).is_in(&inbox));
    /// ```
    #[must_use]
    pub fn is_in(&self, inbox: &[Self]) -> bool {
        inbox.iter().any(|posted| posted.id == self.id || posted.command.precludes(&self.command))
    }

    /// Returns `true` if the inbox of a stored run takes the command beside those that it has, by the summary of the run's last save.
    /// Decisions and cancellations always fit.
    #[must_use]
    pub fn fits(&self, run: &RunSummary, inbox: &[Self]) -> bool {
        let messages = inbox.iter().filter_map(|posted| posted.command.message());
        self.command.fits(messages.fold(run.message_volume, |volume, one| volume.with_unread(1, one.bytes())))
    }
}

/// The outcome of [`RunStore::post`](crate::store::RunStore::post).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the command may not have been stored"]
pub enum PostOutcome {
    /// The command is in the inbox, or has no effect after what [is there](PostedCommand::is_in).
    Posted,
    /// The command is a message that does not [fit](RunCommand::fits), and is not in the inbox: it is too long, the run has
    /// too many, or a store in memory has too many for all runs.
    Full,
    /// No run is stored under the id, for example because it has ended.
    UnknownRun,
    /// The store has no inboxes.
    Unsupported,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inbox_has_one_decision_about_each_wait_and_one_cancellation() {
        let decides = |wait: &str, decision| RunCommand::resolve(wait, decision);
        let [approve, deny, defer] = [Decision::approve(), Decision::deny("no"), Decision::defer()];
        let table = [
            (RunCommand::Cancel, RunCommand::Cancel, true),
            (decides("a", approve.clone()), decides("a", deny.clone()), true),
            (decides("a", approve.clone()), decides("b", approve.clone()), false),
            (decides("a", approve.clone()), decides("a", defer.clone()), true),
            (decides("a", defer.clone()), decides("a", defer.clone()), true),
            (decides("a", defer), decides("a", approve), false),
            (RunCommand::Cancel, decides("a", deny.clone()), false),
            (decides("a", deny), RunCommand::Cancel, false),
            (RunCommand::Say("Go".into()), RunCommand::Say("Go".into()), false),
        ];
        for (first, later, is_in) in table {
            let what = format!("{first:?}, {later:?}");
            assert_eq!(PostedCommand::new(later).is_in(&[PostedCommand::new(first)]), is_in, "{what}");
        }
    }

    #[test]
    fn a_stored_message_without_a_sender_is_still_read() {
        let posted: PostedCommand =
            serde_json::from_str(r#"{"id":"post_1","command":{"say":"Go"}}"#).unwrap();
        assert_eq!(posted.command, RunCommand::Say("Go".into()));
        let parts = r#"{"say":[{"type":"text","text":"Go"},{"type":"text","text":"on"}]}"#;
        let RunCommand::Say(message) = serde_json::from_str(parts).unwrap() else {
            panic!("another command")
        };
        assert_eq!((&*message.content.text(), message.by), ("Goon", None));
        let signed = RunCommand::Say(UserMessage::new("Go").by("ada"));
        let json = serde_json::to_string(&signed).unwrap();
        assert_eq!(json, r#"{"say":{"content":"Go","by":"ada"}}"#);
        assert_eq!(serde_json::from_str::<RunCommand>(&json).unwrap(), signed);
    }
}
