//! The review of a call and of its outcome, which is the same for agents, for sets without an agent, and for workers: check,
//! rewrite, check, judge, execute, judge the outcome. Each decision is reported to all layers.
//!
//! There is one review, because its order is a rule. The arguments of a call are checked once per text: an attempt states that its run has
//! checked them, and a layered set checks only what its layers wrote.

use std::fmt;

use super::context::LayerContext;
use super::layer_trait::{Layer, LayerError, LayerFuture, LayerPhase, await_verdict, refused_rewrite};
use super::verdict::{CallVerdict, OutputVerdict};
use crate::model::ToolCall;
use crate::tool::{ToolError, ToolExecution, VerdictKind, VerdictRecord};

/// A layer, with the place from which it sees what it judges.
pub(crate) struct Seat<'a> {
    pub(crate) layer: &'a dyn Layer,
    pub(crate) level: usize,
    /// The position of the layer's agent among the agents of its run.
    pub(crate) agent: usize,
    pub(crate) place: LayerContext<'a>,
}

/// The failure of a layer. What the model reads has only its name, because the error is for the application.
pub(crate) struct LayerFailure {
    pub(crate) layer: String,
    pub(crate) error: LayerError,
}

/// What the layers decided together about a call.
pub(crate) enum Ruling {
    /// It can be executed, once it has the approval that is demanded this many levels further out.
    Pass { approval: Option<usize>, is_left_to_caller: bool },
    /// It is not executed.
    Refuse(ToolError),
    /// It is not executed, and the layers see this outcome.
    Give(Box<ToolExecution>),
    /// The run ends.
    End(VerdictRecord),
}

/// The layers that see a call, the outermost first.
pub(crate) struct Review<'a> {
    seats: Vec<Seat<'a>>,
    /// What is decided has been decided before, and is reported to nobody.
    is_repeated: bool,
}

impl fmt::Display for LayerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the layer `{}` failed", self.layer)
    }
}

impl<'a> Seat<'a> {
    /// Awaits what the layer decides.
    pub(crate) async fn ask<T: ?Sized, V>(
        &self,
        subject: &T,
        ask: impl for<'s> FnOnce(&'s dyn Layer, &'s T, &'s LayerContext<'s>) -> LayerFuture<'s, V>,
    ) -> Result<V, LayerFailure> {
        let verdict = await_verdict(self.layer, |layer| ask(layer, subject, &self.place)).await;
        verdict.map_err(|error| LayerFailure { layer: self.layer.name().to_owned(), error })
    }

    pub(crate) fn record(&self, kind: VerdictKind) -> VerdictRecord {
        VerdictRecord::new(self.layer.name(), self.level, kind)
    }
}

impl<'a> Review<'a> {
    pub(crate) fn new(seats: impl Iterator<Item = Seat<'a>>) -> Self {
        Self { seats: seats.collect(), is_repeated: false }
    }

    /// Returns this review, of what is repeated or not.
    pub(crate) fn repeated(self, is_repeated: bool) -> Self {
        Self { is_repeated, ..self }
    }

