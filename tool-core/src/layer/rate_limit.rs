//! Limits the requests and tokens per minute.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::sync::Mutex;

use super::layer_trait::{Layer, LayerPhase, NextLayer};
use crate::model::{
    Attempt, Begun, ChatRequest, ChatStream, EarlierAttempt, Meter, ModelError, ModelInfo, TokensPerText,
    Usage,
};

/// Limits how many requests are sent to the model per minute, and how many tokens they use. Each request of a
/// [`Fallback`](crate::model::Fallback) and each retry of a provider counts. A request that exceeds a limit waits; the cancellation and the time limit of its run end the wait.
///
/// Clones share the limits, for example the limits of an account that several agents use. A minute's worth is available at once. Tokens
/// are counted when a reply is complete, so requests in flight can exceed their limit, for which the next ones wait. A request whose
/// usage is unknown, because its reply states none or one that cannot be true, or because it failed or was dropped, counts as the most
/// that it can use, and as a minute's worth if that is not known or more: set
/// [`max_output_tokens`](crate::model::ModelOptions::max_output_tokens) for models that report no usage.
///
/// ```
/// use tool_core::Agent;
/// use tool_core::layer::RateLimit;
/// use tool_core::testing::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let account = RateLimit::new()
///     .requests_per_minute(60)
///     .tokens_per_minute(100_000)
///     .on_wait(|duration| eprintln!("the next request waits for {duration:?}"));
/// let agent = Agent::builder(ScriptedModel::new().says("Hello")).layer(account.clone()).build()?;
/// let other = Agent::builder(ScriptedModel::new().says("Good morning")).layer(account).build()?;
/// # agent.ask("Hello").await?;
/// # other.ask("Good morning").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "pass it to `AgentBuilder::layer`"]
pub struct RateLimit {
    name: Option<String>,
    requests: Option<Limit>,
    tokens: Option<Limit>,
    /// The tokens that were used and that nobody has waited for.
    used: Arc<AtomicU64>,
    /// Requests wait one after another, in their order.
    queue: Arc<Mutex<()>>,
    has_zero: bool,
    on_wait: Option<Arc<dyn Fn(Duration) + Send + Sync>>,
}

#[derive(Clone)]
struct Limit {
    per_minute: NonZeroU32,
    limiter: Arc<RateLimiter<NotKeyed, InMemoryState, TokioClock, NoOpMiddleware<std::time::Instant>>>,
}

/// The clock of the timers that waits use.
#[derive(Clone)]
struct TokioClock;

impl Clock for TokioClock {
    type Instant = std::time::Instant;

    fn now(&self) -> Self::Instant {
        tokio::time::Instant::now().into_std()
    }
}

impl Limit {
    fn new(per_minute: NonZeroU32) -> Self {
        let limiter = RateLimiter::direct_with_clock(Quota::per_minute(per_minute), TokioClock);
        Self { per_minute, limiter: Arc::new(limiter) }
    }
}

impl RateLimit {
    /// Creates a layer without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the number of requests per minute, which must be more than zero.
    pub fn requests_per_minute(mut self, limit: u32) -> Self {
        self.requests = self.limit(limit);
        self
    }

    /// Limits the number of tokens per minute, of inputs and outputs together, as the provider reports them. It must be more than zero.
    pub fn tokens_per_minute(mut self, limit: u32) -> Self {
        self.tokens = self.limit(limit);
        self
    }

    fn limit(&mut self, limit: u32) -> Option<Limit> {
        let limit = NonZeroU32::new(limit);
        self.has_zero |= limit.is_none();
        limit.map(Limit::new)
    }

    /// Calls this before each wait. With the feature `tracing`, each wait is also an event in the span of the request.
    pub fn on_wait(mut self, on_wait: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        self.on_wait = Some(Arc::new(on_wait));
        self
    }

    /// Sets the name, which is unique among the layers of an agent. It is `rate_limit` by default.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Waits until a request can be sent.
    async fn wait(&self) {
        let _turn = self.queue.lock().await;
        while let Some(limit) = &self.tokens
            && let Some(used) = NonZeroU32::new(self.used_up_to(limit.per_minute))
        {
            self.take(limit, used).await;
            self.used.fetch_sub(used.get().into(), Ordering::Relaxed);
        }
        if let Some(limit) = &self.requests {
            self.take(limit, NonZeroU32::MIN).await;
        }
    }

