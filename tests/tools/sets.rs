//! Sets of tools: selecting, renaming and merging, and the properties of a tool that these operations retain.

use std::panic::Location;
use std::sync::Arc;

use tool_core::engine::Injection;
use tool_core::model::{ToolDefinition, ToolPolicy};
use tool_core::tool::{ToolErrorKind, ToolFuture};
use tool_core::toolset::{ToolSetError, ToolSetErrorKind};
use tool_core::{Tool, ToolCall, ToolContext, ToolOutput, ToolSet, tool, tools};

/// Sums two numbers.
#[tool]
fn sum(a: i64, b: i64) -> i64 {
    a + b
}

#[tool("Deletes a file")]
async fn delete_file(path: String) -> String {
    path
}

#[tool("Reads a file")]
fn read_file(path: String) -> String {
    path
}

/// A hand-written tool that returns a value from its context.
struct HandWritten {
    definition: ToolDefinition,
    declared_at: &'static Location<'static>,
}

struct UserId(u32);

impl HandWritten {
    #[track_caller]
    fn new(name: &str) -> Self {
        let mut policy = ToolPolicy::default();
        policy.needs_approval = true;
        let definition = ToolDefinition::new(name).with_description("Says who calls").with_policy(policy);
        Self { definition, declared_at: Location::caller() }
    }
}

impl Tool for HandWritten {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        let user = context.get().map_or(0, |UserId(user)| *user);
        let call = context.call().map_or("", |call| &call.name);
        ToolFuture::ready(Ok(ToolOutput::text(format!("{call} {user} {arguments}"))))
    }

    fn injections(&self) -> Option<&[Injection]> {
        Some(&const { [Injection::new::<UserId>()] })
    }

    fn declared_at(&self) -> Option<&'static Location<'static>> {
        Some(self.declared_at)
    }
}

fn names(tools: &ToolSet) -> Vec<&str> {
    tools.definitions().iter().map(ToolDefinition::name).collect()
}

