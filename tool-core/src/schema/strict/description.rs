//! Descriptions for the model of constraints that strict mode does not support.

use serde_json::Value;

use super::node::StrictNode;
use crate::schema::keywords::Keywords;

/// The keywords that neither strict mode nor a description can express.
const UNSUPPORTED: Keywords = Keywords(
    "if contains dependentRequired dependentSchemas dependencies unevaluatedItems $dynamicRef $recursiveRef",
);

/// The description of a schema, built sentence by sentence.
#[derive(Default)]
pub(super) struct Words(String);

impl Words {
    /// Creates the description of a schema, without the constraints of its type.
    pub(super) fn new(node: &StrictNode<'_>) -> Result<Self, String> {
        let is_present = |keyword: &&str| node.get(keyword).is_some_and(|value| *value != Value::Bool(false));
        if let Some(keyword) = UNSUPPORTED.iter().find(is_present) {
            return Err(format!("strict mode does not support `{keyword}`; describe it in the description"));
        }
        let mut text = Self::default();
        for description in node.all("description").filter_map(Value::as_str) {
            text.add(description);
        }
        // Titles are written for people, so they are used only if there is no description.
        if text.0.is_empty() {
            text.add(node.get("title").and_then(Value::as_str).unwrap_or_default());
        }
        if node.get("deprecated") == Some(&Value::Bool(true)) {
            text.add("Deprecated.");
        }
        if let Some(not) = node.get("not") {
            text.add(&describe_not(not)?);
        }
        let examples = node.get("examples").and_then(Value::as_array).map(Vec::as_slice);
        match examples.or_else(|| node.get("example").map(std::slice::from_ref)).unwrap_or_default() {
            [] => {}
            [example] => text.add(&format!("Example: {example}.")),
            examples => text.add(&format!("Examples: {}.", list(examples))),
        }
        Ok(text)
    }

    /// Adds a sentence.
    pub(super) fn add(&mut self, sentence: &str) {
        let sentence = sentence.trim();
        // Merged schemas often repeat sentences.
        if sentence.is_empty() || self.0.contains(sentence) {
            return;
        }
        if self.0.ends_with(|last: char| last.is_alphanumeric() || "`\"')]}".contains(last)) {
            self.0.push('.');
        }
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        self.0.push_str(sentence);
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// Describes bounds, such as `At most 64 characters.`. The text is empty if there are none.
pub(super) fn describe_bounds(least: Option<u64>, most: Option<u64>, unit: &str) -> String {
    let units = |number: u64| if number == 1 { unit.to_owned() } else { format!("{unit}s") };
    match (least.filter(|least| *least > 0), most) {
        (Some(least), Some(most)) if least == most => format!("Exactly {most} {}.", units(most)),
        (Some(least), Some(most)) => format!("{least} to {most} {}.", units(most)),
        (Some(least), None) => format!("At least {least} {}.", units(least)),
        (None, Some(most)) => format!("At most {most} {}.", units(most)),
        (None, None) => String::new(),
    }
}

/// Describes a `not` that excludes single values.
fn describe_not(not: &Value) -> Result<String, String> {
    let is_alone = not.as_object().is_some_and(|schema| schema.len() == 1);
    match (not.get("const"), not.get("enum")) {
        (Some(value), _) if is_alone => Ok(format!("Not {value}.")),
        (None, Some(Value::Array(values))) if is_alone => Ok(format!("Not {}.", list(values))),
        _ => Err("strict mode does not support this `not`; specify the valid values instead".into()),
    }
}

/// Lists values: `1, 2, "three"`.
fn list(values: &[Value]) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
}

/// Summarizes the item of a tuple, a schema in strict form: its description, or else its type.
pub(super) fn summarize(form: &Value) -> String {
    let types = form["type"].as_str().or(form["type"][0].as_str());
    form["description"].as_str().or(types).unwrap_or("value").trim_end_matches('.').to_owned()
}
