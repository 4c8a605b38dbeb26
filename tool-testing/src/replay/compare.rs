//! Compares a run with its record, in the order in which things happened.

use std::collections::BTreeSet;

use tool_core::engine::{InnerRun, is_said_instead, is_unrecorded};
use tool_core::run::{Run, StopReason, Wait, WaitReason};
use tool_core::signatures::{DecisionKind, DecisionRecord, VerdictKind, VerdictRecord};
use tool_core::tool::{ToolErrorKind, ToolExecution};
use tool_core::{Message, ToolCall, ToolError};

use super::difference::{Difference, DifferenceKind as Kind};

/// Returns the first difference. `layers` are the names of those that the present agents have.
pub(super) fn first_difference(
    recorded: &Run,
    present: &Run,
    layers: &BTreeSet<String>,
) -> Option<Difference> {
    Pair { recorded, present, path: "", is_over: is_over(recorded), layers }.difference()
}

/// A run and its record.
#[derive(Clone, Copy)]
struct Pair<'r> {
    recorded: &'r Run,
    present: &'r Run,
    /// The path of the call that asked the agent.
    path: &'r str,
    /// The record has the end of the outermost run.
    is_over: bool,
    layers: &'r BTreeSet<String>,
}

/// What has become of a call.
#[derive(Clone)]
enum Fate<'r> {
    Finished(&'r ToolExecution),
    Waits(Box<Wait>),
    Open,
}

impl<'r> Pair<'r> {
    fn difference(self) -> Option<Difference> {
        let given = self.recorded.messages().len() - self.recorded.new_messages().len();
        let (recorded, present) = (self.recorded.new_messages(), self.present.new_messages());
        for (at, message) in recorded.iter().enumerate() {
            let place = Place { pair: self, position: given + at };
            let Some(now) = present.get(at) else {
                let ends = self.recorded.stop_reason().zip(self.present.stop_reason());
                let is_same = |(one, now): (&StopReason, &StopReason)| one.to_string() == now.to_string();
                // The answer for which a layer ended the run.
                if at + 1 == recorded.len() && ends.is_some_and(is_same) {
                    break;
                }
                return Some(self.ends_early(place, message));
            };
            if let Some(difference) = place.compare(message, now) {
                return Some(difference);
            }
            let is_last = !recorded[at + 1..].iter().any(|later| later.as_assistant().is_some());
            let calls = message.as_assistant().map_or(&[][..], |reply| &reply.tool_calls).iter();
            let mut differences = calls.filter_map(|call| place.compare_call(call, is_last));
            // Calls that were not executed because the run has ended say less than the one that ended it.
            if let Some(first) = differences.next() {
                let is_own = |one: &Difference| one.kind != Kind::Limit && one.kind != Kind::End;
                let own = if is_own(&first) { None } else { differences.find(is_own) };
                return Some(own.unwrap_or(first));
            }
        }
        let end = Place { pair: self, position: given + recorded.len() };
        if !is_over(self.recorded) {
            // The run has gone on.
            return end.compare_handoffs();
        }
        if !self.is_over && matches!(self.present.stop_reason(), Some(StopReason::Cancelled)) {
            // The run around it has gone on, and stopped.
            return None;
        }
        end.compare_layers()
            .or_else(|| end.compare_handoffs())
            .or_else(|| end.compare_undo())
            .or_else(|| end.compare_end())
    }

    /// Returns the difference of a run that ends before this message of its record.
    fn ends_early(self, place: Place<'r>, message: &Message) -> Difference {
        let recorded = what(message);
        place.of_end(self.present).map_or_else(
            || place.difference(Kind::End, "", recorded.clone(), "the run goes on otherwise".to_owned()),
            |(kind, end)| place.difference(kind, "", recorded.clone(), end),
        )
    }

    fn fate(self, run: &'r Run, call_id: &str) -> Fate<'r> {
        let finished = run.tool_executions().iter().rev().find(|one| one.call().id == call_id);
        let current = || run.current_calls().find(|(call, _)| call.id == call_id)?.1;
        match finished.or_else(current) {
            Some(execution) => Fate::Finished(execution),
            None => match run.waits().into_iter().find(|wait| wait.path == call_id) {
                Some(wait) => Fate::Waits(Box::new(wait)),
                None => Fate::Open,
            },
        }
    }
}

/// A message of a run.
#[derive(Clone, Copy)]
struct Place<'r> {
    pair: Pair<'r>,
    position: usize,
}

