//! Descriptions for the model of constraints that strict mode does not support.

use serde_json::{Value, json};

use super::node::Node;

/// The keywords that neither strict mode nor a description can express.
const UNSUPPORTED: [&str; 8] = [
    "if",
    "contains",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
];

/// A description that is built sentence by sentence.
#[derive(Default)]
pub(super) struct Description(String);

impl Description {
    /// Creates the description of a schema, without the constraints of its type.
    pub(super) fn new(node: &Node<'_>) -> Result<Self, String> {
        let is_present =
            |keyword: &&&str| node.get(keyword).is_some_and(|value| *value != Value::Bool(false));
        if let Some(keyword) = UNSUPPORTED.iter().find(is_present) {
            return Err(format!("strict mode does not support `{keyword}`; describe it in the description"));
        }
        let mut text = Self::default();
        for description in node.all("description").filter_map(Value::as_str) {
            text.add(description);
        }
        // Titles are written for people, so they are used only if there is no description.
        if text.is_empty() {
            text.add(node.get("title").and_then(Value::as_str).unwrap_or_default());
        }
        if node.get("deprecated") == Some(&Value::Bool(true)) {
            text.add("Deprecated.");
        }
        if let Some(not) = node.get("not") {
            text.add(&describe_not(not)?);
        }
        let examples = node.get("examples").and_then(Value::as_array).map(Vec::as_slice);
        let examples = examples.or_else(|| node.get("example").map(std::slice::from_ref)).unwrap_or_default();
        if !examples.is_empty() {
            text.add(&format!(
                "{}: {}.",
                if examples.len() == 1 { "Example" } else { "Examples" },
                list(examples)
            ));
        }
        Ok(text)
    }

    /// Adds the default, which `null` may stand for.
    pub(super) fn add_default(&mut self, default: Option<&Value>, is_null_default: bool) {
        match default {
            None | Some(Value::Null) => {}
            Some(default) if is_null_default => self.add(&format!("`null` means {default}.")),
            Some(default) => self.add(&format!("The default is {default}.")),
        }
    }

    /// Adds a sentence.
    pub(super) fn add(&mut self, sentence: &str) {
        let sentence = sentence.trim();
        // Merged schemas often repeat sentences.
        if sentence.is_empty() || self.0.contains(sentence) {
            return;
        }
        if !self.0.is_empty() {
            if self.0.ends_with(|last: char| last.is_alphanumeric() || "`\"')]}".contains(last)) {
                self.0.push('.');
            }
            self.0.push(' ');
        }
        self.0.push_str(sentence);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
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
    let values = match (not.get("const"), not.get("enum")) {
        (Some(value), _) if is_alone => json!([value]),
        (None, Some(values @ Value::Array(_))) if is_alone => values.clone(),
        _ => return Err("strict mode does not support this `not`; specify the valid values instead".into()),
    };
    Ok(format!("Not {}.", list(values.as_array().map_or(&[][..], Vec::as_slice))))
}

/// Lists values: `1, 2, "three"`.
fn list(values: &[Value]) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
}

/// Summarizes a schema in strict form in a few words, for the order of a tuple's items.
pub(super) fn summarize(schema: &Value) -> String {
    if let Some(description) = schema["description"].as_str() {
        return description.trim_end_matches('.').to_owned();
    }
    let names: Vec<_> = match &schema["type"] {
        Value::String(name) => vec![&**name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => match schema["anyOf"].as_array() {
            Some(choices) => return choices.iter().map(summarize).collect::<Vec<_>>().join(" or "),
            None => {
                return schema["$ref"]
                    .as_str()
                    .and_then(|path| path.rsplit('/').next())
                    .unwrap_or("value")
                    .into();
            }
        },
    };
    names.join(" or ")
}
