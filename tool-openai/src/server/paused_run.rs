//! Runs that wait for the caller, and then the answers to the requests that sent what they wait for.
//!
//! A run continues once, because clients repeat requests after a timeout, and users click twice. Requests that repeat the one
//! that continued the run share its answer, while it is generated and afterwards. If the run failed, a repeated request starts
//! at the failure. If it was cancelled because all callers had disconnected, a repeated request starts again from the results,
//! unless the run was executing a call of an `at_most_once` tool.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tool_core::model::Usage;
use tool_core::run::Run;
use tool_core::tool::WaitId;

use super::backend::Deltas;
use super::error::ApiError;
use super::shared_answer::SharedAnswer;
use super::store::Weight;

/// What a run awaits of the caller.
pub(super) enum Awaited {
    /// The result of the call with this id in the run.
    Result(String),
    /// The answer to a question, after which a call is executed that must not be repeated, or may be one.
    Answer { wait: WaitId, may_be_at_most_once: bool },
}

/// A run that waits for the results of the caller's calls, or was continued with them.
pub(super) struct PausedRun {
    /// The fingerprint of the conversation that the caller had sent.
    pub(super) conversation: u64,
    /// The ids that the caller received for calls, and what is awaited for each.
    pub(super) calls: Vec<(String, Awaited)>,
    inner: Mutex<Inner>,
}

struct Inner {
    state: State,
    answer_weight: Weight,
}

enum State {
    /// The serialized run waits for the results.
    Paused(String),
    /// A request sent the results.
    Continued {
        /// The fingerprint of the request.
        request: u64,
        /// The point from which a repeated request continues if the answer is gone.
        from: Checkpoint,
        /// Exists as long as a caller waits for it.
        answer: Weak<SharedAnswer>,
        has_begun_once: Arc<AtomicBool>,
    },
    /// The answer is complete.
    Answered { request: u64, answer: Arc<SharedAnswer> },
}

/// A point of a run at which a request started, or its repetition starts.
#[derive(Clone)]
struct Checkpoint {
    /// The serialized run.
    run: String,
    start: SegmentStart,
}

/// The messages and the usage of a run before a request.
#[derive(Clone, Copy)]
pub(super) struct SegmentStart {
    pub(super) messages: usize,
    pub(super) usage: Usage,
}

impl SegmentStart {
    pub(super) fn at(run: &Run) -> Self {
        Self { messages: run.new_messages().len(), usage: run.usage() }
    }
}

/// The continuation of a paused run by one request.
#[derive(Clone)]
pub(super) struct Continuation {
    paused: Arc<PausedRun>,
    pub(super) start: SegmentStart,
    has_begun_once: Arc<AtomicBool>,
}

impl Continuation {
    /// Records that the run has begun a call that must not be repeated.
    pub(super) fn note_at_most_once_call(&self) {
        self.has_begun_once.store(true, Ordering::Relaxed);
    }

    /// Records that the run ended with an error, so that a repeated request continues there.
    pub(super) fn note_failure(&self, run: &Run) {
        let Ok(run) = serde_json::to_string(run) else { return };
        if let State::Continued { from, answer, has_begun_once, .. } = &mut self.paused.lock().state {
            *from = Checkpoint { run, start: self.start };
            *answer = Weak::new();
            // Its result is part of the run.
            *has_begun_once = Arc::default();
        }
    }
}

impl PausedRun {
    /// Creates a run that waits for results. `weight` counts the bytes of the answer.
    pub(super) fn new(
        run: String,
        conversation: u64,
        calls: Vec<(String, Awaited)>,
        answer_weight: Weight,
    ) -> Self {
        let inner = Mutex::new(Inner { state: State::Paused(run), answer_weight });
        Self { conversation, calls, inner }
    }

    /// Returns the answer to a request that sends the results, or `None` if another request has continued the run.
    ///
    /// The first request calls `record` to record the results, which returns `None` if they do not fit, and then `answer` to
    /// generate the answer. An error of `record` leaves the run as it was.
    pub(super) fn answer(
        self: &Arc<Self>,
        request: u64,
        record: impl FnOnce(Run) -> Result<Option<Run>, ApiError>,
        answer: impl FnOnce(Run, Continuation) -> Deltas,
    ) -> Result<Option<Arc<SharedAnswer>>, ApiError> {
        let mut inner = self.lock();
        let (run, start) = match &inner.state {
            State::Paused(run) => {
                let Ok(run) = serde_json::from_str(run) else { return Ok(None) };
                let Some(run) = record(run)? else { return Ok(None) };
                let start = SegmentStart::at(&run);
                (run, start)
            }
            State::Continued { request: by, .. } | State::Answered { request: by, .. } if *by != request => {
                return Ok(None);
            }
            State::Answered { answer, .. } => return Ok(Some(Arc::clone(answer))),
            State::Continued { from, answer, has_begun_once, .. } => {
                if let Some(answer) = answer.upgrade() {
                    return Ok(Some(answer));
                }
                if has_begun_once.load(Ordering::Relaxed) {
                    return Err(ApiError::interrupted());
                }
                let run = serde_json::from_str(&from.run).map_err(|_| ApiError::internal())?;
                (run, from.start)
            }
        };
        let from = Checkpoint { run: serde_json::to_string(&run).map_err(|_| ApiError::internal())?, start };
        // The attempt that asked continues, without another event of its start.
        let continues_once = |(_, awaited): &(_, Awaited)| {
            matches!(awaited, Awaited::Answer { may_be_at_most_once: true, .. })
        };
        let has_begun_once = Arc::new(AtomicBool::new(self.calls.iter().any(continues_once)));
        let continuation =
            Continuation { paused: Arc::clone(self), start, has_begun_once: Arc::clone(&has_begun_once) };
        let paused = Arc::downgrade(self);
        let answer = SharedAnswer::new(answer(run, continuation), move |answer, bytes| {
            if let Some(paused) = paused.upgrade() {
                paused.note_answer(answer, bytes);
            }
        });
        inner.state = State::Continued { request, from, answer: Arc::downgrade(&answer), has_begun_once };
        Ok(Some(answer))
    }

    /// Stores the complete answer, whose size is about `bytes`, for repeated requests.
    fn note_answer(&self, answer: &Arc<SharedAnswer>, bytes: usize) {
        let mut inner = self.lock();
        if let State::Continued { request, .. } = inner.state {
            inner.state = State::Answered { request, answer: Arc::clone(answer) };
            inner.answer_weight.set_bytes(bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No operation under the lock leaves the state inconsistent.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
