//! The types of the table.

use serde::{Deserialize, Serialize};
use tool_core::schemars::JsonSchema;

/// How warm it is measured.
#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) enum Unit {
    Celsius,
    Fahrenheit,
}

#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) enum Sky {
    /// not a cloud
    Clear,
    /// all grey
    Covered,
}

#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) enum Only {
    One,
}

#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) enum Shape {
    /// A round one.
    Circle {
        /// in metres
        radius: u32,
        colour: Option<String>,
    },
    Square(u32),
    Pair(u8, String),
    Dot,
}

#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Tagged {
    Metro {
        line: i32,
        #[serde(default)]
        stops: u8,
    },
    ByFoot(Inner),
    Home,
}

#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "t", content = "c")]
pub(crate) enum Adjacent {
    Text(String),
    Point { x: i32, y: Option<i32> },
    Nothing,
}

#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Either {
    Number(u8),
    Text(String),
    Both { number: u8, text: Option<String> },
}

#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct Inner {
    a: u8,
}

/// A place on Earth.
#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Place {
    /// as people call it
    short_name: String,
    #[serde(rename = "zip", alias = "postcode")]
    code: Option<String>,
    #[serde(default)]
    rating: u8,
    #[serde(default = "five")]
    nights: u32,
    #[serde(skip)]
    #[allow(dead_code)]
    secret: u8,
}

#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct Flat {
    x: i32,
    #[serde(flatten)]
    inner: Inner,
    last: bool,
}

#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct FlatChoice {
    x: i32,
    #[serde(flatten)]
    by: Tagged,
}

#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct Uses {
    /// the one's
    one: Inner,
    /// the other's
    other: Inner,
    /// the maybe's
    maybe: Option<Inner>,
    unit: Unit,
    /// the other unit's
    other_unit: Option<Unit>,
    plain: Option<Option<u8>>,
}

#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Closed {
    a: u8,
}

/// A tree.
#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct Tree {
    size: u8,
    /// the left one
    left: Option<Box<Tree>>,
    /// all others
    more: Vec<Tree>,
}

#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) enum Term {
    Number(u8),
    Minus {
        /// what is taken away
        of: Box<Term>,
    },
}

#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct Wrapped(u8);

#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct Nothing;

#[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct Holder<T> {
    held: Vec<T>,
    next: Option<Box<Holder<T>>>,
}

fn five() -> u32 {
    5
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
pub(crate) enum Key {
    Low,
    High,
}

pub(crate) mod forest {
    use super::*;

    /// A tree with another trunk.
    #[derive(Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
    pub(crate) struct Tree {
        branches: Vec<Tree>,
    }
}
