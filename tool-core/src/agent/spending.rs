//! What the model requests of a run are charged to: the limits of the run and of those that it is inside of, and budgets.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
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
            state: Mutex::default(),
        })
    }

    /// Counts what a layer has spent.
    pub(super) fn charge(&self, cost: Option<Cost>) {
        self.ledger.settle(None, cost);
    }

    fn is_limited(&self) -> bool {
        !self.budgets.is_empty() || self.ledger.left().is_some()
    }
}

/// Counts the attempts of one request, which has a ledger of its own.
pub(super) struct RequestMeter {
    spending: Spending,
    infos: Arc<ModelInfos>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// All attempts so far, by their ids; `None` if they have ended.
    attempts: Vec<Option<OpenAttempt>>,
    /// Why the request was not repeated.
    refusal: Option<Refusal>,
    /// What limits the answer, if that is less than the longest one.
    shortened_by: Option<Refusal>,
}

/// An attempt that has not ended. It keeps what it has reserved.
struct OpenAttempt {
    model: String,
    /// What its first request can cost.
    worst: Usage,
    /// What its last request can cost, which contains the answers to those before.
    worst_of_last: Usage,
    reserved: Vec<Reserved>,
    /// The number of reservations for requests that were certainly answered.
    answered: usize,
}

/// What one request of an attempt has reserved.
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

    /// Returns why the request was not sent or repeated.
    pub(super) fn take_refusal(&self) -> Option<Refusal> {
        lock(&self.state).refusal.take()
    }

    /// Returns what limited the answer, if that is less than the longest one.
    pub(super) fn take_limit(&self) -> Option<Refusal> {
        lock(&self.state).shortened_by.take()
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
        let cost = cost.map_err(|error| invalid(error.to_string()))?;
        Ok(Usage { cost, ..Usage::new(input, output) })
    }

    /// Reserves as much as possible of an amount, but at least another one.
    async fn reserve(&self, at_least: Usage, at_most: Usage) -> Result<Reserved, ModelError> {
        let mut reserved = Reserved { usage: at_most, budgets: Vec::new() };
        match self.reserve_in(at_least, &mut reserved).await {
            Ok(()) => Ok(reserved),
            Err(error) => {
                self.settle_budgets(&reserved, Usage::default()).await;
                Err(error)
            }
        }
    }

    async fn reserve_in(&self, at_least: Usage, reserved: &mut Reserved) -> Result<(), ModelError> {
        for budget in &self.spending.budgets {
            let unit = budget.unit();
            let (least, most) = (amount(at_least, unit)?, amount(reserved.usage, unit)?);
            let period = budget.period_at(Timestamp::now());
            let refusal = || Refusal::Budget { key: budget.key().to_owned(), ends: period.ends };
            let granted = budget.store().reserve(&period, least, most).await;
            let granted = granted.map_err(|error| self.refuse(Refusal::Store(error)))?;
            let granted = granted.ok_or_else(|| self.refuse(refusal()))?;
            if granted.amount < most {
                lock(&self.state).shortened_by = Some(refusal());
                match unit {
                    BudgetUnit::Tokens => reserved.usage.total_tokens = granted.amount,
                    BudgetUnit::Money(currency) => {
                        reserved.usage.cost = Some(Cost::new(granted.amount, currency))
                    }
                }
            }
            reserved.budgets.push(granted);
        }
        // Nothing is awaited from here on, so that a reservation is never lost.
        let ledger = &self.spending.ledger;
        let (Some(needed), Some(most)) = (at_least.cost, reserved.usage.cost) else {
            return ledger.left().map_or(Ok(()), |_| Err(no_prices()));
        };
        let granted = ledger.reserve(needed, most).map_err(|error| match error {
            LedgerError::TooLittleLeft(ledger) => self.refuse(Refusal::MaxCost { ledger, needed }),
            LedgerError::OtherCurrency(other) => other_currency(other),
        });
        let (cost, limited_by) = granted?;
        reserved.usage.cost = Some(cost);
        if let Some(ledger) = limited_by {
            lock(&self.state).shortened_by = Some(Refusal::MaxCost { ledger, needed });
        }
        Ok(())
    }

    /// Stores why a request is not sent, and returns its error.
    fn refuse(&self, refusal: Refusal) -> ModelError {
        let error = ModelError::new(refusal.to_string()).with_kind(ModelErrorKind::Unaffordable);
        lock(&self.state).refusal = Some(refusal);
        error.unbilled()
    }

    async fn settle_budgets(&self, reserved: &Reserved, spent: Usage) {
        for (budget, reservation) in self.spending.budgets.iter().zip(&reserved.budgets) {
            let spent = amount(spent, budget.unit()).unwrap_or(0);
            // What cannot be settled counts as spent.
            let _ = budget.store().settle(reservation, spent, Timestamp::now()).await;
        }
    }

    /// Does something with an attempt that has not ended.
    fn with_open<T>(&self, id: usize, f: impl FnOnce(&mut OpenAttempt) -> T) -> Option<T> {
        lock(&self.state).attempts.get_mut(id)?.as_mut().map(f)
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
            {
                let mut state = lock(&self.state);
                (state.refusal, state.shortened_by) = (None, None);
            }
            if self.is_limited() && output_tokens.is_none() {
                return Err(invalid(format!(
                    "the longest answer of the model `{model}` is not known; set `max_output_tokens` in its options or in the \
                     table of prices"
                )));
            }
            let longest = output_tokens.unwrap_or(0);
            let reserved = self.reserve(worst(longest.min(MIN_ANSWER))?, worst(longest)?).await?;
            let paid = reserved.usage;
            let is_paid = |worst: Usage| worst.total_tokens <= paid.total_tokens && micros(worst) <= micros(paid);
            // The answer must not be longer than what is reserved, whatever the model allows.
            let limit = self.is_limited().then(|| highest(longest, |output| worst(output).is_ok_and(is_paid)));
            let attempts = &mut lock(&self.state).attempts;
            let (model, reserved) = (model.to_owned(), vec![reserved]);
            attempts.push(Some(OpenAttempt { model, worst: paid, worst_of_last: paid, reserved, answered: 0 }));
            let max_output_tokens = limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
            Ok(Begun { id: attempts.len() - 1, max_output_tokens })
        }
        .boxed()
    }

    fn repeat(&self, id: usize, earlier: EarlierAttempt) -> BoxFuture<'_, Result<(), ModelError>> {
        async move {
            let next = self.with_open(id, |attempt| attempt.repeat(earlier)).flatten();
            if let Some(worst) = next {
                let reserved = self.reserve(worst, worst).await?;
                self.with_open(id, |attempt| attempt.reserved.push(reserved));
            }
            Ok(())
        }
        .boxed()
    }

    fn end(&self, id: usize, usage: Result<Option<Usage>, EarlierAttempt>) -> BoxFuture<'_, ()> {
        async move {
            let Some(attempt) = lock(&self.state).attempts.get_mut(id).and_then(Option::take) else { return };
            let all = sum(&attempt.reserved);
            let mut spent = match usage {
                Ok(Some(usage)) => {
                    let prices = self.spending.prices.as_ref();
                    let cost = prices.and_then(|prices| prices.cost(&attempt.model, usage).ok());
                    Usage { cost: cost.or(all.cost), ..usage }
                }
                Err(EarlierAttempt::Unbilled) => sum(&attempt.reserved[..attempt.answered]),
                // What is reserved stays reserved.
                _ => return,
            };
            self.spending.ledger.settle(all.cost, spent.cost);
            for reserved in &attempt.reserved {
                // The first one is settled by what all of them have spent.
                self.settle_budgets(reserved, std::mem::take(&mut spent)).await;
            }
        }
        .boxed()
    }
}