    /// Counts tokens, for which the next requests wait.
    fn count(&self, tokens: u64) {
        if self.tokens.is_some() {
            self.used.fetch_add(tokens, Ordering::Relaxed);
        }
    }

    /// Counts an attempt that can have used this many tokens, if that is known.
    fn count_worst(&self, tokens: Option<u64>) {
        if let Some(limit) = &self.tokens {
            let minute = limit.per_minute.get().into();
            self.count(tokens.unwrap_or(minute).min(minute));
        }
    }

    fn used_up_to(&self, limit: NonZeroU32) -> u32 {
        u32::try_from(self.used.load(Ordering::Relaxed)).unwrap_or(u32::MAX).min(limit.get())
    }

    /// Waits until this many are available. `count` is at most a minute's worth.
    async fn take(&self, limit: &Limit, count: NonZeroU32) {
        while let Ok(Err(not_until)) = limit.limiter.check_n(count) {
            let duration = not_until.wait_time_from(TokioClock.now());
            #[cfg(feature = "tracing")]
            tracing::debug!(target: "tool_core", layer = self.name(), wait_ms = duration.as_secs_f64() * 1000.0, "rate limit");
            if let Some(on_wait) = &self.on_wait {
                on_wait(duration);
            }
            tokio::time::sleep(duration).await;
        }
    }
}

impl Layer for RateLimit {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("rate_limit")
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        phase == LayerPhase::Model
    }

    fn mistake(&self) -> Option<String> {
        self.has_zero.then(|| "it permits nothing: a limit is zero".to_owned())
    }

    fn model<'a>(&'a self, request: ChatRequest<'a>, next: NextLayer<'a>) -> ChatStream<'a> {
        ChatStream::sent_by(|mut sender| async move {
            let (inner, may_send) = (next.meter(), AtomicBool::new(false));
            let meter = Paced { limit: self, inner, may_send, attempts: SyncMutex::default() };
            next.with_meter(&meter).call(request).forward(&mut sender).await
        })
    }
}

/// Lets each attempt wait, where models send it: a request can be several attempts.
struct Paced<'a> {
    limit: &'a RateLimit,
    inner: Option<&'a dyn Meter>,
    /// An attempt that has waited was refused, so the next one need not wait.
    may_send: AtomicBool,
    /// All attempts so far, by their ids; `None` if they have ended.
    attempts: SyncMutex<Vec<Option<OpenAttempt>>>,
}

/// An attempt that has not ended.
#[derive(Clone, Copy)]
struct OpenAttempt {
    /// The id for the inner meter.
    inner: usize,
    /// The largest number of tokens that it can use, if it is known.
    worst: Option<u64>,
}

impl Paced<'_> {
    fn attempts(&self) -> MutexGuard<'_, Vec<Option<OpenAttempt>>> {
        // Each change is a single step.
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The provider answers requests that are dropped, too.
impl Drop for Paced<'_> {
    fn drop(&mut self) {
        self.attempts().iter().flatten().for_each(|open| self.limit.count_worst(open.worst));
    }
}

