//! Reads the arguments of closures and dynamic tools as one object, guided by its schema.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::arguments::{
    Inspection, Judge, MAX_REPORT_BYTES, Members, Repair, add_mistake, duplicate_members, explain, repair,
    tokens,
};
use crate::schema::is_closed_object;
use crate::tool::{ToolContext, ToolError, ToolFuture};

/// A tool that takes its arguments as one object.
pub(super) trait ObjectTool {
    /// Returns the schema that is sent to the model.
    fn parameters(&self) -> &Value;

    /// Returns the schema that guides repairs and explanations.
    fn schema(&self) -> Cow<'_, Value> {
        Cow::Borrowed(self.parameters())
    }

    /// Calls the tool if the text of an object contains valid arguments.
    ///
    /// The last attempt is made with the repaired arguments.
    fn call(&self, object: &str, context: &ToolContext, is_last: bool) -> Option<ToolFuture<'static>>;

    /// Returns `true` if the tool accepts a member that the schema does not list.
    fn accepts_unlisted(&self, _name: &str, _value: &RawValue) -> bool {
        false
    }

    /// Returns the limit that an argument violates even if its type can be deserialized.
    fn violated_limit(&self, _name: &str, _value: &str) -> Option<String> {
        None
    }

    /// Returns the error of deserializing the object, if its type determines it.
    fn parse_error(&self, _object: &str) -> Option<serde_json::Error> {
        None
    }

    /// Returns the judge of whether a value matches a schema, unless the type itself decides.
    fn judge(&self) -> Option<&dyn Judge> {
        None
    }
}

/// One member of the object, original or repaired.
type Member<'a> = (&'a str, Cow<'a, str>);

/// Reads the arguments and calls the tool, or refuses the call with all mistakes.
pub(super) fn call(tool: &dyn ObjectTool, text: &str, context: &ToolContext) -> ToolFuture<'static> {
    // Models send these when there are no arguments.
    let text = if matches!(text.trim_ascii(), "" | "null") { "{}" } else { text };
    let error = match serde_json::from_str(text) {
        Ok(Members(members)) => return call_with_known_members(tool, text, members, context),
        Err(error) => error,
    };
    let repaired = (!context.has_strict_arguments()).then(|| repair::repair_text(text)).flatten();
    if let Some(repaired) = repaired
        && let Ok(Members(members)) = serde_json::from_str(&repaired)
    {
        let repair = Repair::for_text(text, &repaired);
        return call_with_known_members(tool, &repaired, members, context).with_repairs(vec![repair]);
    }
    refuse(&explain::not_an_object(text, &error))
}

/// Like [`call_with_members`], but removes unknown members first if the set ignores them.
fn call_with_known_members(
    tool: &dyn ObjectTool,
    text: &str,
    members: Vec<(Cow<'_, str>, &RawValue)>,
    context: &ToolContext,
) -> ToolFuture<'static> {
    // Unknown members are included, because the text that a person reads contains them.
    let duplicates = duplicate_mistakes(text);
    if !context.read_mode().ignores_unknown {
        return call_with_members(tool, text, &members, duplicates, context);
    }
    let is_known = accepts_member(tool);
    let (known, unknown): (Vec<_>, Vec<_>) =
        members.into_iter().partition(|(name, value)| is_known(name, value));
    let known_text =
        write_object(&known.iter().map(|(name, value)| (&**name, value.get().into())).collect::<Vec<_>>());
    let ignored = unknown.iter().map(|(name, value)| Repair::for_ignored(name, value.get())).collect();
    call_with_members(tool, &known_text, &known, duplicates, context).with_repairs(ignored)
}

/// Returns a predicate for the members that the tool accepts.
fn accepts_member<'a>(tool: &'a dyn ObjectTool) -> impl Fn(&str, &RawValue) -> bool + 'a {
    let parameters = tool.parameters();
    let properties = parameters.get("properties").and_then(Value::as_object);
    let is_closed = parameters.as_object().is_some_and(is_closed_object);
    move |name, value| {
        !is_closed
            || properties.is_some_and(|properties| properties.contains_key(name))
            || tool.accepts_unlisted(name, value)
    }
}

