//! Calls that the model repeats too often.

use std::collections::HashMap;

use super::request_counts::RequestCount;
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
        let limits = &self.head.settings.limits;
        let limit = limits.max_repeated_calls.max(1) as usize;
        let max_equal = limit.max(limits.max_equal_calls as usize);
        let (Some(index), Stage::Calling(turn)) = (&self.call_index, &mut self.stage) else { return };
        let (mut stop_reason, mut refused, mut in_turn) = (None, Vec::new(), HashMap::<u64, usize>::new());
        for (position, (call, record)) in self.history.last_calls().iter().zip(&mut turn.calls).enumerate() {
            let request = index.request(&call.name, &call.arguments);
            let beside = in_turn.entry(request).or_default();
            let mut before = index.count(request);
            (before.repeated, before.total) = (before.repeated + *beside, before.total + *beside);
            *beside += 1;
            if before.repeated >= limit.saturating_mul(2) {
                stop_reason = Some(StopReason::RepeatedCall(call.name.clone()));
            }
            let is_repeated = before.repeated >= limit;
            if record.is_open() && (is_repeated || before.total >= max_equal) {
                // The policy of the tool is not known before the next step.
                (record.history.is_pure, record.history.is_at_most_once) =
                    (before.is_pure, before.is_at_most_once);
                let why = before.why_refused(is_repeated);
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

impl RequestCount {
    /// Returns the reason for the model why the call is not executed once more.
    fn why_refused(&self, is_repeated: bool) -> String {
        let (requested, why, way_out) = match (is_repeated, self.is_at_most_once) {
            (true, true) => {
                (self.repeated, "its tool allows no more in one run", "continue with its earlier result")
            }
            (true, false) => {
                (self.repeated, "no new call has changed anything since", "continue with its earlier result")
            }
            (false, _) => (self.total, "no run executes it more often", "continue without it"),
        };
        format!(
            "it was requested {requested} times with these arguments already, and {why}; {way_out}, or use other arguments"
        )
    }
}
