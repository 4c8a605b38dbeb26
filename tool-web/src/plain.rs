//! The runs as plain HTML, for readers without scripts. Every text is escaped.

use std::fmt::Write;
use std::sync::Arc;

use tool_core::Event;
use tool_core::content::printable;
use url::form_urlencoded::byte_serialize;

use crate::entry::Entry;
use crate::list::List;
use crate::log::{Found, Row, RunLog};
use crate::wait::Described;

/// Returns the list, with links to the runs.
pub(crate) fn list(list: &List) -> String {
    let row = |row: &Row| {
        let id: String = byte_serialize(row.id.as_bytes()).collect::<String>().replace('+', "%20");
        let name = if row.question.is_empty() { &row.id } else { &row.question };
        let details = row.summary.iter().chain(&row.error).map(|text| format!("<br>{}", escape(text)));
        let details: String = details.collect();
        format!("<li><a href=\"plain/{id}\">{}</a> {}{details}</li>", escape(name), facts(row))
    };
    let rows: String = list.runs.iter().map(row).collect();
    let note = if list.is_reading { "<p>The stored runs are still being read.</p>" } else { "" };
    document("Runs", "", &format!("<h1>Runs</h1>{note}<ul>{rows}</ul>"))
}

/// Returns one run with what it waits for.
pub(crate) fn run(row: &Row, waits: &[Described], log: &Arc<RunLog>) -> String {
    let waits: String = waits.iter().map(|wait| format!("<li>{}</li>", escape(&wait.line()))).collect();
    let (mut text, mut reader) = (String::new(), log.read(log.first()));
    while let Found::Entry(_, logged) = reader.try_next() {
        write_entry(&mut text, &logged.entry);
    }
    let body = format!(
        "<p><a href=\"../plain\">Runs</a></p><h1>{}</h1><p>{}</p><ul>{waits}</ul><pre class=\"full\">{}</pre>",
        escape(&row.question),
        facts(row),
        escape(&text)
    );
    document(&row.question, "../", &body)
}

fn facts(row: &Row) -> String {
    let cost = row.usage.cost.map(|cost| format!(" · {cost}")).unwrap_or_default();
    let (agent, status) = (escape(&row.agent), format!("{:?}", row.status).to_lowercase());
    format!("{status} · {agent} · turn {} · {} tokens{cost}", row.turns, row.usage.total_tokens)
}

fn document(title: &str, base: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{}</title><link rel=\"icon\" href=\"{base}icon.svg\">\
         <link rel=\"stylesheet\" href=\"{base}page.css\"></head><body>{body}</body></html>",
        escape(title)
    )
}

/// Makes a text of other parties readable and harmless in HTML.
fn escape(text: &str) -> String {
    let text = printable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

fn write_entry(out: &mut String, entry: &Entry) {
    // Writing into a `String` does not fail.
    let _ = match entry {
        Entry::Question { text } => writeln!(out, "\nQuestion: {text}"),
        Entry::Decided(decided) => {
            let by = decided.record.by.as_deref().unwrap_or("somebody");
            writeln!(out, "\n{}: {:?} by {by}", decided.call, decided.record.kind)
        }
        Entry::Failed { error, .. } => writeln!(out, "\nFailed: {error}"),
        Entry::Cancelled => writeln!(out, "\nCancelled"),
        Entry::Event(record) => return write_event(out, &record.event),
    };
}

fn write_event(out: &mut String, event: &Event) {
    let _ = match event {
        Event::TurnStarted { turn, .. } => writeln!(out, "\nTurn {turn}"),
        // The deltas of a reply are not part of all runs.
        Event::TurnFinished { response, .. } => {
            let reply = &response.message;
            let texts = [reply.reasoning.as_deref(), Some(&reply.text), reply.refusal.as_deref()];
            out.extend(
                texts.into_iter().flatten().filter(|text| !text.is_empty()).flat_map(|text| [text, "\n"]),
            );
            let mut calls = reply.tool_calls.iter();
            calls.try_for_each(|call| writeln!(out, "{} {}", call.name, call.arguments))
        }
        Event::CallFinished(execution) => {
            let layers =
                execution.verdicts().iter().map(|verdict| &*verdict.layer).collect::<Vec<_>>().join(", ");
            let layers = if layers.is_empty() { layers } else { format!(" (changed by {layers})") };
            writeln!(out, "\n{execution}{layers}")
        }
        Event::Waiting(_) => writeln!(out, "\nWaiting"),
        Event::Agent { agent, event, .. } => {
            let mut inner = String::new();
            write_event(&mut inner, event);
            let inner = inner.trim_start();
            if inner.is_empty() { Ok(()) } else { write!(out, "\n{agent} › {inner}") }
        }
        Event::HandedOff { agent, .. } => writeln!(out, "\nHanded off to {agent}"),
        Event::Done(_) => writeln!(out, "\n\nDone"),
        _ => Ok(()),
    };
}
