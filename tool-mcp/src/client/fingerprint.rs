//! Fingerprints of a server's tools and instructions, to detect changes after they were reviewed.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::difference::{Change, Difference, canonical};
use super::listing::Listing;
use super::text::hex;
use super::tool::relied_fields;

/// A snapshot of a server's tools and instructions, to be stored and [pinned](super::McpServer::pinned). A server whose tools
/// or instructions change later is then refused.
///
/// It is serialized with `serde`, for example as JSON. It contains the definitions and not only their hashes, so that a
/// mismatch can show what changed; this takes a few kilobytes for most servers. The hash of each definition (SHA-256 of its
/// JSON with sorted keys) lets people compare fingerprints. It is verified on deserialization, so that a fingerprint that
/// was truncated or edited by accident is refused.
///
/// ```
/// # fn read(json: &str) -> Result<(), serde_json::Error> {
/// let fingerprint: tool_mcp::Fingerprint = serde_json::from_str(json)?;
/// println!("{} tools", fingerprint.len());
/// # Ok(())
/// # }
/// # read(&serde_json::to_string(&tool_mcp::Fingerprint::default()).unwrap()).unwrap();
/// ```
#[derive(Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "Serialized", into = "Serialized")]
pub struct Fingerprint {
    tools: BTreeMap<String, Map<String, Value>>,
    instructions: Option<String>,
}

impl Fingerprint {
    pub(super) fn from_listing(listing: &Listing) -> Self {
        let tools = listing
            .tools
            .iter()
            .map(|tool| (tool.original_name().to_owned(), relied_fields(&tool.as_listed())));
        Self { tools: tools.collect(), instructions: listing.instructions.clone() }
    }

    /// Returns the number of tools.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Returns `true` if there are no tools.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Returns the SHA-256 hash of all definitions and the instructions, in hexadecimal digits.
    #[must_use]
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for (name, definition) in &self.tools {
            hash.update(Value::from(name.as_str()).to_string());
            hash.update(canonical(&Value::Object(definition.clone())));
        }
        if let Some(instructions) = &self.instructions {
            hash.update(Value::from(instructions.as_str()).to_string());
        }
        hex(&hash.finalize())
    }

    /// Returns the changes from this fingerprint to a later one, or `None` if they are equal.
    #[must_use]
    pub fn difference(&self, later: &Self) -> Option<Difference> {
        let mut changes = Vec::new();
        let (before, after) = (&self.instructions, &later.instructions);
        if before != after {
            changes.push(Change::Instructions { before: before.clone(), after: after.clone() });
        }
        for (tool, before) in &self.tools {
            let Some(after) = later.tools.get(tool) else {
                changes.push(Change::Removed { tool: tool.clone() });
                continue;
            };
            let mut names: Vec<_> = before.keys().chain(after.keys()).collect();
            names.sort_unstable();
            names.dedup();
            for field in names {
                let (before, after) = (before.get(field), after.get(field));
                if before != after {
                    changes.push(Change::Changed {
                        tool: tool.clone(),
                        field: field.clone(),
                        before: before.cloned(),
                        after: after.cloned(),
                    });
                }
            }
        }
        let added = later.tools.keys().filter(|tool| !self.tools.contains_key(*tool));
        changes.extend(added.map(|tool| Change::Added { tool: tool.clone() }));
        (!changes.is_empty()).then_some(Difference { changes })
    }
}

/// The serialized form of a fingerprint.
#[derive(Serialize, Deserialize)]
struct Serialized {
    tools: BTreeMap<String, SerializedTool>,
    instructions: SerializedInstructions,
}

#[derive(Serialize, Deserialize)]
struct SerializedInstructions {
    sha256: String,
    text: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct SerializedTool {
    sha256: String,
    definition: Map<String, Value>,
}

fn sha256(value: impl Into<Value>) -> String {
    hex(&Sha256::digest(canonical(&value.into())))
}

impl From<Fingerprint> for Serialized {
    fn from(fingerprint: Fingerprint) -> Self {
        let serialize = |(name, definition): (_, Map<_, _>)| {
            (name, SerializedTool { sha256: sha256(definition.clone()), definition })
        };
        let text = fingerprint.instructions;
        let instructions = SerializedInstructions { sha256: sha256(text.clone()), text };
        Self { tools: fingerprint.tools.into_iter().map(serialize).collect(), instructions }
    }
}

impl TryFrom<Serialized> for Fingerprint {
    type Error = String;

    fn try_from(serialized: Serialized) -> Result<Self, String> {
        let modified = |part: &str| {
            format!(
                "the fingerprint was modified: {part} not match the hash; \
                 create a new one with `McpTools::fingerprint`"
            )
        };
        let verify = |(name, tool): (String, SerializedTool)| {
            if sha256(tool.definition.clone()) == tool.sha256 {
                Ok((name, tool.definition))
            } else {
                Err(modified(&format!("the definition of `{name}` does")))
            }
        };
        let tools = serialized.tools.into_iter().map(verify).collect::<Result<_, _>>()?;
        let SerializedInstructions { sha256: expected, text } = serialized.instructions;
        if sha256(text.clone()) != expected {
            return Err(modified("the instructions do"));
        }
        Ok(Self { tools, instructions: text })
    }
}

/// Shows the hash and the number of tools.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fingerprint")
            .field("tools", &self.tools.len())
            .field("sha256", &self.sha256())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fingerprint(tools: &[(&str, Value)]) -> Fingerprint {
        let definition = |value: &Value| value.as_object().unwrap().clone();
        Fingerprint {
            tools: tools.iter().map(|(name, value)| ((*name).to_owned(), definition(value))).collect(),
            instructions: Some("Be gentle".into()),
        }
    }

    #[test]
    fn ignores_the_order_of_keys() {
        let one = fingerprint(&[("a", json!({ "x": { "p": 1, "q": [2] }, "y": 3 }))]);
        let other = fingerprint(&[("a", json!({ "y": 3, "x": { "q": [2], "p": 1 } }))]);
        assert_eq!(one.difference(&other), None);
        assert_eq!(one.sha256(), other.sha256());
    }

    #[test]
    fn describes_each_change() {
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
    fn displays_the_changed_part_of_a_long_value() {
        let long = |end: &str| json!({ "description": format!("{}{end}", "a".repeat(5000)) });
        let (before, after) = (fingerprint(&[("a", long("x"))]), fingerprint(&[("a", long("y"))]));
        let text = before.difference(&after).unwrap().to_string();
        assert!(text.contains("aax\"") && text.contains("aay\"") && text.len() < 1000, "{text}");
    }

    #[test]
    fn deserialization_refuses_an_edited_fingerprint() {
        let before = fingerprint(&[("a", json!({ "description": "Reads" }))]);
        let json = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<Fingerprint>(&json).unwrap(), before);
        let error = serde_json::from_str::<Fingerprint>(&json.replace("Reads", "Rm -r")).unwrap_err();
        assert!(error.to_string().contains("the definition of `a` does not match the hash"), "{error}");
        let error = serde_json::from_str::<Fingerprint>(&json.replace("gentle", "brutal")).unwrap_err();
        assert!(error.to_string().contains("the instructions do not match the hash"), "{error}");
    }
}
