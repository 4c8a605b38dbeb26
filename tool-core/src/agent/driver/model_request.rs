//! Sends requests to the model, through the layers.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};

use tokio::time::Instant;

use super::compactor::Reason;
use super::hold::{Hold, delta_event};
use super::job::Job;
use super::review::{BesideVerdicts, passes};
use super::work::{StepPhase, Work};
use crate::agent::emitter::EventEmitter;
use crate::agent::interruption::{Interruption, run_until_interrupted};
use crate::agent::layers::QuestionRuling;
use crate::agent::replay::StopsHere;
use crate::agent::spending::{Refusal, RequestMeter};
use crate::agent::{Event, RunDriver};
use crate::layer::{Layer, LayerContext, LayerFailure, LayerPanicked, LayerPhase, Route, RunEnded};
use crate::model::{ChatModel, ChatRequest, ChatResponse, Delta, ModelError, ModelErrorKind};
use crate::run::{RunErrorKind, StepError};
use crate::tool::VerdictRecord;

/// How a request passes the layers.
pub(super) struct Passage<'a> {
    pub(super) layers: &'a [(&'a dyn Layer, LayerContext<'a>)],
    pub(super) beside: Option<BesideVerdicts>,
    pub(super) hold: Hold,
}

/// What the driver gets for a request, with the verdicts of layers that judged the question meanwhile.
pub(super) struct ModelReply {
    verdicts: Vec<QuestionRuling>,
    /// Nothing, if a verdict has ended the request.
    response: Option<Result<ChatResponse, ModelError>>,
}

impl ModelReply {
    /// Returns the response or its error, unless a verdict has ended the request.
    pub(super) fn into_response(self) -> Option<Result<ChatResponse, ModelError>> {
        self.response
    }
}

/// What has become of a request that was not interrupted.
enum Replied {
    Response(Box<ChatResponse>),
    Failed(ModelError),
    /// A layer has ended the run, which is reported to the layers unless that was interrupted.
    Ended(VerdictRecord, Result<Result<(), LayerFailure>, Interruption>),
    /// A verdict has ended the request.
    Blocked,
}

impl RunDriver {
    /// Sends the request of this step. The job gives no response if the request was interrupted or a layer has ended it.
    pub(super) fn ask_model(
        &mut self,
        meter: Option<Arc<RequestMeter>>,
    ) -> Result<Job<Option<(ChatResponse, Hold)>>, RunErrorKind> {
        if !self.run.is_asking() {
            return Err(RunErrorKind::Step(StepError("no model response is expected in this state")));
        }
        let (layers, agent) = (Arc::clone(&self.performer.layers), self.performer.tools.agent.clone());
        let hold = Hold { text: layers.see(LayerPhase::Answer), calls: layers.see(LayerPhase::Rewrite) };
        let (beside, view, emitter) = (self.review_beside(), self.run.view(), self.performer.emitter.clone());
        let (cancellation, clock) = (self.question.cancellation.clone(), Instant::now());
        let time_left = self.run.time_left();
        let left = move || time_left.map(|left| left.saturating_sub(clock.elapsed()));
        self.request.meter.clone_from(&meter);
        self.trace.set_meter(meter.clone());
        let of_run = self.run.share_request();
        let (offer, sent) = (Arc::clone(&self.offer), Arc::clone(&self.sent));
        let request = offer.request_of(&of_run, &sent);
        agent.watch_request(&view.id, view.turn, &request);
        let span = self.trace.enter_chat(agent.model(), &request, emitter.streams_replies());
        let offered = request.tools().clone();
        drop(request);
        let used = meter.clone();
        let recorded = agent.0.stand_in.as_ref().map(|stand_in| stand_in.model_of(&self.run, &agent.0.model));
        let asking = async move {
            let model = recorded.as_ref().map_or(agent.model(), |recorded| recorded as _);
            let request = offer.request_of(&of_run, &sent);
            let request = request.metered(meter.as_deref().map(|meter| meter as _));
            let passage = Passage { layers: &layers.of_model(&view), beside, hold };
            let reply = call_model(model, &request, &emitter, passage);
            // Boxed, because a future that is passed on takes its place twice.
            let reply = span.instrument(reply).boxed();
            let reply = run_until_interrupted(reply, cancellation.as_ref(), left()).await;
            if let Some(cost) = meter.and_then(|meter| meter.charged()) {
                emitter.emit(|| Event::Charged(cost)).await;
            }
            match reply {
                Ok(Ok(ModelReply { verdicts, response: Some(Err(error)) })) => {
                    match error.downcast::<RunEnded>() {
                        Ok(ended) => {
                            let end = layers.end_of_reply(ended);
                            let reported = async { layers.review(&view).report(&end, None).await }.boxed();
                            let reported =
                                run_until_interrupted(reported, cancellation.as_ref(), left()).await;
                            Ok(Ok((verdicts, Replied::Ended(end, reported))))
                        }
                        Err(error) => Ok(Ok((verdicts, Replied::Failed(error)))),
                    }
                }
                Ok(Ok(ModelReply { verdicts, response: Some(Ok(response)) })) => {
                    Ok(Ok((verdicts, Replied::Response(response.into()))))
                }
                Ok(Ok(ModelReply { verdicts, response: None })) => Ok(Ok((verdicts, Replied::Blocked))),
                Ok(Err(kind)) => Ok(Err(kind)),
                Err(interruption) => Err(interruption),
            }
        };
        let elapsed = self.run.elapsed();
        Ok(Job::new(asking.boxed(), move |driver, replied| {
            let response = driver.accept_reply(replied, used.as_deref(), elapsed)?;
            if response.is_some() {
                driver.run.note_offered(&offered);
            }
            Ok(response.map(|response| (response, hold)))
        }))
    }

