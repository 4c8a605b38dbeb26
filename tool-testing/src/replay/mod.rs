//! Repeats kept runs with the present program, and compares.

mod difference;
mod compare;
mod notes;

use std::fmt;

use tool_core::Agent;
use tool_core::RunErrorKind;
use tool_core::agent::RunSetup;
use tool_core::engine::{self, ReplayEnd, ReplayParts};
use tool_core::layer::Layer;
use tool_core::run::Run;
use tool_core::signatures::{Injectable, IntoToolSet};
use tool_core::toolset::{ToolSet, ToolSetError};

pub(crate) use self::compare::describe_wait;
pub use self::difference::{Difference, DifferenceKind, Note, OfferChange};

/// Repeats a run with the present program. See [`Replay`].
pub async fn replay(run: &Run, agent: &Agent) -> ReplayOutcome {
    Replay::new().run(run, agent).await
}

/// How runs are repeated: from their records, which have the replies of the models, the outcomes of calls, and what persons decided and said. The
/// agent's rules are asked again: what its tools accept, approvals, limits, layers, handoffs and what is undone. Nothing is executed or stored, and nothing
/// is sent unless a layer that judges does so: [replace](Self::layer) that one. The [guide](crate::guide) has a list of what is not seen.
#[derive(Clone, Debug)]
#[must_use = "nothing is repeated until a run is"]
pub struct Replay {
    parts: Result<ReplayParts, ToolSetError>,
}

/// What a run does that is repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayOutcome {
    /// The same, as far as the record goes: it can end in the middle of a run.
    Same,
    /// The same calls, and the model would read something else.
    Noted(Vec<Note>),
    /// Something else.
    Diverged(Box<Difference>),
    /// The run cannot be repeated.
    CannotReplay(String),
}

impl Default for Replay {
    fn default() -> Self {
        Self::new()
    }
}

impl Replay {
    /// Creates a replay that replaces nothing.
    pub fn new() -> Self {
        Self { parts: Ok(ReplayParts::new()) }
    }

    fn with(self, change: impl FnOnce(ReplayParts) -> ReplayParts) -> Self {
        Self { parts: self.parts.map(change) }
    }

    /// Sets a value that questions have given, for layers and rules of approval that read it.
    pub fn context<T: Injectable>(self, value: T) -> Self {
        self.with(|parts| parts.context(value))
    }

    /// Replaces the layer with this name, such as one that asks a service, in each agent that has one. A name that no agent has replaces nothing.
    pub fn layer(self, layer: impl Layer + 'static) -> Self {
        self.with(|parts| parts.layer(layer))
    }

    /// Replaces what [opens runs](tool_core::agent::AgentBuilder::run_setup). Without it, runs of an agent that has one cannot be repeated.
    pub fn run_setup(self, run_setup: impl RunSetup + 'static) -> Self {
        self.with(|parts| parts.run_setup(run_setup))
    }

    /// Gives each agent with providers these tools, in place of what its [providers](tool_core::agent::AgentBuilder::tool_provider) supply, such as servers of MCP,
    /// which are not asked. Without them, the tools that no agent has are taken to be there as they were, which is a [note](Note::Assumed).
    pub fn provided<K: ?Sized>(self, tools: impl IntoToolSet<K>) -> Self {
        let tools = tools.into_tool_set();
        Self { parts: self.parts.and_then(|parts| Ok(parts.provided(tools?))) }
    }

    /// Sets the tools that [questions](tool_core::agent::Ask::tools) offered.
    pub fn tools<K: ?Sized>(self, tools: impl IntoToolSet<K>) -> Self {
        let tools: Result<ToolSet, _> = tools.into_tool_set();
        Self { parts: self.parts.and_then(|parts| Ok(parts.tools(tools?))) }
    }

    pub(crate) fn parts(&self) -> Result<ReplayParts, ToolSetError> {
        self.parts.clone()
    }

    /// Repeats a run.
    pub async fn run(&self, run: &Run, agent: &Agent) -> ReplayOutcome {
        let parts = match &self.parts {
            Ok(parts) => parts.clone(),
            Err(error) => return ReplayOutcome::CannotReplay(error.to_string()),
        };
        let repeated = engine::replay(agent, run, parts).await;
        if let ReplayEnd::Failed { kind: RunErrorKind::RunSetup(_), text, .. } = repeated.end {
            return ReplayOutcome::CannotReplay(text);
        }
        if let Some(mut difference) = compare::first_difference(run, &repeated.run, &repeated.layers) {
            if let (ReplayEnd::Failed { text, .. }, DifferenceKind::End) = (&repeated.end, difference.kind) {
                difference.present.clone_from(text);
            }
            return ReplayOutcome::Diverged(Box::new(difference));
        }
        match repeated.end {
            ReplayEnd::Failed { text: present, .. }
                if run.engine_view().failure().as_ref() != Some(&present) =>
            {
                let position = repeated.run.messages().len();
                let recorded = "the run goes on".to_owned();
                let (kind, path) = (DifferenceKind::End, String::new());
                ReplayOutcome::Diverged(Box::new(Difference { kind, path, position, recorded, present }))
            }
            _ => match notes::notes(run, &repeated.run, &repeated.assumed_tools) {
                notes if notes.is_empty() => ReplayOutcome::Same,
                notes => ReplayOutcome::Noted(notes),
            },
        }
    }
}

impl ReplayOutcome {
    /// Returns `true` if the calls are the same.
    #[must_use]
    pub fn is_same(&self) -> bool {
        matches!(self, Self::Same | Self::Noted(_))
    }
}

impl fmt::Display for ReplayOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("the same"),
            Self::Noted(notes) => {
                f.write_str("the same, but ")?;
                for (number, note) in notes.iter().enumerate() {
                    write!(f, "{}{note}", if number == 0 { "" } else { "; " })?;
                }
                Ok(())
            }
            Self::Diverged(difference) => difference.fmt(f),
            Self::CannotReplay(why) => write!(f, "it cannot be repeated: {why}"),
        }
    }
}
