//! Schemas and texts that are malformed, recursive or huge.

use serde_json::{Value, json};
use tool_core::model::ToolDefinition;

use super::{Question, sample_tools, tool};

#[test]
fn follows_references_and_survives_any_schema() {
    let place = json!({ "properties": { "city": { "type": "string" }, "in": { "$ref": "#/$defs/Place" } }, "required": ["city"] });
    let loops =
        |count: usize| (0..count).map(|at| (at.to_string(), json!({ "$ref": "#" }))).collect::<Value>();
    for (schema, called) in [
        (
            json!({ "properties": { "place": { "$ref": "#/$defs/Place" } }, "required": ["place"], "$defs": { "Place": place } }),
            r#"visit {"place":{"city":"Rome"}}"#,
        ),
        (json!(null), "visit {}"),
        (json!([true]), "visit {}"),
        (json!({ "properties": [], "required": 5 }), "visit {}"),
        (json!({ "properties": { "x": 5 }, "required": [7, "y"] }), "visit {}"),
        (json!({ "properties": { "x": { "$ref": "#/properties/x" } }, "required": ["x"] }), ""),
        (
            json!({ "properties": { "x": { "type": "array", "items": { "$ref": "#" } } }, "required": ["x"] }),
            "",
        ),
        (json!({ "properties": { "x": { "anyOf": [], "enum": [] } }, "required": ["x"] }), ""),
        (json!({ "properties": { "": { "type": 5 } }, "required": [""] }), ""),
        (json!({ "properties": loops(60) }), "visit {}"),
    ] {
        let visit = [ToolDefinition::new("visit").with_parameters(schema)];
        assert_eq!(Question::new("Visit Rome", &visit).run(&[]).0, called, "{visit:?}");
        for question in ["visit 5 and 6, then visit it", "visit ''", "visit"] {
            Question::new(question, &visit).run(&[]);
        }
    }
}

#[test]
fn survives_any_text() {
    let mut tools = sample_tools();
    tools.push(tool("", "", json!({ "": "string" })));
    let snippets: Vec<_> = "北京天气|“|'|«a»|-|−5|1e999|99999999999999999999999|.5|1,|a@|@b.c|http://|ß|e\u{301}|👩‍👩‍👧|\u{0}|the|and|then\
        |sum|weather in|'s|It|5 pm|2 +|* 3|twenty|million million million million|\n|1.2.3.4|/x|ΑΣ|İ"
        .split('|')
        .collect();
    let (step, repeated) = if std::env::var_os("TESTS_EXHAUSTIVE").is_some() { (1, 3_000) } else { (8, 150) };
    for (index, first) in snippets.iter().enumerate() {
        for second in snippets.iter().skip(index % step).step_by(step) {
            let text = format!("{first}{second} and the square root of {second} {first}");
            Question::new(&text, &tools).run(&[&text, &format!("!{text}")]);
        }
    }
    for snippet in ["sum of 5 and ", "the weather in Paris, ", "1 + ", "Foo Bar, "] {
        Question::new(&snippet.repeat(repeated), &tools).run(&[]);
    }
}
