//! Methods as tools.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tool_core::schemars::JsonSchema;
use tool_core::testing::ScriptedModel;
use tool_core::toolset::Toolbox;
use tool_core::{Agent, ToolCall, ToolContext, ToolSet, toolbox};
use tool_offline::OfflineModel;

async fn result_text(set: &ToolSet, name: &str, arguments: &str) -> String {
    let call = ToolCall::new("call_1", name, arguments);
    match set.call(&call, &ToolContext::new()).await {
        Ok(output) => output.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

/// Counts.
#[derive(Default)]
struct Counter {
    count: AtomicU32,
    log: Mutex<Vec<String>>,
}

#[toolbox]
impl Counter {
    /// What a counter begins with.
    const START: u32 = 0;

    /// Adds to the counter, and returns its new value.
    #[tool]
    fn add(&self, #[param("how much", range = 1..=100, default = 1)] by: u32) -> u32 {
        self.count.fetch_add(by, Ordering::Relaxed) + by
    }

    #[tool("Writes a line into the log", name = "write_log")]
    async fn write(self: Arc<Self>, line: &str) -> Result<usize, String> {
        tokio::task::yield_now().await;
        if line.is_empty() {
            return Err("the line is empty".into());
        }
        let mut log = self.log.lock().unwrap();
        log.push(line.to_owned());
        Ok(log.len())
    }

    /// Reads the last line.
    #[tool]
    async fn last(&self) -> Option<String> {
        self.log.lock().unwrap().last().cloned()
    }

    /// Sums two numbers.
    #[tool]
    fn sum(a: f64, b: f64) -> f64 {
        a + b
    }

    #[tool(blocking)]
    fn slow(self: &Arc<Self>, #[inject] call: &ToolCall) -> String {
        format!("{} {}", call.id, self.value())
    }

    #[expect(clippy::needless_arbitrary_self_type, reason = "that it is taken is what is tested")]
    #[tool]
    fn longest<'a>(self: &Self, #[param("texts")] texts: &'a [String]) -> &'a str {
        texts.iter().max_by_key(|text| text.len()).map_or("", |text| text)
    }

    fn value(&self) -> u32 {
        self.count.load(Ordering::Relaxed) + Self::START
    }
}

#[toolbox(fn admin)]
impl Counter {
    /// Sets the counter to zero.
    #[tool]
    fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
    }
}

#[toolbox(pub(crate) fn reports)]
impl Counter {
    /// Returns the number of logged lines.
    #[tool]
    fn report(&self) -> usize {
        self.log.lock().unwrap().len()
    }
}

