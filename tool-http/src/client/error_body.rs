//! Errors in the bodies of responses, and how they are shown.

use serde_json::Value;
use tool_core::content::printable;

/// An error that a body reports, in any of the forms that servers use.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ErrorBody {
    /// The whole message.
    pub message: String,
    /// The type, or the name of the status.
    pub error_type: Option<String>,
    /// The code, a string or a number.
    pub code: Option<String>,
    body: Value,
}

impl ErrorBody {
    /// Parses a body. Returns `None` if it reports no error.
    ///
    /// `{error: {message, type, code}}` (OpenAI, Anthropic), `{error: "…"}` and `[{error}]` (Gemini), `{object: "error", message}`
    /// (vLLM), `{message: {detail: [{msg}]}}` (Mistral), `{detail}` (FastAPI). Google sends the name of the status instead of a type.
    #[must_use]
    pub fn parse(body: &str) -> Option<Self> {
        let mut body: Value = serde_json::from_str(body).ok()?;
        if let Some(first) = body.get_mut(0) {
            body = first.take();
        }
        let error = Self::error_in(&body);
        let message = match error {
            Value::String(message) => message.clone(),
            _ => error.get("message").or_else(|| error.get("detail")).and_then(message_text)?,
        };
        let name = |name: &str| error.get(name).and_then(text);
        // In a stream, the type is that of the event.
        let error_type = name("type").or_else(|| error.get("status")?.as_str().map(str::to_owned));
        let error_type = error_type.filter(|kind| !matches!(&**kind, "error" | "response.error"));
        Some(Self { message, error_type, code: name("code"), body })
    }

    /// Returns another member of the error, a string or a number, at this JSON pointer.
    #[must_use]
    pub fn text(&self, pointer: &str) -> Option<String> {
        Self::error_in(&self.body).pointer(pointer).and_then(text)
    }

    /// Returns a member beside the error, a string or a number, at this JSON pointer.
    #[must_use]
    pub fn outer_text(&self, pointer: &str) -> Option<String> {
        self.body.pointer(pointer).and_then(text)
    }

    fn error_in(body: &Value) -> &Value {
        body.get("error").filter(|error| !error.is_null()).unwrap_or(body)
    }
}

/// Returns the name of an error to display: its code, or its type if the code is a number, which mostly repeats the status.
#[must_use]
pub fn error_name<'a>(code: Option<&'a str>, error_type: Option<&'a str>) -> Option<&'a str> {
    let names = [code, error_type].into_iter().flatten();
    names.clone().find(|name| name.parse::<u16>().is_err()).or(names.clone().next())
}

/// The number of characters of a server's message that are displayed. Some servers send whole stack traces.
pub const MAX_MESSAGE_CHARS: usize = 300;

/// The number of characters of an unexpected body that are quoted.
pub const MAX_EXCERPT_CHARS: usize = 120;

/// Returns the start of a text, printable and on one line.
#[must_use]
pub fn excerpt(text: &str, max_chars: usize) -> String {
    let mut words = printable(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(max_chars) {
        words.truncate(end);
        words.push('…');
    }
    words
}

/// Returns the message for a body that does not follow the API, for this reason. What may be a model's reply is not quoted: JSON, or
/// the data of an event.
#[must_use]
pub fn malformed_body(reason: &str, body: &str, is_event: bool) -> String {
    let start = match excerpt(body, MAX_EXCERPT_CHARS).as_str() {
        "" => "it is empty".to_owned(),
        _ if is_event || body.trim_start().starts_with(['{', '[']) => format!("it has {} bytes", body.len()),
        start => format!("it starts with `{start}`"),
    };
    let reason = excerpt(reason, MAX_MESSAGE_CHARS);
    format!("the response does not follow the API ({reason}); check the base URL; {start}")
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn message_text(message: &Value) -> Option<String> {
    match message {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let parts: Vec<_> = parts.iter().filter_map(message_text).collect();
            (!parts.is_empty()).then(|| parts.join("; "))
        }
        Value::Object(object) => {
            ["detail", "msg", "message"].iter().find_map(|name| message_text(object.get(*name)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_numbers_come_last() {
        let table = [
            (Some("c"), Some("t"), Some("c")),
            (Some("400"), Some("t"), Some("t")),
            (Some("400"), None, Some("400")),
            (None, Some("1000"), Some("1000")),
            (None, None, None),
        ];
        for (code, error_type, expected) in table {
            assert_eq!(error_name(code, error_type), expected);
        }
    }

    #[test]
    fn parses_errors_of_all_forms() {
        let table = [
            (r#"{"error":{"message":"no","type":"t","code":"c"}}"#, Some(("no", Some("t"), Some("c")))),
            (r#"{"error":{"message":"no","code":429}}"#, Some(("no", None, Some("429")))),
            (r#"{"error":"no"}"#, Some(("no", None, None))),
            (r#"{"type":"error","message":"no","code":"c","param":null}"#, Some(("no", None, Some("c")))),
            (r#"[{"error":{"message":"no","code":400}}]"#, Some(("no", None, Some("400")))),
            (r#"{"object":"error","message":"no","type":"t"}"#, Some(("no", Some("t"), None))),
            (r#"{"message":{"detail":[{"msg":"a"},{"msg":"b"}]}}"#, Some(("a; b", None, None))),
            (r#"{"detail":"no"}"#, Some(("no", None, None))),
            (r#"{"detail":[{"msg":"a"}]}"#, Some(("a", None, None))),
            (r#"{"choices":[]}"#, None),
            ("<html>", None),
            ("[]", None),
        ];
        for (body, expected) in table {
            let error = ErrorBody::parse(body);
            let found = error
                .as_ref()
                .map(|error| (&*error.message, error.error_type.as_deref(), error.code.as_deref()));
            assert_eq!(found, expected, "{body}");
        }
    }
}
