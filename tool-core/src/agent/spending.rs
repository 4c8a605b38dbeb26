//! What the model requests of a run are charged to: the limits of the run and of those that it is inside of, and budgets.

use std::collections::{BTreeMap, HashMap};
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
use crate::run::{Ledger, LedgerError, RunErrorKind, StopReason};
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
    /// That of the run itself, then those of the runs that it is inside of, the outermost last.
    ledgers: Vec<Arc<Ledger>>,
    budgets: Vec<KeyedBudget>,
}

impl Spending {
    pub(super) fn new(prices: Option<Prices>, ledger: Ledger) -> Self {
        Self { prices, ledgers: vec![Arc::new(ledger)], budgets: Vec::new() }
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
        self.ledgers.extend_from_slice(&outer.ledgers);
        self.charge_to(&outer.budgets);
    }

    /// Returns what counts a request of an agent with these prices, if anything does.
    pub(super) fn meter(&self, prices: Option<&Prices>, infos: &Arc<ModelInfos>) -> Option<RequestMeter> {
        let prices = prices.or(self.prices.as_ref()).cloned();
        (prices.is_some() || self.is_limited()).then(|| RequestMeter {
            spending: Self { prices, ..self.clone() },
            infos: Arc::clone(infos),
            state: Mutex::default(),
        })
    }

    fn is_limited(&self) -> bool {
        !self.budgets.is_empty() || self.has_max_cost()
    }

    fn has_max_cost(&self) -> bool {
        self.ledgers.iter().any(|ledger| ledger.limit().is_some())
    }
}

/// Counts the attempts of one request.
pub(super) struct RequestMeter {
    spending: Spending,
    infos: Arc<ModelInfos>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What the attempts that have ended cost.
    charged: Option<Cost>,
    /// The attempts that have not ended, by their ids. They keep their reservations.
    open: BTreeMap<u64, OpenAttempt>,
    /// The number of attempts so far.
    attempts: u64,
    /// Why the request was not repeated.
    refusal: Option<Refusal>,
    /// What limits the answer, if that is less than the longest one.
    shortened_by: Option<Refusal>,
}

/// An attempt that has not ended.
#[derive(Clone)]
struct OpenAttempt {
    model: String,
    /// What its first request can cost.
    worst: Amounts,
    /// The number of requests, each of which contains the answer to the one before.
    requests: u64,
    reserved: Amounts,
    /// The part of it that is reserved for the requests before the last one.
    earlier: Amounts,
    budgets: Vec<(usize, BudgetReservation)>,
}

/// What a request can cost, or costs.
#[derive(Clone, Copy, Default)]
struct Amounts {
    cost: Option<Cost>,
    tokens: u64,
}

impl Amounts {
    fn in_unit(self, unit: BudgetUnit) -> Result<u64, ModelError> {
        match (unit, self.cost) {
            (BudgetUnit::Tokens, _) => Ok(self.tokens),
            (BudgetUnit::Money(currency), Some(cost)) if cost.currency() == currency => Ok(cost.micros()),
            (BudgetUnit::Money(_), Some(cost)) => Err(other_currency(cost)),
            (BudgetUnit::Money(_), None) => Err(no_prices()),
        }
    }

    fn times(self, factor: u64) -> Self {
        let cost = self.cost.map(|cost| Cost::new(cost.micros().saturating_mul(factor), cost.currency()));
        Self { cost, tokens: self.tokens.saturating_mul(factor) }
    }
}

/// What was reserved.
struct Granted {
    amounts: Amounts,
    budgets: Vec<(usize, BudgetReservation)>,
    shortened_by: Option<Refusal>,
}

impl RequestMeter {
    /// Returns what all attempts so far have cost. One without an end counts as its worst case.
    pub(super) fn charged(&self) -> Option<Cost> {
        let state = lock(&self.state);
        state.open.values().fold(state.charged, |sum, open| Cost::sum(sum, open.reserved.cost))
    }

    /// Charges what a request of the caller has used. Returns what it cost.
    pub(super) fn charge_usage(&self, model: &str, usage: Usage) -> Option<Cost> {
        let cost = self.spending.prices.as_ref()?.cost(model, usage).ok()?;
        self.spending.ledgers.iter().for_each(|ledger| ledger.settle(Cost::new(0, cost.currency()), cost));
        Some(cost)
    }

