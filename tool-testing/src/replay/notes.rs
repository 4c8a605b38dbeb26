//! What the model would read otherwise.

use std::collections::BTreeMap;

use tool_core::Message;
use tool_core::run::Run;

use super::difference::{Note, OfferChange};

/// Returns what the model would read otherwise in a run that does the same.
pub(super) fn notes(recorded: &Run, present: &Run) -> Vec<Note> {
    let mut notes = Vec::new();
    add_notes(recorded, present, "", &mut notes);
    notes.dedup();
    notes
}

fn add_notes(recorded: &Run, present: &Run, path: &str, notes: &mut Vec<Note>) {
    if instructions(recorded) != instructions(present) {
        notes.push(Note::Instructions { path: path.to_owned() });
    }
    let (before, now) = (recorded.engine_view().offered(), present.engine_view().offered());
    // A model was asked and the record does not say with what.
    if before.is_empty() && recorded.turns() > 0 && !now.is_empty() {
        notes.push(Note::OfferUnknown { path: path.to_owned() });
    } else if recorded.turns() > 0 {
        notes.extend(changes(before, now).map(|(tool, change)| {
            let (path, tool) = (path.to_owned(), tool.to_owned());
            Note::Offer { path, tool, change }
        }));
    }
    for (recorded, present) in recorded.inner_runs().zip(present.inner_runs()) {
        let separator = if path.is_empty() { "" } else { "/" };
        let path = format!("{path}{separator}{}", recorded.call_id());
        add_notes(recorded.run(), present.run(), &path, notes);
    }
}

fn instructions(run: &Run) -> Vec<String> {
    let before = run.messages().len() - run.new_messages().len();
    let system = run.messages()[..before].iter().filter(|message| matches!(message, Message::System(_)));
    system.map(|message| message.text().into_owned()).collect()
}

fn changes<'o>(
    before: &'o BTreeMap<String, String>,
    now: &'o BTreeMap<String, String>,
) -> impl Iterator<Item = (&'o String, OfferChange)> {
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    let there = now.iter().filter_map(|(name, digest)| match before.get(name) {
        None => Some((name, OfferChange::Added)),
        Some(other) => (other != digest).then_some((name, OfferChange::Changed)),
    });
    gone.map(|name| (name, OfferChange::Removed)).chain(there)
}
