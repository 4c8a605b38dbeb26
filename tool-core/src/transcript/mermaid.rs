//! The transcript as a Mermaid sequence diagram.
//!
//! In Mermaid's grammar, a label ends at a line break, a `;` or a `#`; comments and directives are removed from the whole
//! text first; and keywords such as `end` cannot be participants. Labels are therefore escaped with Mermaid's own
//! `#35;` codes, and a tool's name is used as its id only if it cannot be a keyword.

use std::collections::HashMap;
use std::fmt::{self, Write};

use super::entry::{Call, Entry, MAX_NAME_CHARS, Outcome, entries, sanitize, sanitize_name};
use super::transcript::{DEFAULT_LABEL_CHARS, Transcript};

impl<'a> Transcript<'a> {
    /// Returns the conversation as a [Mermaid](https://mermaid.js.org/syntax/sequenceDiagram.html) sequence diagram. The
    /// diagram is valid for any conversation, but Mermaid draws more than 50 000 characters only if its `maxTextSize` is
    /// raised.
    ///
    /// ```
    /// use tool_core::Message;
    /// use tool_core::transcript::Transcript;
    ///
    /// let messages = [Message::user("Hello"), Message::assistant("Good morning!")];
    /// let expected = "
    /// sequenceDiagram
    ///     participant User
    ///     participant Model
    ///     User->>Model: Hello
    ///     Model->>User: Good morning!
    /// ";
    /// assert_eq!(Transcript::new(&messages, &[]).mermaid().to_string(), expected.trim_start());
    /// ```
    pub fn mermaid(self) -> impl fmt::Display + 'a {
        Mermaid(self)
    }
}

/// Writes a transcript as a diagram.
struct Mermaid<'a>(Transcript<'a>);

/// Names that cannot be ids of tools, in any case: keywords of the grammar, the other participants, and properties of
/// every JavaScript object.
const RESERVED: &str = "accDescr accTitle activate actor alt and as autonumber box break create critical deactivate \
    destroy details else end group left link links loop note nowrap off opt option over par par_over participant \
    properties rect right sequenceDiagram title wrap Model User constructor hasOwnProperty isPrototypeOf \
    propertyIsEnumerable toLocaleString toString valueOf";

/// Keywords of other diagrams. Mermaid rewrites the text after them in every diagram.
const REWRITTEN: [&str; 2] = ["style", "classDef"];

/// The prefix of numbered ids, for tools whose names are not valid ids.
const NUMBERED_PREFIX: &str = "tool_";

/// The maximum length of an id in bytes.
const MAX_ID_LEN: usize = 64;

/// The tools in order of their first calls, with their ids.
#[derive(Default)]
struct Participants<'a> {
    ids: HashMap<&'a str, String>,
    names: Vec<&'a str>,
}

impl<'a> Participants<'a> {
    fn add(&mut self, entries: &[Entry<'a>]) {
        for entry in entries {
            let Entry::Calls(calls) = entry else { continue };
            for call in calls {
                if !self.ids.contains_key(call.name) {
                    self.names.push(call.name);
                    let number = self.names.len();
                    let id = if is_valid_id(call.name) {
                        call.name.to_owned()
                    } else {
                        format!("{NUMBERED_PREFIX}{number}")
                    };
                    self.ids.insert(call.name, id);
                }
                call.inner.iter().for_each(|inner| self.add(inner));
            }
        }
    }

    fn id(&self, name: &str) -> &str {
        self.ids.get(name).map_or("Model", String::as_str)
    }
}

/// Returns `true` if a tool's name can be its id in the diagram.
fn is_valid_id(name: &str) -> bool {
    name.len() <= MAX_ID_LEN
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
        && !name
            .strip_prefix(NUMBERED_PREFIX)
            .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        && !REWRITTEN.iter().any(|word| name.contains(word))
        && !RESERVED.split(' ').any(|word| name.eq_ignore_ascii_case(word))
}

impl fmt::Display for Mermaid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(transcript) = self;
        let max_chars = transcript.max_text_chars.unwrap_or(DEFAULT_LABEL_CHARS);
        let entries = entries(transcript);
        let mut participants = Participants::default();
        participants.add(&entries);
        f.write_str("sequenceDiagram\n    participant User\n    participant Model\n")?;
        for name in &participants.names {
            match participants.id(name) {
                id if id == *name => writeln!(f, "    participant {id}")?,
                id => {
                    writeln!(f, "    participant {id} as {}", escape(&sanitize_name(name, MAX_NAME_CHARS)))?
                }
            }
        }
        let mut diagram = Diagram { participants: &participants, max_chars, f };
        entries.iter().try_for_each(|entry| diagram.write(entry, "Model"))
    }
}

/// The diagram that is being written.
struct Diagram<'d, 'f> {
    participants: &'d Participants<'d>,
    max_chars: usize,
    f: &'d mut fmt::Formatter<'f>,
}