    /// Returns why the request was not repeated, if its provider tried.
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
        let output = attempt.output_tokens.unwrap_or(0);
        let worst = prices.worst_cost(attempt.model, attempt.input_tokens, output);
        let worst = match is_passed_on && self.spending.has_max_cost() {
            true => u64::MAX,
            false => worst.ok()?.micros(),
        };
        // More is never reserved.
        let left = self.spending.ledgers.iter().map(|ledger| ledger.left());
        Some(Cost::new(left.fold(worst, u64::min), prices.currency()))
    }

    fn worst(&self, model: &str, input: u64, output: u64) -> Result<Amounts, ModelError> {
        let prices = self.spending.prices.as_ref();
        let cost = prices.map(|prices| prices.worst_cost(model, input, output)).transpose();
        let cost = cost.map_err(|error| invalid(error.to_string()))?;
        Ok(Amounts { cost, tokens: input.saturating_add(output) })
    }

    /// Reserves the highest of both amounts, or what is left if that is less.
    async fn reserve(&self, at_least: Amounts, at_most: Amounts) -> Result<Granted, ModelError> {
        let mut granted = Granted { amounts: at_most, budgets: Vec::new(), shortened_by: None };
        let reserved = self.reserve_in(at_least, &mut granted).await;
        if let Err(error) = reserved {
            self.settle_budgets(&granted.budgets, Amounts::default()).await;
            return Err(error);
        }
        Ok(granted)
    }

    async fn reserve_in(&self, at_least: Amounts, granted: &mut Granted) -> Result<(), ModelError> {
        for (position, budget) in self.spending.budgets.iter().enumerate() {
            let unit = budget.unit();
            let (least, most) = (at_least.in_unit(unit)?, granted.amounts.in_unit(unit)?);
            let period = budget.period_at(Timestamp::now());
            let refusal = || Refusal::Budget { key: budget.key().to_owned(), ends: period.ends };
            let reserved = budget.store().reserve(&period, least, most).await;
            let reserved = reserved.map_err(|error| unaffordable(Refusal::Store(error)))?;
            let reserved = reserved.ok_or_else(|| unaffordable(refusal()))?;
            if reserved.amount < most {
                granted.shortened_by = Some(refusal());
                match unit {
                    BudgetUnit::Tokens => granted.amounts.tokens = reserved.amount,
                    BudgetUnit::Money(currency) => {
                        granted.amounts.cost = Some(Cost::new(reserved.amount, currency))
                    }
                }
            }
            granted.budgets.push((position, reserved));
        }
        let (Some(least), Some(most)) = (at_least.cost, granted.amounts.cost) else {
            return if self.spending.has_max_cost() { Err(no_prices()) } else { Ok(()) };
        };
        // Nothing is awaited from here on, so that a reservation is never lost.
        let ledgers = &self.spending.ledgers;
        let mut amount = most;
        let mut reserved = Vec::new();
        for (level, ledger) in ledgers.iter().enumerate() {
            let is_outermost = level + 1 == ledgers.len();
            let refusal = || Refusal::MaxCost { ledger: Arc::clone(ledger), needed: least, is_outermost };
            match ledger.reserve(least, amount) {
                Ok(left) => {
                    if left != amount {
                        granted.shortened_by = Some(refusal());
                    }
                    amount = left;
                    reserved.push(left);
                }
                Err(error) => {
                    let nothing = Cost::new(0, least.currency());
                    reserved.iter().zip(ledgers).for_each(|(one, ledger)| ledger.settle(*one, nothing));
                    return Err(match error {
                        LedgerError::TooLittleLeft => unaffordable(refusal()),
                        LedgerError::OtherCurrency(other) => other_currency(other),
                    });
                }
            }
        }
        reserved.iter().zip(ledgers).for_each(|(one, ledger)| ledger.settle(*one, amount));
        granted.amounts.cost = Some(amount);
        Ok(())
    }

    async fn settle_budgets(&self, reserved: &[(usize, BudgetReservation)], amounts: Amounts) {
        for (number, (position, reservation)) in reserved.iter().enumerate() {
            let budget = &self.spending.budgets[*position];
            // The first reservations of an attempt are settled with all of it.
            let is_first = number < self.spending.budgets.len();
            let spent = if is_first { amounts.in_unit(budget.unit()).unwrap_or(0) } else { 0 };
            // What cannot be settled counts as spent.
            let _ = budget.store().settle(reservation, spent, Timestamp::now()).await;
        }
    }

    /// Ends an attempt, which cost this.
    fn charge(&self, id: u64, attempt: &OpenAttempt, cost: Option<Cost>) {
        if let (Some(reserved), Some(cost)) = (attempt.reserved.cost, cost) {
            self.spending.ledgers.iter().for_each(|ledger| ledger.settle(reserved, cost));
        }
        let mut state = lock(&self.state);
        state.charged = Cost::sum(state.charged, cost);
        state.open.remove(&id);
    }

    async fn begin_attempt(&self, attempt: Attempt<'_>) -> Result<Begun, ModelError> {
        let Attempt { model, input_tokens, output_tokens } = attempt;
        if self.spending.is_limited() && output_tokens.is_none() {
            return Err(invalid(format!(
                "the longest answer of the model `{model}` is not known; set `max_output_tokens` in its options or in the table \
                 of prices"
            )));
        }
        let longest = output_tokens.unwrap_or(0);
        let worst = self.worst(model, input_tokens, longest)?;
        let granted = self.reserve(self.worst(model, input_tokens, longest.min(MIN_ANSWER))?, worst).await?;
        let is_affordable = |output: u64| {
            let amounts = self.worst(model, input_tokens, output).unwrap_or_default();
            let cost = |amounts: Amounts| amounts.cost.map_or(0, Cost::micros);
            cost(amounts) <= cost(granted.amounts) && amounts.tokens <= granted.amounts.tokens
        };
        let limit = granted.shortened_by.is_some().then(|| highest(longest, is_affordable));
        let Granted { amounts: reserved, budgets, shortened_by } = granted;
        let mut state = lock(&self.state);
        (state.shortened_by, state.refusal) = (shortened_by, None);
        state.attempts += 1;
        let id = state.attempts;
        let (model, earlier) = (model.to_owned(), reserved.times(0));
        let attempt = OpenAttempt { model, worst: reserved, requests: 1, reserved, earlier, budgets };
        state.open.insert(id, attempt);
        let max_output_tokens = limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
        Ok(Begun { id, max_output_tokens })
    }

    async fn repeat_attempt(&self, id: u64, earlier: EarlierAttempt) -> Result<(), ModelError> {
        let Some(mut attempt) = lock(&self.state).open.get(&id).cloned() else { return Ok(()) };
        match earlier {
            EarlierAttempt::Unbilled => return Ok(()),
            EarlierAttempt::Unknown | EarlierAttempt::Unusable => {
                // It keeps its reservation.
                self.charge(id, &attempt, attempt.reserved.cost);
                (attempt.reserved, attempt.budgets) = (attempt.worst.times(0), Vec::new());
            }
            EarlierAttempt::Continued => {}
        }
        attempt.requests += u64::from(earlier != EarlierAttempt::Unknown);
        attempt.earlier = attempt.reserved;
        if earlier == EarlierAttempt::Continued {
            // Its answer was billed, also if there is no other request.
            lock(&self.state).open.insert(id, attempt.clone());
        }
        let more = attempt.worst.times(attempt.requests);
        let granted = match self.reserve(more, more).await {
            Ok(granted) => granted,
            Err(error) => {
                lock(&self.state).refusal = error.downcast().ok();
                return Err(unaffordable(
                    "a limit of the run or a budget leaves too little to repeat the request",
                ));
            }
        };
        attempt.reserved.cost = Cost::sum(attempt.reserved.cost, granted.amounts.cost);
        attempt.reserved.tokens = attempt.reserved.tokens.saturating_add(granted.amounts.tokens);
        attempt.budgets.extend(granted.budgets);
        lock(&self.state).open.insert(id, attempt);
        Ok(())
    }

    async fn end_attempt(&self, id: u64, usage: Result<Option<Usage>, EarlierAttempt>) {
        let Some(attempt) = lock(&self.state).open.get(&id).cloned() else { return };
        let spent = match usage {
            Ok(Some(usage)) => {
                let prices = self.spending.prices.as_ref();
                let cost = prices.and_then(|prices| prices.cost(&attempt.model, usage).ok());
                Amounts { cost: cost.or(attempt.reserved.cost), tokens: usage.total_tokens }
            }
            Err(EarlierAttempt::Unbilled) => attempt.earlier,
            _ => attempt.reserved,
        };
        self.charge(id, &attempt, spent.cost);
        self.settle_budgets(&attempt.budgets, spent).await;
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
        self.begin_attempt(attempt).boxed()
    }

    fn repeat(&self, id: u64, earlier: EarlierAttempt) -> BoxFuture<'_, Result<(), ModelError>> {
        self.repeat_attempt(id, earlier).boxed()
    }

    fn end(&self, id: u64, usage: Result<Option<Usage>, EarlierAttempt>) -> BoxFuture<'_, ()> {
        self.end_attempt(id, usage).boxed()
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
#[derive(Debug)]
pub(super) enum Refusal {
    MaxCost {
        ledger: Arc<Ledger>,
        needed: Cost,
        is_outermost: bool,
    },
    Budget {
        key: String,
        ends: Timestamp,
    },
    /// The store of a budget failed.
    Store(Box<dyn Error + Send + Sync>),
}

impl Refusal {
    /// Returns the reason for the outermost run to return, or for a run inside of another one to stop.
    pub(super) fn into_reason(self) -> Result<RunErrorKind, StopReason> {
        match self {
            Self::MaxCost { ledger, needed, is_outermost } => {
                let spent = ledger.total(needed.currency());
                let limit = ledger.limit().unwrap_or(spent);
                match is_outermost {
                    true => Ok(RunErrorKind::MaxCost { spent, limit, needed }),
                    false => Err(StopReason::MaxCost(limit)),
                }
            }
            Self::Budget { key, ends } => Ok(RunErrorKind::Budget { key, ends }),
            Self::Store(error) => Ok(RunErrorKind::Store(error)),
        }
    }
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

impl Error for Refusal {}

fn unaffordable(why: impl Into<Box<dyn Error + Send + Sync>>) -> ModelError {
    ModelError::new(why).with_kind(ModelErrorKind::Unaffordable).unbilled()
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
