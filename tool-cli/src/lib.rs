//! A terminal chat with an [`Agent`] in one call.
//!
#![cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#![doc = include_str!("../docs/terminal.md")]

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
/// # async fn manage_runs(agent: tool_core::Agent) -> std::io::Result<()> {
/// tool_cli::manage_runs(agent, "anna").await
/// # }
/// ```
///
/// # Errors
///
/// Fails if the terminal cannot be read or written. Errors of the agent are shown to the user.
pub async fn manage_runs(agent: Agent, name: &str) -> io::Result<()> {
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
