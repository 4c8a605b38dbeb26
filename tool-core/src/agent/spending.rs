//! What the model requests of a run are charged to: the limits of the run and of those that it is inside of, and budgets.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::lock::lock;
use crate::memory::{BudgetReservation, BudgetUnit, KeyedBudget};
use crate::model::{
    Attempt, Begun, Cost, EarlierAttempt, Meter, ModelError, ModelErrorKind, ModelInfo, Prices, Usage,
};
use crate::run::{Ledger, LedgerError};
use crate::tool::Timestamp;

/// The shortest answer for which a request is worth its price, in tokens. Some providers accept no lower limit.
const MIN_ANSWER: u64 = 16;

/// What is known about models, by their names.
pub(super) type ModelInfos = Mutex<HashMap<String, ModelInfo>>;

/// What the requests of a run are charged to.
#[derive(Clone)]
pub(super) struct Spending {
    /// The prices of the agent that was asked.
    prices: Option<Prices>,
    ledger: Arc<Ledger>,
    budgets: Vec<KeyedBudget>,
}

impl Spending {
    pub(super) fn new(prices: Option<Prices>, ledger: Ledger) -> Self {
        Self { prices, ledger: Arc::new(ledger), budgets: Vec::new() }
    }

    /// Adds budgets, unless what is spent is charged to them already.
    pub(super) fn charge_to(&mut self, budgets: &[KeyedBudget]) {
        for budget in budgets {
            if !self.budgets.iter().any(|known| known.is_same(budget)) {
                self.budgets.push(budget.clone());
            }
        }
    }

    /// Sets the limit of what the run costs.
    pub(super) fn limit(&mut self, limit: Option<Cost>) {
        self.ledger = Arc::new(self.ledger.with_limit(limit));
    }

    /// Adds what the run outside of this one is charged to.
    pub(super) fn inside(&mut self, outer: &Self) {
        self.prices = self.prices.take().or_else(|| outer.prices.clone());
        self.ledger = Arc::new(self.ledger.inside(&outer.ledger));
        self.charge_to(&outer.budgets);
    }

    /// Returns what counts a request of an agent with these prices, if anything does.
    pub(super) fn meter(&self, prices: Option<&Prices>, infos: &Arc<ModelInfos>) -> Option<RequestMeter> {
        let prices = prices.or(self.prices.as_ref()).cloned();
        let ledger = Arc::new(Ledger::default().inside(&self.ledger));
        (prices.is_some() || self.is_limited()).then(|| RequestMeter {
            spending: Self { prices, ledger, budgets: self.budgets.clone() },
            infos: Arc::clone(infos),
            attempts: Mutex::default(),
            refusals: Mutex::default(),
        })
    }

    /// Counts what a layer has spent.
    pub(super) fn charge(&self, cost: Option<Cost>) {
        self.ledger.settle(None, cost);
    }

    fn is_limited(&self) -> bool {
        !self.budgets.is_empty() || self.ledger.left().is_some()
    }

    fn is_limited_in_money(&self) -> bool {
        let mut units = self.budgets.iter().map(KeyedBudget::unit);
        self.ledger.left().is_some() || units.any(|unit| matches!(unit, BudgetUnit::Money(_)))
    }
}

/// Counts the attempts of one request, which has a ledger of its own.
pub(super) struct RequestMeter {
    spending: Spending,
    infos: Arc<ModelInfos>,
    /// All attempts so far, by their ids; `None` if they have ended.
    attempts: Mutex<Vec<Option<OpenAttempt>>>,
    refusals: Mutex<Refusals>,
}

/// Why the last attempt is less than was asked for.
#[derive(Default)]
pub(super) struct Refusals {
    /// Why the request was not sent or repeated.
    pub(super) refused_by: Option<Refusal>,
    /// What limits the answer, if that is less than the longest one.
    pub(super) shortened_by: Option<Refusal>,
}

/// An attempt that has not ended.
struct OpenAttempt {
    model: String,
    /// What its first request can cost.
    first: Usage,
    /// What its last request can cost, which contains the answers to those before.
    last: Usage,
    /// Of each request. All but the last one were certainly answered.
    reserved: Vec<Reserved>,
}

/// What a request has reserved.
#[derive(Default)]
struct Reserved {
    usage: Usage,
    /// The part of each budget.
    budgets: Vec<BudgetReservation>,
}

impl RequestMeter {
    /// Returns what all attempts so far have cost. One without an end counts as its worst case.
    pub(super) fn charged(&self) -> Option<Cost> {
        self.spending.ledger.spent()
    }

    /// Charges what a request of the caller has used. Returns what it cost.
    pub(super) fn charge_usage(&self, model: &str, usage: Usage) -> Option<Cost> {
        let cost = self.spending.prices.as_ref()?.cost(model, usage).ok();
        self.spending.charge(cost);
        cost
    }

