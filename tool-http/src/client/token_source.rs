//! Tokens that expire, and what gives them.
//!
//! A request that needs a new token asks the source itself, under a lock that is released if the request is dropped: then the next
//! request asks. No task runs in the background.

use std::error::Error as StdError;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::redact::Redactor;
use crate::backoff::LONGEST_TIMEOUT;

/// The time before the expiry of a token at which the source is asked for the next one, or half of the token's time if that is shorter.
const EARLIEST_RENEWAL: Duration = Duration::from_secs(120);

/// The time that a source has to give a token.
const MAX_TOKEN_TIME: Duration = Duration::from_secs(30);

/// The time in which a source is not asked again after it failed while the earlier token is valid.
const FAILURE_PAUSE: Duration = Duration::from_secs(10);

type BoxError = Box<dyn StdError + Send + Sync>;

/// A token, such as one of Microsoft Entra ID, Google or AWS. It is sent as `Authorization: Bearer …` and never shown. Two tokens are
/// equal if their texts are.
#[derive(Clone)]
pub struct Token {
    secret: SecretString,
    expires_at: Option<SystemTime>,
    /// Further secrets that the token contains in an encoded form.
    parts: Vec<SecretString>,
}

impl Token {
    /// Creates a token that is used until the server refuses it.
    pub fn new(secret: impl Into<SecretString>) -> Self {
        Self { secret: secret.into(), expires_at: None, parts: Vec::new() }
    }

    /// Sets when the token expires. The next one is requested two minutes before, or in the second half of its time if that is shorter.
    #[must_use]
    pub fn expires_at(mut self, time: SystemTime) -> Self {
        self.expires_at = Some(time);
        self
    }

    /// Sets the time until the token expires.
    #[must_use]
    pub fn expires_in(self, time: Duration) -> Self {
        self.expires_at(SystemTime::now() + time.min(LONGEST_TIMEOUT))
    }

    /// Adds a secret that the token contains in an encoded form, and that a server may quote.
    pub(super) fn with_part(mut self, secret: &str) -> Self {
        self.parts.push(secret.into());
        self
    }

    /// Returns the value of the header, or why the token cannot be sent.
    fn header(&self) -> Result<HeaderValue, &'static str> {
        let secret = self.secret.expose_secret();
        if secret.trim().is_empty() {
            return Err("the token source gave an empty token");
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {secret}")).map_err(|_| {
            "the token source gave a token with a character that is not allowed in headers, such as a line break; trim it"
        })?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.secret.expose_secret() == other.secret.expose_secret()
    }
}

impl Eq for Token {}

/// Shows when the token expires.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// A source of tokens that expire: the official library of a cloud, behind a closure or a type of your own.
///
/// A token is stored until two minutes before it expires, and asked for by one request at a time, which waits for it for at most 30
/// seconds; meanwhile, others use the earlier token as long as it is valid. A token that the server refuses is replaced once: the source
/// is asked with the refused token, and the request is repeated, unless the source gives the same one again.
///
/// ```
/// use std::time::Duration;
///
/// use tool_http::client::{Token, TokenSource};
///
/// # async fn login() -> Result<String, std::io::Error> { Ok("…".into()) }
/// let source = || async { Ok::<_, std::io::Error>(Token::new(login().await?).expires_in(Duration::from_secs(3600))) };
/// # fn check(_: impl TokenSource) {}
/// # check(source);
/// ```
pub trait TokenSource: Send + Sync {
    /// Returns a token. If the server has refused one that has not expired, `refused` is this one: a source with a cache must then skip
    /// it. Closures are called without it.
    ///
    /// The future is dropped with the request that asks.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no token. Its text may contain secrets: it is not shown, and returned by
    /// [`Error::token_error`](super::Error::token_error).
    fn token<'a>(&'a self, refused: Option<&'a Token>) -> BoxFuture<'a, Result<Token, BoxError>>;
}

impl<F, T, E> TokenSource for F
where
    F: Fn() -> T + Send + Sync,
    T: Future<Output = Result<Token, E>> + Send,
    E: Into<BoxError>,
{
    fn token<'a>(&'a self, _: Option<&'a Token>) -> BoxFuture<'a, Result<Token, BoxError>> {
        async move { self().await.map_err(Into::into) }.boxed()
    }
}

