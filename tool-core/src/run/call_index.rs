//! An index of the calls of a run.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use crate::arguments::without_whitespace;
use crate::model::Message;
use crate::tool::ToolExecution;

/// An index of the calls of a run, so that a turn costs no more in a longer conversation. It follows from the rest of the run
/// and is not stored.
///
/// It contains hashes, because arguments can be long. They have 64 bits and a random key, so equal ones are of equal calls.
#[derive(Clone, Default)]
pub(super) struct CallIndex {
    hasher: RandomState,
    /// The position of each call in its message, by its id.
    positions: HashMap<u64, usize>,
    /// The number of calls that were requested with each name and arguments.
    requests: HashMap<u64, usize>,
    /// The position of each executed call among the first `indexed` executions of the run, by its id.
    executed: HashMap<u64, usize>,
    indexed: usize,
}

impl CallIndex {
    /// Creates the index. Requests are counted from an execution on.
    pub(super) fn new(messages: &[Message], executions: &[ToolExecution], counted: usize) -> Self {
        let mut index = Self::default();
        for message in messages.iter().filter_map(Message::as_assistant) {
            for (position, call) in message.tool_calls.iter().enumerate() {
                index.insert_id(&call.id, position);
            }
        }
        for execution in executions.iter().skip(counted) {
            index.count_request(&execution.call.name, execution.original_arguments());
        }
        index
    }

    pub(super) fn position(&self, id: &str) -> Option<usize> {
        self.positions.get(&self.hasher.hash_one(id)).copied()
    }

    /// Adds an id. Returns `false` if a call has it already.
    pub(super) fn insert_id(&mut self, id: &str, position: usize) -> bool {
        match self.positions.entry(self.hasher.hash_one(id)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(position);
                true
            }
        }
    }

    /// Returns the last of these executions that was of a call with this id. They are the executions of earlier calls of this function,
    /// and further ones.
    pub(super) fn execution<'e>(
        &mut self,
        id: &str,
        executions: &'e [ToolExecution],
    ) -> Option<(usize, &'e ToolExecution)> {
        for (position, execution) in executions.iter().enumerate().skip(self.indexed) {
            if execution.was_executed() {
                self.executed.insert(self.hasher.hash_one(&*execution.call.id), position);
            }
        }
        self.indexed = executions.len();
        let position = *self.executed.get(&self.hasher.hash_one(id))?;
        Some((position, executions.get(position)?))
    }

    /// Counts a call. Returns the number of those before with the same name and arguments.
    pub(super) fn count_request(&mut self, name: &str, arguments: &str) -> usize {
        let count =
            self.requests.entry(self.hasher.hash_one((name, without_whitespace(arguments)))).or_default();
        *count += 1;
        *count - 1
    }
}

impl fmt::Debug for CallIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallIndex").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::CallIndex;
    use crate::model::ToolCall;
    use crate::tool::{ToolExecution, ToolOutput};

    /// A long conversation can repeat an id in every turn.
    #[test]
    fn indexes_each_execution_once() {
        let execution = |id| ToolExecution::new(ToolCall::new(id, "sum", "{}"), Ok(ToolOutput::text("3")));
        let mut executions = vec![execution("a"), execution("b")];
        let mut index = CallIndex::default();
        let mut found = |id, executions: &[ToolExecution]| Some(index.execution(id, executions)?.0);
        assert_eq!(found("b", &executions), Some(1));
        // No execution changes; if one did, the index would not notice.
        executions[0] = execution("x");
        executions.push(execution("c"));
        assert_eq!(["a", "c", "x", "d"].map(|id| found(id, &executions)), [Some(0), Some(2), None, None]);
    }
}
