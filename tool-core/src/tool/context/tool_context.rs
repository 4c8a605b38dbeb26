//! The values that an application provides to its tools, and the call that is being executed.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

use tokio_util::sync::CancellationToken;

use super::attempt::{Attempt, CallToUndo, IdempotencyKey};
use super::injectable::Injectable;
use super::progress::Progress;
use crate::arguments::Mode;
use crate::model::{ConversationId, ToolCall, ToolPolicy, Usage};
use crate::tool::{Asker, AskingAgent, ToolError};

/// The values that an application provides to its tools, one per type. The model never sees them.
///
/// Clones share the values.
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
    // Most runs provide no values and need no allocation.
    values: Option<Arc<HashMap<TypeId, Entry>>>,
    call: Option<Arc<CurrentCall>>,
    /// The attempt of the call that is about to be executed.
    attempt: Option<Arc<AttemptContext>>,
    // Created on first use if the application provides none.
    conversation: OnceLock<ConversationId>,
    read_mode: Mode,
    /// Outputs beyond a tool's own limit are stored whole before they are truncated.
    stores_outputs: bool,
    /// The rules of the run that the call belongs to, for the run of an agent that it asks.
    rules: Option<Arc<dyn RunRules>>,
}

/// The rules of a run.
pub(crate) trait RunRules: Any + Send + Sync {
    /// Charges the run for the own requests of a layer.
    fn charge(&self, layer: &str, usage: Usage);
}

/// The call that is being executed, and its attempt.
#[derive(Clone)]
struct CurrentCall {
    call: ToolCall,
    attempt: Option<Arc<AttemptContext>>,
    /// The attempt of a call that does not belong to a run.
    standalone: OnceLock<Attempt>,
}

/// The context that a run provides for one attempt of a call.
pub(crate) struct AttemptContext {
    pub(crate) attempt: Attempt,
    pub(crate) progress: Progress,
    pub(crate) cancellation: CancellationToken,
    pub(crate) undone: Option<CallToUndo>,
    pub(crate) asker: Asker,
    /// What the call asks an agent that the world of its run drives. Without it, the call drives the agent itself.
    pub(crate) agent: Option<Arc<AskingAgent>>,
}

#[derive(Clone)]
struct Entry {
    type_name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

impl ToolContext {
    /// Creates a context without values.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns this context with a value, which replaces an earlier one of the same type.
    #[must_use]
    pub fn with<T: Injectable>(mut self, value: T) -> Self {
        let values = Arc::make_mut(self.values.get_or_insert_default());
        values.insert(TypeId::of::<T>(), Entry { type_name: type_name::<T>(), value: Arc::new(value) });
        self
    }

    /// Returns the value of this type, if there is one.
    ///
    /// During a call, the context contains its [`ToolCall`] and [`IdempotencyKey`]. It always contains the
    /// [`ConversationId`], the [`CancellationToken`], the [`Progress`], the [`Asker`] and the context itself.
    #[must_use]
    pub fn get<T: Any>(&self) -> Option<&T> {
        let type_id = TypeId::of::<T>();
        if let Some(built_in) = self.built_in(type_id).flatten() {
            return built_in.downcast_ref();
        }
        if let Some(provided) = self.provided() {
            return Some(provided);
        }
        if type_id == TypeId::of::<ConversationId>() {
            return (self.conversation.get_or_init(ConversationId::unique) as &dyn Any).downcast_ref();
        }
        None
    }

    /// Returns the value of a type that the context of a call contains by itself, if there is one, or `None` for any other type.
    // `get` knows the type at compile time, so only one of these branches remains there.
    #[inline]
    fn built_in(&self, type_id: TypeId) -> Option<Option<&dyn Any>> {
        fn any<T: Any>(value: &T) -> &dyn Any {
            value
        }
        Some(if type_id == TypeId::of::<Self>() {
            Some(self)
        } else if type_id == TypeId::of::<ToolCall>() {
            self.call().map(any)
        } else if type_id == TypeId::of::<IdempotencyKey>() {
            self.idempotency_key().map(any)
        } else if type_id == TypeId::of::<Attempt>() {
            self.current_attempt().map(any)
        } else if type_id == TypeId::of::<Progress>() {
            Some(self.progress())
        } else if type_id == TypeId::of::<CancellationToken>() {
            Some(self.cancellation())
        } else if type_id == TypeId::of::<Asker>() {
            Some(self.asker())
        } else if type_id == TypeId::of::<CallToUndo>() {
            // Only calls that undo another have one, but a run provides it.
            self.attempt_context().and_then(|attempt| attempt.undone.as_ref()).map(any)
        } else {
            return None;
        })
    }

    /// Returns `true` if the context of every call contains a value of this type.
    pub(crate) fn is_built_in(type_id: TypeId) -> bool {
        type_id == TypeId::of::<ConversationId>() || Self::default().built_in(type_id).is_some()
    }

    /// Returns the token that is cancelled when the call is abandoned. Outside a run it is never cancelled.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        static NEVER: LazyLock<CancellationToken> = LazyLock::new(CancellationToken::new);
        self.attempt_context().map_or_else(|| &*NEVER, |attempt| &attempt.cancellation)
    }

