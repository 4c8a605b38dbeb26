//! The rules of a report.

use super::parameters::undescribed;
use crate::model::ToolDefinition;
use crate::toolset::{Finding, FindingKind, ToolCost};

/// How many tools a model chooses well among.
const MOST_TOOLS: usize = 20;

/// The longest description that all providers take, in characters.
const LONGEST_DESCRIPTION: usize = 1024;

/// What a definition may cost, in tokens.
const MOST_TOKENS: usize = 1000;

/// From where on two names are nearly the same: `get_user` and `get_users` are, `get_time` and `set_time`
/// are not.
const NEARLY_SAME: f64 = 0.96;

/// Words that would fit any tool.
const VAGUE: [&str; 24] = [
    "action", "call", "do", "execute", "foo", "func", "function", "go", "handle", "handler", "helper",
    "invoke", "main", "method", "misc", "perform", "process", "run", "task", "test", "thing", "tool", "util",
    "work",
];

pub(super) fn check(tools: &[ToolDefinition], costs: &[ToolCost]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if tools.len() > MOST_TOOLS {
        let says = format!(
            "{} tools are offered at once; models choose worse among more than {MOST_TOOLS}, so offer those \
             that a question needs, with a `ToolProvider`",
            tools.len()
        );
        findings.push(Finding::of_set(FindingKind::ManyTools, says));
    }
    // Each is folded once, as there may be many and long ones.
    let descriptions: Vec<_> = tools.iter().map(|tool| folded(description(tool))).collect();
    for (position, (tool, cost)) in tools.iter().zip(costs).enumerate() {
        let earlier = &tools[..position];
        findings.extend(check_name(tool, earlier));
        let folded = &*descriptions[position];
        let is_same = |other: &String| *other == *folded && !folded.is_empty();
        let same = descriptions[..position].iter().position(is_same);
        findings.extend(check_description(tool, folded, same.map(|same| &tools[same])));
        findings.extend(undescribed(tool.parameters()).into_iter().map(|path| {
            let says = format!("the parameter `{path}` has no description");
            Finding { path: Some(path), ..Finding::of_tool(FindingKind::UndescribedParameter, tool, says) }
        }));
        if cost.tokens() > MOST_TOKENS {
            let says = format!(
                "costs about {} tokens in every request; {MOST_TOKENS} are enough for most, so take fewer or \
                 simpler parameters",
                cost.tokens()
            );
            findings.push(Finding::of_tool(FindingKind::LargeDefinition, tool, says));
        }
    }
    findings
}

fn check_name(tool: &ToolDefinition, earlier: &[ToolDefinition]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = folded(tool.name());
    let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if word.is_empty() || VAGUE.contains(&word) {
        let says = "has a name that would fit any tool; say what it does, such as `search_orders`";
        findings.push(Finding::of_tool(FindingKind::VagueName, tool, says));
    }
    let is_similar =
        |other: &&ToolDefinition| strsim::jaro_winkler(&folded(other.name()), &name) >= NEARLY_SAME;
    if let Some(other) = earlier.iter().find(is_similar) {
        let says =
            format!("is named nearly as `{}` is; give it a name that is not mixed up with it", other.name());
        findings.push(Finding::of_tool(FindingKind::SimilarName, tool, says));
    }
    findings
}

/// `same` is an earlier tool with the same description.
fn check_description(
    tool: &ToolDefinition,
    folded_text: &str,
    same: Option<&ToolDefinition>,
) -> Vec<Finding> {
    let description = description(tool);
    if description.is_empty() {
        let says = "has no description; write what it does, and when to call it, above it";
        return vec![Finding::of_tool(FindingKind::NoDescription, tool, says)];
    }
    let mut findings = Vec::new();
    let mut words = description.split_whitespace();
    let is_one_word = words.next().is_some() && words.next().is_none();
    if is_one_word || folded_text == folded(tool.name()) {
        let says =
            "has a description that says no more than its name; write what it does, and when to call it";
        findings.push(Finding::of_tool(FindingKind::ShortDescription, tool, says));
    }
    let length = description.chars().count();
    if length > LONGEST_DESCRIPTION {
        let says = format!(
            "has a description of {length} characters; some providers refuse more than {LONGEST_DESCRIPTION}"
        );
        findings.push(Finding::of_tool(FindingKind::LongDescription, tool, says));
    }
    if let Some(other) = same {
        let says = format!("has the description of `{}`; write what tells them apart", other.name());
        findings.push(Finding::of_tool(FindingKind::SameDescription, tool, says));
    }
    findings
}

