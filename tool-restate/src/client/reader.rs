//! A reader of the events of a run.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use restate_sdk::ingress::RequestTarget;
use restate_sdk::serde::Json;
use tool_core::agent::EventRecord;

use super::remote_run::RemoteRun;
use crate::error::Error;
use crate::names::{Page, events_service};

/// A reader of the events of a run.
pub struct Events {
    run: RemoteRun,
    position: u64,
    received: VecDeque<EventRecord>,
    has_ended: bool,
    /// The run had ended when the reader last checked it.
    is_over: bool,
}

/// The time after which a reader without an event checks whether its run goes on.
const CHECK_TIME: Duration = Duration::from_secs(5);

/// The time between two requests of a reader that has read everything.
const POLL_TIME: Duration = Duration::from_millis(100);

impl Events {
    /// Returns the next event, for which it asks the server ten times a second, or `None` after the last one, or if the run ended
    /// without storing events. A run ends with [`Event::Done`] or [`Event::Failed`]; one that waits for an operator emits `Failed`, too.
    ///
    /// [`Event::Done`]: tool_core::Event::Done
    /// [`Event::Failed`]: tool_core::Event::Failed
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, if no worker lives, if there is no such run, if it was killed by the tools of the
    /// engine, or after the client's [limit](crate::Client::wait_timeout). The reader can continue afterwards, and misses nothing.
    pub async fn next(&mut self) -> Result<Option<EventRecord>, Error> {
        let client = self.run.agent.client.clone();
        client.wait_for(self.next_event()).await
    }

    async fn next_event(&mut self) -> Result<Option<EventRecord>, Error> {
        let mut checked = Instant::now();
        loop {
            if let Some(event) = self.received.pop_front() {
                self.position = event.position;
                return Ok(Some(event));
            }
            if self.has_ended {
                return Ok(None);
            }
            let (agent, key) = (&self.run.agent, &*self.run.key);
            let target = RequestTarget::object(events_service(&agent.name), key, "read");
            let Json(page) = agent.call::<u64, Json<Page>>(target, self.position).await?;
            self.has_ended = page.is_last;
            if page.events.is_empty() && !page.is_last {
                tokio::time::sleep(POLL_TIME).await;
                if checked.elapsed() >= CHECK_TIME {
                    checked = Instant::now();
                    // The last events of a run arrive soon after its end.
                    let was_over = std::mem::replace(&mut self.is_over, self.run.peek().await?.is_some());
                    self.has_ended = was_over && self.is_over;
                }
            }
            self.received.extend(page.events);
        }
    }

    /// Returns the position of the last event that was read, after which another reader can [continue](RemoteRun::events).
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("run", &self.run)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl RemoteRun {
    /// Returns the events of the run, if its question [asked for them](crate::RemoteAsk::events), that follow a position: 0, or the position of the
    /// last event which an earlier reader got. Any number of readers can read, at any time until the end of the retention; the run
    /// does not wait for them. If a worker dies, the turn begins again with another `TurnStarted`.
    ///
    /// ```no_run
    /// use tool_core::Event;
    ///
    /// # async fn example(run: tool_restate::RemoteRun) -> Result<(), tool_restate::Error> {
    /// let mut events = run.events(0);
    /// while let Some(record) = events.next().await? {
    ///     match record.event {
    ///         Event::Text(text) => print!("{text}"),
    ///         Event::TurnStarted { .. } => print!("\r"),
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn events(&self, after: u64) -> Events {
        Events {
            run: self.clone(),
            position: after,
            received: VecDeque::new(),
            has_ended: false,
            is_over: false,
        }
    }
}
