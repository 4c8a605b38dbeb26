//! The workflow of an agent: one invocation per run, and the handlers that observe and direct it.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use restate_sdk::prelude::*;
use tool_core::agent::CommandErrorKind;
use tool_core::engine::{AgentExt, may_decide};
use tool_core::run::{Decision, UserMessage, Wait};
use tool_core::signatures::{DecisionRecord, Timestamp};
use tool_core::store::MessageVolume;

use crate::clock::now;
use crate::drive::{Drive, Setup};
use crate::names::{Added, Claim, Decisions, Ended, Outcome, Question, Sent, Stop, Waiting};
use crate::signals::{
    CANCELLED, FIRST_STOP, INVOCATION, QUESTION, WAIT_TIME, WAITING, decision_signal, killed, message_signal,
    part_key, resume_signal, stop,
};

/// The workflow of an agent.
pub(crate) struct Runs(pub(crate) Setup);

#[restate_sdk::workflow]
pub(crate) trait RunsService {
    async fn run(question: Json<Question>) -> HandlerResult<Json<Ended>>;
    #[shared]
    async fn wait() -> HandlerResult<Json<Stop>>;
    #[shared]
    async fn decide(decisions: Json<Decisions>) -> HandlerResult<Json<Outcome>>;
    #[shared]
    async fn say(message: Json<UserMessage>) -> HandlerResult<()>;
    #[shared]
    async fn resume() -> HandlerResult<()>;
    #[shared]
    async fn compare(digest: Json<String>) -> HandlerResult<()>;
    #[shared]
    async fn part(part: u32) -> HandlerResult<Vec<u8>>;
    #[shared]
    async fn cancel() -> HandlerResult<()>;
    #[shared]
    async fn release() -> HandlerResult<()>;
    #[shared]
    async fn first_stop() -> HandlerResult<Json<Option<Added>>>;
}

impl RunsService for Runs {
    /// Runs the agent.
    async fn run(
        &self,
        ctx: WorkflowContext<'_>,
        Json(question): Json<Question>,
    ) -> HandlerResult<Json<Ended>> {
        Ok(Json(Drive::run(&self.0, &ctx, question).await?))
    }

    /// Waits until the run needs a decision or has ended.
    async fn wait(&self, ctx: SharedWorkflowContext<'_>) -> HandlerResult<Json<Stop>> {
        let waiting = waiting(&ctx).await?;
        let undecided = undecided(&ctx, &waiting).await?;
        if !undecided.is_empty() {
            return Ok(Json(Stop::Waiting(undecided)));
        }
        if let Some(reason) = &waiting.paused
            && ctx.peek_promise::<Json<Claim>>(&resume_signal(waiting.round)).await?.is_none()
            && ctx.peek_promise::<bool>(CANCELLED).await?.is_none()
        {
            return Ok(Json(Stop::Paused(reason.clone())));
        }
        let (stop, killed) = (stop(waiting.round), killed(waiting.round));
        let stop = restate_sdk::select! {
            stop = ctx.promise::<Json<Stop>>(&stop) => stop?.0,
            _ = ctx.promise::<bool>(&killed) => Stop::GoesOn,
            // A run that is killed resolves nothing, and its clients can be gone.
            _ = ctx.sleep(WAIT_TIME) => Stop::GoesOn,
            on_cancel => Stop::GoesOn
        };
        Ok(Json(match stop {
            Stop::Waiting(waits) => match without_decided(&ctx, waits).await? {
                undecided if undecided.is_empty() => Stop::GoesOn,
                undecided => Stop::Waiting(undecided),
            },
            stop => stop,
        }))
    }

