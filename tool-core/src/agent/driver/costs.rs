//! What the requests of a run cost.

use super::inside::Inside;
use crate::agent::layers::Layers;
use crate::agent::spending::{Refusal, RequestMeter};
use crate::agent::{Agent, Event, RunDriver};
use crate::model::{ChatResponse, Cost};
use crate::run::RunErrorKind;

impl Layers {
    /// Returns what counts the requests to the model of an agent, if anything does.
    pub(super) fn meter(&self, agent: &Agent) -> Option<RequestMeter> {
        self.spending.meter(agent.0.prices.as_ref(), &agent.0.model_infos)
    }
}

impl RunDriver {
    /// Stores what the next request can cost, so that it is known if the process ends before the response is stored.
    pub(super) async fn store_cost_in_flight(&mut self) -> Result<(), RunErrorKind> {
        let is_stored = match &self.outer {
            Some(Inside { delegation, .. }) => delegation.is_some(),
            None => self.origin.0.run_store.get().is_some(),
        };
        let Some(meter) = self.layers.meter(&self.tools.agent).filter(|_| is_stored && self.run.is_asking())
        else {
            return Ok(());
        };
        let request = self.offer.request(&self.run, self.sent.as_ref());
        let model = self.tools.agent.model();
        let attempt = request.worst_attempt(model, &meter).await;
        let cost = meter.worst_cost(attempt, model.passes_requests_on());
        self.change_run().begin_request(cost);
        self.store_run().await
    }

    /// Returns what a request has cost, and emits it.
    pub(super) async fn charged(&mut self, meter: Option<&RequestMeter>) -> Option<Cost> {
        self.trace.record_charges();
        let cost = meter.and_then(RequestMeter::charged);
        if let Some(cost) = cost {
            self.emitter.emit(|| Event::Charged(cost)).await;
        }
        cost
    }

    /// Adds what a request has cost to its response. Returns no response if the run returns or stops instead.
    pub(super) fn charge(
        &mut self,
        meter: Option<&RequestMeter>,
        cost: Option<Cost>,
        mut response: ChatResponse,
    ) -> Result<Option<ChatResponse>, RunErrorKind> {
        let has_calls = !response.message.tool_calls.is_empty();
        let is_cut_off = has_calls && response.finish_reason.is_truncated();
        // With a higher limit, the model can repeat the calls.
        if let Some(refusal) = meter.filter(|_| is_cut_off).and_then(RequestMeter::take_limit) {
            self.change_run().add_cost(cost);
            self.trace.interrupt();
            return self.refuse(refusal);
        }
        if cost.is_some() {
            response.usage.get_or_insert_default().cost = cost;
        }
        Ok(Some(response))
    }

    /// Returns from the run, or stops it if it has a limit of its own inside of another.
    pub(super) fn refuse<T>(&mut self, refusal: Refusal) -> Result<Option<T>, RunErrorKind> {
        match refusal.into_reason() {
            Ok(kind) => Err(kind),
            Err(reason) => {
                self.change_run().stop_at_limit(reason);
                Ok(None)
            }
        }
    }

    /// Adds what layers have charged to the run.
    pub(super) fn record_layer_usage(&mut self) {
        let charges = self.layers.take_charges();
        if !charges.is_empty() {
            self.has_unsaved_changes = true;
            self.run.add_layer_usage(charges);
        }
    }

    /// Adds what a request of the caller cost whose response it has not recorded.
    pub(super) fn charge_unrecorded(&mut self) {
        if let Some(cost) = self.meter.take().and_then(|meter| meter.charged()) {
            self.change_run().add_cost(Some(cost));
        }
    }

    /// Sets what the response of a request cost that the caller sent itself.
    pub(super) fn charge_for(&mut self, response: &mut ChatResponse) {
        let Some(meter) = self.meter.take() else { return };
        let usage = response.usage.get_or_insert_default();
        if usage.cost.is_none() {
            let model = self.run.options().model.as_deref().or(self.tools.agent.model().model_name());
            usage.cost = meter.charged().or_else(|| meter.charge_usage(model.unwrap_or_default(), *usage));
            self.trace.record_cost(usage.cost);
        }
    }
}
