//! The execution of a call that asks an agent.
//!
//! The first execution ends with the question, in every world. The run of the agent is driven to its end, and the call is executed again
//! with the answer, because what is around the agent's tool (layers of a set, wrappers) sees its outcome. What the layers have decided is noted,
//! so that they judge the call once.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::call_notes::{AgentNote, Passed};
use crate::model::ToolCall;
use crate::tool::{Outcome, ToolError, VerdictRecord};

/// What a call asks an agent, and the answer.
pub(crate) struct AskingAgent(Mutex<State>);

struct State {
    note: AgentNote,
    /// The number of sets whose layers have let the call pass in this execution.
    passed: usize,
    asked: Asked,
    /// Wakes the executor, because a task of its own can ask as well.
    waker: Option<Waker>,
}

enum Asked {
    Nothing,
    Question(String),
    Answer(Outcome),
    /// The question was taken, or the answer: a call asks its agent once.
    Taken,
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
        Self(Mutex::new(State { note, passed: 0, asked, waker: None }))
    }

    /// Executes a call until it has an outcome, or has asked. Returns the question and the note with which the call is executed again.
    pub(crate) async fn execute<T>(
        &self,
        execution: impl Future<Output = T>,
    ) -> Result<T, (String, AgentNote)> {
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

    /// Asks the agent. Only an execution with the answer returns.
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
                    state.asked = earlier;
                    Some(Err(ToolError::not_executed("a call asks its agent once")))
                }
            }
        };
        match known {
            Some(answer) => answer,
            None => pending().await,
        }
    }

    /// Returns what the layers of the next set have decided in the first execution.
    pub(crate) fn passed(&self) -> Option<Passed> {
        let state = self.lock();
        state.note.passed.get(state.passed).cloned()
    }

    /// Notes that the layers of the next set let the call pass, with these arguments and by these decisions.
    pub(crate) fn pass(&self, call: &ToolCall, verdicts: &[VerdictRecord]) {
        let mut state = self.lock();
        if state.note.passed.len() == state.passed {
            let arguments = (!verdicts.is_empty()).then(|| call.arguments.clone());
            state.note.passed.push(Passed { arguments, verdicts: verdicts.to_vec() });
        }
        state.passed += 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