impl<'r> Place<'r> {
    fn difference(self, kind: Kind, call_id: &str, recorded: String, present: String) -> Difference {
        Difference { kind, path: self.path_of(call_id), position: self.position, recorded, present }
    }

    fn path_of(self, call_id: &str) -> String {
        match (self.pair.path, call_id) {
            ("", call_id) => call_id.to_owned(),
            (path, "") => path.to_owned(),
            (path, call_id) => format!("{path}/{call_id}"),
        }
    }

    fn compare(self, recorded: &Message, present: &Message) -> Option<Difference> {
        let differs =
            |kind, one: &Message, now: &Message| Some(self.difference(kind, "", what(one), what(now)));
        match (recorded, present) {
            (Message::Assistant(one), Message::Assistant(now)) => {
                if one.text != now.text && !self.are_both_changed(VerdictKind::Replaced) {
                    return differs(Kind::Verdict, recorded, present);
                }
                let calls = one.tool_calls.iter().zip(&now.tool_calls);
                // What a person wrote is compared with the decision.
                let mut changed = calls.filter(|(one, now)| one.arguments != now.arguments);
                changed.find_map(|(one, now)| self.compare_arguments(one, now))
            }
            // Compared with the execution, or never executed.
            (Message::Tool(_), Message::Tool(_)) => None,
            (recorded, present) if recorded.text() == present.text() => None,
            (Message::User(_), Message::User(_)) if self.are_both_changed(VerdictKind::Rewritten) => None,
            (Message::User(_), Message::User(_)) => differs(Kind::Verdict, recorded, present),
            (recorded, present) => differs(Kind::End, recorded, present),
        }
    }

    /// Returns `true` if the same layer has changed a text of both runs. The record has only what the layer wrote, which it sees again.
    fn are_both_changed(self, kind: VerdictKind) -> bool {
        let changed = |run: &'r Run| run.verdicts().iter().filter(move |verdict| verdict.kind == kind);
        changed(self.pair.recorded).any(|one| changed(self.pair.present).any(|now| now.layer == one.layer))
    }

    /// Returns the difference of a run whose question or answer a layer has changed that is gone.
    fn compare_layers(self) -> Option<Difference> {
        let has_acted = |verdict: &&VerdictRecord| {
            let is_change =
                matches!(verdict.kind, VerdictKind::Retried | VerdictKind::Replaced | VerdictKind::Rewritten);
            // Layers of agents that took the run over have their number before.
            let name = verdict.layer.rsplit('/').next().unwrap_or_default();
            is_change && !self.pair.layers.contains(&verdict.layer) && !self.pair.layers.contains(name)
        };
        let gone = self.pair.recorded.verdicts().iter().find(has_acted)?;
        let present = format!("there is no layer `{}`", gone.layer);
        Some(self.difference(Kind::Verdict, "", verdict(gone), present))
    }

    fn compare_arguments(self, recorded: &ToolCall, present: &ToolCall) -> Option<Difference> {
        let of = |run| match self.pair.fate(run, &recorded.id) {
            Fate::Finished(execution) => decided(execution),
            _ => Vec::new(),
        };
        // A decision that is missing is the reason.
        if of(self.pair.recorded) != of(self.pair.present) {
            return None;
        }
        let (one, now) = (recorded.to_string(), present.to_string());
        Some(self.difference(Kind::Verdict, &recorded.id, line(&one), line(&now)))
    }

