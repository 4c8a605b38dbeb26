//! What was spent of budgets, with what requests in flight have reserved. The clock of the database says which period it is.

use futures_util::FutureExt;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use tool_core::signatures::Timestamp;
use tool_core::store::{BudgetPeriod, BudgetRemainder, BudgetReservation, BudgetStore, StoreFuture};

use crate::error::PostgresError;
use crate::store::{Attempt, Key, PostgresStore, stored_id, transaction};

/// Locks the sum of a period, which is there from then on, and returns it.
const LOCK: [&str; 2] = [
    "INSERT INTO @budgets (key, starts, ends, spent) VALUES ($1, $2, $3, 0) ON CONFLICT (key, starts) DO NOTHING",
    "SELECT spent FROM @budgets WHERE key = $1 AND starts = $2 FOR UPDATE",
];

/// Whether all that was left is reserved for another request.
const IS_IN_USE: &str = "
    SELECT 1 FROM @budget_reservations WHERE key = $1 AND starts = $2 AND is_remainder AND expires > $3
";

const RESERVE: &str = "
    WITH added AS (UPDATE @budgets SET spent = spent + $4 WHERE key = $1 AND starts = $2)
    INSERT INTO @budget_reservations (id, key, starts, amount, expires, is_remainder) VALUES ($3, $1, $2, $4, $5, $6)
";

/// Forgets what is over, but nothing that others are at.
const FORGET: [&str; 2] = [
    "DELETE FROM @budgets WHERE (key, starts) IN
        (SELECT key, starts FROM @budgets WHERE ends <= $1 LIMIT 100 FOR UPDATE SKIP LOCKED)",
    "DELETE FROM @budget_reservations WHERE id IN
        (SELECT id FROM @budget_reservations WHERE expires <= $1 LIMIT 100 FOR UPDATE SKIP LOCKED)",
];

const SETTLE: &str = "
    WITH settled AS (DELETE FROM @budget_reservations WHERE id = $1 AND expires > $3 RETURNING key, starts, amount)
    UPDATE @budgets AS b
    SET spent = greatest(0, b.spent - settled.amount)
        + least($2, 9223372036854775807 - greatest(0, b.spent - settled.amount))
    FROM settled WHERE b.key = settled.key AND b.starts = settled.starts
";

const SPENT: &str = "SELECT spent FROM @budgets WHERE key = $1 AND starts = $2";

/// The Unix time in milliseconds.
const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// A reservation that is asked for.
struct Reserve {
    period: BudgetPeriod,
    at_least: u64,
    /// `None` for all that is left.
    at_most: Option<u64>,
    id: String,
    statements: Statements,
}

struct Statements {
    lock: [String; 2],
    is_in_use: String,
    earlier: String,
    reserve: String,
    forget: [String; 2],
}

/// Converts an amount or a time to a number of the database, which ends earlier.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn first<T: for<'r> tokio_postgres::types::FromSql<'r>>(rows: &[Row]) -> Option<T> {
    rows.first().map(|row| row.get(0))
}

/// Returns the period of the database's time that has the length of this one.
async fn now(client: &Client, period: &BudgetPeriod) -> Result<BudgetPeriod, PostgresError> {
    let now = first::<i64>(&client.query_typed(NOW, &[]).await?).map_or(0, i64::unsigned_abs);
    let between = |from: Timestamp, to: Timestamp| to.as_millis().saturating_sub(from.as_millis());
    let length = between(period.starts, period.ends).max(1);
    let starts = now / length * length;
    let mut period = period.clone();
    let lasts = between(period.now, period.expires);
    let at = Timestamp::from_millis;
    (period.starts, period.ends) = (at(starts), at(starts.saturating_add(length)));
    (period.now, period.expires) = (at(now), at(now.saturating_add(lasts)));
    Ok(period)
}

