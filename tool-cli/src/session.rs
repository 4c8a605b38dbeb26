//! The course of a chat: questions, commands, answers, approvals.

use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tool_core::model::{ConversationId, RunUser, Usage};
use tool_core::run::{Decision, WaitReason};
use tool_core::tool::{Question, ToolExecution, ToolProgress};
use tool_core::transcript::Transcript;
use tool_core::{Agent, Answer, CancellationToken, Event, Message, RunError, ToolCall};

use crate::approval::AskUser;
use crate::input::Input;
use crate::screen::Screen;

/// The time between two frames of the spinner.
const FRAME_TIME: Duration = Duration::from_millis(100);

const HELP: &str = "/tools lists the tools, /usage shows the tokens used and their cost, /save FILE writes the conversation to a new file, /quit ends the chat";

pub(crate) struct Session<W> {
    pub(crate) agent: Agent,
    conversation: ConversationId,
    pub(crate) user: Option<RunUser>,
    input: Input,
    pub(crate) screen: Screen<W>,
    interrupts: mpsc::Receiver<()>,
    /// The conversation, if the agent has no memory.
    history: Vec<Message>,
    executions: Vec<ToolExecution>,
    usage: Usage,
    questions: u32,
}

impl<W: Write> Session<W> {
    pub(crate) fn new(
        agent: Agent,
        conversation: ConversationId,
        input: Input,
        screen: Screen<W>,
        interrupts: mpsc::Receiver<()>,
    ) -> Self {
        let (history, executions, usage) = (Vec::new(), Vec::new(), Usage::default());
        Self {
            agent,
            conversation,
            user: None,
            input,
            screen,
            interrupts,
            history,
            executions,
            usage,
            questions: 0,
        }
    }

    pub(crate) async fn run(mut self) -> io::Result<()> {
        loop {
            self.screen.end_line()?;
            self.screen.write("\n> ")?;
            let line = tokio::select! {
                line = self.input.line() => line?,
                Some(()) = self.interrupts.recv() => None,
            };
            let Some(line) = line else { break };
            self.entered(&line)?;
            let line = line.trim();
            let (command, argument) = line.split_once(' ').unwrap_or((line, ""));
            match command {
                "" => {}
                "/quit" => return Ok(()),
                "/help" => self.screen.line(HELP)?,
                "/tools" => self.list_tools()?,
                "/usage" => self.show_usage()?,
                "/save" => self.save(argument.trim()).await?,
                _ if command.starts_with('/') => {
                    self.screen.line(&format!("unknown command `{command}`; {HELP}"))?;
                }
                _ => self.answer(line).await?,
            }
        }
        self.screen.end_line()
    }

    /// Shows what was entered where a terminal has not done so.
    fn entered(&mut self, text: &str) -> io::Result<()> {
        if self.input.is_echoed {
            self.screen.line_was_entered();
            return Ok(());
        }
        self.screen.write(&format!("{text}\n"))
    }

