//! Budgets across runs.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use crate::memory::StoreFuture;
use crate::model::{Cost, Currency};
use crate::tool::Timestamp;

/// How long a request can be in flight. What it reserved then counts as spent, because nobody knows what it cost.
const EXPIRY: Duration = Duration::from_secs(3_600);

/// A budget of tokens or money for each key, such as a user or a tenant, and each period.
///
/// A question [names its key](crate::agent::Ask::budget). Before each request to a model, the worst case is reserved, for the agents
/// that calls ask, too; afterwards it is settled by the usage of the response. Several processes with one [store](BudgetStore) share
/// the limit.
///
/// The worst case of an input is several times as long as most are, if the model does not [count](crate::ChatModel::count_tokens) it: a
/// token per byte. If that does not fit into what is left, an estimate decides: two bytes of text per token, or what requests of the
/// run have used per byte at most, and a quarter more. All that is left is then reserved, for one request of a key at a time; others
/// wait until it is settled, as long as their runs' [time](crate::run::RunLimits::max_time) allows, or a minute without a limit of it, and
/// are then refused with [`BudgetInUse`](crate::RunErrorKind::BudgetInUse). Runs that [recovery](crate::Agent::recover) continues do not
/// wait. What the request costs beyond the reservation is charged, so a budget is exceeded by at most one request at a time. One whose
/// outcome is unknown is charged what it has reserved, which can be less than its cost. A
/// [limit of a run](crate::run::RunLimits::max_cost) is never exceeded.
///
/// ```
/// use std::time::Duration;
///
/// use tool_core::memory::{Budget, InMemoryStore};
/// use tool_core::model::ModelOptions;
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, RunErrorKind};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let budget = Budget::tokens(InMemoryStore::new(), 1_000, Duration::from_secs(24 * 3_600));
/// // Without usage, a response counts as the worst case: all of the 1,000 tokens.
/// let model = ScriptedModel::new().says("Good morning!");
/// let agent = Agent::builder(model).options(ModelOptions::default().with_max_output_tokens(5_000)).build()?;
/// agent.ask("Hello").budget(budget.key("user-7")).await?;
/// let error = agent.ask("Hello again").budget(budget.key("user-7")).await.unwrap_err();
/// assert!(matches!(error.kind(), RunErrorKind::Budget { key, .. } if key == "user-7"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct Budget {
    store: Arc<dyn BudgetStore>,
    unit: BudgetUnit,
    limit: u64,
    period: Duration,
}

/// What a budget consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetUnit {
    Tokens,
    /// Millionths of a unit of the currency.
    Money(Currency),
}

impl Budget {
    /// Creates a budget of tokens, read and written, for each period. Periods begin at multiples of their length since the Unix epoch:
    /// days begin at midnight UTC.
    pub fn tokens(store: impl BudgetStore + 'static, limit: u64, period: Duration) -> Self {
        Self { store: Arc::new(store), unit: BudgetUnit::Tokens, limit, period }
    }

    /// Creates a budget of money for each period, like [`tokens`](Self::tokens). It requires
    /// [prices](crate::agent::AgentBuilder::prices) in the same currency.
    pub fn cost(store: impl BudgetStore + 'static, limit: Cost, period: Duration) -> Self {
        let unit = BudgetUnit::Money(limit.currency());
        Self { store: Arc::new(store), unit, limit: limit.micros(), period }
    }

    /// Returns the budget of one key.
    pub fn key(&self, key: impl Into<String>) -> KeyedBudget {
        KeyedBudget { budget: self.clone(), key: key.into() }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("limit", &self.limit).field("unit", &self.unit).finish_non_exhaustive()
    }
}

/// The budget of one key; created by [`Budget::key`].
#[derive(Clone, Debug)]
#[must_use = "pass it to `Ask::budget`"]
pub struct KeyedBudget {
    budget: Budget,
    key: String,
}

/// A value that names the budget of one key: a [`KeyedBudget`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the budget of one key",
    label = "not a `KeyedBudget`",
    note = "name the key: `budget.key(\"team-7\")`",
    note = "each question names the budget of its user: `.budget(budget.key(user))` behind `ask`"
)]
pub trait IntoKeyedBudget: Into<KeyedBudget> {}

#[diagnostic::do_not_recommend]
impl<T: Into<KeyedBudget>> IntoKeyedBudget for T {}

impl KeyedBudget {
    pub(crate) fn unit(&self) -> BudgetUnit {
        self.budget.unit
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns `true` if what is charged to one of them is charged to the other.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let period = |keyed: &Self| keyed.period_at(Timestamp::from_millis(0));
        Arc::ptr_eq(&self.budget.store, &other.budget.store) && period(self) == period(other)
    }

