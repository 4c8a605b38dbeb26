//! Reading the object of all arguments by its schema, for tools that are no `#[tool]` functions.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::arguments::{Inspection, Judge, MAX_REPORT_BYTES, Members, Repair, add_mistake, explain, repair};
use crate::schema::is_closed_object;
use crate::tool::{ToolContext, ToolError, ToolFuture};

/// A tool that takes its arguments as one object.
pub(super) trait ObjectTool {
    /// The schema that the model was given.
    fn parameters(&self) -> &Value;

    /// The schema to mend by and to tell mistakes by.
    fn schema(&self) -> Cow<'_, Value> {
        Cow::Borrowed(self.parameters())
    }

    /// Calls the tool, if the text of an object holds what it takes.
    ///
    /// The last attempt is made with what could be mended.
    fn call(&self, object: &str, context: &ToolContext, is_last: bool) -> Option<ToolFuture<'static>>;

    /// A member is taken though the schema does not list its name.
    fn takes(&self, _name: &str, _value: &RawValue) -> bool {
        false
    }

    /// What is wrong with an argument that its type reads all the same.
    fn broken(&self, _name: &str, _value: &str) -> Option<String> {
        None
    }

    /// Why the object cannot be read, if its type says so.
    fn error(&self, _object: &str) -> Option<serde_json::Error> {
        None
    }

    /// Who knows whether a value fits a schema, if there is anyone but the type itself.
    fn judge(&self) -> Option<&dyn Judge> {
        None
    }
}

/// One member of the object, as it came or as it was mended.
type Member<'a> = (&'a str, Cow<'a, str>);

/// Reads the arguments and calls the tool, or refuses the call with all mistakes at once.
pub(super) fn call(tool: &dyn ObjectTool, text: &str, context: &ToolContext) -> ToolFuture<'static> {
    // Models without anything to say send these.
    let text = if matches!(text.trim_ascii(), "" | "null") { "{}" } else { text };
    let error = match serde_json::from_str(text) {
        Ok(Members(members)) => return call_with_known(tool, text, members, context),
        Err(error) => error,
    };
    let mended = (!context.has_strict_arguments()).then(|| repair::repair_text(text)).flatten();
    if let Some(mended) = mended
        && let Ok(Members(members)) = serde_json::from_str(&mended)
    {
        let repair = Repair::for_text(text, &mended);
        return call_with_known(tool, &mended, members, context).with_repairs(vec![repair]);
    }
    refuse(&explain::not_an_object(text, &error))
}

/// As [`call_with`], after what the tool does not have was left out, if its set says so.
fn call_with_known(
    tool: &dyn ObjectTool,
    text: &str,
    members: Vec<(Cow<'_, str>, &RawValue)>,
    context: &ToolContext,
) -> ToolFuture<'static> {
    if !context.reading().ignores_unknown {
        return call_with(tool, text, &members, context);
    }
    let is_known = knows(tool);
    let (known, unknown): (Vec<_>, Vec<_>) =
        members.into_iter().partition(|(name, value)| is_known(name, value));
    let known_text =
        object_of(&known.iter().map(|(name, value)| (&**name, value.get().into())).collect::<Vec<_>>());
    let ignored = unknown.iter().map(|(name, value)| Repair::for_ignored(name, value.get())).collect();
    call_with(tool, &known_text, &known, context).with_repairs(ignored)
}

/// Whether the tool takes a member of a name.
fn knows<'a>(tool: &'a dyn ObjectTool) -> impl Fn(&str, &RawValue) -> bool + 'a {
    let parameters = tool.parameters();
    let properties = parameters.get("properties").and_then(Value::as_object);
    let is_closed = parameters.as_object().is_some_and(is_closed_object);
    move |name, value| {
        !is_closed
            || properties.is_some_and(|properties| properties.contains_key(name))
            || tool.takes(name, value)
    }
}

fn call_with(
    tool: &dyn ObjectTool,
    text: &str,
    members: &[(Cow<'_, str>, &RawValue)],
    context: &ToolContext,
) -> ToolFuture<'static> {
    let names = mistakes_in_names(tool, members);
    if names.is_empty()
        && let Some(future) = tool.call(text, context, false)
    {
        return future;
    }
    let schema = tool.schema();
    let (members, repairs) = mend(&schema, members, context.has_strict_arguments());
    let text = object_of(&members);
    // What was mended may be wrong still.
    let mut names = names;
    if names.is_empty() {
        names.extend(members.iter().find_map(|(name, value)| tool.broken(name, value)));
    }
    if names.is_empty()
        && let Some(future) = tool.call(&text, context, true)
    {
        return future.with_repairs(repairs);
    }
    let mut inspection = Inspection::new(&schema, tool.judge());
    for mistake in names {
        inspection.report_first(&mistake);
    }
    let error = tool.error(&text);
    let located = error.as_ref().and_then(|error| locate(&schema, &text, error));
    if let Some(mistake) = &located {
        inspection.report_first(mistake);
    }
    for (name, value) in &members {
        if is_too_deep(value) {
            inspection.report_first(&explain::too_deep(name));
        }
    }
    inspection.inspect_arguments(&text);
    let mut mistakes = inspection.into_report();
    if mistakes.is_empty() {
        let reason = error.map(|error| error.to_string());
        let reason = reason.as_deref().map(explain::without_position);
        add_mistake(&mut mistakes, reason.unwrap_or("they do not fit the schema of the tool"));
    }
    refuse(&mistakes)
}

fn refuse(mistakes: &str) -> ToolFuture<'static> {
    ToolFuture::ready(Err(ToolError::invalid_arguments(format!("invalid arguments: {mistakes}"))))
}

