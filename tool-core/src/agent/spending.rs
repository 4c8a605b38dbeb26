//! What the model requests of a run are charged to: the limits of the run and of those that it is inside of, and budgets.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::lock::lock;
use crate::memory::{BudgetPeriod, BudgetRemainder, BudgetReservation, BudgetUnit, KeyedBudget};
use crate::model::{
    Attempt, Begun, Cost, EarlierAttempt, Meter, ModelError, ModelErrorKind, ModelInfo, Prices,
    TokensPerText, Usage,
};
use crate::run::{Ledger, LedgerError, RunErrorKind};
use crate::tool::Timestamp;

/// The shortest answer for which a request is worth its price, in tokens. Some providers accept no lower limit.
const MIN_ANSWER: u64 = 16;

/// How often a store is asked whether others still use what is left of a budget: after the first time, and at last.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

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

    /// Returns what counts a request of an agent with these prices, if anything does, for a run whose requests have shown how many tokens
    /// a text has.
    pub(super) fn meter(
        &self,
        prices: Option<&Prices>,
        infos: &Arc<ModelInfos>,
        seen: Option<TokensPerText>,
    ) -> Option<RequestMeter> {
        let prices = prices.or(self.prices.as_ref()).cloned();
        let ledger = Arc::new(Ledger::default().inside(&self.ledger));
        (prices.is_some() || self.is_limited()).then(|| RequestMeter {
            spending: Self { prices, ledger, budgets: self.budgets.clone() },
            infos: Arc::clone(infos),
            seen: Mutex::new(seen),
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
    /// The most tokens that requests of the run have used for a text.
    seen: Mutex<Option<TokensPerText>>,
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
    /// The bytes of the text that its usage is of, if it is of one.
    text_bytes: Option<u64>,
}

/// What a request needs.
struct Demand {
    at_least: Usage,
    at_most: Usage,
    /// What it needs at least by the estimate that admits it.
    admitted: Option<Usage>,
}

/// What a request has reserved.
#[derive(Default)]
struct Reserved {
    usage: Usage,
    /// The part of each budget.
    budgets: Vec<Part>,
}

/// What a request has reserved of a budget.
struct Part {
    reservation: BudgetReservation,
    /// It is all that was left, for a request that an estimate admits.
    is_remainder: bool,
}

impl Reserved {
    /// Returns `true` if a request can cost this, by the estimate that admits it, as far as it is reserved because of that.
    fn admits(&self, budgets: &[KeyedBudget], estimated: Usage) -> bool {
        let mut parts = budgets.iter().zip(&self.budgets).filter(|(_, part)| part.is_remainder);
        parts.all(|(budget, part)| {
            amount(estimated, budget.unit()).is_ok_and(|amount| amount <= part.reservation.amount)
        })
    }
}

impl RequestMeter {
    /// Returns what all attempts so far have cost. One without an end counts as its worst case.
    pub(super) fn charged(&self) -> Option<Cost> {
        self.spending.ledger.spent()
    }

    /// Returns `true` if an estimate can admit requests.
    pub(super) fn estimates(&self) -> bool {
        !self.spending.budgets.is_empty()
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

    /// Reserves as much as possible of what a request needs. One that an estimate can admit waits while others use all that is left.
    async fn reserve(&self, demand: Demand) -> Result<Reserved, ModelError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let mut reserved = Reserved::default();
            let error = match self.reserve_in(&demand, &mut reserved.budgets).await {
                Ok(usage) => {
                    lock(&self.refusals).refused_by = None;
                    return Ok(Reserved { usage, ..reserved });
                }
                Err(error) => error,
            };
            // Nothing is reserved meanwhile, so that no two requests wait for each other.
            self.settle(&reserved, Usage::default()).await;
            let waits = matches!(lock(&self.refusals).refused_by, Some(Refusal::BudgetInUse { .. }));
            if !waits || tokio::runtime::Handle::try_current().is_err() {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn reserve_in(&self, demand: &Demand, reserved: &mut Vec<Part>) -> Result<Usage, ModelError> {
        let Demand { at_least, mut at_most, .. } = *demand;
        for budget in &self.spending.budgets {
            let unit = budget.unit();
            let (least, most) = (amount(at_least, unit)?, amount(at_most, unit)?);
            let period = budget.period_at(Timestamp::now());
            let granted = budget.store().reserve(&period, least, most).await;
            let granted = granted.map_err(|error| self.refuse(Refusal::Store(error)))?;
            let Some(reservation) = granted else {
                let reservation = self.reserve_remainder(demand, budget, &period).await?;
                reserved.push(Part { reservation, is_remainder: true });
                continue;
            };
            if reservation.amount < most {
                lock(&self.refusals).shortened_by = Some(Refusal::used_up(budget, &period));
                match unit {
                    BudgetUnit::Tokens => at_most.total_tokens = reservation.amount,
                    BudgetUnit::Money(currency) => {
                        at_most.cost = Some(Cost::new(reservation.amount, currency));
                    }
                }
            }
            reserved.push(Part { reservation, is_remainder: false });
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

    /// Reserves all that is left of a budget, if an estimate admits the request.
    async fn reserve_remainder(
        &self,
        demand: &Demand,
        budget: &KeyedBudget,
        period: &BudgetPeriod,
    ) -> Result<BudgetReservation, ModelError> {
        let unit = budget.unit();
        let needed = demand.admitted.map(|usage| amount(usage, unit)).transpose()?;
        // What exceeds the limit does not wait.
        let remainder = match needed.filter(|needed| *needed <= period.limit) {
            Some(needed) => budget.store().reserve_remainder(period, needed).await,
            None => Ok(BudgetRemainder::TooLittle),
        };
        match remainder.map_err(|error| self.refuse(Refusal::Store(error)))? {
            BudgetRemainder::Reserved(reservation) => Ok(reservation),
            BudgetRemainder::InUse => Err(self.refuse(Refusal::BudgetInUse { key: budget.key().to_owned() })),
            BudgetRemainder::TooLittle => {
                let spent = budget.store().spent(period).await;
                let spent = spent.map_err(|error| self.refuse(Refusal::Store(error)))?;
                let left = period.limit.saturating_sub(spent);
                Err(self.refuse(Refusal::Budget { key: budget.key().to_owned(), ends: period.ends, left }))
            }
        }
    }

    /// Stores why a request is not sent, and returns its error.
    fn refuse(&self, refusal: Refusal) -> ModelError {
        let kind = match refusal {
            Refusal::UnknownAnswerLength { .. } => ModelErrorKind::InvalidRequest,
            _ => ModelErrorKind::Unaffordable,
        };
        let error = ModelError::new(refusal.to_string()).with_kind(kind);
        lock(&self.refusals).refused_by = Some(refusal);
        error.unbilled()
    }

    /// Replaces what a request has reserved by what was spent.
    async fn settle(&self, reserved: &Reserved, spent: Usage) {
        self.spending.ledger.settle(reserved.usage.cost, spent.cost);
        for (budget, part) in self.spending.budgets.iter().zip(&reserved.budgets) {
            let spent = amount(spent, budget.unit()).unwrap_or(0);
            // What cannot be settled counts as spent.
            let _ = budget.store().settle(&part.reservation, spent, Timestamp::now()).await;
        }
    }

    /// Returns what is reserved for good of all that was left of budgets, by an attempt whose outcome nobody knows.
    fn remainders(&self, attempt: &OpenAttempt) -> Vec<(KeyedBudget, BudgetReservation)> {
        let parts = |reserved: &Reserved| {
            let parts = self.spending.budgets.iter().zip(&reserved.budgets);
            let parts = parts.filter(|(_, part)| part.is_remainder);
            parts.map(|(budget, part)| (budget.clone(), part.reservation.clone())).collect::<Vec<_>>()
        };
        attempt.reserved.iter().flat_map(parts).collect()
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

    fn tokens_per_text(&self) -> Option<TokensPerText> {
        *lock(&self.seen)
    }

    fn remember(&self, model: &str, info: ModelInfo) {
        lock(&self.infos).insert(model.to_owned(), info);
    }

    fn begin<'a>(&'a self, attempt: Attempt<'a>) -> BoxFuture<'a, Result<Begun, ModelError>> {
        let Attempt { model, input_tokens, output_tokens, text_bytes, admitted_by } = attempt;
        let worst = move |output| self.worst(model, input_tokens, output);
        async move {
            *lock(&self.refusals) = Refusals::default();
            let longest = output_tokens.unwrap_or(0);
            let shortest = longest.min(MIN_ANSWER);
            let (least, most) = (worst(shortest)?, worst(longest)?);
            if most.cost.is_none() && self.spending.is_limited_in_money() {
                return Err(no_prices());
            }
            if self.is_limited() && output_tokens.is_none() {
                return Err(self.refuse(Refusal::UnknownAnswerLength { model: model.to_owned() }));
            }
            let admitted = admitted_by.map(|input| self.worst(model, input, shortest)).transpose()?;
            let reserved = self.reserve(Demand { at_least: least, at_most: most, admitted }).await?;
            let first = reserved.usage;
            let is_paid = |worst: Usage| {
                worst.total_tokens <= first.total_tokens
                    && worst.cost.map(Cost::micros) <= first.cost.map(Cost::micros)
            };
            // The answer must not be longer than what is reserved, whatever the model allows.
            let is_admitted = |output| {
                let estimated = self.worst(model, admitted_by.unwrap_or(input_tokens), output);
                estimated.is_ok_and(|estimated| reserved.admits(&self.spending.budgets, estimated))
            };
            let limit = self
                .is_limited()
                .then(|| highest(longest, |output| worst(output).is_ok_and(is_paid) && is_admitted(output)));
            if let Some(part) = reserved.budgets.iter().position(|part| part.is_remainder)
                && limit.is_some_and(|limit| limit < longest)
            {
                let budget = &self.spending.budgets[part];
                let period = budget.period_at(Timestamp::now());
                lock(&self.refusals).shortened_by.get_or_insert_with(|| Refusal::used_up(budget, &period));
            }
            let max_output_tokens = limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
            let (model, reserved) = (model.to_owned(), vec![reserved]);
            let mut attempts = lock(&self.attempts);
            attempts.push(Some(OpenAttempt { model, first, last: first, reserved, text_bytes }));
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
            // Its usage is of several requests.
            attempt.text_bytes = None;
            if earlier != EarlierAttempt::Continued {
                // What is reserved stays reserved.
                keep(self.remainders(&attempt)).await;
                attempt.reserved.clear();
            }
            if earlier != EarlierAttempt::Unknown {
                attempt.last += attempt.first;
            }
            // An estimate admits one request. It does not wait for what its own attempt has reserved.
            let demand = Demand { at_least: attempt.last, at_most: attempt.last, admitted: None };
            match self.reserve(demand).await {
                Ok(reserved) => attempt.reserved.push(reserved),
                Err(error) => {
                    keep(self.remainders(&attempt)).await;
                    return Err(error);
                }
            }
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
                    let Ok(cost) = cost else { return keep(self.remainders(&attempt)).await };
                    let seen = attempt.text_bytes;
                    let seen = seen.and_then(|bytes| TokensPerText::measure(usage.input_tokens, bytes));
                    let mut most = lock(&self.seen);
                    *most = (*most).max(seen);
                    Usage { cost, ..usage }
                }
                Err(EarlierAttempt::Unbilled) => {
                    attempt.reserved.drain(..attempt.reserved.len() - 1);
                    Usage::default()
                }
                _ => return keep(self.remainders(&attempt)).await,
            };
            for reserved in &attempt.reserved {
                // The first one is settled by what all of them have spent.
                self.settle(reserved, std::mem::take(&mut spent)).await;
            }
        }
        .boxed()
    }
}

/// A request that is dropped has cost all that it has reserved. Others need not wait for it.
impl Drop for RequestMeter {
    fn drop(&mut self) {
        let attempts = std::mem::take(&mut *lock(&self.attempts));
        let remainders: Vec<_> = attempts.iter().flatten().flat_map(|one| self.remainders(one)).collect();
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !remainders.is_empty()
        {
            drop(runtime.spawn(keep(remainders)));
        }
    }
}

/// Settles reservations by their amounts.
async fn keep(remainders: Vec<(KeyedBudget, BudgetReservation)>) {
    for (budget, reservation) in remainders {
        // What cannot be settled counts as spent, too, but others wait until it expires.
        let _ = budget.store().settle(&reservation, reservation.amount, Timestamp::now()).await;
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
    #[error("{}", RunErrorKind::describe_budget(key, *left))]
    Budget { key: String, ends: Timestamp, left: u64 },
    #[error("{}", RunErrorKind::describe_budget_in_use(key))]
    BudgetInUse { key: String },
    #[error("{}", RunErrorKind::describe_unknown_answer_length(model))]
    UnknownAnswerLength { model: String },
    #[error("the store of the budget failed: {0}")]
    Store(Box<dyn Error + Send + Sync>),
}

impl Refusal {
    fn used_up(budget: &KeyedBudget, period: &BudgetPeriod) -> Self {
        Self::Budget { key: budget.key().to_owned(), ends: period.ends, left: 0 }
    }
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
