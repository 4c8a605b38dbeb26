//! Checks between two lives and at the end.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::support::stores::{AnyStore, run_ids};
use tool_core::model::ConversationId;
use tool_core::store::RunStore;
use tool_core::{ChatMemory, Message};

use super::life::{Outcome, wait_for};
use super::scenario::{CONVERSATION, INNER_CONVERSATION, Variant, history};
use super::world::{Effect, effects};
use tests::support::ways::assert_valid;

/// The end of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct End {
    /// The text of the answer or of the error.
    pub(crate) text: String,
    pub(crate) messages: Vec<Message>,
    pub(crate) is_answer: bool,
    /// The ids of the undo calls, in order.
    pub(crate) undone: Vec<String>,
}

impl End {
    pub(crate) fn new(outcome: &Outcome) -> Self {
        match outcome {
            Ok(answer) => Self {
                text: answer.text().to_owned(),
                messages: answer.new_messages().to_vec(),
                is_answer: true,
                undone: Vec::new(),
            },
            Err(error) => Self {
                text: error.to_string(),
                messages: error.run().new_messages().to_vec(),
                is_answer: false,
                undone: error.run().undo_executions().iter().map(|one| one.call().id.clone()).collect(),
            },
        }
    }
}

/// Checks one run over all of its lives.
pub(crate) struct Witness {
    variant: Variant,
    /// The end and the effects of an undisturbed run.
    expected: (End, Vec<Effect>),
    store: AnyStore,
    log: PathBuf,
    /// The number of effects of each call whose outcome is stored.
    recorded: HashMap<String, usize>,
}

impl Witness {
    pub(crate) fn new(variant: Variant, expected: (End, Vec<Effect>), store: AnyStore, log: &Path) -> Self {
        Self { variant, expected, store, log: log.to_owned(), recorded: HashMap::new() }
    }

    /// Checks between two lives that no call with a stored outcome was executed again.
    pub(crate) fn check(&mut self) {
        let effects = effects(&self.log);
        let count = |id: &str| effects.iter().filter(|one| one.call_id == id).count();
        for (id, before) in &self.recorded {
            assert_eq!(count(id), *before, "{id} was executed again after its outcome was stored");
        }
        for run in wait_for(run_ids(&self.store)) {
            let run = wait_for(self.store.load_run(&run)).unwrap().unwrap();
            let state = serde_json::to_value(&run).unwrap();
            for id in recorded(&state) {
                let times = count(&id);
                self.recorded.insert(id, times);
            }
        }
        let stored = self.stored();
        assert_valid(&stored);
        let has_all = stored.len() > history().len();
        assert!(
            !has_all || stored.len() == history().len() + self.expected.0.messages.len(),
            "the run is stored partially: {stored:?}"
        );
        let inner = self.stored_inner();
        assert!(
            [0, self.variant.inner_messages()].contains(&inner),
            "the inner run is stored partially: {inner}"
        );
    }

    /// Returns the stored conversation.
    fn stored(&self) -> Vec<Message> {
        let memory = ChatMemory::new(self.store.clone());
        wait_for(memory.messages(&ConversationId::new(CONVERSATION))).unwrap()
    }

    /// Returns the number of messages in the stored conversation of the agent that is asked.
    fn stored_inner(&self) -> usize {
        let memory = ChatMemory::new(self.store.clone());
        wait_for(memory.messages(&ConversationId::new(INNER_CONVERSATION))).unwrap().len()
    }

    /// Checks at the end that everything is as in an undisturbed run.
    pub(crate) fn conclude(&mut self, end: Option<End>) {
        self.check();
        assert_eq!(wait_for(run_ids(&self.store)), Vec::<String>::new());
        let (expected, expected_effects) = &self.expected;
        let effects = effects(&self.log);
        if let Some(end) = &end {
            assert_eq!((end.is_answer, &end.undone), (expected.is_answer, &expected.undone));
            assert_same(&end.messages, &expected.messages, &effects);
            if !expected.is_answer {
                assert_eq!(end.text, expected.text);
            }
        }
        let stored = self.stored();
        assert_eq!(stored[..history().len()], history());
        let added = &stored[history().len()..];
        match self.variant {
            Variant::Answered | Variant::Talk | Variant::Asks => {
                assert_same(added, &expected.messages, &effects)
            }
            Variant::Failed | Variant::AsksAndFails => assert_eq!(added, []),
        }
        assert_eq!(self.stored_inner(), self.variant.inner_messages());
        assert_effects(&effects, expected_effects);
    }
}

