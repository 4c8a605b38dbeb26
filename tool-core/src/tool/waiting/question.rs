//! A question of a tool to a person.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tool::Timestamp;
use crate::tool::timing::optional_micros;

/// The maximum number of choices in an error.
const MAX_LISTED: usize = 8;

/// A question of a tool to a person, which an [`Asker`](crate::tool::Asker) asks. The call waits for the answer.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    pub(super) text: String,
    pub(super) schema: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) choices: Vec<Value>,
    /// What a person sees in place of the choices, or nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) labels: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) default: Option<Value>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_secret: bool,
    #[serde(default, with = "optional_micros", skip_serializing_if = "Option::is_none")]
    pub(super) expires: Option<Duration>,
    /// How often the call has asked for the same text and type before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) occurrence: u32,
    /// How many questions the call has asked before, so that one that is asked again differs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) round: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Question {
    /// Returns the text of the question.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the JSON Schema of the answer.
    #[must_use]
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// Returns the answers to choose from, or nothing if any answer of the type is allowed.
    #[must_use]
    pub fn choices(&self) -> &[Value] {
        &self.choices
    }

    /// Returns the labels of the [choices](Self::choices), or nothing if they have none.
    #[must_use]
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Returns the [choices](Self::choices), each with what a person sees of it: its label, its text, or else its JSON.
    pub fn labeled_choices(&self) -> impl ExactSizeIterator<Item = (Cow<'_, str>, &Value)> {
        self.choices.iter().enumerate().map(|(position, choice)| match self.labels.get(position) {
            Some(label) => (label.into(), choice),
            None => (choice.as_str().map_or_else(|| choice.to_string().into(), Cow::Borrowed), choice),
        })
    }

    /// Returns the answer, as JSON text, in what a person wrote: one of the choices or its label, a JSON text, or else a text.
    #[must_use]
    pub fn answer_of(&self, text: &str) -> String {
        if let Some((_, choice)) = self.labeled_choices().find(|(label, _)| label == text) {
            return choice.to_string();
        }
        let is_text = self.schema["type"] == "string";
        match serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_string() || !is_text) {
            true => text.to_owned(),
            false => Value::from(text).to_string(),
        }
    }

    /// Returns the answer that holds if the question expires or nobody can be asked, to be suggested.
    #[must_use]
    pub fn default(&self) -> Option<&Value> {
        self.default.as_ref()
    }

    /// Returns `true` if the answer is secret. It is not to be shown while it is typed, and is never stored with the run.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.is_secret
    }

    /// Returns what was wrong with an earlier answer, if the question is asked again because of that.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Returns the time at which a question expires that was asked at this time.
    pub(crate) fn deadline(&self, since: Timestamp) -> Option<Timestamp> {
        self.expires.map(|expires| since.after(expires))
    }

    /// Returns `true` if the question is the same, although its choices or its default can differ.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.occurrence == other.occurrence && self.text == other.text && self.schema == other.schema
    }

    /// Checks an answer, a JSON text.
    pub(crate) fn check(&self, answer: &str) -> Result<(), String> {
        let answer: Value =
            serde_json::from_str(answer).map_err(|error| format!("no JSON value: {error}"))?;
        if self.choices.is_empty() || self.choices.contains(&answer) {
            return Ok(());
        }
        let listed: Vec<_> = self.choices.iter().take(MAX_LISTED).map(Value::to_string).collect();
        let others = if self.choices.len() > MAX_LISTED { ", …" } else { "" };
        Err(format!("not one of the choices: {}{others}", listed.join(", ")))
    }
}

/// Omits texts, which can contain arguments.
impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question")
            .field("text", &format_args!("{} bytes", self.text.len()))
            .field("choices", &self.choices.len())
            .field("is_secret", &self.is_secret)
            .finish_non_exhaustive()
    }
}
