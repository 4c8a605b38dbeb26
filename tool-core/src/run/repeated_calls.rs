//! Calls that the model repeats too often.

use std::collections::HashMap;

use super::state::Stage;
use crate::run::{Run, StopReason};
use crate::tool::{ToolError, ToolExecution};

impl Run {
    /// Refuses calls that were repeated too often, with a result that says so; stops the run if the model keeps repeating
    /// them. Not in the last turn, whose calls end the run anyway.
    pub(super) fn refuse_repeated_calls(&mut self) {
        if self.is_last_turn() {
            return;
        }
        let limit = self.head.settings.limits.max_repeated_calls.max(1) as usize;
        let (Some(index), Stage::Calling(turn)) = (&self.call_index, &self.stage) else { return };
        let (mut stop_reason, mut refused, mut in_turn) = (None, Vec::new(), HashMap::<u64, usize>::new());
        for (position, (call, record)) in self.history.last_calls().iter().zip(&turn.calls).enumerate() {
            let request = index.request(&call.name, &call.arguments);
            let beside = in_turn.entry(request).or_default();
            let before = index.count(request) + *beside;
            *beside += 1;
            if before < limit {
                continue;
            }
            if before >= limit.saturating_mul(2) {
                stop_reason = Some(StopReason::RepeatedCall(call.name.clone()));
            }
            if record.is_open() {
                let why = format!(
                    "it was requested {before} times with these arguments already; \
                     continue with its earlier result, or use other arguments"
                );
                refused
                    .push((position, ToolExecution::new(call.clone(), Err(ToolError::not_executed(&why)))));
            }
        }
        for (position, execution) in refused {
            self.finish_record(position, execution);
        }
        if let Some(reason) = stop_reason {
            self.stop(reason);
        }
    }
}
