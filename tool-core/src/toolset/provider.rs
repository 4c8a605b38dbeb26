//! Tools that are looked up when there is a question.

use std::any::type_name;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;

use crate::model::{ConversationId, Message};
use crate::tool::ToolContext;
use crate::toolset::ToolSet;

/// The future of one [`ToolProvider::tools`].
pub type ToolProviderFuture<'a> =
    Pin<Box<dyn Future<Output = Result<ToolSet, Box<dyn Error + Send + Sync>>> + Send + 'a>>;

/// Gives the tools for a question when it is asked, such as those that the user may use, or those of
/// another process. [`AgentBuilder::tool_provider`](crate::agent::AgentBuilder::tool_provider) takes it.
///
/// A function from a [`ToolProviderRequest`] to `Result<ToolSet, _>` is one, too.
///
/// # Contract
///
/// - A provider is asked once per ask, before the model is, and again when a run is
///   [resumed](crate::Agent::resume).
/// - One that [`is_dynamic`](Self::is_dynamic) is asked each time before the model is asked; the calls of
///   that turn are looked up in the very set that it gave. As long as the tools stay the same it should give
///   clones of one set, so that requests are written once.
/// - Dropping the future gives up the ask.
///
/// # Examples
///
/// ```
/// use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest};
/// use tool_core::ToolSet;
///
/// struct UserId(u32);
///
/// struct OfUser {
///     tools: ToolSet,
///     admin: u32,
/// }
///
/// impl ToolProvider for OfUser {
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
/// # fn tools_of_files() -> ToolSet { ToolSet::default() }
/// let files = tools_of_files();
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
    note = "tools that are there already are given to `tools`; a function takes `&ToolProviderRequest<'_>` and gives a `Result<ToolSet, _>`"
)]
pub trait ToolProvider: Send + Sync {
    /// The tools for a question; they are offered beside the agent's own.
    ///
    /// # Errors
    ///
    /// The future gives any error when there are no tools to be had; the run then ends with it.
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a>;

    /// The tools may be others in each turn, so the provider is asked before every reply of the model.
    fn is_dynamic(&self) -> bool {
        false
    }

    /// What the provider is called where something goes wrong with it; the name of its type, unless it says
    /// otherwise.
    fn name(&self) -> &str {
        type_name::<Self>()
    }
}

#[diagnostic::do_not_recommend]
impl<F, E> ToolProvider for F
where
    F: Fn(&ToolProviderRequest<'_>) -> Result<ToolSet, E> + Send + Sync,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(ready(self(request).map_err(Into::into)))
    }
}

/// What a [`ToolProvider`] may choose the tools by.
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
    conversation: ConversationId,
}

impl<'a> ToolProviderRequest<'a> {
    /// A request over the conversation so far, for who calls a provider by hand. The context holds the
    /// [`ConversationId`]; without one, a unique one is made.
    #[must_use]
    pub fn new(messages: &'a [Message], context: &'a ToolContext) -> Self {
        let conversation = context.get().cloned().unwrap_or_else(ConversationId::unique);
        Self { messages, context, conversation }
    }

    /// The text of what the user said last.
    #[must_use]
    pub fn question(&self) -> Cow<'a, str> {
        let said = self.messages.iter().rfind(|message| matches!(message, Message::User(_)));
        said.map(Message::text).unwrap_or_default()
    }

    /// The conversation so far, which goes beyond the question once the model has called tools.
    #[must_use]
    pub fn messages(&self) -> &'a [Message] {
        self.messages
    }

    /// What the application hands to the tools: of the agent and of the question.
    #[must_use]
    pub fn context(&self) -> &'a ToolContext {
        self.context
    }

    /// Which conversation it is.
    #[must_use]
    pub fn conversation(&self) -> &ConversationId {
        &self.conversation
    }
}

/// Tells how much there is, not what: conversations are private.
impl fmt::Debug for ToolProviderRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolProviderRequest")
            .field("messages", &self.messages.len())
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}