/// Returns the ids of the calls whose outcome is in the state.
fn recorded(state: &Value) -> Vec<String> {
    let of_turn = state.pointer("/stage/calling/calls").and_then(Value::as_array);
    let of_turn = of_turn.into_iter().flatten().filter_map(|one| one.pointer("/state/finished/call/id"));
    let over = state["history"]["executions"].as_array().into_iter().flatten().map(|one| &one["id"]);
    let undone =
        state["history"]["undo_executions"].as_array().into_iter().flatten().map(|one| &one["call"]["id"]);
    let own = of_turn.chain(over).chain(undone).map(|id| id.as_str().unwrap().to_owned());
    let open = state.pointer("/stage/calling/calls").and_then(Value::as_array);
    let open = open.into_iter().flatten().filter_map(|one| one.pointer("/agent/run"));
    let ended = state["agents"].as_array().into_iter().flatten().map(|one| &one["run"]);
    own.chain(open.chain(ended).flat_map(recorded)).collect()
}

/// Checks that the messages are equal, except that the outcome of `at_most_once` calls may be unknown.
fn assert_same(messages: &[Message], expected: &[Message], effects: &[Effect]) {
    assert_eq!(messages.len(), expected.len());
    for (message, expected) in messages.iter().zip(expected) {
        match message {
            Message::Tool(result) if result.name == "charge" => {
                let times = effects.iter().filter(|one| one.call_id == result.call_id).count();
                if result.is_error {
                    assert!(message.text().starts_with("the outcome of the call is unknown"));
                    assert!(times <= 1, "{times}");
                } else {
                    assert_eq!((message, times), (expected, 1));
                }
            }
            // Its text contains the results of the inner run; one of them may be unknown.
            Message::Tool(result) if result.name == "team" => assert!(!result.is_error),
            Message::Assistant(reply) if reply.tool_calls.is_empty() && messages.len() > 2 => {
                // The text contains all results.
                let results = messages.iter().filter(|one| matches!(one, Message::Tool(_)));
                assert_eq!(reply.text, results.map(Message::text).collect::<Vec<_>>().join(", "));
            }
            _ => assert_eq!(message, expected),
        }
    }
}

fn assert_effects(effects: &[Effect], expected: &[Effect]) {
    let mut keys: HashMap<&str, &str> = HashMap::new();
    let mut attempts: HashMap<&str, u32> = HashMap::new();
    for one in effects {
        assert_eq!(*keys.entry(&one.call_id).or_insert(&one.key), one.key, "a call has one key");
        let last = attempts.insert(&one.call_id, one.attempt).unwrap_or(0);
        assert!(one.attempt > last, "{one:?} after attempt {last}");
    }
    for level in [false, true] {
        let of_level = effects.iter().filter(|one| one.call_id.contains("inner_") == level);
        let runs: HashSet<_> = of_level.map(|one| one.key.split('/').next()).collect();
        assert!(runs.len() <= 1, "more than one run");
    }
    for one in effects.iter().filter(|one| one.tool == "charge") {
        let times = effects.iter().filter(|other| other.call_id == one.call_id).count();
        assert_eq!(times, 1, "an `at_most_once` call was executed again");
    }
    let first = |effects: &[Effect], tool: Option<&str>| {
        let mut ids: Vec<String> = Vec::new();
        for one in effects.iter().filter(|one| tool.is_none_or(|tool| one.tool == tool)) {
            if !ids.contains(&one.call_id) {
                ids.push(one.call_id.clone());
            }
        }
        ids
    };
    // An `at_most_once` call may have been interrupted before its effect.
    let charged = first(expected, Some("charge"));
    let certain = |effects| {
        let mut ids = first(effects, None);
        ids.retain(|id| !charged.contains(id));
        ids.sort();
        ids
    };
    assert_eq!(certain(effects), certain(expected));
    assert_eq!(
        first(effects, Some("cancel")),
        first(expected, Some("cancel")),
        "the last call is undone first"
    );
}