    /// Returns why the last attempt is less than was asked for.
    pub(super) fn take_refusals(&self) -> Refusals {
        std::mem::take(&mut *lock(&self.refusals))
    }

    /// Returns what a request can cost at most. One that is passed on can be sent to any models, and any number of times, as far as
    /// the limits allow it.
    pub(super) fn worst_cost(&self, attempt: Attempt<'_>, is_passed_on: bool) -> Option<Cost> {
        let prices = self.spending.prices.as_ref()?;
        let worst =
            prices.worst_cost(attempt.model, attempt.input_tokens, attempt.output_tokens.unwrap_or(0));
        // More than what is left is never reserved.
        let micros = match (self.spending.ledger.left(), is_passed_on) {
            (Some(left), true) => left,
            (left, _) => worst.ok()?.micros().min(left.unwrap_or(u64::MAX)),
        };
        Some(Cost::new(micros, prices.currency()))
    }

    fn worst(&self, model: &str, input: u64, output: u64) -> Result<Usage, ModelError> {
        let prices = self.spending.prices.as_ref();
        let cost = prices.map(|prices| prices.worst_cost(model, input, output)).transpose();
        let cost = cost.map_err(ModelError::invalid_request)?;
        Ok(Usage { cost, ..Usage::new(input, output) })
    }

    /// Reserves as much as possible of an amount, but at least another one.
    async fn reserve(&self, at_least: Usage, at_most: Usage) -> Result<Reserved, ModelError> {
        let mut reserved = Reserved::default();
        match self.reserve_in(at_least, at_most, &mut reserved.budgets).await {
            Ok(usage) => Ok(Reserved { usage, ..reserved }),
            Err(error) => {
                self.settle(&reserved, Usage::default()).await;
                Err(error)
            }
        }
    }

    async fn reserve_in(
        &self,
        at_least: Usage,
        mut at_most: Usage,
        reserved: &mut Vec<BudgetReservation>,
    ) -> Result<Usage, ModelError> {
        for budget in &self.spending.budgets {
            let unit = budget.unit();
            let (least, most) = (amount(at_least, unit)?, amount(at_most, unit)?);
            let period = budget.period_at(Timestamp::now());
            let refusal = || Refusal::Budget { key: budget.key().to_owned(), ends: period.ends };
            let granted = budget.store().reserve(&period, least, most).await;
            let granted = granted.map_err(|error| self.refuse(Refusal::Store(error)))?;
            let granted = granted.ok_or_else(|| self.refuse(refusal()))?;
            if granted.amount < most {
                lock(&self.refusals).shortened_by = Some(refusal());
                match unit {
                    BudgetUnit::Tokens => at_most.total_tokens = granted.amount,
                    BudgetUnit::Money(currency) => at_most.cost = Some(Cost::new(granted.amount, currency)),
                }
            }
            reserved.push(granted);
        }
        // Nothing is awaited from here on, so that a reservation is never lost.
        let ledger = &self.spending.ledger;
        let (Some(needed), Some(most)) = (at_least.cost, at_most.cost) else { return Ok(at_most) };
        let granted = ledger.reserve(needed, most).map_err(|error| match error {
            LedgerError::TooLittleLeft(ledger) => self.refuse(Refusal::MaxCost { ledger, needed }),
            LedgerError::OtherCurrency(other) => other_currency(other),
        });
        let (cost, limited_by) = granted?;
        at_most.cost = Some(cost);
        if let Some(ledger) = limited_by {
            lock(&self.refusals).shortened_by = Some(Refusal::MaxCost { ledger, needed });
        }
        Ok(at_most)
    }

    /// Stores why a request is not sent, and returns its error.
    fn refuse(&self, refusal: Refusal) -> ModelError {
        let error = ModelError::new(refusal.to_string()).with_kind(ModelErrorKind::Unaffordable);
        lock(&self.refusals).refused_by = Some(refusal);
        error.unbilled()
    }

    /// Replaces what a request has reserved by what was spent.
    async fn settle(&self, reserved: &Reserved, spent: Usage) {
        self.spending.ledger.settle(reserved.usage.cost, spent.cost);
        for (budget, reservation) in self.spending.budgets.iter().zip(&reserved.budgets) {
            let spent = amount(spent, budget.unit()).unwrap_or(0);
            // What cannot be settled counts as spent.
            let _ = budget.store().settle(reservation, spent, Timestamp::now()).await;
        }
    }

    /// Returns an attempt that has not ended. Unless it is put back, what it has reserved stays reserved.
    fn take_attempt(&self, id: usize) -> Option<OpenAttempt> {
        lock(&self.attempts).get_mut(id)?.take()
    }
}

impl Meter for RequestMeter {
    fn known(&self, model: &str) -> ModelInfo {
        let info = lock(&self.infos).get(model).cloned().unwrap_or_default();
        self.spending.prices.as_ref().map_or(info.clone(), |prices| prices.model_info(model, info))
    }

