//! The course of a chat: questions, commands, answers, approvals.

use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tool_core::agent::Ask;
use tool_core::engine::AskExt;
use tool_core::memory::{RunFilter, RunStatus, RunSummary};
use tool_core::model::{ConversationId, RunUser, Usage};
use tool_core::run::{Decision, Run, WaitReason};
use tool_core::signatures::{StoredRun, ToolProgress, Transcript};
use tool_core::store::{DriverId, LeaseRequest, LeaseState};
use tool_core::tool::ToolExecution;
use tool_core::{Agent, Answer, CancellationToken, Event, Message, RunError, ToolCall};

use crate::approval::AskUser;
use crate::input::Input;
use crate::screen::Screen;

/// The time between two frames of the spinner.
const FRAME_TIME: Duration = Duration::from_millis(100);

/// The time between two looks at a run that another driver works on.
const LOOK_TIME: Duration = Duration::from_millis(250);

/// How long a chat waits for another driver at most: twice the usual lease.
const PATIENCE: Duration = Duration::from_secs(60);

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
        self.go_on().await?;
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

    /// Goes on with the runs of this conversation that wait for the user, or whose process has died, because questions beside them are refused.
    async fn go_on(&mut self) -> io::Result<()> {
        for listed in self.runs_of_conversation().await? {
            match self.agent.stored_run(&listed.id).await {
                Ok(Some(stored)) if self.needs_driver(&stored).await => {
                    if stored.status == RunStatus::Interrupted {
                        self.screen.line("[going on with what was interrupted]")?;
                    }
                    self.follow(self.agent.resume(stored.run)).await?;
                }
                Ok(_) => {}
                Err(error) => self.screen.line(&format!("[{error}]"))?,
            }
        }
        Ok(())
    }

    /// Returns the stored runs of this conversation that wait or were interrupted. While another driver works on a run, questions are refused, so
    /// this waits for that driver: the lease of a killed process expires. Ctrl-C ends the waiting.
    async fn runs_of_conversation(&mut self) -> io::Result<Vec<RunSummary>> {
        let filter = RunFilter::new().conversation(self.conversation.clone());
        let begun = Instant::now();
        let mut is_announced = false;
        loop {
            let mut listed = match self.agent.list_runs(&filter).await {
                Ok(listed) => listed,
                Err(error) => {
                    self.screen.line(&format!("[{error}]"))?;
                    return Ok(Vec::new());
                }
            };
            listed.retain(|run| run.user == self.user);
            // Without a memory, other chats can have the same conversation.
            let is_refused = self.agent.memory().is_some()
                && listed.iter().any(|run| run.status == RunStatus::RunningElsewhere);
            if !is_refused || begun.elapsed() > PATIENCE {
                listed.retain(|run| matches!(run.status, RunStatus::Waiting | RunStatus::Interrupted));
                return Ok(listed);
            }
            if !std::mem::replace(&mut is_announced, true) {
                self.screen.line(
                    "[another process works on this conversation; waiting for it, Ctrl-C to ask now]",
                )?;
            }
            tokio::select! {
                Some(()) = self.interrupts.recv() => return Ok(Vec::new()),
                () = sleep(LOOK_TIME) => {}
            }
        }
    }

    /// Returns `true` if the user has to decide before the run goes on, or if its process has died. Without leases, a run that is being driven
    /// looks like the latter. What a run with a budget of its own is charged to is known to its program alone.
    async fn needs_driver(&self, StoredRun { run, status, .. }: &StoredRun) -> bool {
        match (status, self.agent.run_store()) {
            (RunStatus::Waiting, _) => waits_for_user(run),
            (RunStatus::Interrupted, Some(store)) if !run.engine_view().has_own_budget() => {
                let state = store.lease(run.id().as_str(), &DriverId::unique(), LeaseRequest::Check).await;
                state.is_ok_and(|state| state == LeaseState::Free)
            }
            _ => false,
        }
    }

    /// Asks a question and shows the answer as it arrives.
    async fn answer(&mut self, question: &str) -> io::Result<()> {
        self.go_on().await?;
        let mut ask = self.agent.ask(question).conversation(self.conversation.clone());
        if self.agent.memory().is_none() {
            ask = ask.history(self.history.clone());
        }
        if let Some(user) = self.user.clone() {
            ask = ask.user(user);
        }
        self.questions += 1;
        self.follow(ask).await
    }

    /// Drives a run, shows what happens in it, and asks the user for decisions.
    async fn follow(&mut self, ask: Ask) -> io::Result<()> {
        let (sender, mut pending) = mpsc::channel(1);
        let cancellation = CancellationToken::new();
        let ask = ask.cancellation_token(cancellation.clone());
        let mut events = ask.last_decider(AskUser(sender)).stream();
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
            self.history.extend_from_slice(answer.new_messages());
        }
    }

    /// A run that ended for good remains in the conversation, except for one with a memory, which stores only answers.
    fn record_failure(&mut self, error: &RunError) {
        self.usage += error.run().usage();
        if self.agent.memory().is_none() && !error.is_resumable() {
            self.executions.extend_from_slice(error.tool_executions());
            self.history.extend_from_slice(error.new_messages());
        }
    }

    /// Asks the user for a decision about a call. Returns `None` at the end of the input and for Ctrl-C.
    pub(crate) async fn decide(&mut self, call: &ToolCall) -> io::Result<Option<Decision>> {
        // Whole, because nothing may be approved that is not shown.
        self.screen.line(&format!("Execute {call:#}?"))?;
        loop {
            let key = self.ask_key("[y]es, [n]o, [e]dit the arguments: ").await?;
            let Some(key) = key else { return Ok(None) };
            match &*key {
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

    pub(crate) async fn ask(&mut self, prompt: &str) -> io::Result<Option<String>> {
        self.screen.write(prompt)?;
        let line = self.input.line().await?;
        match &line {
            Some(line) => self.entered(line)?,
            None => self.screen.end_line()?,
        }
        Ok(line)
    }

    /// Asks for a key.
    pub(crate) async fn ask_key(&mut self, prompt: &str) -> io::Result<Option<String>> {
        self.screen.write(prompt)?;
        let Some(key) = self.input.key().await? else {
            self.screen.end_line()?;
            return Ok(None);
        };
        self.screen.write(&format!("{key}\n"))?;
        Ok(Some(key.trim().to_lowercase()))
    }

    /// Asks for a line that is not shown.
    pub(crate) async fn ask_secretly(&mut self, prompt: &str) -> io::Result<Option<String>> {
        self.screen.write(prompt)?;
        let line = self.input.secret().await?;
        self.screen.end_line()?;
        Ok(line)
    }

    fn list_tools(&mut self) -> io::Result<()> {
        let definitions = self.agent.tools().definitions().clone();
        let providers: Vec<_> = self.agent.tool_providers().map(|one| format!("`{}`", one.name())).collect();
        if definitions.is_empty() && providers.is_empty() {
            return self.screen.line("no tools");
        }
        for tool in definitions.iter() {
            let description =
                tool.description().and_then(|text| text.lines().next()).unwrap_or("no description");
            let approval = if tool.policy().needs_approval { " (needs approval)" } else { "" };
            self.screen.line(&format!("{}: {description}{approval}", tool.name()))?;
        }
        if !providers.is_empty() {
            self.screen.line(&format!("each question adds tools of {}", providers.join(", ")))?;
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

/// Returns `true` if somebody has to decide before the run goes on.
fn waits_for_user(run: &Run) -> bool {
    run.waits().iter().any(|wait| matches!(wait.reason, WaitReason::Approval(_) | WaitReason::Answer(_)))
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
