//! The execution of a call that asks an agent.
//!
//! The first execution ends with the question, in every world. The run of the agent is driven to its end, and the call is executed again
//! with the answer, because what is around the agent's tool (layers of a set, wrappers) sees its outcome. What the layers have decided
//! is noted, so that they judge the call once.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::call_notes::{AgentNote, Passed};
use crate::model::ToolCall;
use crate::tool::{Outcome, ToolError};

/// Why a question is no longer answered.
const ENDED: &str = "the call had ended";

/// What a call asks an agent, and the answer.
pub(crate) struct AskingAgent(Mutex<State>);

struct State {
    note: AgentNote,
    asked: Asked,
    /// Wakes the tasks that wait for the answer.
    askers: Vec<Waker>,
    /// Wakes the executor when another task of the call asks.
    waker: Option<Waker>,
}

enum Asked {
    Nothing,
    Question(String),
    Answer(Outcome),
    /// The question was taken, or the answer: a call asks its agent once.
    Taken,
    /// The execution has ended.
    Ended,
}

/// Ends the questions of an execution when it is dropped, because other tasks of the call can still wait for answers.
struct EndOnDrop<'a>(&'a AskingAgent);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        let askers = {
            let mut state = self.0.lock();
            state.asked = Asked::Ended;
            std::mem::take(&mut state.askers)
        };
        askers.into_iter().for_each(Waker::wake);
    }
}

impl AskingAgent {
    /// Creates the first execution of a call, which begins with its note.
    pub(crate) fn first(note: AgentNote) -> Self {
        Self::new(note, Asked::Nothing)
    }

    /// Creates the execution of a call whose agent has answered.
    pub(crate) fn answered(note: AgentNote, answer: Outcome) -> Self {
        Self::new(note, Asked::Answer(answer))
    }

    fn new(note: AgentNote, asked: Asked) -> Self {
        Self(Mutex::new(State { note, asked, askers: Vec::new(), waker: None }))
    }

    /// Executes a call until it has an outcome, or has asked. Returns the question and the note with which the call is executed again.
    pub(crate) async fn execute<T>(
        &self,
        execution: impl Future<Output = T>,
    ) -> Result<T, (String, AgentNote)> {
        let _ended = EndOnDrop(self);
        let mut execution = pin!(execution);
        poll_fn(|context| match execution.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Ok(outcome)),
            Poll::Pending => match self.take_question(context.waker()) {
                Some(asked) => Poll::Ready(Err(asked)),
                None => Poll::Pending,
            },
        })
        .await
    }

    fn take_question(&self, waker: &Waker) -> Option<(String, AgentNote)> {
        let mut state = self.lock();
        if !matches!(state.asked, Asked::Question(_)) {
            state.waker = Some(waker.clone());
            return None;
        }
        let Asked::Question(question) = std::mem::replace(&mut state.asked, Asked::Taken) else {
            return None;
        };
        Some((question, std::mem::take(&mut state.note)))
    }

    /// Asks the agent. Returns the answer in the execution that has it; the question of the first one fails once that execution has ended.
    pub(crate) async fn ask(&self, question: String) -> Outcome {
        let known = {
            let mut state = self.lock();
            match std::mem::replace(&mut state.asked, Asked::Taken) {
                Asked::Answer(answer) => Some(answer),
                Asked::Nothing => {
                    state.asked = Asked::Question(question);
                    state.waker.take().into_iter().for_each(Waker::wake);
                    None
                }
                earlier => {
                    let why = match earlier {
                        Asked::Ended => ENDED,
                        _ => "a call asks its agent once",
                    };
                    state.asked = earlier;
                    Some(Err(ToolError::not_executed(why)))
                }
            }
        };
        if let Some(answer) = known {
            return answer;
        }
        poll_fn(|context| {
            let mut state = self.lock();
            match state.asked {
                Asked::Ended => Poll::Ready(Err(ToolError::not_executed(ENDED))),
                _ => {
                    if !state.askers.iter().any(|waker| waker.will_wake(context.waker())) {
                        state.askers.push(context.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Returns what the layers of a set have decided about this call in an execution before.
    pub(crate) fn passed(&self, call: &ToolCall) -> Option<Passed> {
        let state = self.lock();
        let is_it = |passed: &&Passed| passed.tool == call.name && passed.given == call.arguments;
        state.note.passed.iter().find(is_it).cloned()
    }

    /// Notes that the layers of a set let a call pass.
    pub(crate) fn pass(&self, passed: Passed) {
        let mut state = self.lock();
        if !state.note.passed.contains(&passed) {
            state.note.passed.push(passed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
