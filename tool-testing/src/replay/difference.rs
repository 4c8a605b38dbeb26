//! How two runs differ.

use std::fmt;

/// What a run does otherwise than its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DifferenceKind {
    /// The agent has no tool of this name any more, or it is not offered.
    ToolGone,
    /// The tool refuses arguments that it took, or takes arguments that it refused.
    Arguments,
    /// A call needs an approval that it did not need, or needs none any more.
    Approval,
    /// A call waits for something else, such as a result of its caller, or does not wait.
    Wait,
    /// A layer decides otherwise, or is gone.
    Verdict,
    /// A limit ends the run, or does not any more.
    Limit,
    /// Another call is undone, or otherwise.
    Undo,
    /// The output or the error of a call has another form.
    Output,
    /// The run is handed over to another agent, or is not.
    Handoff,
    /// The run ends otherwise.
    End,
}

impl DifferenceKind {
    /// Returns the name of the kind, such as `arguments`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ToolGone => "tools",
            Self::Arguments => "arguments",
            Self::Approval => "approval",
            Self::Wait => "wait",
            Self::Verdict => "verdict",
            Self::Limit => "limit",
            Self::Undo => "undo",
            Self::Output => "output",
            Self::Handoff => "handoff",
            Self::End => "end",
        }
    }
}

impl fmt::Display for DifferenceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The first difference between a run and its record. What follows from it is not known.
///
/// It contains arguments and texts of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// What differs.
    pub kind: DifferenceKind,
    /// The ids of the calls that lead to the place, separated by `/`: of agents as tools, and of the call itself, if it is one. Empty for the
    /// outermost run itself.
    pub path: String,
    /// The position among the messages of its run, from 0.
    pub position: usize,
    /// What the record has.
    pub recorded: String,
    /// What the present program does.
    pub present: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, path, position, recorded, present } = self;
        let of_call = if path.is_empty() { String::new() } else { format!(", call {path}") };
        write!(
            f,
            "{kind} differs at message {position}{of_call}:\n  recorded: {recorded}\n  now:      {present}"
        )
    }
}

/// Something that the model would read otherwise. The run goes on as its record, as far as that can be known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The instructions of the agent at this path are others.
    Instructions {
        /// The ids of the calls that lead to the agent, separated by `/`.
        path: String,
    },
    /// What the model is offered has changed.
    Offer {
        /// The ids of the calls that lead to the agent, separated by `/`.
        path: String,
        /// The name of the tool.
        tool: String,
        /// How it has changed.
        change: OfferChange,
    },
    /// The result of the call at this path has another text, such as an error that names other tools.
    Result {
        /// The ids of the calls that lead to the result, separated by `/`.
        path: String,
    },
    /// This tool was offered, and is none of the present agents. They have providers of tools, which are not asked, so it is taken to be there as it was; see
    /// [`Replay::provided`](crate::Replay::provided).
    Assumed {
        /// The name of the tool.
        tool: String,
    },
    /// The record is older than offers are recorded, so it is not known whether they have changed.
    OfferUnknown {
        /// The ids of the calls that lead to the agent, separated by `/`.
        path: String,
    },
}

/// How the offer of a tool has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OfferChange {
    /// It was not offered.
    Added,
    /// It is not offered any more.
    Removed,
    /// It has another definition.
    Changed,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of =
            |path: &str| if path.is_empty() { String::new() } else { format!(" of the agent at {path}") };
        match self {
            Self::Instructions { path } => write!(f, "the instructions{} are others", of(path)),
            Self::Offer { path, tool, change } => {
                let change = match change {
                    OfferChange::Added => "is new",
                    OfferChange::Removed => "is not offered any more",
                    OfferChange::Changed => "has another definition",
                };
                write!(f, "the tool `{tool}`{} {change}", of(path))
            }
            Self::Result { path } => write!(f, "the model reads another text of the call {path}"),
            Self::Assumed { tool } => write!(
                f,
                "the tool `{tool}` is taken to be one of a provider, which is not asked; give it by `Replay::provided`"
            ),
            Self::OfferUnknown { path } => {
                write!(f, "the record does not say what the model{} was offered", of(path))
            }
        }
    }
}
