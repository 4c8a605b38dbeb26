//! The chunks of a streamed response.

use std::fmt;

use crate::model::ChatResponse;

/// A chunk of a streamed response.
///
/// The chunks are for display. [`Done`](Delta::Done) has the complete response, as assembled by the provider.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "a stream has one response, and few deltas wait at a time")]
pub enum Delta {
    /// The next chunk of the text.
    Text(String),
    /// The next chunk of the reasoning.
    Reasoning(String),
    /// The next chunk of a refusal's explanation.
    Refusal(String),
    /// The start of a tool call.
    ToolCall {
        /// The index of the call in the response.
        index: usize,
        /// The id of the call.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// The next chunk of a call's arguments.
    Arguments {
        /// The index of the call in the response.
        index: usize,
        /// The next chunk of the JSON text.
        text: String,
    },
    /// The complete response. Always the last item of a stream.
    Done(ChatResponse),
}

impl ChatResponse {
    /// Splits the response into the deltas of a stream, one per part of the message, with [`Delta::Done`] as the last.
    #[must_use]
    pub fn into_deltas(self) -> Vec<Delta> {
        let message = &self.message;
        let mut deltas = Vec::new();
        deltas.extend(message.reasoning.clone().map(Delta::Reasoning));
        if !message.text.is_empty() {
            deltas.push(Delta::Text(message.text.clone()));
        }
        deltas.extend(message.refusal.clone().map(Delta::Refusal));
        for (index, call) in message.tool_calls.iter().enumerate() {
            deltas.push(Delta::ToolCall { index, id: call.id.clone(), name: call.name.clone() });
            deltas.push(Delta::Arguments { index, text: call.arguments.clone() });
        }
        deltas.push(Delta::Done(self));
        deltas
    }
}

/// Shows only sizes, as conversations are private.
impl fmt::Debug for Delta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Reasoning(text) => write!(f, "Reasoning({} bytes)", text.len()),
            Self::Refusal(text) => write!(f, "Refusal({} bytes)", text.len()),
            Self::ToolCall { index, id, name } => write!(f, "ToolCall({index}, {id}, {name})"),
            Self::Arguments { index, text } => write!(f, "Arguments({index}, {} bytes)", text.len()),
            Self::Done(response) => f.debug_tuple("Done").field(response).finish(),
        }
    }
}
