//! The answers to requests that continue runs, by the digests of the requests: a repeated request receives the same answer, while it is
//! generated and afterwards.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::backend::Deltas;
use super::shared_answer::SharedAnswer;
use super::store::{Retention, Store};

pub(super) struct Answers {
    /// Exist as long as a caller waits for them.
    in_flight: Mutex<HashMap<String, Weak<SharedAnswer>>>,
    complete: Store<Arc<SharedAnswer>>,
}

impl Answers {
    pub(super) fn new(retention: Retention) -> Arc<Self> {
        Arc::new(Self { in_flight: Mutex::default(), complete: Store::new(retention) })
    }

    /// Returns the complete answer to a request, or the one that is generated.
    pub(super) fn get(&self, request: &str) -> Option<Arc<SharedAnswer>> {
        let in_flight = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        self.find(&in_flight, request)
    }

    /// Returns the answer to a request, which `generate` generates if there is none.
    pub(super) fn share(
        self: &Arc<Self>,
        request: String,
        generate: impl FnOnce() -> Deltas,
    ) -> Arc<SharedAnswer> {
        let mut in_flight = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = self.find(&in_flight, &request) {
            return answer;
        }
        in_flight.retain(|_, answer| answer.strong_count() > 0);
        let (answers, id) = (Arc::downgrade(self), request.clone());
        let answer = SharedAnswer::new(generate(), move |answer, bytes| {
            if let Some(answers) = answers.upgrade() {
                answers.complete.insert(id.clone(), Arc::clone(answer), bytes);
            }
        });
        in_flight.insert(request, Arc::downgrade(&answer));
        answer
    }

    fn find(
        &self,
        in_flight: &HashMap<String, Weak<SharedAnswer>>,
        request: &str,
    ) -> Option<Arc<SharedAnswer>> {
        // After an error, a repeated request continues the run.
        let in_flight = in_flight.get(request).and_then(Weak::upgrade).filter(|answer| !answer.has_ended());
        in_flight.or_else(|| self.complete.get(request))
    }
}
