//! Words the answer: a sentence for each result, or the JSON of a response format.

use std::ops::Range;

use serde_json::Value;
use tool_core::provider::ResponseFormat;

use crate::fill::fill;
use crate::parameters::Parameters;
use crate::plan::{Plan, Step};
use crate::question::{Candidate, Question, Source};
use crate::words::{PRONOUNS, keywords};

/// The answer of a model without tools.
const NO_TOOLS: &str = "I am an offline model without knowledge of my own: give me tools and ask, in English, for something that they can do.";

/// Returns the answer once nothing more is to be called.
pub(crate) fn answer(plan: &Plan<'_>) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (index, step) in plan.steps.iter().enumerate() {
        let result = Some(Source::Step(index));
        let is_used = plan.steps.iter().any(|other| other.arguments.sources.contains(&result));
        let line = describe(plan, step);
        let is_intermediate = is_used && matches!(step.outcome, Some(Ok(_)));
        if !is_intermediate && !lines.contains(&line) {
            lines.push(line);
        }
    }
    let names = plan.tools.iter().map(|tool| tool.name).collect::<Vec<_>>().join(", ");
    if lines.is_empty() && names.is_empty() {
        return NO_TOOLS.to_owned();
    }
    if lines.is_empty() {
        return format!("I cannot answer that with the tools I have ({names}); I read English only.");
    }
    lines.extend(plan.unmatched.iter().map(|part| {
        let part = plan.question.slice(part);
        format!("I cannot do this part with the tools I have ({names}): {part}.")
    }));
    lines.join("\n")
}

/// Describes what became of a step.
fn describe(plan: &Plan<'_>, step: &Step) -> String {
    let name = plan.tools[step.tool].name;
    match &step.outcome {
        Some(Ok(result)) => sentence(subject(plan.question, &step.range), name, result),
        Some(Err(error)) => {
            format!("I could not do that: {name} failed: {}.", error.trim().trim_end_matches('.'))
        }
        None if step.arguments.missing.is_empty() => format!("So I did not call {name}."),
        None => {
            let missing = join(&step.arguments.missing);
            format!("I would call `{name}` for that, but the question does not say {missing}.")
        }
    }
}

/// Returns the answer in the JSON of a response format, filled in from the results, the latest first, and the question.
pub(crate) fn structured(format: &ResponseFormat, question: &Question<'_>, results: &[&str]) -> String {
    let parameters = Parameters::new(format.original_schema(), "");
    let is_name = |at: usize| parameters.explains(&question.tokens[at].keyword);
    let range = question.all();
    let results = results.iter().rev().flat_map(|result| members(result));
    let candidates: Vec<_> = results.chain(question.candidates(&range, is_name, None)).collect();
    let (arguments, _) = fill(&parameters, question, &range, &candidates);
    match parameters.to_json(&arguments, |_| None) {
        Some(answer) if arguments.missing.is_empty() => answer.to_string(),
        _ => format!(
            "I cannot answer in the requested format: there is no value for {}.",
            join(&arguments.missing)
        ),
    }
}

/// Returns the members of a result that is a JSON object, or else the result.
fn members(result: &str) -> Vec<Candidate> {
    let candidate = |text: String| Candidate::result(Source::Text(text), 0);
    let Ok(Value::Object(members)) = serde_json::from_str(result) else {
        return vec![candidate(result.to_owned())];
    };
    let member = |(name, value): (String, Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Candidate { names: keywords(&name), ..candidate(text) }
    };
    members.into_iter().map(member).collect()
}

fn join(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" and ")
}

/// Words one result. A result that is a sentence stands for itself.
fn sentence(subject: Option<String>, tool: &str, result: &str) -> String {
    let result = result.trim();
    let is_data = result.starts_with(['{', '[', '"']) || result.contains('\n');
    let words =
        result.split_whitespace().filter(|word| word.chars().filter(|c| c.is_alphabetic()).count() > 1);
    let stop = if result.ends_with(['.', '!', '?']) { "" } else { "." };
    if result.is_empty() || result == "null" {
        return format!("Done: {tool}.");
    }
    if !is_data && (words.count() >= 4 || stop.is_empty() && result.contains(' ')) {
        return format!("{result}{stop}");
    }
    let subject = subject.unwrap_or_else(|| format!("The result of {tool} is"));
    format!("{subject} {result}{stop}")
}

/// Returns "The square root of 9 is" for "What is the square root of 9".
fn subject(question: &Question<'_>, range: &Range<usize>) -> Option<String> {
    let is = |at: usize, words| question.is_in(words, range.start + at);
    let start = match is(0, "what") {
        true if is(1, "is") => range.start + 2,
        true if is(1, "' ’") => range.start + 3,
        _ if is(0, "the") => range.start,
        _ => return None,
    };
    let refers = (start..range.end).any(|at| question.is_in(PRONOUNS, at));
    let mut letters = question.slice(&(start..range.end)).chars();
    let first = letters.next().filter(|_| !refers)?;
    Some(format!("{}{} is", first.to_uppercase(), letters.as_str()))
}