    /// Returns the call whose failure has ended the present run.
    fn failed_call(self) -> Option<&'r str> {
        let Some(StopReason::ToolFailed { tool, .. }) = self.pair.present.stop_reason() else { return None };
        let mut executions = self.pair.present.tool_executions().iter().rev();
        let failed = executions.find(|one| one.call().name == *tool && one.error().is_some())?;
        Some(&failed.call().id)
    }

    /// Compares what has become of a call, and the runs of the agents that it asked.
    fn compare_call(self, call: &ToolCall, is_last: bool) -> Option<Difference> {
        let recorded = self.pair.fate(self.pair.recorded, &call.id);
        let present = self.pair.fate(self.pair.present, &call.id);
        if let (Fate::Finished(_), Fate::Finished(now)) | (_, Fate::Finished(now)) = (&recorded, &present)
            && let Some(kind) = refused(now)
            && !matches!(&recorded, Fate::Finished(execution) if refused(execution) == Some(kind))
        {
            return Some(self.difference(
                kind,
                &call.id,
                describe(&recorded, call),
                describe(&present, call),
            ));
        }
        if let Some(difference) = self.compare_inside(call) {
            return Some(difference);
        }
        let (kind, one, now) = match (&recorded, &present) {
            // It becomes the answer, which layers judge.
            (Fate::Finished(_), Fate::Finished(_))
                if is_last && self.pair.recorded.engine_view().has_unjudged_answer() =>
            {
                return None;
            }
            (Fate::Finished(one), Fate::Finished(now))
                if is_abandoned(now) && !is_abandoned(one) && self.pair.present.stop_reason().is_some() =>
            {
                let end = self.of_end(self.pair.present);
                let (kind, end) = end.unwrap_or_else(|| (Kind::End, describe(&present, call)));
                let failed = self.failed_call().unwrap_or(&call.id);
                return Some(self.difference(kind, failed, describe(&recorded, call), end));
            }
            (Fate::Finished(one), Fate::Finished(now)) => {
                (compare_executions(one, now)?, describe(&recorded, call), describe(&present, call))
            }
            (Fate::Waits(one), Fate::Waits(now)) if is_same(one, now) => return None,
            // Nobody has executed it yet, or its time has come meanwhile.
            (Fate::Open, _) => return None,
            (Fate::Waits(wait), Fate::Finished(now)) if wait.is_until() && is_unrecorded(now) => return None,
            // What a person wrote is refused, so the call waits on.
            (Fate::Finished(one), Fate::Waits(_))
                if decided(one).contains(&DecisionKind::ApprovedWithChanges) =>
            {
                let now =
                    format!("{}: the arguments that a person wrote are refused", line(&call.to_string()));
                (Kind::Arguments, describe(&recorded, call), now)
            }
            (_, Fate::Waits(wait)) => (kind_of(wait), describe(&recorded, call), describe(&present, call)),
            (Fate::Waits(wait), Fate::Finished(now)) => {
                let is_judged = now.verdicts().iter().any(|one| one.kind != VerdictKind::NeedsApproval);
                let kind = if is_judged { Kind::Verdict } else { kind_of(wait) };
                (kind, describe(&recorded, call), describe(&present, call))
            }
            // Others wait first, and the record ends in the middle.
            (_, Fate::Open)
                if is_last && !is_over(self.pair.recorded) && self.pair.present.stop_reason().is_none() =>
            {
                return None;
            }
            (_, Fate::Open) => match self.of_end(self.pair.present) {
                Some((kind, end)) => (kind, describe(&recorded, call), end),
                None => (Kind::End, describe(&recorded, call), describe(&present, call)),
            },
        };
        Some(self.difference(kind, &call.id, one, now))
    }

    fn compare_inside(self, call: &ToolCall) -> Option<Difference> {
        let inside = |run: &'r Run| run.inner_runs().filter(|inner| inner.call_id() == call.id);
        let path = self.path_of(&call.id);
        let ends_with_it = |inner: &&InnerRun| {
            let is_cancelled = matches!(inner.run().stop_reason(), Some(StopReason::Cancelled));
            is_cancelled && self.pair.present.stop_reason().is_some()
        };
        let was_cancelled = inside(self.pair.recorded).any(|inner| ends_with_it(&inner));
        if !was_cancelled && inside(self.pair.present).any(|inner| ends_with_it(&inner)) {
            return None;
        }
        inside(self.pair.recorded).zip(inside(self.pair.present)).find_map(|(recorded, present)| {
            let inside = Pair { recorded: recorded.run(), present: present.run(), path: &path, ..self.pair };
            inside.difference()
        })
    }

    fn compare_handoffs(self) -> Option<Difference> {
        let names = |run: &Run| run.handoffs().iter().map(|one| one.agent().to_owned()).collect::<Vec<_>>();
        let (recorded, present) = (names(self.pair.recorded), names(self.pair.present));
        let differs = !present.starts_with(&recorded);
        differs.then(|| self.difference(Kind::Handoff, "", recorded.join(", "), present.join(", ")))
    }

    fn compare_undo(self) -> Option<Difference> {
        let describe = |execution: &ToolExecution| {
            let outcome = execution.error().map_or("done", |error| error.kind().as_str());
            format!("{}: {outcome}", execution.call())
        };
        let undone = |run: &'r Run| run.undo_executions().iter();
        let (mut recorded, mut present) = (undone(self.pair.recorded), undone(self.pair.present));
        loop {
            let (one, now) = match (recorded.next(), present.next()) {
                (None, None) => return None,
                (one, now) => (one, now),
            };
            let id = one.or(now).map(|execution| execution.call().id.clone()).unwrap_or_default();
            let text = |execution: Option<&ToolExecution>| {
                execution.map_or_else(|| "nothing more is undone".to_owned(), describe)
            };
            if text(one) != text(now) {
                return Some(self.difference(Kind::Undo, &id, text(one), text(now)));
            }
            // The runs of an agent are undone by itself.
            if let Some(difference) = one.and_then(|one| self.compare_inside(one.call())) {
                return Some(difference);
            }
        }
    }

    fn compare_end(self) -> Option<Difference> {
        let Pair { recorded, present, .. } = self.pair;
        let (one, now) = (self.of_end(recorded), self.of_end(present));
        if one == now {
            return None;
        }
        let kind = match (&one, &now) {
            (Some((Kind::Limit, _)), _) | (_, Some((Kind::Limit, _))) => Kind::Limit,
            (Some((Kind::Verdict, _)), _) | (_, Some((Kind::Verdict, _))) => Kind::Verdict,
            _ => Kind::End,
        };
        let text = |end: Option<(Kind, String)>| end.map_or("the run goes on".to_owned(), |(_, end)| end);
        Some(self.difference(kind, "", text(one), text(now)))
    }

    /// Returns how a run has ended, if it has.
    fn of_end(self, run: &Run) -> Option<(Kind, String)> {
        match run.stop_reason() {
            Some(reason) if reason.is_limit() => Some((Kind::Limit, line(&reason.to_string()))),
            Some(reason @ StopReason::Blocked { .. }) => Some((Kind::Verdict, line(&reason.to_string()))),
            Some(reason) => Some((Kind::End, line(&reason.to_string()))),
            None if run.is_done() => Some((Kind::End, "the run has an answer".to_owned())),
            None => run.waits().first().map(|wait| (kind_of(wait), describe_wait(wait))),
        }
    }
}

