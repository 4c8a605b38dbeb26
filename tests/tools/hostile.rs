//! Malicious arguments and schemas: nothing hangs, no stack overflows, and the memory used is proportional to the
//! size of the input.
//!
//! Every case runs in a thread of its own with a small stack. Work is counted in allocated bytes, which do not depend on
//! the machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tests::support::sampling::{is_exhaustive, size};
use tool_core::model::ToolDefinition;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{DynamicTool, ToolFuture};
use tool_core::toolset::{ExtraParameters, ToolSetErrorKind};
use tool_core::{
    Agent, FunctionTool, PromptedTools, Tool, ToolCall, ToolContext, ToolError, ToolOutput, ToolSet, tool,
    toolbox, tools,
};

/// The stack size of a thread unless stated otherwise: a quarter of the default.
const STACK: usize = 512 * 1024;

/// The size of a huge text, in bytes.
fn huge() -> usize {
    size(15_000, 2_000_000)
}

/// The limit of memory per byte of a call's text. A list of single digits is read as a list of pointers.
const MOST_MEMORY: u64 = 100;

/// The limit of bytes allocated by a call, per byte of its text.
const MOST_WORK: u64 = 1_000;

/// The limit of an error message, in bytes.
const LONGEST_REFUSAL: usize = 10_000;

/// The default stack of a thread: cloning a `Value` with a thousand levels takes more than half a megabyte.
const STACK_FOR_SCHEMAS: usize = 2 * 1024 * 1024;

/// Runs `act` in a thread with a small stack.
fn guarded(name: &str, stack: usize, act: impl FnOnce() + Send + 'static) {
    let act: Box<dyn FnOnce() + Send> = Box::new(act);
    let case = thread::Builder::new().name(name.to_owned()).stack_size(stack).spawn(act).unwrap();
    if case.join().is_err() {
        panic!("{name} panicked");
    }
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "never read")]
struct Tree {
    #[schemars(range(max = 9))]
    size: u32,
    children: Vec<Tree>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "never read")]
struct Chain {
    it: Option<Box<Chain>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "never read")]
enum Either {
    Number(u32),
    Text(String),
    Deeper { it: Box<Either> },
    List(Vec<Either>),
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(dead_code, reason = "never read")]
enum Shape {
    Dot,
    Group { it: Vec<Shape> },
}

#[derive(Deserialize, JsonSchema)]
enum Word {
    Yes,
    No,
}

/// Declares tools for each kind of argument, all with a single argument `it`.
macro_rules! reading {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(
            #[tool]
            fn $name(it: $type) {
                let _ = it;
            }
        )*

        fn plain() -> ToolSet {
            tools![$($name),*, limited, left_out, held]
        }
    };
}

reading! {
    integer: i64,
    small: u8,
    big: i128,
    fraction: f64,
    half: f32,
    flag: bool,
    letter: char,
    text: String,
    texts: Vec<String>,
    integers: Vec<i64>,
    table: BTreeMap<String, i64>,
    pair: (u8, String),
    tree: Tree,
    chain: Chain,
    either: Either,
    shape: Shape,
    word: Word,
    words: Option<Vec<Word>>,
    anything: Value,
}

#[tool]
fn limited(#[param(length = 1..=64, pattern = "^(a+)+$")] it: Option<String>) {
    let _ = it;
}

#[tool]
fn left_out(#[param(default = Vec::new(), length = ..10)] it: Vec<String>, reason: Option<String>) {
    drop((it, reason));
}

#[tool(strict)]
fn held(it: Option<Vec<Chain>>) {
    drop(it);
}

struct Garden;

#[toolbox]
impl Garden {
    #[tool]
    fn plant(&self, it: Tree) {
        drop(it);
    }
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "never read")]
struct Thought {
    reason: Option<String>,
    confidence: Option<f64>,
}

/// A tool that accepts anything.
struct Raw(ToolDefinition);

impl Tool for Raw {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, arguments: &'a str, _: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::ready(Ok(ToolOutput::text(arguments.len().to_string())))
    }
}

