//! The form in which events are stored and sent to other processes.
//!
//! Events are sent as `EventRecord`s, and `Event` has no serde form of its own, because texts must not get into logs by mistake.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::answer::Answer;
use super::event::Event;
use super::wait::Wait;
use crate::model::{ChatResponse, Cost, ToolCall};
use crate::tool::{CallDecision, ToolExecution, ToolProgress};

/// An event with its position: the form in which pages, streams and workers send the events of a run, with all texts and arguments.
/// [`Event`] itself is not serializable, so that none of them gets into a log by mistake.
///
/// Positions increase within a run and can have gaps. The party that puts the events of a run in order assigns them, such as a log;
/// [`EventStream::records`](crate::agent::EventStream::records) counts. A reader that was disconnected asks for what follows the last
/// position that it has. The events of agents that calls asked are [nested](Event::Agent) and have the positions of the outer run.
///
/// What layers replaced is not sent, unless the record was created by [`Event::at_with_originals`]. An answer is sent without what the
/// events before it contain: its messages, executions and inner runs are empty. An event of an
/// unknown kind is read as [`Event::Unknown`], so readers may be older than writers.
///
/// ```
/// use tool_core::Event;
/// use tool_core::agent::EventRecord;
///
/// let record = Event::Text("Hi".into()).at(7);
/// let json = r#"{"position":7,"type":"text","text":"Hi"}"#;
/// assert_eq!(serde_json::to_string(&record)?, json);
/// let read: EventRecord = serde_json::from_str(json)?;
/// assert!(matches!(&read.event, Event::Text(text) if text == "Hi"));
/// # Ok::<_, serde_json::Error>(())
/// ```
///
/// Each record is a JSON object with a `position`, a `type` and these members:
///
/// | `type` | members |
/// | --- | --- |
/// | `question` | `text` of a message of the user, once the run takes it; `by`, if the sender is known |
/// | `turn_started`, `turn_finished` | `turn`; at the beginning the number of `messages`, at the end the `response` with its `message` and `usage`. A turn that starts again replaces what it had |
/// | `text`, `reasoning`, `refusal` | `text`: a delta |
/// | `call_announced`, `arguments` | `index` in the reply; `id` and `name`, or `text`: a delta |
/// | `call_ready`, `call_started` | `id`, `name`, `arguments`; the first with the `index` in the reply |
/// | `call_progress` | `id`, `name`, `text`, `done` and `total` |
/// | `call_retried`, `call_finished` | `call`, `outcome` (`Ok` with the `content`, or `Err` with `kind` and `message`), `duration` in microseconds, and if there are any `attempts`, `repairs`, `asked` (the model's arguments), `decisions`, `verdicts` |
/// | `call_decided` | `call_id`, `tool`, `wait`, `kind`, and if they are known `why`, `by`, `at` |
/// | `waiting` | `waits`: each with `id`, `path`, `tool`, `reason` (with `approval`, `answer`, `result` or `until`), `since` and `deadline` |
/// | `agent` | `agent`, `call_id` and an `event` of the agent that the call asked |
/// | `handed_off` | `agent` |
/// | `compacted` | `outputs`, `messages`: the numbers of those that were hidden |
/// | `charged` | `micros` and `currency` of the cost of a request |
/// | `done` | `text`, `finish_reason`, `usage` |
/// | `failed` | `text`: the error |
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EventRecord {
    /// The position of the event in its run.
    pub position: u64,
    /// The event.
    #[serde(flatten, with = "Form")]
    pub event: Event,
}

impl Event {
    /// Returns the record of this event at a position, to be stored or sent. It contains nothing that layers replaced.
    #[must_use]
    pub fn at(self, position: u64) -> EventRecord {
        self.without_replaced().at_with_originals(position)
    }

    /// Returns the record of this event with the outcomes and the arguments that layers replaced, such as secrets that they hid. Only
    /// readers that may see the stored run may see it.
    #[must_use]
    pub fn at_with_originals(self, position: u64) -> EventRecord {
        EventRecord { position, event: self }
    }

    fn without_replaced(self) -> Self {
        match self {
            Self::CallRetried(execution) => Self::CallRetried(execution.without_replaced()),
            Self::CallFinished(execution) => Self::CallFinished(execution.without_replaced()),
            Self::Agent { agent, call_id, event } => {
                Self::Agent { agent, call_id, event: Box::new(event.without_replaced()) }
            }
            event => event,
        }
    }
}

/// The serialized form of [`Event`]. Its tags and fields never change.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Event", tag = "type", rename_all = "snake_case")]
enum Form {
    Question {
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    Compacted {
        outputs: usize,
        messages: usize,
    },
    TurnStarted {
        turn: u32,
        messages: usize,
    },
    Text(#[serde(with = "text")] String),
    Reasoning(#[serde(with = "text")] String),
    Refusal(#[serde(with = "text")] String),
    CallAnnounced {
        index: usize,
        id: String,
        name: String,
    },
    Arguments {
        index: usize,
        text: String,
    },
    CallReady {
        index: usize,
        #[serde(flatten)]
        call: ToolCall,
    },
    TurnFinished {
        turn: u32,
        response: ChatResponse,
    },
    Charged(Cost),
    CallStarted(ToolCall),
    CallProgress {
        id: String,
        name: String,
        #[serde(flatten)]
        progress: ToolProgress,
    },
    CallRetried(ToolExecution),
    CallDecided(CallDecision),
    CallFinished(ToolExecution),
    Waiting(#[serde(with = "waits")] Vec<Wait>),
    Agent {
        agent: String,
        call_id: String,
        #[serde(serialize_with = "write_inner", deserialize_with = "read_inner")]
        event: Box<Event>,
    },
    HandedOff {
        agent: String,
    },
    Done(#[serde(serialize_with = "write_summary")] Answer),
    Failed(#[serde(with = "text")] String),
    #[serde(other)]
    Unknown,
}

fn write_summary<S: Serializer>(answer: &Answer, serializer: S) -> Result<S::Ok, S::Error> {
    answer.summary().serialize(serializer)
}

fn write_inner<S: Serializer>(event: &Event, serializer: S) -> Result<S::Ok, S::Error> {
    Form::serialize(event, serializer)
}

fn read_inner<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<Event>, D::Error> {
    Form::deserialize(deserializer).map(Box::new)
}

/// A text as the field of an object.
mod text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Field<T> {
        text: T,
    }

    pub(super) fn serialize<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
        Field { text }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
        Field::deserialize(deserializer).map(|field| field.text)
    }
}

/// Waits as the field of an object.
mod waits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::run::Wait;

    #[derive(Serialize, Deserialize)]
    struct Field<T> {
        waits: T,
    }

    pub(super) fn serialize<S: Serializer>(waits: &[Wait], serializer: S) -> Result<S::Ok, S::Error> {
        Field { waits }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Wait>, D::Error> {
        Field::deserialize(deserializer).map(|field| field.waits)
    }
}