async fn reserve(
    client: &Client,
    reserve: &Reserve,
    attempt: Attempt,
) -> Result<BudgetRemainder, PostgresError> {
    let Reserve { at_least, at_most, id, statements, .. } = reserve;
    let period = now(client, &reserve.period).await?;
    let [starts, ends, now, expires, over] =
        [period.starts, period.ends, period.now, period.expires, period.over()]
            .map(|time| number(time.as_millis()));
    let key = stored_id(&period.key)?;
    let of_period = [(&key as _, Type::TEXT), (&starts as _, Type::INT8)];
    client
        .execute_typed(
            &statements.lock[0],
            &[of_period[0].clone(), of_period[1].clone(), (&ends, Type::INT8)],
        )
        .await?;
    let spent = first::<i64>(&client.query_typed(&statements.lock[1], &of_period).await?).unwrap_or_default();
    let reserved = |amount| {
        // The key says which budget is settled.
        let id = format!("{id}/{}", reserve.period.key);
        BudgetRemainder::Reserved(BudgetReservation { id, amount })
    };
    if attempt.is_repeated {
        let earlier = client.query_typed(&statements.earlier, &[(id, Type::TEXT)]).await?;
        if let Some(amount) = first::<i64>(&earlier) {
            return Ok(reserved(amount.unsigned_abs()));
        }
    }
    if at_most.is_none() {
        let values = [of_period[0].clone(), of_period[1].clone(), (&now as _, Type::INT8)];
        if !client.query_typed(&statements.is_in_use, &values).await?.is_empty() {
            return Ok(BudgetRemainder::InUse);
        }
    }
    let left = number(period.limit).unsigned_abs().saturating_sub(spent.unsigned_abs());
    // All of nothing is nothing.
    if left < (*at_least).max(u64::from(at_most.is_none())) {
        return Ok(BudgetRemainder::TooLittle);
    }
    let amount = at_most.unwrap_or(left).min(left);
    let (taken, is_remainder) = (number(amount), at_most.is_none());
    let values = [
        of_period[0].clone(),
        of_period[1].clone(),
        (id as _, Type::TEXT),
        (&taken as _, Type::INT8),
        (&expires as _, Type::INT8),
        (&is_remainder as _, Type::BOOL),
    ];
    client.execute_typed(&statements.reserve, &values).await?;
    for (forget, before) in statements.forget.iter().zip([over, now]) {
        client.execute_typed(forget, &[(&before, Type::INT8)]).await?;
    }
    Ok(reserved(amount))
}

impl PostgresStore {
    fn reserve_any<'a>(
        &'a self,
        period: &'a BudgetPeriod,
        at_least: u64,
        at_most: Option<u64>,
    ) -> StoreFuture<'a, BudgetRemainder> {
        Box::pin(async move {
            let statements = Statements {
                lock: LOCK.map(|sql| self.sql(sql)),
                is_in_use: self.sql(IS_IN_USE),
                earlier: self.sql("SELECT amount FROM @budget_reservations WHERE id = $1"),
                reserve: self.sql(RESERVE),
                forget: FORGET.map(|sql| self.sql(sql)),
            };
            let id = format!("{:032x}", fastrand::u128(..));
            let values = Reserve { period: period.clone(), at_least, at_most, id, statements };
            let key = Key::budget(&period.key);
            let reserved = self.perform(key, values, |client, values, attempt| {
                transaction(client, reserve(client, values, attempt)).boxed()
            });
            reserved.await
        })
    }
}

impl BudgetStore for PostgresStore {
    fn reserve<'a>(
        &'a self,
        period: &'a BudgetPeriod,
        at_least: u64,
        at_most: u64,
    ) -> StoreFuture<'a, Option<BudgetReservation>> {
        Box::pin(async move {
            Ok(match self.reserve_any(period, at_least, Some(at_most)).await? {
                BudgetRemainder::Reserved(reservation) => Some(reservation),
                BudgetRemainder::InUse | BudgetRemainder::TooLittle => None,
            })
        })
    }

    fn reserve_remainder<'a>(
        &'a self,
        period: &'a BudgetPeriod,
        at_least: u64,
    ) -> StoreFuture<'a, BudgetRemainder> {
        self.reserve_any(period, at_least, None)
    }

    fn settle<'a>(
        &'a self,
        reservation: &'a BudgetReservation,
        spent: u64,
        _now: Timestamp,
    ) -> StoreFuture<'a, ()> {
        let (id, key) = reservation.id.split_once('/').unwrap_or((&reservation.id, ""));
        let values = (self.sql(SETTLE), id.to_owned(), number(spent));
        // The second time, there is no reservation.
        self.perform(Key::budget(key), values, |client, (sql, id, spent), _| {
            let settling = async move {
                let now = first::<i64>(&client.query_typed(NOW, &[]).await?).unwrap_or_default();
                let values = [(id as _, Type::TEXT), (spent as _, Type::INT8), (&now as _, Type::INT8)];
                client.execute_typed(sql, &values).await?;
                Ok(())
            };
            transaction(client, settling).boxed()
        })
    }

    fn spent<'a>(&'a self, period: &'a BudgetPeriod) -> StoreFuture<'a, u64> {
        let values = (self.sql(SPENT), period.clone());
        self.perform(Key::budget(&period.key), values, |client, (sql, period), _| {
            async move {
                let period = now(client, period).await?;
                let starts = number(period.starts.as_millis());
                let key = stored_id(&period.key)?;
                let values = [(&key as _, Type::TEXT), (&starts as _, Type::INT8)];
                let spent = first::<i64>(&client.query_typed(sql, &values).await?);
                Ok(spent.map_or(0, i64::unsigned_abs))
            }
            .boxed()
        })
    }
}
