//! Which values go into which slots, and how well.

use serde_json::{Number, Value};

use super::facts::{self, Fact, Holds};
use super::schema::{Flavour, Shape};

/// How well a value goes into such a slot, and as what.
pub(crate) fn fit(shape: &Shape, fact: &Fact) -> Option<(f64, Option<Value>)> {
    let text = &fact.text;
    let (worth, value) = match (shape, &fact.holds) {
        (Shape::Text(flavour), Holds::Pending(_)) => {
            return Some((worth(*flavour, &Holds::Known).max(1.0), None));
        }
        (Shape::Number { .. } | Shape::List(_) | Shape::OneOf(_) | Shape::Boolean, Holds::Pending(_)) => {
            return Some((5.0, None));
        }
        // The "two" of "two charges of 5 and 7" gives way to figures.
        (Shape::Number { is_integer }, Holds::Number(number)) if text.starts_with(char::is_alphabetic) => {
            (4.5, as_number(number, *is_integer)?)
        }
        (Shape::Number { is_integer }, Holds::Number(number)) => (5.0, as_number(number, *is_integer)?),
        (Shape::Number { is_integer }, Holds::Known) => {
            (5.0, as_number(&facts::number_of(text)?, *is_integer)?)
        }
        (Shape::Text(Flavour::Mail { .. }), Holds::Known) => (8.0, facts::email_of(text)?.into()),
        (Shape::Text(flavour), holds) => (worth(*flavour, holds), text.clone().into()),
        (Shape::List(_), Holds::Known) => (5.0, serde_json::from_str(text).ok().filter(Value::is_array)?),
        (Shape::Boolean, Holds::Known) => (5.0, text.trim().parse::<bool>().ok()?.into()),
        (Shape::OneOf(values), Holds::Known) => (
            5.0,
            values
                .iter()
                .find(|value| value.as_str().is_some_and(|one| one.eq_ignore_ascii_case(text.trim())))?
                .clone(),
        ),
        _ => return None,
    };
    (worth > 0.0).then_some((worth, Some(value)))
}

/// A number as it is; for an integer, one without a fraction.
fn as_number(number: &Number, is_integer: bool) -> Option<Value> {
    if !is_integer || number.is_i64() || number.is_u64() {
        return Some(number.clone().into());
    }
    let whole = format!("{:.0}", number.as_f64().filter(|number| number.fract() == 0.0)?);
    whole.parse::<i64>().ok().map(Value::from)
}

/// How well a text goes into a parameter of such a flavour.
fn worth(flavour: Flavour, holds: &Holds) -> f64 {
    match (flavour, holds) {
        (Flavour::Mail { .. }, Holds::Email)
        | (Flavour::Link, Holds::Url)
        | (Flavour::Date { .. }, Holds::Date { is_iso: true })
        | (Flavour::Date { is_strict: false }, Holds::Date { .. })
        | (Flavour::Time, Holds::Time)
        | (Flavour::Formula, Holds::Formula) => 8.0,
        (Flavour::Mail { is_strict: true } | Flavour::Date { is_strict: true }, _) => 0.0,
        (Flavour::Long, Holds::Speech) => 6.0,
        (Flavour::Long | Flavour::Formula, Holds::Quoted) => 5.0,
        (Flavour::Code, Holds::Number(_) | Holds::Quoted | Holds::Name) => 4.0,
        (Flavour::Plain, Holds::Quoted | Holds::Name) | (Flavour::Long, Holds::Known) => 4.0,
        (Flavour::Long, Holds::Phrase { is_whole: true }) => 3.0,
        (Flavour::Plain, Holds::Phrase { is_whole: false }) => 2.5,
        (Flavour::Mail { .. }, Holds::Name) => 2.5,
        (Flavour::Plain, Holds::Date { .. } | Holds::Time | Holds::Url | Holds::Email) => 2.0,
        (Flavour::Formula, Holds::Phrase { is_whole: true }) => 2.0,
        (Flavour::Plain, Holds::Known) => 1.5,
        (Flavour::Plain | Flavour::Long, Holds::Number(_)) => 0.5,
        (
            _,
            Holds::Phrase { is_whole: true }
            | Holds::Speech
            | Holds::Formula
            | Holds::Number(_)
            | Holds::Known
            | Holds::Pending(_),
        ) => 0.0,
        (
            _,
            Holds::Quoted
            | Holds::Email
            | Holds::Url
            | Holds::Date { .. }
            | Holds::Time
            | Holds::Name
            | Holds::Phrase { .. },
        ) => 1.0,
    }
}
