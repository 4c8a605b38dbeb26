//! The items of a reply, which are sent back as they came.
//!
//! The model's reasoning is refused without what it led to, and is worth nothing without it; so the items of a reply
//! go back together, or none of them does. What was changed in the message since then wins.

use serde_json::Value;
use serde_json::value::RawValue;
use tool_core::{AssistantMessage, JsonText, ProviderData, ToolCall};

use super::Dialect;
use super::input::Items;
use super::item::{Item, Kind, PartKind};
use crate::quirks;

/// What is kept of a reply's items.
pub(super) fn keep<'a>(provider: &str, items: impl IntoIterator<Item = &'a str>) -> Option<ProviderData> {
    let list = items.into_iter().collect::<Vec<_>>().join(",");
    let list = JsonText::from_json(&format!("[{list}]")).ok()?;
    Some(ProviderData::new(provider, list))
}

/// The items that were kept, if they are this provider's.
pub(super) fn kept<'a>(message: &'a AssistantMessage, provider: &str) -> Option<&'a str> {
    Some(message.provider_data.as_ref()?.for_provider(provider)?.as_str())
}

/// Writes the items that were kept in the place of the message; `false` if there are none that say what it says.
pub(super) fn write(items: &mut Items, message: &AssistantMessage, dialect: &Dialect) -> bool {
    let kept =
        kept(message, &dialect.provider).and_then(|kept| serde_json::from_str::<Vec<&RawValue>>(kept).ok());
    let kept: Vec<_> = kept.into_iter().flatten().map(|item| (item, Item::read(item))).collect();
    if !say_the_same(&kept, message) {
        return false;
    }
    // A reply that was cut short while the model reasoned.
    let Some(last) = kept.iter().rposition(|(_, item)| item.kind != Kind::Reasoning) else { return false };
    let mut calls = message.tool_calls.iter();
    for (raw, item) in &kept[..=last] {
        // By its id alone, it is not found where nothing was stored.
        if item.kind == Kind::Reasoning && !item.has_reasoning && !dialect.is_stored {
            continue;
        }
        let call = if item.kind == Kind::Call { calls.next() } else { None };
        let changed = call.and_then(|call| changed(raw, call));
        items.next().extend_from_slice(changed.as_deref().unwrap_or(raw.get()).as_bytes());
    }
    true
}

fn say_the_same(items: &[(&RawValue, Item)], message: &AssistantMessage) -> bool {
    let said = |kind| items.iter().flat_map(move |(_, item)| item.texts_of(kind));
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::responses::tests::{PROVIDER, dialect, stored};

    fn reasoning() -> Value {
        json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ZW5j" })
    }

    fn said(text: &str) -> Value {
        let part = json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
        json!({ "type": "message", "id": "msg_1", "phase": "commentary", "content": [part] })
    }

    fn call(id: &str, arguments: &str) -> Value {
        json!({ "type": "function_call", "id": "fc_1", "call_id": id, "name": "now", "arguments": arguments, "status": "completed" })
    }

    /// A message of which these items are kept.
    fn message(text: &str, calls: &[ToolCall], items: &[Value]) -> AssistantMessage {
        let items: Vec<_> = items.iter().map(Value::to_string).collect();
        let mut message = AssistantMessage::text(text).with_tool_calls(calls.to_vec());
        message.provider_data = keep(PROVIDER, items.iter().map(String::as_str));
        message
    }

    fn sent(message: &AssistantMessage, dialect: &Dialect) -> Option<Value> {
        let mut items = Items::none();
        let is_written = write(&mut items, message, dialect);
        is_written.then(|| items.read())
    }

    #[test]
    fn what_says_the_same_goes_back() {
        let now = |id: &str, arguments: &str| ToolCall::new(id, "now", arguments);
        let search = json!({ "type": "web_search_call", "id": "ws_1", "score": 0.1 });
        let unknown = json!(["no", "item"]);
        let all = [reasoning(), search, said("Let me see."), call("1", "{}"), unknown];
        let two = [call("1", "{}"), call("1", "{}")];
        let table = [
            (message("Let me see.", &[now("1", "{}")], &all), Some(json!(all))),
            // What was changed wins.
            (
                message("", &[now("1_2", r#"{"a":1}"#)], &[reasoning(), call("1", "{}")]),
                Some(json!([reasoning(), call("1_2", r#"{"a":1}"#)])),
            ),
            (
                message("", &[now("1", "{}"), now("1_2", "{}")], &two),
                Some(json!([call("1", "{}"), call("1_2", "{}")])),
            ),
            (message("", &[now("1", "")], &[call("1", "")]), Some(json!([call("1", "{}")]))),
            // What no longer fits.
            (message("Let me see!", &[], &[reasoning(), said("Let me see.")]), None),
            (message("", &[], &[reasoning(), call("1", "{}")]), None),
            (message("", &[now("1", "{}"), now("2", "{}")], &[reasoning(), call("1", "{}")]), None),
            (message("", &[], &[reasoning()]), None),
            (message("", &[], &[]), None),
            // Reasoning that led to nothing.
            (message("So.", &[], &[said("So."), reasoning()]), Some(json!([said("So.")]))),
        ];
        for (message, expected) in table {
            let texts = |items: Option<Value>| items.map(|items| items.to_string());
            assert_eq!(texts(sent(&message, &dialect())), texts(expected));
        }
    }

    #[test]
    fn nothing_goes_to_another_provider() {
        let message = message("So.", &[], &[said("So.")]);
        assert!(sent(&message, &dialect()).is_some());
        let other = Dialect { provider: "there/responses".into(), ..dialect() };
        assert_eq!(sent(&message, &other), None);
    }

    #[test]
    fn a_refusal_must_be_the_same() {
        let refusal = json!({ "type": "message", "content": [{ "type": "refusal", "refusal": "No." }] });
        let mut message = message("", &[], std::slice::from_ref(&refusal));
        assert_eq!(sent(&message, &dialect()), None);
        message.refusal = Some("No.".into());
        assert_eq!(sent(&message, &dialect()), Some(json!([refusal])));
    }

    /// Reasoning that is no more than an id is found by it only where it was stored.
    #[test]
    fn bare_reasoning_goes_back_to_who_stored_it() {
        let bare = json!({ "type": "reasoning", "id": "rs_1", "summary": [{ "type": "summary_text", "text": "Hm." }] });
        let open = json!({ "type": "reasoning", "id": "rs_1", "summary": [], "content": [{ "type": "reasoning_text", "text": "Hm." }] });
        for (item, goes_back) in [(bare, false), (open, true), (reasoning(), true)] {
            let message = message("So.", &[], &[item.clone(), said("So.")]);
            let all = json!([item, said("So.")]);
            let kept = if goes_back { all.clone() } else { json!([said("So.")]) };
            assert_eq!(sent(&message, &dialect()), Some(kept));
            assert_eq!(sent(&message, &stored()), Some(all));
        }
    }

    #[test]
    fn what_is_kept_may_be_anything() {
        for kept in ["1", "{}", "[1]", r#"[{"type":"function_call"}]"#, "[[]]", "null"] {
            let mut message = AssistantMessage::default().with_tool_calls([ToolCall::new("1", "now", "{}")]);
            message.provider_data = Some(ProviderData::new(PROVIDER, JsonText::from_json(kept).unwrap()));
            let sent = sent(&message, &dialect());
            let is_call = kept.contains("function_call");
            let call = json!([{ "type": "function_call", "call_id": "1", "name": "now", "arguments": "{}" }]);
            assert_eq!(sent, is_call.then_some(call), "{kept}");
        }
    }
}