/// Why there is no token. Requests that waited for the same answer share it.
#[derive(Clone)]
pub(super) struct TokenFailure {
    pub(super) message: &'static str,
    /// The error of the source, which may contain secrets.
    pub(super) cause: Option<Arc<dyn StdError + Send + Sync>>,
}

impl From<&'static str> for TokenFailure {
    fn from(message: &'static str) -> Self {
        Self { message, cause: None }
    }
}

/// A token as it is sent.
#[derive(Clone)]
pub(super) struct SentToken {
    pub(super) token: Token,
    pub(super) header: HeaderValue,
}

/// The tokens of one connection.
pub(super) struct Tokens {
    source: Arc<dyn TokenSource>,
    stored: StdMutex<Option<StoredToken>>,
    /// Is held while the source is asked, and contains its latest failure.
    question: Mutex<Option<TokenFailure>>,
    /// The number of questions that were answered, also with a failure.
    answers: AtomicU64,
}

struct StoredToken {
    sent: SentToken,
    /// The runtime's clock, because the system's may be changed. If it is wrong, the server refuses the token.
    renew_at: Option<Instant>,
    expires_at: Option<Instant>,
}

impl StoredToken {
    fn new(sent: SentToken) -> Self {
        let remaining = |time: SystemTime| time.duration_since(SystemTime::now()).unwrap_or_default();
        let remaining = sent.token.expires_at.map(remaining).map(|time| time.min(LONGEST_TIMEOUT));
        let now = Instant::now();
        let renewal = remaining.map(|time| time.saturating_sub(EARLIEST_RENEWAL).max(time / 2));
        Self { sent, renew_at: renewal.map(|time| now + time), expires_at: remaining.map(|time| now + time) }
    }
}

fn is_past(time: Option<Instant>) -> bool {
    time.is_some_and(|time| time <= Instant::now())
}

impl Tokens {
    pub(super) fn new(source: Arc<dyn TokenSource>) -> Self {
        let (stored, question) = (StdMutex::default(), Mutex::default());
        Self { source, stored, question, answers: AtomicU64::new(0) }
    }

