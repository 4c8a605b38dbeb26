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
