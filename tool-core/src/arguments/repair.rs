//! Repair of values that have the wrong form but a clear meaning, guided by a schema.
//!
//! A repair is attempted only after strict parsing failed, and only on the values that failed. It guesses nothing and loses
//! nothing: where an integer is required, a number with a fraction remains an error, and so does a string that is not a
//! number. Values are rewritten as text, so numbers of any length keep all their digits.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::budget::Budget;
use super::matching::{has_type, probable_choices};
use super::members::{Members, items, write_object};
use super::tokens::duplicate_members;
use crate::schema::{Kind, NodeId, SchemaOf, Shape, ShapeNode, integer};

/// The maximum number of lists that are nested around a single value.
const MAX_ADDED_LISTS: u8 = 3;

/// The number of name comparisons that count as reading one byte.
const COMPARISONS_PER_BYTE: usize = 8;

/// The cost in bytes of one case-insensitive comparison.
const CASE_INSENSITIVE_COMPARISON: usize = 8;

/// The repair of one argument before the tool was called.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    argument: Option<String>,
    #[serde(rename = "from")]
    original: String,
    #[serde(rename = "to")]
    repaired: String,
}

impl Repair {
    pub(crate) fn for_argument(name: &str, from: &str, to: &str) -> Self {
        Self { argument: Some(name.into()), original: from.into(), repaired: to.into() }
    }

    /// Records an ignored argument, which the tool does not have.
    pub(crate) fn for_ignored(name: &str, from: &str) -> Self {
        Self { argument: Some(name.into()), original: from.into(), repaired: String::new() }
    }

    pub(crate) fn for_text(from: &str, to: &str) -> Self {
        Self { argument: None, original: from.into(), repaired: to.into() }
    }

    /// Returns the name of the argument, or `None` if the text of all arguments was repaired because it was not valid JSON.
    #[must_use]
    pub fn argument(&self) -> Option<&str> {
        self.argument.as_deref()
    }

    /// Returns the text that the model wrote.
    #[must_use]
    pub fn original(&self) -> &str {
        &self.original
    }

    /// Returns the JSON that the tool received, which is empty if the argument [was ignored](Self::is_ignored).
    #[must_use]
    pub fn repaired(&self) -> &str {
        &self.repaired
    }

    /// Returns `true` if the argument was removed because the tool does not have it and its set
    /// [ignores unknown arguments](crate::ToolSet::ignore_unknown_arguments).
    #[must_use]
    pub fn is_ignored(&self) -> bool {
        self.repaired.is_empty()
    }
}

/// Omits the values, which may be secrets.
impl fmt::Debug for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repair").field("argument", &self.argument).finish_non_exhaustive()
    }
}

/// Repairs the parts of a value that can be repaired. Returns `None` if there are none.
pub(super) fn repair(shape: &Shape, node: NodeId, text: &str) -> Option<String> {
    Repairer::new(shape, text).run(node, text)
}

/// Repairs only one part of a value, where its type refused it.
pub(super) fn repair_part(shape: &Shape, node: NodeId, text: &str, part: &str) -> Option<String> {
    let start = part.as_ptr().addr();
    let only = Some(start..start + part.len());
    Repairer { only, ..Repairer::new(shape, text) }.run(node, text)
}

/// Removes each `null` of a member that is optional and not nullable: it means that the member is omitted. In strict mode, a
/// model must provide every argument. Returns `None` if there is none.
pub(super) fn without_omitted(shape: &Shape, node: NodeId, text: &str) -> Option<String> {
    if !text.contains("null") {
        return None;
    }
    Repairer { only_nulls: true, ..Repairer::new(shape, text) }.run(node, text)
}

/// Removes each such `null` from the arguments of a tool with these parameters. Their shape is parsed when it is first needed.
pub(crate) fn without_omitted_arguments(
    shape: &OnceLock<Shape>,
    parameters: &Value,
    text: &str,
) -> Option<String> {
    // A text with duplicates is refused as the model wrote it.
    if !text.contains("null") || !duplicate_members(text).is_empty() {
        return None;
    }
    let shape = shape.get_or_init(|| Shape::parse(parameters, SchemaOf::Document));
    without_omitted(shape, shape.root(), text)
}

struct Repairer<'s> {
    shape: &'s Shape,
    /// Only the `null`s of omitted members are removed.
    only_nulls: bool,
    /// Parts that cannot be repaired are left unchanged.
    is_partial: bool,
    /// The addresses of the only part to repair.
    only: Option<Range<usize>>,
    budget: Budget,
    /// The number of lists that were added around the current value. For a type that is a list of itself, it would grow
    /// without end.
    lists: u8,
}

