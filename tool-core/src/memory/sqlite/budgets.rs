//! What was spent of budgets, with what requests in flight have reserved.

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::database::BoxError;
use crate::memory::{BudgetPeriod, BudgetRemainder, BudgetReservation};
use crate::tool::Timestamp;

const ADD: &str = "
    INSERT INTO budgets (key, starts, ends, spent) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (key, starts) DO UPDATE SET spent = spent + excluded.spent
";

const RESERVE: &str = "
    INSERT INTO budget_reservations (key, starts, amount, expires) VALUES (?1, ?2, ?3, ?4) RETURNING id
";

/// Marks a reservation of all that was left by a second row, which has the id of the first one as its amount. No key of a budget begins
/// like this one, because it begins with its unit.
const MARK: &str = "
    INSERT INTO budget_reservations (key, starts, amount, expires) VALUES ('remainder/' || ?1, ?2, ?3, ?4)
";

/// A marked reservation is settled by removing it, without its mark.
const IS_IN_USE: &str = "
    SELECT EXISTS (
        SELECT 1 FROM budget_reservations AS mark JOIN budget_reservations AS marked ON marked.id = mark.amount
        WHERE mark.key = 'remainder/' || ?1 AND mark.starts = ?2 AND marked.expires > ?3
    )
";

const SETTLE: &str = "
    DELETE FROM budget_reservations WHERE id = ?1 AND expires > ?2 RETURNING key, starts, amount
";

/// The sum stays a number of SQLite, which would continue with a floating-point number.
const REPLACE: &str = "
    UPDATE budgets SET spent = max(0, spent - ?3) + min(?4, 9223372036854775807 - max(0, spent - ?3))
    WHERE key = ?1 AND starts = ?2
";

/// Converts an amount or a time to a number of SQLite, which ends earlier.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn spent(connection: &Connection, period: &BudgetPeriod) -> Result<u64, BoxError> {
    let sql = "SELECT spent FROM budgets WHERE key = ?1 AND starts = ?2";
    let starts = number(period.starts.as_millis());
    let spent = connection.query_row(sql, params![period.key, starts], |row| row.get::<_, i64>(0));
    Ok(spent.optional()?.map_or(0, i64::unsigned_abs))
}

pub(super) fn reserve(
    connection: &mut Connection,
    period: &BudgetPeriod,
    at_least: u64,
    at_most: u64,
) -> Result<Option<BudgetReservation>, BoxError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let left = left(&transaction, period)?;
    if left < at_least {
        return Ok(None);
    }
    Ok(Some(add(transaction, period, at_most.min(left), false)?))
}

pub(super) fn reserve_remainder(
    connection: &mut Connection,
    period: &BudgetPeriod,
    at_least: u64,
) -> Result<BudgetRemainder, BoxError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let [starts, now] = [period.starts, period.now].map(|time| number(time.as_millis()));
    let is_in_use: bool =
        transaction.query_row(IS_IN_USE, params![period.key, starts, now], |row| row.get(0))?;
    if is_in_use {
        return Ok(BudgetRemainder::InUse);
    }
    let left = left(&transaction, period)?;
    if left < at_least.max(1) {
        return Ok(BudgetRemainder::TooLittle);
    }
    Ok(BudgetRemainder::Reserved(add(transaction, period, left, true)?))
}

/// Returns what is left of the limit. The sum must be a number of SQLite.
fn left(connection: &Connection, period: &BudgetPeriod) -> Result<u64, BoxError> {
    Ok(number(period.limit).unsigned_abs().saturating_sub(spent(connection, period)?))
}

/// Adds a reservation, and ends the transaction.
fn add(
    transaction: Transaction<'_>,
    period: &BudgetPeriod,
    amount: u64,
    is_remainder: bool,
) -> Result<BudgetReservation, BoxError> {
    let times = [period.starts, period.ends, period.over(), period.now, period.expires];
    let [starts, ends, over, now, expires] = times.map(|time| number(time.as_millis()));
    transaction.execute("DELETE FROM budgets WHERE ends <= ?1", [over])?;
    transaction.execute("DELETE FROM budget_reservations WHERE expires <= ?1", [now])?;
    transaction.execute(ADD, params![period.key, starts, ends, number(amount)])?;
    let reservation = params![period.key, starts, number(amount), expires];
    let id: i64 = transaction.query_row(RESERVE, reservation, |row| row.get(0))?;
    if is_remainder {
        transaction.execute(MARK, params![period.key, starts, id, expires])?;
    }
    transaction.commit()?;
    Ok(BudgetReservation { id: id.to_string(), amount })
}

pub(super) fn settle(
    connection: &mut Connection,
    id: &str,
    spent: u64,
    now: Timestamp,
) -> Result<(), BoxError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let settled = transaction.query_row(SETTLE, params![id, number(now.as_millis())], read).optional()?;
    if let Some((key, starts, amount)) = settled {
        let (key, starts, amount): (String, i64, i64) = (key, starts, amount);
        transaction.execute(REPLACE, params![key, starts, amount, number(spent)])?;
    }
    Ok(transaction.commit()?)
}
