//! What a driver keeps of a run beside the run, by what it is for.

use std::sync::Arc;

use super::hold::Hold;
use super::lease::RunLease;
use crate::agent::Event;
use crate::agent::compaction::Compaction;
use crate::agent::spending::RequestMeter;
use crate::memory::OpenConversation;
use crate::model::ConversationId;
use crate::run::EmittedCalls;

/// The model request of the present step.
#[derive(Default)]
pub(super) struct Requested {
    /// Counts it, until its response is recorded.
    pub(super) meter: Option<Arc<RequestMeter>>,
    /// The response that `call_model` has returned may be recorded.
    pub(super) reply: Option<Hold>,
}

/// What listeners get, once it is saved.
pub(super) struct News {
    /// What is to be emitted before the next step goes on.
    pub(super) events: Vec<Event>,
    /// What begins the turn, which follows what is known of the one before.
    pub(super) turn_events: Vec<Event>,
    /// The turn of the last `TurnStarted` event.
    pub(super) announced_turn: u32,
    /// The finished calls that were emitted.
    pub(super) reported: EmittedCalls,
}

impl News {
    /// Drops what was not emitted.
    pub(super) fn forget(&mut self) {
        self.events.clear();
        self.turn_events.clear();
    }
}

/// How the run is stored.
pub(in crate::agent) struct Storage {
    pub(super) lease: RunLease,
    /// The ids of the commands from the inbox that were applied.
    pub(super) applied_commands: Vec<String>,
    /// The run differs from its stored state.
    pub(in crate::agent) has_unsaved_changes: bool,
}

/// The conversation of the run in the memory.
#[derive(Default)]
pub(super) struct Conversation {
    /// Its key, if the application sets one.
    pub(super) key: Option<ConversationId>,
    /// Open until the run has ended.
    pub(super) opened: Option<Arc<OpenConversation>>,
}

/// What the next compaction depends on.
#[derive(Default)]
pub(super) struct Compacting {
    /// The run is compacted in this way before its next request.
    pub(super) ordered: Option<Compaction>,
    /// The tokens that the next request sends again and that could be hidden.
    pub(super) hideable: u64,
    /// The provider could not be asked for the model's context window.
    pub(super) has_no_window: bool,
}
