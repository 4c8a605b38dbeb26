//! Errors in the bodies of responses, and how they are shown.

use serde_json::Value;
use tool_core::provider::printable;

use super::error_kind::{ErrorKind, ErrorKinds};
use super::redact::Redactor;

/// The longest body that is searched for an error. Parsing arbitrary JSON takes a multiple of its length in memory.
const MAX_BODY_BYTES: usize = 64 << 10;

/// An error that a body reports, in any of the forms that servers use.
#[derive(Debug, Default)]
pub(super) struct ErrorBody {
    /// The whole message.
    pub(super) message: String,
    /// The type, or the name of the status.
    pub(super) error_type: Option<String>,
    /// The code, a string or a number.
    pub(super) code: Option<String>,
    body: Value,
}

impl ErrorBody {
    /// Creates an error with a message and nothing else.
    pub(super) fn new(message: String) -> Self {
        Self { message, ..Self::default() }
    }

    /// Parses a body. Returns `None` if it reports no error.
    ///
    /// The forms are `{error: {message, type, code}}`, also with `details: {error_code}` or the name of a `status` instead of a type,
    /// `{error: "…"}`, `[{error}]`, `{object: "error", message}`, `{message: {detail: [{msg}]}}` and `{detail}`; of AWS also `{Message}` and
    /// `{Output: {__type}}`, which can have status 200.
    pub(super) fn parse(body: &str) -> Option<Self> {
        let mut body: Value = serde_json::from_str(body).ok()?;
        if let Some(first) = body.get_mut(0) {
            body = first.take();
        }
        let error = error_in(&body);
        let message = match error {
            Value::String(message) => message.clone(),
            _ => ["message", "Message", "detail", "__type"]
                .iter()
                .find_map(|name| error.get(name))
                .and_then(message_text)?,
        };
        let name = |pointer: &str| error.pointer(pointer).and_then(text);
        // In a stream, the event has the type.
        let error_type = name("/type").or_else(|| error.get("status")?.as_str().map(str::to_owned));
        let error_type = error_type.or_else(|| Some(name("/__type")?.rsplit('#').next()?.to_owned()));
        let error_type = error_type.filter(|kind| !matches!(&**kind, "error" | "response.error"));
        Some(Self { message, error_type, code: name("/details/error_code").or(name("/code")), body })
    }

    /// Returns the error without secrets.
    pub(super) fn redacted(self, redactor: &Redactor) -> Self {
        let redact = |text: Option<String>| text.map(|text| redactor.redact(&text));
        Self {
            message: redactor.redact(&self.message),
            error_type: redact(self.error_type),
            code: redact(self.code),
            body: redactor.redact_value(self.body),
        }
    }

    /// Returns a text of the error at this JSON pointer.
    pub(super) fn text(&self, pointer: &str) -> Option<&str> {
        error_in(&self.body).pointer(pointer)?.as_str()
    }

    /// Returns the id of the request, which some servers send beside the error.
    pub(super) fn request_id(&self) -> Option<&str> {
        self.body.get("request_id")?.as_str()
    }

    /// Returns the name to display: the code, or the type if the code is a number, which mostly repeats the status.
    pub(super) fn name(&self) -> Option<&str> {
        let names = [&self.code, &self.error_type].into_iter().flatten();
        let name = names.clone().find(|name| name.parse::<u16>().is_err()).or(names.clone().next());
        name.map(String::as_str)
    }

    /// Returns the kind of the error of a response with this status: the most specific one that is known.
    pub(super) fn kind(&self, status: Option<u16>, known: &ErrorKinds) -> ErrorKind {
        let names = [&self.code, &self.error_type].into_iter().flatten();
        let mut kinds = names.filter_map(|name| known.by_name(name));
        let is_specific = |kind: &ErrorKind| !matches!(kind, ErrorKind::InvalidRequest | ErrorKind::Server);
        // Errors with status 200 may have the status in the code.
        let code_status = || self.code.as_deref()?.parse::<u16>().ok();
        let status = status.filter(|status| *status >= 400);
        kinds
            .clone()
            .find(is_specific)
            .or_else(|| known.by_message(&self.message))
            .or_else(|| status.or_else(code_status).map(ErrorKind::from_status))
            .or_else(|| kinds.next())
            .unwrap_or(ErrorKind::Server)
    }
}