fn call_with_members(
    tool: &dyn ObjectTool,
    text: &str,
    members: &[(Cow<'_, str>, &RawValue)],
    mut mistakes: Vec<String>,
    context: &ToolContext,
) -> ToolFuture<'static> {
    mistakes.extend(member_mistakes(tool, members));
    if mistakes.is_empty()
        && let Some(future) = tool.call(text, context, false)
    {
        return future;
    }
    let schema = tool.schema();
    let (members, repairs) = repair_members(&schema, members, context.has_strict_arguments());
    let text = write_object(&members);
    // A string that turned out to be an object can contain duplicates, and repaired values can violate limits.
    if mistakes.is_empty() {
        mistakes = duplicate_mistakes(&text);
    }
    if mistakes.is_empty() {
        mistakes.extend(members.iter().find_map(|(name, value)| tool.violated_limit(name, value)));
    }
    if mistakes.is_empty()
        && let Some(future) = tool.call(&text, context, true)
    {
        return future.with_repairs(repairs);
    }
    let mut inspection = Inspection::new(&schema, tool.judge());
    for mistake in mistakes {
        inspection.report_first(&mistake);
    }
    let error = tool.parse_error(&text).filter(|error| !explain::is_duplicate_member(error, &text));
    let located = error.as_ref().and_then(|error| explain_in_member(&schema, &text, error));
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
        add_mistake(&mut mistakes, reason.unwrap_or("they do not match the schema of the tool"));
    }
    refuse(&mistakes)
}

fn refuse(mistakes: &str) -> ToolFuture<'static> {
    ToolFuture::ready(Err(ToolError::invalid_arguments(format!("invalid arguments: {mistakes}"))))
}

fn duplicate_mistakes(text: &str) -> Vec<String> {
    duplicate_members(text).iter().map(|path| explain::duplicate_member(path)).collect()
}

/// Returns unknown members and violated limits, but not more than are reported.
fn member_mistakes(tool: &dyn ObjectTool, members: &[(Cow<'_, str>, &RawValue)]) -> Vec<String> {
    let properties = tool.parameters().get("properties").and_then(Value::as_object);
    let is_known = accepts_member(tool);
    let (mut mistakes, mut length) = (Vec::new(), 0);
    let mut names = HashSet::new();
    for (name, value) in members {
        let mistake = if !names.insert(&**name) {
            continue;
        } else if !is_known(name, value) {
            explain::unknown_property(name, properties)
        } else if let Some(violated) = tool.violated_limit(name, value.get()) {
            violated
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

/// Returns the members as the schema requires them, as far as their meaning is clear, and the repairs.
///
/// A `null` for an optional member means that it is omitted, even if nothing is repaired.
fn repair_members<'a>(
    schema: &Value,
    members: &'a [(Cow<'a, str>, &'a RawValue)],
    is_strict: bool,
) -> (Vec<Member<'a>>, Vec<Repair>) {
    let required = schema.get("required").and_then(Value::as_array);
    let required: HashSet<_> = required.into_iter().flatten().filter_map(Value::as_str).collect();
    let (mut repaired, mut repairs) = (Vec::with_capacity(members.len()), Vec::new());
    for (name, value) in members {
        let text = value.get();
        let property = schema.get("properties").and_then(|properties| properties.get(&**name));
        let property = property.or_else(|| schema.get("additionalProperties"));
        let value = match property.map(|property| repair::conform(schema, property, text)) {
            Some(None) if text == "null" && !required.contains(&**name) => continue,
            Some(Some(Cow::Owned(fitting))) => {
                if differs_only_by_nulls(text, &fitting) {
                    Cow::Owned(fitting)
                } else if is_strict {
                    Cow::Borrowed(text)
                } else {
                    repairs.push(Repair::for_argument(name, text, &fitting));
                    Cow::Owned(fitting)
                }
            }
            _ => Cow::Borrowed(text),
        };
        repaired.push((&**name, value));
    }
    (repaired, repairs)
}

/// Returns `true` if the texts are equal except for members that are `null`, and the first text contains any.
fn differs_only_by_nulls(text: &str, other: &str) -> bool {
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
    let parse = |text| {
        let mut value = serde_json::from_str(text).ok()?;
        without_nulls(&mut value);
        Some(value)
    };
    text.contains("null") && parse(text).is_some_and(|value: Value| Some(value) == parse(other))
}

fn write_object(members: &[Member<'_>]) -> String {
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

/// Explains an error that occurred in the value of a member.
fn explain_in_member(schema: &Value, text: &str, error: &serde_json::Error) -> Option<String> {
    let Members(members) = serde_json::from_str(text).ok()?;
    let offset = explain::error_offset(text, error);
    let start_of = |value: &RawValue| value.get().as_ptr().addr() - text.as_ptr().addr();
    let contains_error =
        |value: &RawValue| (start_of(value)..start_of(value) + value.get().len()).contains(&(offset - 1));
    let (name, value) = members.into_iter().find(|(_, value)| contains_error(value))?;
    let property = || {
        let property = schema.get("properties").and_then(|properties| properties.get(&*name));
        property.cloned().unwrap_or_default()
    };
    let offset = offset - start_of(value);
    Some(explain::wrong_value_at(&name, value.get(), offset, error, &property))
}

/// Returns `true` if serde_json cannot read the value as a member of an object because of its depth.
fn is_too_deep(text: &str) -> bool {
    // The object itself is one level.
    tokens::is_deeper_than(explain::MAX_DEPTH - 2, text)
}
