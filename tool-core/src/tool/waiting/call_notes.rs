//! What a call knows when it is executed again: the answers to its questions, and the values that it has recorded.
//!
//! Notes travel in `CallRequest` and `ToolExecution`, so that a call can also ask when it is executed in another process.

use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize, Serializer};

use crate::tool::timing::micros_since_epoch;
use crate::tool::{Question, Timestamp, VerdictRecord};

/// The number of questions that one call may ask.
pub(super) const MAX_QUESTIONS: u32 = 32;

/// The bytes of an answer, and of a value that a call records. A state must not grow without bound.
pub(crate) const MAX_TEXT: usize = 64 * 1024;

/// The number of values that a call may record.
const MAX_VALUES: usize = 64;

/// The notes of a call, which belong to the call and outlive its attempts.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CallNotes {
    #[serde(default, serialize_with = "without_secrets", skip_serializing_if = "Vec::is_empty")]
    questions: Vec<Asked>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    values: Vec<Value>,
    /// The number of questions that the call has asked.
    #[serde(default)]
    asked: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parked: Option<Parked>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<Box<AgentNote>>,
}

/// What a call that has asked an agent needs when it is executed again with the answer.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct AgentNote {
    /// The time when the call was executed first.
    #[serde(with = "micros_since_epoch", default, skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<SystemTime>,
    /// What the layers of sets have decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) passed: Vec<Passed>,
}

/// What the layers of a set have decided about a call that passes.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Passed {
    /// The name of the tool, as they see it.
    pub(crate) tool: String,
    /// The arguments that they got.
    pub(crate) given: String,
    /// The arguments that they wrote, if these are others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) written: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) verdicts: Vec<VerdictRecord>,
}

/// What a call that was parked needs when it continues, and the time until which it waits, unless that has come.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Parked {
    /// The state as JSON text.
    pub(super) state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Asked {
    question: Question,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply: Option<QuestionReply>,
    /// The number of the questions that were answered before.
    #[serde(default)]
    position: usize,
}

/// The reply to a question.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QuestionReply {
    /// The answer, a JSON text.
    Answer(String),
    Declined(Option<String>),
    Expired,
    Unavailable,
    /// Nobody can be asked, for this reason.
    Refused(String),
}

/// A value that the call has computed once.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Value {
    name: String,
    occurrence: u32,
    /// The value as JSON text.
    value: String,
}

/// Omits questions with secret answers: a restored call asks them again.
fn without_secrets<S: Serializer>(questions: &[Asked], serializer: S) -> Result<S::Ok, S::Error> {
    let is_public = |asked: &&Asked| {
        !asked.question.is_secret() || !matches!(asked.reply, Some(QuestionReply::Answer(_)))
    };
    serializer.collect_seq(questions.iter().filter(is_public))
}

impl CallNotes {
    /// Returns the notes of a call that asks an agent.
    pub(crate) fn of_agent(note: AgentNote) -> Self {
        Self { agent: Some(note.into()), ..Self::default() }
    }

    /// Returns what the call needs when it is executed again with the answer of its agent.
    pub(crate) fn agent(&self) -> Option<&AgentNote> {
        self.agent.as_deref()
    }

    /// Returns the questions without a reply, each with the time since when it waits.
    pub(crate) fn open(&self) -> impl Iterator<Item = (&Question, Option<Timestamp>)> {
        let open = self.questions.iter().filter(|asked| asked.reply.is_none());
        open.map(|asked| (&asked.question, asked.since))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.questions.is_empty() && self.values.is_empty() && self.parked.is_none()
    }

    /// Returns the time until which the call is parked, and since when.
    pub(crate) fn parked(&self) -> Option<(Timestamp, Option<Timestamp>)> {
        let parked = self.parked.as_ref()?;
        Some((parked.until?, parked.since))
    }

    /// Returns `true` if the call has to wait.
    pub(crate) fn is_waiting(&self) -> bool {
        self.open().next().is_some() || self.parked().is_some()
    }

