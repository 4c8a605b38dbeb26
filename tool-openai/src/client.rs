//! Sends requests over HTTP and tells answers from errors.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Response, Url};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Told;
use crate::pieces::RequestBody;
use crate::retry::{Retries, RetryHeaders, RetryPolicy};
use crate::streaming::Problem;
use crate::tools::WarningHook;
use crate::{Endpoint, Error, encoding};

/// How long an answer may be, in bytes: beyond any that a model gives.
pub(crate) const LONGEST_BODY: usize = 64 << 20;

/// How much of an error's body is read, in bytes.
const LONGEST_ERROR_BODY: usize = 64 << 10;

/// The connections to one endpoint, and what is set of it.
pub(crate) struct Client {
    pub(crate) http: reqwest::Client,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) base_url: Url,
    /// What is shown to nobody, should a server send it back: the key, and headers that may hold one.
    pub(crate) secrets: Vec<SecretString>,
    pub(crate) headers: HeaderMap,
    pub(crate) retry: RetryPolicy,
    /// Room for the requests under way, if their number is bounded.
    pub(crate) room: Option<Arc<Semaphore>>,
    pub(crate) on_warning: Option<WarningHook>,
}

/// An answer whose head has come. Until it is dropped, the request is under way.
pub(crate) struct Answer {
    pub(crate) response: Response,
    pub(crate) url: Url,
    pub(crate) request_id: Option<String>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Answer {
    /// The bytes of the body, as they come.
    pub(crate) fn into_bytes(self) -> impl Stream<Item = reqwest::Result<Bytes>> + Send {
        let Self { response, _room, .. } = self;
        response.bytes_stream().inspect(move |_| {
            // It is given back with the stream.
            let _ = &_room;
        })
    }
}

impl Client {
    /// The retries of one request.
    pub(crate) fn retries(&self) -> Retries<'_> {
        self.retry.begin()
    }

    /// Sends JSON, and gives the answer, unless it is an error by its status.
    pub(crate) async fn send(
        &self,
        api: &str,
        model: &str,
        body: &RequestBody,
        accept: &'static str,
    ) -> Result<Answer, Error> {
        let room = match &self.room {
            // Nobody closes it.
            Some(room) => Arc::clone(room).acquire_owned().await.ok(),
            None => None,
        };
        let url = self.url(api, model);
        let request = self.http.post(url.clone()).headers(self.headers.clone()).body(body.to_body());
        let request = request.header(CONTENT_TYPE, "application/json").header(ACCEPT, accept);
        let response = request.send().await.map_err(|error| Error::transport(&url, error))?;
        let request_id = request_id(&response).map(|id| self.without_key(&id));
        let status = response.status();
        if status.is_success() {
            encoding::check(&response).map_err(|error| error.with_request_id(request_id.clone()))?;
            return Ok(Answer { response, url, request_id, _room: room });
        }
        if status.is_redirection() {
            let location = response.headers().get("location").and_then(|value| value.to_str().ok());
            let location = self.without_key(location.unwrap_or("nowhere"));
            return Err(Error::redirected(status, &location).with_request_id(request_id));
        }
        let told = Told {
            status: Some(status),
            request_id,
            retry: RetryHeaders::of(response.headers()),
            is_without_key: !["authorization", "api-key"].iter().any(|name| self.headers.contains_key(*name)),
        };
        let body = read(&url, response, LONGEST_ERROR_BODY).await.unwrap_or_default();
        Err(self.api_error(&body, told))
    }

    /// The whole body of an answer.
    pub(crate) async fn body(&self, answer: Answer) -> Result<Bytes, Error> {
        let Answer { response, url, request_id, _room } = answer;
        let body = read(&url, response, LONGEST_BODY + 1).await;
        let body = body.map_err(|error| error.with_request_id(request_id.clone()))?;
        if body.len() > LONGEST_BODY {
            let error = Error::invalid_response(format!("the answer is longer than {LONGEST_BODY} bytes"));
            return Err(error.with_request_id(request_id));
        }
        Ok(body)
    }

    /// The error that a body tells of, without the key, should the server have sent it back.
    pub(crate) fn api_error(&self, body: &[u8], told: Told) -> Error {
        Error::api(&String::from_utf8_lossy(body), told, |text| self.without_key(text))
    }

    /// The error that stands for what is wrong with a text that came.
    pub(crate) fn problem(
        &self,
        problem: Problem,
        text: &str,
        content_type: Option<&str>,
        request_id: Option<String>,
    ) -> Error {
        let error = match problem {
            Problem::Api(told) => self.api_error(told.as_bytes(), Told::default()),
            Problem::Empty => Error::empty(),
            Problem::GivenUp(why) => Error::incomplete(Some(Error::given_up(why))),
            Problem::Unreadable(why) => Error::unreadable(content_type, &self.without_key(text), &why),
        };
        error.with_request_id(request_id)
    }

    /// A text of the server without the key, should it have sent it back.
    pub(crate) fn without_key(&self, text: &str) -> String {
        let secrets =
            self.secrets.iter().map(ExposeSecret::expose_secret).filter(|secret| !secret.is_empty());
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "[key]"))
    }

    /// Where an API is for a model: the base URL with a path put behind its own; its query stays.
    pub(crate) fn url(&self, api: &str, model: &str) -> Url {
        let (path, query) = self.endpoint.path(api, model);
        let mut url = self.base_url.clone();
        url.set_path(&format!("{}/{path}", self.base_url.path().trim_end_matches('/')));
        if let Some((name, value)) = query {
            url.query_pairs_mut().append_pair(name, value);
        }
        url
    }

    /// Who answers.
    pub(crate) fn name(&self) -> &str {
        match &*self.endpoint.name {
            "" => "openai",
            name => name,
        }
    }

    /// The name under which an API of this endpoint keeps what it wants back.
    pub(crate) fn provider(&self, api: &str) -> String {
        let name = match &*self.endpoint.name {
            "" => self.base_url.authority(),
            name => name,
        };
        format!("{name}/{api}")
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("base_url", &shown(&self.base_url)).finish_non_exhaustive()
    }
}

/// A URL without its query, which may hold a secret.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

/// What may be a URL, without its query.
pub(crate) fn without_query(text: &str) -> &str {
    text.split(['?', '#']).next().unwrap_or_default()
}

pub(crate) fn request_id(response: &Response) -> Option<String> {
    response.headers().get("x-request-id").and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// At most so much of a body, as it may be of any length.
async fn read(url: &Url, mut response: Response, most: usize) -> Result<Bytes, Error> {
    let mut body = Vec::new();
    while body.len() < most {
        match response.chunk().await.map_err(|error| Error::transport(url, error))? {
            Some(chunk) => body.extend_from_slice(&chunk[..chunk.len().min(most - body.len())]),
            None => break,
        }
    }
    Ok(body.into())
}
