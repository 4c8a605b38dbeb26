//! What a stream holds back of a reply.

use crate::agent::Event;
use crate::model::{ChatResponse, Delta};
use crate::run::clean_name;

/// The deltas of a reply that are emitted once layers have judged or rewritten it.
#[derive(Clone, Copy, Default)]
pub(super) struct Hold {
    pub(super) text: bool,
    pub(super) calls: bool,
}

impl Hold {
    pub(super) fn holds(self, delta: &Delta) -> bool {
        match delta {
            Delta::ToolCall { .. } | Delta::Arguments { .. } => self.calls,
            _ => self.text,
        }
    }

    /// Returns the events of what was held back, from the final response.
    pub(super) fn held_events(self, response: &ChatResponse) -> impl Iterator<Item = Event> {
        let is_needed = self.text || self.calls;
        let deltas = if is_needed { response.clone().into_deltas() } else { Vec::new() };
        deltas.into_iter().filter(move |delta| self.holds(delta)).filter_map(delta_event)
    }
}

/// Returns the event of a delta.
pub(super) fn delta_event(delta: Delta) -> Option<Event> {
    Some(match delta {
        Delta::Text(text) => Event::Text(text),
        Delta::Refusal(text) => Event::Refusal(text),
        Delta::Reasoning(text) => Event::Reasoning(text),
        Delta::ToolCall { index, id, name } => {
            Event::CallAnnounced { index, id, name: clean_name(&name).to_owned() }
        }
        Delta::Arguments { index, text } => Event::Arguments { index, text },
        Delta::Done(_) => return None,
    })
}
