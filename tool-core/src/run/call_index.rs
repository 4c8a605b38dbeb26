//! An index of the calls of a run.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use super::request_counts::{RequestCount, RequestCounts};
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
    /// The number of messages whose ids are known.
    read_messages: usize,
    requests: RequestCounts,
    /// The position of each executed call among the executions of the run, by its id.
    executed: HashMap<u64, usize>,
    /// The number of executions that are known.
    read_executions: usize,
}

impl CallIndex {
    /// Returns `true` if it contains nothing yet.
    pub(super) fn is_new(&self) -> bool {
        self.read_messages == 0
    }

    /// Adds what has happened since the last call of this function. The outputs of some calls, given by their ids, are hidden from the model.
    pub(super) fn catch_up(
        &mut self,
        messages: &[Message],
        executions: &[ToolExecution],
        hidden: &HashSet<&str>,
    ) {
        let new = messages.iter().skip(self.read_messages).filter_map(Message::as_assistant);
        for message in new {
            for (position, call) in message.tool_calls.iter().enumerate() {
                self.insert_id(&call.id, position);
            }
        }
        self.read_messages = messages.len();
        for (position, execution) in executions.iter().enumerate().skip(self.read_executions) {
            if execution.was_executed() {
                self.executed.insert(self.hasher.hash_one(&*execution.call.id), position);
            }
            let request = self.request(&execution.call.name, execution.original_arguments());
            self.requests.add(request, execution, hidden.contains(&*execution.call.id));
        }
        self.read_executions = executions.len();
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

    /// Returns the position of the last execution of a call with this id.
    pub(super) fn execution(&self, id: &str) -> Option<usize> {
        self.executed.get(&self.hasher.hash_one(id)).copied()
    }

    /// Returns what requests with this name and these arguments have in common.
    pub(super) fn request(&self, name: &str, arguments: &str) -> u64 {
        self.hasher.hash_one((name, without_whitespace(arguments)))
    }

    /// Returns the number of executions of a request.
    pub(super) fn count(&self, request: u64) -> RequestCount {
        self.requests.count(request)
    }
}

impl fmt::Debug for CallIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallIndex").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::CallIndex;
    use crate::model::ToolCall;
    use crate::tool::{ToolExecution, ToolOutput};

    /// A long conversation can repeat an id in every turn.
    #[test]
    fn indexes_each_execution_once() {
        let execution = |id| ToolExecution::new(ToolCall::new(id, "sum", "{}"), Ok(ToolOutput::text("3")));
        let mut executions = vec![execution("a"), execution("b")];
        let mut index = CallIndex::default();
        index.catch_up(&[], &executions, &HashSet::new());
        assert_eq!(index.execution("b"), Some(1));
        // No execution changes; if one did, the index would not notice.
        executions[0] = execution("x");
        executions.push(execution("c"));
        index.catch_up(&[], &executions, &HashSet::new());
        assert_eq!(["a", "c", "x", "d"].map(|id| index.execution(id)), [Some(0), Some(2), None, None]);
        assert_eq!(index.count(index.request("sum", "{ }")).total, 3);
    }
}
