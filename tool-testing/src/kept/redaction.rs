//! Removes from a run what must not be kept in files: what a function replaces, in all that persons, models and tools have written.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::{Number, Value};
use tool_core::layer::Redact;
use tool_core::{ToolCall, ToolSet};

use super::placeholders::Placeholders;
use crate::error::{Result, failure};

/// What is written in place of a text, or the text itself.
type Replace = dyn Fn(&str) -> String + Send + Sync;

/// What is removed from runs before they are kept: by a [`Redact`], or by a function from each text to what is kept of it.
#[derive(Clone)]
pub struct Redaction(Arc<Replace>);

impl From<Redact> for Redaction {
    fn from(redact: Redact) -> Self {
        Self(Arc::new(move |text| redact.text(text).into_owned()))
    }
}

impl<F: Fn(&str) -> String + Send + Sync + 'static> From<F> for Redaction {
    fn from(replace: F) -> Self {
        Self(Arc::new(replace))
    }
}

impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redaction").finish_non_exhaustive()
    }
}

/// The members of the form of a run that name parts of the program, identify things, or are one of few words, and hold no text of a person, a
/// model or a tool.
const NAMES: [&str; 34] = [
    "id",
    "call_id",
    "call",
    "name",
    "role",
    "type",
    "kind",
    "tool",
    "agent",
    "layer",
    "undo",
    "undoes",
    "currency",
    "wait",
    "confirmed",
    "in_doubt",
    "begun",
    "definition",
    "error",
    "model",
    "ended",
    "answered",
    "found_tools",
    "final",
    "origin",
    "stage",
    "reply",
    "return_direct",
    "tool_choice",
    "approved",
    "awaiting_approval",
    "status",
    "cut_short",
    "repeated",
];

/// The members that are left as they are, with all that they contain: definitions of tools, and settings.
const DEFINITIONS: [&str; 8] =
    ["given_tools", "offered", "schema", "parameters", "policy", "limits", "on_error", "answer_format"];

/// The members that hold arguments of the call that they are in.
const ARGUMENTS: [&str; 2] = ["arguments", "asked"];

/// The members that hold a JSON text.
const JSON: [&str; 3] = ["state", "answer", "value"];

/// Removes from the JSON of a run what is not to be kept.
pub(super) fn redact(run: &mut Value, redaction: &Redaction, tools: &[ToolSet]) -> Result {
    let mut redactor = Redactor { redaction, tools, placeholders: Placeholders::default() };
    redactor.redact(run, "", None)
}

struct Redactor<'r> {
    redaction: &'r Redaction,
    tools: &'r [ToolSet],
    placeholders: Placeholders,
}

