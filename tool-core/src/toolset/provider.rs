//! Providers that supply tools per question or per turn.

use std::any::type_name;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;

use crate::model::{ConversationId, Message};
use crate::tool::{Asker, ToolContext};
use crate::toolset::ToolSet;

/// The future that [`ToolProvider::tools`] returns.
pub type ToolProviderFuture<'a> =
    Pin<Box<dyn Future<Output = Result<ToolSet, Box<dyn Error + Send + Sync>>> + Send + 'a>>;

/// A provider of tools for a question, such as the tools that a user may use or another process offers. It is added
/// with [`AgentBuilder::tool_provider`](crate::agent::AgentBuilder::tool_provider).
///
/// Functions from a [`ToolProviderRequest`] to [`ProvidedTools`] implement this trait: they return a `ToolSet`, an `Option` of
/// one, or a `Result` of either. [`provide`] takes closures without the type of their parameter.
///
/// # Contract
///
/// - A provider is called once per question, before the first request to the model, and again when a run is
///   [resumed](crate::Agent::resume).
/// - A provider that [`is_dynamic`](Self::is_dynamic) is called before every request to the model. The calls of that
///   turn are executed with the set that it returned. While its tools stay the same, it should return clones of one set,
///   so that their definitions are serialized once.
/// - Dropping the future cancels the lookup.
///
/// # Examples
///
/// ```
/// use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest};
/// use tool_core::ToolSet;
///
/// struct UserId(u32);
///
/// struct UserTools {
///     tools: ToolSet,
///     admin: u32,
/// }
///
/// impl ToolProvider for UserTools {
///     fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
///         Box::pin(async move {
///             match request.context().get() {
///                 Some(UserId(user)) if *user == self.admin => Ok(self.tools.clone()),
///                 _ => Ok(self.tools.without(["delete_account"])?),
///             }
///         })
///     }
/// }
/// ```
///
/// As a function:
///
/// ```
/// use tool_core::toolset::{ToolProvider, ToolProviderRequest};
/// use tool_core::ToolSet;
///
/// # fn file_tools() -> ToolSet { ToolSet::default() }
/// let files = file_tools();
/// let provider = move |request: &ToolProviderRequest<'_>| match request.question().contains("delete") {
///     true => Ok(files.clone()),
///     false => files.without(["delete_file"]),
/// };
/// # fn is_provider(_: impl ToolProvider) {}
/// # is_provider(provider);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not provide tools",
    label = "not a `ToolProvider`",
    note = "pass tools that are already known to `tools`; a closure is passed to `toolset::provide`: it takes a `&ToolProviderRequest<'_>` and returns a `ToolSet`, an `Option` of one, or a `Result` of either"
)]
pub trait ToolProvider: Send + Sync {
    /// Returns the tools for a question. They are offered in addition to the agent's own.
    ///
    /// # Errors
    ///
    /// The future can return any error if the tools are not available; it ends the run. If that of an untrusted provider whose tools may differ
    /// fails while calls of a resumed run are open, those of other tools go on; if one may be of its tools, and a question was refused, it is
    /// called again and can [ask the user](ToolProviderRequest::asker). If it returns the error of a question that was declined, the run goes on
    /// without its tools.
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a>;

    /// Returns `true` if the tools may differ from turn to turn, so that the provider is called before every request to
    /// the model. The default is `false`.
    fn is_dynamic(&self) -> bool {
        false
    }

    /// Returns `true` if an untrusted party names the tools, such as a server. A tool whose name another tool has is then left out,
    /// with a warning in the log, where it would otherwise end the run; so is each of two tools that two such parties give the same
    /// name, because neither may take the place of the other. The default is `false`.
    fn has_untrusted_names(&self) -> bool {
        false
    }

    /// Returns the name of the provider in error messages. The default is the name of its type.
    fn name(&self) -> &str {
        type_name::<Self>()
    }
}

/// Returns the provider of what a closure supplies.
///
/// ```
/// use tool_core::testing::ScriptedModel;
/// use tool_core::toolset::provide;
/// use tool_core::{Agent, tool, tools};
///
/// #[tool("Deletes a file")]
/// fn delete_file(name: String) {}
///
/// let deleting = provide(|request| request.question().contains("delete").then(|| tools![delete_file]));
/// let agent = Agent::builder(ScriptedModel::new()).tool_provider(deleting).build()?;
/// # Ok::<_, tool_core::BuildError>(())
/// ```
pub fn provide<R: ProvidedTools>(
    provide: impl Fn(&ToolProviderRequest<'_>) -> R + Send + Sync + 'static,
) -> ClosureProvider {
    ClosureProvider(Box::new(provide))
}

/// A provider that is a closure; created by [`provide`].
// With the type of what the closure returns in it, a wrong one would be reported twice.
pub struct ClosureProvider(Box<dyn ToolProvider>);

impl ToolProvider for ClosureProvider {
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        self.0.tools(request)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

impl fmt::Debug for ClosureProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClosureProvider").field(&self.name()).finish()
    }
}

