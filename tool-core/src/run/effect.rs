//! What a world does for a tree of runs.

use crate::tool::{CallRequest, ToolExecution};

/// The way from the outermost run of a tree to one inside: the ids of the calls that lead to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunPath(Vec<String>);

impl RunPath {
    pub(crate) fn ids(&self) -> &[String] {
        &self.0
    }

    /// Returns `true` if the way leads through the other run, or to it.
    pub(crate) fn is_below(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// Returns the ids of the calls.
    #[must_use]
    pub fn calls(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }

    /// Returns the way to the run of the agent that a call of this run asks.
    #[must_use]
    pub fn inside(&self, call_id: &str) -> Self {
        Self(self.0.iter().cloned().chain([call_id.to_owned()]).collect())
    }

    /// Returns the way to the run around this one, at this depth.
    #[must_use]
    pub fn at_depth(&self, depth: usize) -> Self {
        Self(self.0[..depth.min(self.0.len())].to_vec())
    }

    /// Returns the number of runs around this one.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.0.len()
    }
}

impl FromIterator<String> for RunPath {
    fn from_iter<T: IntoIterator<Item = String>>(calls: T) -> Self {
        Self(calls.into_iter().collect())
    }
}

/// Identifies an effect: the run that needs it, and its number among the effects of runs at this place. A replay numbers alike, however the runs
/// of the tree interleave.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EffectId {
    pub(super) path: RunPath,
    pub(super) number: u32,
}

impl EffectId {
    /// Returns the way to the run that needs the effect.
    #[must_use]
    pub fn path(&self) -> &RunPath {
        &self.path
    }
}

/// What a world does for a run.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Executes a call after the delay of its attempt.
    Call(Box<CallRequest>),
    /// Begins the run of the agent that a call asks, after the delay of its attempt. There is nothing to begin if the run exists, such as one
    /// whose calls are undone.
    Begin(Box<CallRequest>),
    /// Ends the run of an agent, which is done.
    End,
    /// Lets layers see something.
    Judge(LayerSubject),
    /// Asks the model.
    CallModel,
    /// Reports to their tools which calls will not be continued.
    GiveUp,
}

/// What layers see.
#[derive(Clone, Debug)]
pub enum LayerSubject {
    /// The outcome of a call, which is recorded as well.
    Execution(Box<ToolExecution>),
    /// What precedes the next step: an answer that is an output, or calls that were decided about.
    Next,
    /// Results that layers have not seen. What has happened is reported as well.
    Results,
}

/// What a run awaits of its world.
#[derive(Clone, Debug)]
pub(super) enum Awaited {
    /// The outcome of the call with this id.
    Call(String),
    Begin(String),
    End,
    /// The judgement of the outcome of the call with this id.
    Outcome(String),
    Next,
    Results,
    Ask,
    /// Tools know of so many calls that they are given up.
    GiveUp(usize),
    /// The end of a step that changes the run meanwhile, or only waits for persons.
    Step {
        asks_persons: bool,
    },
}

impl Awaited {
    pub(super) fn result_of(effect: &Effect, given_up: usize) -> Self {
        match effect {
            Effect::Call(request) => Self::Call(request.call.id.clone()),
            Effect::Begin(request) => Self::Begin(request.call.id.clone()),
            Effect::End => Self::End,
            Effect::Judge(LayerSubject::Execution(execution)) => Self::Outcome(execution.call().id.clone()),
            Effect::Judge(LayerSubject::Next) => Self::Next,
            Effect::Judge(LayerSubject::Results) => Self::Results,
            Effect::CallModel => Self::Ask,
            Effect::GiveUp => Self::GiveUp(given_up),
        }
    }
}
