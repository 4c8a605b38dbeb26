use std::collections::HashSet;

use proptest::prelude::*;

use super::super::text_joiner::TextJoiner;
use super::*;

fn tools() -> HashSet<String> {
    ["sum", "now", "get_current_weather"].map(String::from).into()
}

/// The text, calls and error of a parsed reply.
#[derive(Debug, PartialEq)]
struct Outcome {
    text: String,
    calls: Vec<ParsedCall>,
    error: Option<String>,
}

/// Parses a reply in these chunks.
fn parse_chunks<'a>(chunks: impl IntoIterator<Item = &'a str>, is_truncated: bool) -> Outcome {
    let tools = tools();
    let mut joiner = TextJoiner::default();
    let mut parser = ReplyParser::new(&tools, &mut joiner);
    let mut text: String = chunks.into_iter().map(|chunk| parser.push(chunk)).collect();
    let parsed = parser.finish(is_truncated);
    text.push_str(&parsed.text);
    text.push_str(&joiner.finish());
    Outcome { text, calls: parsed.calls, error: parsed.error }
}

/// Parses a reply, both at once and by single characters.
fn parse_with(text: &str, is_truncated: bool) -> Outcome {
    let whole = parse_chunks([text], is_truncated);
    let chunks = text.char_indices().map(|(at, character)| &text[at..at + character.len_utf8()]);
    assert_eq!(parse_chunks(chunks, is_truncated), whole, "{text}");
    whole
}

fn parse(text: &str) -> Outcome {
    parse_with(text, false)
}

const SUM: &str = r#"{"name": "sum", "arguments": {"a": 1}}"#;

/// Returns the names of the calls, and the text.
fn summary(text: &str) -> (String, String) {
    let outcome = parse(text);
    assert_eq!(outcome.error, None, "{text}");
    let names: Vec<_> = outcome.calls.iter().map(|call| &*call.name).collect();
    (names.join(" "), outcome.text)
}

