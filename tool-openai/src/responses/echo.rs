//! The items of a reply, which are sent back as they came.
//!
//! The model's reasoning is refused without what it led to, and is worth nothing without it; so the items of a reply
//! go back together, or none of them does. What was changed in the message since then wins.

use serde_json::Value;
use serde_json::value::RawValue;
use tool_core::{AssistantMessage, JsonText, ProviderData, ToolCall};

use super::Dialect;
use super::input::begin_item;
use super::item::{Item, Kind, PartKind};
use crate::quirks;

/// What is kept of a reply's items.
pub(super) fn keep<'a>(provider: &str, items: impl IntoIterator<Item = &'a str>) -> Option<ProviderData> {
    let list = items.into_iter().collect::<Vec<_>>().join(",");
    let list = JsonText::checked(&format!("[{list}]")).ok()?;
    Some(ProviderData::new(provider, list))
}

/// The items that were kept, if they are this provider's.
pub(super) fn kept<'a>(message: &'a AssistantMessage, provider: &str) -> Option<&'a str> {
    Some(message.provider_data.as_ref()?.of(provider)?.as_str())
}

/// Writes the items that were kept in the place of the message; `false` if there are none that say what it says.
pub(super) fn write(json: &mut Vec<u8>, message: &AssistantMessage, dialect: &Dialect) -> bool {
    let items =
        kept(message, &dialect.provider).and_then(|kept| serde_json::from_str::<Vec<&RawValue>>(kept).ok());
    let items: Vec<_> = items.into_iter().flatten().map(|item| (item, Item::read(item))).collect();
    if !say_the_same(&items, message) {
        return false;
    }
    // A reply that was cut short while the model reasoned.
    let Some(last) = items.iter().rposition(|(_, item)| item.kind != Kind::Reasoning) else { return false };
    let mut calls = message.tool_calls.iter();
    for (raw, item) in &items[..=last] {
        // By its id alone, it is not found where nothing was stored.
        if item.kind == Kind::Reasoning && !item.has_reasoning && !dialect.is_stored {
            continue;
        }
        begin_item(json);
        let call = if item.kind == Kind::Call { calls.next() } else { None };
        match call.and_then(|call| changed(raw, call)) {
            Some(changed) => json.extend_from_slice(changed.as_bytes()),
            None => json.extend_from_slice(raw.get().as_bytes()),
        }
    }
    true
}

fn say_the_same(items: &[(&RawValue, Item)], message: &AssistantMessage) -> bool {
    let said = |kind| items.iter().flat_map(move |(_, item)| item.text_of(kind));
    let is = |kind, text: &str| said(kind).collect::<String>() == text;
    let calls = items.iter().filter(|(_, item)| item.kind == Kind::Call).count();
    is(PartKind::Text, &message.text)
        && is(PartKind::Refusal, message.refusal.as_deref().unwrap_or_default())
        && calls == message.tool_calls.len()
}

/// The item of a call with what the message says of it, if that is something else: its id may have been taken already,
/// and a person may have changed its arguments.
fn changed(raw: &RawValue, call: &ToolCall) -> Option<String> {
    let arguments = quirks::arguments_sent_back(&call.arguments);
    let said = [("call_id", &*call.id), ("name", &*call.name), ("arguments", &*arguments)];
    let Ok(Value::Object(mut fields)) = serde_json::from_str(raw.get()) else { return None };
    // Arguments that came as an object go back as text, too.
    if said.iter().all(|(name, text)| fields.get(*name).and_then(Value::as_str) == Some(text)) {
        return None;
    }
    fields.extend(said.map(|(name, text)| (name.to_owned(), Value::from(text))));
    Some(Value::Object(fields).to_string())
}