    /// Records decisions about what the run waits for. None is recorded if one of them is refused, unless somebody decides meanwhile.
    async fn decide(
        &self,
        ctx: SharedWorkflowContext<'_>,
        Json(decisions): Json<Decisions>,
    ) -> HandlerResult<Json<Outcome>> {
        let waiting = waiting(&ctx).await?;
        let undecided = undecided(&ctx, &waiting).await?;
        let mut checked = Vec::new();
        for (id, decision) in decisions {
            let Some(wait) = undecided.iter().find(|wait| wait.id == id) else {
                // Asked afterwards, because another decision can be claimed at any time.
                return match ctx.peek_promise::<Json<Claim>>(&decision_signal(&id)).await? {
                    Some(Json(earlier)) => Ok(Json(Err(earlier.record))),
                    None => Err(refused(404, format!("the run `{}` does not wait for this", ctx.key()))),
                };
            };
            let fits = self.check(&ctx, &waiting, wait, &decision).await?;
            fits.map_err(|why| TerminalError::new_with_code(400, why))?;
            checked.push((wait, decision));
        }
        for (wait, decision) in &checked {
            let allowed = self.ask_leave(&ctx, &waiting, wait, decision).await?;
            allowed.map_err(|why| TerminalError::new_with_code(403, why))?;
        }
        let at = time(&ctx).await?;
        let now = Timestamp::from_millis(at / 1000);
        if let Some(expired) = checked.iter().find_map(|(wait, _)| wait.expired(now)) {
            return Ok(Json(Err(Some(expired))));
        }
        let mut decided = Vec::new();
        for (wait, decision) in checked {
            // One that is deferred changes nothing.
            let Some(mut record) = decision.record(&wait.id) else { continue };
            record.at.get_or_insert(now);
            let signal = decision_signal(&wait.id);
            if let Some(earlier) = claim(&ctx, &signal, Some(record.clone()), None).await? {
                return Ok(Json(Err(earlier.record)));
            }
            send(&ctx, signal, decision, at).await?;
            decided.push((wait.clone(), record));
        }
        Ok(Json(Ok(decided)))
    }

    /// Sends a message to the run.
    async fn say(
        &self,
        ctx: SharedWorkflowContext<'_>,
        Json(message): Json<UserMessage>,
    ) -> HandlerResult<()> {
        let waiting = waiting(&ctx).await?;
        if ctx.get::<String>(INVOCATION).await?.is_none() {
            return Err(not_begun(ctx.key()));
        }
        if waiting.has_ended || ctx.peek_promise::<bool>(CANCELLED).await?.is_some() {
            let message = "the run has ended and takes no more messages; ask a new question";
            return Err(refused(410, message));
        }
        let at = time(&ctx).await?;
        let Some(number) = claim_message(&ctx, &waiting, &message).await? else {
            return Err(refused(429, CommandErrorKind::Full.to_string()));
        };
        send(&ctx, message_signal(number), message, at).await
    }

    /// Resumes a run that waits for an operator.
    async fn resume(&self, ctx: SharedWorkflowContext<'_>) -> HandlerResult<()> {
        let waiting = waiting(&ctx).await?;
        let signal = resume_signal(waiting.round);
        if waiting.paused.is_none() || claim(&ctx, &signal, None, None).await?.is_some() {
            return Err(refused(412, format!("the run `{}` does not wait for an operator", ctx.key())));
        }
        let at = time(&ctx).await?;
        send(&ctx, signal, (), at).await
    }

    /// Returns a part of the end of the run.
    async fn part(&self, ctx: SharedWorkflowContext<'_>, part: u32) -> HandlerResult<Vec<u8>> {
        Ok(ctx.get::<Vec<u8>>(&part_key(part)).await?.unwrap_or_default())
    }

    /// Fails if the run answers another question than the one with this digest.
    async fn compare(&self, ctx: SharedWorkflowContext<'_>, Json(digest): Json<String>) -> HandlerResult<()> {
        match ctx.get::<String>(QUESTION).await? {
            Some(own) if own == digest => Ok(()),
            Some(_) => {
                let key = ctx.key();
                Err(refused(422, format!("the run `{key}` answers another question; choose another key")))
            }
            None => Err(not_begun(ctx.key())),
        }
    }

    /// Cancels the run.
    async fn cancel(&self, ctx: SharedWorkflowContext<'_>) -> HandlerResult<()> {
        // Resolved first: a run that has not begun by then finds it.
        ctx.resolve_promise(CANCELLED, true);
        if let Some(invocation) = ctx.get::<String>(INVOCATION).await? {
            ctx.invocation_handle(invocation).cancel();
        }
        Ok(())
    }

    /// Ends the handlers that wait for a run that was killed.
    async fn release(&self, ctx: SharedWorkflowContext<'_>) -> HandlerResult<()> {
        let killed = killed(waiting(&ctx).await?.round);
        if ctx.peek_promise::<bool>(&killed).await?.is_none() {
            ctx.resolve_promise(&killed, true);
        }
        Ok(())
    }

