//! The next request to the model, for a hook to change.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use crate::content::Content;
use crate::model::{Message, ModelOptions, ToolChoice, repair_history};
use crate::run::Run;
use crate::tool::ToolContext;
use crate::toolset::ToolSet;

/// The next request to the model, which an [`AgentBuilder::before_turn`](crate::agent::AgentBuilder::before_turn) hook can change.
/// Changes apply to this turn only.
#[non_exhaustive]
pub struct Turn<'a> {
    /// The tools to offer to the model, in which its calls are looked up. Keep the same set while the tools stay the same, so
    /// that their definitions are serialized once and the provider's prompt cache is hit.
    pub tools: ToolSet,
    /// The options of the model.
    pub options: ModelOptions,
    /// The choice whether the model may, must or must not call tools.
    pub tool_choice: ToolChoice,
    messages: Cow<'a, [Message]>,
    run: &'a Run,
    context: &'a ToolContext,
}

/// The changes that a hook made to a turn that is still to be sent.
pub(super) struct Changes {
    pub(super) options: ModelOptions,
    pub(super) tool_choice: ToolChoice,
    /// The messages to send in place of those of the run, if the hook changed them.
    pub(super) messages: Option<Vec<Message>>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(run: &'a Run, context: &'a ToolContext, tools: ToolSet) -> Self {
        let (options, tool_choice) = (run.options().clone(), run.current_tool_choice().clone());
        let messages = Cow::Borrowed(sent_messages(run));
        Self { tools, options, tool_choice, messages, run, context }
    }

    /// Returns the number of the turn, starting at 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.run.turns().saturating_add(u32::from(self.run.is_asking()))
    }

    /// Returns the messages that are sent to the model in this turn.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the messages of this turn to be changed: those that are sent to the model, while the run and its
    /// [memory](crate::agent::AgentBuilder::memory) keep the conversation as it is. The next turn starts from that conversation again.
    ///
    /// Calls and their results stay together: a result whose call was removed is removed too, and one that was removed without its
    /// call is sent nevertheless. To shorten a result, change its content. The provider's prompt cache is missed from the first change
    /// on, so change messages rarely or in the same way in every turn.
    ///
    /// ```
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::agent::Turn;
    /// use tool_core::{Agent, Message, tool, tools};
    ///
    /// #[tool("Reads a file")]
    /// fn read_file(path: String) -> String {
    ///     format!("the long text of {path}")
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new()
    ///     .calls("read_file", r#"{"path": "a.txt"}"#)
    ///     .expects(|request| request.messages()[2].text() == "[read]")
    ///     .says("It is long.");
    /// let agent = Agent::builder(model)
    ///     .tools(tools![read_file])
    ///     .before_turn(|turn: &mut Turn<'_>| {
    ///         for message in turn.messages_mut() {
    ///             if let Message::Tool(result) = message {
    ///                 result.content = "[read]".into();
    ///             }
    ///         }
    ///     })
    ///     .build()?;
    /// let answer = agent.ask("What is in a.txt?").await?;
    /// assert_eq!(answer.messages()[2].text(), "the long text of a.txt");
    /// # Ok(())
    /// # }
    /// ```
    pub fn messages_mut(&mut self) -> &mut Vec<Message> {
        self.messages.to_mut()
    }

    /// Sets the instructions that the model reads in this turn, in place of those of the agent and the question. They can depend on the
    /// [context](Self::context) or the run's [conversation](Run::conversation).
    pub fn set_instructions(&mut self, instructions: impl Into<Content>) {
        let instructions = Message::System(instructions.into());
        let messages = self.messages_mut();
        match messages.first_mut() {
            Some(first @ Message::System(_)) => *first = instructions,
            _ => messages.insert(0, instructions),
        }
    }

    /// Removes the earlier turns of this run from the messages: those between the question and the last reply with its results.
    /// Messages of the user stay.
    pub(super) fn remove_earlier_turns(&mut self) {
        let messages = sent_messages(self.run);
        let question = self.run.messages().len() - self.run.new_messages().len();
        let last_reply = messages.iter().rposition(|message| matches!(message, Message::Assistant(_)));
        let last_reply = last_reply.unwrap_or_default();
        let is_earlier = |message: &Message| matches!(message, Message::Assistant(_) | Message::Tool(_));
        if messages.iter().take(last_reply).skip(question).any(is_earlier) {
            let kept = messages.iter().enumerate().filter(|(position, message)| {
                !(question..last_reply).contains(position) || !is_earlier(message)
            });
            self.messages = kept.map(|(_, message)| message.clone()).collect();
        }
    }

    /// Returns the run so far, with its calls, tokens and limits.
    pub fn run(&self) -> &'a Run {
        self.run
    }

    /// Returns the context of the tools.
    #[must_use]
    pub fn context(&self) -> &'a ToolContext {
        self.context
    }

    pub(super) fn into_parts(self) -> (ToolSet, Changes) {
        let messages = match self.messages {
            Cow::Borrowed(_) => None,
            Cow::Owned(changed) => Some(with_whole_pairs(changed, sent_messages(self.run))),
        };
        let changes = Changes { options: self.options, tool_choice: self.tool_choice, messages };
        (self.tools, changes)
    }
}

/// Returns the messages of the run that are sent in this turn.
fn sent_messages(run: &Run) -> &[Message] {
    let messages = run.messages();
    // If the run was resumed in the middle of a turn, the last message is the reply.
    let replies = usize::from(!run.is_asking());
    &messages[..messages.len().saturating_sub(replies)]
}

/// Returns the messages with each call and its result together. Results that are missing are those of the run.
fn with_whole_pairs(mut changed: Vec<Message>, of_run: &[Message]) -> Vec<Message> {
    let id = |message: &Message| match message {
        Message::Tool(result) => Some(result.call_id.clone()),
        _ => None,
    };
    let present: HashSet<_> = changed.iter().filter_map(id).collect();
    let is_missing = |message: &&Message| id(message).is_some_and(|id| !present.contains(&id));
    // The repair moves each to its call, and drops those without one.
    changed.extend(of_run.iter().filter(is_missing).cloned());
    match repair_history(&changed) {
        Cow::Owned(repaired) => repaired,
        Cow::Borrowed(_) => changed,
    }
}

/// Omits messages, because conversations are private.
impl fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("number", &self.number())
            .field("tools", &self.tools)
            .field("options", &self.options)
            .field("tool_choice", &self.tool_choice)
            .finish_non_exhaustive()
    }
}
