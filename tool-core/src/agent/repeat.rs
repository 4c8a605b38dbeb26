//! Repeats a run from its first question, or takes what comes next of one that was stored.

use std::collections::{BTreeSet, HashMap};

use super::replay::{NO_SETUP, Record, RecordEnds, ReplayParts, StandIn, without_clock};
use crate::agent::answer_parser::answer_of_any_form;
use crate::agent::question::{AskedQuestion, Start};
use crate::agent::{Agent, AgentExt, Ask, RunDriver};
use crate::content::Content;
use crate::model::{FINAL_TOOL, Message};
use crate::run::{Decision, Run, RunError, RunErrorKind, Wait, WaitReason};

/// A run that was repeated.
#[derive(Debug)]
pub struct ReplayedRun {
    /// The run, as the present program has it.
    pub run: Run,
    /// What it waits for, before anything is decided that the record has not.
    pub waits: Vec<Wait>,
    /// Where it ended.
    pub end: ReplayEnd,
    /// The names of the layers of its agents.
    pub layers: BTreeSet<String>,
    /// The names of tools of which only the record is known, because providers gave them, which are not asked.
    pub assumed_tools: BTreeSet<String>,
}

/// Where a repeated run ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayEnd {
    /// Nothing is left to do.
    Done,
    /// It waits, and the record has no decision about that.
    Waits,
    /// It asks the model for something that the record does not have.
    RecordEnds,
    /// It could not go on.
    #[non_exhaustive]
    Failed {
        /// The kind of the error.
        kind: RunErrorKind,
        /// The text of the error.
        text: String,
    },
}

/// Repeats a run from its question by the present rules of this agent. The record of the run supplies the replies of the models, the outcomes of
/// calls, and what people decided and said; nothing is executed, asked or stored. Layers are asked, and what opens runs if `parts` have it.
///
/// Returns the repeated run, to be compared with the record. It ends where nothing is left to do, or where the record has no outcome.
pub async fn replay(agent: &Agent, record: &Run, parts: ReplayParts) -> ReplayedRun {
    let stand_in = StandIn::new(parts, record.clone(), &agent.tools_of_tree());
    let agent = agent.with_stand_in(&stand_in);
    let mut driver = question_of(&agent, record, &stand_in.parts).start();
    stand_in.set_record(driver.run().id(), record.clone());
    let mut decided = HashMap::new();
    let end = loop {
        match driver.advance().await {
            Ok(true) => {}
            Ok(false) if reject(&mut driver, record) => {}
            Ok(false) => break ReplayEnd::Done,
            // Persons have decided before others went on.
            Err(_) if decide(&mut driver, record, &mut decided) => continue,
            Err(error) if matches!(error.kind(), RunErrorKind::Waiting) => {
                if !(say(&mut driver, record, true) || cancel(&mut driver, record)) {
                    break ReplayEnd::Waits;
                }
                continue;
            }
            Err(error) => break ended_by(error),
        }
        // Decisions precede what was said while calls waited.
        if driver.run().waits().is_empty() {
            say(&mut driver, record, false);
        }
    };
    let end = if stand_in.lacks_setup() { cannot_open() } else { end };
    let waits = driver.run().waits();
    let (layers, assumed_tools) = (stand_in.layers(), stand_in.assumed());
    ReplayedRun { run: driver.into_run(), waits, end, layers, assumed_tools }
}

/// Drives a copy of a stored run by the present rules of this agent, until the copy would ask for something that has not happened yet. Calls that
/// await approval are treated as approved, to find out what they need. Like [`replay`], it executes, asks and stores nothing.
pub async fn rehearse(agent: &Agent, record: &Run, parts: ReplayParts) -> ReplayedRun {
    let stand_in = StandIn::new(parts, record.clone(), &agent.tools_of_tree());
    let agent = agent.with_stand_in(&stand_in);
    record_all(&stand_in, record);
    let mut asked = AskedQuestion::resume(agent, record.clone());
    asked.rules.returns_when_parked = true;
    let mut driver = Ask::from(asked).start();
    let end = advance(&mut driver).await;
    let waits = driver.run().waits();
    // What a call needs that was approved is known only then.
    let has_decided =
        waits.iter().map(|wait| suppose(&mut driver, wait)).fold(false, |one, other| one | other);
    let end = if has_decided { advance(&mut driver).await } else { end };
    let end = if stand_in.lacks_setup() { cannot_open() } else { end };
    let (layers, assumed_tools) = (stand_in.layers(), stand_in.assumed());
    ReplayedRun { run: driver.into_run(), waits, end, layers, assumed_tools }
}

async fn advance(driver: &mut RunDriver) -> ReplayEnd {
    loop {
        match driver.advance().await {
            Ok(true) => {}
            Ok(false) => return ReplayEnd::Done,
            Err(error) if matches!(error.kind(), RunErrorKind::Waiting) => return ReplayEnd::Waits,
            Err(error) => return ended_by(error),
        }
    }
}