impl Diagram<'_, '_> {
    fn label(&self, text: &str) -> String {
        escape(&sanitize(text, self.max_chars))
    }

    /// Writes an entry of a conversation with this model.
    fn write(&mut self, entry: &Entry<'_>, model: &str) -> fmt::Result {
        let label = |text: &str| self.label(text);
        match entry {
            Entry::System(text) => writeln!(self.f, "    Note over {model}: system: {}", label(text)),
            Entry::User(text) => writeln!(self.f, "    User->>{model}: {}", label(text)),
            Entry::Reasoning(text) => writeln!(self.f, "    Note over {model}: thinks: {}", label(text)),
            Entry::Answer(text) => writeln!(self.f, "    {model}->>User: {}", label(text)),
            Entry::Refusal(text) => writeln!(self.f, "    {model}--xUser: {}", label(text)),
            Entry::Handoff(agent) => {
                writeln!(self.f, "    Note over {model}: handed off to {}", label(agent))
            }
            Entry::Calls(calls) => {
                let count = calls.len();
                for (index, call) in calls.iter().enumerate() {
                    // A section per call keeps each result beside its call.
                    match index {
                        _ if count == 1 => {}
                        0 => writeln!(self.f, "    par call 1 of {count}")?,
                        _ => writeln!(self.f, "    and call {} of {count}", index + 1)?,
                    }
                    self.write_call(call, model)?;
                }
                if count > 1 { self.f.write_str("    end\n") } else { Ok(()) }
            }
        }
    }

    fn write_call(&mut self, call: &Call<'_>, model: &str) -> fmt::Result {
        let tool = self.participants.id(call.name);
        if let Some(arguments) = call.arguments {
            writeln!(self.f, "    {model}->>{tool}: {}", self.label(arguments))?;
        }
        for entry in call.inner.iter().flatten() {
            // The question and the answer of an agent are the arguments and the result.
            if !matches!(entry, Entry::User(_) | Entry::Answer(_) | Entry::Refusal(_)) {
                self.write(entry, tool)?;
            }
        }
        let annotations = call.annotations();
        match &call.outcome {
            Outcome::Output(text) => {
                writeln!(self.f, "    {tool}-->>{model}: {}{annotations}", self.label(text))
            }
            Outcome::Error(text) => {
                writeln!(self.f, "    {tool}--x{model}: {}{annotations}", self.label(text))
            }
            Outcome::NotExecuted(why) => {
                writeln!(self.f, "    Note over {model},{tool}: {}", self.label(why))
            }
            Outcome::Missing => writeln!(self.f, "    Note over {model},{tool}: no result"),
        }
    }
}

/// Escapes a sanitized text as a label, which is never empty.
fn escape(text: &str) -> String {
    if text.trim().is_empty() {
        return "(nothing)".into();
    }
    let mut escaped = String::with_capacity(text.len());
    for (index, character) in text.char_indices() {
        let rest = &text[index..];
        let is_rewritten = REWRITTEN.iter().any(|word| rest.starts_with(word));
        // At the start of a label, `wrap:` is a directive.
        let is_wrap = character == ':' && text[..index].ends_with("wrap");
        match character {
            '\n' => escaped.push_str("<br/>"),
            // Mermaid uses the last two internally in place of `#` and `;`.
            '#' | ';' | '&' | '<' | '>' | '%' | '$' | 'ﬂ' | '¶' => escape_into(&mut escaped, character),
            _ if is_rewritten || is_wrap => escape_into(&mut escaped, character),
            _ => escaped.push(character),
        }
    }
    escaped
}

