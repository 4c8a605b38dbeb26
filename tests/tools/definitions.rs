//! The call options of a tool: they are part of its definition, and stay with it.

use serde::Deserialize;
use tool_core::agent::{BuildError, BuildErrorKind};
use tool_core::model::{ChatRequest, ReturnDirect, ToolDefinition, ToolPolicy};
use tool_core::schemars::JsonSchema;
use tool_core::testing::ScriptedModel;
use tool_core::toolset::ExtraParameters;
use tool_core::{Agent, FunctionTool, Tool, ToolCall, ToolSet, tool, toolbox, tools};

#[tool(return_direct, needs_approval, exclusive, at_most_once, undo = "nothing-said")]
fn everything() {}

#[tool(return_direct = "if_last", pure, attempts = 100)]
fn the_others() {}

#[tool(exclusive = true, needs_approval = false, return_direct = "if_all")]
fn written_out() {}

#[tool(return_direct = "always", attempts = 1, at_most_once)]
async fn always() {}

#[tool(return_direct = false, pure = false, needs_approval, undo = "written_out", attempts = 3)]
fn not_pure() {}

#[tool(name = "nothing-said")]
fn nothing_said() {}

/// Has a description and an undo tool only.
#[tool(undo = "nothing-said")]
fn only_undo() {}

struct Hotel;

#[toolbox]
impl Hotel {
    #[tool(return_direct = "if_last", attempts = 2, undo = "cancel_room")]
    fn book_room(&self) {}

    #[tool(return_direct = "always")]
    async fn cancel_room(&self) {}

    #[tool(pure)]
    fn price() {}

    #[tool]
    fn clean(&self) {}
}

struct Shelf<T>(T);

#[toolbox]
impl<T: Send + Sync + 'static> Shelf<T> {
    #[tool(undo = "drop_it", return_direct)]
    fn keep(&self) {}
}

/// Returns the default policy with these changes.
fn policy(change: impl FnOnce(&mut ToolPolicy)) -> ToolPolicy {
    let mut policy = ToolPolicy::default();
    change(&mut policy);
    policy
}

#[test]
fn options_are_in_the_definition() {
    let functions = tools![everything, the_others, written_out, always, not_pure, nothing_said, only_undo];
    let hotel = ToolSet::from(Hotel);
    let shelf = ToolSet::from(Shelf(1_u8));
    let all = functions.union(hotel).and_then(|set| set.union(shelf)).unwrap();
    let table = [
        (
            "everything",
            policy(|it| {
                it.return_direct = ReturnDirect::IfAll;
                it.needs_approval = true;
                it.exclusive = true;
                it.at_most_once = true;
            }),
            Some("nothing-said"),
        ),
        (
            "the_others",
            policy(|it| {
                it.return_direct = ReturnDirect::IfLast;
                it.pure = true;
                it.attempts = 100;
            }),
            None,
        ),
        (
            "written_out",
            policy(|it| {
                it.return_direct = ReturnDirect::IfAll;
                it.exclusive = true;
            }),
            None,
        ),
        (
            "always",
            policy(|it| {
                it.return_direct = ReturnDirect::Always;
                it.at_most_once = true;
            }),
            None,
        ),
        (
            "not_pure",
            policy(|it| {
                it.needs_approval = true;
                it.attempts = 3;
            }),
            Some("written_out"),
        ),
        ("nothing-said", ToolPolicy::default(), None),
        ("only_undo", ToolPolicy::default(), Some("nothing-said")),
        (
            "book_room",
            policy(|it| {
                it.return_direct = ReturnDirect::IfLast;
                it.attempts = 2;
            }),
            Some("cancel_room"),
        ),
        ("cancel_room", policy(|it| it.return_direct = ReturnDirect::Always), None),
        ("price", policy(|it| it.pure = true), None),
        ("clean", ToolPolicy::default(), None),
        ("keep", policy(|it| it.return_direct = ReturnDirect::IfAll), Some("drop_it")),
    ];
    assert_eq!(table.len(), all.len());
    for (name, policy, undo) in table {
        let definition = all.get(name).unwrap().definition();
        assert_eq!(definition.policy(), &policy, "{name}");
        assert_eq!(definition.undo(), undo, "{name}");
    }
    assert_eq!(ToolPolicy::default().attempts, 1);
}

