//! Limits in the schemas of types: each kind of limit, in each position of a value, under each name, for each kind of tool.

#![expect(dead_code, reason = "the values are only read")]

use std::collections::BTreeMap;

use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tests::support::sampling::size;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, FunctionTool, ToolCall, ToolSet, tool, toolbox, tools};

use super::engine::{call, verdicts};

/// Each member has a limit, and another name, which the schema does not list. The last ones have no limit and are of the same kinds.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Limited {
    #[serde(alias = "cents")]
    #[schemars(range(min = 3, max = 9))]
    number: Option<u32>,
    #[serde(alias = "title")]
    #[schemars(length(max = 3))]
    text: Option<String>,
    #[serde(alias = "code")]
    #[schemars(regex(pattern = "^a+$"))]
    pattern: Option<String>,
    #[serde(alias = "rows")]
    #[schemars(length(max = 2))]
    items: Option<Vec<u8>>,
    #[serde(alias = "columns")]
    #[schemars(extend("maxProperties" = 2))]
    entries: Option<BTreeMap<String, u8>>,
    #[serde(alias = "inside")]
    nested: Option<Box<Limited>>,
    #[serde(alias = "b")]
    flag: Option<bool>,
    spare_number: Option<u32>,
    spare_text: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind")]
enum Internal {
    #[serde(alias = "first")]
    One(Limited),
    Two {
        #[serde(alias = "cents")]
        #[schemars(range(min = 3, max = 9))]
        number: Option<u32>,
        spare_number: Option<u32>,
    },
    None,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "of")]
enum Adjacent {
    #[serde(alias = "first")]
    One(Limited),
    Two(u8, Limited),
    None,
}

