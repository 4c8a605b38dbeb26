//! Words the answer from the results.

use super::choose::{Tool, Tools};
use super::facts::is_listed;
use super::plan::Plan;
use super::progress::{Made, Progress, Standing};
use super::words::Text;

/// The answer of a model that has nothing to work with.
pub(crate) const PLAIN: &str = "I am an offline model without knowledge of my own; give me tools, and ask for something that they can do.";

/// How many tools are named at most when none fits.
const NAMED: usize = 30;

/// The answer, when nothing more is to be called.
pub(crate) fn answer(plan: &Plan, tools: &Tools<'_>, progress: &Progress, made: &[Made<'_>]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for ((step, standing), is_part) in plan.steps.iter().zip(&progress.standings).zip(&progress.is_part) {
        let Some(tool) = tools.get(step.tool) else { continue };
        let line = match standing {
            Standing::Done(_) if *is_part => continue,
            Standing::Done(result) => sentence(&step.told, tool.name(), result),
            Standing::Failed(error) => failure(tool.name(), error),
            Standing::Blocked => format!("So I did not call {}.", tool.name()),
            Standing::Missing(slots) => {
                let missing = list(slots.iter().map(|slot| described(tool, *slot)).collect());
                format!("I would call `{}` for that, but the question does not say {missing}.", tool.name())
            }
            Standing::Excess(count) => format!(
                "I would call `{}` for that, but the question lists more values than it takes: {count}.",
                tool.name()
            ),
            Standing::Ready(_) | Standing::Waiting => continue,
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    // What was called for other reasons, such as the application's order to.
    for (_, made) in made.iter().enumerate().filter(|(at, _)| !progress.claimed.contains(at)) {
        lines.push(match made.result {
            Some(result) if !result.is_error => sentence("", &made.call.name, &result.content.text()),
            Some(result) => failure(&made.call.name, &result.content.text()),
            None => failure(&made.call.name, "there is no result"),
        });
    }
    let names = tools.0.iter().map(Tool::name).take(NAMED).collect::<Vec<_>>().join(", ");
    let more = if tools.0.len() > NAMED { ", …" } else { "" };
    match (lines.is_empty(), tools.0.is_empty()) {
        (true, true) => return PLAIN.to_owned(),
        (true, false) => return format!("I cannot answer that with the tools I have ({names}{more})."),
        (false, _) => {}
    }
    for part in plan.cannot.iter().filter(|_| !tools.0.is_empty()) {
        lines.push(format!("I cannot do this part with the tools I have ({names}{more}): {part}."));
    }
    lines.join("\n")
}

/// The answer, when it is to have a form that cannot be filled.
pub(crate) fn lacking(missing: &[String]) -> String {
    let missing = list(missing.iter().map(|name| format!("`{name}`")).collect());
    format!("I cannot answer in the form that is asked for: nothing says {missing}.")
}

fn failure(name: &str, error: &str) -> String {
    format!("I could not do that: {name} failed: {}.", error.trim().trim_end_matches('.'))
}

fn described(tool: &Tool<'_>, slot: usize) -> String {
    let Some(slot) = tool.slots.get(slot) else { return String::new() };
    let name = format!("`{}`", slot.path.join("."));
    match slot.description.trim().trim_end_matches('.') {
        "" => name,
        description => format!("{name} ({description})"),
    }
}

fn list(mut words: Vec<String>) -> String {
    let last = words.pop().unwrap_or_default();
    if words.is_empty() { last } else { format!("{} and {last}", words.join(", ")) }
}

/// One result as a sentence, in the words in which it was asked for.
fn sentence(told: &str, tool: &str, result: &str) -> String {
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
    let asked = Text::new(told);
    let yes = match (result, is_yes_or_no(asked.word(0))) {
        ("true", true) => Some("Yes"),
        ("false", true) => Some("No"),
        _ => None,
    };
    if let Some(yes) = yes {
        return format!("{yes}: {tool} gives {result}.");
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

/// Words enough to stand for themselves, such as the error of a tool.
fn is_prose(result: &str) -> bool {
    let is_data = result.starts_with(['{', '[', '"']) || result.contains('\n');
    let is_word = |word: &&str| word.chars().filter(|c| c.is_alphabetic()).count() > 1;
    !is_data && result.split_whitespace().filter(is_word).count() >= 4
}

fn is_yes_or_no(word: &str) -> bool {
    is_listed("is are was were does do did can could has have will", word)
}

/// "The square root of 9 is", for "What is the square root of 9?" and "Calculate the square root of 9".
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
