//! Properties of reading arguments that hold for every kind of tool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::FutureExt;
use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tests::support::sampling::cases;
use tool_core::tool::{DynamicTool, ToolExecution};
use tool_core::{FunctionTool, Tool, ToolCall, ToolContext, ToolSet, tool, tools};

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
struct Order {
    id: u32,
    #[schemars(length(min = 1, max = 8))]
    name: String,
    mode: Mode,
    lines: Vec<Line>,
    address: Option<Address>,
    counts: BTreeMap<String, i64>,
    shape: Shape,
    #[serde(flatten)]
    terms: Terms,
    payment: Payment,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
struct Terms {
    days: u16,
    #[schemars(range(max = 50))]
    discount: u8,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "by", content = "with")]
enum Payment {
    Card { number: u32, month: u8 },
    Cash(u32),
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
struct Line {
    sku: String,
    #[schemars(range(min = 1, max = 9))]
    count: u8,
    price: f64,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
struct Address {
    city: String,
    zip: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
enum Mode {
    Fast,
    Slow,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "kind")]
enum Shape {
    Round { radius: u8 },
    Flat { width: u8, height: u8 },
}

#[tool]
fn read(it: Order, note: Option<String>) -> Value {
    json!({ "it": it, "note": note })
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Arguments {
    it: Order,
    note: Option<String>,
}

/// The same arguments read by each kind of tool.
fn sets() -> [(&'static str, ToolSet); 3] {
    let closure = FunctionTool::new("read", |arguments: Arguments| {
        serde_json::to_value(arguments).unwrap().to_string()
    });
    let schema = closure.definition().parameters().clone();
    let dynamic = DynamicTool::new("read", schema, |arguments: Value| arguments.to_string()).unwrap();
    let set = |tool: Arc<dyn Tool>| ToolSet::new([tool]).unwrap();
    [("declared", tools![read]), ("closure", set(Arc::new(closure))), ("dynamic", set(Arc::new(dynamic)))]
}

/// The paths of the mistakes in an error.
fn paths(error: &str) -> BTreeSet<String> {
    let mistakes = error.strip_prefix("invalid arguments: ").unwrap_or(error);
    let path =
        |mistake: &str| mistake.trim_start_matches('`').split('`').next().unwrap_or_default().to_owned();
    mistakes.split("; ").map(path).collect()
}

fn order() -> impl Strategy<Value = Order> {
    let line = ("[a-z]{1,4}", 1..=9_u8, -1e6..1e6).prop_map(|(sku, count, price)| Line { sku, count, price });
    let address = ("[a-z]{1,4}", any::<Option<u16>>()).prop_map(|(city, zip)| Address { city, zip });
    let shape = prop_oneof![
        any::<u8>().prop_map(|radius| Shape::Round { radius }),
        any::<(u8, u8)>().prop_map(|(width, height)| Shape::Flat { width, height }),
    ];
    let terms = (any::<u16>(), 0..=50_u8).prop_map(|(days, discount)| Terms { days, discount });
    let payment = prop_oneof![
        any::<(u32, u8)>().prop_map(|(number, month)| Payment::Card { number, month }),
        any::<u32>().prop_map(Payment::Cash),
    ];
    (
        any::<u32>(),
        "[a-zé]{1,8}",
        prop_oneof![Just(Mode::Fast), Just(Mode::Slow)],
        prop::collection::vec(line, 0..3),
        prop::option::of(address),
        prop::collection::btree_map("[a-z]{1,3}", any::<i64>(), 0..3),
        shape,
        terms,
        payment,
    )
        .prop_map(|(id, name, mode, lines, address, counts, shape, terms, payment)| Order {
            id,
            name,
            mode,
            lines,
            address,
            counts,
            shape,
            terms,
            payment,
        })
}

/// The places of a value that can be wrong on their own, each with its path and what is wrong there.
fn places(order: &Order) -> Vec<(String, Value)> {
    let mut places: Vec<(String, Value)> = vec![
        ("id".into(), json!(-1)),
        ("name".into(), json!("a name that is too long")),
        ("mode".into(), json!("Sideways")),
        ("shape".into(), json!("round")),
        ("days".into(), json!("soon")),
        ("discount".into(), json!(51)),
    ];
    match order.payment {
        Payment::Card { .. } => {
            places.push(("payment.with.number".into(), json!([])));
            places.push(("payment.with.month".into(), json!(300)));
        }
        Payment::Cash(_) => places.push(("payment.with".into(), json!("much"))),
    }
    for index in 0..order.lines.len() {
        places.push((format!("lines[{index}].sku"), json!({ "a": 1 })));
        places.push((format!("lines[{index}].count"), json!(10)));
        places.push((format!("lines[{index}].price"), json!("dear")));
    }
    if order.address.is_some() {
        places.push(("address.city".into(), json!([1])));
        places.push(("address.zip".into(), json!(70_000)));
    }
    places.extend(order.counts.keys().map(|name| (format!("counts.{name}"), json!(1.5))));
    places
}

/// Replaces the value at a path, or removes it.
fn replace(value: &mut Value, path: &str, with: Option<Value>) {
    let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match with {
        Some(with) => *value.pointer_mut(&pointer).unwrap() = with,
        None => {
            value.pointer_mut(parent).unwrap().as_object_mut().unwrap().shift_remove(name);
        }
    }
}

/// Writes an object with its members in reverse order, at every depth.
fn reversed(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .rev()
            .map(|(name, value)| (name.clone(), reversed(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(values) => values.iter().map(reversed).collect(),
        value => value.clone(),
    }
}

fn execute(set: &ToolSet, arguments: &Value) -> ToolExecution {
    let call = ToolCall::new("1", "read", arguments.to_string());
    set.execute(call, &ToolContext::new()).now_or_never().unwrap()
}

/// Returns the output or the error, and the number of repairs.
fn run(set: &ToolSet, arguments: &Value) -> (Result<Value, String>, usize) {
    let execution = execute(set, arguments);
    let outcome = execution.outcome().map(|output| serde_json::from_str(&output.to_string()).unwrap());
    (outcome.map_err(ToString::to_string), execution.repairs().len())
}

proptest! {
    #![proptest_config(cases(25, 1000))]

    /// What the type accepts is passed on unchanged, in any order.
    #[test]
    fn accepts_what_the_type_accepts(order in order()) {
        let arguments = json!({ "it": order, "note": null });
        for (name, set) in sets() {
            for arguments in [arguments.clone(), reversed(&arguments)] {
                let (outcome, repairs) = run(&set, &arguments);
                let it = outcome.map(|outcome| outcome["it"].clone());
                prop_assert_eq!(it.map(|it| serde_json::from_value::<Order>(it).unwrap()), Ok(order.clone()), "{}", name);
                prop_assert_eq!(repairs, 0, "{}", name);
            }
        }
    }

    /// Independent mistakes are reported with their paths, by every kind of tool and in any order.
    #[test]
    fn n_mistakes_have_n_paths(
        (order, chosen) in order().prop_flat_map(|order| {
            let places = places(&order);
            let count = places.len().min(6);
            (Just(order), prop::sample::subsequence(places, 1..=count))
        }),
        is_missing in any::<bool>(),
    ) {
        let mut arguments = json!({ "it": order });
        let mut expected = BTreeSet::new();
        for (path, wrong) in &chosen {
            replace(&mut arguments["it"], path, Some(wrong.clone()));
            expected.insert(format!("it.{path}"));
        }
        if is_missing && !expected.contains("it.mode") {
            replace(&mut arguments["it"], "mode", None);
            expected.insert("it.mode".into());
        }
        for (name, set) in sets() {
            for arguments in [arguments.clone(), reversed(&arguments)] {
                let error = run(&set, &arguments).0.unwrap_err();
                prop_assert_eq!(&paths(&error), &expected, "{} {}: {}", name, arguments, error);
            }
        }
    }

    /// A repair changes only notation: it needs no second one, and the tool receives the value that was meant.
    #[test]
    fn repairs_are_idempotent_and_lossless(order in order(), which in any::<[bool; 4]>()) {
        let expected = json!({ "it": order });
        let mut written = expected.clone();
        if which[0] {
            written["it"]["id"] = Value::from(order.id.to_string());
        }
        if which[1] {
            written["it"]["mode"] = Value::from(written["it"]["mode"].as_str().unwrap().to_uppercase());
        }
        if which[2] {
            written["it"] = Value::from(written["it"].to_string());
        }
        if which[3] && let [line] = &*order.lines && !which[2] {
            written["it"]["lines"] = serde_json::to_value(line).unwrap();
        }
        for (name, set) in sets() {
            let (outcome, _) = run(&set, &written);
            let it = outcome.map(|outcome| serde_json::from_value::<Order>(outcome["it"].clone()).unwrap());
            prop_assert_eq!(it, Ok(order.clone()), "{} {}", name, written);
            for repair in execute(&set, &written).repairs() {
                let again = json!({ "it": serde_json::from_str::<Value>(repair.repaired()).unwrap() });
                prop_assert_eq!(run(&set, &again).1, 0, "{}: {}", name, repair.repaired());
            }
        }
    }
}

/// Each limit in each position: the bound itself is accepted, the value beyond it is refused there.
#[test]
fn limits_hold_in_every_position() {
    let with_discount = |name: &str, count: i64, discount: i64| {
        json!({ "it": {
            "id": 1, "name": name, "mode": "Fast", "counts": {}, "shape": { "kind": "Round", "radius": 1 },
            "lines": [{ "sku": "a", "count": 1, "price": 1 }, { "sku": "b", "count": count, "price": 1 }],
            "days": 1, "discount": discount, "payment": { "by": "Cash", "with": 1 },
        } })
    };
    let order = |name: &str, count: i64| with_discount(name, count, 0);
    let table = [
        (order("a", 1), None),
        (order("éééééééé", 9), None),
        (order("", 1), Some("it.name")),
        (order("ééééééééé", 1), Some("it.name")),
        (order("a", 0), Some("it.lines[1].count")),
        (order("a", 10), Some("it.lines[1].count")),
        (with_discount("a", 1, 50), None),
        (with_discount("a", 1, 51), Some("it.discount")),
    ];
    for (name, set) in sets() {
        for (arguments, expected) in &table {
            // In the order of the parameters and in another one.
            for arguments in [arguments.clone(), reversed(arguments)] {
                let actual = run(&set, &arguments).0.err().map(|error| paths(&error));
                let expected = expected.map(|path| BTreeSet::from([path.to_owned()]));
                assert_eq!(actual, expected, "{name} {arguments}");
            }
        }
    }
}
