//! `range`, `length` and `pattern`: what the schema promises of an argument, and is held to.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt;
use std::path::PathBuf;

use regex_lite::Regex;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

/// One limit of an argument.
pub trait Limit: fmt::Debug + Sync {
    /// Says it in the parameter's schema.
    fn describe(&self, schema: &mut Value);

    /// The argument, a JSON text that its type reads, keeps to it.
    fn allows(&self, text: &str) -> bool;
}

/// `range = 1..=100`
#[derive(Debug)]
pub struct Range {
    bounds: fn() -> Bounds,
}

/// The bounds of a range, each if there is one.
#[derive(Debug)]
pub struct Bounds {
    pub lowest: Option<Bound>,
    pub highest: Option<Bound>,
    /// The highest is itself not allowed.
    pub is_open: bool,
}

/// One bound of a range.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    Integer(i128),
    Number(f64),
}

impl Range {
    /// The range of a parameter of type `T`.
    #[must_use]
    pub const fn of<T: Ranged>(bounds: fn() -> Bounds) -> Self {
        Self { bounds }
    }
}

impl Limit for Range {
    #[inline]
    fn describe(&self, schema: &mut Value) {
        let Bounds { lowest, highest, is_open } = (self.bounds)();
        if let Some(lowest) = lowest {
            schema["minimum"] = lowest.json();
        }
        match highest {
            // Of integers the one below is the highest; so every reader of schemas understands it.
            Some(Bound::Integer(highest)) if is_open && schema_is_of_integers(schema) => {
                schema["maximum"] = Bound::Integer(highest.saturating_sub(1)).json();
            }
            Some(highest) if is_open => {
                schema["exclusiveMaximum"] = highest.json();
            }
            Some(highest) => schema["maximum"] = highest.json(),
            None => {}
        }
    }

    #[inline]
    fn allows(&self, text: &str) -> bool {
        let Bounds { lowest, highest, is_open } = (self.bounds)();
        let is_above = lowest.is_none_or(|bound| bound.is_at_most(text));
        let is_below = highest.is_none_or(|bound| match is_open {
            true => !bound.is_at_most(text),
            false => bound.is_at_least(text),
        });
        is_above && is_below
    }
}

#[inline]
fn schema_is_of_integers(schema: &Value) -> bool {
    match &schema["type"] {
        Value::Array(types) => types.iter().any(|name| name == "integer"),
        name => name == "integer",
    }
}

impl Bound {
    /// A number of a schema.
    pub(crate) fn of(number: &Value) -> Option<Self> {
        let integer = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
        integer.map(Self::Integer).or_else(|| number.as_f64().map(Self::Number))
    }

    #[inline]
    fn json(self) -> Value {
        match self {
            Self::Integer(integer) => match (i64::try_from(integer), u64::try_from(integer)) {
                (Ok(integer), _) => integer.into(),
                (_, Ok(integer)) => integer.into(),
                _ => (integer as f64).into(),
            },
            Self::Number(number) => number.into(),
        }
    }

    #[inline]
    pub(crate) fn is_at_most(self, text: &str) -> bool {
        match (self, text.parse::<i128>()) {
            (Self::Integer(bound), Ok(number)) => bound <= number,
            (bound, _) => number(text).is_some_and(|number| bound.number() <= number),
        }
    }

    #[inline]
    pub(crate) fn is_at_least(self, text: &str) -> bool {
        match (self, text.parse::<i128>()) {
            (Self::Integer(bound), Ok(number)) => bound >= number,
            (bound, _) => number(text).is_some_and(|number| bound.number() >= number),
        }
    }

    #[inline]
    fn number(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Number(number) => number,
        }
    }
}

/// The number in a text. The standard library's own reader would be one more in every program.
pub(crate) fn number(text: &str) -> Option<f64> {
    serde_json::from_str(text).ok()
}

macro_rules! numbers {
    ($variant:ident as $wide:ty: $($number:ty)*) => {
        $(
            impl From<$number> for Bound {
                fn from(number: $number) -> Self {
                    Self::$variant(number as $wide)
                }
            }

            #[diagnostic::do_not_recommend]
            impl Ranged for $number {
                type Number = $number;
            }
        )*
    };
}

/// A number, of which a `range` can be given.
#[diagnostic::on_unimplemented(
    message = "`range` applies to numbers, not to `{Self}`",
    label = "use `length = …` for strings, lists and maps, or remove `range`"
)]
pub trait Ranged {
    /// The type of its bounds.
    type Number;
}

numbers!(Integer as i128: u8 u16 u32 u64 usize i8 i16 i32 i64 i128 isize);
numbers!(Number as f64: f32 f64);

#[diagnostic::do_not_recommend]
impl Ranged for u128 {
    type Number = u64;
}

#[diagnostic::do_not_recommend]
impl<T: Ranged> Ranged for Option<T> {
    type Number = T::Number;
}