#[tokio::test]
async fn accepts_methods_of_every_kind() {
    let counter = Arc::new(Counter::default());
    let set = ToolSet::from(Arc::clone(&counter));
    let names: Vec<_> = set.iter().map(|tool| tool.definition().name().to_owned()).collect();
    assert_eq!(names, ["add", "write_log", "last", "sum", "slow", "longest"]);
    let table = [
        ("add", "", "1"),
        ("add", r#"{"by": 41}"#, "42"),
        (
            "add",
            r#"{"by": 101}"#,
            "error: invalid arguments: `by`: expected an integer from 1 to 100, got 101",
        ),
        ("write_log", r#"{"line": "hello"}"#, "1"),
        ("write_log", r#"{"line": ""}"#, "error: the line is empty"),
        ("last", "{}", r#""hello""#),
        ("sum", r#"{"a": 2, "b": "40"}"#, "42.0"),
        ("slow", "{}", "call_1 42"),
        ("longest", r#"{"texts": ["a", "abc", "ab"]}"#, "abc"),
    ];
    for (name, arguments, expected) in table {
        assert_eq!(result_text(&set, name, arguments).await, expected, "{name} {arguments}");
    }
    assert_eq!(counter.value(), 42);
    assert_eq!(counter.add(1), 43); // it stays a method
}

#[tokio::test]
async fn several_toolboxes_of_one_type_share_a_value() {
    let counter = Arc::new(Counter::default());
    let set = ToolSet::from(Arc::clone(&counter))
        .union(Counter::admin(Arc::clone(&counter)))
        .and_then(|set| set.union(Counter::reports(Arc::clone(&counter))))
        .unwrap();
    assert_eq!(result_text(&set, "add", r#"{"by": 7}"#).await, "7");
    assert_eq!(result_text(&set, "reset", "{}").await, "Success");
    assert_eq!(result_text(&set, "report", "{}").await, "0");
    assert_eq!(counter.value(), 0);
    // A toolbox can also be passed by value.
    assert_eq!(Counter::admin(Counter::default()).len(), 1);
}

#[test]
fn definitions_equal_those_of_functions() {
    let set = ToolSet::from(Counter::default());
    let add = set.get("add").unwrap();
    assert_eq!(add.definition().description(), Some("Adds to the counter, and returns its new value."));
    assert_eq!(
        add.definition().parameters()["properties"],
        json!({ "by": { "type": "integer", "minimum": 1, "maximum": 100, "description": "how much", "default": 1 } })
    );
    let place = add.declared_at().unwrap();
    assert!(place.file().ends_with("toolboxes.rs") && place.line() > 30, "{place}");
    // The definition is created once per process: another value shares its schema in memory.
    let other = ToolSet::from(Counter::default());
    let address = |set: &ToolSet| std::ptr::from_ref(set.get("add").unwrap().definition());
    assert_eq!(address(&set), address(&other));
}

/// A list of anything.
struct Store<T> {
    items: Mutex<Vec<T>>,
}

impl<T> Store<T> {
    fn new() -> Self {
        Self { items: Mutex::default() }
    }
}

#[toolbox]
impl<T> Store<T>
where
    T: DeserializeOwned + JsonSchema + Serialize + Clone + Send + 'static,
{
    /// Puts an item into the store.
    #[tool]
    fn put(&self, item: T, #[param(default = 1, range = 1..=9)] times: usize) -> usize {
        let mut items = self.items.lock().unwrap();
        items.extend(std::iter::repeat_n(item, times));
        items.len()
    }

    /// Lists all items.
    #[tool]
    async fn list(&self, #[param(default = None)] _only: Option<T>) -> Vec<T> {
        self.items.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn an_instance_fixes_the_types() {
    let (numbers, texts) = (ToolSet::from(Store::<u8>::new()), ToolSet::from(Store::<String>::new()));
    let schema =
        |set: &ToolSet| set.get("put").unwrap().definition().parameters()["properties"]["item"].clone();
    assert_eq!(schema(&numbers), json!({ "type": "integer", "minimum": 0, "maximum": 255 }));
    assert_eq!(schema(&texts), json!({ "type": "string" }));
    assert_eq!(result_text(&numbers, "put", r#"{"item": 7, "times": 2}"#).await, "2");
    assert_eq!(result_text(&numbers, "list", "{}").await, "[7,7]");
    assert_eq!(
        result_text(&numbers, "put", r#"{"item": "seven"}"#).await,
        "error: invalid arguments: `item`: expected an integer from 0 to 255, got \"seven\""
    );
    assert_eq!(result_text(&texts, "put", r#"{"item": "seven"}"#).await, "1");
}

trait Greeter {
    fn greet(&self, name: &str) -> String;
}

struct Italian;

#[toolbox]
impl Greeter for Italian {
    /// Greets somebody.
    #[tool]
    fn greet(&self, name: &str) -> String {
        format!("Ciao, {name}!")
    }
}

#[tokio::test]
async fn accepts_trait_methods() {
    assert_eq!(result_text(&ToolSet::from(Italian), "greet", r#"{"name": "Ada"}"#).await, "Ciao, Ada!");
}

mod inside {
    pub(super) struct Hidden;

    #[tool_core::toolbox]
    impl Hidden {
        #[cfg(any())]
        #[tool]
        fn never(&self) {}

        #[cfg(not(any()))]
        #[tool]
        fn always(&self) -> Self_ {
            Self_
        }
    }

    #[derive(serde::Serialize)]
    pub(super) struct Self_;
}

#[test]
fn omits_methods_disabled_by_cfg() {
    let set = ToolSet::from(inside::Hidden);
    assert_eq!(set.len(), 1);
    assert!(set.get("always").is_some());
}

#[tokio::test]
async fn an_agent_accepts_a_toolbox() {
    let agent = Agent::builder(OfflineModel::new()).tools(Counter::default()).build().unwrap();
    let answer = agent.ask("What is the sum of 2.5 and 40?").await.unwrap();
    assert!(answer.text().contains("42.5"), "{answer}");
    let counter = Arc::new(Counter::default());
    let builder = Agent::builder(ScriptedModel::new());
    let builder = builder.tools(Arc::clone(&counter)).tools(Counter::admin(counter));
    assert_eq!(builder.build().unwrap().tools().len(), 7);
}

/// A toolbox without values.
enum Unconstructed {}

#[toolbox]
impl Unconstructed {
    /// Reads a line.
    #[tool(name = "read_line", needs_approval)]
    async fn read(self: Arc<Self>, #[param("the number of the line", default = 1)] line: u32) -> String {
        line.to_string()
    }

    #[tool("Sums two numbers")]
    fn sum(&self, a: f64, b: f64) -> f64 {
        a + b
    }
}

#[test]
fn a_type_has_definitions_without_a_value() {
    let definitions = Unconstructed::definitions();
    let names: Vec<_> = definitions.iter().map(|definition| definition.name()).collect();
    assert_eq!(names, ["read_line", "sum"]);
    assert!(definitions[0].policy().needs_approval);
    let expected =
        json!({ "type": "integer", "minimum": 0, "description": "the number of the line", "default": 1 });
    assert_eq!(definitions[0].parameters()["properties"]["line"], expected);
    assert_eq!(Counter::definitions(), *ToolSet::from(Counter::default()).definitions());
}