    /// Returns the reporter of the call's progress.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        static NONE: Progress = Progress::NONE;
        self.attempt_context().map_or(&NONE, |attempt| &attempt.progress)
    }

    /// Returns the way to ask a person. Nobody can be asked by calls that a program executes outside a run.
    #[must_use]
    pub fn asker(&self) -> &Asker {
        static NOBODY: Asker = Asker::NOBODY;
        self.attempt_context().map_or(&NOBODY, |attempt| &attempt.asker)
    }

    /// Returns the key that identifies the call across all its attempts.
    #[must_use]
    pub fn idempotency_key(&self) -> Option<&IdempotencyKey> {
        self.current_attempt().map(|attempt| &attempt.key)
    }

    /// Returns the number of the attempt, starting at 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.current_attempt().map_or(1, |attempt| attempt.number)
    }

    /// Returns `true` if the run of the call executes it again after this error.
    pub(crate) fn will_retry(&self, policy: &ToolPolicy, error: &ToolError) -> bool {
        self.attempt_context().is_some_and(|running| policy.next_attempt(&running.attempt, error).is_some())
    }

    pub(crate) fn with_rules(mut self, rules: Arc<dyn RunRules>) -> Self {
        self.rules = Some(rules);
        self
    }

    /// Returns the rules of the run that the call belongs to.
    pub(crate) fn rules(&self) -> Option<Arc<dyn RunRules>> {
        self.rules.clone()
    }

    /// Returns this context for the same call with the arguments that layers wrote.
    pub(crate) fn with_arguments(mut self, arguments: &str) -> Self {
        if let Some(current) = &mut self.call {
            arguments.clone_into(&mut Arc::make_mut(current).call.arguments);
        }
        self
    }

    /// Returns what the call asks an agent, if the world of its run drives the agent.
    pub(crate) fn asking_agent(&self) -> Option<&AskingAgent> {
        self.attempt_context()?.agent.as_deref()
    }

    /// Returns `true` if the arguments of the call were checked for the layers of its run.
    pub(crate) fn has_checked_arguments(&self) -> bool {
        self.attempt_context().is_some_and(|running| running.attempt.has_checked_arguments)
    }

    fn current_attempt(&self) -> Option<&Attempt> {
        let call = self.call.as_ref()?;
        Some(match &call.attempt {
            Some(context) => &context.attempt,
            None => call.standalone.get_or_init(|| Attempt::standalone(&call.call.id)),
        })
    }

    /// Returns `true` if the call is executed for a run, or a program has set its attempt.
    pub(crate) fn has_attempt(&self) -> bool {
        self.attempt_context().is_some()
    }

    fn attempt_context(&self) -> Option<&AttemptContext> {
        self.call.as_ref()?.attempt.as_deref()
    }

    /// Returns this context for an attempt that is about to be executed.
    pub(crate) fn for_attempt(&self, attempt: AttemptContext) -> Self {
        Self { attempt: Some(Arc::new(attempt)), ..self.clone() }
    }

    /// Returns the value of this type that the application provided.
    pub(crate) fn provided<T: Any>(&self) -> Option<&T> {
        self.values.as_ref()?.get(&TypeId::of::<T>())?.value.downcast_ref()
    }

    /// Returns the call that is being executed, if any.
    #[must_use]
    pub fn call(&self) -> Option<&ToolCall> {
        self.call.as_deref().map(|current| &current.call)
    }

    /// Returns this context for the tool of a call.
    pub(crate) fn with_call(&self, call: &ToolCall, read_mode: Mode) -> Self {
        let mut context = self.clone();
        let attempt = context.attempt.take();
        let call = CurrentCall { call: call.clone(), attempt, standalone: OnceLock::new() };
        context.call = Some(Arc::new(call));
        context.read_mode = read_mode;
        context
    }

    /// Sets whether outputs beyond a tool's own limit are stored whole before they are truncated.
    pub(crate) fn with_stored_outputs(self, stores_outputs: bool) -> Self {
        Self { stores_outputs, ..self }
    }

    pub(crate) fn stores_outputs(&self) -> bool {
        self.stores_outputs
    }

    pub(crate) fn read_mode(&self) -> Mode {
        self.read_mode
    }

    /// Returns a context with only the values of these types.
    pub(crate) fn only(&self, types: &[TypeId]) -> Self {
        let values = self.values.iter().flat_map(|values| values.iter());
        let values: HashMap<_, _> =
            values.filter(|(id, _)| types.contains(id)).map(|(id, entry)| (*id, entry.clone())).collect();
        Self { values: (!values.is_empty()).then(|| Arc::new(values)), ..Self::default() }
    }

    /// Returns this context with the values that only `defaults` contains.
    pub(crate) fn with_defaults(mut self, defaults: &Self) -> Self {
        let Some(more) = &defaults.values else { return self };
        let values = Arc::make_mut(self.values.get_or_insert_default());
        for (id, entry) in more.iter() {
            values.entry(*id).or_insert_with(|| entry.clone());
        }
        self
    }

    /// Returns the names of the types that the application provided, in alphabetical order.
    pub(crate) fn type_names(&self) -> Vec<&'static str> {
        let values = self.values.iter().flat_map(|map| map.iter());
        // A context among the values was passed by mistake.
        let is_listed = |id| id == TypeId::of::<Self>() || !Self::is_built_in(id);
        let provided = values.filter(|(id, _)| is_listed(**id));
        let mut names: Vec<_> = provided.map(|(_, entry)| entry.type_name).collect();
        names.sort_unstable();
        names
    }
}

/// Shows only the names of the types: values can be secret.
impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ToolContext").field(&self.type_names()).finish()
    }
}
