//! What the model would read otherwise.

use std::collections::{BTreeMap, BTreeSet};

use tool_core::Message;
use tool_core::run::Run;

use super::difference::{Note, OfferChange};

/// Tools that agents offer by themselves: for what is not sent in full, which depends on tokens that are not repeated, and for answers of a type
/// that is not known.
const OWN_TOOLS: [&str; 2] = ["read_output", "final_answer"];

/// Returns what the model would read otherwise in a run that does the same.
pub(super) fn notes(recorded: &Run, present: &Run, assumed: &BTreeSet<String>) -> Vec<Note> {
    let mut notes: Vec<_> = assumed.iter().map(|tool| Note::Assumed { tool: tool.clone() }).collect();
    add_notes(recorded, present, "", &mut notes);
    // Nothing more is known of them.
    notes.retain(|note| !matches!(note, Note::Offer { tool, .. } if assumed.contains(tool)));
    notes
}

fn add_notes(recorded: &Run, present: &Run, path: &str, notes: &mut Vec<Note>) {
    let (before, now) = (instructions(recorded), instructions(present));
    // Those of the question precede the agent's.
    let is_same =
        before == now || before.ends_with(&format!("\n\n{now}")) || now.ends_with(&format!("\n\n{before}"));
    if !is_same {
        notes.push(Note::Instructions { path: path.to_owned() });
    }
    let (before, now) = (recorded.engine_view().offered(), present.engine_view().offered());
    // A model was asked and the record does not say with what.
    if before.is_empty() && recorded.turns() > 0 && !now.is_empty() {
        notes.push(Note::OfferUnknown { path: path.to_owned() });
    } else if recorded.turns() > 0 && present.turns() >= recorded.turns() {
        notes.extend(changes(before, now).map(|(tool, change)| {
            let (path, tool) = (path.to_owned(), tool.to_owned());
            Note::Offer { path, tool, change }
        }));
    }
    let results = recorded.new_messages().iter().zip(present.new_messages());
    // Outputs that become the answer are judged once more.
    let is_judged = !recorded.engine_view().has_unjudged_answer();
    notes.extend(results.filter(|_| is_judged).filter_map(|(recorded, present)| match (recorded, present) {
        (Message::Tool(one), Message::Tool(now)) if one.content.text() != now.content.text() => {
            Some(Note::Result { path: join(path, &one.call_id) })
        }
        _ => None,
    }));
    for (recorded, present) in recorded.inner_runs().zip(present.inner_runs()) {
        let path = join(path, recorded.call_id());
        add_notes(recorded.run(), present.run(), &path, notes);
    }
}

fn join(path: &str, call_id: &str) -> String {
    if path.is_empty() { call_id.to_owned() } else { format!("{path}/{call_id}") }
}

fn instructions(run: &Run) -> String {
    let before = run.messages().len() - run.new_messages().len();
    let system = run.messages()[..before].iter().filter(|message| matches!(message, Message::System(_)));
    system.map(|message| message.text().into_owned()).collect::<Vec<_>>().join("\n\n")
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
    let changes = gone.map(|name| (name, OfferChange::Removed)).chain(there);
    changes.filter(|(name, _)| !OWN_TOOLS.contains(&name.as_str()))
}
