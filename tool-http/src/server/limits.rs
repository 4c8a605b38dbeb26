//! Limits of requests: their number, and the size and time of their bodies.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use axum::response::Response;
use futures_util::{StreamExt, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::rejection::Rejection;

/// The time limit for a whole body, as a multiple of the read timeout.
const BODY_TIMEOUT_FACTOR: u32 = 10;

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The size of one body.
    pub max_body_bytes: usize,
    /// The size of the bodies of all requests in flight; at least `max_body_bytes`.
    pub max_total_body_bytes: usize,
    /// The number of requests in flight.
    pub max_concurrent_requests: Option<usize>,
    /// The number of open connections; further ones wait.
    pub max_connections: usize,
    /// The longest time in which a caller neither sends nor reads anything.
    pub read_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: 4 << 20,
            max_total_body_bytes: 128 << 20,
            max_concurrent_requests: None,
            max_connections: 1024,
            read_timeout: Duration::from_secs(30),
        }
    }
}

impl Limits {
    fn max_total_bytes(&self) -> usize {
        self.max_total_body_bytes.max(self.max_body_bytes).min(Semaphore::MAX_PERMITS)
    }
}

/// Enforces the limits on requests and bodies.
#[derive(Debug)]
pub struct Limiter {
    limits: Limits,
    /// One permit for each request that may be in flight.
    requests: Option<Arc<Semaphore>>,
    /// One permit for each byte of the bodies of all requests in flight.
    body_bytes: Arc<Semaphore>,
}

/// The body of a request.
#[derive(Debug)]
pub struct LimitedBody {
    /// The whole body.
    pub bytes: Bytes,
    /// Must be held until all data of the body is dropped.
    pub permit: OwnedSemaphorePermit,
}

impl Limiter {
    /// Creates a limiter without requests in flight.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        Self {
            requests: limits.max_concurrent_requests.map(semaphore),
            body_bytes: semaphore(limits.max_total_bytes()),
            limits,
        }
    }

    /// Returns the largest number of bytes that can be [reserved](Self::reserve).
    #[must_use]
    pub fn max_total_bytes(&self) -> usize {
        self.limits.max_total_bytes()
    }

    /// Counts a request as in flight until the permit is dropped. Returns no permit if the number is unlimited.
    ///
    /// # Errors
    ///
    /// Returns an error if there are too many.
    pub fn begin_request(&self) -> Result<Option<OwnedSemaphorePermit>, Rejection> {
        let Some(requests) = &self.requests else { return Ok(None) };
        Arc::clone(requests).try_acquire_owned().map(Some).map_err(|_| Rejection::Overloaded)
    }

    /// Reads a body within the limits of size and time.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is exceeded, or the connection ends.
    pub async fn read_body(&self, body: Body) -> Result<LimitedBody, Rejection> {
        let in_total = self.limits.read_timeout.saturating_mul(BODY_TIMEOUT_FACTOR);
        timeout(in_total, self.read_chunks(body)).await.unwrap_or(Err(Rejection::BodyTimeout))
    }

    async fn read_chunks(&self, body: Body) -> Result<LimitedBody, Rejection> {
        let limit = self.limits.max_body_bytes;
        let announced = body.size_hint().lower();
        if announced > limit as u64 {
            return Err(Rejection::BodyTooLarge(limit));
        }
        let mut chunks = body.into_data_stream();
        let mut bytes = Vec::with_capacity(usize::try_from(announced).unwrap_or_default().min(1 << 16));
        let mut permit = self.reserve(0)?;
        loop {
            let chunk = timeout(self.limits.read_timeout, chunks.next()).await;
            match chunk.map_err(|_| Rejection::BodyTimeout)? {
                Some(Ok(chunk)) if bytes.len() + chunk.len() > limit => {
                    return Err(Rejection::BodyTooLarge(limit));
                }
                Some(Ok(chunk)) => {
                    // Only received bytes are reserved, so that announced ones do not block other requests.
                    permit.merge(self.reserve(chunk.len())?);
                    bytes.extend_from_slice(&chunk);
                }
                Some(Err(_)) => return Err(Rejection::BodyIncomplete),
                None => return Ok(LimitedBody { bytes: bytes.into(), permit }),
            }
        }
    }

    /// Reserves bytes of the total of the bodies in flight, for further data of a request.
    ///
    /// # Errors
    ///
    /// Returns an error if too few are left.
    pub fn reserve(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Rejection> {
        let permits = u32::try_from(bytes).map_err(|_| Rejection::Overloaded)?;
        Arc::clone(&self.body_bytes).try_acquire_many_owned(permits).map_err(|_| Rejection::Overloaded)
    }
}

/// The largest part of a response that is passed to the connection at once. A slow caller delays the next one.
const MAX_SENT_BYTES: usize = 64 << 10;

/// Holds a value, such as a permit, until a response has been sent except for its last 64 KiB and what the connection buffers.
pub fn hold_until_sent(held: impl Send + 'static, mut response: Response) -> Response {
    match response.body().size_hint().exact() {
        Some(0) => return response,
        Some(length) => {
            response.headers_mut().entry(header::CONTENT_LENGTH).or_insert_with(|| length.into());
        }
        None => {}
    }
    response.map(|body| {
        Body::from_stream(body.into_data_stream().flat_map(move |chunk| {
            let _held = &held;
            stream::iter(split(chunk))
        }))
    })
}

