//! Tools from functions and closures: accepted forms, return types and the reading of arguments.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tests::support::sampling::size;
use tool_core::model::{ReturnDirect, ToolPolicy};
use tool_core::provider::ToolKind;
use tool_core::schemars::JsonSchema;
use tool_core::tool::{Json, ToolErrorKind, ToolExecution};
use tool_core::toolset::ToolSetErrorKind;
use tool_core::{FunctionTool, Tool, ToolCall, ToolContext, ToolError, ToolOutput, ToolSet};

#[derive(Deserialize, JsonSchema)]
struct Pair {
    a: f64,
    b: f64,
}

fn set_of(tool: FunctionTool) -> ToolSet {
    ToolSet::new([Arc::new(tool) as Arc<dyn Tool>]).unwrap()
}

async fn execute(set: &ToolSet, arguments: &str, context: &ToolContext) -> ToolExecution {
    let name = set.definitions()[0].name();
    set.execute(ToolCall::new("call_1", name, arguments), context).await
}

async fn result_text(tool: FunctionTool, arguments: &str) -> String {
    let execution = execute(&set_of(tool), arguments, &ToolContext::new()).await;
    execution.outcome().map_or_else(ToString::to_string, ToString::to_string)
}

fn plain(pair: Pair) -> f64 {
    pair.a + pair.b
}

fn with_context(pair: Pair, context: ToolContext) -> f64 {
    pair.a + pair.b + context.get::<f64>().copied().unwrap_or_default()
}

async fn awaited(pair: Pair) -> Result<f64, anyhow::Error> {
    tokio::task::yield_now().await;
    Ok(pair.a + pair.b)
}

async fn awaited_with_context(pair: Pair, context: ToolContext) -> f64 {
    tokio::task::yield_now().await;
    with_context(pair, context)
}

#[tokio::test]
async fn accepts_all_forms_of_functions_and_closures() {
    let offset = 1.0;
    let tools = [
        (FunctionTool::new("sum", plain), "42.0"),
        (FunctionTool::new("sum", with_context), "142.0"),
        (FunctionTool::new("sum", awaited), "42.0"),
        (FunctionTool::new("sum", awaited_with_context), "142.0"),
        (FunctionTool::new("sum", |pair: Pair| pair.a + pair.b), "42.0"),
        (FunctionTool::new("sum", |Pair { a, b }: Pair| a + b), "42.0"),
        (FunctionTool::new("sum", |pair: Pair, context: ToolContext| with_context(pair, context)), "142.0"),
        (FunctionTool::new("sum", move |pair: Pair| async move { pair.a + pair.b + offset }), "43.0"),
        (FunctionTool::new("sum", async |pair: Pair| pair.a + pair.b), "42.0"),
        (
            FunctionTool::new("sum", |pair: Pair, context: ToolContext| async move {
                tokio::task::yield_now().await;
                Ok::<_, String>(with_context(pair, context))
            }),
            "142.0",
        ),
        (FunctionTool::new("sum", |pair: Pair| Ok::<_, anyhow::Error>(pair.a + pair.b)), "42.0"),
        (FunctionTool::new("sum", |pair: Pair| -> Result<f64, String> { Ok(pair.a + pair.b) }), "42.0"),
    ];
    let context = ToolContext::new().with(100.0_f64);
    for (index, (tool, expected)) in tools.into_iter().enumerate() {
        let execution = execute(&set_of(tool), r#"{"a": 2, "b": 40}"#, &context).await;
        assert_eq!(execution.outcome().unwrap().to_string(), expected, "form {index}");
    }
}

#[derive(Deserialize, JsonSchema)]
struct Nothing;

#[derive(Deserialize, JsonSchema)]
struct Empty {}

#[tokio::test]
async fn accepts_tools_without_arguments() {
    let tools = || {
        [
            FunctionTool::new("noon", || "12:00"),
            FunctionTool::new("noon", || async { "12:00" }),
            FunctionTool::new("noon", |(): ()| "12:00"),
            FunctionTool::new("noon", |(): (), _: ToolContext| async { "12:00" }),
            FunctionTool::new("noon", |_: Nothing| "12:00"),
            FunctionTool::new("noon", |_: Empty| "12:00"),
        ]
    };
    let schema = json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false });
    for (index, tool) in tools().into_iter().enumerate() {
        assert_eq!(*tool.definition().parameters(), schema, "form {index}");
    }
    for text in ["", "null", "{}", "{ }", "{,}"] {
        for (index, tool) in tools().into_iter().enumerate() {
            assert_eq!(result_text(tool, text).await, "12:00", "form {index}, {text}");
        }
    }
    for (index, tool) in tools().into_iter().enumerate() {
        let actual = result_text(tool, r#"{"zone": "UTC"}"#).await;
        let expected = "invalid arguments: there is no argument `zone`, the tool takes no arguments";
        assert_eq!(actual, expected, "form {index}");
    }
}