    /// Waits until the run first waits for a person or has ended.
    async fn first_stop(&self, ctx: SharedWorkflowContext<'_>) -> HandlerResult<Json<Option<Added>>> {
        Ok(ctx.promise::<Json<Option<Added>>>(FIRST_STOP).await?)
    }
}

impl Runs {
    /// Checks that a decision fits, with the tools of the agent. Returns the reason if it does not.
    async fn check(
        &self,
        ctx: &SharedWorkflowContext<'_>,
        waiting: &Waiting,
        wait: &Wait,
        decision: &Decision,
    ) -> Result<Result<(), String>, TerminalError> {
        let names = waiting.agents.get(&wait.path).into_iter().flatten();
        let agent = self.0.steps.agent.agent_at(names.map(String::as_str));
        let check = move || -> BoxFuture<'_, HandlerResult<Json<Result<(), String>>>> {
            Box::pin(async move {
                let Some(agent) = agent else { return Ok(Json(Ok(()))) };
                let checked = AssertUnwindSafe(agent.check_decision(wait, decision)).catch_unwind().await;
                // A provider that panics decides nothing.
                let checked = checked.unwrap_or(Ok(()));
                Ok(Json(checked.map_err(|error| error.to_string())))
            })
        };
        let Json(checked) = ctx.run(check).name("check").await?;
        Ok(checked)
    }

    /// Asks the application whether this may be decided. Returns the reason if it may not.
    async fn ask_leave(
        &self,
        ctx: &SharedWorkflowContext<'_>,
        waiting: &Waiting,
        wait: &Wait,
        decision: &Decision,
    ) -> Result<Result<(), String>, TerminalError> {
        let steps = &self.0.steps;
        let Some(run) = waiting.identity.clone().map(|identity| steps.identified(identity)) else {
            return Ok(Ok(()));
        };
        let ask = move || -> BoxFuture<'_, HandlerResult<Json<Result<(), String>>>> {
            Box::pin(async move {
                let allowed = may_decide(&steps.agent, &run, wait, decision).await;
                Ok(Json(allowed.map_err(|error| error.to_string())))
            })
        };
        let Json(allowed) = ctx.run(ask).name("may decide").await?;
        Ok(allowed)
    }
}

/// Returns the error of a request that the client names by this code.
fn refused(code: u16, message: impl Into<String>) -> HandlerError {
    TerminalError::new_with_code(code, message).into()
}

fn not_begun(key: &str) -> HandlerError {
    refused(425, format!("the run `{key}` has not begun yet"))
}

/// Returns what is known about the waits of the run.
async fn waiting(ctx: &SharedWorkflowContext<'_>) -> Result<Waiting, TerminalError> {
    let waiting = ctx.get::<Json<Waiting>>(WAITING).await?;
    Ok(waiting.map(|Json(waiting)| waiting).unwrap_or_default())
}

/// Returns what the run waits for and nobody has decided about.
async fn undecided(ctx: &SharedWorkflowContext<'_>, waiting: &Waiting) -> Result<Vec<Wait>, TerminalError> {
    let Some(last) = waiting.round.checked_sub(1).filter(|_| !waiting.waits.is_empty()) else {
        return Ok(Vec::new());
    };
    if ctx.peek_promise::<bool>(CANCELLED).await?.is_some() {
        return Ok(Vec::new());
    }
    // It is resolved right after the waits were set.
    let Json(Stop::Waiting(mut waits)) = ctx.promise::<Json<Stop>>(&stop(last)).await? else {
        return Ok(Vec::new());
    };
    waits.retain(|wait| waiting.waits.contains(&wait.id));
    without_decided(ctx, waits).await
}

/// Returns the waits about which nobody has decided.
async fn without_decided(
    ctx: &SharedWorkflowContext<'_>,
    waits: Vec<Wait>,
) -> Result<Vec<Wait>, TerminalError> {
    let mut undecided = Vec::new();
    for wait in waits {
        if ctx.peek_promise::<Json<Claim>>(&decision_signal(&wait.id)).await?.is_none() {
            undecided.push(wait);
        }
    }
    Ok(undecided)
}

