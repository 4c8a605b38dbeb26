//! What the requests of a run cost.

use std::sync::Arc;
use std::time::Duration;

use super::job::Job;
use crate::agent::performer::Performer;
use crate::agent::question_rules::Uncounted;
use crate::agent::spending::{LONGEST_WAIT, Refusal, RequestMeter, Spending};
use crate::agent::{Agent, RunDriver};
use crate::model::{ChatResponse, Cost, Meter};
use crate::run::{Run, RunErrorKind, StopReason};

impl RunDriver {
    /// Returns what counts the next request to the model, if anything does.
    pub(super) fn new_meter(&self) -> Option<Arc<RequestMeter>> {
        let Performer { layers, tools, .. } = &self.performer;
        new_meter(&layers.spending, &tools.agent, &self.run, self.longest_wait())
    }

    /// Returns how long a request waits for what is left of a budget.
    pub(super) fn longest_wait(&self) -> Duration {
        match self.question.uncounted {
            // Recovery comes again, and other runs need its place.
            Uncounted::Time => Duration::ZERO,
            _ if self.run.limits().max_time.is_some() => Duration::MAX,
            _ => LONGEST_WAIT,
        }
    }

    /// Records how many tokens a request has used for its text.
    pub(super) fn record_tokens_per_text(&mut self, meter: &RequestMeter) {
        let seen = meter.tokens_per_text();
        if meter.estimates() && seen != self.run.tokens_per_text() {
            self.change_run().set_tokens_per_text(seen);
        }
    }

    /// Returns what counts the next request, and a job that records what it can cost, so that this is known if the process ends before the
    /// response is stored.
    pub(super) fn price_request(&mut self) -> (Option<Arc<RequestMeter>>, Option<Job>) {
        self.charge_unrecorded();
        let meter = self.new_meter();
        let is_stored = match &self.performer.asked {
            Some(asked) => asked.call.is_some(),
            None => self.performer.origin.0.run_store.get().is_some(),
        };
        let Some(counts) = meter.clone().filter(|_| is_stored && self.run.is_asking()) else {
            return (meter, None);
        };
        let (of_run, agent) = (self.run.share_request(), self.performer.tools.agent.clone());
        let (offer, sent) = (Arc::clone(&self.offer), Arc::clone(&self.sent));
        let pricing = async move {
            let model = agent.model();
            let request = offer.request_of(&of_run, &sent);
            let attempt = request.worst_attempt(model, &*counts).await;
            counts.worst_cost(attempt, model.passes_requests_on())
        };
        let job = Job::new(pricing, |driver, cost| {
            driver.change_run().begin_request(cost);
            Ok(())
        });
        (meter, Some(job))
    }

    /// Returns what the request has cost whose response is not recorded.
    pub(super) fn charged(&self) -> Option<Cost> {
        self.request.meter.as_ref()?.charged()
    }

    /// Returns what has limited a response whose calls were cut off, so that with a higher limit, the model can repeat them.
    pub(super) fn limit_of_calls(&self, response: &ChatResponse) -> Option<Refusal> {
        let is_cut_off = !response.message.tool_calls.is_empty() && response.finish_reason.is_truncated();
        self.request.meter.as_ref().filter(|_| is_cut_off)?.take_refusals().shortened_by
    }

    /// Returns from the run, or stops it if it has a limit of its own inside of another.
    pub(super) fn refuse<T>(&mut self, refusal: Refusal) -> Result<Option<T>, RunErrorKind> {
        Err(match refusal {
            Refusal::MaxCost { ledger, needed } => {
                let spent = ledger.spent().unwrap_or(Cost::new(0, needed.currency()));
                let limit = ledger.limit().unwrap_or(spent);
                if !ledger.is_outermost() {
                    self.change_run().stop(StopReason::MaxCost(limit));
                    return Ok(None);
                }
                RunErrorKind::MaxCost { spent, limit, needed }
            }
            Refusal::Budget { key, ends, left } => RunErrorKind::Budget { key, left, ends },
            Refusal::BudgetInUse { key } => RunErrorKind::BudgetInUse { key },
            Refusal::UnknownAnswerLength { model } => RunErrorKind::UnknownAnswerLength { model },
            Refusal::Store(error) => RunErrorKind::Store(error),
        })
    }

    /// Adds what layers have charged to the run.
    pub(super) fn record_layer_usage(&mut self) {
        let charges = self.performer.layers.take_charges();
        if !charges.is_empty() {
            self.storage.has_unsaved_changes = true;
            self.run.add_layer_usage(charges);
        }
    }

    /// Adds what a request cost whose response is not recorded.
    pub(super) fn charge_unrecorded(&mut self) {
        if let Some(meter) = self.request.meter.take() {
            self.change_run().add_cost(meter.charged());
        }
    }

    /// Returns the name under which the model is asked.
    pub(super) fn model_name_in_use(&self) -> Option<&str> {
        self.run.options().model.as_deref().or(self.performer.tools.agent.model().model_name())
    }

    /// Sets what the response of a request cost that the caller sent itself.
    pub(super) fn charge_for(&mut self, response: &mut ChatResponse) {
        let Some(meter) = &self.request.meter else { return };
        let usage = response.usage.get_or_insert_default();
        if usage.cost.is_none() {
            let model = self.model_name_in_use().unwrap_or_default();
            usage.cost = meter.charged().or_else(|| meter.charge_usage(model, *usage));
            self.trace.record_cost(usage.cost);
        }
    }
}

/// Returns what counts the next request of a run to its agent's model, if anything does.
pub(super) fn new_meter(
    spending: &Spending,
    agent: &Agent,
    run: &Run,
    longest_wait: Duration,
) -> Option<Arc<RequestMeter>> {
    let (agent, seen) = (&agent.0, run.tokens_per_text());
    spending.meter(agent.prices.as_ref(), &agent.model_infos, seen, longest_wait).map(Arc::new)
}
