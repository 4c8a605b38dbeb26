//! The conversation that is shown.

use std::fmt;

use crate::model::Message;
use crate::tool::ToolExecution;

/// The default limit of characters per text.
pub(super) const DEFAULT_TEXT_CHARS: usize = 2000;

/// A readable form of a conversation: the messages, the tool calls with their arguments, and the results, as `Display`
/// writes them.
///
/// Unlike `Debug`, it shows the messages, arguments, outputs and errors in full. Do not log it: show it only to people
/// who are allowed to see the conversation.
///
/// No text can imitate a line of another speaker: continuation lines are indented, and control characters and what a person does not see are
/// [escaped](crate::provider::printable).
///
/// ```
/// use tool_core::model::AssistantMessage;
/// use tool_core::tool::ToolExecution;
/// use tool_core::signatures::Transcript;
/// use tool_core::{Message, ToolCall, ToolOutput};
///
/// let call = ToolCall::new("call_1", "sum", r#"{"a": 2, "b": 40}"#);
/// let execution = ToolExecution::new(call.clone(), Ok(ToolOutput::text("42")));
/// let messages = [
///     Message::user("What is 2 + 40?"),
///     Message::Assistant(AssistantMessage::default().with_tool_calls([call.clone()])),
///     Message::tool(&call, &Ok(ToolOutput::text("42"))),
///     Message::assistant("It is 42."),
/// ];
/// let transcript = Transcript::new(&messages, &[execution]).to_string();
/// let expected = r#"
/// user: What is 2 + 40?
/// model calls sum: {"a": 2, "b": 40}
/// sum returns: 42
/// model: It is 42.
/// "#;
/// assert_eq!(transcript, expected.trim_start());
/// ```
#[derive(Clone)]
#[must_use]
pub struct Transcript<'a> {
    pub(super) messages: &'a [Message],
    pub(super) executions: &'a [ToolExecution],
    /// The conversations of agents that calls asked, by the ids of the calls.
    pub(super) inner: Vec<(&'a str, Self)>,
    /// The ids of the last calls before the conversation was handed off, with the names of the agents.
    pub(super) handoffs: Vec<(&'a str, &'a str)>,
    /// The ids of the last calls before the conversation was compacted, if there are any, with what was hidden.
    pub(super) compactions: Vec<(Option<&'a str>, String)>,
    pub(super) max_text_chars: usize,
}

impl<'a> Transcript<'a> {
    /// Creates a transcript of messages. Calls that have an execution are shown with their duration and with the number
    /// of repaired arguments.
    pub fn new(messages: &'a [Message], executions: &'a [ToolExecution]) -> Self {
        Self {
            messages,
            executions,
            inner: Vec::new(),
            handoffs: Vec::new(),
            compactions: Vec::new(),
            max_text_chars: DEFAULT_TEXT_CHARS,
        }
    }

    /// Adds the conversation of an agent that the call with this id [asked](crate::Agent::as_tool). It is shown between the call
    /// and its result, with the name of the tool before each speaker.
    ///
    /// ```
    /// use tool_core::model::AssistantMessage;
    /// use tool_core::signatures::Transcript;
    /// use tool_core::{Message, ToolCall};
    ///
    /// let call = ToolCall::new("call_1", "billing", "{}");
    /// let messages = [
    ///     Message::Assistant(AssistantMessage::default().with_tool_calls([call.clone()])),
    ///     Message::tool(&call, &Ok("700 cents".into())),
    /// ];
    /// let inner = [Message::user("What is it?"), Message::assistant("700 cents")];
    /// let transcript = Transcript::new(&messages, &[]).with_inner("call_1", Transcript::new(&inner, &[]));
    /// let expected = "
    /// model calls billing: {}
    /// billing/user: What is it?
    /// billing/model: 700 cents
    /// billing returns: 700 cents
    /// ";
    /// assert_eq!(transcript.to_string(), expected.trim_start());
    /// ```
    pub fn with_inner(mut self, call_id: &'a str, inner: Self) -> Self {
        self.inner.push((call_id, inner));
        self
    }

    /// States that another agent speaks after the message with this call, because the run was [handed
    /// over](crate::agent::AgentBuilder::handoff_to) to it.
    ///
    /// ```
    /// use tool_core::model::AssistantMessage;
    /// use tool_core::signatures::Transcript;
    /// use tool_core::{Message, ToolCall};
    ///
    /// let call = ToolCall::new("call_1", "billing", "{}");
    /// let messages = [
    ///     Message::Assistant(AssistantMessage::default().with_tool_calls([call.clone()])),
    ///     Message::tool(&call, &Ok("The conversation was handed off.".into())),
    ///     Message::assistant("700 cents"),
    /// ];
    /// let expected = "
    /// model calls billing: {}
    /// billing returns: The conversation was handed off.
    /// handed off to: billing
    /// model: 700 cents
    /// ";
    /// let transcript = Transcript::new(&messages, &[]).with_handoff("call_1", "billing");
    /// assert_eq!(transcript.to_string(), expected.trim_start());
    /// ```
    pub fn with_handoff(mut self, call_id: &'a str, agent: &'a str) -> Self {
        self.handoffs.push((call_id, agent));
        self
    }

    /// States what the model no longer reads after the message with this call, or from its first message on, because the conversation was
    /// [compacted](crate::agent::Compaction).
    ///
    /// ```
    /// use tool_core::Message;
    /// use tool_core::signatures::Transcript;
    ///
    /// let messages = [Message::user("And now?"), Message::assistant("700 cents")];
    /// let transcript = Transcript::new(&messages, &[]).with_compaction(None, "a summary stands for 12 messages");
    /// let expected = "
    /// user: And now?
    /// compacted: a summary stands for 12 messages
    /// model: 700 cents
    /// ";
    /// assert_eq!(transcript.to_string(), expected.trim_start());
    /// ```
    pub fn with_compaction(mut self, call_id: Option<&'a str>, hidden: impl Into<String>) -> Self {
        self.compactions.push((call_id, hidden.into()));
        self
    }

    /// Limits each text to this number of characters, followed by the number of omitted ones. The default is 2000.
    pub fn with_max_text_chars(mut self, chars: usize) -> Self {
        self.max_text_chars = chars;
        self
    }
}

/// Shows only sizes, as conversations are private.
impl fmt::Debug for Transcript<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transcript")
            .field("messages", &self.messages.len())
            .field("executions", &self.executions.len())
            .finish_non_exhaustive()
    }
}
