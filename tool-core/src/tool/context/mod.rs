//! What the application hands to its tools, out of the model's sight.

mod attempt;
mod injectable;
mod injection;
mod progress;

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

use tokio_util::sync::CancellationToken;

use crate::model::{ConversationId, ToolCall};

pub use self::attempt::{Attempt, IdempotencyKey, Undone};
pub use self::injectable::{Injectable, InjectableByValue, for_call, lacks, look_up};
pub use self::injection::Injection;
pub(crate) use self::progress::ProgressSink;
pub use self::progress::{Progress, ToolProgress};

/// Values that the application hands to its tools, one per type; the model never sees them.
///
/// Cloning shares the values.
///
/// ```
/// use tool_core::ToolContext;
///
/// struct UserId(u32);
///
/// let context = ToolContext::new().with(UserId(7));
/// assert_eq!(context.get::<UserId>().map(|user| user.0), Some(7));
/// assert!(context.get::<String>().is_none());
/// ```
#[derive(Clone, Default)]
pub struct ToolContext {
    // Most runs hand over nothing: no allocation then.
    values: Option<Arc<HashMap<TypeId, Entry>>>,
    call: Option<Arc<CallInHand>>,
    /// What the run says of the call that is about to be made.
    attempt: Option<Arc<dyn OfAttempt>>,
    // Made when it is first asked for, if nobody gave one.
    conversation: OnceLock<ConversationId>,
    reading: Reading,
}

/// The call that is made, and what it is made under.
struct CallInHand {
    call: ToolCall,
    attempt: Option<Arc<dyn OfAttempt>>,
    /// Of a call that no run has made.
    alone: OnceLock<Attempt>,
}

/// What a run says of a call that it has made.
pub(crate) struct AttemptContext {
    pub(crate) attempt: Attempt,
    pub(crate) progress: Progress,
    pub(crate) cancellation: CancellationToken,
    pub(crate) undone: Option<Undone>,
}

/// It is seen through this trait, so that a program without runs is linked without what it takes to drop one.
trait OfAttempt: Send + Sync {
    fn get(&self) -> &AttemptContext;
}

impl OfAttempt for AttemptContext {
    fn get(&self) -> &AttemptContext {
        self
    }
}

/// How a set wants the arguments of its tools read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Arguments are taken as they are, and not mended.
    pub(crate) is_strict: bool,
    /// Arguments that the tool does not have are left out, and not refused.
    pub(crate) ignores_unknown: bool,
}

#[derive(Clone)]
struct Entry {
    type_name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

impl ToolContext {
    /// A context that holds nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same context with one more value; it takes the place of an earlier one of its type.
    #[must_use]
    pub fn with<T: Any + Send + Sync>(mut self, value: T) -> Self {
        let values = Arc::make_mut(self.values.get_or_insert_default());
        values.insert(TypeId::of::<T>(), Entry { type_name: type_name::<T>(), value: Arc::new(value) });
        self
    }

    /// The value of this type, if there is one. While a tool is called, its [`ToolCall`] and [`IdempotencyKey`] are
    /// there; the [`ConversationId`], the [`CancellationToken`], the [`Progress`] and the context itself always are.
    #[must_use]
    pub fn get<T: Any>(&self) -> Option<&T> {
        // Which type it is, is known when the program is compiled: of all this one line is left.
        let type_id = TypeId::of::<T>();
        let own = if type_id == TypeId::of::<Self>() {
            Some(self as &dyn Any)
        } else if type_id == TypeId::of::<ToolCall>() {
            self.call().map(|call| call as &dyn Any)
        } else if type_id == TypeId::of::<IdempotencyKey>() {
            self.idempotency_key().map(|key| key as &dyn Any)
        } else if type_id == TypeId::of::<Attempt>() {
            self.attempt_in_hand().map(|attempt| attempt as &dyn Any)
        } else if type_id == TypeId::of::<Progress>() {
            Some(self.progress() as &dyn Any)
        } else if type_id == TypeId::of::<CancellationToken>() {
            Some(self.cancellation() as &dyn Any)
        } else if type_id == TypeId::of::<Undone>() {
            self.in_hand().and_then(|attempt| attempt.undone.as_ref()).map(|undone| undone as &dyn Any)
        } else {
            None
        };
        if let Some(own) = own {
            return own.downcast_ref();
        }
        if let Some(given) = self.given() {
            return Some(given);
        }
        if type_id == TypeId::of::<ConversationId>() {
            return (self.conversation.get_or_init(ConversationId::unique) as &dyn Any).downcast_ref();
        }
        None
    }

    /// These are there when a call is made, whoever makes it.
    pub(crate) fn is_of_every_call(type_id: TypeId) -> bool {
        [
            TypeId::of::<Self>(),
            TypeId::of::<ToolCall>(),
            TypeId::of::<ConversationId>(),
            TypeId::of::<IdempotencyKey>(),
            TypeId::of::<Attempt>(),
            TypeId::of::<Progress>(),
            TypeId::of::<CancellationToken>(),
            // Of every call that undoes another.
            TypeId::of::<Undone>(),
        ]
        .contains(&type_id)
    }