    /// Returns the store.
    pub(crate) fn store(&self) -> &dyn BudgetStore {
        &*self.budget.store
    }

    /// Returns the period that contains this time, as the store sees it.
    #[must_use]
    pub fn period_at(&self, now: Timestamp) -> BudgetPeriod {
        let Budget { unit, limit, period, .. } = &self.budget;
        let millis = u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1);
        let unit = match unit {
            BudgetUnit::Tokens => "tokens",
            BudgetUnit::Money(currency) => currency.as_str(),
        };
        let starts = Timestamp::from_millis(now.as_millis() / millis * millis);
        BudgetPeriod {
            // Budgets of other periods can share the store.
            key: format!("{unit}/{millis}/{}", self.key),
            limit: *limit,
            starts,
            ends: starts.after(Duration::from_millis(millis)),
            now,
            expires: now.after(EXPIRY),
        }
    }

    /// Returns what is left in the current period: tokens, or millionths of a unit of the currency.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub async fn left(&self) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
        let period = self.period_at(Timestamp::now());
        Ok(period.limit.saturating_sub(self.store().spent(&period).await?))
    }
}

/// A period of a key, as a [`BudgetStore`] sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetPeriod {
    /// The key, with the unit and the length of the period, which distinguish budgets that share a store.
    pub key: String,
    /// The limit of the period.
    pub limit: u64,
    /// The start of the period.
    pub starts: Timestamp,
    /// The end of the period.
    pub ends: Timestamp,
    /// The time of the operation.
    pub now: Timestamp,
    /// The time at which a reservation expires.
    pub expires: Timestamp,
}

impl BudgetPeriod {
    /// Returns the time before which another period must have ended so that it is over for all processes: their clocks can differ
    /// by as long as a reservation lasts.
    #[must_use]
    pub fn over(&self) -> Timestamp {
        let lasts = self.expires.as_millis().saturating_sub(self.now.as_millis());
        Timestamp::from_millis(self.now.as_millis().saturating_sub(lasts))
    }
}

/// What a [`BudgetStore`] has reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetReservation {
    /// The id of the reservation, unique in the store.
    pub id: String,
    /// The amount.
    pub amount: u64,
}

/// The outcome of [`BudgetStore::reserve_remainder`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BudgetRemainder {
    /// All that was left is reserved.
    Reserved(BudgetReservation),
    /// All that was left is reserved for another request, which is not settled yet. Nothing was changed.
    InUse,
    /// Too little is left. Nothing was changed.
    TooLittle,
}

/// A store of what was spent of [budgets](Budget): [`InMemoryStore`](crate::memory::InMemoryStore), or
/// `SqliteStore` (feature `sqlite`), which several processes can use.
///
/// # Contract
///
/// - What is reserved counts as spent. Settling it corrects the sum, once; after the reservation has expired, it changes nothing.
/// - [`reserve`](Self::reserve) and [`reserve_remainder`](Self::reserve_remainder) compare and add in one atomic operation, for all
///   processes that use the store.
/// - What belongs to a period may be removed once it is [over](BudgetPeriod::over) for all processes.
/// - No operation blocks its thread.
pub trait BudgetStore: Send + Sync {
    /// Reserves `at_most`, or what is left of the period's limit if that is less. Returns `None`, and changes nothing, if less than
    /// `at_least` is left.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if nothing can be read or stored.
    fn reserve<'a>(
        &'a self,
        period: &'a BudgetPeriod,
        at_least: u64,
        at_most: u64,
    ) -> StoreFuture<'a, Option<BudgetReservation>>;

    /// Reserves all that is left of the period's limit for one request, unless that is nothing or less than `at_least`, or a reservation
    /// of this kind in the period was neither settled nor has expired. So what one request costs more than is left is all by which
    /// the limit can be exceeded at a time. A store without it, which is the default, reserves nothing: requests are then sent only if
    /// their worst case fits into what is left.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if nothing can be read or stored.
    fn reserve_remainder<'a>(
        &'a self,
        period: &'a BudgetPeriod,
        at_least: u64,
    ) -> StoreFuture<'a, BudgetRemainder> {
        let _ = (period, at_least);
        Box::pin(ready(Ok(BudgetRemainder::TooLittle)))
    }

    /// Replaces a reserved amount by what was spent, unless the reservation has expired at this time or was settled before.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the amount cannot be stored. It then counts as spent.
    fn settle<'a>(
        &'a self,
        reservation: &'a BudgetReservation,
        spent: u64,
        now: Timestamp,
    ) -> StoreFuture<'a, ()>;

    /// Returns what was spent or is reserved in the period.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if it cannot be read.
    fn spent<'a>(&'a self, period: &'a BudgetPeriod) -> StoreFuture<'a, u64>;
}