impl<'s> Repairer<'s> {
    fn new(shape: &'s Shape, text: &str) -> Self {
        let budget = Budget::for_text(text);
        Self { shape, only_nulls: false, is_partial: true, only: None, budget, lists: 0 }
    }

    fn run(mut self, node: NodeId, text: &str) -> Option<String> {
        match self.repair(node, text.trim_ascii(), 0)? {
            Cow::Owned(repaired) => Some(repaired),
            Cow::Borrowed(_) => None,
        }
    }

    /// Repairs a part of a value, or leaves it unchanged if that is allowed.
    fn repair_part<'a>(&mut self, node: Option<NodeId>, text: &'a str, depth: usize) -> Option<Cow<'a, str>> {
        let Some(node) = node else { return Some(Cow::Borrowed(text)) };
        let repaired = self.repair(node, text, depth + 1);
        repaired.or_else(|| self.is_partial.then_some(Cow::Borrowed(text)))
    }

    /// Returns the value in the form that the schema requires: borrowed if it has that form already, `None` if it cannot be
    /// repaired.
    fn repair<'a>(&mut self, id: NodeId, text: &'a str, depth: usize) -> Option<Cow<'a, str>> {
        self.budget.spend(text.len(), depth)?;
        let node = self.shape.node(id);
        if node.is_never {
            return None;
        }
        // The tag of a variant is compared even so.
        if node.constants.is_none() && self.only.as_ref().is_some_and(|only| !overlaps(only, text)) {
            return Some(Cow::Borrowed(text));
        }
        let mut repaired = self.repair_by_choices(node, text, depth)?;
        if let Cow::Owned(next) = self.repair_by_itself(node, &repaired, depth)? {
            repaired = Cow::Owned(next);
        }
        for part in &node.all {
            if let Cow::Owned(next) = self.repair(*part, &repaired, depth + 1)? {
                repaired = Cow::Owned(next);
            }
        }
        Some(repaired)
    }

    fn repair_by_choices<'a>(
        &mut self,
        node: &ShapeNode,
        text: &'a str,
        depth: usize,
    ) -> Option<Cow<'a, str>> {
        if node.choices.is_empty() {
            return Some(Cow::Borrowed(text));
        }
        // An alternative must hold as a whole, or else any could be chosen.
        let is_partial = std::mem::take(&mut self.is_partial);
        let has_kind = |repaired: &str| Kind::of(repaired) == Kind::of(text);
        let mut best: Option<Cow<'a, str>> = None;
        for choice in &node.choices {
            match self.repair(*choice, text, depth + 1) {
                Some(Cow::Borrowed(text)) => {
                    best = Some(Cow::Borrowed(text));
                    break;
                }
                // A number remains a number, although it could also be written as a string.
                Some(repaired) if best.as_ref().is_none_or(|best| !has_kind(best) && has_kind(&repaired)) => {
                    best = Some(repaired);
                }
                _ => {}
            }
        }
        self.is_partial = is_partial;
        if best.is_some() || !is_partial {
            return best;
        }
        match *probable_choices(self.shape, node, text, |choice| has_type(choice, text)) {
            [choice] => self.repair_part(Some(choice), text, depth),
            _ => Some(Cow::Borrowed(text)),
        }
    }

    /// Repairs a value by the keywords of a schema itself.
    fn repair_by_itself<'a>(
        &mut self,
        node: &ShapeNode,
        text: &'a str,
        depth: usize,
    ) -> Option<Cow<'a, str>> {
        if let Some(constants) = &node.constants {
            self.budget.spend(constants.len().saturating_mul(CASE_INSENSITIVE_COMPARISON), depth)?;
            return self.repair_constant(constants, text);
        }
        match Kind::of(text)? {
            Kind::Array if node.allows_type("array") => self.repair_list(node, text, depth),
            Kind::Object if node.allows_type("object") => self.repair_object(node, text, depth),
            // A number where `number` is allowed. The name of its kind is never `integer`.
            kind if node.allows_type(kind.name()) => Some(Cow::Borrowed(text)),
            // Any other number can still be a string, if one is allowed.
            Kind::Number if node.allows_type("integer") && integer(text).is_some() => {
                integer(text).filter(|integer| !self.only_nulls || *integer == text)
            }
            _ if self.only_nulls => None,
            Kind::String => match decoded(node, text) {
                Some(decoded) => {
                    Some(Cow::Owned(self.repair_by_itself(node, &decoded, depth + 1)?.into_owned()))
                }
                None => self.repair_single(node, text, depth),
            },
            Kind::Number if node.allows_type("string") => Some(Cow::Owned(format!("\"{text}\""))),
            Kind::Null | Kind::Array => None,
            Kind::Number | Kind::Boolean | Kind::Object => self.repair_single(node, text, depth),
        }
    }

    /// Puts a single value into the list that is required.
    fn repair_single<'a>(&mut self, node: &ShapeNode, text: &'a str, depth: usize) -> Option<Cow<'a, str>> {
        if !node.names_type("array") || !node.limits.items.allows(1) || self.lists == MAX_ADDED_LISTS {
            return None;
        }
        self.lists += 1;
        let item = match node.items {
            Some(items) => self.repair(items, text, depth + 1),
            None => Some(Cow::Borrowed(text)),
        };
        self.lists -= 1;
        Some(Cow::Owned(format!("[{}]", item?)))
    }

    fn repair_list<'a>(&mut self, node: &ShapeNode, text: &'a str, depth: usize) -> Option<Cow<'a, str>> {
        let values = items(text).into_iter().enumerate();
        let values = values.map(|(index, value)| self.repair_part(node.item(index), value, depth));
        let values: Vec<_> = values.collect::<Option<_>>()?;
        let is_unchanged = values.iter().all(|value| matches!(value, Cow::Borrowed(_)));
        Some(if is_unchanged { Cow::Borrowed(text) } else { Cow::Owned(format!("[{}]", values.join(","))) })
    }

    fn repair_object<'a>(&mut self, node: &ShapeNode, text: &'a str, depth: usize) -> Option<Cow<'a, str>> {
        let Members(members) = serde_json::from_str(text).ok()?;
        self.budget.spend(node.required.len().saturating_mul(members.len()) / COMPARISONS_PER_BYTE, depth)?;
        let has_member = |name: &String| members.iter().any(|(other, _)| other == name);
        if !self.is_partial && !node.required.iter().all(has_member) {
            return None;
        }
        let (mut written, mut is_unchanged) = (Vec::with_capacity(members.len()), true);
        for (name, value) in &members {
            let is_listed = node.properties.contains_key(&**name);
            if is_listed && depth == 0 {
                // One argument does not spend the work on the others.
                self.budget = Budget::for_text(value);
            }
            let is_optional = is_listed && !node.is_required(name);
            let repaired = match (node.member(name), *value) {
                // `null` stands for an optional member that is omitted.
                (Some(member), "null") if is_optional && !self.allows_null(member, depth) => {
                    is_unchanged = false;
                    continue;
                }
                (member, text) => self.repair_part(member, text, depth)?,
            };
            is_unchanged &= matches!(repaired, Cow::Borrowed(_));
            written.push((&**name, repaired));
        }
        Some(if is_unchanged { Cow::Borrowed(text) } else { Cow::Owned(write_object(&written)) })
    }

    /// Returns `true` if the schema of a member allows `null`, which is no value to repair in part.
    fn allows_null(&mut self, member: NodeId, depth: usize) -> bool {
        let is_partial = std::mem::take(&mut self.is_partial);
        let allows = self.repair(member, "null", depth + 1).is_some();
        self.is_partial = is_partial;
        allows
    }

    /// Matches a value with the values of an `enum`: exactly, or in another case if that is unambiguous.
    fn repair_constant<'a>(&self, values: &[Value], text: &'a str) -> Option<Cow<'a, str>> {
        let Ok(given) = serde_json::from_str::<String>(text) else {
            let mut written = values.iter().map(Value::to_string);
            return written.any(|value| value == text).then_some(Cow::Borrowed(text));
        };
        let names = || values.iter().filter_map(Value::as_str);
        if names().any(|name| name == given) {
            return Some(Cow::Borrowed(text));
        }
        let is_equal = |name: &&str| {
            let (name, given) = (name.chars(), given.chars());
            name.flat_map(char::to_lowercase).eq(given.flat_map(char::to_lowercase))
        };
        let mut equal = names().filter(is_equal).filter(|_| !self.only_nulls);
        match (equal.next(), equal.next()) {
            (Some(name), None) => serde_json::to_string(name).ok().map(Cow::Owned),
            _ => None,
        }
    }
}

