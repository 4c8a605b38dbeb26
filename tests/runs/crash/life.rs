//! One life of a run: it starts or resumes, until it ends or is killed.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tests::support::stores::{AnyStore, run_ids};
use tool_core::agent::{Ask, RunDriver};
use tool_core::run::Step;
use tool_core::store::RunStore;
use tool_core::{Agent, Answer, ChatMemory, Event, RunError};

use super::scenario::{CONVERSATION, QUESTION, Variant, agent, history};
use super::world::{World, effects};

/// A way of driving a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Awaited,
    Streamed,
    ByHand,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Awaited, Self::Streamed, Self::ByHand];
}

pub(crate) type Outcome = Result<Answer, RunError>;

/// Starts the run, or resumes the stored one. Returns `None` if it had already ended.
pub(crate) async fn live(
    variant: Variant,
    way: Way,
    store: &AnyStore,
    world: &World,
    log: &std::path::Path,
) -> Option<Outcome> {
    let agent = agent(variant, store, world);
    let ids = run_ids(store).await;
    let stored = ChatMemory::new(store.clone()).messages(CONVERSATION).await.unwrap();
    let is_untouched = effects(log).is_empty() && stored == history();
    let ask = match &*ids {
        // A run is stored before it does anything.
        [] if is_untouched => agent.ask(QUESTION).conversation(CONVERSATION),
        [] => return None,
        [id] => agent.resume(store.load_run(id).await.unwrap().unwrap()),
        more => panic!("more than one run: {more:?}"),
    };
    Some(match way {
        Way::Awaited => ask.await,
        Way::Streamed => stream(ask).await,
        Way::ByHand => drive(&agent, ask.start()).await,
    })
}

async fn stream(ask: Ask) -> Outcome {
    let mut events = ask.stream();
    while let Some(event) = events.next().await {
        if let Event::Done(answer) = event? {
            return Ok(answer);
        }
    }
    panic!("the stream ended without a final event");
}

/// Executes one call at a time, the last first.
async fn drive(agent: &Agent, mut run: RunDriver) -> Outcome {
    loop {
        match run.next().await? {
            Step::CallModel(request) => {
                let response = agent.model().chat(&request).await.unwrap();
                run.record_response(response).await?;
            }
            Step::CallTools(mut calls) => {
                let execution = run.execute(calls.pop().unwrap()).await?;
                run.record_result(execution).await?;
            }
            _ => return run.finish().await,
        }
    }
}

/// Unparks the polling thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future until it is ready, and checks after each poll whether to continue. Returns `None` if it was dropped.
/// There are no timers, so retries do not wait.
pub(crate) fn poll_while<T>(
    future: impl Future<Output = T>,
    mut may_go_on: impl FnMut() -> bool,
) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(value);
        }
        if !may_go_on() {
            return None;
        }
        thread::park();
    }
}

pub(crate) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    poll_while(future, || true).unwrap()
}
