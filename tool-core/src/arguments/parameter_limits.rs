//! Limits of parameters: `range`, `length` and `pattern`. They are included in the schema and enforced on every call.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::path::PathBuf;

use serde_json::Value;

use crate::schema::Bound;

/// A limit of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// The range of a number: `range = 1..=100`.
    Range(fn() -> Bounds),
    /// The length of a string in characters, of a list in items or of a map in entries: `length = 1..=64`.
    Length { shortest: Option<usize>, longest: Option<usize> },
    /// A regular expression that must match in a string: `pattern = "^[a-z]+$"`.
    Pattern(&'static str),
}

/// The optional bounds of a range.
#[derive(Debug)]
pub struct Bounds {
    pub lowest: Option<Bound>,
    pub highest: Option<Bound>,
    /// `highest` itself is excluded.
    pub is_open: bool,
}

impl Limit {
    /// Creates the range of a parameter of type `T`.
    #[must_use]
    pub const fn range<T: Ranged>(bounds: fn() -> Bounds) -> Self {
        Self::Range(bounds)
    }

    /// Creates the length of a parameter of type `T`.
    #[must_use]
    pub const fn length<T: Measured>(shortest: Option<usize>, longest: Option<usize>, is_open: bool) -> Self {
        let longest = match longest {
            Some(longest) if is_open => Some(longest.saturating_sub(1)),
            longest => longest,
        };
        Self::Length { shortest, longest }
    }

    /// Creates the pattern of a parameter of type `T`. The macro has checked that it is valid.
    #[must_use]
    pub const fn pattern<T: Textual>(pattern: &'static str) -> Self {
        Self::Pattern(pattern)
    }

    /// Adds the limit to the schema of the parameter.
    pub(crate) fn describe(&self, schema: &mut Value) {
        let has_type = |name: &str| match &schema["type"] {
            Value::Array(types) => types.iter().any(|one| one == name),
            one => one == name,
        };
        match *self {
            Self::Range(bounds) => {
                for (keyword, bound) in bounds().keywords(has_type("integer")) {
                    if let Some(bound) = bound {
                        schema[keyword] = bound.to_json();
                    }
                }
            }
            Self::Length { shortest, longest } => {
                let keywords = if has_type("array") {
                    ["minItems", "maxItems"]
                } else if has_type("object") {
                    ["minProperties", "maxProperties"]
                } else {
                    ["minLength", "maxLength"]
                };
                for (keyword, length) in keywords.into_iter().zip([shortest, longest]) {
                    if let Some(length) = length {
                        schema[keyword] = length.into();
                    }
                }
            }
            Self::Pattern(pattern) => schema["pattern"] = pattern.into(),
        }
    }
}

impl Bounds {
    /// Returns the keywords of a schema. For integers, the inclusive bound is equivalent and more widely supported.
    fn keywords(self, is_integer: bool) -> [(&'static str, Option<Bound>); 2] {
        let highest = match self.highest {
            Some(Bound::Integer(highest)) if self.is_open && is_integer => {
                ("maximum", Some(Bound::Integer(highest.saturating_sub(1))))
            }
            highest if self.is_open => ("exclusiveMaximum", highest),
            highest => ("maximum", highest),
        };
        [("minimum", self.lowest), highest]
    }
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

macro_rules! collections {
    ($([$($generic:ident),*] $collection:ty,)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($generic),*> Measured for $collection {}
    )*};
}

collections! {
    [T] Vec<T>, [T] VecDeque<T>, [T] Box<[T]>, [T] BTreeSet<T>, [T, S] HashSet<T, S>,
    [K, V] BTreeMap<K, V>, [K, V, S] HashMap<K, V, S>,
}
