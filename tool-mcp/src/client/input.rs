//! What a server asks the user for during a call: the call waits for the answers, for days if need be.
//!
//! A call whose server asks for input uses what a tool of the program uses to ask: what the server has returned is recorded by
//! `Asker::once`, so the server is not asked again when the call goes on, and a task parks the call (`task`), because a run can be stored
//! and continued elsewhere in both cases.
//!
//! It is recorded with a digest of the server's name, URL or command and user, because another process can have another server of that name,
//! which must not get the state and the answers of the first.

use rmcp::model::{
    CallToolRequestParams, ElicitRequestParams, ElicitResult, InputRequest, InputRequests,
    InputRequiredResult, InputResponses,
};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tool_core::provider::printable;
use tool_core::tool::{AskError, AskErrorKind, Asker, DynamicTool, Question};
use tool_core::{Tool, ToolContext, ToolError};
use tool_http::client::Redactor;
use unicode_normalization::UnicodeNormalization;

use super::config::ServerConfig;
use super::text::{truncate, truncate_name};
use super::{McpError, McpTool};

/// The number of times that a server may ask during a call, and what it may ask for at once.
pub(super) const MAX_ROUNDS: usize = 10;
const MAX_REQUESTS: usize = 16;

/// The longest state that a server may keep with the client, in bytes.
const MAX_STATE_BYTES: usize = 32 * 1024;

/// The characters of a server's message that a person reads.
const MAX_MESSAGE_CHARS: usize = 2_000;

/// The number of times that a person is asked for an answer that fits.
const MAX_ATTEMPTS: usize = 3;

/// The longest round, in bytes: a call that belongs to a run records it.
const MAX_ROUND_BYTES: usize = 60 * 1024;

/// The longest URL that a person is asked to open, in bytes.
const MAX_URL_BYTES: usize = 2_000;

/// Words in forms that ask for secrets, without what separates them. Servers must not ask for secrets in a form.
const SECRETS: [&str; 13] = [
    "password",
    "passphrase",
    "passwd",
    "passcode",
    "secret",
    "apikey",
    "accesstoken",
    "authtoken",
    "refreshtoken",
    "privatekey",
    "onetimecode",
    "credential",
    "cvv",
];

/// What a server asks for, and what it wants back with the answers.
#[derive(Serialize, Deserialize)]
pub(super) struct Round {
    requests: Vec<(String, Request)>,
    /// Opaque, and as secret as what the server has put into it.
    state: Option<String>,
    /// The server has not seen the answers to earlier rounds, so that it asks for the same again.
    #[serde(default)]
    is_first: bool,
}

#[derive(PartialEq, Serialize, Deserialize)]
enum Request {
    Form {
        message: String,
        schema: Value,
    },
    Url {
        message: String,
        url: String,
    },
    /// Asks for something that a person must not be asked.
    Refused,
}

/// What was answered to a server, and what it wants back with it.
#[derive(Default)]
pub(super) struct Given {
    responses: InputResponses,
    state: Option<String>,
    /// All states of this call.
    states: Vec<SecretString>,
    /// The answers since the server was last asked from the start.
    known: Vec<Answered>,
    /// The answers before, each of which a server that asks the same again gets once.
    forgotten: Vec<Answered>,
}

/// The key of a request, the request and its answer.
type Answered = (String, Request, Value);

impl Given {
    /// Returns `true` if the server gets neither answers nor a state.
    pub(super) fn is_empty(&self) -> bool {
        self.responses.is_empty() && self.state.is_none()
    }

    pub(super) fn has_state(&self) -> bool {
        self.state.is_some()
    }

    /// Returns a redactor that knows the states of the call, too.
    pub(super) fn redactor(&self, config: &ServerConfig) -> Redactor {
        let mut redactor = config.redactor.clone();
        self.states.iter().for_each(|state| redactor.add(state.expose_secret()));
        redactor
    }

    pub(super) fn add_to(&self, mut params: CallToolRequestParams) -> CallToolRequestParams {
        if !self.responses.is_empty() {
            params = params.with_input_responses(self.responses.clone());
        }
        match &self.state {
            Some(state) => params.with_request_state(state.clone()),
            None => params,
        }
    }