/// Returns `true` if a run has ended, and layers have judged its answer.
fn is_over(run: &Run) -> bool {
    run.is_done() && !run.engine_view().has_unjudged_answer()
}

/// Returns how two executions differ.
fn compare_executions(one: &ToolExecution, now: &ToolExecution) -> Option<Kind> {
    let text = |execution: &ToolExecution| execution.output().map(ToString::to_string);
    // A layer has nothing to replace in what was redacted before it was kept.
    let is_same_text = text(one) == text(now);
    let acting = |execution: &ToolExecution| -> Vec<_> {
        let verdicts = execution.verdicts().iter().filter(|one| one.kind != VerdictKind::NeedsApproval);
        let verdicts = verdicts.filter(|one| !is_same_text || one.kind != VerdictKind::Replaced);
        verdicts.map(verdict).collect()
    };
    if acting(one) != acting(now) {
        return Some(Kind::Verdict);
    }
    let approvals = |execution: &ToolExecution| {
        execution.verdicts().iter().filter(|one| one.kind == VerdictKind::NeedsApproval).count()
    };
    if decided(one) != decided(now) || approvals(one) != approvals(now) {
        return Some(Kind::Approval);
    }
    // What layers wrote in place of an outcome is only read by the model.
    let is_replaced = now.verdicts().iter().any(|one| one.kind == VerdictKind::Replaced);
    match (one.outcome(), now.outcome()) {
        (Ok(_), Ok(_)) if is_replaced => None,
        (Ok(one), Ok(now)) => (one.to_string() != now.to_string()).then_some(Kind::Output),
        (Err(one), Err(now)) if one.kind() == now.kind() => None,
        _ => match refused(one).or(refused(now)) {
            Some(kind) => Some(kind),
            None => Some(Kind::Output),
        },
    }
}