/// What is given twice, what the tool does not have, and numbers that their type cannot hold; no more than will be told.
fn mistakes_in_names(tool: &dyn ObjectTool, members: &[(Cow<'_, str>, &RawValue)]) -> Vec<String> {
    let properties = tool.parameters().get("properties").and_then(Value::as_object);
    let is_known = knows(tool);
    let (mut mistakes, mut length) = (Vec::new(), 0);
    let mut names = HashSet::new();
    for (name, value) in members {
        let mistake = if !names.insert(&**name) {
            format!("`{name}` is given twice")
        } else if !is_known(name, value) {
            explain::unknown_property(name, properties)
        } else if let Some(broken) = tool.broken(name, value.get()) {
            broken
        } else {
            continue;
        };
        length += mistake.len();
        mistakes.push(mistake);
        if length > MAX_REPORT_BYTES {
            break;
        }
    }
    mistakes
}

/// The members as the schema asks for them, as far as they are clear in meaning.
///
/// `null` for what may be left out says that it is left out, even where nothing is mended.
fn mend<'a>(
    schema: &Value,
    members: &'a [(Cow<'a, str>, &'a RawValue)],
    is_strict: bool,
) -> (Vec<Member<'a>>, Vec<Repair>) {
    let required = schema.get("required").and_then(Value::as_array);
    let required: HashSet<_> = required.into_iter().flatten().filter_map(Value::as_str).collect();
    let (mut mended, mut repairs) = (Vec::with_capacity(members.len()), Vec::new());
    for (name, value) in members {
        let text = value.get();
        let property = schema.get("properties").and_then(|properties| properties.get(&**name));
        let property = property.or_else(|| schema.get("additionalProperties"));
        let value = match property.map(|property| repair::conform(schema, property, text)) {
            Some(None) if text == "null" && !required.contains(&**name) => continue,
            Some(Some(Cow::Owned(better))) => {
                if leaves_out_nulls(text, &better) {
                    Cow::Owned(better)
                } else if is_strict {
                    Cow::Borrowed(text)
                } else {
                    repairs.push(Repair::for_argument(name, text, &better));
                    Cow::Owned(better)
                }
            }
            _ => Cow::Borrowed(text),
        };
        mended.push((&**name, value));
    }
    (mended, repairs)
}

/// The two texts differ by members that are `null` in the first one, and by nothing else.
fn leaves_out_nulls(text: &str, other: &str) -> bool {
    fn without_nulls(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.retain(|_, value| !value.is_null());
                members.values_mut().for_each(without_nulls);
            }
            Value::Array(values) => values.iter_mut().for_each(without_nulls),
            _ => {}
        }
    }
    let read = |text| {
        let mut value = serde_json::from_str(text).ok()?;
        without_nulls(&mut value);
        Some(value)
    };
    text.contains("null") && read(text).is_some_and(|value: Value| Some(value) == read(other))
}

fn object_of(members: &[Member<'_>]) -> String {
    let mut object = String::from("{");
    for (name, value) in members {
        if object.len() > 1 {
            object.push(',');
        }
        object.push_str(&Value::from(*name).to_string());
        object.push(':');
        object.push_str(value);
    }
    object.push('}');
    object
}

/// The error in words, if it was met in the value of a member.
fn locate(schema: &Value, text: &str, error: &serde_json::Error) -> Option<String> {
    let Members(members) = serde_json::from_str(text).ok()?;
    let offset = explain::error_offset(text, error);
    let start_of = |value: &RawValue| value.get().as_ptr().addr() - text.as_ptr().addr();
    let is_met_in =
        |value: &RawValue| (start_of(value)..start_of(value) + value.get().len()).contains(&(offset - 1));
    let (name, value) = members.into_iter().find(|(_, value)| is_met_in(value))?;
    let property = || {
        let property = schema.get("properties").and_then(|properties| properties.get(&*name));
        property.cloned().unwrap_or_default()
    };
    let offset = offset - start_of(value);
    Some(explain::wrong_value_at(&name, value.get(), offset, error, &property))
}

/// serde_json would not read the value as a member of an object.
fn is_too_deep(text: &str) -> bool {
    let (mut depth, mut is_in_string, mut is_escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_in_string,
            b'"' => is_in_string = !is_in_string,
            b'{' | b'[' if !is_in_string => depth += 1,
            b'}' | b']' if !is_in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        // The object itself is one level.
        if depth + 1 >= explain::MAX_DEPTH {
            return true;
        }
    }
    false
}
