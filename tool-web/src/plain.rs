//! The runs as plain HTML, for readers without scripts. Every text is escaped.

use tool_core::Event;
use tool_core::engine::CallDecision;
use tool_core::provider::printable;
use url::form_urlencoded::byte_serialize;

use crate::entry::{Entry, output};
use crate::list::List;
use crate::log::RunLog;
use crate::row::Row;
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
pub(crate) fn run(row: &Row, waits: &[Described], log: &RunLog) -> String {
    let waits: String = waits.iter().map(|wait| format!("<li>{}</li>", escape(&wait.line()))).collect();
    let mut html = String::new();
    log.entries().iter().for_each(|logged| write_entry(&mut html, &logged.entry));
    let body = format!(
        "<p><a href=\"../plain\">Runs</a></p><h1>{}</h1><p>{}</p><ul>{waits}</ul>{html}",
        escape(&row.question),
        facts(row)
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

/// Writes a title, and a text of another party in a box of its own, so that it cannot look like a title.
fn write_part(out: &mut String, title: &str, text: &str) {
    out.extend(["<h3>", &escape(title), "</h3>"]);
    if !text.is_empty() {
        out.extend(["<pre class=\"full\">", &escape(text), "</pre>"]);
    }
}

fn write_entry(out: &mut String, entry: &Entry) {
    match entry {
        Entry::Failed(failure) => write_part(out, "Failed", failure.error()),
        Entry::Cancelled => write_part(out, "Cancelled", ""),
        Entry::Event(record) => write_event(out, "", &record.event),
    }
}

/// Writes an event of the agent at a path. The deltas of a reply are not part of all runs, so the whole reply is written.
fn write_event(out: &mut String, path: &str, event: &Event) {
    match event {
        Event::Question { text, .. } => write_part(out, &format!("{path}Question"), text),
        Event::CallDecided(CallDecision { call_id, record, .. }) => {
            let by = record.by.as_deref().unwrap_or("somebody");
            let why = record.why.as_deref().unwrap_or_default();
            write_part(out, &format!("{path}Decision about {call_id}: {:?} by {by}", record.kind), why);
        }
        Event::TurnFinished { turn, response, .. } => {
            let reply = &response.message;
            write_part(out, &format!("{path}Turn {turn}"), &reply.text);
            for (kind, text) in [("Reasoning", &reply.reasoning), ("Refusal", &reply.refusal)] {
                text.iter().for_each(|text| write_part(out, &format!("{path}{kind}"), text));
            }
            for call in &reply.tool_calls {
                write_part(out, &format!("{path}Call of {}", call.name), &call.arguments);
            }
        }
        Event::CallFinished(execution) => {
            let status = if execution.outcome().is_ok() { "Result" } else { "Error" };
            let layers = execution.verdicts().iter().map(|verdict| format!(", seen by {}", verdict.layer));
            let (name, layers) = (&execution.call().name, layers.collect::<String>());
            write_part(out, &format!("{path}{status} of {name}{layers}"), &output(execution));
        }
        Event::Waiting(_) => write_part(out, "Waiting", ""),
        Event::Agent { agent, event, .. } => write_event(out, &format!("{path}{agent} › "), event),
        Event::HandedOff { agent, .. } => write_part(out, &format!("{path}Handed off to {agent}"), ""),
        Event::Compacted { outputs, messages, .. } => {
            write_part(out, &format!("{path}Compacted: {}", hidden(*outputs, *messages)), "");
        }
        // A layer can answer in place of the model.
        Event::Done(answer) => write_part(out, "Done", if answer.turns() == 0 { answer.text() } else { "" }),
        _ => {}
    }
}

/// Describes what the model no longer reads.
fn hidden(outputs: usize, messages: usize) -> String {
    match messages {
        0 => format!("{outputs} outputs are hidden from the model"),
        _ => format!("a summary stands for {messages} messages"),
    }
}
