//! Sends the items of a reply back unchanged.
//!
//! The API rejects reasoning without the items that follow it, so the items of a reply are sent back together or not at all.
//! Later changes to the message take precedence.

use serde_json::value::RawValue;
use tool_core::ToolCall;
use tool_core::model::AssistantMessage;
use tool_core::provider::{JsonText, ProviderData};
use tool_http::client::json::{Members, string};
use tool_http::client::{normalize_arguments, normalize_tool_name};

use super::dialect::Dialect;
use super::items::Items;
use super::output_item::{ItemKind, OutputItem, PartKind};
use crate::tools::MAX_NAME_CHARS;

/// Returns the items of a reply as provider data.
pub(super) fn provider_data<'a>(
    provider: &str,
    items: impl IntoIterator<Item = &'a str>,
) -> Option<ProviderData> {
    let list = items.into_iter().collect::<Vec<_>>().join(",");
    let list = JsonText::from_json(&format!("[{list}]")).ok()?;
    Some(ProviderData::new(provider, list))
}

/// Returns the stored items of a message, if they are this provider's.
fn stored_items<'a>(message: &'a AssistantMessage, provider: &str) -> Vec<(&'a RawValue, OutputItem)> {
    let data = message.provider_data.as_ref().and_then(|data| data.for_provider(provider));
    let stored = data.and_then(|json| serde_json::from_str::<Vec<&RawValue>>(json.as_str()).ok());
    stored.into_iter().flatten().map(|json| (json, OutputItem::parse(json))).collect()
}

/// Writes the stored items instead of the message. Returns `false`, without writing anything, if there are none or they do
/// not match the message.
pub(super) fn write(
    items: &mut Items,
    message: &AssistantMessage,
    has_reasoning: bool,
    dialect: &Dialect,
) -> bool {
    let stored = stored_items(message, &dialect.provider);
    if !matches_message(&stored, message) {
        return false;
    }
    // Without its reasoning, the API rejects an item by its id. What cannot be written anew keeps it.
    if !has_reasoning && stored.iter().all(|(_, item)| is_plain(item)) {
        return false;
    }
    // Trailing reasoning belongs to a reply that was truncated while the model reasoned, and a trailing search has no output.
    let is_unfinished = |kind| matches!(kind, ItemKind::Reasoning | ItemKind::ToolSearchCall);
    let last = stored.iter().rposition(|(_, item)| !is_unfinished(item.kind));
    let Some(last) = last else { return false };
    let mut calls = message.tool_calls.iter();
    for (json, item) in &stored[..=last] {
        if !is_sent(item, dialect) {
            continue;
        }
        let call = if item.kind == ItemKind::FunctionCall { calls.next() } else { None };
        if let Some(call) = call.filter(|_| !item.has_namespace) {
            items.add_call_without_namespace(&call.name);
        }
        let updated = match item.kind {
            ItemKind::ToolSearchCall | ItemKind::ToolSearchOutput => without_creator(json),
            _ => call.and_then(|call| updated_call(json, call)),
        };
        items.next().extend_from_slice(updated.as_deref().unwrap_or(json.get()).as_bytes());
    }
    true
}

/// Returns the number of bytes of the reasoning that goes back with a message and can be left out.
pub(super) fn reasoning_bytes(message: &AssistantMessage, dialect: &Dialect) -> usize {
    let stored = stored_items(message, &dialect.provider);
    if !stored.iter().all(|(_, item)| is_plain(item)) {
        return 0;
    }
    let sent = stored.iter().filter(|(_, item)| item.kind == ItemKind::Reasoning && is_sent(item, dialect));
    sent.map(|(json, _)| json.get().len()).sum()
}

/// Returns `true` if a message is a conversation that this provider has compacted.
pub(super) fn is_summary(message: &AssistantMessage, dialect: &Dialect) -> bool {
    let stored = stored_items(message, &dialect.provider);
    let is_compaction = |item: &OutputItem| item.kind == ItemKind::Compaction && item.is_self_contained;
    message.text.is_empty()
        && matches_message(&stored, message)
        && stored.iter().any(|(_, item)| is_compaction(item))
}

/// Returns `true` for an item that can be written anew. The others keep their reasoning.
fn is_plain(item: &OutputItem) -> bool {
    matches!(item.kind, ItemKind::Message | ItemKind::Reasoning | ItemKind::FunctionCall)
}

