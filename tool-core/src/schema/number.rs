//! Numbers as texts, so that no digit is lost.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

/// The maximum number of digits of an integer that is written with an exponent.
const MAX_DIGITS: usize = 40;

/// Returns an integer without fraction and exponent, such as `15000000` for `1.5E7`, or `None` if the number is not an
/// integer.
pub(crate) fn integer(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['.', 'e', 'E']) {
        // serde_json reads `-0` as a number with a fraction.
        return Some(if text == "-0" { Cow::Owned("0".into()) } else { Cow::Borrowed(text) });
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().ok()?;
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    // The position of the decimal point in the digits after the exponent is applied.
    let point = i64::try_from(whole.len()).ok()?.checked_add(exponent)?;
    let digits = format!("{whole}{fraction}");
    if digits.bytes().all(|digit| digit == b'0') {
        return Some(Cow::Owned("0".into()));
    }
    let point = usize::try_from(point).ok().filter(|point| *point <= MAX_DIGITS)?;
    let (integer, rest) = digits.split_at_checked(point).unwrap_or((&digits, ""));
    if rest.bytes().any(|digit| digit != b'0') {
        return None;
    }
    let integer = format!("{integer:0<point$}");
    let integer = integer.trim_start_matches('0');
    Some(Cow::Owned(if integer.is_empty() { "0".into() } else { format!("{sign}{integer}") }))
}

/// Returns the range of the Rust integer that a format names.
pub(super) fn integer_range(format: &str) -> Option<(i128, i128)> {
    Some(match format {
        "uint8" => (0, u8::MAX.into()),
        "uint16" => (0, u16::MAX.into()),
        "uint32" => (0, u32::MAX.into()),
        "uint64" | "uint" => (0, u64::MAX.into()),
        "int8" => (i8::MIN.into(), i8::MAX.into()),
        "int16" => (i16::MIN.into(), i16::MAX.into()),
        "int32" => (i32::MIN.into(), i32::MAX.into()),
        "int64" | "int" => (i64::MIN.into(), i64::MAX.into()),
        "int128" => (i128::MIN, i128::MAX),
        _ => return None,
    })
}

/// Parses a number. This uses the parser of serde_json, because the standard library's would add to the size of every
/// program.
pub(crate) fn parse_number(text: &str) -> Option<f64> {
    serde_json::from_str(text).ok()
}

/// A bound of a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// An integer, exactly.
    Integer(i128),
    /// Any other number.
    Number(f64),
}

impl Bound {
    /// Converts a number of a schema.
    pub(crate) fn from_json(number: &Value) -> Option<Self> {
        let integer = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
        integer.map(Self::Integer).or_else(|| number.as_f64().map(Self::Number))
    }

    pub(crate) fn to_json(self) -> Value {
        match self {
            Self::Integer(integer) => match (i64::try_from(integer), u64::try_from(integer)) {
                (Ok(integer), _) => integer.into(),
                (_, Ok(integer)) => integer.into(),
                _ => (integer as f64).into(),
            },
            Self::Number(number) => number.into(),
        }
    }

    /// Returns `true` if the bound is at most the number.
    pub(crate) fn is_at_most(self, text: &str) -> bool {
        self.compares(text, |bound, number| bound <= number, |bound, number| bound <= number)
    }

    /// Returns `true` if the bound is at least the number.
    pub(crate) fn is_at_least(self, text: &str) -> bool {
        self.compares(text, |bound, number| bound >= number, |bound, number| bound >= number)
    }

    /// Compares two numbers. One that is not a number is not comparable.
    pub(crate) fn compare(self, other: Self) -> Option<Ordering> {
        let number = |bound| match bound {
            Self::Integer(integer) => integer as f64,
            Self::Number(number) => number,
        };
        match (self, other) {
            (Self::Integer(one), Self::Integer(other)) => Some(one.cmp(&other)),
            (one, other) => number(one).partial_cmp(&number(other)),
        }
    }

    fn compares(self, text: &str, integers: fn(i128, i128) -> bool, numbers: fn(f64, f64) -> bool) -> bool {
        match (self, integer(text).and_then(|integer| integer.parse().ok())) {
            (Self::Integer(bound), Some(number)) => integers(bound, number),
            (Self::Integer(bound), None) => {
                parse_number(text).is_some_and(|number| numbers(bound as f64, number))
            }
            (Self::Number(bound), _) => parse_number(text).is_some_and(|number| numbers(bound, number)),
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(integer) => integer.fmt(f),
            Self::Number(number) => Value::from(*number).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_in_any_notation() {
        let table = [
            ("1.0", Some("1")),
            ("-2.00", Some("-2")),
            ("1.5E7", Some("15000000")),
            ("1e3", Some("1000")),
            ("120e-1", Some("12")),
            ("0.0", Some("0")),
            ("-0.0", Some("0")),
            ("-0", Some("0")),
            ("0e999999999", Some("0")),
            ("0.5e1", Some("5")),
            ("9007199254740993.0", Some("9007199254740993")),
            ("1.5", None),
            ("1e-1", None),
            ("1e400", None),
            ("1e99999999999999999999", None),
            ("1.05e1", None),
        ];
        for (text, expected) in table {
            assert_eq!(integer(text).as_deref(), expected, "{text}");
        }
    }
}
