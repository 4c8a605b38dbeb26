//! Scores how well a value fits a slot.

use serde_json::{Number, Value};

use crate::facts::{self, Fact, FactKind};
use crate::slots::{SlotKind, TextKind};

/// Returns the score of a fact for a kind of slot and the converted value; no value if it is a pending result.
pub(crate) fn fit(slot_kind: &SlotKind, fact: &Fact) -> Option<(f64, Option<Value>)> {
    let text = &fact.text;
    if fact.offset_seconds.is_some() {
        let score = match slot_kind {
            SlotKind::Text(TextKind::Time | TextKind::Date { .. }) => 8.0,
            SlotKind::Text(TextKind::Plain) => 2.0,
            _ => return None,
        };
        return Some((score, Some(fact.text.clone().into()).filter(|_| fact.kind == FactKind::Result)));
    }
    let (score, value) = match (slot_kind, &fact.kind) {
        (SlotKind::Text(text_kind), FactKind::PendingResult(_)) => {
            return Some((text_score(*text_kind, &FactKind::Result).max(1.0), None));
        }
        (
            SlotKind::Number { .. } | SlotKind::List(_) | SlotKind::OneOf(_) | SlotKind::Boolean,
            FactKind::PendingResult(_),
        ) => {
            return Some((5.0, None));
        }
        // In "two charges of 5 and 7", digits win over the "two".
        (SlotKind::Number { is_integer }, FactKind::Number(number))
            if text.starts_with(char::is_alphabetic) =>
        {
            (4.5, as_number(number, *is_integer)?)
        }
        (SlotKind::Number { is_integer }, FactKind::Number(number)) => (5.0, as_number(number, *is_integer)?),
        (SlotKind::Number { is_integer }, FactKind::Result) => {
            (5.0, as_number(&facts::number_in(text)?, *is_integer)?)
        }
        (SlotKind::Text(TextKind::Mail { .. }), FactKind::Result) => (8.0, facts::email_in(text)?.into()),
        (SlotKind::Text(text_kind), kind) => (text_score(*text_kind, kind), text.clone().into()),
        (SlotKind::List(_), FactKind::Result) => {
            (5.0, serde_json::from_str(text).ok().filter(Value::is_array)?)
        }
        (SlotKind::Boolean, FactKind::Result) => (5.0, text.trim().parse::<bool>().ok()?.into()),
        (SlotKind::OneOf(values), FactKind::Result) => (
            5.0,
            values
                .iter()
                .find(|value| value.as_str().is_some_and(|one| one.eq_ignore_ascii_case(text.trim())))?
                .clone(),
        ),
        _ => return None,
    };
    (score > 0.0).then_some((score, Some(value)))
}

/// Returns the number, or for an integer slot a number without a fraction.
fn as_number(number: &Number, is_integer: bool) -> Option<Value> {
    if !is_integer || number.is_i64() || number.is_u64() {
        return Some(number.clone().into());
    }
    let whole = format!("{:.0}", number.as_f64().filter(|number| number.fract() == 0.0)?);
    whole.parse::<i64>().ok().map(Value::from)
}

/// Scores a value for a slot of a kind of text.
fn text_score(text_kind: TextKind, kind: &FactKind) -> f64 {
    match (text_kind, kind) {
        (TextKind::Mail { .. }, FactKind::Email)
        | (TextKind::Link, FactKind::Url)
        | (TextKind::Date { .. }, FactKind::Date { is_iso: true })
        | (TextKind::Date { is_strict: false }, FactKind::Date { .. })
        | (TextKind::Time, FactKind::Time)
        | (TextKind::Formula, FactKind::Formula) => 8.0,
        (TextKind::Mail { is_strict: true } | TextKind::Date { is_strict: true }, _) => 0.0,
        (TextKind::Long, FactKind::Speech) => 6.0,
        (TextKind::Long | TextKind::Formula, FactKind::Quoted) => 5.0,
        (TextKind::Code, FactKind::Number(_) | FactKind::Quoted | FactKind::Name) => 4.0,
        (TextKind::Plain, FactKind::Quoted | FactKind::Name) | (TextKind::Long, FactKind::Result) => 4.0,
        (TextKind::Long, FactKind::Phrase { is_whole: true }) => 3.0,
        (TextKind::Plain, FactKind::Phrase { is_whole: false }) => 2.5,
        (TextKind::Mail { .. }, FactKind::Name) => 2.5,
        (TextKind::Time | TextKind::Date { .. }, FactKind::Relative { .. }) => 4.0,
        (
            TextKind::Plain,
            FactKind::Date { .. }
            | FactKind::Relative { .. }
            | FactKind::Time
            | FactKind::Url
            | FactKind::Email,
        ) => 2.0,
        (TextKind::Formula, FactKind::Phrase { is_whole: true }) => 2.0,
        (TextKind::Plain, FactKind::Result) => 1.5,
        (TextKind::Plain | TextKind::Long, FactKind::Number(_)) => 0.5,
        (
            _,
            FactKind::Phrase { is_whole: true }
            | FactKind::Speech
            | FactKind::Formula
            | FactKind::Number(_)
            | FactKind::Relative { .. }
            | FactKind::Result
            | FactKind::PendingResult(_),
        ) => 0.0,
        (
            _,
            FactKind::Quoted
            | FactKind::Email
            | FactKind::Url
            | FactKind::Date { .. }
            | FactKind::Time
            | FactKind::Name
            | FactKind::Phrase { .. },
        ) => 1.0,
    }
}