/// A provider that has not stored the reasoning does not find it by its id, and the instructions are sent before.
fn is_sent(item: &OutputItem, dialect: &Dialect) -> bool {
    match item.kind {
        ItemKind::Reasoning => item.is_self_contained || dialect.is_stored,
        kind => kind != ItemKind::Instructions,
    }
}

/// Returns `true` if the items have the texts of the message and as many calls.
fn matches_message(items: &[(&RawValue, OutputItem)], message: &AssistantMessage) -> bool {
    let texts = |kind| items.iter().flat_map(move |(_, item)| item.texts(kind));
    let has_text = |kind, text: &str| texts(kind).collect::<String>() == text;
    let calls = items.iter().filter(|(_, item)| item.kind == ItemKind::FunctionCall).count();
    has_text(PartKind::Text, &message.text)
        && has_text(PartKind::Refusal, message.refusal.as_deref().unwrap_or_default())
        && calls == message.tool_calls.len()
}

/// Returns the item of a call with the values of the message, or `None` if it already has them. The id changes if another
/// call has it, and the arguments change if a person edits them.
fn updated_call(json: &RawValue, call: &ToolCall) -> Option<String> {
    let arguments = normalize_arguments(&call.arguments);
    let name = normalize_tool_name(&call.name, MAX_NAME_CHARS);
    let values = [("call_id", &*call.id), ("name", &*name), ("arguments", &*arguments)];
    let mut members = Members::parse(json.get())?;
    // Arguments that arrived as an object are sent as text, too.
    if values.iter().all(|(name, text)| members.text(name).as_deref() == Some(text)) {
        return None;
    }
    for (name, text) in values {
        members.set(name, string(text));
    }
    Some(members.to_json())
}