    /// Returns the token that is cancelled when nobody awaits the call any more; outside a run it never is.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        static NEVER: LazyLock<CancellationToken> = LazyLock::new(CancellationToken::new);
        self.in_hand().map_or_else(|| &*NEVER, |attempt| &attempt.cancellation)
    }

    /// Where the call tells of its progress.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        static UNHEARD: Progress = Progress::UNHEARD;
        self.in_hand().map_or(&UNHEARD, |attempt| &attempt.progress)
    }

    /// What tells the call that is made from every other, however often it is made.
    #[must_use]
    pub fn idempotency_key(&self) -> Option<&IdempotencyKey> {
        self.attempt_in_hand().map(|attempt| &attempt.key)
    }

    /// Which attempt of the call it is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt_in_hand().map_or(1, |attempt| attempt.number)
    }

    fn attempt_in_hand(&self) -> Option<&Attempt> {
        let call = self.call.as_ref()?;
        Some(match &call.attempt {
            Some(attempt) => &attempt.get().attempt,
            None => call.alone.get_or_init(|| Attempt::alone(&call.call.id)),
        })
    }

    fn in_hand(&self) -> Option<&AttemptContext> {
        self.call.as_ref()?.attempt.as_deref().map(OfAttempt::get)
    }

    /// This context, for the call that is about to be made under this.
    pub(crate) fn for_attempt(&self, attempt: AttemptContext) -> Self {
        Self { attempt: Some(Arc::new(attempt)), ..self.clone() }
    }

    /// This context for a call that is made outside a run, such as one that came over another protocol: the tool sees
    /// which attempt it is, and by the cancellation that nobody waits for it any more; and it tells of its progress.
    ///
    /// ```
    /// use tool_core::tool::{Attempt, Progress};
    /// use tool_core::{CancellationToken, ToolCall, ToolContext, tool, tools};
    ///
    /// #[tool("Fetches a page")]
    /// fn fetch(#[inject] progress: &Progress, #[inject] attempt: &Attempt) -> u32 {
    ///     progress.report("fetching");
    ///     attempt.number
    /// }
    ///
    /// # let outcome = futures_util::FutureExt::now_or_never(async {
    /// let call = ToolCall::new("call_1", "fetch", "{}");
    /// let (told, heard) = std::sync::mpsc::channel();
    /// let progress = Progress::new(move |progress| drop(told.send(progress)));
    /// let context = ToolContext::new().outside_run(Attempt::alone(&call.id), &CancellationToken::new(), progress);
    /// assert_eq!(tools![fetch].call(&call, &context).await?.to_string(), "1");
    /// assert_eq!(heard.recv().unwrap().text, "fetching");
    /// # Ok::<_, tool_core::ToolError>(())
    /// # });
    /// # outcome.unwrap().unwrap();
    /// ```
    #[must_use]
    pub fn outside_run(
        &self,
        attempt: Attempt,
        cancellation: &CancellationToken,
        progress: Progress,
    ) -> Self {
        let cancellation = cancellation.child_token();
        self.for_attempt(AttemptContext { attempt, progress, cancellation, undone: None })
    }

    /// The value of this type that the application handed over.
    pub(crate) fn given<T: Any>(&self) -> Option<&T> {
        self.values.as_ref()?.get(&TypeId::of::<T>())?.value.downcast_ref()
    }

    /// The call that is made, while it is made.
    #[must_use]
    pub fn call(&self) -> Option<&ToolCall> {
        self.call.as_deref().map(|in_hand| &in_hand.call)
    }

    /// This context, as the tool of a call sees it.
    pub(crate) fn of_call(&self, call: &ToolCall, reading: Reading) -> Self {
        let mut context = self.clone();
        let attempt = context.attempt.take();
        context.call = Some(Arc::new(CallInHand { call: call.clone(), attempt, alone: OnceLock::new() }));
        context.reading = reading;
        context
    }

    pub(crate) fn reading(&self) -> Reading {
        self.reading
    }

    /// Arguments are read as they are, and not mended.
    pub(crate) fn has_strict_arguments(&self) -> bool {
        self.reading.is_strict
    }

    /// This context, filled with what only `defaults` has.
    pub(crate) fn or(mut self, defaults: &Self) -> Self {
        let Some(more) = &defaults.values else { return self };
        let values = Arc::make_mut(self.values.get_or_insert_default());
        for (id, entry) in more.iter() {
            values.entry(*id).or_insert_with(|| entry.clone());
        }
        self
    }
}

/// Names the types only: values may be secrets.
impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> =
            self.values.iter().flat_map(|map| map.values()).map(|entry| entry.type_name).collect();
        names.sort_unstable();
        f.debug_tuple("ToolContext").field(&names).finish()
    }
}
