//! Encodes the messages of a request.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use tool_core::content::Content;
use tool_core::model::{AssistantMessage, ToolMessage};
use tool_core::provider::ProviderData;
use tool_core::{Message, ToolCall};
use tool_http::client::{AppendBuffer, Error, normalize_arguments, normalize_tool_name};

use super::dialect::Dialect;
use crate::content::{WirePart, file_name, has_media, parts, system_text};
use crate::endpoint::{CallIdFormat, ReasoningReplay};
use crate::json::{write_array, write_string};
use crate::quirks;
use crate::tools::MAX_NAME_CHARS;
use crate::warning::{Warning, WarningHook};

/// The fields of messages and calls that provider data must not set.
const RESERVED_FIELDS: [&str; 9] =
    ["arguments", "content", "function", "id", "name", "refusal", "role", "tool_calls", "type"];

/// The fields of reasoning, as DeepSeek and as gpt-oss behind Ollama and vLLM name them.
const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

/// The encoded messages of the previous request, so that a turn encodes only new messages.
#[derive(Default)]
pub(super) struct MessageCache {
    json: AppendBuffer,
    count: usize,
    /// The dialect that they are encoded for: an application may use several endpoints in turn.
    dialect: Option<Dialect>,
}

impl MessageCache {
    /// Encodes the new messages and returns all of them as an array without its end, or nothing if there are none.
    pub(super) fn append_new(
        &mut self,
        messages: &[Message],
        dialect: &Dialect,
        on_warning: Option<&WarningHook>,
    ) -> Result<&AppendBuffer, Error> {
        if self.dialect.as_ref() != Some(dialect) || messages.len() < self.count {
            *self = Self { dialect: Some(dialect.clone()), ..Self::default() };
        }
        self.json.append(|json| {
            for (index, message) in messages.iter().enumerate().skip(self.count) {
                json.push(if index == 0 { b'[' } else { b',' });
                write_message(json, message, dialect, on_warning)?;
                let is_result = |message: Option<&Message>| matches!(message, Some(Message::Tool(_)));
                if is_result(Some(message)) && !is_result(messages.get(index + 1)) {
                    write_result_media(json, &messages[..=index]);
                }
            }
            Ok::<_, Error>(())
        })?;
        self.count = messages.len();
        Ok(&self.json)
    }
}

/// Rejects the URLs of files, which only the Responses API accepts.
fn reject_file_urls(content: &Content) -> Result<(), Error> {
    match content.files().any(|file| file.id().is_none() && file.base64().is_none()) {
        true => Err(Error::request(
            "Chat Completions does not accept URLs of files; send the bytes, or use `OpenAi::responses_model`",
        )),
        false => Ok(()),
    }
}

