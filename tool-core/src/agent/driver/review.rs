//! Asks the layers about the question, the calls, their outcomes, and the answer of a run.
//!
//! A layer is asked only by the one driver and by tools of layered sets (`toolset/layered.rs`), because nothing may lead past it.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

use super::job::{Applied, Job};
use super::work::Work;
use crate::agent::interruption::{Interruption, run_until_interrupted};
use crate::agent::layers::{Layers, QuestionEffect, QuestionRuling, ReplyRuling};
use crate::agent::{Event, RunDriver};
use crate::layer::{LayerFailure, LayerPhase, Ruling, Seat};
use crate::model::{ChatResponse, ToolCall};
use crate::run::{REJECTED, RunErrorKind};
use crate::tool::{Judgement, ToolExecution, VerdictRecord};

/// The verdicts of layers that judge a question while the model works: those that let it pass, or one that does not.
pub(super) type BesideVerdicts = BoxFuture<'static, Result<Vec<QuestionRuling>, RunErrorKind>>;

/// What the layers decided about the outcome of a call.
pub(super) enum OutputRuling {
    /// They do not see it, because the call is executed again.
    Retried,
    /// It is final. The run ends, if a layer ends it.
    Seen(Option<VerdictRecord>),
    Failed(RunErrorKind),
    Interrupted(Interruption),
}

/// How an outcome is reported.
pub(super) enum Report {
    /// It is not, or later.
    Nothing,
    Event(Box<Event>),
    /// The call has finished.
    Finished {
        id: String,
        is_undone: bool,
    },
}

/// Returns `true` if the question may be asked as it is.
pub(super) fn passes(ruling: &QuestionRuling) -> bool {
    matches!(ruling.effect, QuestionEffect::Pass)
}

impl RunDriver {
    /// Lets the first layer judge the question that has not, unless the model is asked without one.
    pub(super) fn judge_question(&self) -> Option<Job> {
        if !self.run.is_asking() || !self.performer.layers.see(LayerPhase::Question) {
            return None;
        }
        // Earlier layers can have rewritten it.
        let open = self.performer.layers.open_questions(&self.run, false).into_iter().next()?;
        let (open, layers, view) =
            (open.updated(&self.run), Arc::clone(&self.performer.layers), self.run.view());
        let judging = async move { layers.question(&open, view).await };
        Some(self.interruptible(judging, |driver, ruling| {
            driver.rule_on_question(ruling?);
            Ok(Applied::Done(()))
        }))
    }

