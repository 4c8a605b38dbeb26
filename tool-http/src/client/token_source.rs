//! Tokens that expire, and what gives them.
//!
//! Requests that need a new token poll one question to the source together, so that it continues if one of them is dropped, and ends
//! with the last one. No task runs in the background.

use std::error::Error as StdError;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, timeout};

use super::redact::Redactor;
use crate::backoff::LONGEST_TIMEOUT;

/// The time before the expiry of a token at which the source is asked for the next one, or half of the token's time if that is shorter.
const EARLIEST_RENEWAL: Duration = Duration::from_secs(120);

/// The time that a source has to give a token.
const MAX_TOKEN_TIME: Duration = Duration::from_secs(30);

/// The time in which a source is not asked again after it failed while the earlier token is valid.
const FAILURE_PAUSE: Duration = Duration::from_secs(10);

/// How long a refused token is not sent. A server can have refused it by mistake, and a source with a cache has no other one.
const REFUSED_FOR: Duration = Duration::from_secs(60);

const TOO_LATE: &str = "the token source gave no token within 30 seconds";

pub(super) type BoxError = Box<dyn StdError + Send + Sync>;

/// A token, such as one of Microsoft Entra ID, Google or AWS. It is sent as `Authorization: Bearer …` and never shown. Two tokens are
/// equal if their texts are.
#[derive(Clone)]
pub struct Token {
    secret: SecretString,
    expires_at: Option<SystemTime>,
    /// Further secrets that the token contains, also in an encoded form.
    parts: Vec<SecretString>,
}

impl Token {
    /// Creates a token that is used until the server refuses it. White space around it, which headers do not preserve, is removed.
    pub fn new(secret: impl Into<SecretString>) -> Self {
        Self { secret: secret.into().expose_secret().trim().into(), expires_at: None, parts: Vec::new() }
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

    /// Adds secrets that the token contains, and that a server may quote without the rest.
    pub(super) fn with_parts<'a>(mut self, secrets: impl IntoIterator<Item = &'a str>) -> Self {
        self.parts.extend(secrets.into_iter().map(SecretString::from));
        self
    }

