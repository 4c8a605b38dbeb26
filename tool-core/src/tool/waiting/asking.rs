//! The execution of a call that can ask.
//!
//! A call that has to wait ends: the executor drops its future, and the run stores the call with its notes. Once all questions have a
//! reply, the call is executed again from its start, and finds the replies in its notes.
//!
//! The future of a question registers it and stays pending. The executor then drops the future of the call and returns its notes: open
//! questions, answers, and recorded values. The run puts them into the call's record, and the call is `Waiting`, under the same attempt.

use std::collections::{BTreeSet, HashMap};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use futures_util::future::BoxFuture;

use super::ask_error::{AskError, AskErrorKind};
use super::call_notes::{CallNotes, Parked};
use crate::tool::Question;

/// The questions and values of one execution of a call.
pub(crate) struct Asking {
    state: Mutex<State>,
    pub(super) store: Option<StoreNotes>,
    /// It is a provider of tools that asks. It has no call to park, and none to record values for.
    pub(super) is_of_provider: bool,
    /// Questions without a reply are not asked.
    is_closed: bool,
}

/// Stores the notes of a call in flight. Returns `false` if that is not possible.
pub(crate) type StoreNotes = Arc<dyn Fn(CallNotes) -> BoxFuture<'static, bool> + Send + Sync>;

#[derive(Default)]
pub(super) struct State {
    pub(super) notes: CallNotes,
    pub(super) occurrences: HashMap<String, u32>,
    /// The uses that have failed and recorded nothing.
    pub(super) failed: HashMap<String, BTreeSet<u32>>,
    /// The questions that are awaited, each with a number of its own.
    open: Vec<(usize, Question)>,
    next: usize,
    pub(super) parked: Option<Parked>,
    /// A question was refused, because only earlier ones have replies.
    was_refused: bool,
    /// The number of values that are being computed. The call does not end before they are recorded.
    computing: usize,
    /// Wakes the executor, because a task of its own can ask as well.
    pub(super) waker: Option<Waker>,
}

impl Asking {
    pub(crate) fn new(notes: CallNotes) -> Self {
        Self {
            state: Mutex::new(State { notes, ..State::default() }),
            store: None,
            is_of_provider: false,
            is_closed: false,
        }
    }

    /// Asks for a provider of tools. A closed one only gives the replies to earlier questions.
    pub(crate) fn for_provider(notes: CallNotes, is_closed: bool) -> Self {
        Self { is_of_provider: true, is_closed, ..Self::new(notes) }
    }

    pub(crate) fn store(self, store: StoreNotes) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Executes a call until it has an outcome, or has nothing to do but to wait for what is in the notes.
    ///
    /// A call that waits is dropped: its future is only a cache of what the notes contain.
    pub(crate) async fn execute<T>(&self, execution: impl Future<Output = T>) -> Result<T, CallNotes> {
        let mut execution = pin!(execution);
        poll_fn(|context| match execution.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Ok(outcome)),
            Poll::Pending => match self.poll_waiting(context.waker()) {
                Some(notes) => Poll::Ready(Err(notes)),
                None => Poll::Pending,
            },
        })
        .await
    }

    fn poll_waiting(&self, waker: &Waker) -> Option<CallNotes> {
        let mut state = self.lock();
        if state.open.is_empty() && state.parked.is_none() || state.computing > 0 {
            state.waker = Some(waker.clone());
            return None;
        }
        if let Some(parked) = state.parked.take() {
            state.notes.park(parked);
        }
        let open = std::mem::take(&mut state.open).into_iter().map(|(_, question)| question).collect();
        state.notes.ask(open);
        Some(state.notes.clone())
    }

    /// Returns the notes of a call that has ended.
    pub(crate) fn notes(&self) -> Option<CallNotes> {
        Some(self.lock().notes.clone()).filter(|notes| !notes.is_empty())
    }

    /// Returns `true` if a question is refused now, because only earlier ones have replies.
    pub(super) fn refuses(&self) -> bool {
        self.lock().was_refused |= self.is_closed;
        self.is_closed
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.lock().was_refused
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that is awaited.
pub(super) struct Open<'a>(&'a Asking, usize);

impl<'a> Open<'a> {
    pub(super) fn new(asking: &'a Asking, question: Question) -> Result<Self, AskError> {
        let mut state = asking.lock();
        if !state.notes.may_ask(state.open.len() + 1) {
            return Err(AskErrorKind::TooMany.into());
        }
        let number = state.next;
        state.next += 1;
        state.open.push((number, question));
        state.waker.take().into_iter().for_each(Waker::wake);
        Ok(Self(asking, number))
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.lock().open.retain(|(number, _)| *number != self.1);
    }
}

/// A value that is being computed.
pub(super) struct Computing<'a>(&'a Asking);

impl<'a> Computing<'a> {
    pub(super) fn start(asking: &'a Asking) -> Self {
        asking.lock().computing += 1;
        Self(asking)
    }
}

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.computing -= 1;
        state.waker.take().into_iter().for_each(Waker::wake);
    }
}