#[derive(Debug, Deserialize, JsonSchema)]
enum External {
    #[serde(alias = "first")]
    One(Limited),
    Two(u8, Limited),
    #[serde(alias = "nothing")]
    None,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Untagged {
    Named {
        name: String,
        #[serde(alias = "cents")]
        #[schemars(range(min = 3, max = 9))]
        number: u32,
    },
    Free {
        name: String,
        amount: u32,
    },
    One(Limited),
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Flat<T> {
    #[serde(alias = "no")]
    id: Option<u8>,
    #[serde(flatten)]
    inner: T,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Two<T, U> {
    #[serde(flatten)]
    first: T,
    #[serde(flatten)]
    second: U,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Aliased {
    #[serde(alias = "at")]
    inner: Option<Limited>,
    another: Option<Limited>,
}

type Open<T> = Two<T, BTreeMap<String, Value>>;

/// The members: listed names and other names, with values within the limit and beyond it.
const MEMBERS: [([&str; 2], &[&str], &[&str]); 5] = [
    (["number", "cents"], &["3", "9"], &["2", "10"]),
    (["text", "title"], &["\"aaa\""], &["\"aa\\u0061a\""]),
    (["pattern", "code"], &["\"a\""], &["\"b\""]),
    (["items", "rows"], &["[1,2]"], &["[1,2,3]"]),
    (["entries", "columns"], &[r#"{"a":3,"b":4}"#], &[r#"{"a":3,"b":4,"c":5}"#]),
];

/// Members of an object.
struct TestMembers {
    text: String,
    is_within: bool,
    /// The schema lists all names.
    is_listed: bool,
}

fn members() -> Vec<TestMembers> {
    let spare = r#","spare_number":1000,"spare_text":"a long text""#;
    let mut members = vec![TestMembers { text: r#""b":true"#.into(), is_within: true, is_listed: false }];
    for ([name, other_name], within, beyond) in MEMBERS {
        let values =
            within.iter().map(|value| (value, true)).chain(beyond.iter().map(|value| (value, false)));
        for (value, is_within) in values {
            for (text, is_listed) in [
                (format!(r#""{name}":{value}"#), true),
                (format!(r#""{other_name}":{value}"#), false),
                (format!(r#""{other_name}":{value}{spare}"#), false),
                (format!(r#""nested":{{"{name}":{value}}}"#), true),
                (format!(r#""inside":{{"{name}":{value}}}{spare}"#), false),
            ] {
                members.push(TestMembers { text, is_within, is_listed });
            }
        }
    }
    // Five forms of each value: every third has all of them.
    members.into_iter().step_by(size(3, 1)).collect()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments<T> {
    it: T,
}

/// Reads a typed answer.
fn answer<T>(text: &str) -> Result<(), String>
where
    T: for<'de> Deserialize<'de> + JsonSchema + Send + 'static,
{
    let model = ScriptedModel::new().calls("final_answer", text);
    let agent = Agent::builder(model).limits(|l| l.max_wrong_answers(0)).build().unwrap();
    let answer = agent.ask("?").answer_as::<Arguments<T>>().into_future().now_or_never().unwrap();
    answer.map(drop).map_err(|error| error.to_string())
}

/// Declares a test of a type: the texts of its values, in which `…` stands for members. Members are always refused in those
/// that contain another name, and those beside a map can have other names.
macro_rules! positions {
    ($($name:ident: $type:ty
        { $($text:literal)* } $(, beside_map { $($beside:literal)* })? $(, refused { $($refused:literal)* })?
    )*) => {$(
        #[test]
        fn $name() {
            #[tool]
            fn declared(it: $type) {
                let _ = it;
            }
            struct Methods;
            #[toolbox]
            impl Methods {
                #[tool]
                fn method(&self, it: $type) {
                    let _ = (self, it);
                }
            }
            let closure = FunctionTool::new("closure", |Arguments { it }: Arguments<$type>| drop(it));
            let sets = [tools![declared], ToolSet::from(Methods), ToolSet::default().with(closure).unwrap()];
            let beside_map = &[$($($beside),*)?][..];
            check::<$type>(&sets, &[$($text),*], beside_map, &[$($($refused),*)?]);
        }
    )*};
}

fn check<T>(sets: &[ToolSet; 3], texts: &[&str], beside_map: &[&str], refused: &[&str])
where
    T: std::fmt::Debug + for<'de> Deserialize<'de> + JsonSchema + Send + 'static,
{
    let mut wrong = Vec::new();
    for TestMembers { text: members, is_within, is_listed } in members() {
        let closed = texts.iter().map(|text| (text, is_within && is_listed));
        let open = beside_map.iter().map(|text| (text, is_within));
        for (text, is_accepted) in closed.chain(open).chain(refused.iter().map(|text| (text, false))) {
            let it = text.replace('…', &members);
            assert!(serde_json::from_str::<T>(&it).is_ok(), "{it}");
            let text = format!(r#"{{"it":{it}}}"#);
            let mut verdicts: Vec<_> = sets.iter().map(|set| call(set, &text).map(drop)).collect();
            let read = ToolCall::new("1", "any", &*text).arguments_as::<Arguments<T>>();
            verdicts.push(read.map(drop).map_err(|error| error.to_string()));
            if matches!(&*members, r#""number":9"# | r#""number":10"# | r#""cents":9"#) {
                verdicts.push(answer::<T>(&text));
            }
            for (index, verdict) in verdicts.into_iter().enumerate() {
                if verdict.is_ok() != is_accepted {
                    wrong.push(format!("{index} {it}: {verdict:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

positions! {
    in_structs: Limited { "{…}" }
    in_options: Option<Limited> { "{…}" }
    in_lists: Vec<Limited> { "[{…}]" "[{},{…}]" }
    in_maps: BTreeMap<String, Limited> { r#"{"a":{…}}"# }
    in_maps_with_numbers_as_keys: BTreeMap<u32, Limited> { r#"{"7":{…}}"# }
    in_tuples: (u8, Limited) { "[1,{…}]" }
    under_aliases: Aliased { r#"{"inner":{…}}"# }, refused { r#"{"at":{…}}"# r#"{"at":{…},"another":{}}"# }
    in_flattened_structs: Flat<Limited> { "{…}" r#"{"id":1,…}"# }, refused { r#"{…,"no":3}"# }
    in_twice_flattened_structs: Flat<Flat<Limited>> { "{…}" }
    in_flattened_optional_structs: Flat<Option<Limited>> { r#"{"id":1,…}"# }
    beside_flattened_maps: Open<Limited> {}, beside_map { "{…}" r#"{"more":true,…}"# }
    in_internally_tagged_enums: Internal { r#"{"kind":"One",…}"# r#"{…,"kind":"One"}"# },
        refused { r#"{"kind":"first",…}"# }
    in_adjacently_tagged_enums: Adjacent {
        r#"{"kind":"One","of":{…}}"# r#"{"of":{…},"kind":"One"}"# r#"{"kind":"Two","of":[1,{…}]}"#
    }, refused { r#"{"kind":"first","of":{…}}"# r#"["first",{…}]"# }
    in_externally_tagged_enums: External { r#"{"One":{…}}"# r#"{"Two":[1,{…}]}"# },
        refused { r#"{"first":{…}}"# }
    in_untagged_enums: Untagged { "{…}" }
    in_optional_enums: Option<Internal> { r#"{"kind":"One",…}"# }, refused { r#"{"kind":"first",…}"# }
    in_flattened_internally_tagged_enums: Flat<Internal> { r#"{"kind":"One",…}"# r#"{"id":1,…,"kind":"One"}"# },
        refused { r#"{"kind":"first","id":1,…}"# }
    in_flattened_optional_enums: Flat<Option<Internal>> { r#"{"id":1,"kind":"One",…}"# },
        refused { r#"{"kind":"first","id":1,…}"# }
    in_flattened_adjacently_tagged_enums: Flat<Adjacent> { r#"{"kind":"One","of":{…}}"# },
        refused { r#"{"kind":"first","id":1,"of":{…}}"# r#"{"kind":"first","of":{…}}"# }
    in_flattened_externally_tagged_enums: Flat<External> { r#"{"One":{…}}"# r#"{"id":1,"Two":[1,{…}]}"# },
        refused { r#"{"first":{…},"id":1}"# r#"{"first":{…}}"# }
    in_flattened_untagged_enums: Flat<Untagged> { r#"{"id":1,…}"# }
    in_two_flattened_enums: Two<Internal, External> { r#"{"kind":"One","None":null,…}"# r#"{"kind":"None","One":{…}}"# },
        refused { r#"{"kind":"first","None":null,…}"# r#"{"kind":"None","first":{…}}"# }
    in_flattened_enums_beside_maps: Open<Internal> {}, beside_map { r#"{"kind":"One",…}"# },
        refused { r#"{"kind":"first",…}"# }
}

#[test]
fn in_the_arguments_themselves() {
    let closure = FunctionTool::new("closure", |_: Limited| ());
    let set = ToolSet::default().with(closure).unwrap();
    for TestMembers { text, is_within, is_listed } in members() {
        let text = format!("{{{text}}}");
        assert_eq!(call(&set, &text).is_ok(), is_within && is_listed, "{text}");
        let read = ToolCall::new("1", "any", &*text).arguments_as::<Limited>();
        assert_eq!(read.is_ok(), is_within && is_listed, "{text}");
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Amount {
    Approved {
        cents: u32,
        approved_by: String,
    },
    Small {
        #[serde(alias = "sum")]
        #[schemars(range(max = 100))]
        cents: u32,
    },
    Code {
        code: u32,
    },
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Numbers {
    #[serde(alias = "n")]
    wide: u32,
    #[serde(default)]
    narrow: u8,
    pair: Option<(u8, u8)>,
    #[serde(default, alias = "all")]
    list: Vec<u8>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct OneNumber {
    #[serde(deserialize_with = "anything", default, alias = "cents")]
    #[schemars(range(max = 9))]
    number: u32,
}

fn anything<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value.as_str().map_or(0, |text| text.parse().unwrap_or_default()))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Labelled {
    #[serde(default)]
    #[schemars(range(max = 9))]
    number: u32,
    #[serde(flatten)]
    labels: BTreeMap<String, String>,
}

/// Asserts the verdict of every kind of tool.
macro_rules! verdicts_of {
    ($($name:ident: $type:ty { $($it:literal => $expected:expr,)* })*) => {$(
        #[test]
        fn $name() {
            #[tool]
            fn declared(it: $type) {
                let _ = it;
            }
            $(for (kind, verdict) in verdicts::<$type>(&tools![declared], $it) {
                let expected: Result<(), &str> = $expected;
                assert_eq!(verdict.as_ref().map(drop).map_err(|error| &**error), expected, "{kind} {}", $it);
            })*
        }
    )*};
}

verdicts_of! {
    the_first_variant_that_fits_decides: Amount {
        r#"{"cents":500,"approved_by":"Ada"}"# => Ok(()),
        r#"{"cents":100}"# => Ok(()),
        r#"{"cents":101}"# => Err("`it.cents`: expected an integer from 0 to 100, got 101"),
        r#"{"sum":100}"# => Err(
            "`it`: expected an object with \"cents\" and \"approved_by\" or an object with \"cents\" or an object with \"code\", \
             got an object"
        ),
        r#"{"code":500}"# => Ok(()),
    }
    ranges_of_integer_types_and_lengths_of_tuples_are_no_limits: Numbers {
        r#"{"n":300}"# => Ok(()),
        r#"{"n":300,"all":[1,2,3]}"# => Ok(()),
    }
    members_that_the_schema_does_not_list_are_refused: OneNumber {
        r#"{"number":"10"}"# => Ok(()),
        r#"{"cents":"10"}"# => Err("`it` has no member `cents`, its members are `number`"),
    }
    other_kinds_of_values_in_flattened_maps_have_no_limits: Labelled {
        r#"{"color":"red"}"# => Ok(()),
        r#"{"number":9,"color":"10"}"# => Ok(()),
        r#"{"number":10}"# => Err("`it.number`: expected an integer from 0 to 9, got 10"),
    }
    members_of_a_map_are_only_other_names_of_what_they_fit: Open<Limited> {
        r#"{"more":{"a":1000}}"# => Ok(()),
        r#"{"more":{"number":10}}"# => Err("`it.more.number`: expected an integer from 3 to 9 or null, got 10"),
    }
    unlisted_variants_are_refused_with_the_listed_ones: External {
        r#""nothing""# => Ok(()),
        r#"{"nothing":null}"# => Err(
            "`it`: expected \"None\" or an object with \"One\" or an object with \"Two\", got an object"
        ),
        r#"{"first":{}}"# => Err(
            "`it`: expected \"None\" or an object with \"One\" or an object with \"Two\", got an object"
        ),
    }
    unlisted_tags_are_refused_with_the_listed_ones: Internal {
        r#"{"kind":"first"}"# => Err("`it.kind`: expected one of \"One\", \"Two\", \"None\", got \"first\""),
        r#"{"kind":"first","number":3}"# => Err("`it.kind`: expected one of \"One\", \"Two\", \"None\", got \"first\""),
    }
}
