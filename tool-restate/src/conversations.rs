//! The conversations of an agent: one object each, which has the messages.
//!
//! A run sends `hold`, which returns the history to it and keeps the object until the run waits for a person or has ended. So
//! questions are answered one after the other, and none waits for a person.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use restate_sdk::context::{DurableFuture, RequestTarget};
use restate_sdk::prelude::*;
use tool_core::Message;
use tool_core::provider::repair_history;
use tool_core::store::CompactionSummary;

use crate::limit;
use crate::names::{Added, Ended, History, HoldRequest};
use crate::settings::Settings;

/// The number of times that messages were added. Those of time `n` are at the key `n`.
const RUNS: &str = "runs";

/// What stands for the first messages.
const SUMMARY: &str = "summary";

/// The time after which a conversation checks that its run goes on.
const CHECK_TIME: Duration = Duration::from_secs(10);

type Pending<'c> = Pin<Box<dyn DurableFuture<Output = Result<Progress, TerminalError>> + Send + 'c>>;

/// What a conversation learns about the run that has it.
enum Progress {
    /// The run waits for a person, or has ended and adds messages.
    Stopped(Option<Added>),
    Goes,
    Ended,
    Removed,
}

pub(crate) struct Conversations {
    pub(crate) agent: String,
    pub(crate) settings: Arc<Settings>,
}

#[restate_sdk::object]
pub(crate) trait ConversationsService {
    async fn hold(request: Json<HoldRequest>) -> HandlerResult<()>;
    async fn append(added: Json<Added>) -> HandlerResult<()>;
    #[shared]
    async fn messages() -> HandlerResult<Json<Vec<Message>>>;
}

/// The handlers that only runs call.
pub(crate) const PRIVATE: [&str; 2] = ["hold", "append"];

impl ConversationsService for Conversations {
    /// Gives a run the history, and adds its messages if it ends without waiting for a person.
    async fn hold(&self, ctx: ObjectContext<'_>, Json(request): Json<HoldRequest>) -> HandlerResult<()> {
        let HoldRequest { run, invocation } = request;
        let messages = load(&ctx).await?;
        let stored_len = messages.len();
        let messages = match &self.settings.window {
            Some(window) => window.apply(messages),
            None => messages,
        };
        let summary = ctx.get::<Json<CompactionSummary>>(SUMMARY).await?.map(|Json(summary)| summary);
        let history = History { messages, stored_len, summary };
        let signal = ctx.invocation_handle(invocation.clone()).signal("history");
        match limit::check("the history of the conversation", &history, self.settings.max_bytes) {
            Ok(()) => signal.resolve(Json(history)),
            Err(reason) => signal.reject(TerminalError::new_with_code(
                413,
                format!("{reason}; limit it with `Worker::window`, or begin another conversation"),
            )),
        }
        let target = RequestTarget::workflow(&*self.agent, run, "first_stop");
        let stopped = ctx.request::<(), Json<Option<Added>>>(target, ()).call();
        let handle = stopped.invocation_handle().await?;
        let mut pending = DurableFuturesUnordered::<Pending<'_>>::new();
        pending.push(Box::pin(stopped.map_ok(|Json(added)| Progress::Stopped(added))));
        pending.push(Box::pin(ctx.sleep(CHECK_TIME).map_ok(|()| Progress::Goes)));
        let added = loop {
            match pending.next().await? {
                Some((_, Ok(Progress::Stopped(added)))) => break added,
                // A run that was killed, or that ended and was removed while it waited in the queue, has no invocation.
                Some((_, Ok(Progress::Goes))) => {
                    let ended = ctx.invocation_handle(invocation.clone()).attach::<Json<Ended>>();
                    pending.push(Box::pin(ended.map_ok(|_| Progress::Ended)));
                }
                // It may be removed before it says why it stopped.
                Some((_, Ok(Progress::Ended))) => {
                    pending.push(Box::pin(ctx.sleep(CHECK_TIME).map_ok(|()| Progress::Removed)));
                }
                Some((_, Ok(Progress::Removed) | Err(_))) | None => {
                    handle.cancel();
                    break None;
                }
            }
        };
        if let Some(added) = added {
            self.append_to(&ctx, added).await?;
        }
        Ok(())
    }

    /// Adds the messages of a run that had waited for a person.
    async fn append(&self, ctx: ObjectContext<'_>, Json(added): Json<Added>) -> HandlerResult<()> {
        self.append_to(&ctx, added).await?;
        Ok(())
    }

    /// Returns all messages.
    async fn messages(&self, ctx: SharedObjectContext<'_>) -> HandlerResult<Json<Vec<Message>>> {
        let runs = ctx.get::<u32>(RUNS).await?.unwrap_or_default();
        let mut messages = Vec::new();
        for run in 0..runs {
            let Json(added) = ctx.get::<Json<Added>>(&run.to_string()).await?.unwrap_or(Json(EMPTY));
            messages.extend(added.messages);
        }
        limit::check("the conversation", &messages, self.settings.max_bytes)
            .map_err(|reason| TerminalError::new_with_code(413, reason))?;
        Ok(Json(messages))
    }
}

const EMPTY: Added = Added { messages: Vec::new(), stored: None, summary: None };

/// Returns all messages, repaired if necessary.
async fn load(ctx: &ObjectContext<'_>) -> Result<Vec<Message>, TerminalError> {
    let runs = ctx.get::<u32>(RUNS).await?.unwrap_or_default();
    let mut messages = Vec::new();
    for run in 0..runs {
        let key = run.to_string();
        let Json(added) = ctx.get::<Json<Added>>(&key).await?.unwrap_or(Json(EMPTY));
        messages.extend(added.messages);
    }
    Ok(repair_history(&messages).into_owned())
}

impl Conversations {
    /// Adds messages, which can be larger than a value.
    async fn append_to(&self, ctx: &ObjectContext<'_>, added: Added) -> Result<(), TerminalError> {
        let Added { mut messages, stored, summary } = added;
        if let Some((run, parts)) = stored {
            let mut json = Vec::new();
            for part in 0..parts {
                let target = RequestTarget::workflow(&*self.agent, &*run, "part");
                json.extend(ctx.request::<_, Vec<u8>>(target, part).call().await?);
            }
            if let Ok(Ended::Answer(answer)) = serde_json::from_slice(&json) {
                messages = answer.new_messages().to_vec();
            }
        }
        if let Some((stored_len, summary)) = summary
            && load(ctx).await?.len() == stored_len
        {
            ctx.set(SUMMARY, Json(summary));
        }
        let mut runs = ctx.get::<u32>(RUNS).await?.unwrap_or_default();
        for messages in limit::batches(messages, self.settings.max_bytes) {
            ctx.set(&runs.to_string(), Json(Added { messages, ..EMPTY }));
            runs += 1;
        }
        ctx.set(RUNS, runs);
        Ok(())
    }
}