fn description(tool: &ToolDefinition) -> &str {
    tool.description().unwrap_or_default().trim()
}

/// The letters and digits alone, so that `getUser` is `get_user`.
fn folded(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The kinds of what there is to say of tools with these names and descriptions.
    fn kinds(tools: &[(&str, &str)]) -> Vec<FindingKind> {
        let tools: Vec<_> =
            tools.iter().map(|(name, says)| ToolDefinition::new(*name).with_description(*says)).collect();
        let costs: Vec<_> = tools.iter().map(ToolCost::of).collect();
        check(&tools, &costs).iter().map(Finding::kind).collect()
    }

    #[test]
    fn names_and_descriptions() {
        use FindingKind::*;
        let long = "word ".repeat(300);
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a [FindingKind]);
        let table: &[Case<'_>] = &[
            (&[("sum", "Sums two numbers")], &[]),
            (&[("sum", "")], &[NoDescription]),
            (&[("sum", " ")], &[NoDescription]),
            (&[("sum", "Sums")], &[ShortDescription]),
            (&[("get_user", "Get user.")], &[ShortDescription]),
            (&[("sum", &long)], &[LongDescription]),
            (&[("sum", &"é".repeat(500))], &[ShortDescription]),
            (&[("run", "Runs the report")], &[VagueName]),
            (&[("tool_2", "Runs the report")], &[VagueName]),
            (&[("_", "Runs the report")], &[VagueName]),
            (&[("run_report", "Runs the report")], &[]),
            (&[("get_user", "Finds a user"), ("getUsers", "Lists all users")], &[SimilarName]),
            (&[("get_user", "Finds a user"), ("get-user", "Lists all users")], &[SimilarName]),
            (&[("send_email", "Sends one"), ("send_mail", "Sends two")], &[SimilarName]),
            (&[("get_time", "Tells the time"), ("set_time", "Sets the clock")], &[]),
            (&[("sum", "Adds numbers up"), ("sub", "Takes one off")], &[]),
            (&[("start_job", "Starts a job"), ("stop_job", "Stops a job")], &[]),
            (&[("first", "Finds a user"), ("other", "finds  a user.")], &[SameDescription]),
        ];
        for (tools, expected) in table {
            assert_eq!(kinds(tools), *expected, "{tools:?}");
        }
    }

    #[test]
    fn many_tools_and_large_ones() {
        let tools: Vec<_> = (0..21u8).map(|i| char::from(b'a' + i).to_string().repeat(5)).collect();
        let tools: Vec<_> = tools.iter().map(|name| (&**name, format!("Finds all of {name}"))).collect();
        let tools: Vec<_> = tools.iter().map(|(name, says)| (*name, &**says)).collect();
        assert_eq!(kinds(&tools), [FindingKind::ManyTools]);
        assert_eq!(kinds(&tools[1..]), []);

        let large = |words: usize| {
            let words: Vec<_> = (0..words).map(|word| format!("word {word}")).collect();
            let word = json!({ "description": "which one", "enum": words });
            let tool = ToolDefinition::new("pick").with_description("Picks a word");
            let tool = tool.with_parameters(json!({ "type": "object", "properties": { "word": word } }));
            let cost = ToolCost::of(&tool);
            check(&[tool], &[cost])
        };
        assert_eq!(large(100), []);
        let found = large(1000);
        assert_eq!((found.len(), found[0].kind()), (1, FindingKind::LargeDefinition));
    }

    #[test]
    fn tokens_are_a_fourth_of_the_bytes() {
        let tool = ToolDefinition::new("now").with_description("Tells the time").with_parameters(json!({}));
        let sent = r#"{"name":"now","parameters":{},"description":"Tells the time"}"#;
        assert_eq!(ToolCost::of(&tool).tokens(), sent.len().div_ceil(4));
    }
}