#[test]
fn options_are_serialized_with_the_definition() {
    for definition in tools![everything, the_others, always, nothing_said, only_undo].definitions().iter() {
        let text = serde_json::to_string(definition).unwrap();
        assert_eq!(serde_json::from_str::<ToolDefinition>(&text).unwrap(), *definition, "{text}");
        assert_eq!(text.contains("undo"), definition.undo().is_some(), "{text}");
    }
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only shown")]
struct Thought {
    reason: String,
}

#[tool(strict, pure, attempts = 4)]
fn strictly_pure(_number: Option<u8>) {}

#[tool(strict, undo = "cancel_room")]
fn strictly_undone(_number: Option<u8>) {}

#[test]
fn other_forms_of_a_tool_retain_its_options() {
    let set = tools![everything, only_undo].union(ToolSet::from(Hotel)).unwrap();
    let forms = [
        ("strict", set.clone().strict().unwrap()),
        (
            "extended",
            set.clone().extra_parameters(ExtraParameters::new(|_: &ToolCall, _: Thought| {})).unwrap(),
        ),
    ];
    for (form, other) in forms {
        for (before, after) in set.definitions().iter().zip(other.definitions().iter()) {
            assert_eq!(after.undo(), before.undo(), "{form} {}", before.name());
            assert_eq!(after.policy(), before.policy(), "{form} {}", before.name());
        }
    }
    let (pure, undone) = (strictly_pure {}, strictly_undone {});
    assert!(pure.definition().is_strict() && undone.definition().is_strict());
    assert_eq!(pure.definition().policy().attempts, 4);
    assert_eq!(undone.definition().undo(), Some("cancel_room"));
}

#[test]
fn definitions_are_made_of_lists_and_iterated() {
    let definition = || ToolDefinition::new("weather");
    let requests = [
        ChatRequest::new([]).with_tools([definition()]),
        ChatRequest::new([]).with_tools(vec![definition()]),
    ];
    for request in &requests {
        let mut names = Vec::new();
        for definition in request.tools() {
            names.push(definition.name());
        }
        assert_eq!(names, ["weather"]);
    }
}

#[test]
fn a_function_assembles_tools_and_builds_the_agent() {
    fn build(more: &str) -> Result<Agent, BuildError> {
        let tools = tools![nothing_said].with(FunctionTool::new(more, || "done"))?;
        Agent::builder(ScriptedModel::new()).tools(tools).build()
    }
    assert_eq!(build("more").unwrap().tools().len(), 2);
    let error = build("nothing-said").unwrap_err();
    assert!(matches!(error.kind(), BuildErrorKind::Tools(_)), "{error}");
}

#[test]
fn renaming_an_undo_tool_updates_its_references() {
    let hotel = || ToolSet::from(Hotel);
    let lone = || hotel().without(["cancel_room"]).unwrap();
    let table = [
        ("as it is", hotel(), "book_room", "cancel_room"),
        ("itself", hotel().rename("book_room", "book").unwrap(), "book", "cancel_room"),
        ("the undo tool", hotel().rename("cancel_room", "cancel").unwrap(), "book_room", "cancel"),
        ("another", hotel().rename("price", "cost").unwrap(), "book_room", "cancel_room"),
        ("all", hotel().prefix("my_").unwrap(), "my_book_room", "my_cancel_room"),
        (
            "twice",
            hotel().prefix("my_").and_then(|set| set.rename("my_cancel_room", "cancel")).unwrap(),
            "my_book_room",
            "cancel",
        ),
        ("all but the undo tool", lone().prefix("my_").unwrap(), "my_book_room", "cancel_room"),
        ("another in its place", lone().rename("price", "cancel_room").unwrap(), "book_room", "cancel_room"),
    ];
    for (what, set, name, undo) in table {
        let definition = set.get(name).unwrap().definition();
        assert_eq!(definition.undo(), Some(undo), "{what}");
        assert_eq!(definition.policy().attempts, 2, "{what}");
        let of_the_set = set.definitions().iter().find(|definition| definition.name() == name).unwrap();
        assert_eq!(of_the_set, definition, "{what}");
    }
    let renamed = hotel().rename("cancel_room", "cancel").unwrap();
    assert_eq!(renamed.get("price").unwrap().definition(), hotel().get("price").unwrap().definition());
    assert!(renamed.get("cancel_room").is_none() && renamed.get("cancel").is_some());
}
