//! What an argument has to be.

use std::cmp::Ordering;
use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::schema::Bound;

/// What one argument has to be, and how the program writes it.
#[derive(Clone)]
pub struct ArgumentPattern {
    text: &'static str,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    /// `_`
    Any,
    /// `None`
    Absent,
    Equal(Value),
    Holds(Arc<dyn Fn(&Value) -> bool + Send + Sync>),
    OneOf(Vec<ArgumentPattern>),
    Object(Members),
    List {
        items: Vec<ArgumentPattern>,
        is_open: bool,
    },
}

/// The members of an object with their patterns.
#[derive(Clone)]
pub struct Members {
    members: Vec<(&'static str, ArgumentPattern)>,
    /// Others are allowed.
    is_open: bool,
}

impl Members {
    /// Creates the members.
    #[must_use]
    pub fn new(members: Vec<(&'static str, ArgumentPattern)>, is_open: bool) -> Self {
        Self { members, is_open }
    }

    /// Returns the first mistake of an object at this path, or `None` if it matches.
    pub(super) fn mismatch(&self, path: &str, object: &Map<String, Value>) -> Option<String> {
        let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for (name, pattern) in &self.members {
            let mismatch = pattern.mismatch(&at(name), object.get(*name));
            if mismatch.is_some() {
                return mismatch;
            }
        }
        if self.is_open {
            return None;
        }
        let is_other = |name: &str| {
            self.members.iter().all(|(expected, _)| *expected != name) && !object[name].is_null()
        };
        let other = object.keys().find(|name| is_other(name))?;
        Some(format!("`{}` is given, which the pattern does not have; `..` allows it", at(other)))
    }
}

impl ArgumentPattern {
    fn new(text: &'static str, kind: Kind) -> Self {
        Self { text, kind }
    }

    /// Any value but `null`.
    #[must_use]
    pub fn any() -> Self {
        Self::new("_", Kind::Any)
    }

    /// No value, or `null`.
    #[must_use]
    pub fn absent() -> Self {
        Self::new("None", Kind::Absent)
    }

    /// A value that is equal as JSON. Numbers are compared by their value.
    pub fn equal(text: &'static str, value: &(impl Serialize + ?Sized)) -> Self {
        // By its text, because a `Value` is not created from an integer of more than 64 bits.
        let value = serde_json::to_string(value).and_then(|text| serde_json::from_str(&text));
        // What cannot be written as JSON is equal to no argument.
        let kind = value.map_or(Kind::OneOf(Vec::new()), Kind::Equal);
        Self::new(text, kind)
    }

    /// A number in a range of numbers.
    #[must_use]
    pub fn numbers(text: &'static str, lowest: Option<Bound>, highest: Option<Bound>, is_open: bool) -> Self {
        let is_within = move |number: Bound| {
            let is_above = lowest.is_none_or(|lowest| number.compare(lowest).is_some_and(Ordering::is_ge));
            let order = highest.map_or(Some(Ordering::Less), |highest| number.compare(highest));
            is_above && order.is_some_and(|order| order.is_lt() || order.is_eq() && !is_open)
        };
        Self::new(text, Kind::Holds(Arc::new(move |value| Bound::from_json(value).is_some_and(is_within))))
    }

    /// A value in a range.
    pub fn within<T>(text: &'static str, range: impl RangeBounds<T> + Send + Sync + 'static) -> Self
    where
        T: DeserializeOwned + PartialOrd,
    {
        Self::that(text, move |value: T| range.contains(&value))
    }

    /// A value of this type for which the predicate holds.
    pub fn that<T: DeserializeOwned>(
        text: &'static str,
        holds: impl Fn(T) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::new(text, Kind::Holds(Arc::new(move |value| T::deserialize(value).is_ok_and(&holds))))
    }

    /// A value of this type for which the predicate, which borrows it, holds.
    pub fn that_ref<T: DeserializeOwned>(
        text: &'static str,
        holds: impl Fn(&T) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::that(text, move |value: T| holds(&value))
    }

    /// A list of values of this type for which the predicate holds.
    pub fn that_list<T: DeserializeOwned>(
        text: &'static str,
        holds: impl Fn(&[T]) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::that(text, move |values: Vec<T>| holds(&values))
    }

    /// A text for which the predicate holds.
    pub fn that_text(text: &'static str, holds: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self::new(text, Kind::Holds(Arc::new(move |value| value.as_str().is_some_and(&holds))))
    }

    /// One of these.
    #[must_use]
    pub fn one_of(text: &'static str, patterns: Vec<Self>) -> Self {
        Self::new(text, Kind::OneOf(patterns))
    }

    /// An object.
    #[must_use]
    pub fn object(text: &'static str, members: Members) -> Self {
        Self::new(text, Kind::Object(members))
    }

    /// A list, which can have further items behind these if it is open.
    #[must_use]
    pub fn list(text: &'static str, items: Vec<Self>, is_open: bool) -> Self {
        Self::new(text, Kind::List { items, is_open })
    }

    /// Returns the first mistake of the value at this path, or `None` if it matches. A value that is not given is `null`.
    fn mismatch(&self, path: &str, value: Option<&Value>) -> Option<String> {
        let given = value.unwrap_or(&Value::Null);
        let matches = match (&self.kind, given) {
            (Kind::Any, given) => !given.is_null(),
            (Kind::Absent, given) => given.is_null(),
            (Kind::Equal(expected), given) => is_equal(expected, given),
            (Kind::Holds(holds), given) => holds(given),
            (Kind::OneOf(patterns), _) => {
                patterns.iter().any(|pattern| pattern.mismatch(path, value).is_none())
            }
            (Kind::Object(members), Value::Object(object)) => return members.mismatch(path, object),
            (Kind::List { items, is_open }, Value::Array(values)) if values.len() >= items.len() => {
                let mut pairs = items.iter().zip(values).enumerate();
                let mismatch = pairs.find_map(|(index, (item, value))| {
                    item.mismatch(&format!("{path}[{index}]"), Some(value))
                });
                if mismatch.is_some() {
                    return mismatch;
                }
                *is_open || values.len() == items.len()
            }
            _ => false,
        };
        let state = || value.map_or_else(|| "missing".to_owned(), Value::to_string);
        (!matches).then(|| format!("`{path}` is {}, expected `{}`", state(), self.text))
    }
}

/// Omits values, which can be secret.
impl fmt::Debug for ArgumentPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut members = f.debug_struct("Members");
        for (name, pattern) in &self.members {
            members.field(name, pattern);
        }
        members.finish()
    }
}

/// Compares values. Numbers are equal if their values are, so that `7` is `7.0`, and a member that is `null` is not there.
fn is_equal(expected: &Value, value: &Value) -> bool {
    match (expected, value) {
        (Value::Number(_), Value::Number(_)) => {
            let numbers = Bound::from_json(expected).zip(Bound::from_json(value));
            numbers.and_then(|(expected, number)| expected.compare(number)).is_some_and(Ordering::is_eq)
        }
        (Value::Array(expected), Value::Array(values)) => {
            expected.len() == values.len()
                && expected.iter().zip(values).all(|(expected, value)| is_equal(expected, value))
        }
        (Value::Object(expected), Value::Object(object)) => {
            let is_given = |value: &&Value| !value.is_null();
            let has = |(name, expected): (&String, &Value)| {
                is_equal(expected, object.get(name).unwrap_or(&Value::Null))
            };
            let lengths = [expected, object].map(|object| object.values().filter(is_given).count());
            lengths[0] == lengths[1] && expected.iter().all(has)
        }
        _ => expected == value,
    }
}
