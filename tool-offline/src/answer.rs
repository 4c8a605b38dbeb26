//! Words the answer: a sentence for each result, or the JSON of a response format.

use std::collections::HashSet;
use std::ops::Range;

use serde_json::Value;
use tool_core::model::ResponseFormat;

use crate::fill::fill;
use crate::form::Form;
use crate::plan::{Outcome, Plan, StepState};
use crate::question::{Fact, Question, Source};
use crate::words::{PRONOUNS, keys};

/// The answer of a model without tools.
const NO_TOOLS: &str = "I am an offline model without knowledge of my own: give me tools and ask, in English, for something that they can do.";

/// Returns the answer once nothing more is to be called. `others` are calls that the application forced.
pub(crate) fn answer(plan: &Plan<'_>, states: &[StepState<'_>], others: &[(&str, &Outcome)]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (index, (step, state)) in plan.steps.iter().zip(states).enumerate() {
        let name = plan.tools[step.tool].name;
        let is_used = plan.steps.iter().any(|other| other.needs().any(|needed| needed == index));
        lines.extend(match state {
            StepState::Done(_) if is_used => None,
            StepState::Done(result) => Some(sentence(subject(plan.question, &step.range), name, result)),
            StepState::Failed(error) => Some(failure(name, error)),
            StepState::Blocked if step.missing.is_empty() => Some(format!("So I did not call {name}.")),
            StepState::Blocked => {
                let missing = join(&step.missing);
                Some(format!("I would call `{name}` for that, but the question does not say {missing}."))
            }
            StepState::Ready(_) | StepState::Waiting => None,
        });
    }
    lines.extend(others.iter().map(|(name, outcome)| match outcome {
        Ok(result) => sentence(None, name, result),
        Err(error) => failure(name, error),
    }));
    let mut known = HashSet::new();
    lines.retain(|line| known.insert(line.clone()));
    let names = plan.tools.iter().map(|tool| tool.name).collect::<Vec<_>>().join(", ");
    match (plan.tools.is_empty(), lines.is_empty()) {
        (true, true) => NO_TOOLS.to_owned(),
        (false, true) => {
            format!("I cannot answer that with the tools I have ({names}); I read English only.")
        }
        (_, false) => {
            let unmatched = plan.unmatched.iter().map(|part| plan.question.slice(part));
            lines.extend(
                unmatched
                    .map(|part| format!("I cannot do this part with the tools I have ({names}): {part}.")),
            );
            lines.join("\n")
        }
    }
}

/// Returns the answer in the JSON of a response format, filled in from the results, the latest first, and the question.
pub(crate) fn structured(format: &ResponseFormat, question: &Question<'_>, results: &[&str]) -> String {
    let form = Form::new(format.original_schema(), "");
    let is_name = |at: usize| form.explains(&question.keys[at]);
    let range = question.all();
    let results = results.iter().rev().flat_map(|result| members(result));
    let facts: Vec<_> = results.chain(question.facts(&range, is_name, None)).collect();
    let filled = fill(&form, question, &range, &facts);
    match form.arguments(&filled.sources, |_| None) {
        Some(answer) if filled.missing.is_empty() => answer.to_string(),
        _ => format!(
            "I cannot answer in the requested format: there is no value for {}.",
            join(&filled.missing)
        ),
    }
}

/// Returns the members of a result that is a JSON object, or else the result.
fn members(result: &str) -> Vec<Fact> {
    let fact = |text: String| Fact::result(Source::Text(text), 0);
    let Ok(Value::Object(members)) = serde_json::from_str(result) else {
        return vec![fact(result.to_owned())];
    };
    let member = |(name, value): (String, Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Fact { names: keys(&name), ..fact(text) }
    };
    members.into_iter().map(member).collect()
}

fn failure(name: &str, error: &str) -> String {
    format!("I could not do that: {name} failed: {}.", error.trim().trim_end_matches('.'))
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