/// Arguments that are read as one value.
#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "never read")]
struct Fields<T> {
    it: T,
}

/// A tool that reads its arguments at an entry point outside of sets.
struct Elsewhere(ToolDefinition, fn(&str) -> Result<(), ToolError>);

impl Tool for Elsewhere {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, arguments: &'a str, _: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::ready((self.1)(arguments).map(|()| ToolOutput::text("")))
    }
}

fn read_as<T: DeserializeOwned + JsonSchema + 'static>(text: &str) -> Result<(), ToolError> {
    ToolCall::new("1", "any", text).arguments_as::<Fields<T>>().map(drop)
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn answer_as<T: DeserializeOwned + JsonSchema + Send + 'static>(text: &str) -> Result<(), ToolError> {
    let model = ScriptedModel::new().calls("final_answer", text);
    let agent = Agent::builder(model).limits(|l| l.max_wrong_answers(0)).build().unwrap();
    let answer = wait(agent.ask("?").answer_as::<Fields<T>>().into_future());
    answer.map(drop).map_err(|error| ToolError::failed(error.to_string()))
}

fn prompted(text: &str) -> Result<(), ToolError> {
    let call = format!(r#"<tool_call>{{"name": "tree", "arguments": {text}}}</tool_call>"#);
    let model = PromptedTools::new(ScriptedModel::new().says(call).says("Done."));
    let agent = Agent::builder(model).tools(tools![tree]).build().unwrap();
    wait(agent.ask("?").into_future()).map(drop).map_err(|error| ToolError::failed(error.to_string()))
}

/// Returns the sets of all further entry points: closures, dynamic tools, and those outside of sets.
fn other_entry_points() -> [(&'static str, ToolSet); 3] {
    let closures = [
        FunctionTool::new("tree", |it: Fields<Tree>| drop(it)),
        FunctionTool::new("chain", |it: Fields<Option<Chain>>| drop(it)),
        FunctionTool::new("either", |it: Fields<Either>| drop(it)),
        FunctionTool::new("shape", |it: Fields<Shape>| drop(it)),
        FunctionTool::new("words", |it: Fields<Vec<Word>>| drop(it)),
        FunctionTool::new("table", |it: Fields<BTreeMap<u8, u8>>| drop(it)),
    ];
    let dynamic = closures.iter().map(|tool| {
        let (name, schema) = (tool.definition().name(), tool.definition().parameters().clone());
        Arc::new(DynamicTool::new(name, schema, |it: Value| drop(it)).unwrap()) as Arc<dyn Tool>
    });
    let dynamic = ToolSet::new(dynamic).unwrap();
    let elsewhere = |name: &str, read| Elsewhere(ToolDefinition::new(name), read);
    let elsewhere = [
        elsewhere("arguments_as_tree", read_as::<Tree>),
        elsewhere("arguments_as_either", read_as::<Either>),
        elsewhere("answer_as_tree", answer_as::<Tree>),
        elsewhere("answer_as_shape", answer_as::<Shape>),
        elsewhere("prompted", prompted),
    ];
    let elsewhere = elsewhere.map(|tool| Arc::new(tool) as Arc<dyn Tool>);
    let closures = ToolSet::new(closures.map(|tool| Arc::new(tool) as Arc<dyn Tool>)).unwrap();
    [("closures", closures), ("dynamic", dynamic), ("elsewhere", ToolSet::new(elsewhere).unwrap())]
}

/// Returns the sets; each reads arguments differently.
fn sets() -> Vec<(&'static str, ToolSet)> {
    let plain = plain();
    let thought = || ExtraParameters::new(|_: &ToolCall, thought: Thought| drop(thought));
    let without_left_out = plain.clone().without(["left_out"]).unwrap();
    let sayable = plain.clone().without(["table", "anything"]).unwrap();
    let mut sets = vec![
        ("strict arguments", plain.clone().no_repair()),
        ("unknown ones ignored", plain.clone().ignore_unknown_arguments()),
        ("extended", without_left_out.extra_parameters(thought()).unwrap()),
        ("strict", sayable.strict().unwrap()),
        ("toolbox", ToolSet::from(Garden)),
        ("plain", plain),
    ];
    sets.extend(other_entry_points());
    sets
}

/// All sets, or in a sample every fifth one from a place that depends on the name of the case.
fn sets_for(case: &str) -> impl Iterator<Item = (&'static str, ToolSet)> {
    let (first, step) = if is_exhaustive() { (0, 1) } else { (case.len() % 5, 5) };
    sets().into_iter().skip(first).step_by(step)
}

fn call(set: &ToolSet, name: &str, text: &str) -> Result<String, String> {
    let call = ToolCall::new("1", name, text);
    let outcome = set.call(&call, &ToolContext::new()).now_or_never().expect("no tool here suspends");
    outcome.map(|output| output.to_string()).map_err(|error| error.to_string())
}

/// Executes the call, and checks the length of the error and the memory used.
fn check(set: &ToolSet, kind: &str, name: &str, text: &str) {
    let mut outcome = Ok(String::new());
    let taken = allocation_counter::measure(|| outcome = call(set, name, text));
    if let Err(error) = outcome {
        assert!(error.len() < LONGEST_REFUSAL, "{kind}, {name}: {} bytes", error.len());
    }
    for (taken, most) in [(taken.bytes_max, MOST_MEMORY), (taken.bytes_total, MOST_WORK)] {
        let most = most * text.len() as u64 + 1_500_000;
        assert!(taken < most, "{kind}, {name}: {taken} bytes for {}", text.len());
    }
}

/// Returns arguments with this value for `it`.
fn it(value: &str) -> String {
    format!("{{\"it\":{value}}}")
}

fn list(item: &str, count: usize) -> String {
    format!("[{}]", vec![item; count].join(","))
}

fn members(count: usize) -> String {
    let members: Vec<_> = (0..count).map(|number| format!("\"m{number}\":null")).collect();
    format!("{{{}}}", members.join(","))
}

fn nested(open: &str, inside: &str, close: &str, levels: usize) -> String {
    open.repeat(levels) + inside + &close.repeat(levels)
}

/// Declares tests that send a text to every tool of every set.
macro_rules! calls_of_all {
    ($($name:ident: $text:expr,)*) => {
        $(
            #[test]
            fn $name() {
                guarded(stringify!($name), STACK, || {
                    let text: String = $text;
                    for (kind, set) in sets_for(stringify!($name)) {
                        for definition in set.definitions().iter() {
                            check(&set, kind, definition.name(), &text);
                        }
                    }
                });
            }
        )*
    };
}

calls_of_all! {
    a_long_text: it(&format!("\"{}\"", "a".repeat(20_000))),
    a_long_text_of_escapes: it(&format!("\"{}\"", "\\u0041\\\"".repeat(2_000))),
    a_list_to_be_repaired: it(&list("\"1.0\"", 2_000)),
    a_list_of_objects: it(&list("{\"it\":null}", 1_000)),
    a_list_of_words: it(&list("\"YES\"", 1_000)),
    a_list_of_shapes: it(&list("{\"kind\":\"DOT\"}", 1_000)),
    a_list_with_its_last_item_wrong: it(&format!("[{}true]", "1,\n".repeat(5_000))),
    many_members: it(&members(2_000)),
    many_arguments: members(2_000),
    one_argument_many_times: format!("{{{}}}", vec!["\"it\":null"; 2_000].join(",")),
    one_member_many_times: it(&format!("{{{}}}", vec!["\"it\":null"; 2_000].join(","))),
    lists_in_lists: it(&nested("[", "", "]", size(200, 1_000))),
    lists_up_to_the_limit: it(&nested("[", "", "]", 126)),
    lists_without_end: it(&"[".repeat(10_000)),
    objects_in_objects: nested("{\"it\":", "null", "}", size(200, 1_000)),
    objects_up_to_the_limit: nested("{\"it\":", "\"1\"", "}", 127),
    objects_of_invalid_values: nested("{\"it\":", "true", "}", 100),
    trees_up_to_the_limit: it(&nested("{\"size\":\"1\",\"children\":[", "", "]}", 60)),
    shapes_up_to_the_limit: it(&nested("{\"kind\":\"GROUP\",\"it\":[", "", "]}", 60)),
    many_trees: it(&nested("{\"size\":1,\"children\":", &list("{\"size\":\"1\",\"children\":[]}", 500), "}", 1)),
    a_huge_exponent: it("1e999999999999"),
    a_huge_exponent_in_a_text: it("\"1e999999999999\""),
    a_tiny_exponent: it("-1e-999999999999"),
    an_exponent_of_many_digits: it(&format!("\"1e{}\"", "9".repeat(20_000))),
    many_digits: it(&"9".repeat(20_000)),
    many_digits_in_a_text: it(&format!("\"{}.0e-7\"", "9".repeat(20_000))),
    many_zeros: it(&format!("0.{}1e20001", "0".repeat(20_000))),
    half_a_pair_of_surrogates: it("\"\\ud800\""),
    surrogates_the_wrong_way_round: it("\"\\udc00\\ud800\""),
    an_escape_without_end: it("\"\\u12\""),
    a_name_of_half_a_pair: "{\"\\ud800\":1}".to_owned(),
    a_hostile_name: format!("{{\"{}\":1}}", "é\\u0000\\n`".repeat(2_000)),
    only_commas: nested("{", &",".repeat(20_000), "}", 1),
    commas_everywhere: it(&format!("[{}]", "1,, ,".repeat(4_000))),
    commas_and_blanks: it(&format!("[{}", "[1,                    ],".repeat(1_000))),
    blanks: " ".repeat(20_000) + "{}" + &"\n".repeat(20_000),
    no_object: "a".repeat(20_000),
    a_text_without_end: format!("{{\"it\":\"{}", "a".repeat(20_000)),
    a_text_in_texts: (0..12).fold("{\"it\":1}".to_owned(), |text, _| json!(text).to_string()),
    a_list_in_texts: it(&(0..12).fold("[1]".to_owned(), |text, _| json!(text).to_string())),
}

/// Declares tests that send a huge text to some of the tools.
macro_rules! calls {
    ($($name:ident: [$($tool:ident),*] $text:expr,)*) => {
        $(
            #[test]
            fn $name() {
                guarded(stringify!($name), STACK, || {
                    let text: String = $text;
                    for tool in [$(stringify!($tool)),*] {
                        check(&plain(), "plain", tool, &text);
                    }
                });
            }
        )*
    };
}

calls! {
    huge_text: [integer, text, texts, limited] it(&format!("\"{}\"", "a".repeat(huge()))),
    huge_text_of_escapes: [letter, words] it(&format!("\"{}\"", "\\u0041".repeat(huge() / 6))),
    huge_list: [text, small] it(&list("1", huge() / 2)),
    huge_list_to_be_repaired: [texts] it(&list("1", huge() / 20)),
    huge_list_of_objects: [either, table, held] it(&list("{\"it\":null}", huge() / 20)),
    huge_list_in_a_text: [integers] it(&json!(list("\"1.0\"", huge() / 100)).to_string()),
    huge_number_of_members: [tree, table, anything] it(&members(huge() / 16)),
    huge_number_of_arguments: [text, left_out] members(huge() / 100),
    huge_number_of_one_argument: [text, words] format!("{{{}}}", vec!["\"it\":null"; huge() / 100].join(",")),
    huge_depth: [tree, anything] it(&nested("[", "", "]", huge() / 10)),
    huge_depth_of_objects: [chain, either] nested("{\"it\":", "null", "}", huge() / 10),
    huge_depth_of_optional_values: [held] nested("{\"it\":", "null", "}", huge() / 100),
    huge_depth_without_end: [chain] it(&"[{\"it\":".repeat(huge() / 10)),
    huge_number: [integer, big, fraction, half, text, anything] it(&"9".repeat(huge() / 100)),
    huge_number_of_commas: [text, anything] nested("{", &",".repeat(huge() / 4), "}", 1),
    huge_number_of_loose_commas: [texts] it(&format!("[{}]", "[1,      ],".repeat(huge() / 40))),
    huge_text_of_nothing: [text] "\\".repeat(huge()),
}

/// Returns a schema with `inner` under a keyword.
fn around(inner: Value, word: &str) -> Value {
    Value::from(Map::from_iter([(word.to_owned(), inner)]))
}

fn deep(word: &str) -> Value {
    (0..1_000).fold(json!({ "type": "string" }), |inner, _| around(inner, word))
}

fn deep_list(word: &str) -> Value {
    (0..500).fold(json!({ "type": "string" }), |inner, _| around(Value::from(vec![inner]), word))
}

/// Returns a tool's schema with the single parameter `it`.
fn parameter(schema: Value) -> Value {
    around(around(schema, "it"), "properties")
}

/// Returns a schema whose definitions each refer to the next, and the last to the first.
fn circle(link: impl Fn(Value) -> Value) -> Value {
    let count = size(100, 1_000);
    let next = |number: usize| json!({ "$ref": format!("#/$defs/d{}", (number + 1) % count) });
    let definitions = (0..count).map(|number| (format!("d{number}"), link(next(number))));
    json!({ "properties": { "it": { "$ref": "#/$defs/d0" } }, "$defs": Map::from_iter(definitions) })
}

fn many_properties() -> Value {
    let properties = (0..huge() / 100).map(|number| (format!("p{number}"), json!({ "type": "string" })));
    json!({ "properties": Map::from_iter(properties) })
}

fn many_references() -> Value {
    let names = (0..size(600, 9_000)).map(|number| format!("{number:0100}"));
    let definitions = names.clone().map(|name| (name, json!({ "type": "string" })));
    let properties = names.map(|name| (name.clone(), json!({ "$ref": format!("#/$defs/{name}") })));
    json!({ "properties": Map::from_iter(properties), "$defs": Map::from_iter(definitions) })
}

/// Adds a tool with this schema to sets in every way, and calls it.
fn offer(name: &'static str, schema: fn() -> Value) {
    guarded(name, STACK_FOR_SCHEMAS, move || {
        let definition =
            ToolDefinition::new("raw").with_description("Takes whatever comes").with_parameters(schema());
        let set = match ToolSet::default().with(Raw(definition)) {
            Ok(set) => set,
            Err(error) => {
                assert!(
                    error.kind() == ToolSetErrorKind::NotAnObject
                        && error.to_string().len() < LONGEST_REFUSAL
                );
                return;
            }
        };
        assert!(set.check().findings().len() <= 10_000);
        let extend = |set: &ToolSet| {
            let extra = ExtraParameters::new(|_: &ToolCall, thought: Thought| drop(thought));
            set.clone().extra_parameters(extra)
        };
        let strict = set.clone().strict();
        if let Err(error) = &strict {
            assert!(error.to_string().len() < LONGEST_REFUSAL, "{} bytes", error.to_string().len());
        }
        let both = strict.as_ref().ok().and_then(|set| extend(set).ok());
        let texts = [
            nested("{\"it\":", "null", "}", 120),
            nested("{\"a\":null,\"it\":", "null", "}", 120),
            nested("{\"it\":", &list("{\"it\":null}", 2_000), "}", 1),
            nested("{\"it\":", &list("[null]", 2_000), "}", 1),
            members(2_000),
        ];
        let extended = extend(&set);
        for set in [Ok(set), strict, extended].into_iter().flatten().chain(both) {
            for text in &texts {
                assert!(call(&set, "raw", text).is_ok());
            }
            drop(set.clone().rename("raw", "other").unwrap().union(set).unwrap());
        }
    });
}

macro_rules! schemas {
    ($($name:ident: $schema:expr,)*) => {
        $(
            #[test]
            fn $name() {
                offer(stringify!($name), || $schema);
            }
        )*
    };
}

schemas! {
    schema_of_objects_in_objects: (0..500).fold(json!({}), |inner, _| parameter(inner)),
    schema_of_lists_in_lists: parameter(deep("items")),
    schema_of_tuples_in_tuples: parameter(deep_list("prefixItems")),
    schema_of_choices_in_choices: parameter(deep_list("anyOf")),
    schema_of_unions_in_unions: parameter(deep_list("allOf")),
    schema_of_maps_in_maps: parameter(deep("additionalProperties")),
    schema_of_a_circle: circle(|next| next),
    schema_of_a_tree_of_references: circle(|next| json!({ "properties": { "a": next, "it": next } })),
    schema_of_choices_among_references: circle(|next| json!({ "anyOf": [next, next, next] })),
    schema_of_unions_of_references: circle(|next| json!({ "allOf": [next, next, next] })),
    schema_that_refers_to_itself: json!({ "$ref": "#" }),
    schema_of_a_parameter_that_is_the_whole: parameter(json!({ "anyOf": [{ "$ref": "#" }, { "$ref": "#/properties/it" }] })),
    schema_of_many_properties: many_properties(),
    schema_of_many_references: many_references(),
    schema_of_many_values: parameter(json!({ "enum": (0..huge() / 100).collect::<Vec<_>>() })),
    schema_of_many_choices: parameter(json!({ "anyOf": vec![json!({ "properties": { "it": { "$ref": "#" } } }); huge() / 1_000] })),
    schema_with_a_long_description: json!({ "type": "object", "description": "é".repeat(huge() / 10) }),
    schema_with_a_long_name: json!({ "properties": { "é".repeat(huge() / 10): many_properties() } }),
    schema_that_is_not_a_schema: json!([null]),
}

/// A schema is compiled for only some of the arguments that are refused together, each with a copy of the definitions.
#[test]
fn a_dynamic_tool_with_many_arguments_and_a_long_definition() {
    guarded("a_dynamic_tool_with_many_arguments_and_a_long_definition", STACK, || {
        let names = || (0..size(2_000, 8_000)).map(|number| format!("p{number}"));
        let reference = json!({ "$ref": "#/$defs/long" });
        let schema = json!({
            "type": "object",
            "properties": names().map(|name| (name, reference.clone())).collect::<Map<_, _>>(),
            "dependentRequired": { "p0": ["q"] },
            "$defs": { "long": { "type": "integer", "description": "a".repeat(size(50_000, 200_000)) } },
        });
        let tool = DynamicTool::new("dynamic", schema, |it: Value| drop(it)).unwrap();
        let set = ToolSet::new([Arc::new(tool) as Arc<dyn Tool>]).unwrap();
        let arguments: Map<_, _> = names().map(|name| (name, Value::from(1))).collect();
        let text = Value::from(arguments).to_string();
        check(&set, "dynamic", "dynamic", &text);
        assert_ne!(call(&set, "dynamic", &text), Ok("Success".into()));
    });
}

/// The report compares all tools with each other.
#[test]
fn many_tools_with_long_descriptions() {
    guarded("many_tools_with_long_descriptions", STACK, || {
        let description = "Returns the time. ".repeat(size(500, 2_000));
        let tools = (0..200).map(|number| {
            let definition = ToolDefinition::new(format!("tool{number}"))
                .with_description(format!("{description}{number}"));
            Arc::new(Raw(definition)) as Arc<dyn Tool>
        });
        let report = ToolSet::new(tools).unwrap().check();
        assert!(report.findings().len() > 200);
    });
}

/// Tool names that a model invented.
#[test]
fn hostile_names_of_tools() {
    guarded("hostile_names_of_tools", STACK, || {
        for name in ["", "\0", "é".repeat(huge() / 2).as_str(), "`".repeat(huge()).as_str(), "text\u{202e}"]
        {
            let error = call(&plain(), name, "{}").unwrap_err();
            assert!(error.len() < LONGEST_REFUSAL, "{} bytes", error.len());
        }
    });
}
