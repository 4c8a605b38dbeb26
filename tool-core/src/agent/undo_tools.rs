//! The tools that undo the calls of a run.
//!
//! Each is bound, by the source that names it, to a tool of that source or of the agent. It is never looked up among all
//! tools of a turn, because untrusted parties add tools there: servers through providers, callers through questions.

use crate::agent::{BuildError, BuildErrorKind};
use crate::model::{ToolDefinition, ToolPolicy};
use crate::toolset::ToolSet;

/// The source of offered tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Agent,
    Question,
    /// The provider with this index.
    Provider(usize),
}

/// The tools that undo calls. A tool that was bound stays bound, even if its source no longer offers it.
#[derive(Clone, Default)]
pub(super) struct UndoTools(Vec<UndoTool>);

#[derive(Clone)]
struct UndoTool {
    name: String,
    /// The tool that it undoes, if one is known.
    undoes: Option<String>,
    source: Source,
    /// The set that contains the tool.
    set: ToolSet,
}

impl UndoTool {
    /// Returns `true` if it may undo the tools of this source.
    fn is_for(&self, source: Source) -> bool {
        self.source == source || self.source == Source::Agent
    }
}

impl UndoTools {
    /// Binds the tools that the agent has only to undo others.
    pub(super) fn new(hidden: &ToolSet) -> Self {
        let bind = |tool: &ToolDefinition| UndoTool {
            name: tool.name().to_owned(),
            undoes: None,
            source: Source::Agent,
            set: hidden.clone(),
        };
        Self(hidden.definitions().iter().map(bind).collect())
    }

    /// Returns `true` if an undo tool of another source has this name.
    pub(super) fn is_reserved(&self, name: &str, source: Source) -> bool {
        self.0.iter().any(|one| one.source != source && one.name == name)
    }

    /// Binds the undo tools of a source's tools, in place of the source's earlier ones.
    /// Fails if the source has a tool with the name of another source's undo tool, or if one of its tools cannot be undone as
    /// declared.
    pub(super) fn bind(&mut self, source: Source, tools: &ToolSet) -> Result<(), BuildError> {
        let is_taken = |one: &&UndoTool| one.source != source && tools.get(&one.name).is_some();
        if let Some(taken) = self.0.iter().find(is_taken) {
            let (name, undoes) = (taken.name.clone(), taken.undoes.clone());
            return Err(BuildErrorKind::ReservedName { name, undoes }.into());
        }
        for definition in tools.definitions().iter() {
            let Some(name) = definition.undo() else { continue };
            let undoes = Some(definition.name().to_owned());
            let bound = self.0.iter_mut().find(|one| one.name == name && one.is_for(source));
            match (bound, tools.get(name)) {
                (Some(bound), None) => bound.undoes = bound.undoes.take().or(undoes),
                (Some(bound), Some(_)) => (bound.undoes, bound.set) = (undoes, tools.clone()),
                (None, Some(_)) => {
                    self.0.push(UndoTool { name: name.to_owned(), undoes, source, set: tools.clone() });
                }
                (None, None) => {}
            }
        }
        self.check(tools, source)
    }

    /// Fails if the calls of one of these tools of this source cannot be undone as declared.
    fn check(&self, tools: &ToolSet, source: Source) -> Result<(), BuildError> {
        for definition in tools.definitions().iter() {
            let Some(undo) = definition.undo() else { continue };
            let (tool, undo) = (definition.name().to_owned(), undo.to_owned());
            let bound = self.0.iter().find(|one| one.name == undo && one.is_for(source));
            let Some(undoing) = bound.and_then(|one| one.set.get(&undo)) else {
                return Err(BuildErrorKind::MissingUndoTool { tool, undo }.into());
            };
            let takes = |name: &str| definition.parameters()["properties"].get(name).is_some();
            let required = undoing.definition().parameters()["required"].as_array().into_iter().flatten();
            if let Some(name) = required.filter_map(|name| name.as_str()).find(|name| !takes(name)) {
                let parameter = name.to_owned();
                return Err(BuildErrorKind::MissingUndoArgument { tool, undo, parameter }.into());
            }
        }
        Ok(())
    }

    /// Returns the set that contains the undo tool with this name.
    pub(super) fn set_with(&self, name: &str) -> Option<&ToolSet> {
        self.0.iter().find(|one| one.name == name).map(|one| &one.set)
    }

    pub(super) fn policy(&self, name: &str) -> Option<ToolPolicy> {
        Some(self.set_with(name)?.get(name)?.definition().policy().clone())
    }
}
