//! Search for tools: what is found, how well, and how little of a request it needs.

mod evaluation;

use serde_json::{Value, json};
use tool_core::model::ToolDefinition;
use tool_core::tool::ToolFuture;
use tool_core::{Tool, ToolContext, ToolSet};

/// A tool whose definition alone matters.
struct Defined(ToolDefinition);

impl Tool for Defined {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, _: &'a str, _: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::ready(Ok("".into()))
    }
}

fn set<'a>(tools: impl IntoIterator<Item = (&'a str, &'a str, Value)>) -> ToolSet {
    let tool = |(name, description, properties): (&str, &str, Value)| {
        let parameters = json!({ "type": "object", "properties": properties });
        Defined(ToolDefinition::new(name).with_description(description).with_parameters(parameters))
    };
    tools.into_iter().fold(ToolSet::default(), |set, one| set.with(tool(one)).unwrap())
}

fn desk() -> ToolSet {
    set([
        ("createInvoice", "Writes a bill for a customer", json!({ "customer_id": { "type": "string" } })),
        ("list-invoices", "Returns the bills of a customer", json!({})),
        ("convert", "Converts an amount of money", json!({ "to": { "enum": ["EUR", "USD"] } })),
        ("getHTTPStatus", "Requests a page", json!({ "url": { "description": "the web address" } })),
        ("weather", "Returns the forecast of a city", json!({ "city": { "type": "string" } })),
        ("天气预报", "", json!({})),
    ]
    .into_iter()
    .filter(|(name, ..)| name.is_ascii()))
    .with(Defined(ToolDefinition::new("tianqi").with_description("返回城市的天气预报")))
    .unwrap()
}

fn found(tools: &ToolSet, query: &str) -> Vec<String> {
    tools.search(query, 5).iter().map(|tool| tool.name().to_owned()).collect()
}

#[test]
fn compares_names_descriptions_and_parameters() {
    let tools = desk();
    let table = [
        ("create invoice", "createInvoice"),
        ("Please write a new bill for our customer!", "createInvoice"),
        ("list of INVOICES", "list-invoices"),
        ("usd", "convert"),
        ("change 100 dollars of money", "convert"),
        ("http status", "getHTTPStatus"),
        ("web address", "getHTTPStatus"),
        ("forecasts for several cities", "weather"),
        ("forcasts", "weather"),
        ("北京天气怎么样", "tianqi"),
    ];
    for (query, expected) in table {
        assert_eq!(found(&tools, query).first().map(String::as_str), Some(expected), "{query}");
    }
    for nothing in ["", "  ", "the of and", "zebra", "exchange 100 dollars", "\u{0}\u{202e}!?"] {
        assert!(found(&tools, nothing).is_empty(), "{nothing}");
    }
    assert_eq!(tools.search("customer invoices", 1).len(), 1);
    assert!(tools.search("customer invoices", 0).is_empty());
}

#[test]
fn the_order_is_always_the_same() {
    let names: Vec<_> = (10..40).map(|number| format!("door_{number}")).collect();
    let twins: Vec<_> = names.iter().map(|name| (&**name, "Opens a door", json!({}))).collect();
    let tools = || set(twins.clone());
    let first = found(&tools(), "open the door");
    assert_eq!(first, ["door_10", "door_11", "door_12", "door_13", "door_14"]);
    assert!((0..5).all(|_| found(&tools(), "open the door") == first));
}

#[test]
fn a_tool_gains_nothing_by_repeated_or_unrelated_words() {
    let stuffed = [
        "weather ".repeat(10_000),
        "weather forecast city rain sun money invoice customer page status ".repeat(500),
        format!("{} weather forecast city", "a b c d e f ".repeat(1_000)),
    ];
    for text in stuffed {
        let tools = desk().with(Defined(ToolDefinition::new("helper").with_description(&*text))).unwrap();
        for query in ["weather forecast of a city", "create an invoice", "convert money"] {
            assert_ne!(found(&tools, query)[0], "helper", "{query}");
        }
    }
}

#[test]
fn hostile_texts_are_indexed_and_searched_within_bounds() {
    let mut deep = json!({ "description": "bottom" });
    for _ in 0..100 {
        deep = json!({ "properties": { "level": deep }, "items": [true] });
    }
    let wide = Value::Object(
        (0..20_000).map(|n| (format!("field{n}"), json!({ "enum": [n, "x", null] }))).collect(),
    );
    let texts = [
        "\u{202e}\u{0}\u{feff}",
        &"A".repeat(100_000),
        &"Ａ漢".repeat(50_000),
        &"-_.".repeat(100_000),
        "İ ẞ ﬃ",
    ];
    let mut tools = desk();
    for (number, text) in texts.iter().enumerate() {
        let tool = ToolDefinition::new(format!("hostile_{number}")).with_description(*text);
        tools = tools.with(Defined(tool)).unwrap();
    }
    for (name, schema) in [("deep", deep), ("wide", wide)] {
        let parameters = json!({ "type": "object", "properties": schema });
        tools = tools.with(Defined(ToolDefinition::new(name).with_parameters(parameters))).unwrap();
    }
    assert_eq!(found(&tools, "create invoice")[0], "createInvoice");
    assert_eq!(found(&tools, "wide")[0], "wide");
    // The part of a query beyond its bounds is not read.
    let long = format!("{} weather", "xyzzy ".repeat(100_000));
    assert!(found(&tools, &long).is_empty());
    for text in texts {
        let _ = tools.search(text, 5);
    }
}

#[test]
fn a_query_compares_few_words_by_similarity() {
    let tools = desk();
    assert_eq!(found(&tools, "forcasts")[0], "weather");
    let unknown: Vec<_> = ('a'..='p').map(|letter| format!("zzz{letter}{letter}qq")).collect();
    let unknown = unknown.join(" ");
    // Words of the tools come last, and repeated ones count once.
    let first = format!("customer page money {} forcasts {unknown}", "zzzaaqq ".repeat(20));
    assert!(found(&tools, &first).contains(&"weather".to_owned()));
    assert!(found(&tools, &format!("{unknown} forcasts")).is_empty());
}

#[test]
fn a_tool_has_a_bounded_number_of_terms() {
    let letters = || 'b'..='k';
    let words: Vec<_> =
        letters().flat_map(|one| letters().map(move |other| format!("{one}ax{other}"))).collect();
    let text = format!("{} {}", words.join(" ").repeat(2), "weather");
    let tools = set([("long", &*text, json!({ "city": {} }))]);
    assert_eq!(found(&tools, "baxb"), ["long"]);
    assert!(found(&tools, "weather").is_empty());
    assert!(found(&tools, "city").is_empty());
}