/// Returns `true` if JSON reports an error. A mere text, which may be a reply, does not.
#[must_use]
pub fn is_error_body(json: &str) -> bool {
    json.len() <= MAX_BODY_BYTES && ErrorBody::parse(json).is_some_and(|error| error.body.is_object())
}

/// The number of characters of a server's message that are displayed. Some servers send whole stack traces.
pub(super) const MAX_MESSAGE_CHARS: usize = 300;

/// The number of characters of an unexpected body that are quoted.
pub(super) const MAX_EXCERPT_CHARS: usize = 120;

/// Returns the start of a text, printable and on one line.
pub(super) fn excerpt(text: &str, max_chars: usize) -> String {
    let mut words = printable(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(max_chars) {
        words.truncate(end);
        words.push('…');
    }
    words
}

fn error_in(body: &Value) -> &Value {
    let error = body.get("error").filter(|error| !error.is_null());
    let unknown_route = || body.get("Output").filter(|output| output.get("__type").is_some());
    error.or_else(unknown_route).unwrap_or(body)
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
            let (code, error_type) = (code.map(str::to_owned), error_type.map(str::to_owned));
            assert_eq!(ErrorBody { code, error_type, ..ErrorBody::default() }.name(), expected);
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
            (
                r#"{"type":"error","error":{"type":"t","message":"no","details":{"error_code":"c"}},"request_id":"r"}"#,
                Some(("no", Some("t"), Some("c"))),
            ),
            (r#"{"detail":"no"}"#, Some(("no", None, None))),
            (r#"{"detail":[{"msg":"a"}]}"#, Some(("a", None, None))),
            (r#"{"Message":"Bearer Token has expired"}"#, Some(("Bearer Token has expired", None, None))),
            (
                r#"{"Output":{"__type":"com.amazon.coral.service#UnknownOperationException"},"Version":"1.0"}"#,
                Some((
                    "com.amazon.coral.service#UnknownOperationException",
                    Some("UnknownOperationException"),
                    None,
                )),
            ),
            (
                r#"{"__type":"a#ThrottlingException","message":"no"}"#,
                Some(("no", Some("ThrottlingException"), None)),
            ),
            (r#"{"choices":[]}"#, None),
            (r#"{"Output":{"text":"no error"}}"#, None),
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

    #[test]
    fn classifies_errors() {
        let error = |kind: &str, code: Option<&str>, message: &str| ErrorBody {
            message: message.into(),
            error_type: Some(kind.into()).filter(|kind: &String| !kind.is_empty()),
            code: code.map(Into::into),
            body: Value::Null,
        };
        let known = ErrorKinds {
            names: &[
                ("busy", ErrorKind::RateLimit),
                ("no_money", ErrorKind::Quota),
                ("failed", ErrorKind::Server),
                ("wrong", ErrorKind::InvalidRequest),
            ],
            messages: &[("too long", ErrorKind::ContextLength)],
            ..ErrorKinds::default()
        };
        let table = [
            (Some(429), error("busy", None, ""), ErrorKind::RateLimit),
            // The code says more than the type.
            (Some(429), error("busy", Some("no_money"), ""), ErrorKind::Quota),
            (Some(429), error("no_money", Some("busy"), ""), ErrorKind::RateLimit),
            (Some(400), error("wrong", None, "It is Too Long: 3 > 2"), ErrorKind::ContextLength),
            (Some(400), error("no_money", None, "too long"), ErrorKind::Quota),
            // The status says more than that something failed.
            (Some(409), error("wrong", None, ""), ErrorKind::Server),
            (Some(529), error("failed", None, ""), ErrorKind::Overloaded),
            (Some(401), error("1000", None, ""), ErrorKind::Authentication),
            (None, error("busy", None, ""), ErrorKind::RateLimit),
            (None, error("wrong", None, ""), ErrorKind::InvalidRequest),
            (None, error("", Some("404"), ""), ErrorKind::InvalidRequest),
            (None, error("unknown", None, ""), ErrorKind::Server),
        ];
        for (status, error, kind) in table {
            assert_eq!(error.kind(status, &known), kind, "{error:?}");
        }
    }
}