    fn is_limited(&self) -> bool {
        self.spending.is_limited()
    }

    fn remember(&self, model: &str, info: ModelInfo) {
        lock(&self.infos).insert(model.to_owned(), info);
    }

    fn begin<'a>(&'a self, attempt: Attempt<'a>) -> BoxFuture<'a, Result<Begun, ModelError>> {
        let Attempt { model, input_tokens, output_tokens } = attempt;
        let worst = move |output| self.worst(model, input_tokens, output);
        async move {
            *lock(&self.refusals) = Refusals::default();
            let longest = output_tokens.unwrap_or(0);
            let (least, most) = (worst(longest.min(MIN_ANSWER))?, worst(longest)?);
            if most.cost.is_none() && self.spending.is_limited_in_money() {
                return Err(no_prices());
            }
            if self.is_limited() && output_tokens.is_none() {
                return Err(ModelError::invalid_request(format!(
                    "the longest answer of the model `{model}` is not known; set `max_output_tokens` in its options or in the \
                     table of prices"
                )));
            }
            let reserved = self.reserve(least, most).await?;
            let first = reserved.usage;
            let is_paid = |worst: Usage| {
                worst.total_tokens <= first.total_tokens
                    && worst.cost.map(Cost::micros) <= first.cost.map(Cost::micros)
            };
            // The answer must not be longer than what is reserved, whatever the model allows.
            let limit = self.is_limited().then(|| highest(longest, |output| worst(output).is_ok_and(is_paid)));
            let max_output_tokens = limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
            let (model, reserved) = (model.to_owned(), vec![reserved]);
            let mut attempts = lock(&self.attempts);
            attempts.push(Some(OpenAttempt { model, first, last: first, reserved }));
            Ok(Begun { id: attempts.len() - 1, max_output_tokens })
        }
        .boxed()
    }

    fn repeat(&self, id: usize, earlier: EarlierAttempt) -> BoxFuture<'_, Result<(), ModelError>> {
        async move {
            if earlier == EarlierAttempt::Unbilled {
                return Ok(());
            }
            let Some(mut attempt) = self.take_attempt(id) else { return Ok(()) };
            if earlier != EarlierAttempt::Continued {
                // What is reserved stays reserved.
                attempt.reserved.clear();
            }
            if earlier != EarlierAttempt::Unknown {
                attempt.last += attempt.first;
            }
            attempt.reserved.push(self.reserve(attempt.last, attempt.last).await?);
            lock(&self.attempts)[id] = Some(attempt);
            Ok(())
        }
        .boxed()
    }

    fn end(&self, id: usize, usage: Result<Option<Usage>, EarlierAttempt>) -> BoxFuture<'_, ()> {
        async move {
            let Some(mut attempt) = self.take_attempt(id) else { return };
            let prices = self.spending.prices.as_ref();
            let mut spent = match usage {
                Ok(Some(usage)) => {
                    let cost = prices.map(|prices| prices.cost(&attempt.model, usage)).transpose();
                    let Ok(cost) = cost else { return };
                    Usage { cost, ..usage }
                }
                Err(EarlierAttempt::Unbilled) => {
                    attempt.reserved.drain(..attempt.reserved.len() - 1);
                    Usage::default()
                }
                _ => return,
            };
            for reserved in &attempt.reserved {
                // The first one is settled by what all of them have spent.
                self.settle(reserved, std::mem::take(&mut spent)).await;
            }
        }
        .boxed()
    }
}

fn amount(usage: Usage, unit: BudgetUnit) -> Result<u64, ModelError> {
    match (unit, usage.cost) {
        (BudgetUnit::Tokens, _) => Ok(usage.total_tokens),
        (BudgetUnit::Money(currency), Some(cost)) if cost.currency() == currency => Ok(cost.micros()),
        (BudgetUnit::Money(_), Some(cost)) => Err(other_currency(cost)),
        (BudgetUnit::Money(_), None) => Err(no_prices()),
    }
}

/// Returns the highest number up to this one that is accepted, if all lower ones are.
fn highest(up_to: u64, is_accepted: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, up_to);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if is_accepted(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

/// Why a request was not sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the request can cost {needed}, and less is left")]
    MaxCost { ledger: Arc<Ledger>, needed: Cost },
    #[error("the budget of `{}` is used up", key.escape_debug())]
    Budget { key: String, ends: Timestamp },
    #[error("the store of the budget failed: {0}")]
    Store(Box<dyn Error + Send + Sync>),
}

fn no_prices() -> ModelError {
    ModelError::invalid_request("a cost limit needs prices; set `AgentBuilder::prices`")
}

fn other_currency(other: Cost) -> ModelError {
    ModelError::invalid_request(format!(
        "the prices and the limits of a run have one currency, but one of them is in {}",
        other.currency()
    ))
}