/// Supposes a decision with which the call goes on. Returns `true` if there is one.
fn suppose(driver: &mut RunDriver, wait: &Wait) -> bool {
    let decision = match wait.reason {
        WaitReason::Approval(_) => Decision::approve(),
        WaitReason::Answer(_) => Decision::decline(),
        WaitReason::CallerResult(_) | WaitReason::Until(_) => return false,
    };
    driver.resolve(wait.id.clone(), decision).is_ok()
}

fn record_all(stand_in: &StandIn, run: &Run) {
    stand_in.set_record(run.id(), run.clone());
    run.inner_runs().for_each(|inner| record_all(stand_in, inner.run()));
}

/// Returns the end of a run of which an agent's run cannot be opened.
fn cannot_open() -> ReplayEnd {
    ReplayEnd::Failed { kind: RunErrorKind::RunSetup(NO_SETUP.into()), text: NO_SETUP.to_owned() }
}

fn ended_by(error: RunError) -> ReplayEnd {
    let text = error.to_string();
    match error.into_kind() {
        RunErrorKind::Model(error) if error.downcast_ref::<RecordEnds>().is_some() => ReplayEnd::RecordEnds,
        kind => ReplayEnd::Failed { kind, text },
    }
}

/// Returns the question with which the run began, to the present agent.
fn question_of(agent: &Agent, record: &Run, parts: &ReplayParts) -> Ask {
    let given = record.messages().len() - record.new_messages().len();
    let history = record.messages()[..given].iter().filter(|message| !matches!(message, Message::System(_)));
    let question = match record.new_messages().first() {
        Some(Message::User(question)) => question.clone(),
        _ => Content::from(""),
    };
    let settings = record.question_settings();
    let start = Start::Question {
        id: None,
        instructions: settings.instructions,
        question,
        history: history.cloned().collect(),
    };
    let mut asked = AskedQuestion::starting_from(agent.clone(), start);
    asked.options = settings.options;
    asked.tools.offered = Ok(parts.tools.clone());
    asked.tools.replaces = record.has_only_own_tools();
    let has_answer_tool = record.has_seen_tool(FINAL_TOOL);
    if has_answer_tool {
        asked.tools.answer_tool = answer_of_any_form();
    }
    asked.limits = record.has_own_limits().then(|| without_clock(record.limits().clone()));
    asked.response_format = record.response_format().cloned();
    let mut context = parts.context.clone();
    if let Some(user) = record.user() {
        context = context.with(user.clone());
    }
    if let Some(conversation) = record.conversation() {
        context = context.with(conversation.clone());
    }
    asked.tools.context = context;
    // Nothing is waited for.
    asked.rules.returns_when_parked = true;
    asked.rules.has_typed_answer = asked.response_format.is_some() || has_answer_tool;
    Ask::from(asked)
}

/// Adds what a user has said next in the record, in place of a decision if the run waits for one. Returns `true` if there is something.
fn say(driver: &mut RunDriver, record: &Run, denies: bool) -> bool {
    let mut has_said = false;
    loop {
        let run = driver.run();
        let position = run.new_messages().len() + run.open_turn() + run.message_volume().unread;
        let Some(message) = Record(record).said_at(position).filter(|_| position > 0) else {
            return has_said;
        };
        let said = if denies { driver.deny_and_say(message) } else { driver.change_run().say(message) };
        if said.is_err() {
            return has_said;
        }
        has_said = true;
    }
}

/// Rejects an answer that was rejected by a reader that the record does not have. Returns `true` if it was.
fn reject(driver: &mut RunDriver, record: &Run) -> bool {
    let why = Record(record).rejection_at(driver.run().new_messages().len());
    why.is_some_and(|why| driver.reject_answer(&why).is_ok())
}

/// Decides what was decided. Returns `true` if something was.
fn decide(driver: &mut RunDriver, record: &Run, decided: &mut HashMap<String, usize>) -> bool {
    let mut has_decided = false;
    for wait in driver.run().waits() {
        let number = decided.entry(wait.path.clone()).or_default();
        let Some(decision) = Record(record).decision(&wait, *number) else { continue };
        *number += 1;
        has_decided |= driver.resolve(wait.id, decision).is_ok();
    }
    has_decided
}

/// Cancels a run that was stopped while it waited. Returns `true` if it was.
fn cancel(driver: &mut RunDriver, record: &Run) -> bool {
    let waits = driver.run().waits();
    let is_open = waits.iter().all(|wait| !Record(record).has_executed(&wait.path));
    let is_stopped = is_open && Record(record).end().is_some() && driver.run().why_it_stops().is_none();
    if is_stopped {
        driver.cancel();
    }
    is_stopped
}