/// Returns the item of a search without the member that the API sends and does not accept, or `None` if it has none.
fn without_creator(json: &RawValue) -> Option<String> {
    let mut members = Members::parse(json.get())?;
    members.remove("created_by").then(|| members.to_json())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::responses::input::tests::items;
    use crate::responses::tests::{PROVIDER, dialect, stored};

    fn reasoning() -> Value {
        json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ZW5j" })
    }

    fn text_item(text: &str) -> Value {
        let part = json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
        json!({ "type": "message", "id": "msg_1", "phase": "commentary", "content": [part] })
    }

    fn call(id: &str, arguments: &str) -> Value {
        json!({ "type": "function_call", "id": "fc_1", "call_id": id, "name": "now", "arguments": arguments, "status": "completed" })
    }

    /// Returns a message with these stored items.
    fn message(text: &str, calls: &[ToolCall], items: &[Value]) -> AssistantMessage {
        let items: Vec<_> = items.iter().map(Value::to_string).collect();
        let mut message = AssistantMessage::text(text).with_tool_calls(calls.to_vec());
        message.provider_data = provider_data(PROVIDER, items.iter().map(String::as_str));
        message
    }

    fn sent(message: &AssistantMessage, dialect: &Dialect) -> Option<Value> {
        sent_with(message, true, dialect)
    }

    fn sent_with(message: &AssistantMessage, has_reasoning: bool, dialect: &Dialect) -> Option<Value> {
        let mut is_written = false;
        let items = items(|items| is_written = write(items, message, has_reasoning, dialect));
        is_written.then_some(items)
    }

    /// What the API knows by an id that needs its reasoning is written anew.
    #[test]
    fn reasoning_is_left_out_with_the_ids_that_need_it() {
        let now = [ToolCall::new("1", "now", "{}")];
        let plain = message("So.", &now, &[reasoning(), text_item("So."), call("1", "{}")]);
        assert_eq!(sent_with(&plain, false, &dialect()), None);
        assert_eq!(reasoning_bytes(&plain, &dialect()), reasoning().to_string().len());
        let other = Dialect { provider: "there".into(), ..dialect() };
        assert_eq!(reasoning_bytes(&plain, &other), 0);
        let search = json!({ "type": "web_search_call", "id": "ws_1" });
        let searched = [reasoning(), search, text_item("So.")];
        let message = message("So.", &[], &searched);
        assert_eq!(sent_with(&message, false, &dialect()), Some(json!(searched)));
        assert_eq!(reasoning_bytes(&message, &dialect()), 0);
    }

    #[test]
    fn sends_matching_items_back() {
        let now = |id: &str, arguments: &str| ToolCall::new(id, "now", arguments);
        let search = json!({ "type": "web_search_call", "id": "ws_1", "score": 0.1 });
        let unknown = json!(["no", "item"]);
        let all = [reasoning(), search, text_item("Let me see."), call("1", "{}"), unknown];
        let two = [call("1", "{}"), call("1", "{}")];
        let named = |name: &str| {
            let mut item = call("1", "{}");
            item["name"] = name.into();
            item
        };
        let table = [
            (message("Let me see.", &[now("1", "{}")], &all), Some(json!(all))),
            // Changes take precedence.
            (
                message("", &[now("1_2", r#"{"a":1}"#)], &[reasoning(), call("1", "{}")]),
                Some(json!([reasoning(), call("1_2", r#"{"a":1}"#)])),
            ),
            (
                message("", &[now("1", "{}"), now("1_2", "{}")], &two),
                Some(json!([call("1", "{}"), call("1_2", "{}")])),
            ),
            (message("", &[now("1", "")], &[call("1", "")]), Some(json!([call("1", "{}")]))),
            (
                message("", &[ToolCall::new("1", "now.", "{}")], &[named("now.")]),
                Some(json!([named("now_")])),
            ),
            // Items that no longer match.
            (message("Let me see!", &[], &[reasoning(), text_item("Let me see.")]), None),
            (message("", &[], &[reasoning(), call("1", "{}")]), None),
            (message("", &[now("1", "{}"), now("2", "{}")], &[reasoning(), call("1", "{}")]), None),
            (message("", &[], &[reasoning()]), None),
            (message("", &[], &[]), None),
            // Trailing reasoning.
            (message("So.", &[], &[text_item("So."), reasoning()]), Some(json!([text_item("So.")]))),
        ];
        for (message, expected) in table {
            let texts = |items: Option<Value>| items.map(|items| items.to_string());
            assert_eq!(texts(sent(&message, &dialect())), texts(expected));
        }
    }

    #[test]
    fn searches_for_tools_are_sent_back_with_their_output() {
        let call =
            json!({ "type": "tool_search_call", "id": "tsc_1", "call_id": null, "arguments": { "a": 1.50 } });
        let output = json!({ "type": "tool_search_output", "id": "tso_1", "call_id": null, "tools": [] });
        let with_creator = |item: &Value| {
            let mut item = item.clone();
            item["created_by"] = json!("m");
            item
        };
        let both = json!([call, output]);
        let table = [
            (message("", &[], &[call.clone(), output.clone()]), both.clone()),
            // The API does not accept this member.
            (message("", &[], &[with_creator(&call), with_creator(&output)]), both),
            // The reply was truncated.
            (message("So.", &[], &[text_item("So."), reasoning(), call]), json!([text_item("So.")])),
        ];
        for (message, expected) in table {
            assert_eq!(sent(&message, &dialect()).unwrap().to_string(), expected.to_string());
        }
    }

    #[test]
    fn a_changed_refusal_does_not_match() {
        let refusal = json!({ "type": "message", "content": [{ "type": "refusal", "refusal": "No." }] });
        let mut message = message("", &[], std::slice::from_ref(&refusal));
        assert_eq!(sent(&message, &dialect()), None);
        message.refusal = Some("No.".into());
        assert_eq!(sent(&message, &dialect()), Some(json!([refusal])));
    }

    #[test]
    fn bare_reasoning_is_only_sent_to_a_provider_that_stored_it() {
        let bare = json!({ "type": "reasoning", "id": "rs_1", "summary": [{ "type": "summary_text", "text": "Hm." }] });
        let open = json!({ "type": "reasoning", "id": "rs_1", "summary": [], "content": [{ "type": "reasoning_text", "text": "Hm." }] });
        for (item, is_self_contained) in [(bare, false), (open, true), (reasoning(), true)] {
            let message = message("So.", &[], &[item.clone(), text_item("So.")]);
            let all = json!([item, text_item("So.")]);
            let expected = if is_self_contained { all.clone() } else { json!([text_item("So.")]) };
            assert_eq!(sent(&message, &dialect()), Some(expected));
            assert_eq!(sent(&message, &stored()), Some(all));
        }
    }

    #[test]
    fn accepts_any_provider_data() {
        for data in ["1", "{}", "[1]", r#"[{"type":"function_call"}]"#, "[[]]", "null"] {
            let mut message = AssistantMessage::default().with_tool_calls([ToolCall::new("1", "now", "{}")]);
            message.provider_data = Some(ProviderData::new(PROVIDER, JsonText::from_json(data).unwrap()));
            let sent = sent(&message, &dialect());
            let is_call = data.contains("function_call");
            let call = json!([{ "type": "function_call", "call_id": "1", "name": "now", "arguments": "{}" }]);
            assert_eq!(sent, is_call.then_some(call), "{data}");
        }
    }
}
