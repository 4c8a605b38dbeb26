//! Explanations of invalid values: all mistakes, each with its path, what is expected there, and what was found.
//!
//! A [`Walk`] reads the text of a value and its [`Shape`] side by side. With [`Rules::Limits`], it looks only for the limits that a
//! type does not enforce itself; this is the check of values that the type accepted. With [`Rules::All`], it looks for
//! everything that the schema refuses, because something did.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::budget::{Budget, MAX_DEPTH};
use super::describe::{describe, describe_instead_of};
use crate::arguments::{
    MAX_NAME_CHARS, MAX_REPORT_BYTES, Members, Target, duplicate_members, list, nearest, tokens,
};
use crate::schema::{Kind, Length, Node, NodeId, Shape, integer};

/// The maximum number of characters of an invalid value in a message.
const MAX_QUOTE_CHARS: usize = 60;

/// The maximum number of known names in a message about an unknown one.
const MAX_NAMES: usize = 100;

/// The maximum number of schemas that the judge decides about. Each of them must be compiled.
const MAX_VERDICTS: usize = 64;

/// A validator of values against single schemas, where the schema decides and not a type.
pub(crate) trait Judge {
    /// Returns a function that validates JSON texts against a part of the schema, or `None` if that is not possible.
    fn verdict(&self, part: Map<String, Value>) -> Option<Verdict>;

    /// Returns a function that validates one of the arguments as a whole.
    fn verdict_about_argument(&self, name: &str) -> Option<Verdict>;
}

/// A function that returns `true` if a JSON text is valid.
pub(crate) type Verdict = Box<dyn Fn(&str) -> bool>;

/// A mistake in a value.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) path: String,
    pub(crate) text: String,
    /// The position of the value in the text of the argument.
    span: Range<usize>,
    /// Something is missing in an object that has members which the schema does not list, but the type has: it can be one of them.
    is_uncertain: bool,
    /// The type accepts the value, but it exceeds a limit of the schema.
    is_limit: bool,
}

/// Returns `true` if a value that its type accepts is within the limits of its schema.
pub(crate) fn is_within_limits(shape: &Shape, node: NodeId, text: &str) -> bool {
    let mut walk = Walk::new(shape, Rules::Limits, "", text);
    walk.value(node, text.trim_ascii(), 0);
    walk.mistakes.is_empty()
}

/// Explains which limits of its schema a value exceeds that its type accepts.
pub(crate) fn explain_limits(shape: &Shape, node: NodeId, path: &str, text: &str) -> Vec<Mistake> {
    let mut walk = Walk::new(shape, Rules::Limits, path, text);
    walk.value(node, text.trim_ascii(), 0);
    walk.mistakes
}

/// Explains why a target refused a value. Paths begin with the given one. `error` is that of its type.
pub(crate) fn explain(
    shape: &Shape,
    node: NodeId,
    path: &str,
    text: &str,
    target: &dyn Target,
    error: Option<&serde_json::Error>,
) -> Vec<Mistake> {
    let mut walk = Walk::new(shape, Rules::All(target), path, text);
    walk.value(node, text.trim_ascii(), 0);
    let mut mistakes = walk.mistakes;
    let mut is_explained = !mistakes.is_empty();
    let position = error.map(|error| tokens::value_at(text, error_offset(text, error)));
    if let (Some((_, value)), None) = (&position, target.judge()) {
        let start = offset_in(text, value);
        let at_error = start..start + value.len();
        let is_uncertain = mistakes.iter().any(|mistake| mistake.is_uncertain && mistake.span == at_error);
        // The type has read and accepted everything in front of the error.
        mistakes.retain(|mistake| {
            let is_accepted = mistake.span.end <= if is_uncertain { at_error.end } else { start };
            mistake.is_limit || !mistake.is_uncertain && !is_accepted
        });
        is_explained =
            mistakes.iter().any(|mistake| mistake.span.start < at_error.end && start < mistake.span.end);
    }
    if !is_explained && tokens::is_deeper_than(MAX_DEPTH - 1, text) {
        mistakes.extend(too_deep(path, text));
    } else if let (Some(error), Some((error_path, value)), false) = (error, position, is_explained)
        && duplicate_members(text).is_empty()
    {
        let start = offset_in(text, value);
        let (reason, path) = (error.to_string(), join(path, &error_path));
        let reason = without_position(&reason);
        let text = if path.is_empty() { reason.into() } else { format!("`{path}`: {reason}") };
        let span = start..start + value.len();
        mistakes.push(Mistake { path, text, span, is_uncertain: false, is_limit: false });
    }
    // Those of members that are missing are in front of those in the members.
    mistakes.sort_by_key(|mistake| mistake.span.start);
    mistakes
}

