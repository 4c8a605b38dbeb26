//! Errors in the bodies of responses, and how they are shown.

use serde_json::Value;
use tool_core::content::printable;

use super::error_kind::ErrorKind;
use super::redact::Redactor;

/// The longest body that is searched for an error. Parsing arbitrary JSON takes a multiple of its length in memory.
const MAX_BODY_BYTES: usize = 64 << 10;

/// The kinds for the codes and types of the known servers, the most specific first. They are compared as a whole.
const NAMES: [(&str, ErrorKind); 28] = [
    ("insufficient_quota", ErrorKind::Quota),
    ("billing_hard_limit_reached", ErrorKind::Quota),
    ("billing_not_active", ErrorKind::Quota),
    ("billing_error", ErrorKind::Quota),
    // This one and the next have the type of a rate limit, and only the second one passes.
    ("enforced_spend_limit_reached", ErrorKind::Quota),
    ("ramp_limit_exceeded", ErrorKind::RateLimit),
    ("context_length_exceeded", ErrorKind::ContextLength),
    ("exceed_context_size_error", ErrorKind::ContextLength),
    ("model_max_prompt_tokens_exceeded", ErrorKind::ContextLength),
    ("content_filter", ErrorKind::ContentFilter),
    ("content_policy_violation", ErrorKind::ContentFilter),
    ("tool_use_failed", ErrorKind::MalformedToolCall),
    ("overloaded_error", ErrorKind::Overloaded),
    ("UNAVAILABLE", ErrorKind::Overloaded),
    ("rate_limit_exceeded", ErrorKind::RateLimit),
    ("rate_limit_error", ErrorKind::RateLimit),
    ("RESOURCE_EXHAUSTED", ErrorKind::RateLimit),
    ("invalid_api_key", ErrorKind::Authentication),
    ("authentication_error", ErrorKind::Authentication),
    ("permission_error", ErrorKind::Authentication),
    ("server_error", ErrorKind::Server),
    ("internal_error", ErrorKind::Server),
    ("api_error", ErrorKind::Server),
    ("timeout_error", ErrorKind::Server),
    ("invalid_request_error", ErrorKind::InvalidRequest),
    ("not_found_error", ErrorKind::InvalidRequest),
    ("request_too_large", ErrorKind::InvalidRequest),
    ("BadRequestError", ErrorKind::InvalidRequest),
];

/// The kinds for parts of messages.
const MESSAGES: [(&str, ErrorKind); 9] = [
    ("maximum context length", ErrorKind::ContextLength),
    ("context length exceeded", ErrorKind::ContextLength),
    ("context window", ErrorKind::ContextLength),
    ("prompt is too long", ErrorKind::ContextLength),
    ("exceed context limit", ErrorKind::ContextLength),
    ("exceeds the available context size", ErrorKind::ContextLength),
    ("insufficient balance", ErrorKind::Quota),
    ("exceeded your current quota", ErrorKind::Quota),
    ("credit balance is too low", ErrorKind::Quota),
];

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
    /// `{error: {message, type, code}}` (OpenAI), also with `details: {error_code}` (Anthropic), `{error: "…"}` and `[{error}]`
    /// (Gemini), `{object: "error", message}` (vLLM), `{message: {detail: [{msg}]}}` (Mistral), `{detail}` (FastAPI). Google sends the
    /// name of the status instead of a type.
    pub(super) fn parse(body: &str) -> Option<Self> {
        let mut body: Value = serde_json::from_str(body).ok()?;
        if let Some(first) = body.get_mut(0) {
            body = first.take();
        }
        let error = error_in(&body);
        let message = match error {
            Value::String(message) => message.clone(),
            _ => error.get("message").or_else(|| error.get("detail")).and_then(message_text)?,
        };
        let name = |pointer: &str| error.pointer(pointer).and_then(text);
        // In a stream, the event has the type.
        let error_type = name("/type").or_else(|| error.get("status")?.as_str().map(str::to_owned));
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
    pub(super) fn kind(&self, status: Option<u16>) -> ErrorKind {
        let names = [&self.code, &self.error_type].into_iter().flatten();
        let kinds = names.filter_map(|name| NAMES.iter().find(|(known, _)| known == name));
        let mut kinds = kinds.map(|(_, kind)| *kind);
        let is_specific = |kind: &ErrorKind| !matches!(kind, ErrorKind::InvalidRequest | ErrorKind::Server);
        let message = self.message.to_lowercase();
        let by_message = || MESSAGES.iter().find(|(part, _)| message.contains(part)).map(|(_, kind)| *kind);
        // Errors with status 200 may have the status in the code.
        let code_status = || self.code.as_deref()?.parse::<u16>().ok();
        let status = status.filter(|status| *status >= 400);
        kinds
            .clone()
            .find(is_specific)
            .or_else(by_message)
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
    body.get("error").filter(|error| !error.is_null()).unwrap_or(body)
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

    #[test]
    fn classifies_errors() {
        let error = |kind: &str, code: Option<&str>, message: &str| ErrorBody {
            message: message.into(),
            error_type: Some(kind.into()).filter(|kind: &String| !kind.is_empty()),
            code: code.map(Into::into),
            body: Value::Null,
        };
        let table = [
            (Some(429), error("rate_limit_error", None, ""), ErrorKind::RateLimit),
            (
                Some(429),
                error("rate_limit_error", Some("enforced_spend_limit_reached"), ""),
                ErrorKind::Quota,
            ),
            (Some(429), error("rate_limit_error", Some("ramp_limit_exceeded"), ""), ErrorKind::RateLimit),
            (Some(402), error("billing_error", None, ""), ErrorKind::Quota),
            (Some(529), error("overloaded_error", None, ""), ErrorKind::Overloaded),
            (
                Some(400),
                error("invalid_request_error", None, "prompt is too long: 3 > 2"),
                ErrorKind::ContextLength,
            ),
            (Some(400), error("invalid_request_error", None, "tools: bad"), ErrorKind::InvalidRequest),
            (Some(413), error("request_too_large", None, ""), ErrorKind::InvalidRequest),
            (Some(409), error("conflict_error", None, ""), ErrorKind::Server),
            (Some(500), error("api_error", None, ""), ErrorKind::Server),
            (Some(504), error("timeout_error", None, ""), ErrorKind::Server),
            (Some(401), error("1000", None, ""), ErrorKind::Authentication),
            (None, error("overloaded_error", None, ""), ErrorKind::Overloaded),
            (None, error("api_error", None, ""), ErrorKind::Server),
            (None, error("not_found_error", None, ""), ErrorKind::InvalidRequest),
            (None, error("", Some("404"), ""), ErrorKind::InvalidRequest),
        ];
        for (status, error, kind) in table {
            assert_eq!(error.kind(status), kind, "{error:?}");
        }
    }
}
