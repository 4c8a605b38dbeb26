//! The rules of the report.

use super::finding::{Finding, FindingKind, ToolCost};
use super::undescribed::undescribed_parameters;
use crate::model::ToolDefinition;

/// The maximum number of tools that models choose reliably among.
const MAX_TOOLS: usize = 20;

/// The maximum length of a description that all providers accept, in characters.
const MAX_DESCRIPTION_CHARS: usize = 1024;

/// The maximum cost of a definition, in tokens.
const MAX_TOKENS: usize = 1000;

/// The similarity from which on two names are nearly the same: `get_user` and `get_users` are, `get_time` and `set_time`
/// are not.
const MIN_SIMILARITY: f64 = 0.96;

/// Names that fit any tool.
const VAGUE_NAMES: [&str; 24] = [
    "action", "call", "do", "execute", "foo", "func", "function", "go", "handle", "handler", "helper",
    "invoke", "main", "method", "misc", "perform", "process", "run", "task", "test", "thing", "tool", "util",
    "work",
];

pub(super) fn check(tools: &[ToolDefinition], costs: &[ToolCost]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if tools.len() > MAX_TOOLS {
        let text = format!(
            "the set has {} tools; models choose less reliably among more than {MAX_TOOLS}, so offer only \
             those that a question needs, with a `ToolProvider`",
            tools.len()
        );
        findings.push(Finding::for_set(FindingKind::ManyTools, text));
    }
    // Each description is folded once, as there may be many long ones.
    let descriptions: Vec<_> = tools.iter().map(|tool| folded(description(tool))).collect();
    for (position, (tool, cost)) in tools.iter().zip(costs).enumerate() {
        let earlier = &tools[..position];
        findings.extend(check_name(tool, earlier));
        let folded = &*descriptions[position];
        let is_same = |other: &String| *other == *folded && !folded.is_empty();
        let same = descriptions[..position].iter().position(is_same);
        findings.extend(check_description(tool, folded, same.map(|same| &tools[same])));
        findings.extend(undescribed_parameters(tool.parameters()).into_iter().map(|path| {
            let text = format!("the parameter `{path}` has no description");
            Finding::for_tool(FindingKind::UndescribedParameter, tool, text).at(path)
        }));
        if cost.tokens() > MAX_TOKENS {
            let text = format!(
                "costs about {} tokens in every request; use fewer or simpler parameters to stay below \
                 {MAX_TOKENS}",
                cost.tokens()
            );
            findings.push(Finding::for_tool(FindingKind::LargeDefinition, tool, text));
        }
    }
    findings
}

fn check_name(tool: &ToolDefinition, earlier: &[ToolDefinition]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = folded(tool.name());
    let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if word.is_empty() || VAGUE_NAMES.contains(&word) {
        let text = "has a name that fits any tool; name what it does, such as `search_orders`";
        findings.push(Finding::for_tool(FindingKind::VagueName, tool, text));
    }
    let is_similar =
        |other: &&ToolDefinition| strsim::jaro_winkler(&folded(other.name()), &name) >= MIN_SIMILARITY;
    if let Some(other) = earlier.iter().find(is_similar) {
        let text = format!("has nearly the same name as `{}`; rename one of them", other.name());
        findings.push(Finding::for_tool(FindingKind::SimilarName, tool, text));
    }
    findings
}

/// Checks the description of a tool. `same` is an earlier tool with the same description.
fn check_description(
    tool: &ToolDefinition,
    folded_text: &str,
    same: Option<&ToolDefinition>,
) -> Vec<Finding> {
    let description = description(tool);
    if description.is_empty() {
        let text = "has no description; describe what it does and when to call it";
        return vec![Finding::for_tool(FindingKind::NoDescription, tool, text)];
    }
    let mut findings = Vec::new();
    if count_words(description) < 2 || folded_text == folded(tool.name()) {
        let text =
            "has a description that adds nothing to its name; describe what it does and when to call it";
        findings.push(Finding::for_tool(FindingKind::ShortDescription, tool, text));
    }
    let length = description.chars().count();
    if length > MAX_DESCRIPTION_CHARS {
        let text = format!(
            "has a description of {length} characters; some providers refuse more than {MAX_DESCRIPTION_CHARS}"
        );
        findings.push(Finding::for_tool(FindingKind::LongDescription, tool, text));
    }
    if let Some(other) = same {
        let text = format!("has the same description as `{}`; describe how they differ", other.name());
        findings.push(Finding::for_tool(FindingKind::SameDescription, tool, text));
    }
    findings
}

