//! The workflow of an agent: one invocation per run, and the handlers that observe and direct it.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use restate_sdk::prelude::*;
use tool_core::content::Content;
use tool_core::run::{self, Wait, WaitReason};
use tool_core::tool::{DecisionRecord, Timestamp, WaitId};

use crate::clock::now;
use crate::drive::{Drive, Setup};
use crate::names::{About, Added, Claim, Decided, Decision, Ended, Question, Sent, Stop, Waiting};
use crate::signals::{
    CANCELLED, FIRST_STOP, INVOCATION, QUESTION, WAIT_TIME, WAITING, decision_signal, message_signal,
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
    async fn decide(decision: Json<Decision>) -> HandlerResult<Json<Decided>>;
    #[shared]
    async fn say(message: Json<Content>) -> HandlerResult<()>;
    #[shared]
    async fn resume() -> HandlerResult<()>;
    #[shared]
    async fn compare(digest: Json<String>) -> HandlerResult<()>;
    #[shared]
    async fn part(part: u32) -> HandlerResult<Vec<u8>>;
    #[shared]
    async fn cancel() -> HandlerResult<()>;
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
        let Json(waiting) = ctx.get::<Json<Waiting>>(WAITING).await?.unwrap_or(Json(Waiting::default()));
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
        // A run that is killed resolves nothing.
        let stop = stop(waiting.round);
        restate_sdk::select! {
            stop = ctx.promise::<Json<Stop>>(&stop) => Ok(stop?),
            _ = ctx.sleep(WAIT_TIME) => Ok(Json(Stop::GoesOn)),
            on_cancel => Ok(Json(Stop::GoesOn))
        }
    }

    /// Records a decision about something that the run waits for.
    async fn decide(
        &self,
        ctx: SharedWorkflowContext<'_>,
        Json(decision): Json<Decision>,
    ) -> HandlerResult<Json<Decided>> {
        let Decision { about, decision } = decision;
        let Json(waiting) = ctx.get::<Json<Waiting>>(WAITING).await?.unwrap_or(Json(Waiting::default()));
        let not_waiting = match &about {
            About::Wait(_) => format!("the run `{}` does not wait for this", ctx.key()),
            About::Call(call) => format!("the run `{}` has no call `{call}` that awaits approval", ctx.key()),
        };
        let not_waiting = || TerminalError::new_with_code(404, not_waiting.clone());
        let id = match &about {
            About::Wait(id) => id,
            About::Call(call) => waiting.approvals.get(call).ok_or_else(&not_waiting)?,
        };
        let signal = decision_signal(id);
        let undecided = undecided(&ctx, &waiting).await?;
        let Some(wait) = undecided.iter().find(|wait| wait.id == *id) else {
            // Asked afterwards, because another decision can be claimed at any time.
            return match ctx.peek_promise::<Json<Claim>>(&signal).await? {
                Some(Json(earlier)) => Ok(Json(Decided::Before(earlier.record))),
                None => Err(not_waiting().into()),
            };
        };
        let invalid = |why: String| TerminalError::new_with_code(400, why);
        if decision.is_deferred() {
            return Err(invalid("a decision cannot be deferred; the call waits as it is".into()).into());
        }
        self.check(&ctx, &waiting, wait, &decision).await?.map_err(invalid)?;
        let at = time(&ctx).await?;
        let now = Timestamp::from_millis(at / 1000);
        if let Some(expired) = wait.expired(now) {
            return Ok(Json(Decided::Before(Some(expired))));
        }
        if let Some(earlier) = claim(&ctx, &signal, record(&decision, id, now)).await? {
            return Ok(Json(Decided::Before(earlier.record)));
        }
        send(&ctx, signal, decision, at).await?;
        Ok(Json(Decided::Accepted))
    }

    /// Sends a message to a run that waits: the calls that await approval are denied, questions are declined, and the model reads the
    /// message.
    async fn say(&self, ctx: SharedWorkflowContext<'_>, Json(message): Json<Content>) -> HandlerResult<()> {
        let Json(waiting) = ctx.get::<Json<Waiting>>(WAITING).await?.unwrap_or(Json(Waiting::default()));
        let (signal, at) = (message_signal(waiting.messages), time(&ctx).await?);
        let instead = run::Decision::deny("the user sent another message instead");
        let mut claimed = false;
        // Nobody can decide any more about what the message denies.
        for wait in undecided(&ctx, &waiting).await? {
            if !matches!(wait.reason, WaitReason::CallerResult(_)) {
                let record = record(&instead, &wait.id, Timestamp::from_millis(at / 1000));
                claimed |= claim(&ctx, &decision_signal(&wait.id), record).await?.is_none();
            }
        }
        if !claimed || claim(&ctx, &signal, None).await?.is_some() {
            let message = format!("the run `{}` does not wait for anybody; ask a new question", ctx.key());
            return Err(TerminalError::new_with_code(404, message).into());
        }
        send(&ctx, signal, message, at).await
    }

    /// Resumes a run that waits for an operator.
    async fn resume(&self, ctx: SharedWorkflowContext<'_>) -> HandlerResult<()> {
        let Json(waiting) = ctx.get::<Json<Waiting>>(WAITING).await?.unwrap_or(Json(Waiting::default()));
        let signal = resume_signal(waiting.round);
        if waiting.paused.is_none() || claim(&ctx, &signal, None).await?.is_some() {
            let message = format!("the run `{}` does not wait for an operator", ctx.key());
            return Err(TerminalError::new_with_code(404, message).into());
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
        let (code, message) = match ctx.get::<String>(QUESTION).await? {
            Some(own) if own == digest => return Ok(()),
            Some(_) => (422, format!("the run `{}` answers another question; choose another key", ctx.key())),
            None => (425, format!("the run `{}` has not begun yet", ctx.key())),
        };
        Err(TerminalError::new_with_code(code, message).into())
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
        decision: &run::Decision,
    ) -> Result<Result<(), String>, TerminalError> {
        let names = waiting.agents.get(&wait.path).into_iter().flatten();
        let agent = self.0.model.agent.agent_at(names.map(String::as_str));
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
}

/// Returns what the run waits for and nobody has decided about.
async fn undecided(ctx: &SharedWorkflowContext<'_>, waiting: &Waiting) -> Result<Vec<Wait>, TerminalError> {
    let mut undecided = Vec::new();
    let Some(last) = waiting.round.checked_sub(1) else { return Ok(undecided) };
    let has_message = ctx.peek_promise::<Json<Claim>>(&message_signal(waiting.messages)).await?.is_some();
    if has_message || ctx.peek_promise::<bool>(CANCELLED).await?.is_some() {
        return Ok(undecided);
    }
    if waiting.waits.is_empty() {
        return Ok(undecided);
    }
    // It is resolved right after the waits were set.
    if let Json(Stop::Waiting(waits)) = ctx.promise::<Json<Stop>>(&stop(last)).await? {
        for wait in waits.into_iter().filter(|wait| waiting.waits.contains(&wait.id)) {
            if ctx.peek_promise::<Json<Claim>>(&decision_signal(&wait.id)).await?.is_none() {
                undecided.push(wait);
            }
        }
    }
    Ok(undecided)
}

/// Claims the right to resolve a signal, which only one caller gets. Returns the claim of another one.
async fn claim(
    ctx: &SharedWorkflowContext<'_>,
    signal: &str,
    record: Option<DecisionRecord>,
) -> Result<Option<Claim>, TerminalError> {
    let own = ctx.invocation_id().to_owned();
    ctx.resolve_promise(signal, Json(Claim { invocation: own.clone(), record }));
    let Json(winner) = ctx.promise::<Json<Claim>>(signal).await?;
    Ok(Some(winner).filter(|winner| winner.invocation != own))
}

/// Returns the record of a decision, which is made now unless it says otherwise.
fn record(decision: &run::Decision, wait: &WaitId, now: Timestamp) -> Option<DecisionRecord> {
    let mut record = decision.record(wait)?;
    record.at.get_or_insert(now);
    Some(record)
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
