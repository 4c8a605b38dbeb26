//! The stored runs in the terminal: a list, and decisions about what waits.

use std::io::{self, Write};

use tool_core::agent::Outcome;
use tool_core::memory::{RunFilter, RunStatus};
use tool_core::run::{Decision, UserMessage, Wait, WaitReason};
use tool_core::signatures::{StoredRun, Transcript};

use crate::session::Session;

/// The longest question in the list, in characters.
const MAX_QUESTION_CHARS: usize = 60;

impl<W: Write> Session<W> {
    /// Shows the runs, and decides about those that the user chooses, until the user quits. Decisions carry this name.
    pub(crate) async fn watch(mut self, name: &str) -> io::Result<()> {
        loop {
            let runs = self.list_runs().await?;
            let Some(line) = self.ask("a number, Enter to read again, or q: ").await? else { return Ok(()) };
            match line.trim() {
                "" => {}
                "q" => return Ok(()),
                number => {
                    let chosen = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                    match chosen.and_then(|at| runs.into_iter().nth(at)) {
                        Some(stored) => self.open(stored, name).await?,
                        None => self.screen.line("there is no such run")?,
                    }
                }
            }
        }
    }

    /// Lists the runs, those that wait first.
    async fn list_runs(&mut self) -> io::Result<Vec<StoredRun>> {
        let listed = match self.agent.list_runs(&RunFilter::new()).await {
            Ok(listed) => listed,
            Err(error) => {
                self.screen.line(&format!("[{error}]"))?;
                return Ok(Vec::new());
            }
        };
        match self.agent.unreadable_runs().await {
            Ok(unreadable) => {
                for run in unreadable {
                    self.screen.line(&format!("[the run {}: {run}]", run.id))?;
                }
            }
            Err(error) => self.screen.line(&format!("[{error}]"))?,
        }
        let mut runs = Vec::new();
        for run in listed.into_iter().filter(|run| run.status != RunStatus::Finished) {
            match self.agent.stored_run(run.id).await {
                Ok(stored) => runs.extend(stored),
                Err(error) => self.screen.line(&format!("[{error}]"))?,
            }
        }
        runs.sort_by_key(|stored| stored.status != RunStatus::Waiting);
        if runs.is_empty() {
            self.screen.line("no stored runs")?;
        }
        for (position, StoredRun { run, status, .. }) in runs.iter().enumerate() {
            let question = run.new_messages().first().map(|message| message.text().into_owned());
            let question: String = question.unwrap_or_default().chars().take(MAX_QUESTION_CHARS).collect();
            let (turn, tokens) = (run.turns(), run.usage().total_tokens);
            let cost = run.usage().cost.map(|cost| format!(", {cost}")).unwrap_or_default();
            let facts = format!("{status:?}, turn {turn}, {tokens} tokens{cost}");
            self.screen.line(&format!("{}: {facts}: {question}", position + 1))?;
            for wait in run.waits() {
                self.screen.line(&format!("   waits: {}", format!("{} {}", wait.path, wait.tool).trim()))?;
            }
        }
        Ok(runs)
    }

    /// Shows a run, asks for the decisions, and continues the run unless another process drives it.
    async fn open(&mut self, StoredRun { run, status, .. }: StoredRun, name: &str) -> io::Result<()> {
        let transcript = Transcript::new(run.new_messages(), run.tool_executions()).to_string();
        self.screen.line(&transcript)?;
        let mut decisions = Vec::new();
        for wait in run.waits() {
            self.screen.line(&format!("{} waits:", format!("{} {}", wait.path, wait.tool).trim()))?;
            let decision = self.ask_about(&wait).await?;
            decisions.extend(decision.map(|decision| (wait.id, decision.by(name))));
        }
        let agent = self.agent.clone();
        let resumed = match (decisions.is_empty(), status) {
            (true, RunStatus::RunningElsewhere) => return self.say_to(run.id().as_str(), name).await,
            (true, _) => Some(agent.resume(run)),
            (false, _) => match agent.decide_all(run.id().as_str(), decisions).await {
                Ok(decided) => decided.resume(),
                Err(error) => return self.screen.line(&format!("[{error}]")),
            },
        };
        let Some(resumed) = resumed else { return Ok(()) };
        match resumed.outcome().await {
            Outcome::Answer(answer) => self.screen.line(&answer.to_string()),
            Outcome::Waiting(_) => self.screen.line("the run waits"),
            Outcome::Failed(error) => self.screen.line(&format!("[{error}]")),
        }
    }

    /// Asks for a message to a run that works elsewhere.
    async fn say_to(&mut self, run: &str, name: &str) -> io::Result<()> {
        let message = self.ask("a message to the run, or nothing: ").await?.unwrap_or_default();
        if message.trim().is_empty() {
            return Ok(());
        }
        match self.agent.say(run, UserMessage::new(message.trim()).by(name)).await {
            Ok(()) => Ok(()),
            Err(error) => self.screen.line(&format!("[{error}]")),
        }
    }

    /// Asks for a decision. Returns `None` for what is not decided here, and at the end of the input.
    async fn ask_about(&mut self, wait: &Wait) -> io::Result<Option<Decision>> {
        match &wait.reason {
            WaitReason::Approval(call) => self.decide(call).await,
            WaitReason::Answer(question) => self.reply(question).await,
            _ => Ok(None),
        }
    }
}
