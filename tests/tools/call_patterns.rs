//! Patterns for calls, compared with what a model sends and what a tool was executed with.

use serde_json::{Value, json};
use tool_core::signatures::CallPattern;
use tool_core::{ToolCall, call, tool};

#[derive(serde::Serialize)]
struct Order {
    id: &'static str,
}

#[derive(serde::Serialize)]
struct Place {
    city: &'static str,
    zip: Option<u32>,
}

#[allow(unused_variables)]
#[tool]
fn refund(
    order: String,
    cents: u32,
    currency: Option<String>,
    rate: Option<f64>,
    tags: Option<Vec<String>>,
    to: Option<Value>,
) {
}

#[tool]
fn rest() {}

fn matches(pattern: &CallPattern, arguments: Value) -> bool {
    pattern.matches(&ToolCall::new("1", "refund", arguments.to_string()))
}

#[test]
fn a_pattern_matches_what_it_says() {
    let (order, limit, none, huge) = ("A7", 5_000_u32, None::<String>, 100_000_000_000_000_000_000_i128);
    let own = Order { id: "A7" };
    let plain = json!({ "order": "A7", "cents": 900 });
    let with = |name: &str, value: Value| {
        let mut arguments = plain.clone();
        arguments[name] = value;
        arguments
    };
    let cases = [
        (call!(refund), plain.clone(), true),
        (call!(refund { .. }), plain.clone(), true),
        (call!(rest), plain.clone(), false),
        (call!(refund { order: "A7", cents: 900 }), plain.clone(), true),
        (call!(refund { order: "A7", cents: 900 }), with("currency", Value::Null), true),
        (call!(refund { order: "A7", cents: 900 }), with("currency", json!("EUR")), false),
        (call!(refund { order: "A7", cents: 900, .. }), with("currency", json!("EUR")), true),
        (call!(refund { order: "A7", cents: 900, currency: None }), plain.clone(), true),
        (
            call!(refund { order: "A7", cents: 900, currency: None, .. }),
            with("currency", json!("EUR")),
            false,
        ),
        (call!(refund { order: "A7", cents: 900, currency: _ }), plain.clone(), false),
        (call!(refund { currency: "EUR" | None, .. }), plain.clone(), true),
        (call!(refund { currency: "EUR" | "USD", .. }), with("currency", json!("USD")), true),
        (call!(refund { currency: "EUR" | "USD", .. }), with("currency", json!("CHF")), false),
        (call!(refund { order, .. }), plain.clone(), true),
        (call!(refund { order: own.id, cents: limit, .. }), plain.clone(), false),
        (call!(refund { order: own.id, cents: ..=limit, .. }), plain.clone(), true),
        (call!("refund" { cents: 900.0, .. }), plain.clone(), true),
        (call!(refund { cents: ..900, .. }), plain.clone(), false),
        (call!(refund { cents: ..=900, .. }), plain.clone(), true),
        (call!(refund { cents: 0..=900, .. }), plain.clone(), true),
        (call!(refund { cents: 901.., .. }), plain.clone(), false),
        (call!(refund { cents: 1 | 900, .. }), plain.clone(), true),
        (call!(refund { cents: |cents: u64| cents.is_multiple_of(100), .. }), plain.clone(), true),
        (call!(refund { order: |id: &str| id.starts_with('B'), .. }), plain.clone(), false),
        (call!(refund { tags: |tags: &Vec<String>| tags.is_empty(), .. }), with("tags", json!([])), true),
        (call!(refund { rate: -1..1, .. }), with("rate", json!(0.5)), true),
        (call!(refund { rate: -0.5, .. }), with("rate", json!(-0.5)), true),
        (call!(refund { tags: ["a", _], .. }), with("tags", json!(["a", "b"])), true),
        (call!(refund { tags: ["a"], .. }), with("tags", json!(["a", "b"])), false),
        (call!(refund { tags: ["a", ..], .. }), with("tags", json!(["a", "b"])), true),
        (call!(refund { tags: [], .. }), with("tags", json!(["a"])), false),
        (
            call!(refund { to: { city: "Vienna", .. }, .. }),
            with("to", json!({ "city": "Vienna", "zip": 1010 })),
            true,
        ),
        (
            call!(refund { to: { city: "Vienna" }, .. }),
            with("to", json!({ "city": "Vienna", "zip": 1010 })),
            false,
        ),
        (call!(refund { to: own, .. }), with("to", json!({ "id": "A7" })), true),
        (call!("refund" { "order": "A7", cents: limit - 4_100, .. }), plain.clone(), true),
        (call!(refund { cents: limit as u64 - 4_100, .. }), plain.clone(), true),
        (call!(refund { order: "A".."B", .. }), plain.clone(), true),
        (call!(refund { order: "B".., .. }), plain.clone(), false),
        (call!(refund { tags: |tags: &[String]| tags.len() == 1, .. }), with("tags", json!(["a"])), true),
        (call!(refund { currency: (move |text: &str| text.len() == 3) | None, .. }), plain.clone(), true),
        // `null` is not there.
        (call!(refund { currency: none, .. }), plain.clone(), true),
        (call!(refund { currency: none, .. }), with("currency", Value::Null), true),
        (call!(refund { currency: |text: Option<String>| text.is_none(), .. }), plain.clone(), true),
        (call!(refund { currency: none, .. }), with("currency", json!("EUR")), false),
        (call!(refund { tags: [None, _], .. }), with("tags", json!([null, "a"])), true),
        (call!(refund { tags: [_, ..], .. }), with("tags", json!([null])), false),
        (
            call!(refund { to: Place { city: "Vienna", zip: None }, .. }),
            with("to", json!({ "city": "Vienna" })),
            true,
        ),
        (
            call!(refund { to: Place { city: "Vienna", zip: None }, .. }),
            with("to", json!({ "city": "Vienna", "zip": 1010 })),
            false,
        ),
        (call!(refund { to: 100_000_000_000_000_000_000, .. }), with("to", json!(1e20)), true),
        (call!(refund { to: huge, .. }), with("to", json!(1e20)), true),
        (call!(("re".to_owned() + "fund") {}), plain.clone(), false),
    ];
    for (pattern, arguments, expected) in cases {
        assert_eq!(matches(&pattern, arguments.clone()), expected, "{pattern}: {arguments}");
    }
}