/// Splits a chunk into parts that are passed to the connection one by one.
fn split<E>(chunk: Result<Bytes, E>) -> Vec<Result<Bytes, E>> {
    let mut chunk = match chunk {
        Ok(chunk) if chunk.len() > MAX_SENT_BYTES => chunk,
        chunk => return vec![chunk],
    };
    let mut parts = Vec::with_capacity(chunk.len().div_ceil(MAX_SENT_BYTES));
    while !chunk.is_empty() {
        parts.push(Ok(chunk.split_to(chunk.len().min(MAX_SENT_BYTES))));
    }
    parts
}

/// Returns `true` if the headers declare the body as JSON.
#[must_use]
pub fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(content_type), None) = (types.next(), types.next()) else { return false };
    let essence = content_type.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// Checks that a `POST` request with a body declares it as JSON. For pages of other origins, browsers send such bodies only
/// after a preflight request.
///
/// # Errors
///
/// Returns an error if the body is declared as another type.
pub fn require_json(request: &Request) -> Result<(), Rejection> {
    if request.method() != Method::POST || request.body().is_end_stream() || is_json(request.headers()) {
        return Ok(());
    }
    Err(Rejection::NotJson)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn limits_the_total_time_of_a_slow_body() {
        let limiter = Limiter::new(Limits::default());
        for (chunks, expected) in [(9, Ok(9)), (11, Err(Rejection::BodyTimeout))] {
            let body = stream::unfold(0, move |count| async move {
                sleep(Duration::from_secs(29)).await;
                (count < chunks).then_some((Ok::<_, Infallible>("{"), count + 1))
            });
            let started = Instant::now();
            let body = limiter.read_body(Body::from_stream(body)).await;
            assert_eq!(body.map(|body| body.bytes.len()), expected, "{chunks}");
            assert!(started.elapsed() <= Duration::from_secs(300));
        }
    }

    #[tokio::test]
    async fn limits_the_bodies_of_all_requests() {
        let limits = Limits { max_body_bytes: 10, max_total_body_bytes: 15, ..Limits::default() };
        let limiter = Limiter::new(limits);
        let first = limiter.read_body(Body::from("0123456789")).await.unwrap();
        assert_eq!(limiter.read_body(Body::from("012345")).await.unwrap_err(), Rejection::Overloaded);
        let second = limiter.read_body(Body::from("01234")).await.unwrap();
        drop((first, second));
        assert_eq!(limiter.read_body(Body::from("0123456789")).await.unwrap().bytes.len(), 10);
        let too_large = limiter.read_body(Body::from("01234567890")).await;
        assert_eq!(too_large.unwrap_err(), Rejection::BodyTooLarge(10));
    }

    /// A caller that reads slowly does not free memory that is still in use.
    #[tokio::test]
    async fn holds_until_the_response_is_sent() {
        let whole = || Body::from(vec![b'a'; 3 * MAX_SENT_BYTES - 1]);
        let streamed = || Body::from_stream(whole().into_data_stream());
        for (body, length) in [(whole(), Some("196607")), (streamed(), None)] {
            let held = Arc::new(());
            let response = hold_until_sent(Arc::clone(&held), Response::new(body));
            let announced = response.headers().get(header::CONTENT_LENGTH);
            assert_eq!(announced.map(|length| length.to_str().unwrap()), length);
            let mut chunks = response.into_body().into_data_stream();
            for expected in [MAX_SENT_BYTES, MAX_SENT_BYTES, MAX_SENT_BYTES - 1] {
                assert_eq!(chunks.next().await.unwrap().unwrap().len(), expected);
                assert_eq!(Arc::strong_count(&held), 2);
            }
            drop(chunks);
            assert_eq!(Arc::strong_count(&held), 1);
        }
    }

    #[test]
    fn limits_the_number_of_requests() {
        let limiter = Limiter::new(Limits { max_concurrent_requests: Some(1), ..Limits::default() });
        let first = limiter.begin_request().unwrap();
        assert_eq!(limiter.begin_request().unwrap_err(), Rejection::Overloaded);
        drop(first);
        assert!(limiter.begin_request().unwrap().is_some());
    }

    #[test]
    fn requires_json_for_bodies() {
        let table: [(&str, &[&str], &str, bool); 12] = [
            ("POST", &["application/json"], "{}", true),
            ("POST", &["application/json; charset=utf-8"], "{}", true),
            ("POST", &[" Application/JSON ;x"], "{}", true),
            ("POST", &["text/plain"], "{}", false),
            ("POST", &["text/plain; application/json"], "{}", false),
            ("POST", &["application/json, text/plain"], "{}", false),
            ("POST", &["application/json", "text/plain"], "{}", false),
            ("POST", &["application/jsonp"], "{}", false),
            ("POST", &[""], "{}", false),
            ("POST", &[], "{}", false),
            ("POST", &[], "", true),
            ("GET", &[], "{}", true),
        ];
        for (method, types, body, is_allowed) in table {
            let mut request = Request::builder().method(method);
            for content_type in types {
                request = request.header("content-type", *content_type);
            }
            let request = request.body(Body::from(body)).unwrap();
            let expected = if is_allowed { Ok(()) } else { Err(Rejection::NotJson) };
            assert_eq!(require_json(&request), expected, "{method} {types:?} {body:?}");
        }
    }
}
