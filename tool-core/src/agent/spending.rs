//! What the model requests of a run are charged to: the limits of the run and of those that it is inside of, and budgets.

use std::collections::HashMap;
use std::error::Error;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::time::Instant;

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

/// How long a run without a limit of its time waits for others to use what is left of a budget. Who has reserved it can be gone.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(60);

type StoreError = Box<dyn Error + Send + Sync>;

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
    /// a text has, and that waits so long for what is left of a budget.
    pub(super) fn meter(
        &self,
        prices: Option<&Prices>,
        infos: &Arc<ModelInfos>,
        seen: Option<TokensPerText>,
        longest_wait: Duration,
    ) -> Option<RequestMeter> {
        let prices = prices.or(self.prices.as_ref()).cloned();
        let ledger = Arc::new(Ledger::default().inside(&self.ledger));
        (prices.is_some() || self.is_limited()).then(|| RequestMeter {
            spending: Self { prices, ledger, budgets: self.budgets.clone() },
            infos: Arc::clone(infos),
            seen: Mutex::new(seen),
            longest_wait,
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
    longest_wait: Duration,
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

/// What a request has reserved of a budget. One that is dropped settles itself in a task, so that none is lost.
struct Part {
    budget: KeyedBudget,
    reservation: BudgetReservation,
    /// It is all that was left, for a request that an estimate admits.
    is_remainder: bool,
    /// What it is settled by: nothing before the request is sent, and its amount until its cost is known.
    owed: u64,
    is_settled: bool,
    runtime: Option<Handle>,
}

impl Part {
    fn new(budget: KeyedBudget, reservation: BudgetReservation, is_remainder: bool) -> Self {
        let runtime = Handle::try_current().ok();
        Self { budget, reservation, is_remainder, owed: 0, is_settled: false, runtime }
    }

    /// Replaces what is reserved by what is owed. A store does that once.
    async fn settle(mut self) {
        // What cannot be settled counts as spent, but others wait until what was left of a budget expires.
        let _ = self.budget.store().settle(&self.reservation, self.owed, Timestamp::now()).await;
        self.is_settled = true;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let (false, Some(runtime)) = (self.is_settled, &self.runtime) {
            let (budget, reservation, owed) = (self.budget.clone(), self.reservation.clone(), self.owed);
            drop(runtime.spawn(async move {
                let _ = budget.store().settle(&reservation, owed, Timestamp::now()).await;
            }));
        }
    }
}

impl OpenAttempt {
    fn into_parts(self) -> impl Iterator<Item = Part> {
        self.reserved.into_iter().flat_map(|reserved| reserved.budgets)
    }
}

impl Reserved {
    /// Returns `true` if a request can cost this, by the estimate that admits it, as far as it is reserved because of that.
    fn admits(&self, estimated: Usage) -> bool {
        let mut parts = self.budgets.iter().filter(|part| part.is_remainder);
        parts.all(|part| {
            amount(estimated, part.budget.unit()).is_ok_and(|amount| amount <= part.reservation.amount)
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

    /// Reserves as much as possible of what a request needs. One that an estimate can admit waits for a time while others use all that is
    /// left.
    async fn reserve(&self, demand: Demand) -> Result<Reserved, ModelError> {
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let mut reserved = Reserved::default();
            let error = match self.reserve_in(&demand, &mut reserved.budgets).await {
                Ok(usage) => {
                    reserved.budgets.iter_mut().for_each(|part| part.owed = part.reservation.amount);
                    lock(&self.refusals).refused_by = None;
                    return Ok(Reserved { usage, ..reserved });
                }
                Err(error) => error,
            };
            // Nothing is reserved meanwhile, so that no two requests wait for each other.
            settle(reserved.budgets).await;
            let waits = matches!(lock(&self.refusals).refused_by, Some(Refusal::BudgetInUse { .. }));
            let left = self.longest_wait.saturating_sub(started.elapsed());
            if !waits || left.is_zero() || Handle::try_current().is_err() {
                return Err(error);
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn reserve_in(&self, demand: &Demand, reserved: &mut Vec<Part>) -> Result<Usage, ModelError> {
        let Demand { at_least, mut at_most, .. } = *demand;
        for budget in &self.spending.budgets {
            let unit = budget.unit();
            let (least, most) = (amount(at_least, unit)?, amount(at_most, unit)?);
            let period = budget.period_at(Timestamp::now());
            let granted = reserve(budget.clone(), period.clone(), least, most);
            let granted = complete(granted).await.map_err(|error| self.refuse(Refusal::Store(error)))?;
            let Some(part) = granted else {
                reserved.push(self.reserve_remainder(demand, budget, &period).await?);
                continue;
            };
            let amount = part.reservation.amount;
            if amount < most {
                lock(&self.refusals).shortened_by = Some(Refusal::used_up(budget, &period));
                match unit {
                    BudgetUnit::Tokens => at_most.total_tokens = amount,
                    BudgetUnit::Money(currency) => {
                        at_most.cost = Some(Cost::new(amount, currency));
                    }
                }
            }
            reserved.push(part);
        }
        // Nothing is awaited from here on until the request is sent.
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
    ) -> Result<Part, ModelError> {
        let unit = budget.unit();
        let needed = demand.admitted.map(|usage| amount(usage, unit)).transpose()?;
        // What exceeds the limit does not wait.
        let remainder = match needed.filter(|needed| *needed <= period.limit) {
            Some(needed) => complete(reserve_remainder(budget.clone(), period.clone(), needed)).await,
            None => Ok(Remainder::TooLittle),
        };
        match remainder.map_err(|error| self.refuse(Refusal::Store(error)))? {
            Remainder::Reserved(part) => Ok(part),
            Remainder::InUse => Err(self.refuse(Refusal::BudgetInUse { key: budget.key().to_owned() })),
            Remainder::TooLittle => {
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

    /// Returns an attempt that has not ended. Unless it is put back, what it has reserved counts as spent.
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
            let demand = Demand { at_least: least, at_most: most, admitted };
            let reserved = self.reserve(demand).await?;
            let first = reserved.usage;
            let is_paid = |worst: Usage| {
                worst.total_tokens <= first.total_tokens
                    && worst.cost.map(Cost::micros) <= first.cost.map(Cost::micros)
            };
            // The answer must not be longer than what is reserved, whatever the model allows.
            let is_admitted = |output| {
                let estimated = self.worst(model, admitted_by.unwrap_or(input_tokens), output);
                estimated.is_ok_and(|estimated| reserved.admits(estimated))
            };
            let limit = self
                .is_limited()
                .then(|| highest(longest, |output| worst(output).is_ok_and(is_paid) && is_admitted(output)));
            if let Some(Part { budget, .. }) = reserved.budgets.iter().find(|part| part.is_remainder)
                && limit.is_some_and(|limit| limit < longest)
            {
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
                // What is reserved counts as spent.
                let parts = std::mem::take(&mut attempt.reserved);
                settle(parts.into_iter().flat_map(|reserved| reserved.budgets)).await;
            }
            if earlier != EarlierAttempt::Unknown {
                attempt.last += attempt.first;
            }
            // An estimate admits one request. It does not wait for what its own attempt has reserved.
            let demand = Demand { at_least: attempt.last, at_most: attempt.last, admitted: None };
            match self.reserve(demand).await {
                Ok(reserved) => attempt.reserved.push(reserved),
                Err(error) => {
                    settle(attempt.into_parts()).await;
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
                    let Ok(cost) = cost else { return settle(attempt.into_parts()).await };
                    let seen = attempt.text_bytes;
                    let seen = seen.and_then(|bytes| TokensPerText::measure(usage.input_tokens, bytes));
                    let mut most = lock(&self.seen);
                    *most = (*most).max(seen);
                    Usage { cost, ..usage }
                }
                Err(EarlierAttempt::Unbilled) => Usage::default(),
                _ => return settle(attempt.into_parts()).await,
            };
            // Those before the last one were answered.
            let answered = if usage.is_err() { attempt.reserved.len().saturating_sub(1) } else { 0 };
            for reserved in attempt.reserved.iter_mut().skip(answered) {
                // The first one is settled by what all of them have spent.
                let spent = std::mem::take(&mut spent);
                self.spending.ledger.settle(reserved.usage.cost, spent.cost);
                for part in &mut reserved.budgets {
                    part.owed = amount(spent, part.budget.unit()).unwrap_or(0);
                }
            }
            settle(attempt.into_parts()).await;
        }
        .boxed()
    }
}

/// The outcome of reserving all that is left of a budget.
enum Remainder {
    Reserved(Part),
    InUse,
    TooLittle,
}

async fn reserve(
    budget: KeyedBudget,
    period: BudgetPeriod,
    at_least: u64,
    at_most: u64,
) -> Result<Option<Part>, StoreError> {
    let granted = budget.store().reserve(&period, at_least, at_most).await?;
    Ok(granted.map(|reservation| Part::new(budget, reservation, false)))
}

async fn reserve_remainder(
    budget: KeyedBudget,
    period: BudgetPeriod,
    at_least: u64,
) -> Result<Remainder, StoreError> {
    Ok(match budget.store().reserve_remainder(&period, at_least).await? {
        BudgetRemainder::Reserved(reservation) => Remainder::Reserved(Part::new(budget, reservation, true)),
        BudgetRemainder::InUse => Remainder::InUse,
        BudgetRemainder::TooLittle => Remainder::TooLittle,
    })
}

/// Settles parts. Those that are dropped meanwhile settle themselves.
async fn settle(parts: impl IntoIterator<Item = Part>) {
    for part in parts.into_iter().collect::<Vec<_>>() {
        part.settle().await;
    }
}

/// Runs an operation of a store to its end, even if nobody waits for it any more: a store may have reserved something that it has not
/// returned yet. What it returns then is dropped, and with that settled.
async fn complete<T: Send + 'static>(
    operation: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let Ok(runtime) = Handle::try_current() else { return operation.await };
    runtime.spawn(operation).await.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(error) => Err(error.into()),
    })
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
    Store(StoreError),
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
