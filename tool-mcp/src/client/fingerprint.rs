//! What a server's tools were when somebody looked at them.

use std::collections::BTreeMap;
use std::fmt;

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::McpTool;
use super::names::hex;

/// How much of a value is shown where it changed, in characters.
const LONGEST_VALUE: usize = 300;

/// The tools of a server at one time, to be kept and [pinned](super::McpServer::pinned), so that a server which later says
/// other things of its tools is refused.
///
/// It is kept as JSON by `serde`. It has the definitions themselves, not only their hashes, so that it can be told what
/// they were before; a few kilobytes for most servers. The hash of each (SHA-256 of its JSON with sorted keys) is there
/// for people to compare, and is checked when the fingerprint is read, so that one which was cut or edited by mistake is
/// refused.
///
/// ```
/// # fn read(json: &str) -> Result<(), serde_json::Error> {
/// let fingerprint: tool_mcp::Fingerprint = serde_json::from_str(json)?;
/// println!("{} tools", fingerprint.len());
/// # Ok(())
/// # }
/// # read(r#"{"tools":{}}"#).unwrap();
/// ```
#[derive(Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Fingerprint {
    tools: BTreeMap<String, Map<String, Value>>,
}

impl Fingerprint {
    pub(super) fn of<'a>(tools: impl IntoIterator<Item = &'a McpTool>) -> Self {
        let tools =
            tools.into_iter().map(|tool| (tool.name_at_server().to_owned(), fields(&tool.definition())));
        Self { tools: tools.collect() }
    }

    /// How many tools there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// There is no tool.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The SHA-256 of all definitions, in hexadecimal digits: the same as long as nothing changes.
    #[must_use]
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for (name, definition) in &self.tools {
            hash.update(Value::from(name.as_str()).to_string());
            hash.update(canonical(&Value::Object(definition.clone())));
        }
        hex(&hash.finalize())
    }

    /// How the tools changed since; `None` if they did not.
    #[must_use]
    pub fn difference(&self, now: &Self) -> Option<Difference> {
        let mut changes = Vec::new();
        for (tool, before) in &self.tools {
            let Some(after) = now.tools.get(tool) else {
                changes.push(Change::Removed { tool: tool.clone() });
                continue;
            };
            let mut names: Vec<_> = before.keys().chain(after.keys()).collect();
            names.sort_unstable();
            names.dedup();
            for field in names {
                let (before, after) = (before.get(field), after.get(field));
                if before.map(canonical) != after.map(canonical) {
                    changes.push(Change::Changed {
                        tool: tool.clone(),
                        field: field.clone(),
                        before: before.cloned(),
                        after: after.cloned(),
                    });
                }
            }
        }
        let added = now.tools.keys().filter(|tool| !self.tools.contains_key(*tool));
        changes.extend(added.map(|tool| Change::Added { tool: tool.clone() }));
        (!changes.is_empty()).then_some(Difference { changes })
    }
}

/// What a model or a person goes by; icons and `_meta` may change from day to day.
fn fields(tool: &Tool) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(tool) else { return Map::new() };
    for passing in ["name", "icons", "_meta"] {
        fields.remove(passing);
    }
    fields
}

/// JSON with sorted keys and without spaces.
fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

/// It recurses no deeper than a message may be.
fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Array(values) => {
            text.push('[');
            for (index, value) in values.iter().enumerate() {
                text.push_str(if index > 0 { "," } else { "" });
                write_canonical(value, text);
            }
            text.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (index, (name, value)) in members.into_iter().enumerate() {
                text.push_str(if index > 0 { "," } else { "" });
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write_canonical(value, text);
            }
            text.push('}');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

/// A fingerprint as it is kept.
#[derive(Serialize, Deserialize)]
struct Written {
    tools: BTreeMap<String, WrittenTool>,
}

#[derive(Serialize, Deserialize)]
struct WrittenTool {
    sha256: String,
    definition: Map<String, Value>,
}

fn sha256(definition: &Map<String, Value>) -> String {
    hex(&Sha256::digest(canonical(&Value::Object(definition.clone()))))
}

impl From<Fingerprint> for Written {
    fn from(fingerprint: Fingerprint) -> Self {
        let written = |(name, definition)| (name, WrittenTool { sha256: sha256(&definition), definition });
        Self { tools: fingerprint.tools.into_iter().map(written).collect() }
    }
}

impl TryFrom<Written> for Fingerprint {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let read = |(name, tool): (String, WrittenTool)| {
            if sha256(&tool.definition) == tool.sha256 {
                Ok((name, tool.definition))
            } else {
                Err(format!(
                    "the fingerprint was changed: the definition of `{name}` does not have the hash that it says; \
                     make a new one with `McpTools::fingerprint`"
                ))
            }
        };
        Ok(Self { tools: written.tools.into_iter().map(read).collect::<Result<_, _>>()? })
    }
}