impl Meter for Paced<'_> {
    fn known(&self, model: &str) -> ModelInfo {
        self.inner.map(|inner| inner.known(model)).unwrap_or_default()
    }

    fn is_limited(&self) -> bool {
        self.inner.is_some_and(Meter::is_limited)
    }

    fn tokens_per_text(&self) -> Option<TokensPerText> {
        self.inner.and_then(Meter::tokens_per_text)
    }

    fn remember(&self, model: &str, info: ModelInfo) {
        self.inner.iter().for_each(|inner| inner.remember(model, info.clone()));
    }

    fn begin<'a>(&'a self, attempt: Attempt<'a>) -> BoxFuture<'a, Result<Begun, ModelError>> {
        Box::pin(async move {
            if !self.may_send.swap(false, Ordering::Relaxed) {
                self.limit.wait().await;
            }
            let begun = match self.inner {
                Some(inner) => inner.begin(attempt).await,
                None => Ok(Begun { id: 0, max_output_tokens: None }),
            };
            self.may_send.store(begun.is_err(), Ordering::Relaxed);
            let Begun { id: inner, max_output_tokens } = begun?;
            let output_tokens = max_output_tokens.map(u64::from).or(attempt.output_tokens);
            let worst = output_tokens.map(|output| attempt.input_tokens.saturating_add(output));
            let mut attempts = self.attempts();
            attempts.push(Some(OpenAttempt { inner, worst }));
            Ok(Begun { id: attempts.len() - 1, max_output_tokens })
        })
    }

    fn repeat(&self, id: usize, earlier: EarlierAttempt) -> BoxFuture<'_, Result<(), ModelError>> {
        Box::pin(async move {
            let Some(open) = self.attempts().get(id).copied().flatten() else { return Ok(()) };
            if matches!(earlier, EarlierAttempt::Unknown | EarlierAttempt::Unusable) {
                self.limit.count_worst(open.worst);
            }
            self.limit.wait().await;
            match self.inner {
                Some(inner) => inner.repeat(open.inner, earlier).await,
                None => Ok(()),
            }
        })
    }

    fn end(&self, id: usize, usage: Result<Option<Usage>, EarlierAttempt>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(open) = self.attempts().get_mut(id).and_then(Option::take) else { return };
            match &usage {
                Ok(Some(usage)) => self.limit.count(usage.total_tokens),
                Err(EarlierAttempt::Unbilled) => {}
                Ok(None) | Err(_) => self.limit.count_worst(open.worst),
            }
            if let Some(inner) = self.inner {
                inner.end(open.inner, usage).await;
            }
        })
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("name", &self.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Shared;

    use futures_util::FutureExt;

    use super::*;
    use crate::agent::{Agent, AgentBuilder, Event};
    use crate::model::{ChatModel, ChatResponse, Fallback, ModelErrorKind, ModelFuture, ModelOptions};
    use crate::testing::ScriptedModel;

    async fn streamed(agent: &Agent) -> String {
        let mut events = agent.ask("go").stream();
        let mut text = String::new();
        while let Some(event) = events.next().await {
            if let Event::Text(chunk) = event.unwrap() {
                text.push_str(&chunk);
            }
        }
        text
    }

    fn limited(limit: &RateLimit, replies: usize) -> AgentBuilder {
        let model = (0..replies)
            .fold(ScriptedModel::new(), |model, _| model.says("Yes.").with_usage(Usage::new(400, 200)));
        Agent::builder(model).layer(limit.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn limits_requests_per_minute_over_all_agents() {
        let waits: Arc<Shared<Vec<Duration>>> = Arc::default();
        let seen = Arc::clone(&waits);
        let limit =
            RateLimit::new().requests_per_minute(3).on_wait(move |wait| seen.lock().unwrap().push(wait));
        let agents = [limited(&limit, 3).build().unwrap(), limited(&limit, 3).build().unwrap()];
        let start = tokio::time::Instant::now();
        let mut times = Vec::new();
        for round in 0..3 {
            for agent in &agents {
                let _ = agent.ask(format!("{round}")).await.unwrap();
                times.push(start.elapsed().as_secs());
            }
        }
        assert_eq!(times, [0, 0, 0, 20, 40, 60]);
        assert_eq!(waits.lock().unwrap().iter().map(Duration::as_secs).collect::<Vec<_>>(), [20, 20, 20]);
    }

    /// Repeats each request, as providers do.
    struct Retrying(EarlierAttempt, usize);

    impl ChatModel for Retrying {
        fn chat<'a>(&'a self, request: &'a ChatRequest<'a>) -> ModelFuture<'a> {
            Box::pin(async move {
                for _ in 0..self.1 {
                    request.repeat(self.0).await?;
                }
                let response = ChatResponse::new(crate::model::AssistantMessage::text("Yes."));
                Ok(response.with_usage(Usage::new(400, 200)))
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_of_a_fallback_and_each_retry_counts() {
        let limit = RateLimit::new().requests_per_minute(1);
        let down = ScriptedModel::new().fails("down");
        let model = Fallback::new(down).or(Retrying(EarlierAttempt::Unbilled, 1)).on([ModelErrorKind::Other]);
        let agent = Agent::builder(model).layer(limit).build().unwrap();
        let start = tokio::time::Instant::now();
        let _ = agent.ask("go").await.unwrap();
        // Three requests: one fails, one is repeated.
        assert_eq!(start.elapsed().as_secs(), 120);
    }

    #[tokio::test(start_paused = true)]
    async fn limits_tokens_per_minute_also_of_streams() {
        let limit = RateLimit::new().tokens_per_minute(600);
        let agent = limited(&limit, 4).build().unwrap();
        let start = tokio::time::Instant::now();
        let mut times = Vec::new();
        for _ in 0..4 {
            assert_eq!(streamed(&agent).await, "Yes.");
            times.push(start.elapsed().as_secs());
        }
        // The tokens of the first reply are available at once.
        assert_eq!(times, [0, 0, 60, 120]);
    }

    /// Returns how many tokens a question counts for.
    async fn used_by(model: impl ChatModel + 'static, max_output_tokens: Option<u32>) -> u64 {
        let limit = RateLimit::new().tokens_per_minute(1_000);
        let options = ModelOptions { max_output_tokens, ..ModelOptions::default() };
        let agent = Agent::builder(model).options(options).layer(limit.clone()).build().unwrap();
        let _ = agent.ask("go").await;
        limit.used.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_usage_counts_as_the_most_that_the_request_can_use() {
        let says = || ScriptedModel::new().says("Yes.");
        // Of the question 64 tokens for the request, 16 for the message and 2 for its text.
        let table = [
            ("true", says().with_usage(Usage::new(400, 200)), Some(418), 600),
            ("none", says(), Some(418), 500),
            ("no input", says().with_usage(Usage::new(0, 5)), Some(418), 500),
            ("no output", says().with_usage(Usage::new(5, 0)), Some(418), 500),
            ("an error", ScriptedModel::new().fails("down"), Some(418), 500),
            ("no limit of the answer", says(), None, 1_000),
            ("more than a minute's worth", says(), Some(5_000), 1_000),
        ];
        for (name, first, max_output_tokens, expected) in table {
            assert_eq!(used_by(first, max_output_tokens).await, expected, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_request_counts_as_the_most_that_it_can_use_unless_it_is_billed_with_the_response_or_not_at_all()
     {
        // Each repetition waits for the 500 tokens of the request before it; the first 1,000 are available at once.
        for (earlier, expected) in [
            (EarlierAttempt::Unbilled, 0),
            (EarlierAttempt::Unknown, 30),
            (EarlierAttempt::Unusable, 30),
            (EarlierAttempt::Continued, 0),
        ] {
            let start = tokio::time::Instant::now();
            assert_eq!(used_by(Retrying(earlier, 3), Some(418)).await, 600, "{earlier:?}");
            assert_eq!(start.elapsed().as_secs(), expected, "{earlier:?}");
        }
    }

    /// Answers nothing.
    struct Silent;

    impl ChatModel for Silent {
        fn chat<'a>(&'a self, _: &'a ChatRequest<'a>) -> ModelFuture<'a> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_dropped_counts_as_the_most_that_it_can_use() {
        let limit = RateLimit::new().tokens_per_minute(1_000);
        let options = ModelOptions::default().with_max_output_tokens(418);
        let agent = Agent::builder(Silent).options(options).layer(limit.clone()).build().unwrap();
        assert!(agent.ask("go").into_future().now_or_never().is_none());
        assert_eq!(limit.used.load(Ordering::Relaxed), 500);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_wait_are_sent_one_after_another() {
        let limit = RateLimit::new().requests_per_minute(60).tokens_per_minute(60);
        let agent = limited(&limit, 4).build().unwrap();
        let _ = agent.ask("go").await.unwrap();
        let start = tokio::time::Instant::now();
        let (one, two) = tokio::join!(agent.ask("a"), agent.ask("b"));
        let _ = (one.unwrap(), two.unwrap());
        // 600 tokens at 60 per minute, the first 60 at once; then the reply's, meanwhile.
        assert_eq!(start.elapsed().as_secs(), 540 + 600);
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_is_cancelled_waits_no_longer() {
        let limit = RateLimit::new().requests_per_minute(1);
        let agent = limited(&limit, 2).limits(|l| l.max_time(Duration::from_secs(5))).build().unwrap();
        let _ = agent.ask("go").await.unwrap();
        let error = agent.ask("go").await.unwrap_err();
        assert_eq!(error.to_string(), "the run took longer than 5s; raise `max_time`");
    }

    #[test]
    fn refuses_limits_of_zero() {
        for limit in [RateLimit::new().requests_per_minute(0), RateLimit::new().tokens_per_minute(0)] {
            let error = limited(&limit, 0).build().unwrap_err();
            assert_eq!(
                error.to_string(),
                "the layer `rate_limit` is invalid: it permits nothing: a limit is zero"
            );
        }
    }
}
