//! Words the answer: a sentence for each result, or the JSON of a response format.

use std::ops::Range;

use tool_core::model::ResponseFormat;

use crate::facts::{Fact, Question};
use crate::fill::fill;
use crate::form::Form;
use crate::plan::{Outcome, Plan, StepState, Tool};
use crate::words::PRONOUNS;

/// The answer of a model without tools.
const NO_TOOLS: &str = "I am an offline model without knowledge of my own: give me tools and ask, in English, for something that they can do.";

/// The number of tools that are named if none fits.
const MAX_NAMED_TOOLS: usize = 30;

/// Returns the answer once nothing more is to be called.
pub(crate) fn answer(
    plan: &Plan,
    tools: &[Tool<'_>],
    question: &Question<'_>,
    others: &[(&str, Outcome)],
) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut add = |line: String| {
        if !lines.contains(&line) {
            lines.push(line);
        }
    };
    for (index, step) in plan.steps.iter().enumerate() {
        let name = tools[step.tool].name;
        let is_used = plan.steps.iter().any(|other| other.needs.contains(&index));
        match &step.state {
            StepState::Done(_) if is_used => {}
            StepState::Done(result) => add(sentence(subject(question, &step.range), name, result)),
            StepState::Failed(error) => add(failure(name, error)),
            StepState::Blocked => add(format!("So I did not call {name}.")),
            StepState::Missing(missing) => {
                add(format!(
                    "I would call `{name}` for that, but the question does not say {}.",
                    join(missing)
                ));
            }
            StepState::Ready(_) | StepState::Waiting => {}
        }
    }
    // Calls that the application forced.
    for (name, outcome) in others {
        add(match outcome {
            Ok(result) => sentence(None, name, result),
            Err(error) => failure(name, error),
        });
    }
    if tools.is_empty() {
        return if lines.is_empty() { NO_TOOLS.to_owned() } else { lines.join("\n") };
    }
    let names = tools.iter().map(|tool| tool.name).take(MAX_NAMED_TOOLS).collect::<Vec<_>>().join(", ");
    let more = if tools.len() > MAX_NAMED_TOOLS { ", …" } else { "" };
    if lines.is_empty() {
        return format!("I cannot answer that with the tools I have ({names}{more}); I read English only.");
    }
    for part in &plan.unmatched {
        let part = question.slice(part);
        lines.push(format!("I cannot do this part with the tools I have ({names}{more}): {part}."));
    }
    lines.join("\n")
}

/// Returns the answer in the JSON of a response format, filled in from the results, the latest first, and the question.
pub(crate) fn structured(format: &ResponseFormat, question: &Question<'_>, results: &[&str]) -> String {
    let form = Form::new(format.original_schema(), "");
    let is_name = |at: usize| form.explains(&question.keys[at]);
    let range = question.all();
    let results = results.iter().rev().flat_map(|result| Fact::of_result(result));
    let facts: Vec<_> = results.chain(question.facts(&range, &is_name, None)).collect();
    let filled = fill(&form, question, &range, &facts);
    if filled.missing.is_empty() {
        return filled.arguments.to_string();
    }
    format!("I cannot answer in the requested format: there is no value for {}.", join(&filled.missing))
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
    let start = match (&*question.word(range.start), &*question.word(range.start + 1)) {
        ("what", "is") => range.start + 2,
        ("what", "'" | "’") => range.start + 3,
        ("the", _) => range.start,
        _ => return None,
    };
    let refers = (start..range.end).any(|at| PRONOUNS.contains(&&*question.word(at)));
    let mut letters = question.slice(&(start..range.end)).chars();
    let first = letters.next().filter(|_| !refers)?;
    Some(format!("{}{} is", first.to_uppercase(), letters.as_str()))
}