    fn that_see(&self, phase: LayerPhase) -> impl Iterator<Item = &Seat<'a>> {
        self.seats.iter().filter(move |seat| seat.layer.sees(phase))
    }

    /// Reports a decision to all layers.
    pub(crate) async fn report(
        &self,
        verdict: &VerdictRecord,
        call: Option<&ToolCall>,
    ) -> Result<(), LayerFailure> {
        for seat in self.seats.iter().filter(|_| !self.is_repeated) {
            let decision = (verdict, call);
            seat.ask(&decision, |layer, (verdict, call), at| layer.decided(verdict, *call, at)).await?;
        }
        Ok(())
    }

    /// Rewrites the arguments of a call by the layers that can still do so, and adds what was decided to `records`, which are empty before.
    /// Returns the error of arguments that the tool refuses, if they were not checked before or if a layer wrote them.
    pub(crate) async fn rewrite(
        &self,
        call: &mut ToolCall,
        is_checked: bool,
        records: &mut Vec<VerdictRecord>,
        can_rewrite: impl Fn(&Seat<'a>) -> bool,
        check: impl Fn(&ToolCall) -> Result<(), ToolError>,
    ) -> Result<Option<ToolError>, LayerFailure> {
        if !is_checked && let Err(error) = check(call) {
            return Ok(Some(error));
        }
        for seat in self.that_see(LayerPhase::Rewrite).filter(|seat| can_rewrite(seat)) {
            let rewritten = seat.ask(&*call, |layer, it, at| layer.rewrite(it, at)).await?;
            if let Some(arguments) = rewritten.filter(|rewritten| *rewritten != call.arguments) {
                call.arguments = arguments;
                let record = seat.record(VerdictKind::Rewritten);
                self.report(&record, Some(call)).await?;
                records.push(record);
            }
        }
        Ok(records.last().and_then(|by| Some(refused_rewrite(&by.layer, &check(call).err()?))))
    }

    /// Judges a call. What is `known` was decided before, and is not reported again.
    pub(crate) async fn judge(
        &self,
        call: &ToolCall,
        known: &[VerdictRecord],
    ) -> Result<(Vec<VerdictRecord>, Ruling), LayerFailure> {
        let (records, ruling) = self.rule(call).await?;
        let end = if let Ruling::End(end) = &ruling { Some(end) } else { None };
        for record in records.iter().chain(end).filter(|record| !known.contains(record)) {
            self.report(record, Some(call)).await?;
        }
        Ok((records, ruling))
    }

    async fn rule(&self, call: &ToolCall) -> Result<(Vec<VerdictRecord>, Ruling), LayerFailure> {
        let mut records = Vec::new();
        let (mut approval, mut is_left_to_caller) = (None, false);
        for seat in self.that_see(LayerPhase::Judge) {
            let ruling = match seat.ask(call, |layer, it, at| layer.judge(it, at)).await? {
                CallVerdict::Pass => continue,
                CallVerdict::NeedsApproval => {
                    records.push(seat.record(VerdictKind::NeedsApproval));
                    approval = approval.max(Some(seat.level));
                    continue;
                }
                CallVerdict::LeaveToCaller => {
                    records.push(seat.record(VerdictKind::LeftToCaller));
                    is_left_to_caller = true;
                    continue;
                }
                CallVerdict::Deny(why) => {
                    let error = ToolError::denied(Some(&why));
                    records.push(seat.record(VerdictKind::Denied).because(why));
                    Ruling::Refuse(error)
                }
                CallVerdict::Replace(outcome) => {
                    records.push(seat.record(VerdictKind::Replaced));
                    Ruling::Give(Box::new(ToolExecution::new(call.clone(), outcome)))
                }
                CallVerdict::End(why) => Ruling::End(seat.record(VerdictKind::Ended).because(why)),
            };
            return Ok((records, ruling));
        }
        Ok((records, Ruling::Pass { approval, is_left_to_caller }))
    }

    /// Rewrites and judges a call outside of a run, where nobody can be waited for, and adds what was decided to `records`. Returns the
    /// outcome that a layer gave in place of the tool, if one did.
    ///
    /// # Errors
    ///
    /// Returns the error of a call that is not executed.
    pub(crate) async fn call_alone(
        &self,
        call: &mut ToolCall,
        is_checked: bool,
        records: &mut Vec<VerdictRecord>,
        check: impl Fn(&ToolCall) -> Result<(), ToolError>,
    ) -> Result<Option<Box<ToolExecution>>, ToolError> {
        let not_executed = |failure: LayerFailure| ToolError::not_executed(&failure.to_string());
        let refused = self.rewrite(call, is_checked, records, |_| true, check).await;
        if let Some(error) = refused.map_err(not_executed)? {
            return Ok(Some(Box::new(ToolExecution::new(call.clone(), Err(error)))));
        }
        let (judged, ruling) = self.judge(call, &[]).await.map_err(not_executed)?;
        records.extend(judged);
        match ruling {
            Ruling::Pass { approval: Some(_), .. } => {
                Err(ToolError::denied(Some("it needs approval, which nobody can give here")))
            }
            Ruling::Pass { is_left_to_caller: true, .. } => {
                Err(ToolError::not_executed("it is left to the caller"))
            }
            Ruling::Pass { .. } => Ok(None),
            Ruling::Refuse(error) => Err(error),
            Ruling::Give(given) => Ok(Some(given)),
            Ruling::End(end) => Err(ended(records, end)),
        }
    }

    /// Judges the outcome of a call by the layers that see it. Returns the end of the run, if a layer ends it. If a layer fails, the
    /// outcome stays as it is.
    pub(crate) async fn output(
        &self,
        execution: &mut ToolExecution,
        sees: impl Fn(&Seat<'a>) -> bool,
    ) -> Result<Option<VerdictRecord>, LayerFailure> {
        let mut judged = execution.clone();
        let mut end = None;
        for seat in self.that_see(LayerPhase::Output).filter(|seat| sees(seat)) {
            match seat.ask(&judged, |layer, it, at| layer.output(it, at)).await? {
                OutputVerdict::Pass => {}
                OutputVerdict::Replace(outcome) => {
                    let record = seat.record(VerdictKind::Replaced);
                    self.report(&record, Some(judged.call())).await?;
                    // To execute the call again would not satisfy a layer.
                    let outcome = outcome.map_err(ToolError::without_retry);
                    judged = judged.with_outcome(outcome).with_verdict(record);
                }
                OutputVerdict::End(why) => {
                    let record = seat.record(VerdictKind::Ended).because(why);
                    self.report(&record, Some(judged.call())).await?;
                    end = Some(record);
                    break;
                }
            }
        }
        *execution = judged;
        Ok(end)
    }

    /// Judges the outcome of a call outside of a run, after its last attempt.
    pub(crate) async fn output_alone(&self, mut execution: ToolExecution) -> ToolExecution {
        let error = match self.output(&mut execution, |_| true).await {
            Ok(None) => return execution,
            Ok(Some(end)) => ended(&mut execution.history.verdicts, end),
            Err(failure) => ToolError::failed(failure.to_string()),
        };
        execution.with_outcome(Err(error.without_retry()))
    }

    /// Returns `true` if a layer sees outputs.
    pub(crate) fn sees_output(&self) -> bool {
        self.that_see(LayerPhase::Output).next().is_some()
    }
}

/// Records the end of a run that is driven elsewhere. Returns the error of the call, which ends it there.
fn ended(records: &mut Vec<VerdictRecord>, end: VerdictRecord) -> ToolError {
    let error = ToolError::fatal(end.why.clone().unwrap_or_default());
    records.push(end);
    error
}
