//! Errors as the API reports them.

use std::fmt;

use reqwest::StatusCode;
use tool_http::client::{ErrorBody, ErrorKind, MAX_MESSAGE_CHARS, RetryHeaders, error_name, excerpt};

/// The longest body that is searched for an error. Parsing arbitrary JSON takes a multiple of its length in memory.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

/// The kinds for codes and types, the most specific first. They are compared as a whole.
const CODES: [(&str, ErrorKind); 22] = [
    ("insufficient_quota", ErrorKind::Quota),
    ("billing_hard_limit_reached", ErrorKind::Quota),
    ("billing_not_active", ErrorKind::Quota),
    ("context_length_exceeded", ErrorKind::ContextLength),
    ("exceed_context_size_error", ErrorKind::ContextLength),
    ("model_max_prompt_tokens_exceeded", ErrorKind::ContextLength),
    ("content_filter", ErrorKind::ContentFilter),
    ("content_policy_violation", ErrorKind::ContentFilter),
    ("tool_use_failed", ErrorKind::MalformedToolCall),
    ("overloaded_error", ErrorKind::Overloaded),
    ("rate_limit_exceeded", ErrorKind::RateLimit),
    ("rate_limit_error", ErrorKind::RateLimit),
    ("RESOURCE_EXHAUSTED", ErrorKind::RateLimit),
    ("invalid_api_key", ErrorKind::Authentication),
    ("authentication_error", ErrorKind::Authentication),
    ("permission_error", ErrorKind::Authentication),
    ("server_error", ErrorKind::Server),
    ("internal_error", ErrorKind::Server),
    ("api_error", ErrorKind::Server),
    ("UNAVAILABLE", ErrorKind::Overloaded),
    ("invalid_request_error", ErrorKind::InvalidRequest),
    ("BadRequestError", ErrorKind::InvalidRequest),
];

/// The kinds for parts of messages.
const MESSAGES: [(&str, ErrorKind); 7] = [
    ("maximum context length", ErrorKind::ContextLength),
    ("context length exceeded", ErrorKind::ContextLength),
    ("context window", ErrorKind::ContextLength),
    ("prompt is too long", ErrorKind::ContextLength),
    ("exceeds the available context size", ErrorKind::ContextLength),
    ("insufficient balance", ErrorKind::Quota),
    ("exceeded your current quota", ErrorKind::Quota),
];

/// An error that the API reports.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: Option<StatusCode>,
    pub(crate) message: String,
    /// The body is a web page, of which `message` is the start.
    pub(crate) is_html: bool,
    pub(crate) error_type: Option<String>,
    pub(crate) code: Option<String>,
    pub(crate) param: Option<String>,
    /// The text that the server could not parse as a tool call.
    pub(crate) failed_generation: Option<String>,
    pub(crate) retry: RetryHeaders,
    /// The request was sent without a key.
    pub(crate) lacks_key: bool,
}

impl ApiError {
    /// Parses the error in a body. Returns `None` if there is none.
    pub(crate) fn parse(body: &str) -> Option<Self> {
        let error = ErrorBody::parse(body)?;
        Some(Self {
            param: error.text("/param"),
            failed_generation: error.text("/failed_generation"),
            message: error.message,
            error_type: error.error_type,
            code: error.code,
            ..Self::default()
        })
    }
}

/// Returns `true` if the body reports an error.
pub(crate) fn is_error_body(body: &str) -> bool {
    body.len() <= MAX_ERROR_BODY_BYTES && ErrorBody::parse(body).is_some()
}

/// Returns `true` if the value of a field `error` is an error. Some servers always send the field.
pub(crate) fn is_error_value(value: &str) -> bool {
    !matches!(value.trim_ascii(), "null" | "false" | "0" | "\"\"" | "{}" | "[]")
}

impl ApiError {
    /// Classifies an error of the API by a specific code or type, its message, its status, or a general code or type, in
    /// this order.
    pub(crate) fn kind(&self) -> ErrorKind {
        let names = [&self.code, &self.error_type].map(Option::as_deref);
        let is_specific = |kind: ErrorKind| !matches!(kind, ErrorKind::InvalidRequest | ErrorKind::Server);
        let by_name =
            |name: Option<&str>| CODES.iter().find(|(code, _)| Some(*code) == name).map(|(_, kind)| *kind);
        let specific = names.iter().find_map(|name| by_name(*name).filter(|kind| is_specific(*kind)));
        let message = self.message.to_lowercase();
        let by_message = || MESSAGES.iter().find(|(part, _)| message.contains(part)).map(|(_, kind)| *kind);
        // Errors with status 200 may have the status in the code.
        let code_status = || self.code.as_deref()?.parse::<u16>().ok();
        let status = self.status.map(|status| status.as_u16()).filter(|status| *status >= 400);
        specific
            .or_else(by_message)
            .or_else(|| status.or_else(code_status).map(ErrorKind::from_status))
            .or_else(|| names.iter().find_map(|name| by_name(*name)))
            .unwrap_or(ErrorKind::Server)
    }

    /// Writes the error after the request, in one line, with the way out where it is known. `base_url` is the one with a
    /// version, if the configured one has none.
    pub(super) fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        base_url: Option<&str>,
        sent_json_schema: bool,
    ) -> fmt::Result {
        f.write_str(if self.is_html { " answered with HTML" } else { " failed" })?;
        if let Some(status) = &self.status {
            write!(f, " with status {}", status.as_u16())?;
        }
        if let Some(name) = error_name(self.code.as_deref(), self.error_type.as_deref()) {
            write!(f, ", {}", excerpt(name, MAX_MESSAGE_CHARS))?;
        }
        write!(f, ": {}", excerpt(&self.message, MAX_MESSAGE_CHARS))?;
        let kind = self.kind();
        if self.lacks_key && kind == ErrorKind::Authentication {
            return f.write_str("; no key was sent, set one with `api_key` or `api_key_from_env`");
        }
        let status = self.status.map_or(0, |status| status.as_u16());
        if sent_json_schema
            && matches!(status, 400 | 422 | 500)
            && matches!(kind, ErrorKind::InvalidRequest | ErrorKind::Server)
        {
            f.write_str(
                "; if the server does not support JSON schemas in `response_format`, set `Endpoint::supports_json_schema` to \
                 `false`: typed answers then use a tool",
            )?;
        }
        // The API sends a code or a type if a model is missing; a server without this path mostly does not.
        let is_unexplained = self.code.is_none() && self.error_type.is_none();
        let may_lack_version = base_url.is_some() && self.code.as_deref() != Some("model_not_found");
        match status {
            404 | 405 if is_unexplained || may_lack_version => write_base_url_hint(f, base_url),
            _ => Ok(()),
        }
    }
}

/// Writes that the base URL may be wrong, and the one that it may have to be.
pub(super) fn write_base_url_hint(f: &mut fmt::Formatter<'_>, versioned: Option<&str>) -> fmt::Result {
    f.write_str("; check the base URL")?;
    match versioned {
        Some(url) => write!(f, ", did you mean `{url}`?"),
        None => Ok(()),
    }
}