#[derive(Serialize)]
struct Weather {
    celsius: u8,
}

#[tokio::test]
async fn accepts_all_return_types() {
    let map = BTreeMap::from([("a", 1)]);
    let table = [
        (FunctionTool::new("it", || ()), "Success"),
        (FunctionTool::new("it", || true), "true"),
        (FunctionTool::new("it", || u64::MAX), "18446744073709551615"),
        (FunctionTool::new("it", || f32::NAN), "NaN"),
        (FunctionTool::new("it", || "  "), "  "),
        (FunctionTool::new("it", String::new), ""),
        (FunctionTool::new("it", || Cow::Borrowed("cow")), "cow"),
        (FunctionTool::new("it", || ToolOutput::text("as it is")), "as it is"),
        (FunctionTool::new("it", || json!({ "a": [1] })), r#"{"a":[1]}"#),
        (FunctionTool::new("it", || None::<u8>), "null"),
        (FunctionTool::new("it", || vec![Some(1), None]), "[1,null]"),
        (FunctionTool::new("it", move || map.clone()), r#"{"a":1}"#),
        (FunctionTool::new("it", || HashMap::from([(1, "x")])), r#"{"1":"x"}"#),
        (FunctionTool::new("it", || (1, "x")), r#"[1,"x"]"#),
        (FunctionTool::new("it", || Json(Weather { celsius: 22 })), r#"{"celsius":22}"#),
        (FunctionTool::new("it", || Ok::<_, String>(Weather { celsius: 22 })), r#"{"celsius":22}"#),
        (FunctionTool::new("it", || Ok::<_, anyhow::Error>(())), "Success"),
        (FunctionTool::new("it", || Err::<(), _>("too far".to_owned())), "too far"),
        (FunctionTool::new("it", || Err::<(), _>(anyhow::anyhow!("far").context("no"))), "no: far"),
        (FunctionTool::new("it", || Err::<(), _>(ToolError::failed("own"))), "own"),
    ];
    for (index, (tool, expected)) in table.into_iter().enumerate() {
        assert_eq!(result_text(tool, "{}").await, expected, "row {index}");
    }
}

#[tokio::test]
async fn closures_share_state() {
    let (count, log) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let tool = FunctionTool::new("count", {
        let (count, log) = (Arc::clone(&count), Arc::clone(&log));
        move |pair: Pair| {
            let (count, log) = (Arc::clone(&count), Arc::clone(&log));
            async move {
                log.lock().unwrap().push(pair.a);
                count.fetch_add(1, Ordering::Relaxed)
            }
        }
    });
    let set = set_of(tool);
    for _ in 0..3 {
        execute(&set, r#"{"a": 1, "b": 2}"#, &ToolContext::new()).await;
    }
    assert_eq!((count.load(Ordering::Relaxed), log.lock().unwrap().len()), (3, 3));
}

/// Books a trip.
#[derive(Deserialize, JsonSchema)]
struct Trip {
    /// where to
    city: String,
    nights: u8,
    /// in order
    stops: Vec<Stop>,
    price: Option<f32>,
    #[serde(default)]
    rooms: i32,
    #[serde(default, alias = "kind_of_room")]
    room: Room,
}

#[derive(Deserialize, JsonSchema)]
struct Stop {
    name: String,
    by: Option<By>,
}

#[derive(Debug, Deserialize, JsonSchema)]
enum By {
    Train,
    Boat,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
enum Room {
    #[default]
    Single,
    Double,
}

fn book(trip: Trip) -> String {
    let Trip { city, nights, stops, price, rooms, room } = trip;
    let stops: Vec<_> = stops.iter().map(|stop| format!("{} by {:?}", stop.name, stop.by)).collect();
    format!("{city} {nights} {stops:?} {price:?} {rooms} {room:?}")
}

#[test]
fn the_schema_is_inlined_and_closed() {
    let tool = FunctionTool::new("book", book);
    assert_eq!(tool.definition().description(), Some("Books a trip."));
    assert_eq!(
        FunctionTool::new("book", book).description("Books").definition().description(),
        Some("Books")
    );
    let stop = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string" },
            "by": { "type": ["string", "null"], "enum": ["Train", "Boat", null] },
        },
        "required": ["name"],
    });
    assert_eq!(
        *tool.definition().parameters(),
        json!({
            "type": "object",
            "properties": {
                "city": { "description": "where to", "type": "string" },
                "nights": { "type": "integer", "minimum": 0, "maximum": 255 },
                "stops": { "description": "in order", "type": "array", "items": stop },
                "price": { "type": ["number", "null"] },
                "rooms": { "type": "integer", "default": 0 },
                "room": { "type": "string", "enum": ["Single", "Double"] },
            },
            "required": ["city", "nights", "stops"],
            "additionalProperties": false,
        })
    );
    let names: Vec<_> = tool.definition().parameters().as_object().unwrap().keys().collect();
    assert_eq!(names, ["type", "properties", "required", "additionalProperties"]);
}

#[derive(Deserialize, JsonSchema)]
struct Tree {
    size: u32,
    children: Vec<Tree>,
}

impl Tree {
    fn total(&self) -> u32 {
        self.size + self.children.iter().map(Self::total).sum::<u32>()
    }
}

#[tokio::test]
async fn arguments_that_hold_themselves() {
    let tool = FunctionTool::new("total", |tree: Tree| tree.total());
    let schema = tool.definition().parameters();
    assert_eq!(schema["type"], "object");
    assert_eq!(schema["properties"]["children"]["items"]["$ref"], "#/$defs/Tree");
    assert_eq!(schema["$defs"]["Tree"]["properties"]["size"], json!({ "type": "integer", "minimum": 0 }));
    let given = r#"{"size": 1, "children": [{"size": "2", "children": []}]}"#;
    assert_eq!(result_text(tool, given).await, "3");
    let tool = FunctionTool::new("total", |tree: Tree| tree.total());
    let given = r#"{"size": 1, "children": [{"size": "two", "children": []}, {"size": 1}, {}]}"#;
    assert_eq!(
        result_text(tool, given).await,
        "invalid arguments: `children[0].size`: expected an integer from 0 to 4294967295, got \"two\"; \
         `children[1].children` is missing, expected a list; \
         `children[2].size` is missing, expected an integer from 0 to 4294967295; \
         `children[2].children` is missing, expected a list"
    );
}

#[derive(Deserialize, JsonSchema)]
struct Open {
    #[expect(dead_code, reason = "only read")]
    name: String,
    #[serde(flatten)]
    more: BTreeMap<String, u8>,
}

#[tokio::test]
async fn maps_take_any_name() {
    let tool = FunctionTool::new("open", |open: Open| open.more);
    assert_eq!(result_text(tool, r#"{"name": "x", "a": 1, "b": 2}"#).await, r#"{"a":1,"b":2}"#);
    let tool = FunctionTool::new("map", |map: BTreeMap<String, u8>| map);
    assert_eq!(result_text(tool, r#"{"a": 1, "b": "2"}"#).await, r#"{"a":1,"b":2}"#);
    let tool = FunctionTool::new("map", |map: BTreeMap<String, u8>| map);
    let expected = "invalid arguments: `b`: expected an integer from 0 to 255, got 300; \
         `c`: expected an integer from 0 to 255, got \"x\"";
    assert_eq!(result_text(tool, r#"{"a": 1, "b": 300, "c": "x"}"#).await, expected);
}

/// The result of an argument text: an output, an output with repairs of these arguments, or an error.
enum Reading {
    AsItIs(&'static str),
    Repaired(&'static [&'static str], &'static str),
    Wrong(&'static str),
}

use Reading::{AsItIs, Repaired, Wrong};

#[tokio::test]
async fn reads_arguments_like_tool_functions() {
    let table = [
        (r#"{"city": "Rome", "nights": 2, "stops": []}"#, AsItIs("Rome 2 [] None 0 Single")),
        (
            r#"{"stops": [{"name": "Pisa", "by": null}], "price": null, "city": "R\u006fme", "nights": 2}"#,
            AsItIs(r#"Rome 2 ["Pisa by None"] None 0 Single"#),
        ),
        // The range of an `f32` is a limit, so other names than those of the schema are refused.
        (
            r#"{"city": "Rome", "nights": 2, "stops": [], "kind_of_room": "Double"}"#,
            Wrong(
                "there is no argument `kind_of_room`, the arguments are `city`, `nights`, `stops`, `price`, `rooms`, `room`",
            ),
        ),
        // `null` for an optional argument is accepted even if its type has no `null`.
        (
            r#"{"city": "Rome", "nights": 2, "stops": [], "rooms": null, "room": null}"#,
            AsItIs("Rome 2 [] None 0 Single"),
        ),
        (
            r#"{"city": 5, "nights": "2.0", "stops": {"name": "Pisa", "by": "boat"}, "rooms": 1e1}"#,
            Repaired(&["city", "nights", "stops", "rooms"], r#"5 2 ["Pisa by Some(Boat)"] None 10 Single"#),
        ),
        (
            r#"{"city": "Rome", "nights": 2.5, "stops": "none", "price": "dear", "rooms": {}, "room": "Twin"}"#,
            Wrong(
                "`nights`: expected an integer from 0 to 255, got 2.5; `stops`: expected a list, got \"none\"; \
                 `price`: expected a number or null, got \"dear\"; \
                 `rooms`: expected an integer from -2147483648 to 2147483647, got an object; \
                 `room`: expected one of \"Single\", \"Double\", got \"Twin\"",
            ),
        ),
        (
            r#"{"citty": "Rome", "nights": 300, "stops": [{"nam": "Pisa"}], "rooms": 2147483648}"#,
            Wrong(
                "`city` is missing, expected a string (where to); \
                 there is no argument `citty`, the arguments are `city`, `nights`, `stops`, `price`, `rooms`, \
                 `kind_of_room`, `room`, did you mean `city`?; \
                 `nights`: expected an integer from 0 to 255, got 300; \
                 `rooms`: expected an integer from -2147483648 to 2147483647, got 2147483648",
            ),
        ),
        (
            "{}",
            Wrong(
                "`city` is missing, expected a string (where to); \
                 `nights` is missing, expected an integer from 0 to 255; \
                 `stops` is missing, expected a list (in order)",
            ),
        ),
        (r#"{"city": "Rome", "nights": 2, "nights": 3, "stops": []}"#, Wrong("`nights` is given twice")),
        (
            r#"{"city": "Rome", "nights": 2, "stops": [], "price": 1e39}"#,
            Wrong("`price`: expected a number from -3.4028235e38 to 3.4028235e38 or null, got 1e39"),
        ),
        ("[]", Wrong("expected a JSON object, got a list")),
        ("{ invalid JSON }", Wrong("not valid JSON: key must be a string at line 1 column 3")),
        (r#"{"city": "Rome""#, Wrong("not valid JSON: EOF while parsing an object at line 1 column 15")),
    ];
    for (text, expected) in table {
        let set = set_of(FunctionTool::new("book", book));
        let context = ToolContext::new();
        let execution = execute(&set, text, &context).await;
        let strictly = execute(&set.no_repair(), text, &context).await;
        let actual = execution.outcome().map(ToString::to_string).map_err(ToString::to_string);
        let repaired: Vec<_> = execution.repairs().iter().filter_map(|repair| repair.argument()).collect();
        let is_strictly_right = strictly.outcome().is_ok() && strictly.repairs().is_empty();
        match expected {
            AsItIs(output) => {
                assert_eq!(actual.as_deref(), Ok(output), "{text}");
                assert!(repaired.is_empty() && is_strictly_right, "{text}: {strictly:?}");
            }
            Repaired(names, output) => {
                assert_eq!(actual.as_deref(), Ok(output), "{text}");
                assert!(repaired == names && !is_strictly_right, "{text}: {repaired:?}");
            }
            Wrong(words) => {
                assert_eq!(actual.unwrap_err(), format!("invalid arguments: {words}"), "{text}");
                assert!(
                    execution.outcome().unwrap_err().kind() == ToolErrorKind::InvalidArguments
                        && !is_strictly_right,
                    "{text}"
                );
            }
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(try_from = "i32")]
#[schemars(with = "i32")]
struct Positive(i32);

impl TryFrom<i32> for Positive {
    type Error = String;

    fn try_from(value: i32) -> Result<Self, String> {
        if value < 0 { Err("must not be negative".into()) } else { Ok(Self(value)) }
    }
}

#[derive(Deserialize, JsonSchema)]
struct Root {
    x: Positive,
    y: bool,
}

#[tokio::test]
async fn what_only_the_type_knows_is_reported_too() {
    let tool = FunctionTool::new("root", |root: Root| (root.x.0, root.y));
    let expected = "invalid arguments: `x`: must not be negative; `y`: expected true or false, got 3";
    assert_eq!(result_text(tool, r#"{"x": -1, "y": 3}"#).await, expected);
}

#[tokio::test]
async fn refuses_hostile_texts_with_short_messages() {
    let depth = size(10_000, 1_000_000);
    let deep = format!(r#"{{"a": {}1{}, "b": 1}}"#, "[".repeat(depth), "]".repeat(depth));
    let error = result_text(FunctionTool::new("sum", plain), &deep).await;
    assert_eq!(error, "invalid arguments: `a`: expected a number, got a list");
    let names: Vec<_> = (0..size(2_000, 100_000)).map(|number| format!("\"name{number}\":0")).collect();
    let error = result_text(FunctionTool::new("sum", plain), &format!("{{{}}}", names.join(","))).await;
    assert!(error.len() < 6000 && error.contains("; and more"), "{error}");
    let long = format!(r#"{{"a": 1, "b": "{}"}}"#, "é".repeat(size(100_000, 5_000_000)));
    let error = result_text(FunctionTool::new("sum", plain), &long).await;
    assert!(error.len() < 300 && error.starts_with("invalid arguments: `b`: expected a number"), "{error}");
}

#[test]
fn arguments_that_are_no_object_are_refused_by_the_set() {
    let tool: Arc<dyn Tool> = Arc::new(FunctionTool::new("double", |x: u32| x * 2));
    let line = line!() - 1;
    let error = ToolSet::new([tool]).unwrap_err();
    assert_eq!(error.kind(), ToolSetErrorKind::NotAnObject);
    let place = format!("the arguments of the tool `double`, at {}:{line}, are not an object; ", file!());
    assert!(error.to_string().starts_with(&place), "{error}");
    for tool in [
        FunctionTool::new("it", |_: Option<Pair>| ()),
        FunctionTool::new("it", |_: Vec<u8>| ()),
        FunctionTool::new("it", |_: Value| ()),
        FunctionTool::new("it", |_: By| ()),
    ] {
        let error = ToolSet::new([Arc::new(tool) as Arc<dyn Tool>]).unwrap_err();
        assert_eq!(error.kind(), ToolSetErrorKind::NotAnObject);
    }
}

#[test]
fn debug_names_the_tool_only() {
    assert_eq!(
        format!("{:?}", FunctionTool::new("sum", plain).description("Secret")),
        "FunctionTool(\"sum\")"
    );
}

#[expect(dead_code, reason = "the auto traits are what is asserted")]
fn assert_auto_traits(tool: FunctionTool) {
    fn is_shared(_: impl Send + Sync + 'static) {}
    is_shared(tool);
}

#[derive(Deserialize, JsonSchema)]
struct Stay {
    city: String,
    #[serde(default)]
    nights: u8,
}

#[test]
fn a_tool_of_a_closure_takes_the_options_of_the_attribute() {
    let tool = FunctionTool::new("stay", |stay: Stay| stay.city)
        .return_direct(ReturnDirect::IfLast)
        .needs_approval()
        .external()
        .exclusive()
        .at_most_once()
        .pure()
        .attempts(3)
        .undo("cancel")
        .strict()
        .description("Books a hotel");
    let definition = tool.definition();
    let mut policy = ToolPolicy::default();
    (policy.return_direct, policy.attempts) = (ReturnDirect::IfLast, 3);
    (policy.needs_approval, policy.exclusive) = (true, true);
    (policy.at_most_once, policy.pure) = (true, true);
    assert_eq!((definition.policy(), definition.kind()), (&policy, ToolKind::Caller));
    assert_eq!((definition.undo(), definition.description()), (Some("cancel"), Some("Books a hotel")));
    assert_eq!(definition.parameters()["required"], json!(["city", "nights"]));
    assert_eq!(tool.policy(ToolPolicy::default()).definition().policy(), &ToolPolicy::default());
    for (returns_direct, condition) in [(true, ReturnDirect::IfAll), (false, ReturnDirect::Never)] {
        let tool = FunctionTool::new("stay", |stay: Stay| stay.city).return_direct(returns_direct);
        assert_eq!(tool.definition().policy().return_direct, condition);
    }
}

#[tokio::test]
async fn a_strict_tool_of_a_closure_reads_null_as_an_omitted_argument() {
    let stay = || FunctionTool::new("stay", |stay: Stay| format!("{} in {}", stay.nights, stay.city));
    let set = set_of(stay().strict()).no_repair();
    let execution = execute(&set, r#"{"city": "Rome", "nights": null}"#, &ToolContext::new()).await;
    assert_eq!(execution.output().unwrap().to_string(), "0 in Rome");
    let no_form = FunctionTool::new("label", |labels: HashMap<String, String>| labels.len()).strict();
    let error = ToolSet::default().with(no_form).unwrap_err();
    assert_eq!(error.kind(), ToolSetErrorKind::NoStrictForm);
}

#[tokio::test(start_paused = true)]
async fn calls_of_closures_are_limited_and_converted() {
    let never = FunctionTool::new("wait", std::future::pending::<()>).timeout(Duration::from_millis(20));
    assert_eq!(result_text(never, "{}").await, "the tool timed out after 20ms");
    let convert = |output: ToolOutput| match &*output.to_string() {
        "0.0" => Err("nothing"),
        text => Ok(format!("<{text}>")),
    };
    let sums = [
        FunctionTool::new("sum", plain).convert(convert),
        FunctionTool::new("sum", awaited).convert(convert),
    ];
    for sum in sums {
        let set = set_of(sum);
        for (arguments, expected) in [(r#"{"a": 1, "b": 2}"#, "<3.0>"), (r#"{"a": 0, "b": 0}"#, "nothing")] {
            let execution = execute(&set, arguments, &ToolContext::new()).await;
            let text = execution.outcome().map_or_else(ToString::to_string, ToString::to_string);
            assert_eq!(text, expected);
        }
    }
    let long = FunctionTool::new("read", || "a".repeat(1000)).max_output_chars(100);
    assert!(result_text(long, "{}").await.contains("characters left out"));
}

#[tokio::test]
async fn a_blocking_closure_runs_on_another_thread_and_reports_repairs() {
    let here = std::thread::current().id();
    let tool = FunctionTool::new("sum", move |pair: Pair| {
        assert_ne!(std::thread::current().id(), here);
        pair.a + pair.b
    })
    .blocking()
    .max_output_chars(10);
    let execution = execute(&set_of(tool), r#"{"a": "40", "b": 2}"#, &ToolContext::new()).await;
    assert_eq!(execution.output().unwrap().to_string(), "42.0");
    assert_eq!(execution.repairs().len(), 1);
}

#[tokio::test]
async fn a_blocking_closure_can_time_out() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Mutex::new(released);
    let wait = FunctionTool::new("wait", move || released.lock().unwrap().recv().is_err())
        .blocking()
        .timeout(Duration::from_millis(20))
        .convert(|output| output.with_data(1));
    let execution = execute(&set_of(wait), "{}", &ToolContext::new()).await;
    assert_eq!(execution.outcome().unwrap_err().kind(), ToolErrorKind::TimedOut);
    // The function runs to its end in the background.
    drop(release);
}