#[diagnostic::do_not_recommend]
impl<F, R> ToolProvider for F
where
    F: Fn(&ToolProviderRequest<'_>) -> R + Send + Sync,
    R: ProvidedTools,
{
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(ready(self(request).into_provided()))
    }
}

/// A value that a function that [provides tools](ToolProvider) can return: a [`ToolSet`], an `Option` of one, where `None` is no
/// tool, or a `Result` of either.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a set of tools",
    label = "must be a `ToolSet`, an `Option` of one, or a `Result` of either",
    note = "to await something before, implement `ToolProvider` for a type of your own, and pass it to `.tool_provider(…)`"
)]
pub trait ProvidedTools {
    /// Converts the value into the result of a provider.
    ///
    /// # Errors
    ///
    /// Returns the error of a `Result`.
    fn into_provided(self) -> Result<ToolSet, Box<dyn Error + Send + Sync>>;
}

impl ProvidedTools for ToolSet {
    fn into_provided(self) -> Result<ToolSet, Box<dyn Error + Send + Sync>> {
        Ok(self)
    }
}

impl ProvidedTools for Option<ToolSet> {
    fn into_provided(self) -> Result<ToolSet, Box<dyn Error + Send + Sync>> {
        Ok(self.unwrap_or_default())
    }
}

impl<T: ProvidedTools, E: Into<Box<dyn Error + Send + Sync>>> ProvidedTools for Result<T, E> {
    fn into_provided(self) -> Result<ToolSet, Box<dyn Error + Send + Sync>> {
        self.map_err(Into::into)?.into_provided()
    }
}

/// The information that a [`ToolProvider`] can choose tools by.
///
/// ```
/// use tool_core::toolset::ToolProviderRequest;
/// use tool_core::{Message, ToolContext};
///
/// let (messages, context) = ([Message::user("What is the weather in Rome?")], ToolContext::new());
/// let request = ToolProviderRequest::new(&messages, &context);
/// assert!(request.question().contains("weather"));
/// ```
pub struct ToolProviderRequest<'a> {
    messages: &'a [Message],
    context: &'a ToolContext,
    asker: &'a Asker,
    conversation: ConversationId,
}

impl<'a> ToolProviderRequest<'a> {
    /// Creates a request for callers that call a provider themselves. The [`ConversationId`] is taken from the context;
    /// if there is none, a unique one is generated.
    #[must_use]
    pub fn new(messages: &'a [Message], context: &'a ToolContext) -> Self {
        let conversation = context.get().cloned().unwrap_or_else(ConversationId::unique);
        Self { messages, context, asker: &Asker::NOBODY, conversation }
    }

    pub(crate) fn with_asker(self, asker: &'a Asker) -> Self {
        Self { asker, ..self }
    }

    /// Returns the text of the last user message.
    #[must_use]
    pub fn question(&self) -> Cow<'a, str> {
        let message = self.messages.iter().rfind(|message| matches!(message, Message::User(_)));
        message.map(Message::text).unwrap_or_default()
    }

    /// Returns the conversation so far. Once the model has called tools, it continues after the question.
    #[must_use]
    pub fn messages(&self) -> &'a [Message] {
        self.messages
    }

    /// Returns the values that the application passes to the tools, through the agent and with the question.
    #[must_use]
    pub fn context(&self) -> &'a ToolContext {
        self.context
    }

    /// Returns the way to ask the user, without whom the tools cannot be provided. The run waits for the answer like for that of a
    /// [tool](crate::ToolContext::asker), and any process can take it; then the provider is asked for its tools again, and its questions have
    /// their replies at once, in later turns as well. While calls of a resumed run are open, nothing new
    /// can be asked, except by an untrusted provider that has failed and may have the tool of an open call. Outside of runs, nobody can be asked.
    /// If a run that waits is resumed by an agent without this provider, or with another name of it, the question is over.
    ///
    /// ```
    /// use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest};
    /// use tool_core::ToolSet;
    ///
    /// struct Files(ToolSet);
    ///
    /// impl ToolProvider for Files {
    ///     fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
    ///         Box::pin(async {
    ///             let may_read = request.asker().ask::<bool>("May the assistant read your files?").await;
    ///             Ok(if may_read.unwrap_or(false) { self.0.clone() } else { ToolSet::default() })
    ///         })
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn asker(&self) -> &'a Asker {
        self.asker
    }

    /// Returns the id of the conversation.
    #[must_use]
    pub fn conversation(&self) -> &ConversationId {
        &self.conversation
    }
}

/// Prints the number of messages but not their content, as conversations are private.
impl fmt::Debug for ToolProviderRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolProviderRequest")
            .field("messages", &self.messages.len())
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}