/// Estimates the number of words of a text. Scripts without spaces have a word per two ideographs, three letters of a Japanese
/// syllabary, or five letters of a script such as Thai.
fn count_words(text: &str) -> usize {
    let words = text.split_whitespace().map(|word| {
        let thirtieths = word.chars().map(|letter| match letter {
            // Ideographs, also in the supplementary planes.
            '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}' => 15,
            // Hiragana, katakana and bopomofo.
            '\u{3041}'..='\u{31bf}' | '\u{31f0}'..='\u{31ff}' | '\u{ff66}'..='\u{ff9f}' => 10,
            // Thai, Lao, Tibetan, Myanmar and Khmer.
            '\u{e00}'..='\u{fff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' => 6,
            // Javanese, Tai and Cham scripts.
            '\u{1950}'..='\u{19df}' | '\u{1a20}'..='\u{1aaf}' | '\u{a980}'..='\u{aadf}' => 6,
            _ => 0,
        });
        (thirtieths.sum::<usize>() / 30).max(1)
    });
    words.sum()
}

fn description(tool: &ToolDefinition) -> &str {
    tool.description().unwrap_or_default().trim()
}

/// Returns the letters and digits in lower case, so that `getUser` and `get_user` are equal.
fn folded(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the kinds of the findings about tools with these names and descriptions.
    fn kinds(tools: &[(&str, &str)]) -> Vec<FindingKind> {
        let tools: Vec<_> = tools
            .iter()
            .map(|(name, description)| ToolDefinition::new(*name).with_description(*description))
            .collect();
        let costs: Vec<_> = tools.iter().map(ToolCost::new).collect();
        check(&tools, &costs).iter().map(Finding::kind).collect()
    }

    #[test]
    fn checks_names_and_descriptions() {
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
            // Japanese, Chinese, Thai, Khmer, Burmese, Lao: sentences, then single words.
            (&[("weather", "指定した都市の天気を返す")], &[]),
            (&[("weather", "天気を返す")], &[]),
            (&[("data", "データを返す。")], &[]),
            (&[("weather", "查询天气")], &[]),
            (&[("weather", "查询指定城市的天气，返回温度和湿度")], &[]),
            (&[("search", "ค้นหาเอกสาร")], &[]),
            (&[("search", "ស្វែងរកឯកសារ")], &[]),
            (&[("search", "စာရွက်စာတမ်းရှာပါ")], &[]),
            (&[("search", "ຄົ້ນຫາເອກະສານ")], &[]),
            (&[("search", "문서를 찾습니다")], &[]),
            (&[("weather", "天気")], &[ShortDescription]),
            (&[("search", "搜索")], &[ShortDescription]),
            (&[("search", "検索する")], &[ShortDescription]),
            (&[("search", "ค้นหา")], &[ShortDescription]),
            (&[("first", "查询天气"), ("other", "查询天气。")], &[SameDescription]),
            (&[("run", "Runs the report")], &[VagueName]),
            (&[("tool_2", "Runs the report")], &[VagueName]),
            (&[("_", "Runs the report")], &[VagueName]),
            (&[("run_report", "Runs the report")], &[]),
            (&[("get_user", "Finds a user"), ("getUsers", "Lists all users")], &[SimilarName]),
            (&[("get_user", "Finds a user"), ("get-user", "Lists all users")], &[SimilarName]),
            (&[("send_email", "Sends one"), ("send_mail", "Sends two")], &[SimilarName]),
            (&[("get_time", "Returns the time"), ("set_time", "Sets the clock")], &[]),
            (&[("sum", "Adds numbers up"), ("sub", "Subtracts numbers")], &[]),
            (&[("start_job", "Starts a job"), ("stop_job", "Stops a job")], &[]),
            (&[("first", "Finds a user"), ("other", "finds  a user.")], &[SameDescription]),
        ];
        for (tools, expected) in table {
            assert_eq!(kinds(tools), *expected, "{tools:?}");
        }
    }

    #[test]
    fn reports_many_tools_and_large_definitions() {
        let tools: Vec<_> = (0..21u8).map(|i| char::from(b'a' + i).to_string().repeat(5)).collect();
        let tools: Vec<_> = tools.iter().map(|name| (&**name, format!("Finds all of {name}"))).collect();
        let tools: Vec<_> = tools.iter().map(|(name, description)| (*name, &**description)).collect();
        assert_eq!(kinds(&tools), [FindingKind::ManyTools]);
        assert_eq!(kinds(&tools[1..]), []);

        let large = |words: usize| {
            let words: Vec<_> = (0..words).map(|word| format!("word {word}")).collect();
            let word = json!({ "description": "which one", "enum": words });
            let tool = ToolDefinition::new("pick").with_description("Picks a word");
            let tool = tool.with_parameters(json!({ "type": "object", "properties": { "word": word } }));
            let cost = ToolCost::new(&tool);
            check(&[tool], &[cost])
        };
        assert_eq!(large(100), []);
        let found = large(1000);
        assert_eq!((found.len(), found[0].kind()), (1, FindingKind::LargeDefinition));
    }

    #[test]
    fn tokens_are_a_quarter_of_the_bytes() {
        let tool = ToolDefinition::new("now").with_description("Returns the time").with_parameters(json!({}));
        let sent = r#"{"name":"now","parameters":{},"description":"Returns the time"}"#;
        assert_eq!(ToolCost::new(&tool).tokens(), sent.len().div_ceil(4));
    }
}