    /// Prices the request of this step, which is sent once that is saved.
    pub(super) fn price(&mut self, is_compacted: bool) -> Result<Work, RunErrorKind> {
        let (meter, pricing) = self.price_request();
        let priced = Work::Save(StepPhase::Priced { meter, is_compacted });
        Ok(match pricing {
            Some(job) => Work::Job(job.then(|_, ()| Ok(priced))),
            None => priced,
        })
    }

    /// Sends the request of this step. A run whose request is too long for the model is compacted, unless it was for this request.
    pub(super) fn ask(
        &mut self,
        meter: Option<Arc<RequestMeter>>,
        is_compacted: bool,
    ) -> Result<Work, RunErrorKind> {
        let asking = self.ask_model(meter)?;
        Ok(Work::Job(asking.then_result(move |driver, asked| {
            driver.emit_then(move |driver| match asked {
                Ok(Some(reply)) => Ok(Work::Replied(reply.into())),
                Ok(None) => Ok(Work::Asked),
                Err(RunErrorKind::Model(error))
                    if error.kind() == ModelErrorKind::ContextLength && !is_compacted =>
                {
                    driver.compact_too_long(error)
                }
                Err(kind) => Err(kind),
            })
        })))
    }

    /// Compacts a run whose request the provider has refused as too long, and prices the next one.
    fn compact_too_long(&mut self, error: ModelError) -> Result<Work, RunErrorKind> {
        let agent = &self.performer.tools.agent.0;
        if agent.compaction.is_none() || !agent.sends_earlier_turns {
            return Err(RunErrorKind::Model(error));
        }
        Ok(Work::Job(self.compact(Reason::TooLong).then(|driver, compacted| match compacted {
            Some(event) => {
                driver.news.events.push(event);
                match driver.resolve_tools()? {
                    Some(job) => Ok(Work::Job(job.then(|driver, ()| driver.price(true)))),
                    None => driver.price(true),
                }
            }
            None if driver.run.is_asking() => Err(RunErrorKind::Model(error)),
            // It was stopped meanwhile.
            None => Ok(Work::Asked),
        })))
    }

    /// Sends the request of this step for a caller that drives step by step.
    pub(super) async fn ask_model_for_caller(&mut self) -> Result<ChatResponse, RunErrorKind> {
        self.prepare().await?;
        let mut work = self.price(false)?;
        let reply = loop {
            work = match work {
                Work::Job(job) => self.perform(job).await?,
                Work::Save(phase) => {
                    self.store_run().await?;
                    self.count_time();
                    if self.question.is_remote
                        && matches!(phase, StepPhase::Priced { is_compacted: true, .. })
                    {
                        // The caller records the compaction first.
                        self.emit_queued().await?;
                        break None;
                    }
                    self.work(phase)?
                }
                Work::Replied(reply) => break Some(reply),
                _ => break None,
            };
        };
        let Some(reply) = reply else {
            return Err(RunErrorKind::Step(StepError("the request was interrupted; take the next step")));
        };
        let (response, hold) = *reply;
        self.request.reply = Some(hold);
        Ok(response)
    }