impl Redactor<'_> {
    fn redact(&mut self, value: &mut Value, key: &str, tool: Option<&str>) -> Result {
        if DEFINITIONS.contains(&key) {
            return Ok(());
        }
        match value {
            Value::String(_) if NAMES.contains(&key) => {}
            Value::String(text) if ARGUMENTS.contains(&key) => *text = self.arguments(text, tool)?,
            Value::String(text) => *text = self.text(text, JSON.contains(&key)),
            Value::Array(items) => {
                for item in items {
                    self.redact(item, key, tool)?;
                }
            }
            Value::Object(_) if key == "data" => self.leaves(value),
            Value::Object(members) => {
                let is_file = members.get("type").is_some_and(|kind| kind == "file");
                if let Some(Value::String(name)) = members.get_mut("name").filter(|_| is_file) {
                    *name = self.text(name, false);
                }
                let name = members.get("name").and_then(Value::as_str).map(str::to_owned);
                for (key, member) in members {
                    self.redact(member, key, name.as_deref().or(tool))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn replaced(&self, text: &str) -> Option<String> {
        let replaced = (self.redaction.0)(text);
        (replaced != text).then_some(replaced)
    }

    /// Returns what is kept of a text, which can be JSON.
    fn text(&self, text: &str, is_json: bool) -> String {
        match serde_json::from_str::<Value>(text) {
            // Not the state of a call, which is a word.
            Err(_) if is_json => text.to_owned(),
            Ok(mut value) if is_json || value.is_object() || value.is_array() => {
                let before = value.clone();
                self.leaves(&mut value);
                if value == before { text.to_owned() } else { value.to_string() }
            }
            _ => self.replaced(text).unwrap_or_else(|| text.to_owned()),
        }
    }

    /// Redacts all texts and numbers of a value, and the names of its members.
    fn leaves(&self, value: &mut Value) {
        each_leaf(value, &mut |leaf| {
            if let Some(replaced) = text_of(leaf).and_then(|text| self.replaced(&text)) {
                *leaf = like(leaf, replaced);
            }
        });
        self.names(value);
    }

    /// Redacts the names of members, which can be of data.
    fn names(&self, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.names(item)),
            Value::Object(members) => {
                let redacted = std::mem::take(members).into_iter().map(|(name, mut member)| {
                    self.names(&mut member);
                    (self.replaced(&name).unwrap_or(name), member)
                });
                *members = redacted.collect();
            }
            _ => {}
        }
    }

    /// Returns what is kept of the arguments of a call: its tool takes them as before.
    fn arguments(&mut self, text: &str, tool: Option<&str>) -> Result<String> {
        let Ok(arguments) = serde_json::from_str::<Value>(text) else {
            return Ok(self.text(text, false));
        };
        let tool = tool.unwrap_or_default();
        let accepting = self.tools.iter().find(|tools| accepts(tools, tool, text));
        let (mut kept, mut leaves) = (arguments.clone(), Vec::new());
        each_leaf(&mut kept, &mut |leaf| leaves.push(leaf.clone()));
        for (position, leaf) in leaves.iter().enumerate() {
            let before = text_of(leaf);
            let Some(replaced) = before.as_deref().and_then(|text| self.replaced(text)) else { continue };
            let before = before.unwrap_or_default().into_owned();
            // What a schema lists is known to who reads the program.
            let listed = accepting.filter(|tools| lists(tools, tool, &before)).map(|_| before.to_string());
            let of_form = self.placeholders.of_same_form(&before).into_iter().filter(|text| *text != before);
            let candidates = [replaced].into_iter().chain(of_form).chain(listed).map(|text| like(leaf, text));
            let kept_with = candidates.map(|candidate| with_leaf(&kept, position, candidate));
            let mut fitting = kept_with.filter(|with| match accepting {
                Some(tools) => accepts(tools, tool, &with.to_string()),
                None => true,
            });
            match fitting.next() {
                Some(with) => kept = with,
                None => {
                    return Err(failure(format!(
                        "an argument of `{tool}` cannot be redacted so that the tool still takes it; \
                         redact it by a function that writes what its schema allows"
                    )));
                }
            }
        }
        // The names of members of what no tool takes can be anything.
        if accepting.is_none() {
            self.names(&mut kept);
        }
        Ok(if kept == arguments { text.to_owned() } else { kept.to_string() })
    }
}

/// Returns a number or a text, as the other one.
fn like(leaf: &Value, text: String) -> Value {
    match leaf {
        Value::Number(_) => text.parse::<Number>().map_or(Value::String(text), Value::Number),
        _ => Value::String(text),
    }
}

fn text_of(leaf: &Value) -> Option<Cow<'_, str>> {
    match leaf {
        Value::String(text) => Some(text.into()),
        Value::Number(number) => Some(number.to_string().into()),
        _ => None,
    }
}

fn accepts(tools: &ToolSet, name: &str, arguments: &str) -> bool {
    tools.get(name).is_some() && tools.check_arguments(&ToolCall::new("", name, arguments)).is_ok()
}

/// Returns `true` if the schema of a tool lists this text as a possible value.
fn lists(tools: &ToolSet, name: &str, text: &str) -> bool {
    fn has(schema: &Value, text: &str) -> bool {
        match schema {
            Value::Object(members) => members.iter().any(|(key, member)| match member {
                Value::Array(values) if key == "enum" => values.iter().any(|value| value == text),
                member => key == "const" && member == text || has(member, text),
            }),
            Value::Array(items) => items.iter().any(|item| has(item, text)),
            _ => false,
        }
    }
    tools.get(name).is_some_and(|tool| has(tool.definition().parameters(), text))
}

/// Calls a function with each text and each number.
fn each_leaf(value: &mut Value, change: &mut impl FnMut(&mut Value)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| each_leaf(item, change)),
        Value::Object(members) => members.values_mut().for_each(|member| each_leaf(member, change)),
        Value::String(_) | Value::Number(_) => change(value),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Returns a value with another leaf at this position.
fn with_leaf(value: &Value, position: usize, leaf: Value) -> Value {
    let (mut value, mut at, mut leaf) = (value.clone(), 0, Some(leaf));
    each_leaf(&mut value, &mut |one| {
        if at == position {
            *one = leaf.take().unwrap_or_default();
        }
        at += 1;
    });
    value
}