/// Returns `true` if the run has ended before the call was executed, or meanwhile.
fn is_abandoned(execution: &ToolExecution) -> bool {
    let kind = execution.error().map(ToolError::kind);
    matches!(kind, Some(ToolErrorKind::NotExecuted | ToolErrorKind::OutcomeUnknown))
}

/// Returns why a call was refused before it was executed, if it was for what its tool is.
fn refused(execution: &ToolExecution) -> Option<Kind> {
    match execution.error()?.kind() {
        ToolErrorKind::UnknownTool => Some(Kind::ToolGone),
        ToolErrorKind::InvalidArguments => Some(Kind::Arguments),
        _ => None,
    }
}

/// Returns the decisions of persons that rules of the agent demand. What a tool asks is not asked again.
fn decided(execution: &ToolExecution) -> Vec<DecisionKind> {
    let demanded = |record: &&DecisionRecord| {
        matches!(
            record.kind,
            DecisionKind::Approved
                | DecisionKind::ApprovedWithChanges
                | DecisionKind::Denied
                | DecisionKind::Supplied
        )
    };
    let demanded = execution.decisions().iter().filter(demanded);
    demanded.filter(|record| !is_said_instead(record)).map(|record| record.kind).collect()
}

fn decisive(execution: &ToolExecution) -> Vec<String> {
    execution.verdicts().iter().map(verdict).collect()
}

fn verdict(record: &VerdictRecord) -> String {
    format!("`{}`: {:?}", record.layer, record.kind)
}

fn is_same(one: &Wait, now: &Wait) -> bool {
    match (&one.reason, &now.reason) {
        (WaitReason::Approval(one), WaitReason::Approval(now))
        | (WaitReason::CallerResult(one), WaitReason::CallerResult(now)) => one == now,
        (WaitReason::Answer(one), WaitReason::Answer(now)) => one.text() == now.text(),
        (WaitReason::Until(_), WaitReason::Until(_)) => true,
        _ => false,
    }
}

fn kind_of(wait: &Wait) -> Kind {
    match wait.reason {
        WaitReason::Approval(_) => Kind::Approval,
        _ => Kind::Wait,
    }
}

pub(crate) fn describe_wait(wait: &Wait) -> String {
    let what = match wait.reason {
        WaitReason::Approval(_) => "an approval",
        WaitReason::Answer(_) => "an answer of the user",
        WaitReason::CallerResult(_) => "the result of its caller",
        _ => "a point in time",
    };
    format!("`{}` waits for {what}", wait.tool)
}

fn describe(fate: &Fate<'_>, call: &ToolCall) -> String {
    match fate {
        Fate::Finished(execution) if is_unrecorded(execution) => {
            format!("{}: it would be executed", line(&call.to_string()))
        }
        Fate::Finished(execution) => {
            let mut text = line(&execution.to_string());
            for decision in decided(execution) {
                text.push_str(&format!(" ({decision:?})"));
            }
            for verdict in decisive(execution) {
                text.push_str(&format!(" ({verdict})"));
            }
            text
        }
        Fate::Waits(wait) => format!("{}: {}", line(&call.to_string()), describe_wait(wait)),
        Fate::Open => format!("{}: it would be executed", line(&call.to_string())),
    }
}

/// Describes a message.
fn what(message: &Message) -> String {
    match message {
        Message::Assistant(reply) if reply.text.is_empty() && !reply.tool_calls.is_empty() => {
            let calls: Vec<_> = reply.tool_calls.iter().map(|call| format!("`{}`", call.name)).collect();
            format!("the model calls {}", calls.join(", "))
        }
        message => line(&message.text()),
    }
}

/// Returns a text on one line, shortened.
fn line(text: &str) -> String {
    const MAX: usize = 300;
    let line: String = text.chars().take(MAX).map(|c| if c == '\n' { ' ' } else { c }).collect();
    if text.chars().nth(MAX).is_some() { format!("{line}…") } else { line }
}