/// Returns `true` if a text has some of these addresses.
fn overlaps(addresses: &Range<usize>, text: &str) -> bool {
    let start = text.as_ptr().addr();
    start < addresses.end && addresses.start < start + text.len()
}

/// Returns the value that a string contains, if the schema requires such a value.
fn decoded(node: &ShapeNode, text: &str) -> Option<String> {
    let string: String = serde_json::from_str(text).ok()?;
    let string = string.trim();
    let is_allowed = match Kind::of(string) {
        Some(Kind::Object) => node.allows_type("object"),
        Some(Kind::Array) => node.allows_type("array"),
        Some(Kind::Number) => node.allows_type("integer") || node.allows_type("number"),
        _ if node.allows_type("boolean") => {
            let values = ["true", "false"];
            return values.into_iter().find(|value| string.eq_ignore_ascii_case(value)).map(str::to_owned);
        }
        _ => false,
    };
    (is_allowed && serde_json::from_str::<serde::de::IgnoredAny>(string).is_ok()).then(|| string.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::SchemaOf;

    fn shape(schema: &Value) -> Shape {
        Shape::parse(schema, SchemaOf::Document)
    }

    #[test]
    fn nested_alternatives_take_bounded_time() {
        let child = json!({ "$ref": "#/$defs/It" });
        let choice = || json!({ "type": "object", "properties": { "it": child }, "required": ["it"] });
        let schema = shape(&json!({
            "$defs": { "It": { "anyOf": [choice(), choice(), choice(), { "type": "integer" }] } },
            "$ref": "#/$defs/It",
        }));
        let repaired = repair(&schema, schema.root(), r#"{"it":{"it":"7"}}"#);
        assert_eq!(repaired.as_deref(), Some(r#"{"it":{"it":7}}"#));
        let deep = r#"{"it":"#.repeat(60) + "\"seven\"" + &"}".repeat(60);
        assert_eq!(repair(&schema, schema.root(), &deep), None);
    }

    #[test]
    fn removes_nulls_of_optional_properties() {
        let schema = json!({
            "type": "object",
            "properties": {
                "a": { "type": "integer" },
                "b": { "type": ["integer", "null"] },
                "c": { "type": "integer" },
                "list": { "type": "array", "items": { "$ref": "#/$defs/Item" } },
                "item": { "anyOf": [{ "$ref": "#/$defs/Item" }, { "type": "null" }] },
                "pair": { "type": "array", "prefixItems": [{ "type": "string" }, { "$ref": "#/$defs/Item" }] },
            },
            "required": ["c"],
            "$defs": { "Item": { "anyOf": [
                {
                    "type": "object",
                    "properties": { "kind": { "const": "plain" }, "it": { "type": "integer" } },
                    "required": ["kind"],
                },
                {
                    "type": "object",
                    "properties": { "kind": { "const": "open" }, "it": { "type": ["integer", "null"] } },
                    "required": ["kind"],
                },
                {
                    "type": "object",
                    "properties": { "kind": { "const": "deep" }, "item": { "$ref": "#/$defs/Item" } },
                    "required": ["kind"],
                },
            ] } },
        });
        let schema = shape(&schema);
        let table = [
            (r#"{"a": null}"#, Some("{}")),
            (r#"{"a": 1.50, "b": null, "c": null}"#, None),
            (
                r#"{"a": null, "b": null, "c": 9007199254740993.0}"#,
                Some(r#"{"b":null,"c":9007199254740993.0}"#),
            ),
            (r#"{"item": null}"#, None),
            (r#"{"item": {"kind": "plain", "it": null}}"#, Some(r#"{"item":{"kind":"plain"}}"#)),
            (r#"{"item": {"kind": "open", "it": null}}"#, None),
            (
                r#"{"list": [{"it": null, "kind": "plain"}, null]}"#,
                Some(r#"{"list":[{"kind":"plain"},null]}"#),
            ),
            (
                r#"{"pair": ["null", {"kind": "plain", "it": null}]}"#,
                Some(r#"{"pair":["null",{"kind":"plain"}]}"#),
            ),
            (
                r#"{"item": {"kind": "deep", "item": {"kind": "deep", "item": null}}}"#,
                Some(r#"{"item":{"kind":"deep","item":{"kind":"deep"}}}"#),
            ),
            (r#"{"unknown": null}"#, None),
            ("null", None),
            ("[null]", None),
            (r#"{"a": null"#, None),
        ];
        for (text, expected) in table {
            assert_eq!(without_omitted(&schema, schema.root(), text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn hostile_texts_and_schemas_are_unchanged() {
        let deep = r#"{"it":"#.repeat(10_000) + "null" + &"}".repeat(10_000);
        let circle = json!({
            "$defs": { "It": { "anyOf": [{ "$ref": "#/$defs/It" }, { "$ref": "#/$defs/Object" }] },
                "Object": { "type": "object", "properties": { "it": { "$ref": "#/$defs/It" } } } },
            "$ref": "#/$defs/It",
        });
        let lists = shape(&json!({ "properties": { "it": { "items": circle } } }));
        let circle = shape(&circle);
        assert_eq!(without_omitted(&circle, circle.root(), &deep), None);
        assert_eq!(
            without_omitted(&circle, circle.root(), r#"{"it":{"it":null}}"#).as_deref(),
            Some(r#"{"it":{}}"#)
        );
        let many = format!(r#"{{"it":[{}]}}"#, vec![r#"{"it":null}"#; 50_000].join(","));
        assert_eq!(without_omitted(&lists, lists.root(), &many), None);
    }
}
