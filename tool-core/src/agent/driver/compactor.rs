//! Compacts a copy of a run, and repeats on the run what that has changed.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::costs::new_meter;
use super::job::Job;
use super::offer::Offer;
use super::sent::Sent;
use crate::agent::compaction::Compaction;
use crate::agent::interruption::Interruption;
use crate::agent::layers::Layers;
use crate::agent::spending::RequestMeter;
use crate::agent::{Agent, Event, RunDriver};
use crate::model::ToolPolicy;
use crate::run::Run;
use crate::toolset::ToolSet;

/// Why a run is compacted.
pub(super) enum Reason {
    /// Before each request, if that pays or has to be.
    Request,
    /// The caller has ordered it.
    Order(Compaction),
    /// The provider has refused the request as too long.
    TooLong,
}

/// A change of the run.
type Change = Box<dyn Fn(&mut Run) + Send + Sync>;

/// Compacts a run apart from its driver. The copy shares the history of the run, to which a compaction adds nothing.
pub(super) struct Compactor {
    pub(super) run: Run,
    changes: Vec<Change>,
    pub(super) agent: Agent,
    pub(super) layers: Arc<Layers>,
    pub(super) offer: Arc<Offer>,
    pub(super) sent: Arc<Sent>,
    /// The tools of the agents that the run was of.
    earlier_tools: Vec<ToolSet>,
    /// The tokens that the next request sends again and that could be hidden.
    pub(super) hideable: u64,
    pub(super) has_no_window: bool,
    pub(super) cancellation: Option<CancellationToken>,
    time_left: Option<Duration>,
    since: Instant,
    /// How long a request waits for what is left of a budget.
    longest_wait: Duration,
    interruption: Option<Interruption>,
}

impl Compactor {
    /// Changes the run.
    pub(super) fn change(&mut self, change: impl Fn(&mut Run) + Send + Sync + 'static) {
        change(&mut self.run);
        self.changes.push(Box::new(change));
    }

    /// Returns `true` if the next step of the run is still a request to the model.
    pub(super) fn is_asking(&self) -> bool {
        self.interruption.is_none() && self.run.is_asking()
    }

    pub(super) fn time_left(&self) -> Option<Duration> {
        self.time_left.map(|left| left.saturating_sub(self.since.elapsed()))
    }

    pub(super) fn interrupt(&mut self, interruption: Interruption) {
        self.interruption.get_or_insert(interruption);
    }

    /// Returns the policy of a tool, also of one that is not offered now.
    pub(super) fn policy(&self, name: &str) -> Option<&ToolPolicy> {
        let mut sets = [&self.offer.tools].into_iter().chain(&self.earlier_tools);
        sets.find_map(|tools| tools.get(name)).map(|tool| tool.definition().policy())
    }

    /// Returns the name under which the model is asked.
    pub(super) fn model_name_in_use(&self) -> Option<&str> {
        self.run.options().model.as_deref().or(self.agent.model().model_name())
    }

    /// Returns what counts the next request to the model, if anything does.
    pub(super) fn new_meter(&self) -> Option<Arc<RequestMeter>> {
        new_meter(&self.layers.spending, &self.agent, &self.run, self.longest_wait)
    }
}

impl RunDriver {
    /// Returns a job that compacts the run. It returns the event to emit once that is saved, if the run is compacted.
    pub(super) fn compact(&self, reason: Reason) -> Job<Option<Event>> {
        let performer = &self.performer;
        let agents = [&performer.tools].into_iter().chain(&performer.earlier_tools);
        let mut compactor = Compactor {
            run: self.run.copy_apart(),
            changes: Vec::new(),
            agent: performer.tools.agent.clone(),
            layers: Arc::clone(&performer.layers),
            offer: Arc::clone(&self.offer),
            sent: Arc::clone(&self.sent),
            earlier_tools: agents.map(|tools| tools.agent.0.tools.clone()).collect(),
            hideable: self.compacting.hideable,
            has_no_window: self.compacting.has_no_window,
            cancellation: self.question.cancellation.clone(),
            time_left: self.run.time_left(),
            since: Instant::now(),
            longest_wait: self.longest_wait(),
            interruption: None,
        };
        let compacting = async move {
            // What was paid for counts also after a panic of the author's code.
            let compacted = AssertUnwindSafe(compactor.compact_for(reason)).catch_unwind().await;
            (compactor, compacted)
        };
        Job::new(compacting.boxed(), |driver, (compactor, compacted)| {
            driver.take_over(compactor);
            compacted.unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Repeats on the run what has changed in its copy.
    fn take_over(&mut self, compactor: Compactor) {
        let Compactor { run, changes, sent, hideable, has_no_window, interruption, .. } = compactor;
        // From now on, a change of the history copies nothing.
        drop(run);
        for change in changes {
            change(self.change_run());
        }
        (self.sent, self.compacting.hideable, self.compacting.has_no_window) =
            (sent, hideable, has_no_window);
        if let Some(interruption) = interruption {
            self.interrupt(&interruption);
        }
    }
}
