//! Words the answer from the results.

use crate::facts::is_listed;
use crate::matching::{Tool, Tools};
use crate::planner::Plan;
use crate::progress::{ExecutedCall, Progress, StepState};
use crate::tokens::Text;

/// The answer of a model without tools.
pub(crate) const NO_TOOLS: &str = "I am an offline model without knowledge of my own: give me tools and ask, in English, for something that they can do.";

/// The number of tools that are named if none fits.
const MAX_NAMED_TOOLS: usize = 30;

/// Returns the answer once nothing more is to be called.
pub(crate) fn answer(
    plan: &Plan,
    tools: &Tools<'_>,
    progress: &Progress,
    calls: &[ExecutedCall<'_>],
) -> String {
    let mut lines: Vec<String> = Vec::new();
    for ((step, state), is_consumed) in plan.steps.iter().zip(&progress.states).zip(&progress.is_consumed) {
        let Some(tool) = tools.get(step.tool) else { continue };
        let line = match state {
            StepState::Done(_) if *is_consumed => continue,
            StepState::Done(result) => sentence(&step.question, tool.name(), result),
            StepState::Failed(error) => failure(tool.name(), error),
            StepState::Blocked => format!("So I did not call {}.", tool.name()),
            StepState::Missing(slots) => {
                let missing = join_with_and(slots.iter().map(|slot| describe_slot(tool, *slot)).collect());
                format!("I would call `{}` for that, but the question does not say {missing}.", tool.name())
            }
            StepState::Excess(count) => format!(
                "I would call `{}` for that, but the question lists more values than it takes: {count}.",
                tool.name()
            ),
            StepState::Ready(_) | StepState::Waiting => continue,
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    // Calls that no step claims, for example calls forced by the application.
    for (_, executed) in calls.iter().enumerate().filter(|(at, _)| !progress.claimed.contains(at)) {
        lines.push(match executed.result {
            Some(result) if !result.is_error => sentence("", &executed.call.name, &result.content.text()),
            Some(result) => failure(&executed.call.name, &result.content.text()),
            None => failure(&executed.call.name, "it has no result"),
        });
    }
    let names = tools.0.iter().map(Tool::name).take(MAX_NAMED_TOOLS).collect::<Vec<_>>().join(", ");
    let more = if tools.0.len() > MAX_NAMED_TOOLS { ", …" } else { "" };
    match (lines.is_empty(), tools.0.is_empty()) {
        (true, true) => return NO_TOOLS.to_owned(),
        (true, false) => {
            return format!(
                "I cannot answer that with the tools I have ({names}{more}); I read English only."
            );
        }
        (false, _) => {}
    }
    for part in plan.unmatched.iter().filter(|_| !tools.0.is_empty()) {
        lines.push(format!("I cannot do this part with the tools I have ({names}{more}): {part}."));
    }
    lines.join("\n")
}

/// Returns the answer if the requested format cannot be filled in.
pub(crate) fn missing_fields(missing: &[String]) -> String {
    let missing = join_with_and(missing.iter().map(|name| format!("`{name}`")).collect());
    format!("I cannot answer in the requested format: there is no value for {missing}.")
}

fn failure(name: &str, error: &str) -> String {
    format!("I could not do that: {name} failed: {}.", error.trim().trim_end_matches('.'))
}

fn describe_slot(tool: &Tool<'_>, slot: usize) -> String {
    let Some(slot) = tool.slots.get(slot) else { return String::new() };
    let name = format!("`{}`", slot.path.join("."));
    match slot.description.trim().trim_end_matches('.') {
        "" => name,
        description => format!("{name} ({description})"),
    }
}

fn join_with_and(mut words: Vec<String>) -> String {
    let last = words.pop().unwrap_or_default();
    if words.is_empty() { last } else { format!("{} and {last}", words.join(", ")) }
}

/// Words one result as a sentence that repeats the question.
fn sentence(question: &str, tool: &str, result: &str) -> String {
    let result = result.trim();
    if is_sentence(result) {
        return result.to_owned();
    }
    if is_prose(result) {
        return format!("{result}.");
    }
    if result.is_empty() || result.eq_ignore_ascii_case("success") || result == "null" {
        return format!("Done: {tool}.");
    }
    let asked = Text::new(question);
    let yes = match (result, is_yes_or_no(asked.word(0))) {
        ("true", true) => Some("Yes"),
        ("false", true) => Some("No"),
        _ => None,
    };
    if let Some(yes) = yes {
        return format!("{yes}: {tool} returned {result}.");
    }
    let subject = subject(&asked).unwrap_or_else(|| format!("The result of {tool} is"));
    if result.contains('\n') {
        return format!("{subject}:\n{result}");
    }
    let stop = if result.ends_with(['.', '。']) { "" } else { "." };
    format!("{subject} {result}{stop}")
}

fn is_sentence(result: &str) -> bool {
    let ends = result.ends_with(['.', '!', '?', '。', '！', '？']);
    ends && (result.contains(char::is_whitespace) || result.ends_with(['。', '！', '？']))
}

/// Returns `true` for text that needs no introduction, such as a tool's error message.
fn is_prose(result: &str) -> bool {
    let is_data = result.starts_with(['{', '[', '"']) || result.contains('\n');
    let is_word = |word: &&str| word.chars().filter(|c| c.is_alphabetic()).count() > 1;
    !is_data && result.split_whitespace().filter(is_word).count() >= 4
}

fn is_yes_or_no(word: &str) -> bool {
    is_listed("is are was were does do did can could has have will", word)
}

/// Returns "The square root of 9 is" for "What is the square root of 9?" and "Calculate the square root of 9".
fn subject(asked: &Text) -> Option<String> {
    let mut at = 0;
    while is_listed("and then also please so now can could you tell give show me us", asked.word(at)) {
        at += 1;
    }
    let mut verb = "is";
    let is_noun = |at: usize| {
        is_listed("the a an", asked.word(at))
            || asked.token(at).is_some_and(|token| token.lower.starts_with(char::is_numeric))
    };
    match asked.word(at) {
        "what" | "who" | "which" if matches!(asked.word(at + 1), "is" | "'s" | "are" | "was" | "were") => {
            verb = if asked.word(at + 1) == "'s" { "is" } else { asked.word(at + 1) };
            at += 2;
        }
        word if is_listed("calculate compute find get determine evaluate check take", word)
            && is_noun(at + 1) =>
        {
            at += 1
        }
        _ if is_noun(at) => {}
        _ => return None,
    }
    let stop = (at..asked.tokens.len())
        .find(|at| matches!(asked.word(*at), "?" | "." | "!"))
        .unwrap_or(asked.tokens.len());
    let end = (at..stop).rev().find(|at| !matches!(asked.word(*at), "," | ";" | "please"))? + 1;
    let refers = (at..end).any(|at| is_listed("it that this them these those its result", asked.word(at)));
    let words = asked.slice(at..end).replacen(" like ", " ", 1);
    let mut letters = words.chars();
    let first = letters.next().filter(|_| !refers)?;
    Some(format!("{}{} {verb}", first.to_uppercase(), letters.as_str()))
}
