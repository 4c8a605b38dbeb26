//! What a schema says that strict mode has no word for, in words for the model.

use serde_json::Value;

use super::kinds;
use super::node::Node;

/// Words that strict mode has no way to say, and neither have we.
const UNSAYABLE: [&str; 8] = [
    "if",
    "contains",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
];

/// A description that grows sentence by sentence.
#[derive(Default)]
pub(super) struct Words(String);

impl Words {
    /// What the schema itself tells, of whatever type its values are.
    #[inline]
    pub(super) fn of(node: &Node<'_>) -> Result<Self, String> {
        let is_said = |word: &&&str| node.get(word).is_some_and(|value| *value != Value::Bool(false));
        if let Some(word) = UNSAYABLE.iter().find(is_said) {
            return Err(format!("`{word}` cannot be said in strict mode; tell of it in the description"));
        }
        let mut words = Self::default();
        for description in node.each("description").filter_map(Value::as_str) {
            words.add(description);
        }
        // A title is for people; it tells a model something only where nothing else does.
        if words.is_empty() {
            words.add(node.get("title").and_then(Value::as_str).unwrap_or_default());
        }
        if node.get("deprecated") == Some(&Value::Bool(true)) {
            words.add("Deprecated.");
        }
        if let Some(not) = node.get("not") {
            words.add(&kinds::left_out(not)?);
        }
        let examples = node.get("examples").and_then(Value::as_array).map(Vec::as_slice);
        let examples = examples.or_else(|| node.get("example").map(std::slice::from_ref)).unwrap_or_default();
        if !examples.is_empty() {
            words.add(&format!(
                "{}: {}.",
                if examples.len() == 1 { "Example" } else { "Examples" },
                list(examples)
            ));
        }
        Ok(words)
    }

    /// What it means to leave the value out.
    #[inline]
    pub(super) fn add_default(&mut self, default: Option<&Value>, is_said_with_null: bool) {
        match default {
            None | Some(Value::Null) => {}
            Some(default) if is_said_with_null => self.add(&format!("`null` means {default}.")),
            Some(default) => self.add(&format!("The default is {default}.")),
        }
    }

    #[inline]
    pub(super) fn add(&mut self, sentence: &str) {
        let sentence = sentence.trim();
        // Merged schemas often say the same.
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

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// `At most 64 characters.`; nothing if no bound is given.
#[inline]
pub(super) fn between(least: Option<u64>, most: Option<u64>, what: &str) -> String {
    let whats = |number: u64| if number == 1 { what.to_owned() } else { format!("{what}s") };
    match (least.filter(|least| *least > 0), most) {
        (Some(least), Some(most)) if least == most => format!("Exactly {most} {}.", whats(most)),
        (Some(least), Some(most)) => format!("{least} to {most} {}.", whats(most)),
        (Some(least), None) => format!("At least {least} {}.", whats(least)),
        (None, Some(most)) => format!("At most {most} {}.", whats(most)),
        (None, None) => String::new(),
    }
}

/// `1, 2, "three"`
#[inline]
pub(super) fn list(values: &[Value]) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
}

/// A schema in strict form in a word or two, for the order of a tuple's items.
#[inline]
pub(super) fn briefly(schema: &Value) -> String {
    if let Some(description) = schema["description"].as_str() {
        return description.trim_end_matches('.').to_owned();
    }
    let names: Vec<_> = match &schema["type"] {
        Value::String(name) => vec![&**name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => match schema["anyOf"].as_array() {
            Some(choices) => return choices.iter().map(briefly).collect::<Vec<_>>().join(" or "),
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
