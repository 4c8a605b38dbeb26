//! An amount of money.
//!
//! The cost is part of `Usage`, because it is summed, split by agent, stored and shown wherever tokens are.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An amount of money: millionths of a unit of one currency, such as millionths of a dollar.
///
/// ```
/// use tool_core::model::{Cost, Currency};
///
/// let cost = Cost::new(1_250, Currency::USD);
/// assert_eq!(cost.to_string(), "0.00125 USD");
/// assert_eq!(Cost::usd(0.5), Cost::new(500_000, Currency::USD));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[must_use]
pub struct Cost {
    micros: u64,
    currency: Currency,
}

impl Cost {
    /// Creates an amount from millionths of a unit of the currency.
    pub const fn new(micros: u64, currency: Currency) -> Self {
        Self { micros, currency }
    }

    /// Creates an amount of US dollars, rounded to millionths. A negative amount is 0.
    pub fn usd(dollars: f64) -> Self {
        Self::new(to_micros(dollars), Currency::USD)
    }

    /// Returns the amount in millionths of a unit of the currency.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.micros
    }

    /// Returns the currency.
    pub const fn currency(self) -> Currency {
        self.currency
    }

    /// Returns the sum of two amounts, or `None` if their currencies differ.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let is_same = self.currency == other.currency;
        is_same.then(|| Self::new(self.micros.saturating_add(other.micros), self.currency))
    }

    /// Returns the sum of two amounts that can be unknown. One in another currency than the first is left out.
    pub(crate) fn sum(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(second)) => first.checked_add(second).or(Some(first)),
            _ => first.or(second),
        }
    }
}

/// Converts units to millionths.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "negative and large amounts saturate"
)]
pub(super) fn to_micros(units: f64) -> u64 {
    (units * 1e6).round() as u64
}

/// Writes units, such as `0.00125 USD`.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (units, micros) = (self.micros / 1_000_000, self.micros % 1_000_000);
        let digits = format!("{micros:06}");
        // Cents are always written.
        let digits = format!("{:0<2}", digits.trim_end_matches('0'));
        write!(f, "{units}.{digits} {}", self.currency)
    }
}

/// A currency, by its three letters in ISO 4217.
///
/// ```
/// use tool_core::model::Currency;
///
/// assert_eq!("EUR".parse(), Ok(Currency::EUR));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[must_use]
pub struct Currency([u8; 3]);

impl Currency {
    /// The US dollar.
    pub const USD: Self = Self(*b"USD");
    /// The euro.
    pub const EUR: Self = Self(*b"EUR");

    /// Returns the three letters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FromStr for Currency {
    type Err = CurrencyError;

    fn from_str(code: &str) -> Result<Self, CurrencyError> {
        match <[u8; 3]>::try_from(code.as_bytes()) {
            Ok(letters) if letters.iter().all(u8::is_ascii_uppercase) => Ok(Self(letters)),
            _ => Err(CurrencyError),
        }
    }
}

impl TryFrom<String> for Currency {
    type Error = CurrencyError;

    fn try_from(code: String) -> Result<Self, CurrencyError> {
        code.parse()
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> Self {
        currency.as_str().to_owned()
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error of a text that is no [`Currency`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a currency has three upper-case letters, such as `USD`")]
#[non_exhaustive]
pub struct CurrencyError;