async fn call(tools: &ToolSet, name: &str, arguments: &str) -> String {
    let call = ToolCall::new("1", name, arguments);
    match tools.call(&call, &ToolContext::new().with(UserId(7))).await {
        Ok(output) => output.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

fn files() -> ToolSet {
    tools![sum, delete_file, read_file]
}

#[tokio::test]
async fn selection_retains_order_and_finds_tools() {
    let chosen = [
        (files().filter(|tool| tool.name() != "delete_file"), ["sum", "read_file"]),
        (files().filter(|tool| tool.parameters()["properties"].get("path").is_none()), ["sum", ""]),
        (files().without(["delete_file"]).unwrap(), ["sum", "read_file"]),
        (files().without(["read_file", "delete_file", "read_file"]).unwrap(), ["sum", ""]),
        (files().only(["read_file", "sum", "sum"]).unwrap(), ["sum", "read_file"]),
        (files().only(["sum"]).unwrap(), ["sum", ""]),
    ];
    for (tools, expected) in &chosen {
        let expected = &expected[..tools.len()];
        assert_eq!(names(tools), expected);
        assert!(tools.get("delete_file").is_none());
        assert_eq!(call(tools, "sum", r#"{"a":1,"b":2}"#).await, "3");
        assert!(
            call(tools, "delete_file", r#"{"path":"x"}"#).await.starts_with("error: there is no tool"),
            "{tools:?}"
        );
        for name in expected {
            assert_eq!(tools.get(name).unwrap().definition().name(), *name);
        }
    }
    let all = files();
    assert_eq!((all.filter(|_| false).len(), all.filter(|_| true).len(), all.len()), (0, 3, 3));
    assert_eq!(names(&files().only([]).unwrap()), [""; 0]);
    assert_eq!(files().without([]).unwrap().len(), 3);
}

#[test]
fn refuses_misspelt_names() {
    let nearest = "there is no tool `delete_flie` in the set; did you mean `delete_file`?";
    let errors = [
        files().without(["read_file", "delete_flie"]),
        files().only(["read_file", "delete_flie"]),
        files().rename("delete_flie", "remove"),
    ];
    for error in errors {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ToolSetErrorKind::UnknownTool);
        assert_eq!(error.to_string(), nearest);
    }
    let error = files().without(["launch"]).unwrap_err();
    assert_eq!(error.to_string(), "there is no tool `launch` in the set");
}

#[tokio::test]
async fn a_renamed_tool_differs_only_in_its_name() {
    let by_hand = tools![sum].with(HandWritten::new("who")).unwrap();
    for (tools, name) in [
        (by_hand.clone().rename("who", "caller"), "caller"),
        (by_hand.clone().prefix("my_"), "my_who"),
        (by_hand.clone().prefix("b-").and_then(|tools| tools.rename("b-who", "c")), "c"),
    ] {
        let tools = tools.unwrap();
        assert_eq!(call(&tools, name, r#"{"x" : 1}"#).await, format!("{name} 7 {{\"x\" : 1}}"));
        assert!(call(&tools, "who", "{}").await.starts_with("error: there is no tool `who`"));
        let (old, new) = (by_hand.get("who").unwrap(), tools.get(name).unwrap());
        assert_eq!(new.definition(), &old.definition().clone().with_name(name));
        assert!(new.definition().policy().needs_approval);
        assert_eq!(new.declared_at(), old.declared_at());
        assert_eq!(new.injections().unwrap().len(), 1);
        assert_eq!(tools.definitions()[1].name(), name);
    }
    let renamed = files().rename("delete_file", "remove").unwrap();
    assert_eq!(names(&renamed), ["sum", "remove", "read_file"]);
    assert_eq!(call(&renamed, "remove", r#"{"path":"x"}"#).await, "x");
    assert_eq!(names(&files().rename("sum", "sum").unwrap()), names(&files()));
}

#[tokio::test]
async fn reports_repairs_of_a_renamed_tool() {
    let tools = tools![sum].prefix("my_").unwrap();
    let execution =
        tools.execute(ToolCall::new("1", "my_sum", r#"{"a":"1","b":2}"#), &ToolContext::new()).await;
    assert_eq!(execution.output().unwrap().to_string(), "3");
    assert_eq!(execution.repairs()[0].argument(), Some("a"));
}

#[test]
fn refuses_duplicate_names_everywhere() {
    let line = line!() + 1;
    let other = HandWritten::new("sum");
    let place = format!("one at tests/tools/sets.rs:{line}; rename");
    let errors: [(&str, Result<ToolSet, ToolSetError>); 3] = [
        ("with", tools![sum].with(other)),
        ("rename", files().rename("delete_file", "sum")),
        ("union", files().prefix("a").unwrap().rename("asum", "sum").unwrap().union(tools![sum])),
    ];
    for (what, error) in errors {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ToolSetErrorKind::DuplicateTool, "{what}");
        assert!(
            error.to_string().starts_with("two tools are named `sum`: one at tests/tools/sets.rs:"),
            "{error}"
        );
        assert_eq!(error.to_string().contains(&place), what == "with", "{error}");
    }
}

#[test]
fn refuses_names_that_providers_refuse() {
    let long = "a".repeat(65);
    let table = [
        ("", "\"\""),
        (&*long, &*format!("\"{long}\", which is too long")),
        ("two words", "\"two words\""),
        ("naïve", "\"naïve\""),
        ("a.b", "\"a.b\""),
        ("a\nb", "\"a\\nb\""),
    ];
    for (name, shown) in table {
        let errors = [
            ToolSet::new([Arc::new(HandWritten::new(name)) as Arc<dyn Tool>]),
            ToolSet::default().with(HandWritten::new(name)),
            tools![sum].rename("sum", name),
        ];
        for error in errors {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ToolSetErrorKind::InvalidName, "{name}");
            let text = error.to_string();
            assert!(
                text.starts_with("a tool at tests/tools/sets.rs:")
                    && text.contains(&format!(" is named {shown}; a name is 1 to 64 letters")),
                "{error}"
            );
        }
    }
    for name in ["a", "A-b_9", &long[1..]] {
        assert!(tools![sum].rename("sum", name).is_ok(), "{name}");
    }
    assert_eq!(tools![sum].prefix(&long[..62]).unwrap_err().kind(), ToolSetErrorKind::InvalidName);
    assert_eq!(tools![sum].prefix(&long[..61]).unwrap().len(), 1);
    assert_eq!(tools![sum].prefix("github ").unwrap_err().kind(), ToolSetErrorKind::InvalidName);
}

/// Returns `true` if `"1"` for a number is refused and not repaired.
async fn is_strict(tools: &ToolSet, name: &str) -> bool {
    call(tools, name, r#"{"a":"1","b":2}"#).await.starts_with("error: invalid arguments")
}

#[tokio::test]
async fn sets_derived_from_a_strict_set_are_strict() {
    let strict = || files().no_repair();
    let table = [
        ("filter", strict().filter(|tool| tool.name() == "sum"), "sum"),
        ("without", strict().without(["read_file"]).unwrap(), "sum"),
        ("only", strict().only(["sum"]).unwrap(), "sum"),
        ("rename", strict().rename("sum", "add").unwrap(), "add"),
        ("prefix", strict().prefix("a_").unwrap(), "a_sum"),
        ("with", strict().with(HandWritten::new("who")).unwrap(), "sum"),
        ("left", strict().union(tools![sum].prefix("a_").unwrap()).unwrap(), "a_sum"),
        ("right", tools![sum].prefix("a_").unwrap().union(strict()).unwrap(), "a_sum"),
        ("nothing", ToolSet::default().union(strict()).unwrap(), "sum"),
        ("strict nothing", ToolSet::default().no_repair().union(files()).unwrap(), "sum"),
        ("with a switch", strict().ignore_unknown_arguments(), "sum"),
    ];
    for (what, tools, name) in &table {
        assert!(is_strict(tools, name).await, "{what}");
    }
    for tools in
        [files(), files().without(["read_file"]).unwrap(), files().union(ToolSet::default()).unwrap()]
    {
        assert!(!is_strict(&tools, "sum").await);
    }
}

/// A tool that calls a set of its own.
struct Nested {
    definition: ToolDefinition,
    tools: ToolSet,
}

impl Tool for Nested {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::boxed(
            async move { self.tools.call(&ToolCall::new("inner", "sum", arguments), context).await },
        )
    }
}

#[tokio::test]
async fn a_set_in_a_tool_of_a_set_reads_in_its_own_way() {
    let nested =
        |tools| Nested { definition: ToolDefinition::new("nested").with_description("Calls a tool"), tools };
    let lenient = ToolSet::default().with(nested(files())).unwrap().no_repair();
    assert!(!is_strict(&lenient, "nested").await);
    let strict = ToolSet::default().with(nested(files().no_repair())).unwrap();
    assert!(is_strict(&strict, "nested").await);
}

#[test]
fn unchanged_definitions_retain_their_encoding() {
    struct Encoded;
    let tools = files();
    tools.definitions().encoded(|_| Encoded);
    let again = [
        tools.clone().union(ToolSet::default()).unwrap(),
        ToolSet::default().union(tools.clone()).unwrap(),
        tools.clone().filter(|_| true),
        ToolSet::from(&tools),
    ];
    for tools in again {
        tools.definitions().encoded::<Encoded>(|_| panic!("it was encoded before"));
    }
}

#[test]
fn a_wrapping_tool_has_what_it_does_not_define_from_the_wrapped_one() {
    struct Wrapping(ToolDefinition);

    impl Tool for Wrapping {
        fn definition(&self) -> &ToolDefinition {
            &self.0
        }

        fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
            Tool::call(&sum {}, arguments, context)
        }

        fn wrapped(&self) -> Option<&dyn Tool> {
            Some(&sum {})
        }
    }

    let wrapping = Wrapping(ToolDefinition::new("add"));
    assert_eq!(wrapping.declared_at(), sum {}.declared_at());
    assert!(wrapping.declared_at().is_some() && wrapping.injections().is_some_and(<[_]>::is_empty));
    let check = |arguments| wrapping.check_arguments(arguments, &ToolContext::new());
    assert_eq!(check(r#"{"a": 1, "b": "x"}"#).unwrap_err().kind(), ToolErrorKind::InvalidArguments);
    check(r#"{"a": 1, "b": 2}"#).unwrap();
}