impl OpenAttempt {
    /// Returns what another request can cost, unless the one before has left its reservation to it.
    fn repeat(&mut self, earlier: EarlierAttempt) -> Option<Usage> {
        match earlier {
            EarlierAttempt::Unbilled => return None,
            // What they have reserved stays reserved.
            EarlierAttempt::Unknown | EarlierAttempt::Unusable => self.reserved.clear(),
            EarlierAttempt::Continued => {}
        }
        if earlier != EarlierAttempt::Unknown {
            self.worst_of_last += self.worst;
        }
        self.answered = self.reserved.len();
        Some(self.worst_of_last)
    }
}

fn sum(reserved: &[Reserved]) -> Usage {
    reserved.iter().fold(Usage::default(), |mut sum, one| {
        sum += one.usage;
        sum
    })
}

fn micros(usage: Usage) -> u64 {
    usage.cost.map_or(0, Cost::micros)
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
pub(super) enum Refusal {
    MaxCost {
        ledger: Arc<Ledger>,
        needed: Cost,
    },
    Budget {
        key: String,
        ends: Timestamp,
    },
    /// The store of a budget failed.
    Store(Box<dyn Error + Send + Sync>),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxCost { needed, .. } => write!(f, "the request can cost {needed}, and less is left"),
            Self::Budget { key, .. } => write!(f, "the budget of `{}` is used up", key.escape_debug()),
            Self::Store(error) => write!(f, "the store of the budget failed: {error}"),
        }
    }
}

fn invalid(reason: String) -> ModelError {
    ModelError::new(reason).with_kind(ModelErrorKind::InvalidRequest).permanent().unbilled()
}

fn no_prices() -> ModelError {
    invalid("a limit of money needs `prices` of the agent".to_owned())
}

fn other_currency(other: Cost) -> ModelError {
    invalid(format!(
        "the prices and the limits of a run have one currency, but one of them is in {}",
        other.currency()
    ))
}