/// The text of the model is repaired before the tool reads it.
#[tokio::test]
async fn an_execution_has_the_arguments_that_its_tool_received() {
    let set = tool_core::tools![refund].ignore_unknown_arguments();
    let text = r#"{'order': "A7", "cents": "900", "tags": "a", "note": 1,}"#;
    let call = ToolCall::new("1", "refund", text);
    let execution = set.execute(call, &tool_core::ToolContext::new()).await;
    assert!(execution.error().is_none(), "{execution}");
    let received = execution.received_arguments().unwrap();
    assert_eq!(Value::Object(received.clone()), json!({ "order": "A7", "cents": 900, "tags": ["a"] }));
    assert_eq!(call!(refund { order: _, cents: 900, tags: ["a"] }).mismatch(&received), None);
    let mismatch = call!(refund { cents: ..500, .. }).mismatch(&received);
    assert_eq!(mismatch.as_deref(), Some("`cents` is 900, expected `..500`"));
    let mismatch = call!(refund { order: _, cents: _ }).mismatch(&received);
    assert_eq!(mismatch.as_deref(), Some("`tags` is given, which the pattern does not have; `..` allows it"));
    let mismatch = call!(refund { currency: "EUR" | "USD", .. }).mismatch(&received);
    assert_eq!(mismatch.as_deref(), Some("`currency` is missing, expected `\"EUR\" | \"USD\"`"));
    let mismatch = call!(refund { tags: ["b", ..], .. }).mismatch(&received);
    assert_eq!(mismatch.as_deref(), Some("`tags[0]` is \"a\", expected `\"b\"`"));
    let text = call!(refund { order: |id: &str| id.starts_with('A'), cents: ..=5_000, .. }).to_string();
    assert_eq!(text, "refund { order: |id: &str| id.starts_with('A'), cents: ..=5_000, .. }");
}