#[test]
fn parses_calls_and_the_text_around_them() {
    let table = [
        ("<tool_call>\n@\n</tool_call>", "sum", ""),
        ("<tool_call>@</tool_call>", "sum", ""),
        ("Let me see.\n\n<tool_call>\n@\n</tool_call>\n", "sum", "Let me see."),
        ("a <tool_call>@</tool_call> b", "sum", "a b"),
        ("<tool_call>\n@\n</tool_call>\n<tool_call>\n@\n</tool_call>", "sum sum", ""),
        ("<tool_call>\n@\n@\n</tool_call>", "sum sum", ""),
        ("<tool_call>[@, @]</tool_call>", "sum sum", ""),
        ("<tool_call>\n```json\n@\n```\n</tool_call>", "sum", ""),
        ("<tool_call>\n@\n<tool_call>\n@\n", "sum sum", ""),
        ("<tool_call>\n@", "sum", ""),
        (r#"<tool_call>{"name": "unknown"}</tool_call>"#, "unknown", ""),
        (r#"<tool_call>{"name": "sum", "arguments": {"a": "</tool_call>"}}</tool_call>"#, "sum", ""),
        ("```json\n@\n```", "sum", ""),
        ("```tool_call\n@\n```", "sum", ""),
        ("``` JSON \n@\n```\nb", "sum", "b"),
        ("```\n@,\n@\n```", "sum sum", ""),
        ("```json @```", "sum", ""),
        ("  ```json\n  @\n  ```", "sum", ""),
        ("```json\n[@]\n```", "sum", ""),
        ("```json\n@\n", "sum", ""),
        (r#"{"name": "sum", "arguments": {"a": "```"}}"#, "sum", ""),
        ("```json\n{\"name\": \"sum\", \"arguments\": {\"a\": \"\n```\n\"}}\n```", "sum", ""),
        ("```xml\n<tool_call>@</tool_call>\n```", "sum", "```xml\n```"),
        ("@", "sum", ""),
        ("Let me see:\n  @", "sum", "Let me see:"),
        ("@\n@", "sum sum", ""),
        ("@; @, @", "sum sum sum", ""),
        ("@ and so on", "sum", "and so on"),
        ("@, and so on", "sum", ", and so on"),
        ("[@, @]", "sum sum", ""),
        (r#"{"tool": "now"}"#, "now", ""),
        (
            r#"{"tool": "get_current_weather", "parameters": {"location": "Paris"}}"#,
            "get_current_weather",
            "",
        ),
        (
            "<think>\nI call\n@\n<tool_call>@</tool_call>\n</think>\n@",
            "sum",
            "<think>\nI call\n@\n<tool_call>@</tool_call>\n</think>",
        ),
        ("<think></think>@", "sum", "<think></think>"),
        ("a <think>\n@", "sum", "a <think>"),
        // Calls can follow data that is not a call.
        ("{\"a\": [\n{\"name\": \"x\"}]}\n@", "sum", "{\"a\": [\n{\"name\": \"x\"}]}"),
        ("{\"a\": \"\n<tool_call>@</tool_call>", "sum", "{\"a\": \""),
        ("{\"name\": \"\n<tool_call>@</tool_call>", "sum", "{\"name\": \""),
        ("{ braces }\n@", "sum", "{ braces }"),
        ("[1] a note\n@", "sum", "[1] a note"),
        ("```rust\nfn main() {\n}\n```\n@", "sum", "```rust\nfn main() {\n}\n```"),
        ("```code``` in a line\n@", "sum", "```code``` in a line"),
    ];
    for (pattern, calls, text) in table {
        let reply = pattern.replace('@', SUM);
        assert_eq!(summary(&reply), (calls.to_owned(), text.replace('@', SUM)), "{pattern}");
    }
}

#[test]
fn text_without_calls_is_unchanged() {
    let table = [
        "",
        " \n ",
        "It is 42.\n",
        "a < b, {c}, [d](e), `f`",
        "<tool",
        "<tool_call",
        "the tag <tool_call> begins a call",
        "inline: @",
        "```rust\n@\n```\n",
        "{\"answer\": 42}",
        "{\"answer\": {\n@\n}}\n",
        "{\"name\": \"Ada\", \"arguments\": {}}",
        "[{\"name\": \"Ada\", \"tool\": \"x\"},\n @]",
        "```json\n{\"answer\": [\n1]}\n```\n",
        "```json\n{\"name\": \"Ada\", \"age\": 36}\n```\n",
        "```json\nsee @\n```",
        "```\nno data\n@\n```",
        "{\"type\": \"function\", \"function\": {\"name\": \"sum\", \"description\": \"Sums\", \"parameters\": {}}}",
        "{\"name\": \"sum\"}",
        "{\"name\": \"now\", it is not closed",
        "{\"arguments\": {\"a\": [1}, \"name\": \"x",
        "{}",
        "[]",
        "[[]]",
        "{'",
        "``",
        "```",
        "````",
        "```js",
        "<think>\n@\n<tool_call>@</tool_call>",
        "[\n\n1]",
        "{\n\n}",
    ];
    for pattern in table {
        let reply = pattern.replace('@', SUM);
        assert_eq!(summary(&reply), (String::new(), reply.clone()), "{pattern}");
    }
}

#[test]
fn reports_malformed_calls() {
    let table = [
        ("<tool_call>\n@\n</tool_c", "expected only JSON objects with `name` and `arguments`"),
        ("<tool_call></tool_call>", "the call is empty"),
        ("<tool_call>sum(a=1)</tool_call>", "expected only JSON objects with `name` and `arguments`"),
        (
            "<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"a\": 1}\n</tool_call>\n<tool_call>@</tool_call>",
            "expected `,` or `}` at line 2, column 1, found the end",
        ),
        (
            "<tool_call>\n{\"name\": \"sum, \"arguments\": {\"a\": 1}}\n</tool_call> b",
            "expected `,` or `}` at line 1, column 17",
        ),
        (
            "<tool_call>\n{'name': 'sum', 'arguments': {'a': 'it's'}}",
            "expected `,` or `}` at line 1, column 40",
        ),
        ("@<tool_call>{</tool_call>", "expected a name in quotes or `}` at line 1, column 2, found the end"),
        ("{\"tool\": \"sum\", \"parameters\": {\"a\": 1 2}}", "expected `,` or `}` at line 1, column 39"),
        (
            "{\"tool\": \"sum\", \"parameters\": {\"a\": 1}",
            "expected `,` or `}` at line 1, column 39, found the end",
        ),
        ("{\n@", "expected a name in quotes or `}` at line 2, column 1"),
        (
            "{\"tool\": \"sum\", \"parameters\": {\n<tool_call>@</tool_call>",
            "expected a name in quotes or `}` at line 2, column 1, found the end",
        ),
        (
            "```json\n{\"name\": \"sum\", \"arguments\": {\"a\" 1}}\n```\nb",
            "expected `:` at line 1, column 35",
        ),
        (
            "```json\n{\"name\": \"sum\", \"arguments\": {\"a\": 1}\n```\nb",
            "expected `,` or `}` at line 2, column 1, found the end",
        ),
        (
            "```json\n{\"name\": \"sum\", \"arguments\": {\"a\": 1}",
            "expected `,` or `}` at line 1, column 38, found the end",
        ),
    ];
    for (pattern, why) in table {
        let outcome = parse(&pattern.replace('@', SUM));
        assert_eq!(outcome.error.as_deref(), Some(why), "{pattern}");
        assert_eq!(outcome.text, "", "{pattern}");
    }
}

#[test]
fn truncated_calls_are_text() {
    let table = [
        ("a\n<tool_call>\n@", 0),
        ("a\n<tool_call>\n@\n</tool_call>\n<tool_call>\n{\"name\": \"sum\"", 1),
        ("a\n```json\n@\n", 0),
        ("a\n{\"tool\": \"sum\", \"parameters\": {", 0),
        ("a\n<tool_call>{</tool_call> b", 0),
        ("a\n@", 1),
        ("a <tool_c", 0),
    ];
    for (pattern, calls) in table {
        let reply = pattern.replace('@', SUM);
        let outcome = parse_with(&reply, true);
        assert_eq!((outcome.calls.len(), outcome.error), (calls, None), "{pattern}");
        let text = if calls == 0 { &*reply } else { &outcome.text };
        assert_eq!(outcome.text, text, "{pattern}");
        assert!(calls == 0 || outcome.text.starts_with('a'), "{pattern}: {}", outcome.text);
    }
}

#[test]
fn holds_back_only_possible_calls() {
    // Each chunk, and the text emitted after it.
    let table: [&[(&str, &str)]; 8] = [
        &[("It is", "It is"), (" 42", " 42"), (". a < b", ". a < b")],
        &[("a <", "a"), ("tool_", ""), ("box> b", " <tool_box> b")],
        &[("a\n", "a"), ("{\"ans", ""), ("wer\": 1", ""), ("} b", "\n{\"answer\": 1} b")],
        &[("{\"name\": \"A", ""), ("da\"}", "{\"name\": \"Ada\"}"), (", 1", ", 1")],
        &[("[", ""), ("1] note", "[1] note")],
        &[("```", ""), ("ru", ""), ("st\n", "```rust"), ("@", "\n@")],
        &[("```json\n", ""), ("{\"b\": 1}", ""), ("\n``", ""), ("`", "```json\n{\"b\": 1}\n```")],
        &[("<think>", "<think>"), ("\n@", "\n@"), ("</think>", "</think>")],
    ];
    for chunks in table {
        let tools = tools();
        let mut joiner = TextJoiner::default();
        let mut parser = ReplyParser::new(&tools, &mut joiner);
        for (chunk, emitted) in chunks {
            assert_eq!(parser.push(&chunk.replace('@', SUM)), emitted.replace('@', SUM), "{chunks:?}");
        }
    }
}

#[test]
fn hostile_texts_take_linear_time_and_do_not_panic() {
    let length = if std::env::var_os("TESTS_EXHAUSTIVE").is_some() { 500_000 } else { 20_000 };
    let patterns = [
        "{",
        "[",
        "{\n",
        "[{",
        "{\"name\":",
        "{\"name\":{",
        "[{\"name\":\"sum\",\"arguments\":[",
        "<tool_call>",
        "<tool_call>{\"",
        "<tool_call>{'</tool_call>",
        "<tool_call>\n{</tool_call>\n",
        "```",
        "```json\n",
        "```json\n{\"name\":",
        "`",
        "\n`",
        "<",
        "<t",
        "<think>",
        "</tool_call>",
        "(",
        "'",
        "\\",
        " ",
        "\n",
        "{\"arguments\":\"\n<tool_call>",
        "é\u{1f600}\n{",
        "```json                ",
        "{\"tool\":\"sum\"}",
        "<tool_call>[",
        "\n  </tool_call>",
        ",",
    ];
    for pattern in patterns {
        for prefix in ["", "<tool_call>{\"name\":\"sum\",\"arguments\":", "{\"tool\":\"sum\",\"args\":"] {
            let text = prefix.to_owned() + &pattern.repeat(length / pattern.len());
            let started = std::time::Instant::now();
            parse_chunks([&*text], false);
            // Quadratic time would take many minutes.
            assert!(started.elapsed().as_secs() < 60, "{prefix} {pattern}");
        }
    }
    parse_chunks(["{\"name\":[".repeat(2 * length).as_str()], false);
    // Deep but valid JSON is passed on, for the tool to reject.
    let deep = "[".repeat(2 * length) + &"]".repeat(2 * length);
    let call = format!(r#"<tool_call>{{"name": "sum", "arguments": {deep}}}</tool_call>"#);
    assert_eq!(parse_chunks([&*call], false).calls[0].arguments, deep);
    let python = call.replace('"', "'");
    let error = parse_chunks([&*python], false).error.unwrap();
    assert!(error.starts_with("expected fewer nested brackets"), "{error}");
}

/// Generates fragments of replies that resemble calls.
fn fragment() -> impl Strategy<Value = String> {
    const FRAGMENTS: &[&str] = &[
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "```",
        "json",
        "\n",
        " ",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "\"",
        "'",
        "\\",
        ",",
        ":",
        "name",
        "\"name\": \"sum\"",
        "\"arguments\": {}",
        "'tool': 'now'",
        "True",
        "1",
        "é",
        SUM,
    ];
    prop_oneof![4 => prop::sample::select(FRAGMENTS).prop_map(str::to_owned), 1 => ".{0,4}"]
}

proptest! {
    #[test]
    fn result_does_not_depend_on_the_chunks(
        fragments in prop::collection::vec(fragment(), 0..24),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        is_truncated: bool,
    ) {
        let text = fragments.concat();
        let whole = parse_with(&text, is_truncated);
        let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        at.retain(|at| text.is_char_boundary(*at));
        at.extend([0, text.len()]);
        at.sort_unstable();
        let cut = at.windows(2).map(|pair| &text[pair[0]..pair[1]]);
        prop_assert_eq!(&parse_chunks(cut, is_truncated), &whole);
        if whole.calls.is_empty() && whole.error.is_none() {
            prop_assert_eq!(whole.text, text);
        }
    }

    #[test]
    fn text_without_special_characters_is_unchanged(text in "[^<{\\[`]{0,80}") {
        let outcome = parse(&text);
        prop_assert_eq!(outcome.text, text);
        prop_assert!(outcome.calls.is_empty() && outcome.error.is_none());
    }

    #[test]
    fn converted_json_is_valid(text in "[\\[\\](){}'\",:\\\\ntrueTruNon0-9.e \n]{0,40}") {
        if let Ok(json) = crate::arguments::to_json(&text) {
            prop_assert!(serde_json::from_str::<serde::de::IgnoredAny>(&json).is_ok(), "{json}");
        }
    }
}
