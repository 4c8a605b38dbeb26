//! Several models. The first one that works answers.
//!
//! A fallback is a model and not a layer, because a model can be given to everything that takes one, also outside of agents.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::member::{Member, impl_by_members};
use crate::model::{
    ChatModel, ChatRequest, ChatResponse, ChatStream, DeltaSender, ModelError, ModelErrorKind, ModelFuture,
};

/// How long a model that is down is left out.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The end of longer times, some thirty years, can be no `Instant`.
const LONGEST_RETRY: Duration = Duration::from_secs(1_000_000_000);

/// Several models in the place of one: each request is sent to the first of them that works.
///
/// - The next model is asked after an error of a [chosen kind](Self::on), and only if no part of a response has arrived.
/// - A model that failed is left out of the following requests. After a [while](Self::retry_after), one request tries it again;
///   the others still leave it out until that one's response starts. If no model is left, all of them are tried.
/// - A conversation can continue with another model at any turn: each provider sends back only its own [reasoning and
///   data](crate::provider::ProviderData).
/// - Features that not all of the models support are not used: [typed answers](crate::agent::Ask::answer_as) are then given by a
///   tool, and the agent [searches tools](crate::agent::ToolSearch) in place of the provider.
/// - The model that answered is in the response and the message, in traces, and determines the cost. Failed requests are counted,
///   too.
///
/// Providers [retry](crate::guide::runs_and_limits#what-is-repeated) by themselves before they return an error; with a fallback, fewer retries are enough.
///
/// ```
/// use tool_core::model::{Fallback, ModelError, ModelErrorKind};
/// use tool_core::testing::ScriptedModel;
/// use tool_core::Agent;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (first, second) = (ScriptedModel::new().fails("down"), ScriptedModel::new().says("Good morning!"));
/// // The errors of a `ScriptedModel` are of the kind `Other`.
/// let model = Fallback::new(first).or(second).on([ModelErrorKind::Unavailable, ModelErrorKind::Other]);
/// let agent = Agent::builder(model).build()?;
/// assert_eq!(agent.ask("Hello").await?.text(), "Good morning!");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct Fallback {
    candidates: Vec<Arc<Candidate>>,
    decide: Arc<dyn Fn(&ModelError) -> bool + Send + Sync>,
    retry_after: Duration,
}

/// One of the models.
struct Candidate {
    member: Member,
    /// Until when it is left out, if it is down.
    down_until: Mutex<Option<Instant>>,
    /// Locked by the request that tries whether it works again.
    trial: tokio::sync::Mutex<()>,
}

impl Candidate {
    /// Returns the lock of its trial, if a request is one, or `None` if the model is left out.
    fn admit(&self, is_forced: bool) -> Option<Option<tokio::sync::MutexGuard<'_, ()>>> {
        let until = *self.down_until.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = until.is_some_and(|until| until <= Instant::now());
        let trial = is_over.then(|| self.trial.try_lock().ok()).flatten();
        (until.is_none() || trial.is_some() || is_forced).then_some(trial)
    }

    /// Sets what a request has found out.
    fn set_down_until(&self, until: Option<Instant>) {
        *self.down_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

impl Fallback {
    /// Creates a fallback from the preferred model. [`or`](Self::or) adds the others.
    pub fn new(preferred: impl ChatModel + 'static) -> Self {
        let none = Self { candidates: Vec::new(), decide: Arc::new(is_outage), retry_after: RETRY_AFTER };
        none.or(preferred)
    }

    /// Adds a model, which is asked after all others.
    pub fn or(mut self, model: impl ChatModel + 'static) -> Self {
        let member = Member { model: Arc::new(model), shares_cache: self.candidates.is_empty() };
        let (down_until, trial) = (Mutex::default(), tokio::sync::Mutex::default());
        self.candidates.push(Arc::new(Candidate { member, down_until, trial }));
        self
    }

    /// Sets the kinds of errors after which the next model is asked. By default, they are
    /// [`Unavailable`](ModelErrorKind::Unavailable), [`Timeout`](ModelErrorKind::Timeout),
    /// [`RateLimit`](ModelErrorKind::RateLimit) and [`Quota`](ModelErrorKind::Quota).
    pub fn on(self, kinds: impl IntoIterator<Item = ModelErrorKind>) -> Self {
        let kinds: Vec<_> = kinds.into_iter().collect();
        self.on_error_if(move |error| kinds.contains(&error.kind()))
    }

    /// Sets a function that decides after which errors the next model is asked, in place of the [kinds](Self::on).
    pub fn on_error_if(mut self, decide: impl Fn(&ModelError) -> bool + Send + Sync + 'static) -> Self {
        self.decide = Arc::new(decide);
        self
    }

    /// Sets how long a model that is down is left out, 30 seconds by default.
    pub fn retry_after(mut self, duration: Duration) -> Self {
        self.retry_after = duration.min(LONGEST_RETRY);
        self
    }

    async fn ask(
        &self,
        request: &ChatRequest<'_>,
        mut sender: Option<&mut DeltaSender>,
    ) -> Result<ChatResponse, ModelError> {
        let mut last = None;
        // If no model is admitted, all of them are tried.
        for is_forced in [false, true] {
            for candidate in &self.candidates {
                let Some(mut trial) = candidate.admit(is_forced) else { continue };
                let mut has_started = false;
                let on_delta = || {
                    has_started = true;
                    candidate.set_down_until(None);
                    // The trial is over, however long the rest takes.
                    drop(trial.take());
                };
                let error = match candidate.member.ask(request, sender.as_deref_mut(), on_delta).await {
                    Ok(response) => {
                        candidate.set_down_until(None);
                        return Ok(response);
                    }
                    Err(error) => error,
                };
                let is_chosen = (self.decide)(&error);
                // Errors of other kinds are about the request.
                let is_down = is_chosen
                    && (is_outage(&error)
                        || matches!(error.kind(), ModelErrorKind::Authentication | ModelErrorKind::Other));
                candidate.set_down_until(is_down.then(|| Instant::now() + self.retry_after));
                if has_started || !is_chosen {
                    return Err(error);
                }
                last = Some(error);
            }
            if let Some(error) = last {
                return Err(error);
            }
        }
        Err(ModelError::new("no model was asked").permanent().unbilled())
    }

    fn models(&self) -> impl Iterator<Item = &dyn ChatModel> {
        self.candidates.iter().map(|candidate| &*candidate.member.model)
    }
}

fn is_outage(error: &ModelError) -> bool {
    use ModelErrorKind::{Quota, RateLimit, Timeout, Unavailable};
    matches!(error.kind(), Unavailable | Timeout | RateLimit | Quota)
}

impl_by_members!(Fallback);
