//! Duplicate members, and the types that accept them. `tokens` finds the members.

use serde_json::{Map, Value};

use super::explain;
use crate::arguments::{Report, duplicate_members};

/// Reports the members that an object in the text contains twice. Returns `true` if there are any.
pub(crate) fn report_duplicates(path: &str, text: &str, report: &mut Report) -> bool {
    let duplicates = duplicate_members(text);
    for duplicate in &duplicates {
        let path = explain::join(path, duplicate);
        report.add(&path, &explain::duplicate_member(&path));
    }
    !duplicates.is_empty()
}

/// Returns `true` if one of the arguments that a schema describes can contain an object whose duplicate members its type does
/// not refuse by itself. These are objects with members of any name, such as maps and structs that ignore unknown members, and
/// alternatives of several objects. All others are structs with `deny_unknown_fields`, which refuse a duplicate member.
pub(crate) fn accepts_duplicates(arguments: &Value) -> bool {
    let parts = ["properties", "$defs"].into_iter().filter_map(|keyword| arguments.get(keyword)?.as_object());
    parts.flatten().any(|(_, schema)| value_accepts_duplicates(schema))
}

fn value_accepts_duplicates(schema: &Value) -> bool {
    let Value::Object(schema) = schema else { return *schema == Value::Bool(true) };
    let list = |keyword: &str| schema.get(keyword).and_then(Value::as_array).into_iter().flatten();
    let members = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let parts = ["anyOf", "oneOf", "allOf", "prefixItems"].into_iter().flat_map(list);
    let mut parts = parts.chain(members.map(|(_, part)| part)).chain(schema.get("items"));
    accepts_any_members(schema) || parts.any(value_accepts_duplicates)
}

/// Returns `true` if the schema itself describes objects with members of any name, or several objects.
fn accepts_any_members(schema: &Map<String, Value>) -> bool {
    let has = |keyword: &str| schema.contains_key(keyword);
    let is_type = |name: &str| match schema.get("type") {
        Some(Value::Array(names)) => names.iter().any(|one| one == name),
        Some(one) => one == name,
        None => false,
    };
    let choices = ["anyOf", "oneOf"].into_iter().filter_map(|keyword| schema.get(keyword)?.as_array());
    let may_be_object = |choice: &&Value| choice.get("type").is_none_or(|kind| kind == "object");
    let has_choice = choices.into_iter().any(|choices| choices.iter().filter(may_be_object).count() > 1);
    let is_described = ["type", "$ref", "enum", "const", "anyOf", "oneOf", "allOf"].into_iter().any(has);
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let is_map = has("patternProperties") || can_have_names_as_keys(schema);
    let is_any_object = is_type("object") && (!is_closed || is_map);
    let is_any_list = is_type("array") && !has("items") && !has("prefixItems");
    has_choice || is_any_object || is_any_list || !is_described
}

/// Returns `true` if the schema can describe a map whose keys are the variants of an enum: all values have the same schema.
fn can_have_names_as_keys(schema: &Map<String, Value>) -> bool {
    let mut members = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let first = members.next().map(|(_, first)| first);
    !schema.contains_key("required") && first.is_some_and(|first| members.all(|(_, other)| other == first))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use schemars::JsonSchema;

    use super::*;
    use crate::arguments::schemas::exact_parameters_schema;
    use crate::arguments::{Parameter, ToolParameter};

    fn accepts<T: ToolParameter>() -> bool {
        accepts_duplicates(&exact_parameters_schema(&[Parameter::new::<T>("it", None, true)]))
    }

    #[derive(serde::Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Strict {
        name: String,
        numbers: Option<Vec<u8>>,
        pair: (bool, Unit),
        more: Option<Box<Strict>>,
    }

    #[derive(serde::Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Lenient {
        name: String,
    }

    #[derive(serde::Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Closed<T> {
        inner: T,
    }

    #[derive(serde::Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Flat {
        name: String,
        #[serde(flatten)]
        others: HashMap<String, u8>,
    }

    #[derive(PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, JsonSchema)]
    enum Unit {
        Celsius,
        Fahrenheit,
    }

    #[derive(serde::Deserialize, JsonSchema)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Either {
        One { a: u8 },
        Other { b: u8 },
    }

    #[test]
    fn strict_structs_refuse_duplicates_themselves() {
        assert!(!accepts::<u8>() && !accepts::<Vec<Option<String>>>() && !accepts::<Unit>());
        assert!(!accepts::<Strict>() && !accepts::<Option<Strict>>() && !accepts::<Vec<Closed<Strict>>>());
    }

    #[test]
    fn objects_with_members_of_any_name_accept_duplicates() {
        assert!(accepts::<Lenient>() && accepts::<Option<Closed<Lenient>>>());
        assert!(accepts::<BTreeMap<String, u8>>() && accepts::<Vec<Value>>());
        assert!(accepts::<Closed<Option<Map<String, Value>>>>() && accepts::<(u8, Value)>());
        assert!(accepts::<BTreeMap<u32, u8>>() && accepts::<BTreeMap<Unit, u8>>());
        assert!(accepts::<Flat>() && accepts::<Option<Either>>());
    }
}
