//! The report of a reviewer's findings on the tools of a program.

use schemars::JsonSchema;
use serde::Deserialize;
use tool_core::signatures::FindingKind;
use tool_core::{ToolSet, tool, tools};

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Guest {
    /// The full name.
    name: String,
    age: u8,
}

/// Books a room for some guests.
#[tool]
fn book(#[param("who comes")] guests: Vec<Guest>, nights: u8) {
    drop((guests, nights));
}

#[tool]
fn run(#[param("what to run")] command: String) {
    drop(command);
}

/// Returns the time of day.
#[tool]
fn now() -> u32 {
    12
}

#[test]
fn a_report_names_each_tool_and_path() {
    let report = tools![book, run, now].check();
    let found: Vec<_> =
        report.findings().iter().map(|one| (one.kind(), one.tool().unwrap(), one.path())).collect();
    let expected = [
        (FindingKind::UndescribedParameter, "book", Some("guests[].age")),
        (FindingKind::UndescribedParameter, "book", Some("nights")),
        (FindingKind::VagueName, "run", None),
        (FindingKind::NoDescription, "run", None),
    ];
    assert_eq!(found, expected);
    let tokens = report.tokens();
    let expected = format!(
        "`book`: the parameter `guests[].age` has no description\n\
         `book`: the parameter `nights` has no description\n\
         `run`: has a name that fits any tool; name what it does, such as `search_orders`\n\
         `run`: has no description; describe what it does and when to call it\n\
         3 tools, about {tokens} tokens in every request, 4 findings"
    );
    assert_eq!(report.to_string(), expected);
    assert_eq!(format!("{report:?}"), expected);
    let costs: Vec<_> = report.costs().iter().map(|cost| cost.name()).collect();
    assert_eq!(costs, ["book", "run", "now"]);
    assert_eq!(report.costs().iter().map(|cost| cost.tokens()).sum::<usize>(), tokens);
    assert!(report.costs()[0].tokens() > report.costs()[2].tokens());
}

#[test]
fn a_gate_accepts_clean_and_allowed_tools() {
    let report = || tools![book, run, now].check();
    assert!(!report().is_clean());
    assert_eq!(report().into_result().unwrap_err().findings().len(), 4);
    let rest = report().allow([FindingKind::UndescribedParameter, FindingKind::VagueName]);
    assert_eq!(rest.findings()[0].kind(), FindingKind::NoDescription);
    assert_eq!(rest.findings().len(), 1);
    rest.allow([FindingKind::NoDescription]).into_result().unwrap();
    tools![now].check().into_result().unwrap();
    ToolSet::default().check().into_result().unwrap();
    tools![book, run, now].without(["book", "run"]).unwrap().check().into_result().unwrap();
}