fn write_message(
    json: &mut Vec<u8>,
    message: &Message,
    dialect: &Dialect,
    on_warning: Option<&WarningHook>,
) -> Result<(), Error> {
    match message {
        Message::System(content) => {
            json.extend_from_slice(br#"{"role":"system","content":"#);
            write_string(json, &system_text(content)?);
        }
        Message::User(content) => {
            reject_file_urls(content)?;
            json.extend_from_slice(br#"{"role":"user","content":"#);
            if has_media(content) {
                write_array(json, parts(content)?, write_part);
            } else {
                write_string(json, &content.text());
            }
        }
        Message::Assistant(message) => write_assistant(json, message, dialect, on_warning),
        Message::Tool(result) => {
            reject_file_urls(&result.content)?;
            json.extend_from_slice(br#"{"role":"tool","tool_call_id":"#);
            write_string(json, &call_id(&result.call_id, dialect));
            json.extend_from_slice(br#","content":"#);
            write_string(json, &result_text(&result.content));
        }
        other => {
            return Err(Error::request(format!("Chat Completions does not support this message: {other:?}")));
        }
    }
    json.push(b'}');
    Ok(())
}

fn write_assistant(
    json: &mut Vec<u8>,
    message: &AssistantMessage,
    dialect: &Dialect,
    on_warning: Option<&WarningHook>,
) {
    json.extend_from_slice(br#"{"role":"assistant""#);
    let (text, refusal) = match &message.refusal {
        Some(refusal) if !dialect.endpoint.supports_refusals && message.text.is_empty() => (refusal, None),
        refusal => (&message.text, refusal.as_ref().filter(|_| dialect.endpoint.supports_refusals)),
    };
    // The field is only optional with calls, and llama-cpp-python's server refuses null.
    if !text.is_empty() || message.tool_calls.is_empty() || !dialect.endpoint.supports_missing_content {
        json.extend_from_slice(br#","content":"#);
        write_string(json, text);
    }
    if let Some(refusal) = refusal {
        json.extend_from_slice(br#","refusal":"#);
        write_string(json, refusal);
    }
    let replays_reasoning = match dialect.endpoint.reasoning_replay {
        ReasoningReplay::Never => false,
        ReasoningReplay::WithCalls => !message.tool_calls.is_empty(),
        ReasoningReplay::Always => true,
    };
    write_provider_data(json, message.provider_data.as_ref(), dialect, replays_reasoning);
    if !message.tool_calls.is_empty() {
        json.extend_from_slice(br#","tool_calls":"#);
        let unsigned = find_unsigned(message, dialect);
        write_array(json, &message.tool_calls, |json, call| {
            let signature = unsigned.filter(|(unsigned, _)| std::ptr::eq(*unsigned, call));
            write_call(json, call, dialect, signature.map(|(_, signature)| signature));
        });
        if let (Some(on_warning), Some((call, _))) = (on_warning, unsigned) {
            on_warning(&Warning::SignatureMissing { tool: &call.name });
        }
    }
}

/// Returns the call that needs a signature although it has none, and the signature: the first one of a reply that this endpoint has not made.
fn find_unsigned<'a>(message: &'a AssistantMessage, dialect: &'a Dialect) -> Option<(&'a ToolCall, &'a str)> {
    let (signature, first) = (dialect.endpoint.missing_signature.as_deref()?, message.tool_calls.first()?);
    let mut data = [&message.provider_data, &first.provider_data].into_iter().flatten();
    let is_signed = data.any(|data| data.for_provider(&dialect.provider).is_some());
    (!is_signed).then_some((first, signature))
}

fn write_call(json: &mut Vec<u8>, call: &ToolCall, dialect: &Dialect, signature: Option<&str>) {
    json.extend_from_slice(br#"{"id":"#);
    write_string(json, &call_id(&call.id, dialect));
    json.extend_from_slice(br#","type":"function","function":{"name":"#);
    write_string(json, &normalize_tool_name(&call.name, MAX_NAME_CHARS));
    json.extend_from_slice(br#","arguments":"#);
    write_string(json, &normalize_arguments(&call.arguments));
    json.push(b'}');
    write_provider_data(json, call.provider_data.as_ref(), dialect, false);
    if let Some(signature) = signature {
        json.extend_from_slice(br#","extra_content":{"google":{"thought_signature":"#);
        write_string(json, signature);
        json.extend_from_slice(b"}}");
    }
    json.push(b'}');
}

/// Writes the fields that the endpoint requires back unchanged, if they are this endpoint's.
fn write_provider_data(
    json: &mut Vec<u8>,
    data: Option<&ProviderData>,
    dialect: &Dialect,
    replays_reasoning: bool,
) {
    let Some(fields) = data.and_then(|data| data.for_provider(&dialect.provider)) else { return };
    let fields = serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(fields.as_str());
    for (name, value) in fields.into_iter().flatten() {
        if RESERVED_FIELDS.contains(&&*name) || (REASONING.contains(&&*name) && !replays_reasoning) {
            continue;
        }
        json.push(b',');
        write_string(json, &name);
        json.push(b':');
        json.extend_from_slice(value.get().as_bytes());
    }
}

/// Returns the id of a call in the endpoint's format.
fn call_id<'a>(id: &'a str, dialect: &Dialect) -> Cow<'a, str> {
    match dialect.endpoint.call_id_format {
        CallIdFormat::Verbatim => Cow::Borrowed(id),
        CallIdFormat::NineAlphanumeric => quirks::nine_alphanumeric(id),
    }
}

fn write_part(json: &mut Vec<u8>, part: WirePart<'_>) {
    match part {
        WirePart::Text(text) => {
            json.extend_from_slice(br#"{"type":"text","text":"#);
            write_string(json, &text);
            json.push(b'}');
        }
        WirePart::Image(image) => {
            json.extend_from_slice(br#"{"type":"image_url","image_url":{"url":"#);
            write_string(json, image.url());
            json.extend_from_slice(b"}}");
        }
        WirePart::File(file) => {
            json.extend_from_slice(br#"{"type":"file","file":{"#);
            if let Some(id) = file.id() {
                json.extend_from_slice(br#""file_id":"#);
                write_string(json, id);
            } else {
                json.extend_from_slice(br#""filename":"#);
                write_string(json, file_name(file));
                json.extend_from_slice(br#","file_data":"#);
                write_string(json, file.url().unwrap_or_default());
            }
            json.extend_from_slice(b"}}");
        }
    }
}

/// Returns the text of a result, with a note about its images and files.
fn result_text(content: &Content) -> Cow<'_, str> {
    let text = content.text();
    let counts = [(content.images().count(), "image"), (content.files().count(), "file")];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let media: Vec<_> =
        counts.map(|(count, noun)| format!("{count} {noun}{}", if count > 1 { "s" } else { "" })).collect();
    if media.is_empty() {
        return text;
    }
    let note = format!("[{}, in the user message after the results]", media.join(" and "));
    let line = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    Cow::Owned(format!("{text}{line}{note}"))
}

/// Writes a user message with the images and files of the results that end the messages, if there are any. A text before each
/// names its call.
///
/// The API accepts only text as the result of a tool, and results must directly follow their calls. The bytes of earlier
/// messages never change, as all results of a turn are added together.
fn write_result_media(json: &mut Vec<u8>, messages: &[Message]) {
    let results = messages.rsplit(|message| !matches!(message, Message::Tool(_))).next().unwrap_or_default();
    let results = results.iter().filter_map(|message| match message {
        Message::Tool(result) => Some(result),
        _ => None,
    });
    let parts: Vec<_> = results.flat_map(result_media).collect();
    if !parts.is_empty() {
        json.extend_from_slice(br#",{"role":"user","content":"#);
        write_array(json, parts, write_part);
        json.push(b'}');
    }
}

fn result_media(result: &ToolMessage) -> impl Iterator<Item = WirePart<'_>> {
    let images = result.content.images().map(WirePart::Image);
    let files = result.content.files().map(WirePart::File);
    let label = move |noun: &'static str, count: usize, index: usize| {
        let number = if count > 1 { format!(" {} of {count}", index + 1) } else { String::new() };
        let (tool, call) = (&result.name, &result.call_id);
        WirePart::Text(format!("{noun}{number} from the tool `{tool}`, call `{call}`:").into())
    };
    let (image_count, file_count) = (result.content.images().count(), result.content.files().count());
    let images = images.enumerate().flat_map(move |(index, part)| [label("Image", image_count, index), part]);
    let files = files.enumerate().flat_map(move |(index, part)| [label("File", file_count, index), part]);
    images.chain(files)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};
    use tool_core::ToolOutput;
    use tool_core::content::{File, Image, Part};
    use tool_core::model::ChatRequest;
    use tool_core::provider::JsonText;

    use super::*;
    use crate::chat_completions::tests::{PROVIDER, body};
    use crate::endpoint::Endpoint;

    fn sent_to(endpoint: Endpoint, messages: &[Message]) -> Value {
        let body = body(endpoint, &ChatRequest::borrowing(messages), false).unwrap();
        serde_json::from_slice::<Value>(&body).unwrap()["messages"].take()
    }

    fn written(messages: &[Message]) -> Value {
        sent_to(Endpoint::openai(), messages)
    }

    fn image(name: &str) -> Image {
        Image::from_url(format!("https://example.org/{name}.png"))
    }

    fn wire_image(name: &str) -> Value {
        json!({ "type": "image_url", "image_url": { "url": format!("https://example.org/{name}.png") } })
    }

    fn wire_text(text: &str) -> Value {
        json!({ "type": "text", "text": text })
    }

    #[test]
    fn writes_user_messages() {
        let bytes = Image::from_bytes("image/png", [0, 1, 2]);
        let data = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AAEC" } });
        let table = [
            (Content::from("Hi"), json!("Hi")),
            (Content::from_iter(["Hi ".into(), "there".into()]), json!("Hi there")),
            (Content::from(Part::from(JsonText::from(json!({ "a": [1] })))), json!("{\"a\":[1]}")),
            (
                Content::from_iter([
                    "What is ".into(),
                    image("a").into(),
                    "this?".into(),
                    JsonText::from(json!(1)).into(),
                ]),
                json!([wire_text("What is "), wire_image("a"), wire_text("this?"), wire_text("1")]),
            ),
            (Content::from_iter([Part::from(""), bytes.into()]), json!([data])),
        ];
        for (content, expected) in table {
            assert_eq!(written(&[Message::User(content)]), json!([{ "role": "user", "content": expected }]));
        }
    }

    /// Returns a turn whose calls `a`, `b` and `c` have these outputs.
    fn turn(outputs: [ToolOutput; 3]) -> Vec<Message> {
        let calls = ["a", "b", "c"].map(|id| ToolCall::new(id, "plot", "{}"));
        let results: Vec<_> =
            calls.iter().zip(outputs).map(|(call, output)| Message::tool(call, &Ok(output))).collect();
        let calls = Message::Assistant(AssistantMessage::default().with_tool_calls(calls));
        [Message::user("Plot."), calls].into_iter().chain(results).collect()
    }

    #[test]
    fn the_images_of_a_turn_follow_its_last_result() {
        let outputs = [
            ToolOutput::text("Two:").with_part(image("1")).with_part(image("2")),
            ToolOutput::text("none"),
            ToolOutput::image(image("3")),
        ];
        let mut messages = turn(outputs);
        messages.push(Message::assistant("There."));
        let written = written(&messages);
        let result = |id: &str, text: &str| json!({ "role": "tool", "tool_call_id": id, "content": text });
        let images = json!([
            wire_text("Image 1 of 2 from the tool `plot`, call `a`:"),
            wire_image("1"),
            wire_text("Image 2 of 2 from the tool `plot`, call `a`:"),
            wire_image("2"),
            wire_text("Image from the tool `plot`, call `c`:"),
            wire_image("3"),
        ]);
        let expected = [
            result("a", "Two:\n[2 images, in the user message after the results]"),
            result("b", "none"),
            result("c", "[1 image, in the user message after the results]"),
            json!({ "role": "user", "content": images }),
            json!({ "role": "assistant", "content": "There." }),
        ];
        assert_eq!(written.as_array().unwrap()[2..], expected);
    }

    fn data(provider: &str, fields: Value) -> Option<ProviderData> {
        Some(ProviderData::new(provider, JsonText::from(fields)))
    }

    #[test]
    fn provider_data_is_sent_only_to_its_provider() {
        let mut call = ToolCall::new("a", "now", "{}");
        call.provider_data =
            data(PROVIDER, json!({ "extra_content": { "google": { "thought_signature": "c2ln" } } }));
        let mut message = AssistantMessage::text("Hm.").with_tool_calls([call]);
        let fields =
            json!({ "role": "evil", "reasoning_content": "Now.", "reasoning_details": [{ "text": "Now." }] });
        message.provider_data = data(PROVIDER, fields.clone());
        let mut other = message.clone();
        other.provider_data = data("another", fields.clone());
        other.tool_calls[0].provider_data = data("another", json!({ "extra_content": 1 }));
        let mut plain = AssistantMessage::text("Noon.");
        plain.provider_data = data(PROVIDER, fields);
        let messages = [message, other, plain].map(Message::Assistant);
        let written = |replay: ReasoningReplay| {
            let mut endpoint = Endpoint::openai();
            endpoint.reasoning_replay = replay;
            sent_to(endpoint, &messages)
        };
        let reasoning = |written: &Value| [0, 1, 2].map(|index| written[index].get(REASONING[0]).is_some());
        let table = [
            (ReasoningReplay::Never, [false, false, false]),
            (ReasoningReplay::WithCalls, [true, false, false]),
            (ReasoningReplay::Always, [true, false, true]),
        ];
        for (replay, expected) in table {
            let written = written(replay);
            assert_eq!(reasoning(&written), expected, "{replay:?}");
            assert_eq!(written[0]["role"], "assistant");
            assert_eq!(written[0]["reasoning_details"], json!([{ "text": "Now." }]));
            let signature = &written[0]["tool_calls"][0]["extra_content"]["google"]["thought_signature"];
            assert_eq!(signature, "c2ln");
            assert_eq!(written[1].get("reasoning_details"), None);
            assert_eq!(written[1]["tool_calls"][0].get("extra_content"), None);
        }
    }

    #[test]
    fn the_first_call_of_another_model_has_the_signature_that_skips_the_check() {
        let call = |id: &str, name: Option<&str>| {
            let mut call = ToolCall::new(id, "now", "{}");
            let signed = json!({ "extra_content": { "google": { "thought_signature": "c2ln" } } });
            call.provider_data = name.and_then(|name| data(name, signed));
            call
        };
        let reply =
            |calls: [ToolCall; 2]| Message::Assistant(AssistantMessage::default().with_tool_calls(calls));
        // Signatures of other servers are not sent, and of parallel calls only the first has one.
        let messages = [
            reply([call("a", None), call("b", None)]),
            reply([call("c", Some("another")), call("d", None)]),
            reply([call("e", Some(PROVIDER)), call("f", None)]),
        ];
        let skip = Some("skip_thought_signature_validator");
        let table = [
            (Endpoint::gemini(), [[skip, None], [skip, None], [Some("c2ln"), None]]),
            (Endpoint::vertex("p", "eu"), [[skip, None], [skip, None], [Some("c2ln"), None]]),
            (Endpoint::openai(), [[None, None], [None, None], [Some("c2ln"), None]]),
        ];
        for (endpoint, expected) in table {
            let written = sent_to(endpoint, &messages);
            let signature = |message: usize, call: usize| {
                let call = &written[message]["tool_calls"][call];
                call["extra_content"]["google"]["thought_signature"].as_str()
            };
            assert_eq!([0, 1, 2].map(|message| [0, 1].map(|call| signature(message, call))), expected);
        }

        let tools = Arc::new(Mutex::new(Vec::new()));
        let warned = Arc::clone(&tools);
        let hook: WarningHook = Arc::new(move |warning| warned.lock().unwrap().push(warning.to_string()));
        let dialect = Dialect { endpoint: Endpoint::gemini().into(), provider: PROVIDER.into() };
        let mut cache = MessageCache::default();
        for _ in 0..2 {
            cache.append_new(&messages, &dialect, Some(&hook)).unwrap();
        }
        let warning = "a call of the tool `now` has no signature, for example because another model made it; the endpoint may answer worse";
        assert_eq!(*tools.lock().unwrap(), [warning; 2]);
    }

    #[test]
    fn calls_of_unknown_tools_have_names_that_are_accepted() {
        let calls = ["now", "clock.now", ""].map(|name| ToolCall::new(name, name, "{}"));
        let message = Message::Assistant(AssistantMessage::default().with_tool_calls(calls));
        let written = written(&[message]);
        let names = [0, 1, 2].map(|index| written[0]["tool_calls"][index]["function"]["name"].clone());
        assert_eq!(names, ["now", "clock_now", "_"]);
    }

    #[test]
    fn writes_files() {
        let pdf = File::from_bytes("application/pdf", "%PDF");
        let file = |file: Value| json!({ "type": "file", "file": file });
        let question = Content::from_iter([
            "When?".into(),
            pdf.clone().into(),
            File::from_id("file-1").with_name("a.pdf").into(),
        ]);
        let data =
            file(json!({ "filename": "file.pdf", "file_data": "data:application/pdf;base64,JVBERg==" }));
        let expected = json!([wire_text("When?"), data.clone(), file(json!({ "file_id": "file-1" }))]);
        assert_eq!(written(&[Message::user(question)])[0]["content"], expected);

        let call = ToolCall::new("1", "bill", "{}");
        let output = ToolOutput::text("see:").with_part(image("a")).with_part(pdf);
        let reply = AssistantMessage::default().with_tool_calls([call.clone()]);
        let sent =
            written(&[Message::user("Bill?"), Message::Assistant(reply), Message::tool(&call, &Ok(output))]);
        assert_eq!(sent[2]["content"], "see:\n[1 image and 1 file, in the user message after the results]");
        let expected = json!([
            wire_text("Image from the tool `bill`, call `1`:"),
            wire_image("a"),
            wire_text("File from the tool `bill`, call `1`:"),
            data,
        ]);
        assert_eq!(sent[3]["content"], expected);

        let message =
            Message::user(Content::from("When?").with_part(File::from_url("https://example.org/a.pdf")));
        let error = body(Endpoint::openai(), &ChatRequest::new([message]), false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Chat Completions does not accept URLs of files; send the bytes, or use `OpenAi::responses_model`"
        );
    }

    #[test]
    fn writes_messages_for_mistral() {
        let calls = ["call_1", "abcDEF123"].map(|id| ToolCall::new(id, "now", "{}"));
        let results = calls.clone().map(|call| Message::tool(&call, &Ok(ToolOutput::text("noon"))));
        let mut messages = vec![Message::Assistant(AssistantMessage::default().with_tool_calls(calls))];
        messages.extend(results);
        let written = sent_to(Endpoint::mistral(), &messages);
        assert_eq!(written[0]["content"], "");
        let ids = [0, 1].map(|index| written[0]["tool_calls"][index]["id"].as_str().unwrap().to_owned());
        assert!(ids[0].len() == 9 && ids[0].bytes().all(|byte| byte.is_ascii_alphanumeric()), "{ids:?}");
        assert_eq!(ids[1], "abcDEF123");
        let refusal = Message::Assistant(AssistantMessage::refusal("I may not."));
        let plain = json!([{ "role": "assistant", "content": "I may not." }]);
        assert_eq!(sent_to(Endpoint::mistral(), &[refusal]), plain);
        assert_eq!([1, 2].map(|index| written[index]["tool_call_id"].as_str().unwrap().to_owned()), ids);
    }

    /// One cache, as in an application that falls back to another endpoint.
    #[test]
    fn messages_encoded_for_one_endpoint_are_not_sent_to_another() {
        let cache = tool_core::provider::RequestCache::default();
        let call = ToolCall::new("call_1", "now", "{}");
        let messages = [Message::Assistant(AssistantMessage::default().with_tool_calls([call]))];
        let id = |endpoint: Endpoint| {
            let request = ChatRequest::borrowing(&messages).with_cache(&cache);
            let body: Value = serde_json::from_slice(&body(endpoint, &request, false).unwrap()).unwrap();
            body["messages"][0]["tool_calls"][0]["id"].as_str().unwrap().to_owned()
        };
        assert_eq!(id(Endpoint::openai()), "call_1");
        assert_ne!(id(Endpoint::mistral()), "call_1");
        assert_eq!(id(Endpoint::openai()), "call_1");
    }
}