    /// Returns a token other than the refused one. It is redacted from now on.
    pub(super) async fn get(
        &self,
        refused: Option<&Token>,
        redactor: &Redactor,
    ) -> Result<SentToken, TokenFailure> {
        let answers = self.answers.load(Ordering::Acquire);
        if let Some(sent) = self.stored(refused, |stored| !is_past(stored.renew_at)) {
            return Ok(sent);
        }
        let valid = self.stored(refused, |stored| !is_past(stored.expires_at));
        let mut failure = match &valid {
            Some(sent) => match self.question.try_lock() {
                Ok(failure) => failure,
                Err(_) => return Ok(sent.clone()),
            },
            None => self.question.lock().await,
        };
        if self.answers.load(Ordering::Acquire) != answers {
            // The answer came after this request did. With a wrong clock, even a new token seems to have expired.
            if let Some(sent) = self.stored(refused, |_| true) {
                return Ok(sent);
            }
            if let Some(failure) = &*failure {
                return Err(failure.clone());
            }
        }
        let answer = self.ask(refused, redactor).await;
        self.answers.fetch_add(1, Ordering::Release);
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        match (answer, valid) {
            (Ok(sent), _) => {
                *stored = Some(StoredToken::new(sent.clone()));
                *failure = None;
                Ok(sent)
            }
            (Err(_), Some(sent)) => {
                if let Some(stored) = &mut *stored {
                    let paused = Instant::now() + FAILURE_PAUSE;
                    stored.renew_at = stored.expires_at.map(|expiry| expiry.min(paused));
                }
                Ok(sent)
            }
            (Err(error), None) => {
                *stored = None;
                *failure = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Returns the stored token if it was not refused and passes a check.
    fn stored(&self, refused: Option<&Token>, check: impl FnOnce(&StoredToken) -> bool) -> Option<SentToken> {
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = stored.as_ref().filter(|stored| refused != Some(&stored.sent.token));
        stored.filter(|stored| check(stored)).map(|stored| stored.sent.clone())
    }

    async fn ask(&self, refused: Option<&Token>, redactor: &Redactor) -> Result<SentToken, TokenFailure> {
        let token = AssertUnwindSafe(async { self.source.token(refused).await }).catch_unwind();
        let token = match timeout(MAX_TOKEN_TIME, token).await {
            Ok(Ok(Ok(token))) => token,
            Ok(Ok(Err(cause))) => {
                let message = "the token source failed; its error, which may contain secrets, is in `Error::token_error`";
                return Err(TokenFailure { message, cause: Some(cause.into()) });
            }
            // The payload may contain secrets.
            Ok(Err(_)) => return Err("the token source panicked".into()),
            Err(_) => return Err("the token source gave no token within 30 seconds".into()),
        };
        for secret in token.parts.iter().chain([&token.secret]) {
            redactor.add_shared(secret.expose_secret());
        }
        if refused == Some(&token) {
            return Err("the token source gave the refused token again".into());
        }
        let header = token.header()?;
        Ok(SentToken { token, header })
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io;
    use std::sync::atomic::AtomicUsize;

    use futures_util::future::{join_all, poll_immediate};
    use tokio::time::{advance, sleep};

    use super::*;

    /// What a source does when it is asked.
    #[derive(Clone, Copy)]
    enum Answer {
        /// Gives a token of its own for so many seconds.
        Token(u64),
        /// Gives the first token again.
        First,
        Fail,
        Hang,
        Panic,
    }

    /// A source with these answers, of which the last one is repeated, and the number of questions.
    fn scripted(answers: &'static [Answer]) -> (Tokens, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let questions = Arc::clone(&count);
        let source = move || {
            let number = questions.fetch_add(1, Ordering::Relaxed);
            let answer = answers[number.min(answers.len() - 1)];
            async move {
                sleep(Duration::from_secs(1)).await;
                match answer {
                    Answer::Token(seconds) => {
                        Ok(Token::new(format!("token-{number}")).expires_in(Duration::from_secs(seconds)))
                    }
                    Answer::First => Ok(Token::new("token-0")),
                    Answer::Fail => Err(io::Error::other("secret")),
                    Answer::Hang => pending().await,
                    Answer::Panic => panic!("the source of a test"),
                }
            }
        };
        (Tokens::new(Arc::new(source)), count)
    }

    /// Returns the number of the token, or why there is none.
    async fn ask(tokens: &Tokens, refused: Option<&str>) -> Result<String, &'static str> {
        let redactor = Redactor::new("[key]", 1);
        let refused = refused.map(Token::new);
        let sent = tokens.get(refused.as_ref(), &redactor).await.map_err(|failure| failure.message)?;
        let token = sent.token.secret.expose_secret().to_owned();
        assert_eq!(sent.header, format!("Bearer {token}"));
        Ok(token)
    }

    const FAILED: &str =
        "the token source failed; its error, which may contain secrets, is in `Error::token_error`";

    #[tokio::test(start_paused = true)]
    async fn requests_at_the_same_time_share_a_question_and_its_answer() {
        let same = "the token source gave the refused token again";
        let table: [(&'static [Answer], _, Result<&str, &'static str>); 7] = [
            (&[Answer::Token(3600)], None, Ok("token-0")),
            // To a clock that is wrong, the token has expired.
            (&[Answer::Token(0)], None, Ok("token-0")),
            (&[Answer::Token(3600)], Some("other"), Ok("token-0")),
            (&[Answer::First], Some("token-0"), Err(same)),
            (&[Answer::Fail], None, Err(FAILED)),
            (&[Answer::Panic], None, Err("the token source panicked")),
            (&[Answer::Hang], None, Err("the token source gave no token within 30 seconds")),
        ];
        for (answers, refused, expected) in table {
            let (tokens, count) = scripted(answers);
            let seconds = if matches!(answers, [Answer::Hang]) { 30 } else { 1 };
            let start = Instant::now();
            let found = join_all((0..1000).map(|_| async {
                let token = ask(&tokens, refused).await;
                (token, start.elapsed().as_secs())
            }));
            for (token, elapsed) in found.await {
                assert_eq!((token, elapsed), (expected.map(str::to_owned), seconds));
            }
            assert_eq!(count.load(Ordering::Relaxed), 1, "{expected:?}");
            // A failure is not stored.
            let _ = ask(&tokens, refused).await;
            let is_stored = expected.is_ok() && !matches!(answers, [Answer::Token(0)]);
            assert_eq!(count.load(Ordering::Relaxed), 2 - usize::from(is_stored), "{expected:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_dropped_is_asked_by_the_next_request() {
        let (tokens, count) = scripted(&[Answer::Token(3600)]);
        let mut first = Box::pin(ask(&tokens, None));
        let mut others: Vec<_> = (0..3).map(|_| Box::pin(ask(&tokens, None))).collect();
        assert_eq!(poll_immediate(&mut first).await, None);
        for other in &mut others {
            assert_eq!(poll_immediate(other).await, None);
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
        drop(first);
        assert_eq!(join_all(others).await, [(); 3].map(|()| Ok("token-1".to_owned())));
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_renewed_before_they_expire() {
        // The seconds of a token, and the last one at which it is used without a question.
        for (seconds, last) in [(3600, 3479), (241, 120), (240, 119), (60, 29), (1, 0)] {
            let (tokens, count) = scripted(Box::leak(Box::new([Answer::Token(seconds)])));
            ask(&tokens, None).await.unwrap();
            advance(Duration::from_secs(last)).await;
            assert_eq!(ask(&tokens, None).await.unwrap(), "token-0", "{seconds}");
            assert_eq!(count.load(Ordering::Relaxed), 1, "{seconds}");
            advance(Duration::from_secs(1)).await;
            assert_eq!(ask(&tokens, None).await.unwrap(), "token-1", "{seconds}");
        }
        let (tokens, count) = scripted(&[Answer::First]);
        ask(&tokens, None).await.unwrap();
        advance(LONGEST_TIMEOUT).await;
        assert_eq!(ask(&tokens, None).await.unwrap(), "token-0");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_token_is_used_while_it_is_valid() {
        for failure in [Answer::Fail, Answer::Hang, Answer::Panic] {
            let (tokens, count) = scripted(Box::leak(Box::new([Answer::Token(3600), failure])));
            ask(&tokens, None).await.unwrap();
            advance(Duration::from_secs(3500)).await;
            let (start, mut question) = (Instant::now(), Box::pin(ask(&tokens, None)));
            assert_eq!(poll_immediate(&mut question).await, None);
            // Another request does not wait for the answer.
            assert_eq!(ask(&tokens, None).await.unwrap(), "token-0");
            assert_eq!(start.elapsed(), Duration::ZERO);
            assert_eq!(question.await.unwrap(), "token-0");
            // The source is not asked by each request.
            assert_eq!(ask(&tokens, None).await.unwrap(), "token-0");
            assert_eq!(count.load(Ordering::Relaxed), 2);
            advance(FAILURE_PAUSE).await;
            assert_eq!(ask(&tokens, None).await.unwrap(), "token-0");
            assert_eq!(count.load(Ordering::Relaxed), 3);
            advance(Duration::from_secs(100)).await;
            assert!(ask(&tokens, None).await.unwrap_err().starts_with("the token source "));
        }
        // The pause after a failure does not outlast the token.
        let (tokens, count) = scripted(&[Answer::Token(3600), Answer::Fail]);
        ask(&tokens, None).await.unwrap();
        advance(Duration::from_secs(3597)).await;
        ask(&tokens, None).await.unwrap();
        advance(Duration::from_secs(3)).await;
        assert_eq!(ask(&tokens, None).await, Err(FAILED));
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn tokens_that_cannot_be_sent_are_refused_without_showing_them() {
        let invalid = "the token source gave a token with a character that is not allowed in headers, such as a line break; trim it";
        for (text, expected) in [(" ", "the token source gave an empty token"), ("secret\n", invalid)] {
            let tokens = Tokens::new(Arc::new(move || async move { Ok::<_, io::Error>(Token::new(text)) }));
            assert_eq!(ask(&tokens, None).await, Err(expected));
        }
        assert_eq!(format!("{:?}", Token::new("secret")), "Token { expires_at: None, .. }");
    }
}