/// What a [`Walk`] looks for.
#[derive(Clone, Copy)]
enum Rules<'d> {
    Limits,
    All(&'d dyn Target),
}

/// A walk through a value and the schemas that describe it.
struct Walk<'w> {
    shape: &'w Shape,
    rules: Rules<'w>,
    /// The text of the whole value.
    text: &'w str,
    path: String,
    /// The steps from the whole value to the current one.
    steps: Vec<Step>,
    mistakes: Vec<Mistake>,
    budget: Budget,
    /// The verdicts of the judge about the members by pattern, or else about the other keywords, of a schema.
    verdicts: HashMap<(NodeId, bool), Option<Verdict>>,
}

/// A step into a value.
enum Step {
    Member(String),
    Item,
}

impl<'w> Walk<'w> {
    fn new(shape: &'w Shape, rules: Rules<'w>, path: &str, text: &'w str) -> Self {
        Self {
            shape,
            rules,
            text,
            path: path.into(),
            steps: Vec::new(),
            mistakes: Vec::new(),
            budget: Budget::for_text(text),
            verdicts: HashMap::new(),
        }
    }

    fn finds_all(&self) -> bool {
        matches!(self.rules, Rules::All(_))
    }

    fn judge(&self) -> Option<&'w dyn Judge> {
        match self.rules {
            Rules::All(target) => target.judge(),
            Rules::Limits => None,
        }
    }

    fn is_full(&self) -> bool {
        self.mistakes.iter().map(|mistake| mistake.text.len()).sum::<usize>() > MAX_REPORT_BYTES
    }

    /// Reports a mistake at the current path, unless there is one already.
    fn report(&mut self, text: String, value: &str) {
        if !self.mistakes.iter().any(|mistake| mistake.path == self.path) {
            let (path, start) = (self.path.clone(), offset_in(self.text, value));
            let span = start..start + value.len();
            self.mistakes.push(Mistake { path, text, span, is_uncertain: false, is_limit: false });
        }
    }

    /// Reports that a value is not what its schema describes.
    fn report_value(&mut self, node: NodeId, value: &str) {
        let expected = match self.is_too_large(self.shape.node(node), value) {
            true => format!("an integer from {} to {}", i64::MIN, u64::MAX),
            false => describe_instead_of(self.shape, node, value, has_type(self.shape.node(node), value)),
        };
        let described = self.shape.node(node);
        let has_limit = described.limits.items != Length::default() || !described.others.is_empty();
        let found = match serde_json::from_str::<Vec<&RawValue>>(value) {
            Ok(items) if has_limit => format!("a list of {}", items.len()),
            _ => quote(value),
        };
        let text = match &*self.path {
            "" => format!("expected {expected}"),
            path => format!("`{path}`: expected {expected}, got {found}"),
        };
        self.report(text, value);
    }

    /// Takes a step to a part of the value.
    fn step(&mut self, step: Step, path: &str, walk: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        let path = if length == 0 { path.trim_start_matches('.') } else { path };
        self.path.push_str(path);
        self.steps.push(step);
        walk(self);
        self.steps.pop();
        self.path.truncate(length);
    }

    fn value(&mut self, id: NodeId, text: &str, depth: usize) {
        if self.is_full() || self.budget.spend(text.len(), depth).is_none() {
            return;
        }
        let node = self.shape.node(id);
        let found_before = self.mistakes.len();
        if node.is_never {
            if self.finds_all() {
                self.report(format!("`{}` must be left out", self.path), text);
            }
            return;
        }
        for part in &node.all {
            self.value(*part, text, depth + 1);
        }
        if !has_type(node, text) {
            if self.finds_all() {
                self.report_value(id, text);
            }
            return;
        }
        self.choices(id, text, depth);
        if self.mistakes.len() > found_before {
            return;
        }
        let is_valid = is_one_of(node, text) && is_in_range(node, text) && !self.is_too_large(node, text);
        if self.finds_all() && !is_valid {
            self.report_value(id, text);
        } else if !node.limits.allow(text) {
            self.report_value(id, text);
            if let Some(mistake) = self.mistakes.last_mut() {
                mistake.is_limit = true;
            }
        }
        match Kind::of(text) {
            Some(Kind::Object) => self.members(id, text, depth),
            Some(Kind::Array) => self.items(id, text, depth),
            _ => {}
        }
        if self.mistakes.len() == found_before && !self.judge_accepts((id, false), &node.others, text) {
            self.report_value(id, text);
        }
    }

    /// Returns `true` if the judge cannot read an integer, because it has more than 64 bits. Without a type, or as a `number`, it
    /// can be any number.
    fn is_too_large(&self, node: &Node, text: &str) -> bool {
        let is_integer =
            Kind::of(text) == Some(Kind::Number) && node.types.is_some() && !node.names_type("number");
        let too_large = |integer: &str| integer.parse::<i64>().is_err() && integer.parse::<u64>().is_err();
        self.judge().is_some() && is_integer && integer(text).is_some_and(|integer| too_large(&integer))
    }

    /// Walks through the alternatives that can describe the value, of which one must hold.
    fn choices(&mut self, id: NodeId, text: &str, depth: usize) {
        let node = self.shape.node(id);
        if node.choices.is_empty() {
            return;
        }
        let choices: Vec<_> =
            node.choices.iter().copied().filter(|choice| self.has_type(*choice, text)).collect();
        let members = match serde_json::from_str(text) {
            Ok(Members(members)) => members,
            Err(_) => Vec::new(),
        };
        // The value is a name that none of the alternatives has.
        if self.finds_all() && choices.iter().all(|choice| !is_one_of(self.shape.node(*choice), text)) {
            return self.report_value(id, text);
        }
        let choices = self.narrowed(choices, |node| is_one_of(node, text) && self.has_tags(node, &members));
        let choices = self.narrowed(choices, |node| {
            node.required.iter().all(|name| members.iter().any(|(other, _)| other == name))
        });
        match *choices {
            [] => return,
            [choice] => return self.value(choice, text, depth + 1),
            _ => {}
        }
        let mut trials = Vec::new();
        for choice in choices {
            let before = std::mem::take(&mut self.mistakes);
            self.value(choice, text, depth + 1);
            let found = std::mem::replace(&mut self.mistakes, before);
            if found.is_empty() {
                return;
            }
            trials.push(found);
        }
        // The alternative with the fewest mistakes was probably meant.
        trials.sort_by_key(Vec::len);
        match &*trials {
            [first, second, ..] if first.len() == second.len() && self.finds_all() => {
                self.report_value(id, text)
            }
            _ => self.mistakes.extend(trials.swap_remove(0)),
        }
    }

    fn has_type(&self, choice: NodeId, text: &str) -> bool {
        let node = self.shape.node(choice);
        !node.is_never && has_type(node, text)
    }

    /// Returns the alternatives that satisfy the predicate, or all of them if none does.
    fn narrowed(&self, choices: Vec<NodeId>, predicate: impl Fn(&Node) -> bool) -> Vec<NodeId> {
        let narrowed: Vec<_> =
            choices.iter().copied().filter(|choice| predicate(self.shape.node(*choice))).collect();
        if narrowed.is_empty() { choices } else { narrowed }
    }

    /// Returns `true` if the members that have a constant value in the schema, the tags of a variant, have this value.
    fn has_tags(&self, node: &Node, members: &[(Cow<'_, str>, &RawValue)]) -> bool {
        let is_tag = |node: &Node| node.constants.as_ref().is_some_and(|constants| constants.len() == 1);
        members.iter().all(|(name, value)| match node.properties.get(&**name) {
            Some(property) if is_tag(self.shape.node(property.node)) => {
                is_one_of(self.shape.node(property.node), value.get())
            }
            _ => true,
        })
    }

    fn members(&mut self, id: NodeId, text: &str, depth: usize) {
        let Ok(Members(members)) = serde_json::from_str(text) else { return };
        let node = self.shape.node(id);
        if self.finds_all() {
            self.missing_members(node, &members, text);
        }
        for (name, value) in &members {
            if self.is_full() {
                return;
            }
            let found_before = self.mistakes.len();
            self.step(Step::Member(name.to_string()), &format!(".{name}"), |walk| {
                walk.member(id, name, value.get(), depth);
            });
            // An argument that the judge accepts has no mistakes.
            let is_argument = self.path.is_empty() && self.mistakes.len() > found_before;
            if is_argument && self.argument_verdict(name, value.get()) == Some(true) {
                self.mistakes.truncate(found_before);
            }
        }
        if self.path.is_empty() && self.mistakes.is_empty() {
            self.whole_arguments(node, &members);
        }
    }

    /// Reports the arguments that the judge refuses, without their parts: they are too deep or too large for the walk.
    fn whole_arguments(&mut self, node: &Node, members: &[(Cow<'_, str>, &RawValue)]) {
        for (name, value) in members {
            let Some(property) = node.properties.get(&**name) else { continue };
            if self.argument_verdict(name, value.get()) == Some(false) {
                self.step(Step::Member(name.to_string()), name, |walk| {
                    walk.report_value(property.node, value.get());
                });
            }
        }
    }

    /// Returns the verdict of the judge about an argument, if there is one.
    fn argument_verdict(&self, name: &str, value: &str) -> Option<bool> {
        let accepts = self.judge()?.verdict_about_argument(name)?;
        Some(accepts(value))
    }

    fn missing_members(&mut self, node: &Node, members: &[(Cow<'_, str>, &RawValue)], text: &str) {
        let names: HashSet<&str> = members.iter().map(|(name, _)| &**name).collect();
        let missing: Vec<_> = node.required.iter().filter(|name| !names.contains(name.as_str())).collect();
        // A name that the schema does not list can be another name of one that it requires.
        let is_other_name = |(name, value): &(Cow<'_, str>, &RawValue)| {
            node.member(name).is_none() && self.has_member(name, value.get())
        };
        let is_uncertain = !missing.is_empty() && members.iter().any(is_other_name);
        for name in missing {
            if self.is_full() {
                return;
            }
            self.step(Step::Member(name.clone()), &format!(".{name}"), |walk| {
                let property = node.properties.get(name);
                let expected =
                    property.map_or("a value".into(), |property| describe(walk.shape, property.node));
                let description = property.and_then(|property| property.description.as_deref());
                walk.report(missing_value(&walk.path, &expected, description), text);
            });
            if let Some(mistake) = self.mistakes.last_mut() {
                mistake.is_uncertain |= is_uncertain;
            }
        }
    }

    /// Returns `true` if the type has a member of this name in the current object, whatever the schema says.
    fn has_member(&self, name: &str, value: &str) -> bool {
        let Rules::All(target) = self.rules else { return false };
        // Nothing but this member and what encloses it, so that no other mistake is in its way.
        let (mut start, mut end) = (String::new(), String::new());
        for step in &self.steps {
            match step {
                Step::Member(name) => start.extend(["{", &Value::from(&**name).to_string(), ":"]),
                Step::Item => start.push('['),
            }
            end.insert(0, if matches!(step, Step::Item) { ']' } else { '}' });
        }
        start.extend(["{", &Value::from(name).to_string()]);
        target.has_member(&format!("{start}:{value}}}{end}"), name, start.len())
    }

    fn member(&mut self, id: NodeId, name: &str, value: &str, depth: usize) {
        let node = self.shape.node(id);
        if let Some(property) = node.properties.get(name) {
            return self.value(property.node, value, depth + 1);
        }
        if let Some(by_pattern) = &node.by_pattern {
            let member = format!("{{{}:{value}}}", Value::from(name));
            if !self.judge_accepts((id, true), by_pattern, &member) {
                let path = &self.path;
                let expected = "what `patternProperties` of the schema allows";
                self.report(format!("`{path}`: expected {expected}, got {}", quote(value)), value);
            }
            return;
        }
        let Some(additional) = node.additional else { return };
        if !self.shape.node(additional).is_never {
            return self.value(additional, value, depth + 1);
        }
        let enclosing = self.path[..self.path.len() - name.len()].trim_end_matches('.');
        // Unknown arguments of the tool are reported by the caller.
        if self.finds_all() && !enclosing.is_empty() {
            let unknown = unknown_name(name, &node.names);
            self.report(format!("`{enclosing}`: {unknown}"), value);
        }
    }

    fn items(&mut self, id: NodeId, text: &str, depth: usize) {
        let Ok(values) = serde_json::from_str::<Vec<&RawValue>>(text) else { return };
        let node = self.shape.node(id);
        for (index, value) in values.iter().enumerate() {
            let Some(item) = node.item(index).filter(|_| !self.is_full()) else { return };
            self.step(Step::Item, &format!("[{index}]"), |walk| walk.value(item, value.get(), depth + 1));
        }
    }

    /// Returns the verdict of the judge about a part of a schema, or `true` if there is none.
    fn judge_accepts(&mut self, id: (NodeId, bool), part: &Map<String, Value>, text: &str) -> bool {
        let Some(judge) = self.judge().filter(|_| !part.is_empty()) else { return true };
        if self.verdicts.len() == MAX_VERDICTS && !self.verdicts.contains_key(&id) {
            return true;
        }
        let verdict = self.verdicts.entry(id).or_insert_with(|| judge.verdict(part.clone()));
        verdict.as_ref().is_none_or(|is_valid| is_valid(text))
    }
}

/// Returns `true` if the value has the `type`, if there is one.
fn has_type(node: &Node, text: &str) -> bool {
    let matches = |name: &str| match (name, Kind::of(text)) {
        ("string", Some(Kind::String))
        | ("object", Some(Kind::Object))
        | ("array", Some(Kind::Array))
        | ("boolean", Some(Kind::Boolean))
        | ("null", Some(Kind::Null))
        | ("number", Some(Kind::Number)) => true,
        ("integer", Some(Kind::Number)) => match integer(text) {
            // A type reads no other notation of an integer, such as `1.0`.
            Some(integer) => node.range.is_none() || integer == text,
            None => false,
        },
        _ => false,
    };
    node.types.as_ref().is_none_or(|types| types.iter().any(|name| matches(name)))
}

/// Returns `true` if an integer is in the range of its type.
fn is_in_range(node: &Node, text: &str) -> bool {
    let Some((lowest, highest)) = node.range.filter(|_| Kind::of(text) == Some(Kind::Number)) else {
        return true;
    };
    let in_range =
        |integer: &str| integer.parse::<i128>().is_ok_and(|integer| (lowest..=highest).contains(&integer));
    integer(text).is_some_and(|integer| in_range(&integer))
}

/// Returns `true` if `enum` and `const` allow the value, if they are present.
fn is_one_of(node: &Node, text: &str) -> bool {
    let Some(constants) = &node.constants else { return true };
    let Ok(value) = serde_json::from_str::<Value>(text) else { return true };
    let is_equal = |other: &Value| *other == value || (other.is_number() && other.as_f64() == value.as_f64());
    constants.iter().any(is_equal)
}

/// Returns the offset of a part of a text.
fn offset_in(text: &str, part: &str) -> usize {
    part.as_ptr().addr().saturating_sub(text.as_ptr().addr())
}

/// Appends the path of a part (`.stops[2]`) to that of its value.
pub(crate) fn join(path: &str, part: &str) -> String {
    match path {
        "" => part.trim_start_matches('.').into(),
        path => format!("{path}{part}"),
    }
}

/// Explains that a required value is missing.
pub(crate) fn missing_value(path: &str, expected: &str, description: Option<&str>) -> String {
    let mut mistake = format!("`{path}` is missing, expected {expected}");
    if let Some(description) = description {
        mistake.extend([" (", description, ")"]);
    }
    mistake
}

/// Explains that an object contains a member twice. The path is that of [`duplicate_members`](tokens::duplicate_members).
pub(crate) fn duplicate_member(path: &str) -> String {
    let path = path.strip_prefix('.').unwrap_or(path);
    let end = path.char_indices().nth(MAX_NAME_CHARS).map_or(path.len(), |(end, _)| end);
    format!("`{}` is given twice", &path[..end])
}

/// Explains that an object does not have a member. Of very many names, some are listed, among them the most similar.
pub(crate) fn unknown_name<N: AsRef<str>>(name: &str, known: &[N]) -> String {
    let end = name.char_indices().nth(MAX_NAME_CHARS).map_or(name.len(), |(end, _)| end);
    let name = &name[..end];
    let known = known.iter().map(AsRef::as_ref);
    let nearest = nearest(name, known.clone());
    let others = known.clone().filter(|other| Some(*other) != nearest);
    let listed: Vec<_> = match known.clone().nth(MAX_NAMES) {
        Some(_) => nearest.into_iter().chain(others).take(MAX_NAMES).collect(),
        None => known.collect(),
    };
    let mut mistake = format!("there is no argument `{name}`");
    match list(listed.into_iter()) {
        Some(known) => mistake.extend([", the arguments are ", &known]),
        None => mistake.push_str(", the tool takes no arguments"),
    }
    if let Some(nearest) = nearest {
        mistake.extend([", did you mean `", nearest, "`?"]);
    }
    mistake
}

/// Explains that the text is not a JSON object.
pub(crate) fn not_an_object(text: &str, error: &serde_json::Error) -> String {
    if error.is_data() {
        format!("expected a JSON object, got {}", quote(text))
    } else {
        format!("not valid JSON: {error}")
    }
}

/// Explains that a value, or of all arguments some members, are nested too deeply.
fn too_deep(path: &str, text: &str) -> Vec<Mistake> {
    let mistake = |path: &str| Mistake {
        path: path.into(),
        text: format!("`{path}` is nested too deeply, {MAX_DEPTH} levels are read at most"),
        span: 0..text.len(),
        is_uncertain: false,
        is_limit: false,
    };
    match serde_json::from_str(text) {
        Ok(Members(members)) if path.is_empty() => {
            let deep = members.iter().filter(|(_, value)| tokens::is_deeper_than(MAX_DEPTH - 2, value.get()));
            deep.map(|(name, _)| mistake(name)).collect()
        }
        _ => vec![mistake(path)],
    }
}

/// Removes the line and column from the text of an error of serde_json.
fn without_position(reason: &str) -> &str {
    reason.rsplit_once(" at line ").map_or(reason, |(reason, _)| reason)
}

/// Quotes a value as the model wrote it, truncated; objects and lists are only named.
fn quote(value: &str) -> String {
    let value = value.trim_ascii();
    match Kind::of(value) {
        Some(Kind::Object) => "an object".into(),
        Some(Kind::Array) => "a list".into(),
        _ if value.chars().count() <= MAX_QUOTE_CHARS => value.into(),
        _ => value.chars().take(MAX_QUOTE_CHARS).chain(['…']).collect(),
    }
}

/// Returns the offset of an error in the text: after the invalid value, or on its first byte.
pub(crate) fn error_offset(text: &str, error: &serde_json::Error) -> usize {
    let lines_before: usize =
        text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let offset = lines_before + error.column();
    // The error for an unexpected list or object is in front of it.
    let is_before_value = matches!(text.as_bytes().get(offset), Some(b'{' | b'['));
    (offset + usize::from(is_before_value)).clamp(1, text.len().max(1))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::arguments::{ToolParameter, Typed};
    use crate::schema::{SchemaOf, arguments_schema};

    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "never parsed successfully")]
    struct Trip {
        name: String,
        stops: Vec<Stop>,
        prices: Option<BTreeMap<String, f64>>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "never parsed successfully")]
    struct Stop {
        nights: u8,
        by: Option<By>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    enum By {
        Train,
        Boat,
    }

    fn mistakes<T: ToolParameter>(text: &str) -> Vec<String> {
        let shape = Shape::parse(&arguments_schema::<T>(), SchemaOf::Type);
        let error = serde_json::from_str::<T>(text).err().expect("the text is wrong");
        let found = explain(&shape, shape.root(), "it", text, &Typed::<T>(None), Some(&error));
        found.into_iter().map(|mistake| mistake.text).collect()
    }

    fn mistake<T: ToolParameter>(text: &str) -> String {
        mistakes::<T>(text).join("; ")
    }

    #[test]
    fn all_mistakes_are_explained() {
        let cases: [(&str, &[&str]); 4] = [
            (
                r#"{"name": 5, "stops": [{"nights": 300}, {"by": "Plane"}, 7], "prices": {"wine": "dear"}}"#,
                &[
                    "`it.name`: expected a string, got 5",
                    "`it.stops[0].nights`: expected an integer from 0 to 255, got 300",
                    "`it.stops[1].nights` is missing, expected an integer from 0 to 255",
                    "`it.stops[1].by`: expected one of \"Train\", \"Boat\", null, got \"Plane\"",
                    "`it.stops[2]`: expected an object, got 7",
                    "`it.prices.wine`: expected a number, got \"dear\"",
                ],
            ),
            (
                r#"{"nme": "Rome", "stops": 3}"#,
                &["`it.name` is missing, expected a string", "`it.stops`: expected a list, got 3"],
            ),
            ("3", &["`it`: expected an object, got 3"]),
            (
                r#"{"name": "x", "stops": [{"nights": 1}, {"nights": 2}], "prices": [1]}"#,
                &["`it.prices`: expected an object or null, got a list"],
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(mistakes::<Trip>(text), expected, "{text}");
        }
    }

    #[test]
    fn types_decide_and_not_their_schemas() {
        /// The schema knows neither the other name nor the numbers that are read as texts.
        #[derive(Debug, Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "never parsed successfully")]
        struct User {
            #[serde(alias = "nick")]
            name: String,
            #[serde(deserialize_with = "text_of_anything")]
            id: String,
            age: u8,
            #[serde(default)]
            friends: Vec<User>,
        }

        fn text_of_anything<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
            Value::deserialize(deserializer).map(|value| value.to_string())
        }

        let cases: [(&str, &[&str]); 4] = [
            (
                r#"{"nick": "Ada", "id": 7, "age": -1}"#,
                &["`it.age`: expected an integer from 0 to 255, got -1"],
            ),
            (r#"{"nick": "Ada", "id": 7}"#, &["`it`: missing field `age`"]),
            (
                r#"{"nik": "Ada", "id": "7"}"#,
                &[
                    "`it.name` is missing, expected a string",
                    "`it.age` is missing, expected an integer from 0 to 255",
                ],
            ),
            (
                r#"{"name": "Ada", "id": "7", "age": "x", "friends": [{"nick": "Bea", "id": "1", "age": 300}]}"#,
                &[
                    "`it.age`: expected an integer from 0 to 255, got \"x\"",
                    "`it.friends[0].age`: expected an integer from 0 to 255, got 300",
                ],
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(mistakes::<User>(text), expected, "{text}");
        }
    }

    #[test]
    fn mistakes_at_the_top_level() {
        assert_eq!(
            mistake::<i32>("\"abc\""),
            "`it`: expected an integer from -2147483648 to 2147483647, got \"abc\""
        );
        assert_eq!(mistake::<u8>("300"), "`it`: expected an integer from 0 to 255, got 300");
        assert_eq!(mistake::<f64>("[1]"), "`it`: expected a number, got a list");
        assert_eq!(mistake::<String>("{\"a\": 1}"), "`it`: expected a string, got an object");
        assert_eq!(mistake::<By>("\"Plane\""), "`it`: expected one of \"Train\", \"Boat\", got \"Plane\"");
        assert_eq!(mistake::<Vec<u8>>("3"), "`it`: expected a list, got 3");
        assert_eq!(mistake::<Trip>("3"), "`it`: expected an object, got 3");
    }

    #[test]
    fn unexpected_lists_and_objects() {
        let table = [
            (r#"{"name": {"x": 1}, "stops": []}"#, "`it.name`: expected a string, got an object"),
            (r#"{"name":["x"],"stops":[]}"#, "`it.name`: expected a string, got a list"),
            (r#"{"name": "x", "stops": {"a": 1}}"#, "`it.stops`: expected a list, got an object"),
            (
                r#"{"name": "x", "stops": [{"nights": [1]}]}"#,
                "`it.stops[0].nights`: expected an integer from 0 to 255, got a list",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(mistake::<Trip>(text), expected, "{text}");
        }
    }

    #[test]
    fn mistakes_inside_tagged_enums() {
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(tag = "is")]
        #[expect(dead_code, reason = "never parsed successfully")]
        enum Leg {
            Ride { by: By },
            Stay { nights: u8 },
        }
        let table = [
            (
                r#"{"is": "Ride", "by": "Plane"}"#,
                "`it.by`: expected one of \"Train\", \"Boat\", got \"Plane\"",
            ),
            (r#"{"is": "Stay", "nights": "x"}"#, "`it.nights`: expected an integer from 0 to 255, got \"x\""),
            (r#"{"is": "Stay"}"#, "`it.nights` is missing, expected an integer from 0 to 255"),
        ];
        for (text, expected) in table {
            assert_eq!(mistake::<Leg>(text), expected, "{text}");
        }
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "never parsed successfully")]
    enum Figure {
        Circle { radius: u8 },
        Square(u8),
        Dot,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "never parsed successfully")]
    enum Either {
        Number(u8),
        Text(String),
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(try_from = "i32")]
    struct Positive;

    impl TryFrom<i32> for Positive {
        type Error = String;

        fn try_from(_: i32) -> Result<Self, String> {
            Err("must not be negative".into())
        }
    }

    #[test]
    fn mistakes_in_unusual_types() {
        assert_eq!(mistake::<(u8, String)>("[1]"), "`it`: expected a list of 2 items, got a list of 1");
        assert_eq!(
            mistake::<Figure>("\"Circl\""),
            "`it`: expected an object with \"Circle\" or an object with \"Square\" or \"Dot\", got \"Circl\""
        );
        assert_eq!(
            mistake::<Figure>("{\"Circle\":{}}"),
            "`it.Circle.radius` is missing, expected an integer from 0 to 255"
        );
        assert_eq!(mistake::<char>("\"éé\""), "`it`: expected a character, got \"éé\"");
        assert_eq!(mistake::<i128>("1e3"), "`it`: expected an integer, got 1e3");
        assert_eq!(mistake::<u128>("-1"), "`it`: expected an integer from 0, got -1");
        assert_eq!(
            mistake::<Either>("[]"),
            "`it`: expected an integer from 0 to 255 or a string, got a list"
        );
        assert_eq!(mistake::<Positive>("-1"), "`it`: must not be negative");
    }

    #[test]
    fn nested_mistakes() {
        let cases = [
            (r#"{"name": 5, "stops": []}"#, "`it.name`: expected a string, got 5"),
            (
                r#"{"name": "x", "stops": [{"nights": 1}, {"nights": -1}]}"#,
                "`it.stops[1].nights`: expected an integer from 0 to 255, got -1",
            ),
            (
                r#"{"name": "x", "stops": [{"nights": 1}, {}]}"#,
                "`it.stops[1].nights` is missing, expected an integer from 0 to 255",
            ),
            (r#"{"name": "x"}"#, "`it.stops` is missing, expected a list"),
            (
                "{\n  \"name\": \"a } , ]\\\"\",\n  \"stops\": [],\n  \"prices\": {\"wine\": \"dear\"}\n}",
                "`it.prices.wine`: expected a number, got \"dear\"",
            ),
            (
                r#"{"name": "x", "stops": [{"nights": 1, "by": "Plane"}]}"#,
                "`it.stops[0].by`: expected one of \"Train\", \"Boat\", null, got \"Plane\"",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(mistake::<Trip>(text), expected, "{text}");
        }
    }

    #[test]
    fn long_values_are_truncated_between_characters() {
        let mistake = mistake::<u8>(&format!("{:?}", "é".repeat(1000)));
        assert!(mistake.ends_with("é…") && mistake.chars().count() < 120, "{mistake}");
    }

    #[test]
    fn deep_values_are_reported() {
        let text = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
        assert!(mistake::<serde_json::Value>(&text).starts_with("`it` is nested too deeply"));
    }
}