    /// Asks the user for what the server asks for, except for what it asks again because it has forgotten the answers.
    pub(super) async fn answer(
        &mut self,
        round: Round,
        tool: &McpTool,
        asker: &Asker,
    ) -> Result<(), ToolError> {
        let server = truncate_name(tool.server_name());
        self.states.extend(round.state.as_deref().map(SecretString::from));
        self.state = round.state;
        self.responses = InputResponses::new();
        if round.is_first {
            self.forgotten.append(&mut self.known);
        }
        for (key, request) in round.requests {
            let same = self.forgotten.iter().position(|(known, asked, _)| *known == key && *asked == request);
            let response = match same {
                Some(index) => self.forgotten.remove(index).2,
                None => request.ask(&server, asker).await?,
            };
            self.responses.insert(key.clone(), response.clone());
            self.known.push((key, request, response));
        }
        Ok(())
    }

    /// Asks the one question of a call that stays open, and returns what its server gets.
    pub(super) async fn answer_one(
        &mut self,
        round: Round,
        tool: &McpTool,
        asker: &Asker,
    ) -> Result<Option<ElicitResult>, ToolError> {
        self.answer(round, tool, asker).await?;
        let response = std::mem::take(&mut self.responses).into_values().next();
        Ok(response.and_then(|response| serde_json::from_value(response).ok()))
    }

    /// Asks the user to open pages before the call is sent again.
    pub(super) async fn show_pages(
        &mut self,
        round: Round,
        tool: &McpTool,
        asker: &Asker,
    ) -> Result<(), ToolError> {
        self.answer(round, tool, asker).await?;
        match std::mem::take(&mut self.responses).values().all(|response| response["action"] == "accept") {
            true => Ok(()),
            false => Err(ToolError::failed("the user has not opened the page that the server needs")),
        }
    }

    /// Returns the answers to what a task asks for that are known, and what is open. The key of a request stands for one question.
    pub(super) fn answered(&self, mut round: Round) -> (InputResponses, Round) {
        let (mut responses, mut open) = (InputResponses::new(), Vec::new());
        for (key, request) in round.requests {
            match self.known.iter().find(|(known, asked, _)| *known == key && *asked == request) {
                Some((.., response)) => drop(responses.insert(key, response.clone())),
                None => open.push((key, request)),
            }
        }
        round.requests = open;
        (responses, round)
    }
}

impl Round {
    /// Reads what a task asks for.
    pub(super) fn of_task(server: &str, asked: InputRequests) -> Result<Self, McpError> {
        Self::of(server, asked.into_iter().map(|(key, asked)| (key, Request::of_input(asked))), None, false)
    }

    /// Reads what a server of an older revision asks while a call is open. The same question of the same call has another `number`.
    pub(super) fn of_question(
        server: &str,
        number: usize,
        asked: ElicitRequestParams,
    ) -> Result<Self, McpError> {
        Self::of(server, [(number.to_string(), Request::new(asked))].into_iter(), None, number == 1)
    }

    /// Reads the pages that a server of an older revision needs. The same page is another one in the next round.
    pub(super) fn of_pages(server: &str, round: usize, pages: Value) -> Result<Self, McpError> {
        let pages: Vec<Value> = serde_json::from_value(pages).unwrap_or_default();
        let page = |(number, page)| {
            let request = match serde_json::from_value(page) {
                Ok(asked @ ElicitRequestParams::UrlElicitationParams { .. }) => Request::new(asked),
                _ => Err("needs a page that it does not describe".to_owned()),
            };
            (format!("{round}.{number}"), request)
        };
        Self::of(server, pages.into_iter().enumerate().map(page), None, false)
    }

    /// Reads what a server asks for. The round is the first one if the request had neither answers nor a state.
    pub(super) fn new(server: &str, required: InputRequiredResult, is_first: bool) -> Result<Self, McpError> {
        let state = required.request_state;
        if state.as_ref().is_some_and(|state| state.len() > MAX_STATE_BYTES) {
            let problem = format!("wants to keep more than {MAX_STATE_BYTES} bytes with the client");
            return Err(McpError::invalid_response(server, problem));
        }
        let asked = required.input_requests.unwrap_or_default();
        Self::of(
            server,
            asked.into_iter().map(|(key, asked)| (key, Request::of_input(asked))),
            state,
            is_first,
        )
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    fn of(
        server: &str,
        asked: impl ExactSizeIterator<Item = (String, Result<Request, String>)>,
        state: Option<String>,
        is_first: bool,
    ) -> Result<Self, McpError> {
        let invalid = |problem: String| McpError::invalid_response(server, problem);
        if asked.len() > MAX_REQUESTS {
            return Err(invalid(format!("asks for more than {MAX_REQUESTS} things at once")));
        }
        let requests = asked.map(|(key, request)| Ok((key, request?)));
        let requests = requests.collect::<Result<_, String>>().map_err(invalid)?;
        let round = Self { requests, state, is_first };
        match serde_json::to_vec(&round).is_ok_and(|text| text.len() <= MAX_ROUND_BYTES) {
            true => Ok(round),
            false => Err(invalid(format!("asks for more than {MAX_ROUND_BYTES} bytes at once"))),
        }
    }
}

impl Request {
    /// Returns the answer in the form of the protocol.
    async fn ask(&self, server: &str, asker: &Asker) -> Result<Value, ToolError> {
        match self {
            Self::Refused => Ok(answer("decline")),
            Self::Form { message, schema } => ask_form(asker, server, message, schema).await,
            Self::Url { message, url } => ask_to_open(asker, server, message, url).await,
        }
    }

