//! Each entrance × each rule: what a rule does is the same wherever a run comes from.

use std::collections::BTreeSet;
use std::path::Path;

use tool_core::layer::LayerPhase;

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
            Rule::RewriteFail | Rule::LeaveToCaller | Rule::JudgePanic => Some("Done. | - | not executed"),
            Rule::JudgeEnd => Some("Done. | - | why"),
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
    match (entrance, rule.phase()) {
        (Entrance::Restate, _) => Some("in the tests of `tool-restate`"),
        (
            Entrance::ToolSetAlone | Entrance::McpServer,
            Some(LayerPhase::Question | LayerPhase::Offer | LayerPhase::Model | LayerPhase::Answer),
        ) => Some("no agent is asked"),
        (Entrance::ToolSetAlone | Entrance::McpServer, None) if rule != Rule::Pass => {
            Some("no agent is asked")
        }
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

/// The files that drive agents, ask models or execute calls, with the entrances that stand for each.
const DRIVERS: &[(&str, &[Entrance])] = &[
    ("tool-cli/src/session.rs", &[Entrance::Cli]),
    ("tool-cli/src/watch.rs", &[Entrance::Resume]),
    ("tool-core/src/agent/driver/agent_call.rs", &[Entrance::AgentAsTool]),
    (
        "tool-core/src/agent/driver/tree_calls.rs",
        &[Entrance::SearchAppend, Entrance::SearchCallThrough, Entrance::SearchByProvider, Entrance::Handoff],
    ),
    ("tool-core/src/agent/ask.rs", &[Entrance::Ask, Entrance::Stream, Entrance::Steps]),
    // Answers are typed.
    ("tool-core/src/agent/assistant.rs", &[Entrance::Ask]),
    // Returns the question of a run that was decided.
    ("tool-core/src/agent/decide.rs", &[Entrance::Ask]),
    ("tool-core/src/agent/recover.rs", &[Entrance::Resume]),
    ("tool-core/src/agent/driver/run_driver.rs", &[Entrance::Steps]),
    ("tool-core/src/agent/driver/model_request.rs", &[Entrance::Ask, Entrance::Stream]),
    // Asks for a summary.
    ("tool-core/src/agent/driver/summarizing.rs", &[Entrance::Ask]),
    ("tool-core/src/agent/agent_ext.rs", &[Entrance::Restate]),
    ("tool-core/src/agent/executor.rs", &[Entrance::Ask]),
    ("tool-core/src/layer/layer_trait.rs", &[Entrance::Ask]),
    // Below all layers, where requests are counted.
    ("tool-core/src/model/send.rs", &[]),
    // A list of models.
    ("tool-core/src/model/member.rs", &[]),
    // A model around another.
    ("tool-core/src/prompted/exchange.rs", &[]),
    ("tool-core/src/prompted/model.rs", &[]),
    ("tool-core/src/toolset/call.rs", &[Entrance::ToolSetAlone]),
    ("tool-core/src/toolset/tool_set_ext.rs", &[Entrance::Restate]),
    ("tool-mcp/src/server/call.rs", &[Entrance::McpServer]),
    // Resume the runs of an agent without layers.
    ("tool-mcp/src/server/task_driver.rs", &[Entrance::Resume]),
    ("tool-mcp/src/server/tasks.rs", &[Entrance::Resume]),
    (
        "tool-openai/src/server/agent.rs",
        &[Entrance::Chat, Entrance::ChatStreamed, Entrance::Responses, Entrance::ResponsesStreamed],
    ),
    // Builds the run that a conversation continues.
    (
        "tool-openai/src/server/rebuilding.rs",
        &[Entrance::Chat, Entrance::ChatStreamed, Entrance::Responses, Entrance::ResponsesStreamed],
    ),
    // Former and foreign names pass on.
    ("tool-core/src/agent/other_names/agent.rs", &[]),
    ("tool-core/src/agent/other_names/answer.rs", &[]),
    ("tool-core/src/agent/other_names/ask.rs", &[]),
    ("tool-core/src/agent/other_names/builder.rs", &[]),
    // Models that are served without an agent.
    ("tool-openai/src/server/dispatch.rs", &[]),
    ("tool-openai/src/server/options.rs", &[]),
    ("tool-restate/src/calls.rs", &[Entrance::Restate]),
    ("tool-restate/src/step.rs", &[Entrance::Restate]),
    ("tool-restate/src/turn.rs", &[Entrance::Restate]),
    ("tool-web/src/driving.rs", &[Entrance::Web]),
];

const WAYS: [&str; 12] = [
    "agent.ask(",
    "agent.resume(",
    "execute_request(",
    "execute_call(",
    "tools.call(",
    "RunDriver::new(",
    "model.chat(",
    "model.stream(",
    "call_model(",
    "send_to(",
    "stream_to(",
    "reply_of(",
];

#[test]
fn each_way_into_an_agent_has_its_entrance() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeSet::new();
    for name in ["anthropic", "cli", "core", "mcp", "openai", "restate", "web"] {
        visit(&root.join(format!("tool-{name}/src")), &mut found, root);
    }
    let known: BTreeSet<_> = DRIVERS.iter().map(|(file, _)| (*file).to_owned()).collect();
    let new: Vec<_> = found.difference(&known).collect();
    assert!(new.is_empty(), "{new:?} drive agents: give each an entrance");
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "{gone:?} drive no agents");
    let is_listed = |entrance: &Entrance| DRIVERS.iter().any(|(_, listed)| listed.contains(entrance));
    let missing: Vec<_> = Entrance::ALL.iter().filter(|entrance| !is_listed(entrance)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Finds the files of a folder that have a way into an agent.
fn visit(folder: &Path, found: &mut BTreeSet<String>, root: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("tests") || path.ends_with("tests.rs") {
            continue;
        }
        if path.is_dir() {
            visit(&path, found, root);
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]").next().unwrap();
            let mut code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            if code.any(|line| WAYS.iter().any(|way| line.contains(way))) {
                found.insert(path.strip_prefix(root).unwrap().display().to_string());
            }
        }
    }
}