/// Claims the right to resolve a signal, which only one caller gets. Returns the claim of another one.
async fn claim(
    ctx: &SharedWorkflowContext<'_>,
    signal: &str,
    record: Option<DecisionRecord>,
    bytes: Option<usize>,
) -> Result<Option<Claim>, TerminalError> {
    let own = ctx.invocation_id().to_owned();
    ctx.resolve_promise(signal, Json(Claim { invocation: own.clone(), record, bytes }));
    let Json(winner) = ctx.promise::<Json<Claim>>(signal).await?;
    Ok(Some(winner).filter(|winner| winner.invocation != own))
}

/// Claims the number of a message. Returns `None` if the run has too many messages that have not reached it, or takes no such message.
async fn claim_message(
    ctx: &SharedWorkflowContext<'_>,
    waiting: &Waiting,
    message: &UserMessage,
) -> Result<Option<u32>, TerminalError> {
    let Waiting { messages: first, message_volume, .. } = *waiting;
    // All messages before that of this number have this size.
    let (mut number, mut bytes) = (first, message_volume.bytes);
    loop {
        let on_the_way = usize::try_from(number - first).unwrap_or(usize::MAX);
        let load = message_volume.with_unread(on_the_way, bytes.saturating_sub(message_volume.bytes));
        if !load.takes(message) {
            return Ok(None);
        }
        let own = Some(bytes.saturating_add(message.bytes()));
        let Some(winner) = claim(ctx, &message_signal(number), None, own).await? else {
            return Ok(Some(number));
        };
        bytes = winner.bytes.unwrap_or(bytes);
        let mut search = LastClaimed::after(number, first.saturating_add(MessageVolume::MAX_UNREAD as u32));
        while let Some(next) = search.next() {
            let claimed = ctx.peek_promise::<Json<Claim>>(&message_signal(next)).await?;
            search.found(next, claimed.is_some());
            bytes = claimed.and_then(|Json(claim)| claim.bytes).unwrap_or(bytes);
        }
        number = search.claimed + 1;
    }
}

/// Searches for the last claimed number. All before it are claimed, so the looks that it takes grow with the logarithm of what is passed.
struct LastClaimed {
    claimed: u32,
    free: u32,
    /// The distance of the next look; zero once one has met a free number.
    step: u32,
}

impl LastClaimed {
    /// Begins behind a claimed number; `end` counts as free.
    fn after(claimed: u32, end: u32) -> Self {
        Self { claimed, free: end, step: 1 }
    }

    /// Returns the number to look at, or `None` once the last one is known.
    fn next(&self) -> Option<u32> {
        let between = self.free.saturating_sub(self.claimed);
        let ahead = match self.step {
            0 => between / 2,
            step => step.min(between.saturating_sub(1)),
        };
        (between > 1).then_some(self.claimed + ahead)
    }

    fn found(&mut self, number: u32, is_claimed: bool) {
        if is_claimed {
            (self.claimed, self.step) = (number, self.step * 2);
        } else {
            (self.free, self.step) = (number, 0);
        }
    }
}

/// Returns the present time, which is recorded.
async fn time(ctx: &SharedWorkflowContext<'_>) -> Result<u64, TerminalError> {
    ctx.run(|| async { Ok(now()) }).name("time").await
}

/// Resolves a signal of the run.
async fn send<T: serde::Serialize + Send + 'static>(
    ctx: &SharedWorkflowContext<'_>,
    signal: String,
    value: T,
    at: u64,
) -> HandlerResult<()> {
    let invocation = ctx.get::<String>(INVOCATION).await?.unwrap_or_default();
    ctx.invocation_handle(invocation).signal(signal).resolve(Json(Sent { value, at }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each message begins where the run has got, so that each would else pass all those before it.
    #[test]
    fn the_numbers_of_many_messages_are_found_with_few_looks_each() {
        for count in 0..100 {
            let (mut search, mut looks) = (LastClaimed::after(7, 107), 0);
            while let Some(next) = search.next() {
                assert!((8..107).contains(&next));
                search.found(next, next <= 7 + count);
                looks += 1;
            }
            assert_eq!(search.claimed, 7 + count.min(99));
            assert!(looks <= 2 * (count + 1).ilog2() + 1, "{looks} looks for {count}");
        }
    }
}