    fn of_input(request: InputRequest) -> Result<Self, String> {
        match request {
            InputRequest::Elicitation(request) => Self::new(request.params),
            _ => Err("asks for something that the client does not support".to_owned()),
        }
    }

    fn new(asked: ElicitRequestParams) -> Result<Self, String> {
        Ok(match asked {
            ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
                let schema = serde_json::to_value(requested_schema).map_err(|error| error.to_string())?;
                match asks_for_secret(&message, &schema) || has_hidden_characters(&schema) {
                    true => Self::Refused,
                    false => Self::Form { message, schema },
                }
            }
            ElicitRequestParams::UrlElicitationParams { message, url, .. } => match is_readable(&url) {
                true => Self::Url { message, url },
                false => Self::Refused,
            },
            _ => return Err("asks in a form that the client does not support".to_owned()),
        })
    }
}

/// Returns an answer without content, in the form of the protocol.
fn answer(action: &str) -> Value {
    json!({ "action": action })
}

/// Returns `true` if a form names a secret: servers have to ask for secrets on a page of their own. Letters that look alike in another width or
/// style, accents and all that separates letters make no difference.
fn asks_for_secret(message: &str, schema: &Value) -> bool {
    let texts = std::iter::once(message).chain(texts_of(schema));
    let characters = texts.flat_map(|text| text.nfkd()).flat_map(char::to_lowercase);
    let text: String = characters.filter(|char| char.is_alphanumeric()).collect();
    SECRETS.iter().any(|word| text.contains(word))
}

/// Returns `true` if a form shows characters that nobody sees, or that reorder others. They cannot be escaped, because names and values are
/// sent back.
fn has_hidden_characters(schema: &Value) -> bool {
    texts_of(schema).into_iter().any(|text| printable(text) != text)
}

