//! Checks requests and responses against the schemas of the published API, in `tests/published`.

use std::sync::{LazyLock, OnceLock};

use jsonschema::Validator;
use serde_json::{Value, json};

/// An API that requests are sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `POST /chat/completions`.
    ChatCompletions,
    /// `POST /responses`.
    Responses,
    /// `POST /responses/compact`.
    Compact,
    /// Anthropic's `POST /messages`.
    Messages,
    /// Anthropic's `POST /messages/count_tokens`.
    CountTokens,
}

impl Api {
    /// Returns the API of a path such as `/v1/responses`, if it is a known one.
    pub fn from_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or(path);
        let apis = [
            ("/chat/completions", Self::ChatCompletions),
            ("/responses", Self::Responses),
            ("/responses/compact", Self::Compact),
            ("/messages", Self::Messages),
            ("/messages/count_tokens", Self::CountTokens),
        ];
        apis.into_iter().find(|(end, _)| path.ends_with(end)).map(|(_, api)| api)
    }

    fn file(self) -> &'static Value {
        static CHAT_COMPLETIONS: LazyLock<Value> =
            LazyLock::new(|| parse(include_str!("../published/chat_completions.schema.json")));
        static RESPONSES: LazyLock<Value> =
            LazyLock::new(|| parse(include_str!("../published/responses.schema.json")));
        static MESSAGES: LazyLock<Value> =
            LazyLock::new(|| parse(include_str!("../published/messages.schema.json")));
        match self {
            Self::ChatCompletions => &CHAT_COMPLETIONS,
            Self::Responses | Self::Compact => &RESPONSES,
            Self::Messages | Self::CountTokens => &MESSAGES,
        }
    }

    fn request(self, body: &Value) -> Document {
        match self {
            Self::ChatCompletions => Document::CompletionRequest,
            Self::Responses => Document::ResponseRequest,
            Self::Compact => Document::CompactRequest,
            Self::Messages if body["stream"] == true => Document::MessageStreamRequest,
            Self::Messages => Document::MessageRequest,
            Self::CountTokens => Document::CountTokensRequest,
        }
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("a published schema is JSON")
}

/// A type of document that a published schema describes.
#[derive(Clone, Copy, Debug)]
pub enum Document {
    /// A request of Chat Completions.
    CompletionRequest,
    /// A response of Chat Completions.
    Completion,
    /// A chunk of a streamed response of Chat Completions.
    Chunk,
    /// A request of the Responses API.
    ResponseRequest,
    /// A request to compact a conversation.
    CompactRequest,
    /// A response of the Responses API.
    Response,
    /// An event of a streamed response of the Responses API.
    Event,
    /// An error of either API.
    Error,
    /// A request of the Messages API.
    MessageRequest,
    /// A request of the Messages API for a stream.
    MessageStreamRequest,
    /// A request to count the tokens of another.
    CountTokensRequest,
    /// A response of the Messages API.
    Message,
    /// An event of a streamed response of the Messages API.
    MessageEvent,
    /// An error of the Messages API.
    MessageError,
}

impl Document {
    const SCHEMAS: [(Api, &str); 14] = [
        (Api::ChatCompletions, "CreateChatCompletionRequest"),
        (Api::ChatCompletions, "CreateChatCompletionResponse"),
        (Api::ChatCompletions, "CreateChatCompletionStreamResponse"),
        (Api::Responses, "CreateResponse"),
        (Api::Responses, "CompactRequest"),
        (Api::Responses, "Response"),
        (Api::Responses, "ResponseStreamEvent"),
        (Api::Responses, "ErrorResponse"),
        (Api::Messages, "Request"),
        (Api::Messages, "StreamRequest"),
        (Api::Messages, "CountTokensRequest"),
        (Api::Messages, "Response"),
        (Api::Messages, "StreamEvent"),
        (Api::Messages, "ErrorResponse"),
    ];

    fn validator(self) -> &'static Validator {
        static VALIDATORS: [OnceLock<Validator>; 14] = [const { OnceLock::new() }; 14];
        VALIDATORS[self as usize].get_or_init(|| {
            let (api, name) = Self::SCHEMAS[self as usize];
            let schema = json!({ "$ref": format!("#/$defs/{name}"), "$defs": api.file()["$defs"] });
            jsonschema::draft202012::new(&schema).expect("a published schema is valid")
        })
    }

    /// Returns `true` if the document is valid.
    pub fn allows(self, document: &Value) -> bool {
        self.validator().is_valid(document)
    }

    /// Panics if the document is invalid.
    #[track_caller]
    pub fn check(self, document: &Value) {
        let errors: Vec<_> = self.validator().iter_errors(document).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{self:?} does not match the published schema: {errors:#?}\n{document:#}");
    }
}

/// Panics if the published API would reject the body of a request.
#[track_caller]
pub fn check_request(api: Api, body: &[u8]) {
    if let Err(why) = validate_request(api, body) {
        panic!("the API would refuse the request: {why}\n{}", String::from_utf8_lossy(body));
    }
}

/// Validates the body of a request; the error is the reason why the API would reject it.
pub fn validate_request(api: Api, body: &[u8]) -> Result<(), String> {
    let body: Value =
        serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    let object = body.as_object().ok_or("the body is not an object")?;
    // The schemas of OpenAI's requests are open, so a misspelt property would pass them.
    let known = api.file().get("known_request_properties").and_then(Value::as_array);
    if let Some(known) = known
        && let Some(unknown) = object.keys().find(|name| !known.iter().any(|known| known == *name))
    {
        return Err(format!("unknown property `{unknown}`"));
    }
    // The message for a large union would include all of it, so only the paths are reported.
    let errors = api.request(&body).validator().iter_errors(&body);
    let wrong: Vec<_> = errors.map(|error| format!("at `{}`", error.instance_path())).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join(", ")) }
}
