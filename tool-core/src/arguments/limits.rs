//! Limits of parameters: `range`, `length` and `pattern`. They are included in the schema and enforced on every call.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt;
use std::path::PathBuf;

use regex_lite::Regex;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

/// A limit of a parameter.
pub trait Limit: fmt::Debug + Sync {
    /// Adds the limit to the schema of the parameter.
    fn describe(&self, schema: &mut Value);

    /// Returns `true` if the argument, a JSON text that its type accepts, is within the limit.
    fn allows(&self, text: &str) -> bool;
}

/// The range of a number: `range = 1..=100`.
#[derive(Debug)]
pub struct Range {
    bounds: fn() -> Bounds,
}

/// The optional bounds of a range.
#[derive(Debug)]
pub struct Bounds {
    pub lowest: Option<Bound>,
    pub highest: Option<Bound>,
    /// `highest` itself is excluded.
    pub is_open: bool,
}

/// One bound of a range.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    Integer(i128),
    Number(f64),
}

impl Range {
    /// Creates the range of a parameter of type `T`.
    #[must_use]
    pub const fn new<T: Ranged>(bounds: fn() -> Bounds) -> Self {
        Self { bounds }
    }
}

impl Limit for Range {
    #[inline]
    fn describe(&self, schema: &mut Value) {
        let Bounds { lowest, highest, is_open } = (self.bounds)();
        if let Some(lowest) = lowest {
            schema["minimum"] = lowest.to_json();
        }
        match highest {
            // For integers, the inclusive bound is equivalent and more widely supported.
            Some(Bound::Integer(highest)) if is_open && is_integer_schema(schema) => {
                schema["maximum"] = Bound::Integer(highest.saturating_sub(1)).to_json();
            }
            Some(highest) if is_open => {
                schema["exclusiveMaximum"] = highest.to_json();
            }
            Some(highest) => schema["maximum"] = highest.to_json(),
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
fn is_integer_schema(schema: &Value) -> bool {
    match &schema["type"] {
        Value::Array(types) => types.iter().any(|name| name == "integer"),
        name => name == "integer",
    }
}

impl Bound {
    /// Converts a number of a schema.
    pub(crate) fn from_json(number: &Value) -> Option<Self> {
        let integer = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
        integer.map(Self::Integer).or_else(|| number.as_f64().map(Self::Number))
    }

    #[inline]
    fn to_json(self) -> Value {
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
            (bound, _) => parse_number(text).is_some_and(|number| bound.to_f64() <= number),
        }
    }

    #[inline]
    pub(crate) fn is_at_least(self, text: &str) -> bool {
        match (self, text.parse::<i128>()) {
            (Self::Integer(bound), Ok(number)) => bound >= number,
            (bound, _) => parse_number(text).is_some_and(|number| bound.to_f64() >= number),
        }
    }

    #[inline]
    fn to_f64(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Number(number) => number,
        }
    }
}

/// Parses a number. This uses the parser of serde_json, because that of the standard library would add to the size of every
/// program.
pub(crate) fn parse_number(text: &str) -> Option<f64> {
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

/// A number type, for `range`.
#[diagnostic::on_unimplemented(
    message = "`range` applies to numbers, not to `{Self}`",
    label = "use `length = …` for strings, lists and maps, or remove `range`"
)]
pub trait Ranged {
    /// The type of the bounds.
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

/// The length of a string in characters, of a list in items or of a map in entries: `length = 1..=64`.
#[derive(Debug)]
pub struct Length {
    shortest: Option<usize>,
    longest: Option<usize>,
}

impl Length {
    /// Creates the length of a parameter of type `T`.
    #[must_use]
    pub const fn new<T: Measured>(shortest: Option<usize>, longest: Option<usize>, is_open: bool) -> Self {
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
        let has_type = |name: &str| match &schema["type"] {
            Value::Array(types) => types.iter().any(|one| one == name),
            one => one == name,
        };
        let (shortest, longest) = if has_type("array") {
            ("minItems", "maxItems")
        } else if has_type("object") {
            ("minProperties", "maxProperties")
        } else {
            ("minLength", "maxLength")
        };
        for (keyword, length) in [(shortest, self.shortest), (longest, self.longest)] {
            if let Some(length) = length {
                schema[keyword] = length.into();
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

/// A string, list or map type, for `length`.
#[diagnostic::on_unimplemented(
    message = "`length` applies to strings, lists and maps, not to `{Self}`",
    label = "use `range = …` for numbers, or remove `length`"
)]
pub trait Measured {}

/// A string type, for `pattern`.
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

/// A regular expression that must match in a string: `pattern = "^[a-z]+$"`.
#[derive(Debug)]
pub struct Pattern {
    pattern: &'static str,
    regex: fn() -> Option<&'static Regex>,
}

impl Pattern {
    /// Creates the pattern of a parameter of type `T`. `regex` must always return the same compiled pattern.
    #[must_use]
    pub const fn new<T: Textual>(pattern: &'static str, regex: fn() -> Option<&'static Regex>) -> Self {
        Self { pattern, regex }
    }
}

/// The cell of a compiled pattern.
pub type PatternCell = std::sync::OnceLock<Option<Regex>>;

/// Returns the compiled pattern of a cell and compiles it on first use. The macro has checked that it is valid.
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