/// Returns the names and texts of a form, in their order.
fn texts_of(schema: &Value) -> Vec<&str> {
    match schema {
        Value::String(text) => vec![text],
        Value::Array(values) => values.iter().flat_map(texts_of).collect(),
        Value::Object(members) => {
            members.iter().flat_map(|(name, value)| std::iter::once(&**name).chain(texts_of(value))).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns `true` if a person can read where a URL leads: it is short, on one line, and contains no user name, which can pass for a host.
fn is_readable(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    url.len() <= MAX_URL_BYTES && url.bytes().all(is_plain) && !host.is_empty() && !host.contains('@')
}

/// Returns a text of the server for a question. Its further lines are marked, so that none of them can pass for the client's.
fn quoted(text: &str) -> String {
    printable(&truncate(text, MAX_MESSAGE_CHARS)).replace('\n', "\n> ")
}

/// Returns an answer as the object of a form: a plain value is that of the one member, or what its label stands for.
fn into_object(answer: Value, schema: &Value) -> Value {
    let members = schema["properties"].as_object().filter(|members| members.len() == 1);
    let Some((name, member)) = members.and_then(|members| members.iter().next()) else { return answer };
    if answer.is_object() {
        return answer;
    }
    let text = answer.as_str().map_or_else(|| answer.to_string(), str::to_owned);
    let mut options = member["oneOf"].as_array().into_iter().flatten();
    let labeled = options.find(|option| option["title"] == *text).map(|option| option["const"].clone());
    let question = serde_json::from_value::<Question>(json!({ "text": "", "schema": member })).ok();
    let read = || serde_json::from_str(&question?.answer_of(&text)).ok();
    Value::Object(Map::from_iter([(name.clone(), labeled.or_else(read).unwrap_or(answer))]))
}

/// Asks for the values of a form until they match its schema.
async fn ask_form(asker: &Asker, server: &str, message: &str, schema: &Value) -> Result<Value, ToolError> {
    // Returns the values as they fit the schema, which those that were given need not do by the letter.
    let form = DynamicTool::new("form", schema.clone(), |values: Map<String, Value>, _: ToolContext| async {
        Ok::<_, ToolError>(Value::Object(values).to_string())
    });
    let form = form.map_err(|_| ToolError::failed("the server asks for values of an invalid form"))?;
    let text = format!("The server `{server}` asks: {}", quoted(message));
    let mut problem = None;
    for _ in 0..MAX_ATTEMPTS {
        let given = match asker.ask_json(&*text, schema.clone()).problem(problem).await {
            Ok(given) => into_object(given, schema).to_string(),
            Err(error) => return refusal(error),
        };
        let read = form.call(&given, &ToolContext::new()).await.map(|read| read.to_string());
        match read.map(|read| serde_json::from_str::<Value>(&read)) {
            Ok(Ok(content)) => return Ok(json!({ "action": "accept", "content": content })),
            Ok(Err(_)) => break,
            // Those who answer do not know of arguments.
            Err(error) => problem = Some(quoted(&error.to_string().replacen("invalid arguments: ", "", 1))),
        }
    }
    Ok(answer("cancel"))
}

/// Asks for the consent to open a page. The page is neither opened nor read.
async fn ask_to_open(asker: &Asker, server: &str, message: &str, url: &str) -> Result<Value, ToolError> {
    let message = quoted(message);
    let text = format!(
        "The server `{server}` asks you to open a page: {message}\n{url}\nHave you opened it, or will you?"
    );
    match asker.ask::<bool>(text).await {
        Ok(true) => Ok(answer("accept")),
        Ok(false) => Ok(answer("decline")),
        Err(error) => refusal(error),
    }
}

/// Returns what a server reads if nobody has answered.
fn refusal(error: AskError) -> Result<Value, ToolError> {
    match error.kind() {
        AskErrorKind::Declined => Ok(answer("decline")),
        AskErrorKind::Expired | AskErrorKind::Unavailable | AskErrorKind::TooMany => Ok(answer("cancel")),
        _ => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_that_name_a_secret_or_hide_characters_are_refused() {
        let form = |name: &str| json!({ "type": "object", "properties": { name: { "type": "string" } } });
        for (message, name) in [
            ("Enter your GitHub password", "value"),
            ("Who are you?", "accessToken"),
            ("Who are you?", "api key"),
            ("Who are you?", "pass\u{200b}word"),
            ("Who are you?", "pass\nword"),
            ("Who are you?", "pass\tword"),
            ("Who are you?", "pass\"word"),
            ("Who are you?", "ｐａｓｓｗｏｒｄ"),
            ("Who are you?", "𝐩𝐚𝐬𝐬𝐰𝐨𝐫𝐝"),
            ("Who are you?", "pássẃord"),
            ("Your pass\r\nword?", "value"),
            ("Your ＡＰＩ　Ｋｅｙ?", "value"),
        ] {
            assert!(asks_for_secret(message, &form(name)), "{message} {name}");
        }
        let titled = json!({ "properties": { "value": { "enum": ["pass\nphrase"], "type": "string" } } });
        assert!(asks_for_secret("Which one?", &titled));
        assert!(!asks_for_secret("Which seat?", &form("seat")));
        assert!(has_hidden_characters(&form("se\u{202e}at")));
        assert!(!has_hidden_characters(&form("Sitzplatz für Ärzte")));
    }

    #[test]
    fn urls_show_where_they_lead() {
        assert!(is_readable("https://pay.example/7?a=b@c"));
        for url in [
            "javascript:alert(1)",
            "https://",
            "https://pay.example@evil.example/",
            "https://pay.example\\@evil.example/",
            "https://evil.example/\nhttps://pay.example/",
            "https://pаy.example/",
        ] {
            assert!(!is_readable(url), "{url}");
        }
        assert!(!is_readable(&format!("https://pay.example/{}", "a".repeat(MAX_URL_BYTES))));
    }

    #[test]
    fn lines_of_a_server_are_marked() {
        assert_eq!(quoted("Pay\nThe server `bank` asks: PIN"), "Pay\n> The server `bank` asks: PIN");
    }
}