    /// Returns the value of the header, or why the token cannot be sent.
    pub(super) fn header(&self) -> Result<HeaderValue, &'static str> {
        let secret = self.secret.expose_secret();
        if secret.is_empty() {
            return Err("the token source gave an empty token");
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {secret}")).map_err(|_| {
            "the token source gave a token with a character that is not allowed in headers, such as a line break"
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
/// A token is stored until two minutes before it expires. Then the source is asked once for all requests, and has 30 seconds to answer;
/// meanwhile, one request waits, and others use the earlier token as long as it is valid. A token that the server refuses is sent by no
/// request for a minute: the source is asked with the refused token, and the request is repeated once. While the source gives the
/// refused token again, requests fail without being sent.
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
    /// Returns a token. If the server has refused the latest one, `refused` is this one: a source with a cache must then skip it. Closures
    /// are called without it.
    ///
    /// The future is polled by the requests that wait for it, and dropped with the last of them.
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

type Answer = Result<Token, TokenFailure>;

/// The tokens of one connection.
#[derive(Clone)]
pub(super) struct Tokens(Arc<Inner>);

struct Inner {
    source: Arc<dyn TokenSource>,
    redactor: Redactor,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    stored: Option<StoredToken>,
    /// The latest token that the server refused, and when.
    refused: Option<(Token, Instant)>,
    /// Asks the source, as long as a request waits for the answer.
    question: Option<WeakShared<BoxFuture<'static, Answer>>>,
}

struct StoredToken {
    token: Token,
    /// The runtime's clock, because the system's may be changed. If it is wrong, the server refuses the token.
    renew_at: Option<Instant>,
    expires_at: Option<Instant>,
}

impl StoredToken {
    fn new(token: Token) -> Self {
        let remaining = |time: SystemTime| time.duration_since(SystemTime::now()).unwrap_or_default();
        let remaining = token.expires_at.map(remaining).map(|time| time.min(LONGEST_TIMEOUT));
        let now = Instant::now();
        let renewal = remaining.map(|time| time.saturating_sub(EARLIEST_RENEWAL).max(time / 2));
        Self { token, renew_at: renewal.map(|time| now + time), expires_at: remaining.map(|time| now + time) }
    }
}

impl State {
    /// Returns the stored token until this time.
    fn stored_until(&self, time: impl FnOnce(&StoredToken) -> Option<Instant>) -> Option<Token> {
        let stored = self.stored.as_ref()?;
        time(stored).is_none_or(|time| Instant::now() < time).then(|| stored.token.clone())
    }

    fn is_refused(&self, token: &Token) -> bool {
        self.refused_lately().as_ref() == Some(token)
    }

    fn refused_lately(&self) -> Option<Token> {
        let (token, at) = self.refused.as_ref()?;
        (at.elapsed() < REFUSED_FOR).then(|| token.clone())
    }
}

impl Tokens {
    /// Creates the tokens of a source, which this redactor and its clones redact.
    pub(super) fn new(source: Arc<dyn TokenSource>, redactor: Redactor) -> Self {
        Self(Inner { source, redactor, state: Mutex::default() }.into())
    }

    /// Returns a token that the server has not refused.
    pub(super) async fn get(&self) -> Answer {
        let start = Instant::now();
        loop {
            let question = match self.stored_or_question() {
                Ok(token) => return Ok(token),
                Err(question) => question,
            };
            let failure = match question.await {
                Ok(token) if !self.0.state().is_refused(&token) => return Ok(token),
                // Another request was refused with it before this one was woken.
                Ok(_) if start.elapsed() < MAX_TOKEN_TIME => continue,
                Ok(_) => TOO_LATE.into(),
                Err(failure) => failure,
            };
            // The earlier token may have expired, or be refused, since the source was asked.
            return self.0.state().stored_until(|stored| stored.expires_at).ok_or(failure);
        }
    }

    /// Reports that the server refused a token, which is then not returned again. An earlier one than the stored one was replaced.
    pub(super) fn refuse(&self, token: &Token) {
        let mut state = self.0.state();
        if let Some(stored) = state.stored.take_if(|stored| stored.token == *token) {
            state.refused = Some((stored.token, Instant::now()));
        }
    }

    /// Returns the stored token if no new one is needed, or another request asks for one while this one is valid.
    fn stored_or_question(&self) -> Result<Token, Shared<BoxFuture<'static, Answer>>> {
        let mut state = self.0.state();
        if let Some(token) = state.stored_until(|stored| stored.renew_at) {
            return Ok(token);
        }
        if let Some(question) = state.question.as_ref().and_then(WeakShared::upgrade) {
            return state.stored_until(|stored| stored.expires_at).ok_or(question);
        }
        let question = Arc::clone(&self.0).ask().boxed().shared();
        state.question = question.downgrade();
        Err(question)
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(self: Arc<Self>) -> Answer {
        // The time limit panics if the runtime of the request that asked is shut down while others wait.
        let answer = AssertUnwindSafe(timeout(MAX_TOKEN_TIME, self.ask_source())).catch_unwind().await;
        // The payload of a panic may contain secrets.
        let answer = answer.unwrap_or(Ok(Err("the token source panicked".into())));
        let answer = answer.unwrap_or(Err(TOO_LATE.into()));
        let mut state = self.state();
        state.question = None;
        if let (Err(_), Some(stored)) = (&answer, &mut state.stored) {
            let paused = Instant::now() + FAILURE_PAUSE;
            stored.renew_at = stored.expires_at.map(|expiry| expiry.min(paused));
        }
        answer
    }

    /// Asks the source, once more if it gives the refused token without having received it, and stores the token.
    async fn ask_source(&self) -> Answer {
        let replaces = Some(self.state()).filter(|state| state.stored.is_none());
        let mut refused = replaces.and_then(|state| state.refused_lately());
        loop {
            let token = self.source.token(refused.as_ref()).await.map_err(|cause| TokenFailure {
                message: "the token source failed; its error, which may contain secrets, is in `Error::token_error`",
                cause: Some(cause.into()),
            })?;
            self.redactor.add_shared_group(token.parts.iter().chain([&token.secret]));
            let mut state = self.state();
            if !state.is_refused(&token) {
                token.header()?;
                state.stored = Some(StoredToken::new(token.clone()));
                return Ok(token);
            }
            if refused.as_ref() == Some(&token) {
                return Err("the token source gave the refused token again".into());
            }
            refused = Some(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io;

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

    /// A source with these answers, of which the last one is repeated, and the refused token of each question.
    #[derive(Clone)]
    struct Script {
        answers: Arc<[Answer]>,
        questions: Arc<Mutex<Vec<Option<String>>>>,
    }

    impl Script {
        fn count(&self) -> usize {
            self.questions.lock().unwrap().len()
        }
    }

    impl TokenSource for Script {
        fn token<'a>(&'a self, refused: Option<&'a Token>) -> BoxFuture<'a, Result<Token, BoxError>> {
            let mut questions = self.questions.lock().unwrap();
            let number = questions.len();
            questions.push(refused.map(|token| token.secret.expose_secret().to_owned()));
            let answer = self.answers[number.min(self.answers.len() - 1)];
            async move {
                sleep(Duration::from_secs(1)).await;
                match answer {
                    Answer::Token(seconds) => {
                        Ok(Token::new(format!("token-{number}")).expires_in(Duration::from_secs(seconds)))
                    }
                    Answer::First => Ok(Token::new("token-0")),
                    Answer::Fail => Err("secret".into()),
                    Answer::Hang => pending().await,
                    Answer::Panic => panic!("the source of a test"),
                }
            }
            .boxed()
        }
    }

    fn tokens(source: impl TokenSource + 'static) -> Tokens {
        Tokens::new(Arc::new(source), Redactor::new("[key]", 1))
    }

    fn scripted(answers: &[Answer]) -> (Tokens, Script) {
        let script = Script { answers: answers.into(), questions: Arc::default() };
        (tokens(script.clone()), script)
    }

    /// Returns the token, or why there is none.
    async fn ask(tokens: &Tokens) -> Result<String, &'static str> {
        let token = tokens.get().await.map_err(|failure| failure.message)?;
        let text = token.secret.expose_secret().to_owned();
        assert_eq!(token.header().unwrap(), format!("Bearer {text}"));
        Ok(text)
    }

    const FAILED: &str =
        "the token source failed; its error, which may contain secrets, is in `Error::token_error`";
    const AGAIN: &str = "the token source gave the refused token again";

    #[tokio::test(start_paused = true)]
    async fn requests_at_the_same_time_share_a_question_and_its_answer() {
        let table = [
            (Answer::Token(3600), Ok("token-0")),
            // To a clock that is wrong, the token has expired.
            (Answer::Token(0), Ok("token-0")),
            (Answer::Fail, Err(FAILED)),
            (Answer::Panic, Err("the token source panicked")),
            (Answer::Hang, Err(TOO_LATE)),
        ];
        for (answer, expected) in table {
            let (tokens, script) = scripted(&[answer]);
            let seconds = if matches!(answer, Answer::Hang) { 30 } else { 1 };
            let start = Instant::now();
            let found = join_all((0..1000).map(|_| async {
                let token = ask(&tokens).await;
                (token, start.elapsed().as_secs())
            }));
            for (token, elapsed) in found.await {
                assert_eq!((token, elapsed), (expected.map(str::to_owned), seconds));
            }
            assert_eq!(script.count(), 1, "{expected:?}");
            // A failure is not stored.
            let _ = ask(&tokens).await;
            let is_stored = expected.is_ok() && !matches!(answer, Answer::Token(0));
            assert_eq!(script.count(), 2 - usize::from(is_stored), "{expected:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_no_longer_than_the_question_that_it_joins() {
        let (tokens, script) = scripted(&[Answer::Hang]);
        let mut first = Box::pin(ask(&tokens));
        assert_eq!(poll_immediate(&mut first).await, None);
        advance(Duration::from_secs(29)).await;
        // Neither the end of the first request nor the arrival of others extends the time.
        let mut others: Vec<_> = (0..2).map(|_| Box::pin(ask(&tokens))).collect();
        for other in &mut others {
            assert_eq!(poll_immediate(other).await, None);
        }
        drop(first);
        let start = Instant::now();
        assert_eq!(join_all(others).await, [(); 2].map(|()| Err(TOO_LATE)));
        assert_eq!((start.elapsed().as_secs(), script.count()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_continues_without_the_request_that_asked_and_ends_with_the_last() {
        let (tokens, script) = scripted(&[Answer::Token(3600)]);
        let waiting = async |count: usize| {
            let mut requests: Vec<_> = (0..count).map(|_| Box::pin(ask(&tokens))).collect();
            for request in &mut requests {
                assert_eq!(poll_immediate(request).await, None);
            }
            requests
        };
        drop(waiting(3).await);
        let mut others = waiting(4).await;
        assert_eq!(script.count(), 2);
        drop(others.remove(0));
        assert_eq!(join_all(others).await, [(); 3].map(|()| Ok("token-1".to_owned())));
        assert_eq!(script.count(), 2);
    }

    /// A server can refuse a token by mistake, and a source with a cache has no other one.
    #[tokio::test(start_paused = true)]
    async fn a_refused_token_is_tried_again_after_a_minute() {
        let (tokens, script) = scripted(&[Answer::Token(3600), Answer::First]);
        let first = tokens.get().await.ok().unwrap();
        tokens.refuse(&first);
        // Each question takes a second.
        advance(REFUSED_FOR - Duration::from_secs(3)).await;
        assert_eq!(ask(&tokens).await, Err(AGAIN));
        advance(Duration::from_secs(2)).await;
        assert_eq!(ask(&tokens).await.unwrap(), "token-0");
        assert_eq!(script.questions.lock().unwrap().last(), Some(&None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_token_is_returned_to_no_request() {
        let (tokens, script) =
            scripted(&[Answer::Token(3600), Answer::First, Answer::First, Answer::Token(3600)]);
        let first = tokens.get().await.ok().unwrap();
        tokens.refuse(&first);
        // Also not to those that come later.
        for _ in 0..2 {
            assert_eq!(ask(&tokens).await, Err(AGAIN));
        }
        assert_eq!(ask(&tokens).await.unwrap(), "token-3");
        // A request that took longer was refused with the same one.
        tokens.refuse(&first);
        assert_eq!(ask(&tokens).await.unwrap(), "token-3");
        let refused = Some("token-0".to_owned());
        assert_eq!(*script.questions.lock().unwrap(), [None, refused.clone(), refused.clone(), refused]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waited_for_a_refused_token_asks_again() {
        let (tokens, script) = scripted(&[Answer::Token(3600)]);
        let (mut first, mut second) = (Box::pin(tokens.get()), Box::pin(ask(&tokens)));
        assert!(poll_immediate(&mut first).await.is_none());
        assert_eq!(poll_immediate(&mut second).await, None);
        tokens.refuse(&first.await.ok().unwrap());
        assert_eq!(second.await.unwrap(), "token-1");
        assert_eq!(*script.questions.lock().unwrap(), [None, Some("token-0".into())]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_repeats_a_token_that_is_refused_meanwhile_is_asked_again() {
        for (last, expected) in [(Answer::Token(3600), Ok("token-2".to_owned())), (Answer::First, Err(AGAIN))]
        {
            let (tokens, script) = scripted(&[Answer::Token(60), Answer::First, last]);
            let first = tokens.get().await.ok().unwrap();
            advance(Duration::from_secs(30)).await;
            let mut renewal = Box::pin(ask(&tokens));
            assert_eq!(poll_immediate(&mut renewal).await, None);
            tokens.refuse(&first);
            assert_eq!(renewal.await, expected);
            assert_eq!(*script.questions.lock().unwrap(), [None, None, Some("token-0".into())]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_renewed_before_they_expire() {
        // The seconds of a token, and the last one at which it is used without a question.
        for (seconds, last) in [(3600, 3479), (241, 120), (240, 119), (60, 29), (1, 0)] {
            let (tokens, script) = scripted(&[Answer::Token(seconds)]);
            ask(&tokens).await.unwrap();
            advance(Duration::from_secs(last)).await;
            assert_eq!(ask(&tokens).await.unwrap(), "token-0", "{seconds}");
            assert_eq!(script.count(), 1, "{seconds}");
            advance(Duration::from_secs(1)).await;
            assert_eq!(ask(&tokens).await.unwrap(), "token-1", "{seconds}");
        }
        let (tokens, script) = scripted(&[Answer::First]);
        ask(&tokens).await.unwrap();
        advance(LONGEST_TIMEOUT).await;
        assert_eq!(ask(&tokens).await.unwrap(), "token-0");
        assert_eq!(script.count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_token_is_used_while_it_is_valid() {
        for failure in [Answer::Fail, Answer::Hang, Answer::Panic] {
            let (tokens, script) = scripted(&[Answer::Token(3600), failure]);
            ask(&tokens).await.unwrap();
            advance(Duration::from_secs(3500)).await;
            let (start, mut question) = (Instant::now(), Box::pin(ask(&tokens)));
            assert_eq!(poll_immediate(&mut question).await, None);
            // Another request does not wait for the answer.
            assert_eq!(ask(&tokens).await.unwrap(), "token-0");
            assert_eq!(start.elapsed(), Duration::ZERO);
            assert_eq!(question.await.unwrap(), "token-0");
            // The source is not asked by each request.
            assert_eq!(ask(&tokens).await.unwrap(), "token-0");
            assert_eq!(script.count(), 2);
            advance(FAILURE_PAUSE).await;
            assert_eq!(ask(&tokens).await.unwrap(), "token-0");
            assert_eq!(script.count(), 3);
            advance(Duration::from_secs(100)).await;
            assert!(ask(&tokens).await.unwrap_err().starts_with("the token source "));
        }
        // A token that expires while the source is asked is not used.
        let (tokens, script) = scripted(&[Answer::Token(60), Answer::Hang]);
        ask(&tokens).await.unwrap();
        advance(Duration::from_secs(31)).await;
        assert_eq!(ask(&tokens).await, Err(TOO_LATE));
        assert_eq!(script.count(), 2);
        // The pause after a failure does not outlast the token.
        let (tokens, script) = scripted(&[Answer::Token(3600), Answer::Fail]);
        ask(&tokens).await.unwrap();
        advance(Duration::from_secs(3597)).await;
        ask(&tokens).await.unwrap();
        advance(Duration::from_secs(3)).await;
        assert_eq!(ask(&tokens).await, Err(FAILED));
        assert_eq!(script.count(), 3);
    }

    #[tokio::test]
    async fn tokens_that_cannot_be_sent_are_refused_without_showing_them() {
        let empty = Err("the token source gave an empty token");
        let invalid = Err(
            "the token source gave a token with a character that is not allowed in headers, such as a line break",
        );
        for (text, expected) in
            [(" ", empty), ("a\nsecret", invalid), ("\tsecret\r\n", Ok("secret".to_owned()))]
        {
            let tokens = tokens(move || async move { Ok::<_, io::Error>(Token::new(text)) });
            assert_eq!(ask(&tokens).await, expected);
        }
        assert_eq!(format!("{:?}", Token::new("secret")), "Token { expires_at: None, .. }");
    }
}