/// Tells the hash and how many tools there are.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fingerprint")
            .field("tools", &self.tools.len())
            .field("sha256", &self.sha256())
            .finish()
    }
}

/// In what the tools of a server differ from those of a [`Fingerprint`]. Its text has a line for each change.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    changes: Vec<Change>,
}

impl Difference {
    /// The changes, by the names of the tools; those that were added come last.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }
}

/// One change. Tools go by the server's names for them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// The server has a tool more.
    Added {
        /// The tool.
        tool: String,
    },
    /// The server has the tool no more.
    Removed {
        /// The tool.
        tool: String,
    },
    /// The server says something else of the tool.
    Changed {
        /// The tool.
        tool: String,
        /// What of it, such as `description` or `inputSchema`.
        field: String,
        /// What it said when the fingerprint was made, if anything.
        before: Option<Value>,
        /// What it says now, if anything.
        after: Option<Value>,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, change) in self.changes.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match change {
                Change::Added { tool } => write!(f, "the tool `{}` was added", super::names::cut(tool))?,
                Change::Removed { tool } => write!(f, "the tool `{}` was removed", super::names::cut(tool))?,
                Change::Changed { tool, field, before, after } => write!(
                    f,
                    "the tool `{}`: `{field}` was {}, is {}",
                    super::names::cut(tool),
                    shown(before.as_ref(), after.as_ref()),
                    shown(after.as_ref(), before.as_ref())
                )?,
            }
        }
        Ok(())
    }
}

/// The value from a little before where it differs from the other.
fn shown(value: Option<&Value>, other: Option<&Value>) -> String {
    let Some(value) = value else { return "absent".into() };
    let text = canonical(value);
    let other = other.map(canonical).unwrap_or_default();
    let same = text.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let start =
        if text.chars().count() <= LONGEST_VALUE { 0 } else { same.saturating_sub(LONGEST_VALUE / 5) };
    let part: String = text.chars().skip(start).take(LONGEST_VALUE).collect();
    let head = if start > 0 { "…" } else { "" };
    let tail = if start + LONGEST_VALUE < text.chars().count() { "…" } else { "" };
    format!("{head}{part}{tail}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fingerprint(tools: &[(&str, Value)]) -> Fingerprint {
        let definition = |value: &Value| value.as_object().unwrap().clone();
        Fingerprint {
            tools: tools.iter().map(|(name, value)| ((*name).to_owned(), definition(value))).collect(),
        }
    }

    #[test]
    fn the_order_of_keys_changes_nothing() {
        let one = fingerprint(&[("a", json!({ "x": { "p": 1, "q": [2] }, "y": 3 }))]);
        let other = fingerprint(&[("a", json!({ "y": 3, "x": { "q": [2], "p": 1 } }))]);
        assert_eq!(one.difference(&other), None);
        assert_eq!(one.sha256(), other.sha256());
    }

    #[test]
    fn each_change_is_told() {
        let before = fingerprint(&[("a", json!({ "description": "Reads", "title": "A" })), ("b", json!({}))]);
        let after = fingerprint(&[("a", json!({ "description": "Deletes" })), ("c", json!({}))]);
        let difference = before.difference(&after).unwrap();
        let expected = "the tool `a`: `description` was \"Reads\", is \"Deletes\"\n\
                        the tool `a`: `title` was \"A\", is absent\n\
                        the tool `b` was removed\n\
                        the tool `c` was added";
        assert_eq!(difference.to_string(), expected);
        assert_ne!(before.sha256(), after.sha256());
    }

    #[test]
    fn of_a_long_value_the_change_is_shown() {
        let long = |end: &str| json!({ "description": format!("{}{end}", "a".repeat(5000)) });
        let (before, after) = (fingerprint(&[("a", long("x"))]), fingerprint(&[("a", long("y"))]));
        let text = before.difference(&after).unwrap().to_string();
        assert!(text.contains("aax\"") && text.contains("aay\"") && text.len() < 1000, "{text}");
    }

    #[test]
    fn it_is_kept_as_json_and_refused_when_it_was_edited() {
        let before = fingerprint(&[("a", json!({ "description": "Reads" }))]);
        let json = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<Fingerprint>(&json).unwrap(), before);
        let error = serde_json::from_str::<Fingerprint>(&json.replace("Reads", "Rm -r")).unwrap_err();
        assert!(error.to_string().contains("the definition of `a` does not have the hash"), "{error}");
    }
}
