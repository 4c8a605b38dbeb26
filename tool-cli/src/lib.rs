//! A terminal chat with an [`Agent`] in one call.
//!
//! ```no_run
//! use tool_core::{Agent, ChatModel, tool, tools};
//!
//! /// Deletes a file.
//! #[tool(needs_approval)]
//! fn delete(path: String) -> std::io::Result<()> {
//!     std::fs::remove_file(path)
//! }
//!
//! async fn run(model: impl ChatModel + 'static) -> Result<(), Box<dyn std::error::Error>> {
//!     let agent = Agent::builder(model).tools(tools![delete]).build()?;
//!     tool_cli::chat(agent).await?;
//!     Ok(())
//! }
//! ```
//!
//! Answers are streamed; a spinner shows that the model or a tool is working, with the [progress](tool_core::tool::Progress) that the
//! tool reports. Calls that need approval are decided by a key, and questions of tools are answered by a
//! number or a text; an answer that is an object is asked for member by member, and shown before it is sent. Ctrl-C stops the current
//! answer, and at the prompt ends the chat. [`watch`] decides about stored runs.
//!
//! What the program itself prints while an answer is awaited appears behind the spinner. So log in to MCP servers that ask for a login in
//! the terminal, such as with `Login::paste`, before the chat begins: connect, and pass the tools to the agent.
//!
//! | command | |
//! | --- | --- |
//! | `/tools` | lists the tools of the agent, and the providers that add further ones to each question |
//! | `/usage` | shows the tokens used, and what they cost if the agent has [prices](tool_core::agent::AgentBuilder::prices) |
//! | `/save FILE` | writes the conversation to a new file |
//! | `/help`, `/quit` | |
//!
//! An agent with a [memory](tool_core::agent::AgentBuilder::memory) continues the [conversation](Chat::conversation) of earlier chats;
//! without one, the conversation lasts as long as the chat. A chat goes on with the [stored runs](tool_core::agent::AgentBuilder::run_store) of
//! its conversation that wait for the user, and asks for the decisions, before it asks a question. Control characters in texts of models and tools are replaced, so they
//! cannot change what the terminal shows.

mod approval;
mod input;
mod screen;
mod session;
mod questions;
#[cfg(test)]
mod tests;
mod watch;

use std::io::{self, BufRead, Write};

use tokio::sync::mpsc;
use tool_core::Agent;
use tool_core::model::{ConversationId, RunUser};

use self::input::Input;
use self::screen::Screen;
use self::session::Session;

/// Chats with an agent in the terminal until the user quits. [`Chat`] has options.
///
/// # Errors
///
/// Fails if the terminal cannot be read or written. Errors of the agent are shown to the user, and the chat continues.
pub async fn chat(agent: Agent) -> io::Result<()> {
    Chat::new(agent).run().await
}

/// Lists the stored runs of an agent in the terminal, and decides about what they wait for, until the user quits. Decisions carry the
/// name.
///
/// ```no_run
/// # async fn watch(agent: tool_core::Agent) -> std::io::Result<()> {
/// tool_cli::watch(agent, "anna").await
/// # }
/// ```
///
/// # Errors
///
/// Fails if the terminal cannot be read or written. Errors of the agent are shown to the user.
pub async fn watch(agent: Agent, name: &str) -> io::Result<()> {
    let (_sender, interrupts) = mpsc::channel(1);
    let (input, output) = (Input::terminal(), Screen::new(io::stdout(), console::user_attended()));
    Session::new(agent, ConversationId::new("watch"), input, output, interrupts).watch(name).await
}

/// A chat with an agent.
#[derive(Debug)]
#[must_use = "a chat does nothing until it is run"]
pub struct Chat {
    agent: Agent,
    conversation: ConversationId,
    user: Option<RunUser>,
}

impl Chat {
    /// Creates a chat.
    pub fn new(agent: Agent) -> Self {
        Self { agent, conversation: ConversationId::new("chat"), user: None }
    }

    /// Sets the conversation in the agent's memory; `chat` by default.
    pub fn conversation(mut self, id: impl Into<ConversationId>) -> Self {
        self.conversation = id.into();
        self
    }

    /// Says [whose runs](tool_core::agent::Ask::user) these are.
    pub fn user(mut self, id: impl Into<RunUser>) -> Self {
        self.user = Some(id.into());
        self
    }

    /// Chats in the terminal. Requires a tokio runtime with time and I/O enabled. From then on, Ctrl-C no longer ends the process by
    /// itself.
    ///
    /// # Errors
    ///
    /// Fails if the terminal cannot be read or written.
    pub async fn run(self) -> io::Result<()> {
        let (sender, interrupts) = mpsc::channel(1);
        let listener = tokio::spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() && sender.send(()).await.is_ok() {}
        });
        let is_terminal = console::user_attended();
        let (input, output) = (Input::terminal(), Screen::new(io::stdout(), is_terminal));
        let result = self.session(input, output, interrupts).run().await;
        listener.abort();
        result
    }

    /// Chats over any input and output, such as a test's. A line is a question, a command, or where a key is asked for,
    /// the key.
    ///
    /// # Errors
    ///
    /// Fails if the input cannot be read or the output cannot be written.
    pub async fn run_with(self, input: impl BufRead + Send + 'static, output: impl Write) -> io::Result<()> {
        let (_sender, interrupts) = mpsc::channel(1);
        let (input, output) = (Input::lines(input), Screen::new(output, false));
        self.session(input, output, interrupts).run().await
    }

    fn session<W: Write>(
        self,
        input: Input,
        output: Screen<W>,
        interrupts: mpsc::Receiver<()>,
    ) -> Session<W> {
        let mut session = Session::new(self.agent, self.conversation, input, output, interrupts);
        session.user = self.user;
        session
    }
}