/// `length = 1..=64`: of a text in characters, of a list in items, of a map in entries.
#[derive(Debug)]
pub struct Length {
    shortest: Option<usize>,
    longest: Option<usize>,
}

impl Length {
    /// The length of a parameter of type `T`.
    #[must_use]
    pub const fn of<T: Measured>(shortest: Option<usize>, longest: Option<usize>, is_open: bool) -> Self {
        let longest = match longest {
            Some(longest) if is_open => Some(longest.saturating_sub(1)),
            longest => longest,
        };
        Self { shortest, longest }
    }
}

impl Limit for Length {
    #[inline]
    fn describe(&self, schema: &mut Value) {
        let is_of = |name: &str| match &schema["type"] {
            Value::Array(types) => types.iter().any(|one| one == name),
            one => one == name,
        };
        let (shortest, longest) = if is_of("array") {
            ("minItems", "maxItems")
        } else if is_of("object") {
            ("minProperties", "maxProperties")
        } else {
            ("minLength", "maxLength")
        };
        for (word, length) in [(shortest, self.shortest), (longest, self.longest)] {
            if let Some(length) = length {
                schema[word] = length.into();
            }
        }
    }

    #[inline]
    fn allows(&self, text: &str) -> bool {
        let length = match text.as_bytes().first() {
            Some(b'"') => serde_json::from_str::<Cow<'_, str>>(text).ok().map(|text| text.chars().count()),
            Some(b'[') => serde_json::from_str::<Vec<IgnoredAny>>(text).ok().map(|items| items.len()),
            Some(b'{') => {
                serde_json::from_str::<BTreeMap<String, &RawValue>>(text).ok().map(|entries| entries.len())
            }
            _ => None,
        };
        let Some(length) = length else { return true };
        self.shortest.is_none_or(|shortest| shortest <= length)
            && self.longest.is_none_or(|longest| longest >= length)
    }
}

/// A text, list or map, of which a `length` can be given.
#[diagnostic::on_unimplemented(
    message = "`length` applies to strings, lists and maps, not to `{Self}`",
    label = "use `range = …` for numbers, or remove `length`"
)]
pub trait Measured {}

/// A text, of which a `pattern` can be given.
#[diagnostic::on_unimplemented(
    message = "`pattern` applies to strings, not to `{Self}`",
    label = "use `String` or `&str`, or remove `pattern`"
)]
pub trait Textual {}

macro_rules! texts {
    ($($text:ty)*) => {
        $(
            #[diagnostic::do_not_recommend]
            impl Textual for $text {}

            #[diagnostic::do_not_recommend]
            impl Measured for $text {}
        )*
    };
}

texts!(String Box<str> std::sync::Arc<str> std::rc::Rc<str> Cow<'static, str> PathBuf);

#[diagnostic::do_not_recommend]
impl<T: Textual> Textual for Option<T> {}

#[diagnostic::do_not_recommend]
impl<T: Measured> Measured for Option<T> {}

#[diagnostic::do_not_recommend]
impl<T> Measured for Vec<T> {}
#[diagnostic::do_not_recommend]
impl<T> Measured for VecDeque<T> {}
#[diagnostic::do_not_recommend]
impl<T> Measured for Box<[T]> {}
#[diagnostic::do_not_recommend]
impl<T> Measured for BTreeSet<T> {}
#[diagnostic::do_not_recommend]
impl<T, S> Measured for HashSet<T, S> {}
#[diagnostic::do_not_recommend]
impl<K, V> Measured for BTreeMap<K, V> {}
#[diagnostic::do_not_recommend]
impl<K, V, S> Measured for HashMap<K, V, S> {}

/// `pattern = "^[a-z]+$"`: a text in which the regular expression is found.
#[derive(Debug)]
pub struct Pattern {
    pattern: &'static str,
    regex: fn() -> Option<&'static Regex>,
}

impl Pattern {
    /// The pattern of a parameter of type `T`; `regex` gives it compiled, always the same.
    #[must_use]
    pub const fn of<T: Textual>(pattern: &'static str, regex: fn() -> Option<&'static Regex>) -> Self {
        Self { pattern, regex }
    }
}

/// The place of a compiled pattern.
pub type PatternCell = std::sync::OnceLock<Option<Regex>>;

/// The pattern of a place, compiled when it is first asked for. The macro saw to it that it is one.
#[inline]
pub fn compiled(cell: &'static PatternCell, pattern: &str) -> Option<&'static Regex> {
    cell.get_or_init(|| Regex::new(pattern).ok()).as_ref()
}

impl Limit for Pattern {
    #[inline]
    fn describe(&self, schema: &mut Value) {
        schema["pattern"] = self.pattern.into();
    }

    #[inline]
    fn allows(&self, text: &str) -> bool {
        let Ok(text) = serde_json::from_str::<Cow<'_, str>>(text) else { return true };
        (self.regex)().is_some_and(|regex| regex.is_match(&text))
    }
}