    /// Returns a job of which cancellation and the time limit of the run interrupt the work.
    fn interruptible<R: Send + 'static>(
        &self,
        work: impl Future<Output = R> + Send + 'static,
        apply: impl FnOnce(&mut Self, R) -> Result<Applied, RunErrorKind> + Send + 'static,
    ) -> Job {
        Job::with_next(self.run_until_interrupted(work.boxed()), |driver, result| match result {
            Ok(result) => apply(driver, result),
            Err(interruption) => {
                driver.interrupt(&interruption);
                Ok(Applied::Done(()))
            }
        })
    }

    /// Asks the layers that judge the question while the model works.
    pub(super) fn review_beside(&self) -> Option<BesideVerdicts> {
        let open = self.performer.layers.open_questions(&self.run, true);
        if open.is_empty() {
            return None;
        }
        let (layers, view) = (Arc::clone(&self.performer.layers), self.run.view());
        let verdicts = async move {
            let mut passed = Vec::new();
            for open in open {
                let ruling = layers.question(&open, view.clone()).await?;
                if !passes(&ruling) {
                    return Ok(vec![ruling]);
                }
                passed.push(ruling);
            }
            Ok(passed)
        };
        Some(verdicts.boxed())
    }

    pub(super) fn rule_on_question(&mut self, QuestionRuling { record, effect }: QuestionRuling) {
        match effect {
            QuestionEffect::Pass => self.change_run().record_verdict(record),
            QuestionEffect::Rewrite(number, question) => {
                self.change_run().rewrite_question(number, question, record);
            }
            QuestionEffect::Answer(text) => {
                self.show_questions();
                self.news.events.append(&mut self.news.turn_events);
                self.change_run().answer_by_layer(record, text.clone());
                if self.performer.emitter.streams_replies() && !text.is_empty() {
                    self.news.events.push(Event::Text(text));
                }
            }
            QuestionEffect::End => self.change_run().stop_by_layer(record),
        }
    }

    /// Asks the layers about the calls that they have not judged, or that have waited since, for a caller.
    pub(super) async fn review_calls(&mut self) -> Result<(), RunErrorKind> {
        let work = self.judge_calls_then(|_| Ok(Work::Asked))?;
        self.carry_out(work).await.map(drop)
    }

    /// Lets the layers judge the calls that they have not judged, or that have waited since, and goes on.
    pub(super) fn judge_calls_then(
        &mut self,
        next: impl FnOnce(&mut Self) -> Result<Work, RunErrorKind> + Send + 'static,
    ) -> Result<Work, RunErrorKind> {
        if self.performer.layers.see_calls() {
            let layers = Arc::clone(&self.performer.layers);
            self.refuse_left_out(&layers)?;
            return self.judge_calls_from(0, next);
        }
        if self.question.is_remote {
            for (call, _) in self.run.calls_to_judge() {
                self.run.set_call_judged(&call.id);
            }
        }
        next(self)
    }

    fn judge_calls_from(
        &mut self,
        from: usize,
        next: impl FnOnce(&mut Self) -> Result<Work, RunErrorKind> + Send + 'static,
    ) -> Result<Work, RunErrorKind> {
        match self.judge_call(from) {
            Some((at, job)) => Ok(Work::Job(job.then(move |driver, ()| driver.judge_calls_from(at, next)))),
            None => next(self),
        }
    }

    /// Lets the layers rewrite the first call from a position on that they have not judged, or judge it with its final arguments. Returns its
    /// position, too.
    fn judge_call(&self, from: usize) -> Option<(usize, Job)> {
        let (position, call, is_final) = self.run.next_to_judge(from).filter(|_| self.run.is_in_turn())?;
        let layers = Arc::clone(&self.performer.layers);
        // A layer can be added while a run waits.
        let rewriters = layers.rewriter_names(&call.id, &self.run);
        let job = match is_final && rewriters.is_empty() {
            false => self.rewrite_call(layers, call, rewriters),
            true => self.judge_final_call(layers, call),
        };
        Some((position, job))
    }

    /// Refuses calls of tools that are not offered. Nothing is awaited before, because another driver, to which the run goes meanwhile, can
    /// offer the tool. The layers judge the errors before the next step.
    fn refuse_left_out(&mut self, layers: &Layers) -> Result<(), RunErrorKind> {
        if !layers.see(LayerPhase::Offer) {
            return Ok(());
        }
        for (call, _) in self.run.calls_to_judge().into_iter().filter(|(_, is_final)| !is_final) {
            if self.run.is_in_turn() && self.offer.tools.get(&call.name).is_none() {
                let error = self.offer.tools.unknown_tool_error(&call);
                let mut refused = ToolExecution::new(call.clone(), Err(error));
                refused.history.judgement = layers.see(LayerPhase::Output).then_some(Judgement::Pending);
                self.rule_on_call(&call, Vec::new(), Ruling::Give(Box::new(refused)))?;
            }
        }
        Ok(())
    }

    fn rewrite_call(&self, layers: Arc<Layers>, mut call: ToolCall, rewriters: Vec<(usize, String)>) -> Job {
        let (view, tools) = (self.run.view(), self.offer.tools.clone());
        let rewriting = async move {
            let mut records = Vec::new();
            let can_rewrite = |seat: &Seat<'_>| {
                rewriters.iter().any(|(level, name)| (*level, &**name) == (seat.level, seat.layer.name()))
            };
            let check = |call: &ToolCall| tools.check_arguments(call);
            let refused = layers.review(&view);
            let refused = refused.rewrite(&mut call, false, &mut records, can_rewrite, check).await?;
            Ok::<_, LayerFailure>((call, rewriters, records, refused))
        };
        self.interruptible(rewriting, |driver, rewritten| {
            let (call, rewriters, records, refused) = rewritten?;
            driver.change_run().rewrite_call(&call, rewriters, records).map_err(RunErrorKind::Step)?;
            Ok(match refused {
                Some(error) => {
                    Applied::Next(driver.give_outcome(Vec::new(), ToolExecution::new(call, Err(error))))
                }
                None => Applied::Done(()),
            })
        })
    }

    fn judge_final_call(&self, layers: Arc<Layers>, call: ToolCall) -> Job {
        let (view, verdicts) = (self.run.view(), self.run.verdicts_on(&call.id).to_vec());
        let judging = async move {
            let ruled = layers.review(&view).judge(&call, &verdicts).await?;
            Ok::<_, LayerFailure>((call, ruled))
        };
        self.interruptible(judging, |driver, judged| match judged? {
            (_, (verdicts, Ruling::Give(given))) => Ok(Applied::Next(driver.give_outcome(verdicts, *given))),
            (call, (verdicts, ruling)) => {
                driver.rule_on_call(&call, verdicts, ruling)?;
                Ok(Applied::Done(()))
            }
        })
    }

    fn rule_on_call(
        &mut self,
        call: &ToolCall,
        verdicts: Vec<VerdictRecord>,
        ruling: Ruling,
    ) -> Result<(), RunErrorKind> {
        self.change_run().rule_on_call(call, verdicts, ruling).map_err(RunErrorKind::Step)?;
        self.run.set_call_judged(&call.id);
        Ok(())
    }

    /// Finishes a call without an execution, by an outcome that the layers see as well.
    fn give_outcome(&self, verdicts: Vec<VerdictRecord>, mut given: ToolExecution) -> Job {
        let (layers, view) = (Arc::clone(&self.performer.layers), self.run.view());
        let judging = async move {
            let end = layers.output_to_read(&mut given, view).await;
            (given, end)
        };
        self.interruptible(judging, |driver, (given, end)| {
            let end = end?;
            let call = given.call().clone();
            driver.rule_on_call(&call, verdicts, Ruling::Give(Box::new(given)))?;
            if let Some(end) = end {
                driver.change_run().stop_by_layer(end);
            }
            Ok(Applied::Done(()))
        })
    }

    /// Asks the layers about the outcome of a call after its last attempt. The run can change meanwhile.
    pub(super) fn judge_output(
        &self,
        mut execution: ToolExecution,
    ) -> BoxFuture<'static, (ToolExecution, OutputRuling)> {
        let end = self.run.end_from_inside(&execution.call().id);
        if end.is_some() || !self.performer.layers.see_output(&execution) {
            return ready((execution, OutputRuling::Seen(end))).boxed();
        }
        let (layers, view) = (Arc::clone(&self.performer.layers), self.run.view());
        // The limits hold for layers also after the end of the run, while calls are undone.
        let (cancellation, time_left) = (self.question.cancellation.clone(), self.time_left_to_judge());
        let judged = async move {
            let asked = layers.output_to_read(&mut execution, view).boxed();
            let ruling = match run_until_interrupted(asked, cancellation.as_ref(), time_left).await {
                Ok(Ok(end)) => OutputRuling::Seen(end),
                Ok(Err(kind)) => OutputRuling::Failed(kind),
                Err(interruption) => OutputRuling::Interrupted(interruption),
            };
            (execution, ruling)
        };
        judged.boxed()
    }

    /// Lets the layers judge the first result that they have not seen. The job returns `true` if it was interrupted.
    pub(super) fn judge_result(&self) -> Option<Job<bool>> {
        if !self.performer.layers.see(LayerPhase::Output) {
            return None;
        }
        let execution = self.run.unjudged_results().next()?.clone();
        let was_pending = execution.history.judgement == Some(Judgement::Pending);
        Some(Job::new(self.judge_output(execution), move |driver, (execution, ruling)| {
            let end = match ruling {
                OutputRuling::Failed(kind) => return Err(kind),
                OutputRuling::Interrupted(interruption) => {
                    driver.interrupt(&interruption);
                    return Ok(true);
                }
                OutputRuling::Seen(end) => end,
                OutputRuling::Retried => None,
            };
            driver.change_run().replace_result(execution.clone());
            if let Some(end) = end {
                driver.change_run().stop_by_layer(end);
            }
            if was_pending && driver.has_listeners() {
                driver.news.reported.add(&execution.call().id);
                driver.news.events.push(Event::CallFinished(execution));
            }
            Ok(false)
        }))
    }

    /// Lets the layers judge the text of a reply. The job returns nothing if that was interrupted.
    pub(super) fn judge_reply(&self, response: &ChatResponse) -> Option<Job<Option<ReplyRuling>>> {
        let message = &response.message;
        let text: Cow<'_, str> = match (&*message.text, message.refusal.as_deref()) {
            ("", None) => return None,
            (text, None) | ("", Some(text)) => text.into(),
            (text, Some(refusal)) => format!("{text}\n{refusal}").into(),
        };
        if !self.performer.layers.see(LayerPhase::Answer) {
            return None;
        }
        let (layers, view, text) = (Arc::clone(&self.performer.layers), self.run.view(), text.into_owned());
        let judging = async move { layers.reply(&text, view).await }.boxed();
        Some(Job::new(self.run_until_interrupted(judging), |driver, judged| match judged {
            Ok(judged) => Ok(Some(driver.record_judged(judged?))),
            Err(interruption) => {
                driver.interrupt(&interruption);
                Ok(None)
            }
        }))
    }

    fn record_judged(&mut self, (records, ruling): (Vec<VerdictRecord>, ReplyRuling)) -> ReplyRuling {
        records.into_iter().for_each(|verdict| self.change_run().record_verdict(verdict));
        ruling
    }

    /// Applies what the layers decided about the reply that was recorded last.
    pub(super) fn rule_on_reply(&mut self, ruling: ReplyRuling) {
        match ruling {
            ReplyRuling::Pass | ReplyRuling::Replace(_) => {}
            ReplyRuling::Retry(message) => {
                // Fails beside calls, or if the run has ended.
                let _ = self.run.reject_answer(&message);
            }
            ReplyRuling::End(verdict) => self.run.stop_by_layer(verdict),
        }
    }

    /// Lets the layers judge outputs that are returned directly as the answer.
    pub(super) fn judge_returned(&mut self) -> Option<Job> {
        let text = self.run.returned_text().filter(|_| self.run.has_unjudged_answer())?;
        if !self.performer.layers.see(LayerPhase::Answer) {
            self.run.set_answer_judged();
            return None;
        }
        let (layers, view) = (Arc::clone(&self.performer.layers), self.run.view());
        let judging = async move { layers.reply(&text, view).await }.boxed();
        let (cancellation, time_left) = (self.question.cancellation.as_ref(), self.time_left_to_judge());
        Some(Job::new(run_until_interrupted(judging, cancellation, time_left), |driver, judged| {
            let ruling = match judged {
                Ok(judged) => driver.record_judged(judged?),
                Err(interruption) => {
                    driver.change_run().revoke_answer();
                    driver.interrupt(&interruption);
                    return Ok(());
                }
            };
            driver.run.set_answer_judged();
            // Only what stands in place of the answer is shown.
            match ruling {
                ReplyRuling::Pass => {}
                ReplyRuling::Replace(text) => driver.change_run().write_answer(&text),
                ReplyRuling::Retry(message) => {
                    driver.change_run().retry_answer(&message).map_err(RunErrorKind::Step)?;
                }
                ReplyRuling::End(verdict) => driver.change_run().stop_by_layer(verdict),
            }
            driver.run.show_returned();
            Ok(())
        }))
    }
}

/// Writes what takes the place of a reply.
pub(super) fn replace_reply(response: &mut ChatResponse, ruling: &ReplyRuling) {
    let instead = match ruling {
        ReplyRuling::Pass => return,
        ReplyRuling::Replace(text) => text,
        ReplyRuling::Retry(..) if !response.message.tool_calls.is_empty() => "",
        ReplyRuling::Retry(..) | ReplyRuling::End(_) => REJECTED,
    };
    response.message.replace_text(instead);
    response.logprobs.clear();
}