fn escape_into(escaped: &mut String, character: char) {
    // Writing to a `String` cannot fail.
    let _ = write!(escaped, "#{};", u32::from(character));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AssistantMessage, Message, ToolCall};
    use crate::transcript::testing::conversation;

    #[test]
    fn formats_a_conversation() {
        let (messages, executions) = conversation();
        let expected = r#"sequenceDiagram
    participant User
    participant Model
    participant sum
    participant now
    participant tool_3 as end
    participant draw
    Note over Model: system: Be brief.
    User->>Model: What is this?<br/>[image: https://example.org/a.png]
    Note over Model: thinks: Hm.
    Model->>User: Let me see.
    par call 1 of 3
    Model->>sum: {"a": "2", "b": 40}
    sum-->>Model: 42.0 (1.5ms, 1 argument repaired)
    and call 2 of 3
    Model->>now: {}
    now--xModel: no clock#59; sorry (2.0s, 2 arguments repaired, 1 argument ignored)
    and call 3 of 3
    Model->>tool_3: {}
    Note over Model,tool_3: the call was not executed: it needs the approval of a person
    end
    Model->>draw: (nothing)
    draw-->>Model: a dot<br/>[image: image/png]
    Model->>sum: {"a":
    Note over Model,sum: the call was not executed: the reply was cut short
    par call 1 of 2
    Model->>now: {}
    Note over Model,now: no result
    and call 2 of 2
    Model->>now: {}
    now--xModel: too late
    end
    now-->>Model: noon
    Model--xUser: I will not.
    Model->>User: (nothing)
"#;
        assert_eq!(Transcript::new(&messages, &executions).mermaid().to_string(), expected);
    }

    /// Returns the text that Mermaid shows for a label. Panics if the label ends before the line.
    fn render(label: &str) -> String {
        let mut shown = String::new();
        let mut rest = label.replace("<br/>", "\n");
        while let Some(start) = rest.find(['#', ';', '&', '<', '>', '%', '$', 'ﬂ', '¶', '\r']) {
            shown.push_str(&rest[..start]);
            let (code, after) = rest[start..].strip_prefix('#').unwrap().split_once(';').unwrap();
            shown.push(char::from_u32(code.parse().unwrap()).unwrap());
            rest = after.to_owned();
        }
        shown + &rest
    }

    #[test]
    fn any_text_is_a_valid_diagram() {
        let texts = [
            "a; b: c # d",
            "#59;",
            "&lt;b&gt; <script>alert(1)</script>",
            "a<br>b<br/>c",
            "end",
            "a\nend\nUser->>Model: forged",
            "\r\nend\rend\u{2028}end",
            "\"quoted\" 'quoted' `quoted`",
            "wrap: a",
            "nowrap: wrap:",
            ":wrap:",
            "%%{init: {\"theme\": \"dark\"}}%%",
            "%% a comment",
            "{\"style\": \"#fff;\", \"classDef\": \"a: #b;\"}",
            "stylestyle restyled:#;",
            "$$\\frac{1}{2}$$",
            "ﬂ°°60¶ß",
            "\u{1b}[0m\0",
            "مرحبا 你好 🎉 e\u{301}",
            "+ - ->> --x -) ,",
            "participant x as y",
            "@{ \"type\": \"queue\" }",
        ];
        for text in texts {
            let call = ToolCall::new("1", text, text);
            let mut result = Message::tool(&call, &Ok(text.into()));
            let mut reply = AssistantMessage::text(text).with_tool_calls([call]);
            reply.reasoning = Some(text.into());
            let mut messages = vec![Message::system(text), Message::user(text), Message::Assistant(reply)];
            messages.push(result.clone());
            if let Message::Tool(result) = &mut result {
                result.is_error = true;
            }
            messages.push(result);
            let mermaid = Transcript::new(&messages, &[]).with_max_text_chars(1000).mermaid().to_string();
            let expected = sanitize(text, 1000);
            let starts = [
                "    participant tool_1 as ",
                "    Note over Model: system: ",
                "    User->>Model: ",
                "    Note over Model: thinks: ",
                "    Model->>User: ",
                "    Model->>tool_1: ",
                "    tool_1-->>Model: ",
                "    tool_1--xModel: ",
            ];
            let lines: Vec<_> = mermaid.lines().skip(3).collect();
            assert_eq!(lines.len(), starts.len(), "{mermaid}");
            for (line, start) in lines.iter().zip(starts) {
                let label = line.strip_prefix(start).unwrap_or_else(|| panic!("{start}: {mermaid}"));
                let expected = if start.contains(" as ") {
                    sanitize_name(text, MAX_NAME_CHARS)
                } else {
                    expected.clone()
                };
                assert_eq!(render(label), expected, "{line}");
                assert!(!line.contains("style") && !line.contains("classDef"), "{line}");
                assert!(!label.starts_with("wrap:") && !label.starts_with("nowrap:"), "{line}");
            }
        }
    }

    #[test]
    fn truncates_long_texts() {
        let messages = [Message::user(";".repeat(200))];
        let transcript = Transcript::new(&messages, &[]);
        let label = "#59;".repeat(120) + " [… 80 more characters]";
        assert!(transcript.clone().mermaid().to_string().ends_with(&format!("User->>Model: {label}\n")));
        let cut = transcript.clone().with_max_text_chars(1).mermaid().to_string();
        assert!(cut.ends_with("User->>Model: #59; [… 199 more characters]\n"), "{cut}");
    }

    #[test]
    fn recognizes_valid_ids() {
        let table = [
            ("sum", true),
            ("Square_root2", true),
            ("tool_box", true),
            ("end_date", true),
            ("x", true),
            ("", false),
            ("2sum", false),
            ("_sum", false),
            ("get-weather", false),
            ("get.weather", false),
            ("größe", false),
            ("End", false),
            ("user", false),
            ("Model", false),
            ("toString", false),
            ("restyle", false),
            ("tool_3", false),
        ];
        for (name, expected) in table {
            assert_eq!(is_valid_id(name), expected, "{name}");
        }
        assert!(!is_valid_id(&"a".repeat(65)));
    }
}