    /// Asks a question and shows the answer as it arrives.
    async fn answer(&mut self, question: &str) -> io::Result<()> {
        let (sender, mut pending) = mpsc::channel(1);
        let cancellation = CancellationToken::new();
        let mut ask = self.agent.ask(question).cancellation_token(cancellation.clone());
        ask = ask.conversation(self.conversation.clone());
        if self.agent.memory().is_none() {
            ask = ask.history(self.history.clone());
        }
        if let Some(user) = self.user.clone() {
            ask = ask.user(user);
        }
        ask = ask.last_decider(AskUser(sender));
        self.questions += 1;
        let mut events = ask.stream();
        let mut frames = interval(FRAME_TIME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut activity = Activity::default();
        loop {
            let event = tokio::select! {
                biased;
                Some(()) = self.interrupts.recv(), if !cancellation.is_cancelled() => {
                    cancellation.cancel(); // the stream reports the outcome
                    continue;
                }
                Some((wait, reply)) = pending.recv() => {
                    // Without a decision, the run ends. If it has ended already, its error follows.
                    let decision = match &wait.reason {
                        WaitReason::Approval(call) => self.decide(call).await?,
                        WaitReason::Answer(question) => self.reply(question).await?,
                        _ => None,
                    };
                    if let Some(decision) = decision {
                        let _ = reply.send(decision);
                    }
                    continue;
                }
                event = events.next() => event,
                _ = frames.tick() => {
                    self.screen.spin(&activity.to_string())?;
                    continue;
                }
            };
            match event {
                Some(Ok(Event::Done(answer))) => self.record_answer(&answer),
                Some(Ok(event)) => self.show(event, &mut activity)?,
                Some(Err(error)) => {
                    self.screen.line(&format!("[{error}]"))?;
                    self.record_failure(&error);
                }
                None => return Ok(()),
            }
        }
    }

    fn show(&mut self, event: Event, activity: &mut Activity) -> io::Result<()> {
        match event {
            Event::Text(text) | Event::Refusal(text) => self.screen.write(&text)?,
            Event::TurnFinished { .. } => self.screen.end_line()?,
            Event::CallStarted(call) => activity.start(call),
            Event::CallProgress { id, progress, .. } => activity.progress(&id, progress),
            Event::CallFinished(execution) => {
                let call = execution.call();
                activity.finish(&call.id);
                let outcome = execution.outcome().map_or_else(ToString::to_string, ToString::to_string);
                // A call that was denied took no time.
                let took = Some(execution.duration()).filter(|duration| !duration.is_zero());
                let took = took.map(|duration| format!(", {duration:.1?}")).unwrap_or_default();
                self.screen.line(&format!("[{call} -> {outcome}{took}]"))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn record_answer(&mut self, answer: &Answer) {
        self.usage += answer.usage();
        self.executions.extend_from_slice(answer.tool_executions());
        if self.agent.memory().is_none() {
            self.history.extend_from_slice(answer.messages());
        }
    }

    /// A run that ended for good remains in the conversation, except for one with a memory, which stores only answers.
    fn record_failure(&mut self, error: &RunError) {
        self.usage += error.run().usage();
        if self.agent.memory().is_none() && !error.is_resumable() {
            self.executions.extend_from_slice(error.tool_executions());
            self.history.extend_from_slice(error.messages());
        }
    }

    /// Asks the user for a decision about a call. Returns `None` at the end of the input and for Ctrl-C.
    pub(crate) async fn decide(&mut self, call: &ToolCall) -> io::Result<Option<Decision>> {
        // Whole, because nothing may be approved that is not shown.
        self.screen.line(&format!("Execute {call:#}?"))?;
        loop {
            self.screen.write("[y]es, [n]o, [e]dit the arguments: ")?;
            let Some(key) = self.input.key().await? else {
                self.screen.end_line()?;
                return Ok(None);
            };
            self.screen.write(&format!("{key}\n"))?;
            match &*key.trim().to_lowercase() {
                "y" | "yes" => return Ok(Some(Decision::approve())),
                "n" | "no" => {
                    let reason =
                        self.ask("reason, or nothing: ").await?.filter(|text| !text.trim().is_empty());
                    return Ok(Some(reason.map_or_else(Decision::decline, Decision::deny)));
                }
                "e" | "edit" => {
                    return Ok(self.ask("arguments as JSON: ").await?.map(Decision::approve_with));
                }
                _ => {}
            }
        }
    }

    /// Asks the user a question of a tool. Choices are numbered, and an empty line declines unless there is a default. Returns `None` at the
    /// end of the input and for Ctrl-C.
    pub(crate) async fn reply(&mut self, question: &Question) -> io::Result<Option<Decision>> {
        self.screen.line(question.text())?;
        for (position, (label, _)) in question.labeled_choices().enumerate() {
            self.screen.line(&format!("  {}: {label}", position + 1))?;
        }
        if let Some(problem) = question.problem() {
            self.screen.line(&format!("the last answer was refused: {problem}"))?;
        }
        let default = question.default().map(|default| format!(" [{}]", show_value(default)));
        let prompt = format!("answer, or nothing to decline{}: ", default.unwrap_or_default());
        loop {
            let line = match question.is_secret() {
                true => self.ask_secretly(&prompt).await?,
                false => self.ask(&prompt).await?,
            };
            let Some(line) = line else { return Ok(None) };
            let line = line.trim();
            let chosen =
                line.parse::<usize>().ok().and_then(|number| question.choices().get(number.checked_sub(1)?));
            match (line, chosen, question.choices().is_empty()) {
                ("", ..) => match question.default() {
                    Some(default) => return Ok(Some(Decision::answer(default.clone()))),
                    None => return Ok(Some(Decision::decline())),
                },
                (_, Some(choice), _) => return Ok(Some(Decision::answer(choice.clone()))),
                (_, None, false) => self.screen.line("choose by number")?,
                (text, None, true) => return Ok(Some(Decision::answer_text(question, text))),
            }
        }
    }

    pub(crate) async fn ask(&mut self, prompt: &str) -> io::Result<Option<String>> {
        self.screen.write(prompt)?;
        let line = self.input.line().await?;
        match &line {
            Some(line) => self.entered(line)?,
            None => self.screen.end_line()?,
        }
        Ok(line)
    }

    /// Asks for a line that is not shown.
    async fn ask_secretly(&mut self, prompt: &str) -> io::Result<Option<String>> {
        self.screen.write(prompt)?;
        let line = self.input.secret().await?;
        self.screen.end_line()?;
        Ok(line)
    }

    fn list_tools(&mut self) -> io::Result<()> {
        let definitions = self.agent.tools().definitions().clone();
        if definitions.is_empty() {
            return self.screen.line("no tools, except for those that providers add to a question");
        }
        for tool in definitions.iter() {
            let description =
                tool.description().and_then(|text| text.lines().next()).unwrap_or("no description");
            let approval = if tool.policy().needs_approval { " (needs approval)" } else { "" };
            self.screen.line(&format!("{}: {description}{approval}", tool.name()))?;
        }
        Ok(())
    }

    fn show_usage(&mut self) -> io::Result<()> {
        let Usage { input_tokens, output_tokens, cost, .. } = self.usage;
        let (questions, cost) = (self.questions, cost.map_or(String::new(), |cost| format!(", {cost}")));
        self.screen.line(&format!(
            "{questions} questions, {input_tokens} input tokens, {output_tokens} output tokens{cost}"
        ))
    }

    /// Writes the conversation to a new file.
    async fn save(&mut self, file: &str) -> io::Result<()> {
        if file.is_empty() {
            return self.screen.line("write the name of a new file: `/save chat.txt`");
        }
        let stored = match self.agent.memory() {
            Some(memory) => memory.messages(&self.conversation).await,
            None => Ok(self.history.clone()),
        };
        let messages = match stored {
            Ok(messages) => messages,
            Err(error) => return self.screen.line(&format!("not saved: {error}")),
        };
        let text = Transcript::new(&messages, &self.executions).with_max_text_chars(usize::MAX).to_string();
        match File::create_new(file).and_then(|mut file| file.write_all(text.as_bytes())) {
            Ok(()) => self.screen.line(&format!("{} messages saved in {file}", messages.len())),
            Err(error) => self.screen.line(&format!("not saved in {file}: {error}")),
        }
    }
}

/// Shows a value on one line: a string without quotes, anything else as JSON.
fn show_value(value: &Value) -> String {
    let text = value.as_str().filter(|text| !text.contains('\n'));
    text.map_or_else(|| value.to_string(), str::to_owned)
}

/// The calls that are running, for the spinner.
#[derive(Default)]
struct Activity(Vec<(ToolCall, ToolProgress)>);

impl Activity {
    fn start(&mut self, call: ToolCall) {
        self.0.push((call, ToolProgress::default()));
    }

    fn progress(&mut self, id: &str, progress: ToolProgress) {
        if let Some((_, current)) = self.0.iter_mut().find(|(call, _)| call.id == id) {
            *current = progress;
        }
    }

    fn finish(&mut self, id: &str) {
        self.0.retain(|(call, _)| call.id != id);
    }
}

impl std::fmt::Display for Activity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("thinking");
        }
        for (position, (call, progress)) in self.0.iter().enumerate() {
            write!(f, "{}{}", if position == 0 { "" } else { ", " }, call.name)?;
            if !progress.text.is_empty() {
                write!(f, ": {}", progress.text)?;
            }
            match (progress.done, progress.total) {
                (Some(done), Some(total)) => write!(f, " {done} of {total}")?,
                (Some(done), None) => write!(f, " {done}")?,
                _ => {}
            }
        }
        Ok(())
    }
}
