//! Each entrance × each rule: what a rule does is the same wherever a run comes from.

use std::collections::BTreeSet;
use std::path::Path;

use tool_core::layer::Part;

use crate::entrances::{Entrance, set_rule};
use crate::rules::Rule;

/// Returns what is observed where it differs from the rule.
fn exception(entrance: Entrance, rule: Rule) -> Option<&'static str> {
    use Entrance::{Chat, ChatStreamed, Cli, McpServer, Responses, ResponsesStreamed, ToolSetAlone};
    match entrance {
        // Callers of an endpoint give no approvals, and execute only calls of their own tools.
        Chat | ChatStreamed | Responses | ResponsesStreamed => match rule {
            Rule::Approve | Rule::DenyApproval | Rule::EditApproval => {
                Some("Done. | - | denied: no one is available to approve it")
            }
            Rule::LeaveToCaller => Some("error | - | -"),
            _ => None,
        },
        // Nothing can wait for anybody, and there is no run to end: the call fails.
        ToolSetAlone | McpServer => match rule {
            Rule::Approve | Rule::DenyApproval | Rule::EditApproval => {
                Some("Done. | - | denied: it needs approval, which nobody can give here")
            }
            Rule::RewriteFail | Rule::LeaveToCaller => Some("Done. | - | not executed"),
            Rule::JudgeEnd => Some("Done. | - | why"),
            Rule::JudgePanic => Some("Done. | - | the tool failed (reference call_1)"),
            Rule::OutputEnd => Some("Done. | a | why"),
            Rule::OutputFail => Some("Done. | a | the layer `rule` failed"),
            _ => None,
        },
        // No caller is behind a terminal.
        Cli if rule == Rule::LeaveToCaller => Some("error | - | -"),
        _ => None,
    }
}

/// Returns why a rule cannot be observed at an entrance.
fn absence(entrance: Entrance, rule: Rule) -> Option<&'static str> {
    match (entrance, rule.part()) {
        (Entrance::Restate, _) => Some("in the tests of `tool-restate`"),
        (Entrance::ToolSetAlone | Entrance::McpServer, Some(Part::Question | Part::Model | Part::Answer)) => {
            Some("no agent is asked")
        }
        (Entrance::ToolSetAlone | Entrance::McpServer, _) if rule == Rule::Limit => Some("no agent is asked"),
        _ => None,
    }
}

#[tokio::test(flavor = "current_thread")]
async fn each_rule_holds_at_each_entrance() {
    let mut wrong = Vec::new();
    println!("{:16} {}", "", Entrance::ALL.map(|entrance| format!("{entrance:?}")).join(" "));
    for rule in Rule::ALL {
        let mut row = format!("{:16}", format!("{rule:?}"));
        for entrance in Entrance::ALL {
            set_rule(rule);
            let expected = exception(entrance, rule).unwrap_or(rule.expected());
            let observed = match absence(entrance, rule) {
                Some(_) => None,
                None => entrance.observe(rule).await,
            };
            let sign = match (observed, absence(entrance, rule)) {
                (Some(observed), None) if observed == expected => "+",
                (Some(observed), _) => {
                    wrong.push(format!("{entrance:?} × {rule:?}: {observed}, expected {expected}"));
                    "!"
                }
                (None, Some(_)) => ".",
                (None, None) => {
                    wrong.push(format!("{entrance:?} × {rule:?}: an empty field"));
                    "?"
                }
            };
            let name = format!("{entrance:?}");
            row.push_str(&format!(" {sign:^width$}", width = name.len()));
        }
        println!("{row}");
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The files that drive agents or execute the calls of sets, with the entrance that stands for each.
const DRIVERS: [(&str, &[Entrance]); 0] = [];

#[test]
fn each_way_into_an_agent_has_its_entrance() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeSet::new();
    for name in ["cli", "core", "mcp", "openai", "restate", "web"] {
        visit(&root.join(format!("tool-{name}/src")), &mut found, root);
    }
    let known: BTreeSet<_> = DRIVERS.iter().map(|(file, _)| (*file).to_owned()).collect();
    assert_eq!(found, known);
    let listed: BTreeSet<_> =
        DRIVERS.iter().flat_map(|(_, entrances)| *entrances).map(|one| format!("{one:?}")).collect();
    let missing: Vec<_> = Entrance::ALL.iter().filter(|one| !listed.contains(&format!("{one:?}"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

fn visit(folder: &Path, found: &mut BTreeSet<String>, root: &Path) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            visit(&path, found, root);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code: String = code.collect::<Vec<_>>().join("\n");
        let ways = [".ask(", ".resume(", ".start()", ".execute_call(", ".execute_request(", "tools.call("];
        if ways.iter().any(|way| code.contains(way)) {
            found.insert(path.strip_prefix(root).unwrap().display().to_string());
        }
    }
}
