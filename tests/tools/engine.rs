//! The same value read by every entry point: all of them accept, change and refuse the same values, with the same explanations.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tool_core::run::StopReason;
use tool_core::testing::ScriptedModel;
use tool_core::tool::DynamicTool;
use tool_core::toolset::ExtraParameters;
use tool_core::{Agent, FunctionTool, RunErrorKind, Tool, ToolCall, ToolContext, ToolSet, tool, tools};

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments<T> {
    it: T,
}

/// Returns the value, in its debug form, or the mistakes.
pub(crate) type Verdict = Result<String, String>;

pub(crate) fn call(set: &ToolSet, text: &str) -> Verdict {
    let name = set.definitions()[0].name().to_owned();
    let outcome = set.call(&ToolCall::new("1", name, text), &ToolContext::new()).now_or_never().unwrap();
    outcome.map(|output| output.to_string()).map_err(mistakes)
}

fn mistakes(error: impl ToString) -> String {
    let error = error.to_string();
    error.strip_prefix("invalid arguments: ").unwrap_or(&error).to_owned()
}

#[tool]
fn other() {}

/// Reads a value at every entry point. The declared tool has it as its only parameter.
pub(crate) fn verdicts<T>(declared: &ToolSet, it: &str) -> Vec<(&'static str, Verdict)>
where
    T: Debug + for<'de> Deserialize<'de> + JsonSchema + Send + 'static,
{
    let text = format!(r#"{{"it":{it}}}"#);
    let closure = FunctionTool::new("closure", |Arguments { it }: Arguments<T>| format!("{it:?}"));
    let read = Arc::new(Mutex::new(String::new()));
    let extra = ExtraParameters::new({
        let read = Arc::clone(&read);
        move |_: &ToolCall, Arguments { it }: Arguments<T>| *read.lock().unwrap() = format!("{it:?}")
    });
    let extended = call(&tools![other].extra_parameters(extra).unwrap(), &text);
    let as_type = ToolCall::new("1", "any", &*text).arguments_as::<Arguments<T>>();
    let model = ScriptedModel::new().calls("final_answer", &*text);
    let agent = Agent::builder(model).limits(|l| l.max_wrong_answers(0)).build().unwrap();
    let answer = agent.ask("?").answer_as::<Arguments<T>>().into_future();
    let answer = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(answer);
    let answer = answer.map(|Arguments { it }| format!("{it:?}")).map_err(|error| match error.kind() {
        RunErrorKind::Stopped(StopReason::WrongAnswer(why)) => {
            why.trim_start_matches("the answer does not have the requested form: ").to_owned()
        }
        _ => panic!("{error}"),
    });
    vec![
        ("declared", call(declared, &text)),
        ("declared, cold", call(declared, &format!(r#"{{"\u0069t":{it}}}"#))),
        ("closure", call(&ToolSet::new([Arc::new(closure) as Arc<dyn Tool>]).unwrap(), &text)),
        ("extra parameters", extended.map(|_| read.lock().unwrap().clone())),
        ("arguments_as", as_type.map(|Arguments { it }| format!("{it:?}")).map_err(mistakes)),
        ("typed answer", answer),
    ]
}

/// Declares a test of values of a type, each with its debug form, or with the mistakes.
macro_rules! readings {
    ($($name:ident: $type:ty { $($it:expr => $expected:expr,)* })*) => {$(
        #[test]
        fn $name() {
            #[tool]
            fn declared(it: $type) -> String {
                format!("{it:?}")
            }
            let mut wrong = Vec::new();
            $(
                let expected: Result<&str, &str> = $expected;
                let expected = expected.map(str::to_owned).map_err(str::to_owned);
                for (kind, actual) in verdicts::<$type>(&tools![declared], &$it) {
                    if actual != expected {
                        wrong.push(format!("{kind} {}: {actual:?}", $it));
                    }
                }
            )*
            assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        }
    )*};
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Coded {
    #[schemars(length(equal = 1))]
    code: String,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Small {
    #[schemars(range(max = 9))]
    n: u32,
}

/// A struct that contains itself.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
struct Chain {
    #[schemars(range(max = 9))]
    n: u32,
    #[serde(default)]
    note: String,
    next: Option<Box<Chain>>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Flat {
    amount: u32,
    #[serde(flatten)]
    kind: Kind,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Kind {
    Round {
        #[schemars(range(max = 9))]
        radius: u32,
        #[serde(default)]
        hue: u32,
    },
    Dot,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
enum Either {
    Text(String),
    Number(i64),
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
enum Untagged {
    Limited {
        #[schemars(range(max = 9))]
        n: u32,
    },
    Named {
        n: String,
    },
    Many(Vec<Small>),
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "t", content = "c")]
enum Adjacent {
    One(Small),
    Two(u8, Small),
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
enum Variant {
    Two(u8, Small),
    Boxed(Box<Option<Small>>),
    Unit,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Unit;

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Newtype(Cow<'static, str>);

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Person {
    #[serde(alias = "nick")]
    name: String,
    age: u8,
    #[serde(default = "seven")]
    luck: u8,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Aliased {
    #[serde(alias = "n")]
    #[schemars(range(max = 9))]
    number: u8,
    #[serde(default, alias = "comment")]
    #[schemars(length(max = 3))]
    note: String,
    #[serde(default)]
    inner: Option<Box<Aliased>>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct AliasedWithFlattened {
    #[serde(default)]
    #[schemars(length(max = 3))]
    note: String,
    #[serde(flatten)]
    kind: Kind,
}

/// The schema of `id` does not say that it can also be a number.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Numbered {
    #[serde(deserialize_with = "text_or_number")]
    id: String,
    age: u8,
    #[serde(default)]
    children: Vec<Numbered>,
}

fn text_or_number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(format!("number {number}")),
        _ => Err(serde::de::Error::custom("neither a text nor a number")),
    }
}

fn seven() -> u8 {
    7
}

fn chain(length: usize, last: u32, note: &str) -> String {
    let start = r#"{"n":1,"next":"#.repeat(length);
    format!(r#"{start}{{"n":{last},"note":"{note}","next":null}}{}"#, "}".repeat(length))
}

readings! {
    accepted_parts_are_not_repaired: Numbered {
        r#"{"id":7,"age":"3"}"# => Ok(r#"Numbered { id: "number 7", age: 3, children: [] }"#),
        r#"{"id":true,"age":3,"children":[{"id":7,"age":"3"}]}"# => Err("`it.id`: expected a string, got true"),
        r#"{"id":7,"age":3,"children":[{"id":8,"age":"3"}]}"# => Ok(
            r#"Numbered { id: "number 7", age: 3, children: [Numbered { id: "number 8", age: 3, children: [] }] }"#
        ),
    }
    a_string_of_one_character: Coded {
        r#"{"code":"a"}"# => Ok(r#"Coded { code: "a" }"#),
        r#"{"code":"ab"}"# => Err("`it.code`: expected a character, got \"ab\""),
        r#"{"code":""}"# => Err("`it.code`: expected a character, got \"\""),
    }
    limits_under_other_names: Aliased {
        r#"{"number":9,"note":"abc"}"# => Ok("Aliased { number: 9, note: \"abc\", inner: None }"),
        r#"{"n":"9"}"# => Err("`it.n`: invalid type: string \"9\", expected u8"),
        r#"{"n":9}"# => Err("`it` has no member `n`, its members are `number`, `note`, `inner`"),
        r#"{"number":1,"comment":"abc"}"# => Err("`it` has no member `comment`, its members are `number`, `note`, `inner`"),
        r#"{"number":1,"inner":{"n":9}}"# => Err("`it.inner` has no member `n`, its members are `number`, `note`, `inner`"),
    }
    members_of_flattened_enums_have_their_own_limits: AliasedWithFlattened {
        r#"{"kind":"round","radius":9}"# => Ok("AliasedWithFlattened { note: \"\", kind: Round { radius: 9, hue: 0 } }"),
    }
    maps_with_numbers_as_keys: BTreeMap<u32, Small> {
        r#"{"1":{"n":9}}"# => Ok("{1: Small { n: 9 }}"),
        r#"{"1":{"n":"9"}}"# => Ok("{1: Small { n: 9 }}"),
        r#"{"1":{"n":10}}"# => Err("`it.1.n`: expected an integer from 0 to 9, got 10"),
        r#"{"1":{"n":"x"},"2":{"n":10}}"# => Err(
            "`it.1.n`: expected an integer from 0 to 9, got \"x\"; `it.2.n`: expected an integer from 0 to 9, got 10"
        ),
    }
    structs_as_lists: Vec<Small> {
        "[[9]]" => Ok("[Small { n: 9 }]"),
        "[[10]]" => Err("`it[0][0]`: expected an integer from 0 to 9, got 10"),
    }
    flattened_enums: Flat {
        r#"{"amount":5,"kind":"round","radius":9}"# => Ok("Flat { amount: 5, kind: Round { radius: 9, hue: 0 } }"),
        r#"{"amount":"5","kind":"round","radius":9}"# => Ok("Flat { amount: 5, kind: Round { radius: 9, hue: 0 } }"),
        r#"{"amount":5,"kind":"round","radius":10}"# => Err("`it.radius`: expected an integer from 0 to 9, got 10"),
        r#"{"amount":"x","kind":"round","radius":10}"# => Err(
            "`it.amount`: expected an integer from 0 to 4294967295, got \"x\"; `it.radius`: expected an integer from 0 to 9, got 10"
        ),
    }
    parts_of_optional_variants: Option<Kind> {
        r#"{"kind":"round","radius":"9","hue":null}"# => Ok("Some(Round { radius: 9, hue: 0 })"),
        r#"{"kind":"round","radius":"x","hue":"3"}"# => Err("`it.radius`: expected an integer from 0 to 9, got \"x\""),
        r#"{"kind":"round","radius":"x","hue":null}"# => Err("`it.radius`: expected an integer from 0 to 9, got \"x\""),
        r#"{"kind":"DOT"}"# => Ok("Some(Dot)"),
    }
    alternatives_keep_the_kind_of_a_value: Option<Either> {
        "7" => Ok("Some(Number(7))"),
        "7.0" => Ok("Some(Number(7))"),
        "\"7\"" => Ok("Some(Text(\"7\"))"),
    }
    limits_in_untagged_enums: Untagged {
        r#"{"n":9}"# => Ok("Limited { n: 9 }"),
        r#"{"n":10}"# => Err("`it.n`: expected an integer from 0 to 9, got 10"),
        r#"{"n":"10"}"# => Ok("Named { n: \"10\" }"),
        "[[9],[9]]" => Ok("Many([Small { n: 9 }, Small { n: 9 }])"),
        r#"[{"n":9},{"n":10}]"# => Err("`it[1].n`: expected an integer from 0 to 9, got 10"),
        "[[10]]" => Err("`it[0][0]`: expected an integer from 0 to 9, got 10"),
    }
    limits_in_tagged_enums: Kind {
        r#"["round",9,1]"# => Ok("Round { radius: 9, hue: 1 }"),
        r#"["round",10]"# => Err("`it[1]`: expected an integer from 0 to 9, got 10"),
    }
    limits_in_adjacently_tagged_enums: Adjacent {
        r#"{"t":"One","c":{"n":9}}"# => Ok("One(Small { n: 9 })"),
        r#"{"t":"One","c":{"n":10}}"# => Err("`it.c.n`: expected an integer from 0 to 9, got 10"),
        r#"{"c":[1,{"n":10}],"t":"Two"}"# => Err("`it.c[1].n`: expected an integer from 0 to 9, got 10"),
    }
    limits_in_variants: (Variant, BTreeMap<String, Variant>) {
        r#"["Unit",{"a":{"Two":[1,{"n":9}]}}]"# => Ok("(Unit, {\"a\": Two(1, Small { n: 9 })})"),
        r#"["Unit",{"a":{"Two":[1,{"n":10}]}}]"# => Err("`it[1].a.Two[1].n`: expected an integer from 0 to 9, got 10"),
        r#"[{"Boxed":{"n":10}},{}]"# => Err("`it[0].Boxed.n`: expected an integer from 0 to 9, got 10"),
        r#"[{"Boxed":null},{}]"# => Ok("(Boxed(None), {})"),
    }
    units_and_newtypes: (Unit, Newtype, Option<Option<u8>>, ()) {
        r#"[null,"a",null,null]"# => Ok("(Unit, Newtype(\"a\"), None, ())"),
        r#"[null,7,"8",null]"# => Ok("(Unit, Newtype(\"7\"), Some(Some(8)), ())"),
    }
    other_names: Person {
        r#"{"nick":"Ada","age":"7"}"# => Ok("Person { name: \"Ada\", age: 7, luck: 7 }"),
        r#"{"nick":"Ada","age":7.0,"luck":null}"# => Ok("Person { name: \"Ada\", age: 7, luck: 7 }"),
        r#"{"nick":"Ada","age":"x"}"# => Err("`it.age`: expected an integer from 0 to 255, got \"x\""),
    }
    integers_of_128_bits: (u128, i128) {
        "[340282366920938463463374607431768211455,-170141183460469231731687303715884105728]"
            => Ok("(340282366920938463463374607431768211455, -170141183460469231731687303715884105728)"),
        "[\"340282366920938463463374607431768211455\",-1.0]" => Ok("(340282366920938463463374607431768211455, -1)"),
    }
    characters: char {
        "\"é\"" => Ok("'é'"),
        "\"éa\"" => Err("`it`: expected a character, got \"éa\""),
    }
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "kind")]
enum Figure {
    Round { radius: u8 },
    Flat { width: u8, height: u8 },
    Dot,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Drawn {
    #[serde(flatten)]
    figure: Figure,
    id: u8,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct TwoEnums {
    #[serde(flatten)]
    figure: Figure,
    #[serde(flatten)]
    way: Way,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "by")]
enum Way {
    Air { height: u8 },
    Land { speed: u8 },
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
enum Filter {
    Between { low: i32, high: i32 },
    Named { name: String },
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "String")]
struct Even(u8);

impl TryFrom<String> for Even {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let number = text.parse().ok().filter(|number: &u8| number.is_multiple_of(2));
        number.map(Self).ok_or_else(|| "must be an even number".into())
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
enum Key {
    A,
    B,
}

readings! {
    tags_are_explained: Figure {
        r#"{"radius":1}"# => Err("`it.kind` is missing, expected one of \"Round\", \"Flat\", \"Dot\""),
        "{}" => Err("`it.kind` is missing, expected one of \"Round\", \"Flat\", \"Dot\""),
        r#"{"kind":"Oval","radius":1}"# => Err("`it.kind`: expected one of \"Round\", \"Flat\", \"Dot\", got \"Oval\""),
        r#"{"kind":null}"# => Err("`it.kind`: expected one of \"Round\", \"Flat\", \"Dot\", got null"),
        r#"{"kind":"flat","width":"x"}"# => Err(
            "`it.height` is missing, expected an integer from 0 to 255; `it.width`: expected an integer from 0 to 255, got \"x\""
        ),
    }
    tags_of_adjacent_content_are_explained: Adjacent {
        r#"{"t":"Three"}"# => Err("`it.t`: expected one of \"One\", \"Two\", got \"Three\""),
        r#"{"c":{"n":1}}"# => Err("`it.t` is missing, expected one of \"One\", \"Two\""),
    }
    flattened_members_are_explained_with_the_others: Drawn {
        r#"{"kind":"Round","radius":"x","id":"x"}"# => Err(
            "`it.radius`: expected an integer from 0 to 255, got \"x\"; `it.id`: expected an integer from 0 to 255, got \"x\""
        ),
        r#"{"kind":"Round","id":300}"# => Err(
            "`it.radius` is missing, expected an integer from 0 to 255; `it.id`: expected an integer from 0 to 255, got 300"
        ),
        r#"{"id":1}"# => Err("`it.kind` is missing, expected one of \"Round\", \"Flat\", \"Dot\""),
    }
    objects_without_tags_are_explained: Filter {
        r#"{"low":1}"# => Err("`it.high` is missing, expected an integer from -2147483648 to 2147483647"),
        r#"{"hi":1}"# => Err("`it`: expected an object with \"low\" and \"high\" or an object with \"name\", got an object"),
        "5" => Err("`it`: expected an object, got 5"),
    }
    names_of_variants_are_explained: Result<u8, String> {
        r#"{"ok":1}"# => Err("`it`: expected an object with \"Ok\" or an object with \"Err\", got an object"),
    }
    errors_of_conversions_have_paths: (Even, BTreeMap<String, Even>) {
        r#"["2",{"a":"4"}]"# => Ok("(Even(2), {\"a\": Even(4)})"),
        r#"["3",{"a":"4"}]"# => Err("`it[0]`: must be an even number"),
        r#"["2",{"a":"4","b":"3" }]"# => Err("`it[1].b`: must be an even number"),
        r#"["2",{"a":"3","b":"4"}]"# => Err("`it[1].a`: must be an even number"),
        r#"["2",{"a":{}}]"# => Err("`it[1].a`: expected a string, got an object"),
    }
    numbers_that_are_too_large: (f64, f32, i128, Value) {
        "[1e400,1,1,1]" => Err("`it[0]`: expected a number from -1.7976931348623157e308 to 1.7976931348623157e308, got 1e400"),
        "[\"-1e400\",1e400,170141183460469231731687303715884105728,1e999]" => Err(
            "`it[0]`: expected a number from -1.7976931348623157e308 to 1.7976931348623157e308, got -1e400; \
             `it[1]`: expected a number from -3.4028235e38 to 3.4028235e38, got 1e400; \
             `it[2]`: expected an integer from -170141183460469231731687303715884105728 to \
             170141183460469231731687303715884105727, got 170141183460469231731687303715884105728; \
             `it[3]`: expected a number from -1.7976931348623157e308 to 1.7976931348623157e308, got 1e999"
        ),
    }
    single_values_are_no_lists_of_several: [u8; 2] {
        "\"[1, 2.0]\"" => Ok("[1, 2]"),
        "3" => Err("`it`: expected a list of 2 items, got 3"),
        r#"{"0":1}"# => Err("`it`: expected a list of 2 items, got an object"),
    }
    duplicates_in_maps_with_numbers_as_keys: BTreeMap<u32, u8> {
        r#"{"1":1,"1":2}"# => Err("`it.1` is given twice"),
    }
    duplicates_in_maps_with_variants_as_keys: Option<BTreeMap<Key, u8>> {
        r#"{"A":1,"B":2}"# => Ok("Some({A: 1, B: 2})"),
        r#"{"A":1,"A":2}"# => Err("`it.A` is given twice"),
    }
    unknown_members_that_a_type_refuses_itself: std::time::Duration {
        r#"{"secs":"1","nanos":0}"# => Ok("1s"),
        // In any mode, even if unknown members are otherwise ignored.
        r#"{"secs":1,"nanos":0,"x":1}"# => Err("`it`: unknown field `x`, expected `secs` or `nanos`"),
    }
}

/// A dynamic tool reads a map with names of one pattern as a type does.
#[test]
fn maps_with_names_of_one_pattern() {
    let of = |value: Value, is_open: bool| {
        let map = json!({ "type": "object", "patternProperties": { "^[0-9]+$": value }, "additionalProperties": is_open });
        let schema = json!({ "type": "object", "properties": { "it": map, "open": {} } });
        let tool = DynamicTool::new("dynamic", schema, |arguments: Value| arguments.to_string()).unwrap();
        ToolSet::new([Arc::new(tool) as Arc<dyn Tool>]).unwrap()
    };
    let byte = json!({ "type": "integer", "minimum": 0, "maximum": 255 });
    let unexplained = "expected what `patternProperties` of the schema allows";
    let table = [
        (r#"{"it":{"1":"2"}}"#, false, Ok(r#"{"it":{"1":2}}"#.to_owned())),
        (r#"{"it":{"1":300}}"#, false, Err("`it.1`: expected an integer from 0 to 255, got 300".to_owned())),
        (
            r#"{"it":{"a":1}}"#,
            false,
            Err("`it` has no member `a`, the names of its members match `^[0-9]+$`".to_owned()),
        ),
        // Other names may have any value, so nothing is repaired.
        (r#"{"it":{"a":"1"}}"#, true, Ok(r#"{"it":{"a":"1"}}"#.to_owned())),
        (r#"{"it":{"1":"2"}}"#, true, Err(format!("`it.1`: {unexplained}, got \"2\""))),
        // No number of JSON is larger, wherever it is.
        (r#"{"it":{},"open":[{"z":1e400}]}"#, false, Err("`open[0].z`: number out of range".to_owned())),
    ];
    for (text, is_open, expected) in table {
        assert_eq!(call(&of(byte.clone(), is_open), text), expected, "{text}");
    }
}

/// A value with several alternatives at each level.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
enum Branch {
    Leaf {
        #[schemars(range(max = 9))]
        n: u8,
    },
    Pair {
        left: Box<Branch>,
        right: Option<Box<Branch>>,
    },
    Named {
        left: Box<Branch>,
        name: Option<String>,
    },
}

/// Each part is compared once with each schema, although each level has alternatives.
#[test]
fn nested_alternatives_take_bounded_work() {
    #[tool]
    fn declared(it: Branch) -> String {
        let _ = it;
        "read".into()
    }
    let deep = format!("`it{}.n`: expected an integer from 0 to 9, got 10", ".left".repeat(40));
    let table = [
        (5, 9, Ok("read")),
        (5, 10, Err("`it.left.left.left.left.left.n`: expected an integer from 0 to 9, got 10")),
        (40, 9, Ok("read")),
        (40, 10, Err(&*deep)),
    ];
    for (levels, last, expected) in table {
        let it = format!(r#"{}{{"n":{last}}}{}"#, r#"{"left":"#.repeat(levels), "}".repeat(levels));
        let actual = call(&tools![declared], &format!(r#"{{"it":{it}}}"#));
        assert_eq!(actual.as_deref().map_err(|error| &**error), expected, "{levels} {last}");
    }
}

/// A limit holds at any depth that is read, however long the text is.
#[test]
fn limits_hold_in_deep_values() {
    #[tool]
    fn declared(it: Chain) -> String {
        let _ = it;
        "read".into()
    }
    let long = "a".repeat(20_000);
    // Of a value that is too deep to check its limits, none is accepted.
    for (length, note, is_readable) in [(10, "", true), (60, "", true), (40, &*long, true), (115, "", false)]
    {
        for (last, is_valid) in [(9, is_readable), (10, false)] {
            let it = chain(length, last, note);
            for (kind, verdict) in verdicts::<Chain>(&tools![declared], &it) {
                assert_eq!(verdict.is_ok(), is_valid, "{kind} {length} {}: {:?}", note.len(), verdict.err());
            }
        }
    }
}

/// A dynamic tool passes on an integer as an integer, although a string would be allowed too.
#[test]
fn dynamic_tools_keep_the_kind_of_a_value() {
    let schema = json!({
        "type": "object",
        "properties": { "it": { "anyOf": [{ "type": "string" }, { "type": "integer" }] } },
    });
    let tool = DynamicTool::new("dynamic", schema, |arguments: Value| arguments.to_string()).unwrap();
    let set = ToolSet::new([Arc::new(tool) as Arc<dyn Tool>]).unwrap();
    for (text, expected) in [(r#"{"it":2}"#, r#"{"it":2}"#), (r#"{"it":2.0}"#, r#"{"it":2}"#)] {
        assert_eq!(call(&set, text).as_deref(), Ok(expected), "{text}");
    }
}

/// A name can look like a path.
#[test]
fn names_that_begin_with_dots() {
    let closed = json!({ "properties": { "a": { "type": "integer" } }, "additionalProperties": false });
    let schema = json!({ "type": "object", "allOf": [closed] });
    let tool = DynamicTool::new("dynamic", schema, |arguments: Value| arguments.to_string()).unwrap();
    let set = ToolSet::new([Arc::new(tool) as Arc<dyn Tool>]).unwrap();
    for (name, hint) in [(".a", ", did you mean `a`?"), ("..", ""), (".", "")] {
        let error = call(&set, &json!({ name: 1 }).to_string()).unwrap_err();
        assert_eq!(error, format!("there is no argument `{name}`, the arguments are `a`{hint}"));
    }
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct User {
    #[serde(alias = "nick")]
    name: String,
    #[serde(default)]
    friends: Vec<User>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
enum Contact {
    Mail { address: String },
    Other(User),
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Flattened {
    #[serde(flatten)]
    user: User,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "kind")]
enum Tagged {
    User(User),
}

const NO_DRY_RUN: &str = "has no member `dry_run`, its members are `name`, `nick`, `friends`";

/// `arguments_as` ignores them, at the top level too.
fn assert_refused<T>(declared: &ToolSet, it: &str, expected: &str)
where
    T: Debug + for<'de> Deserialize<'de> + JsonSchema + Send + 'static,
{
    for (kind, verdict) in verdicts::<T>(declared, it) {
        match kind {
            "arguments_as" => {}
            _ => assert_eq!(verdict.unwrap_err(), expected.replace('…', NO_DRY_RUN), "{kind} {it}"),
        }
    }
}

#[test]
fn unknown_members_are_refused() {
    #[tool]
    fn declared(it: User) -> String {
        format!("{it:?}")
    }
    let declared = tools![declared];
    for (it, expected) in [
        (r#"{"name": "Ada", "dry_run": true}"#, "`it` …"),
        (
            r#"{"friends": [{"name": "Bea"}, {"dry_run": 1, "nick": "Cy"}], "dry_run": 1, "name": ""}"#,
            "`it.friends[1]` …; `it` …",
        ),
        (
            r#"{"name": "Ada", "frends": []}"#,
            "`it` has no member `frends`, its members are `name`, `nick`, `friends`, did you mean `friends`?",
        ),
    ] {
        assert_refused::<User>(&declared, it, expected);
    }
    // With other mistakes, behind and before it.
    for (it, expected) in [
        (r#"{"name": {}, "dry_run": true}"#, "`it.name`: expected a string, got an object; `it` …"),
        (r#"{"dry_run": true, "name": {}}"#, "`it` …; `it.name`: expected a string, got an object"),
    ] {
        assert_refused::<User>(&declared, it, expected);
    }
    for (_, verdict) in verdicts::<User>(&declared, r#"{"nick": "Ada"}"#) {
        assert_eq!(verdict.as_deref(), Ok(r#"User { name: "Ada", friends: [] }"#));
    }
}

#[test]
fn unknown_members_are_refused_in_every_container() {
    type Contacts = (u8, Option<BTreeMap<String, Contact>>);
    #[tool]
    fn declared(it: Contacts) -> String {
        format!("{it:?}")
    }
    for (it, expected) in [
        (
            r#"{"Mail": {"address": "a", "at": 1}}"#,
            "`it[1].x.Mail` has no member `at`, its members are `address`",
        ),
        (r#"{"Other": {"name": "Ada", "dry_run": true}}"#, "`it[1].x.Other` …"),
        (r#"{"Other": ["Ada", [{"name": "Bea", "dry_run": true}]]}"#, "`it[1].x.Other[1][0]` …"),
    ] {
        assert_refused::<Contacts>(&tools![declared], &format!(r#"[1, {{"x": {it}}}]"#), expected);
    }
}

readings! {
    // serde reads these into a buffer first, so their types do not ignore anything.
    unknown_members_of_buffered_structs: Flattened {
        r#"{"name": "Ada", "dry_run": true}"# => Ok("Flattened { user: User { name: \"Ada\", friends: [] } }"),
    }
    unknown_members_of_tagged_enums: Tagged {
        r#"{"kind": "User", "name": "Ada", "dry_run": true}"# => Ok("User(User { name: \"Ada\", friends: [] })"),
    }
}

/// They are recorded, with their paths.
#[test]
fn unknown_members_are_ignored_if_the_set_says_so() {
    #[tool]
    fn declared(it: User) -> String {
        format!("{it:?}")
    }
    let closure = FunctionTool::new("closure", |Arguments { it }: Arguments<User>| format!("{it:?}"));
    for set in [tools![declared], ToolSet::new([Arc::new(closure) as Arc<dyn Tool>]).unwrap()] {
        let set = set.ignore_unknown_arguments();
        let text = r#"{"it":{"name":"Ada","dry_run":true,"friends":[{"name":"Bea","x":{"y":1}}]}}"#;
        let correct = ToolCall::new("1", set.definitions()[0].name(), text);
        let execution = set.execute(correct, &ToolContext::new()).now_or_never().unwrap();
        assert!(execution.output().is_some(), "{execution:?}");
        let ignored: Vec<_> = execution
            .repairs()
            .iter()
            .map(|repair| (repair.argument().unwrap(), repair.original()))
            .collect();
        assert_eq!(ignored, [("it.dry_run", "true"), ("it.friends[0].x", r#"{"y":1}"#)]);
        let wrong = ToolCall::new("1", set.definitions()[0].name(), r#"{"it":{"name":{},"dry_run":true}}"#);
        let error =
            set.call(&wrong, &ToolContext::new()).now_or_never().unwrap().map_err(mistakes).unwrap_err();
        assert_eq!(error, "`it.name`: expected a string, got an object");
    }
}

/// The value that the type refused is repaired first, and then all that its schema describes differently.
#[test]
fn accepted_items_of_a_list_are_repaired_only_with_several_refused_ones() {
    for (wrong, id) in [(vec![29], "number 7"), (vec![3, 29], "7")] {
        let age = |index| if wrong.contains(&index) { json!("3") } else { json!(3) };
        let children: Vec<_> = (0..30).map(|index| json!({ "id": 7, "age": age(index) })).collect();
        let text = json!({ "id": 7, "age": 3, "children": children }).to_string();
        let read = ToolCall::new("1", "answer", text).arguments_as::<Numbered>().unwrap();
        let ids: Vec<_> = read.children.iter().map(|child| &*child.id).collect();
        assert_eq!(ids, [id; 30], "{wrong:?}");
    }
}

#[test]
fn alternatives_of_all_arguments_are_repaired() {
    let of_kind = |kind: &str, name: &str| {
        let properties = json!({ "kind": { "const": kind }, name: { "type": "integer" } });
        json!({ "properties": properties, "required": ["kind", name] })
    };
    let schema = json!({ "type": "object", "oneOf": [of_kind("Round", "radius"), of_kind("Flat", "width")] });
    let number = json!({ "type": "integer" });
    let all = json!({ "type": "object", "allOf": [{ "properties": { "n": number } }] });
    let note = |n: &str| json!({ "properties": { "n": { "type": n }, "note": { "type": "string" } }, "required": ["n"] });
    let noted = json!({ "type": "object", "oneOf": [note("integer"), note("boolean")] });
    let echo = |name: &str, schema| -> Arc<dyn Tool> {
        Arc::new(DynamicTool::new(name, schema, |it: Value| it.to_string()).unwrap())
    };
    let tools: [Arc<dyn Tool>; 5] = [
        Arc::new(FunctionTool::new("closure", |it: Drawn| format!("{it:?}"))),
        Arc::new(FunctionTool::new("two_enums", |it: TwoEnums| format!("{it:?}"))),
        echo("dynamic", schema),
        echo("all", all),
        echo("noted", noted),
    ];
    let set = ToolSet::new(tools).unwrap();
    for (name, text, expected, expected_repairs) in [
        (
            "closure",
            r#"{"id":"2","kind":"Round","radius":"1"}"#,
            "Drawn { figure: Round { radius: 1 }, id: 2 }",
            &["id", "radius"][..],
        ),
        (
            "two_enums",
            r#"{"kind":"Round","radius":"1","by":"Air","height":"2"}"#,
            "TwoEnums { figure: Round { radius: 1 }, way: Air { height: 2 } }",
            &["radius", "height"],
        ),
        ("dynamic", r#"{"kind":"Round","radius":"1"}"#, r#"{"kind":"Round","radius":1}"#, &["radius"]),
        ("all", r#"{"n":"1"}"#, r#"{"n":1}"#, &["n"]),
        ("noted", r#"{"note":null,"n":"1"}"#, r#"{"n":1}"#, &["n"]),
        (
            "dynamic",
            r#"{"kind":"Flat","width":"x"}"#,
            "invalid arguments: `width`: expected an integer, got \"x\"",
            &[],
        ),
    ] {
        let (call, context) = (ToolCall::new("1", name, text), ToolContext::new());
        let execution = set.execute(call, &context).now_or_never().unwrap();
        let outcome = match execution.outcome() {
            Ok(output) => output.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(outcome, expected);
        let repaired: Vec<_> = execution.repairs().iter().map(|one| one.argument().unwrap()).collect();
        assert_eq!(repaired, expected_repairs);
    }
}

#[test]
fn accepted_arguments_are_not_repaired() {
    let closure = FunctionTool::new("closure", |person: Numbered| format!("{person:?}"));
    let set = ToolSet::new([Arc::new(closure) as Arc<dyn Tool>]).unwrap();
    let call = ToolCall::new("1", "closure", r#"{"id":7,"age":"3"}"#);
    assert_eq!(call.arguments_as::<Numbered>().unwrap().id, "number 7");
    let execution = set.execute(call, &ToolContext::new()).now_or_never().unwrap();
    assert!(execution.output().unwrap().to_string().contains("number 7"), "{execution:?}");
    let repaired: Vec<_> =
        execution.repairs().iter().map(|repair| (repair.original(), repair.repaired())).collect();
    assert_eq!(repaired, [("\"3\"", "3")]);
}

#[test]
fn ignored_members_have_no_limits() {
    #[tool]
    fn declared(it: Aliased) -> String {
        format!("{it:?}")
    }
    let text = r#"{"it":{"number":1,"x":"abcd"}}"#;
    let call = ToolCall::new("1", "declared", text);
    let set = tools![declared].ignore_unknown_arguments();
    let execution = set.execute(call, &ToolContext::new()).now_or_never().unwrap();
    assert!(execution.output().is_some(), "{execution:?}");
}

/// A type stops at its first error. All other mistakes are found by the schema.
#[test]
fn the_first_error_of_a_type_is_reported_with_all_mistakes_that_the_schema_explains() {
    #[tool]
    fn declared(it: Vec<Arguments>) {
        let _ = it;
    }

    #[derive(Debug, Deserialize, Serialize, JsonSchema)]
    struct Arguments {
        first: Even,
        second: BTreeMap<String, Even>,
        #[serde(alias = "other")]
        third: u8,
        fourth: Option<Stop>,
        #[serde(flatten)]
        fifth: Option<Figure>,
        sixth: u8,
    }

    #[derive(Debug, Deserialize, Serialize, JsonSchema)]
    struct Stop {
        #[serde(alias = "town")]
        city: String,
        nights: u8,
    }

    let closure = FunctionTool::new("closure", |it: Arguments| format!("{it:?}"));
    let set = ToolSet::new([Arc::new(closure) as Arc<dyn Tool>]).unwrap();
    let table: [(&str, &[&str]); 4] = [
        (
            r#"{"first":"3","second":{"a":"2","b":"5"},"third":[],"fourth":{"town":5,"nights":300},"sixth":"x"}"#,
            &[
                "`first`: must be an even number",
                "`third`: expected an integer from 0 to 255, got a list",
                "`fourth.nights`: expected an integer from 0 to 255, got 300",
                "`sixth`: expected an integer from 0 to 255, got \"x\"",
            ],
        ),
        // The schema does not know that the type also accepts a list.
        (
            r#"{"sixth":-1,"other":1,"first":"2","fourth":["Rome",2],"second":{},"kind":"Round","radius":1}"#,
            &[
                "`sixth`: expected an integer from 0 to 255, got -1",
                "`fourth`: expected an object or null, got a list",
            ],
        ),
        (
            r#"{"third":1,"first":"2","fourth":{"town":"Rome","nights":2,"days":3},"second":{},"sixth":-1}"#,
            &[
                "`fourth` has no member `days`, its members are `city`, `town`, `nights`",
                "`sixth`: expected an integer from 0 to 255, got -1",
            ],
        ),
        (
            r#"{"sixth":1,"first":"1","fourth":null}"#,
            &[
                "`second` is missing, expected an object",
                "`third` is missing, expected an integer from 0 to 255",
                "`first`: must be an even number",
            ],
        ),
    ];
    for (text, expected) in table {
        assert_eq!(call(&set, text), Err(expected.join("; ")), "{text}");
        // At any depth, and for several values at once.
        let nested = call(&tools![declared], &format!(r#"{{"it":[{text},{text}]}}"#)).unwrap_err();
        let is_of_type = |mistake: &str| mistake.contains("even number") || mistake.contains("has no member");
        let of_types = expected.iter().filter(|mistake| is_of_type(mistake)).count();
        for (item, mistake) in [0, 1].into_iter().flat_map(|item| expected.iter().map(move |one| (item, one)))
        {
            let path = mistake.replacen('`', &format!("`it[{item}]."), 1);
            // The type has not read the second value.
            let is_known = item == 0 || !is_of_type(mistake);
            assert_eq!(nested.contains(&path), is_known, "{path}: {nested}");
        }
        assert_eq!(nested.matches("; ").count() + 1, 2 * expected.len() - of_types, "{nested}");
    }
}