    /// Records what a request has used, and the verdicts that came beside its reply. Returns the response, if they let it pass.
    fn accept_reply(
        &mut self,
        replied: Result<Result<(Vec<QuestionRuling>, Replied), RunErrorKind>, Interruption>,
        meter: Option<&RequestMeter>,
        elapsed_before: Duration,
    ) -> Result<Option<ChatResponse>, RunErrorKind> {
        self.trace.record_charges();
        if let Some(meter) = meter {
            self.record_tokens_per_text(meter);
            if let Some(cost) = meter.charged() {
                self.run.note_charged(cost);
            }
        }
        if !matches!(&replied, Ok(Ok((_, Replied::Response(_))))) {
            self.charge_unrecorded();
        }
        let (verdicts, replied) = match replied {
            Ok(replied) => replied?,
            Err(interruption) => {
                let refusal = meter.and_then(|meter| meter.take_refusals().refused_by);
                if let (Interruption::TimeLimit, Some(refusal @ Refusal::BudgetInUse { .. })) =
                    (&interruption, refusal)
                {
                    // The run can be resumed with the time that it had.
                    self.trace.interrupt();
                    self.run.set_elapsed(elapsed_before);
                    return self.refuse(refusal);
                }
                self.interrupt(&interruption);
                return Ok(None);
            }
        };
        let is_blocked = !verdicts.iter().all(passes);
        verdicts.into_iter().for_each(|ruling| self.rule_on_question(ruling));
        match replied {
            Replied::Response(mut response) => {
                if let Some(cost) = self.charged() {
                    response.usage.get_or_insert_default().cost = Some(cost);
                }
                let limit = self.limit_of_calls(&response);
                if !is_blocked && limit.is_none() {
                    return Ok(Some(*response));
                }
                self.request.meter = None;
                self.change_run().add_usage(response.usage.unwrap_or_default());
                self.trace.interrupt();
                limit.filter(|_| !is_blocked).map_or(Ok(None), |limit| self.refuse(limit))
            }
            Replied::Ended(end, reported) => {
                self.trace.interrupt();
                match reported {
                    Ok(reported) => {
                        reported?;
                        self.change_run().stop_by_layer(end);
                    }
                    Err(interruption) => self.interrupt(&interruption),
                }
                Ok(None)
            }
            Replied::Failed(error) if error.downcast_ref::<LayerPanicked>().is_some() => {
                self.trace.interrupt();
                let LayerPanicked { layer, panic } = error.downcast().map_err(RunErrorKind::Model)?;
                Err(RunErrorKind::Layer { layer, error: panic.into() })
            }
            Replied::Failed(error) if error.downcast_ref::<StopsHere>().is_some() => {
                let StopsHere(reason) = error.downcast().map_err(RunErrorKind::Model)?;
                self.change_run().stop(reason);
                Ok(None)
            }
            Replied::Failed(error) => {
                self.trace.record_model_error(&error);
                match meter.and_then(|meter| meter.take_refusals().refused_by) {
                    Some(refusal) => self.refuse(refusal),
                    None => Err(RunErrorKind::Model(error)),
                }
            }
            Replied::Blocked => {
                self.trace.interrupt();
                Ok(None)
            }
        }
    }
}

/// Sends the request to the model; the reply is streamed if the run is.
pub(super) async fn call_model(
    model: &dyn ChatModel,
    request: &ChatRequest<'_>,
    emitter: &EventEmitter,
    passage: Passage<'_>,
) -> Result<ModelReply, RunErrorKind> {
    let is_streamed = emitter.streams_replies();
    let Passage { layers, mut beside, hold } = passage;
    let route = Route { layers, model, meter: request.meter(), is_streamed };
    let mut verdicts = Vec::new();
    let mut deltas = match layers.is_empty() {
        true => request.reply_of(model, is_streamed),
        false => route.send(request.clone()),
    };
    // Nothing leaves before the verdicts.
    let mut held = Vec::new();
    loop {
        let delta = match &mut beside {
            None => deltas.next().await,
            Some(judging) => match select(judging, pin!(deltas.next())).await {
                Either::Left((ruled, _)) => {
                    verdicts = ruled?;
                    if !verdicts.iter().all(passes) {
                        return Ok(ModelReply { verdicts, response: None });
                    }
                    beside = None;
                    emit(emitter, hold, std::mem::take(&mut held)).await;
                    continue;
                }
                Either::Right((delta, _)) => delta,
            },
        };
        let response = match delta {
            Some(Ok(Delta::Done(response))) => response,
            Some(Ok(delta)) => {
                held.push(delta);
                if beside.is_none() {
                    emit(emitter, hold, std::mem::take(&mut held)).await;
                }
                continue;
            }
            Some(Err(error)) => return Ok(ModelReply { verdicts, response: Some(Err(error)) }),
            None => return Ok(ModelReply { verdicts, response: Some(Err(ModelError::cut_off())) }),
        };
        if let Some(judging) = beside {
            verdicts = judging.await?;
            if verdicts.iter().all(passes) {
                emit(emitter, hold, held).await;
            }
        }
        return Ok(ModelReply { verdicts, response: Some(Ok(response)) });
    }
}

/// Emits the deltas that are not held back.
async fn emit(emitter: &EventEmitter, hold: Hold, deltas: Vec<Delta>) {
    for event in deltas.into_iter().filter(|delta| !hold.holds(delta)).filter_map(delta_event) {
        emitter.emit(|| event).await;
    }
}