    /// Returns `true` if the call has recorded a value or was parked, and so may have had an effect.
    pub(crate) fn has_effects(&self) -> bool {
        !self.values.is_empty() || self.parked.is_some()
    }

    /// Sets the time of what waits from now on, and ends the waits whose time has come. Returns the questions that have expired.
    pub(crate) fn tick(&mut self, now: Timestamp) -> Vec<Question> {
        if let Some(parked) = &mut self.parked {
            parked.since.get_or_insert(now);
            parked.until = parked.until.filter(|until| *until > now);
        }
        let mut expired = Vec::new();
        for asked in self.questions.iter_mut().filter(|asked| asked.reply.is_none()) {
            let since = *asked.since.get_or_insert(now);
            if asked.question.deadline(since).is_some_and(|deadline| deadline <= now) {
                expired.push(asked.question.clone());
            }
        }
        expired
    }

    pub(super) fn park(&mut self, parked: Parked) {
        self.parked = Some(parked);
    }

    /// Returns the state that the call was parked with, as JSON text.
    pub(super) fn state(&self) -> Option<&str> {
        self.parked.as_ref().map(|parked| &*parked.state)
    }

    /// Records the reply to an open question.
    pub(crate) fn reply(&mut self, question: &Question, reply: QuestionReply) {
        let position = self.questions.iter().filter(|asked| asked.reply.is_some()).count();
        let mut open = self.questions.iter_mut().filter(|asked| asked.reply.is_none());
        if let Some(asked) = open.find(|asked| asked.question.is_same(question)) {
            (asked.reply, asked.position) = (Some(reply), position);
        }
    }

    /// Returns the reply to a question, if there is one.
    pub(super) fn find(&self, question: &Question) -> Option<&QuestionReply> {
        self.questions.iter().find(|asked| asked.question.is_same(question))?.reply.as_ref()
    }

    /// Removes the reply to a question, and the replies after it.
    pub(super) fn forget(&mut self, question: &Question) {
        let found =
            self.questions.iter().find(|asked| asked.question.is_same(question) && asked.reply.is_some());
        if let Some(first) = found.map(|asked| asked.position) {
            self.questions.retain(|asked| asked.reply.is_some() && asked.position < first);
        }
    }

    /// Replaces the open questions by these. One that was open before stays as it is.
    pub(super) fn ask(&mut self, open: Vec<Question>) {
        let before: Vec<_> = self.questions.extract_if(.., |asked| asked.reply.is_none()).collect();
        for mut question in open {
            let was_open = before
                .iter()
                .find(|asked| Question { round: asked.question.round, ..question.clone() } == asked.question);
            self.questions.push(match was_open {
                Some(asked) => asked.clone(),
                None => {
                    question.round = self.asked;
                    self.asked += 1;
                    Asked { question, since: None, reply: None, position: 0 }
                }
            });
        }
    }

    /// Returns `true` if the call may ask so many further questions.
    pub(super) fn may_ask(&self, more: usize) -> bool {
        let asked = usize::try_from(self.asked).unwrap_or(usize::MAX);
        asked.saturating_add(more) <= MAX_QUESTIONS as usize
    }

    /// Returns the recorded value with this name, as JSON text.
    pub(super) fn value(&self, name: &str, occurrence: u32) -> Option<&str> {
        let found = self.values.iter().find(|value| value.name == name && value.occurrence == occurrence);
        found.map(|value| &*value.value)
    }

    /// Records a value. Fails if it is too large, or if there are too many.
    pub(super) fn record(
        &mut self,
        name: String,
        occurrence: u32,
        value: String,
    ) -> Result<(), &'static str> {
        if name.len() + value.len() > MAX_TEXT {
            return Err("the value that the call recorded is too large");
        }
        if self.values.len() >= MAX_VALUES {
            return Err("the call has recorded too many values");
        }
        self.values.push(Value { name, occurrence, value });
        Ok(())
    }
}

/// Omits answers and values, which can be secret.
impl fmt::Debug for CallNotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallNotes")
            .field("open", &self.open().count())
            .field("questions", &self.questions.len())
            .field("values", &self.values.len())
            .finish_non_exhaustive()
    }
}
