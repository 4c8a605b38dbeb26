//! The execution of one call, and what it needs meanwhile from the driver of its run.
//!
//! The future of a call that asks an agent lives on while the agent works, because layers of a set judge its outcome with what they decided
//! before.

use std::pin::pin;
use std::sync::{Arc, OnceLock};

use futures_channel::{mpsc, oneshot};
use futures_util::future::{BoxFuture, Either, ready, select};
use futures_util::{FutureExt, SinkExt, StreamExt};
use tokio_util::sync::CancellationToken;

use crate::agent::executor::{CallExecutor, Link};
use crate::agent::trace::Scope;
use crate::model::ToolCall;
use crate::run::Run;
use crate::tool::{
    AgentQuestion, Asking, Attempt, CallNotes, Outcome, ToolContext, ToolError, ToolExecution,
};

/// What a call in flight needs from the driver of its run.
pub(super) enum Message {
    /// It asks an agent.
    Asked(Box<AskedBy>),
    /// It has recorded a value, and continues once these notes are saved.
    Noted { call_id: String, notes: CallNotes, noted: oneshot::Sender<()> },
}

/// A call that asks an agent.
pub(super) struct AskedBy {
    pub(super) call: ToolCall,
    pub(super) question: String,
    pub(super) context: ToolContext,
    pub(super) answer: oneshot::Sender<Outcome>,
    /// Ends the call without an outcome.
    pub(super) suspended: CancellationToken,
    pub(super) scope: Scope,
}

/// Sends messages of the calls of a run.
type Sender<Id> = (mpsc::Sender<(Id, Message)>, Id);

/// Executes a call that was started.
pub(super) fn execute_call<Id: Copy + Send + Sync + 'static>(
    run: &Run,
    executor: &Arc<CallExecutor>,
    call: ToolCall,
    attempt: Attempt,
    sender: Sender<Id>,
) -> BoxFuture<'static, ToolExecution> {
    let tool = executor.tools.get(&call.name);
    let asks_agent = executor.agent_of(&call).is_some();
    if !asks_agent && tool.is_some() && run.open_inner_run(&call.id).is_some() {
        // Another tool has the name now, and cannot continue the run.
        return ready(ToolExecution::new(call, Err(ToolError::interrupted()))).boxed();
    }
    let mut asking = Asking::new(run.notes(&call.id).cloned().unwrap_or_default());
    if tool.is_some_and(CallExecutor::has_asker) {
        let (sender, call_id) = (sender.clone(), call.id.clone());
        asking = asking.store(Arc::new(move |notes| {
            let ((mut sender, id), call_id) = (sender.clone(), call_id.clone());
            let stored = async move {
                let (noted, is_noted) = oneshot::channel();
                let sent = sender.send((id, Message::Noted { call_id, notes, noted })).await;
                sent.is_ok() && is_noted.await.is_ok()
            };
            stored.boxed()
        }));
    }
    let executor = Arc::clone(executor);
    match asks_agent {
        false => async move { executor.execute(call, attempt, None, asking).await }.boxed(),
        true => ask_agent(executor, call, attempt, asking, sender).boxed(),
    }
}

/// Executes a call that asks an agent.
async fn ask_agent<Id: Copy>(
    executor: Arc<CallExecutor>,
    call: ToolCall,
    attempt: Attempt,
    asking: Asking,
    (mut sender, id): Sender<Id>,
) -> ToolExecution {
    let (agent, mut questions) = mpsc::channel(0);
    let (suspended, scope) = (CancellationToken::new(), Arc::new(OnceLock::new()));
    let link = Link { agent, suspended: suspended.clone(), scope: Arc::clone(&scope) };
    let mut execution = pin!(executor.execute(call.clone(), attempt, Some(link), asking));
    let asked = match select(execution.as_mut(), questions.next()).await {
        // It has not asked: its arguments are wrong, or a layer of its set has refused it.
        Either::Left((execution, _)) => return execution,
        Either::Right((asked, _)) => asked,
    };
    // A call asks its agent once.
    drop(questions);
    if let (Some(AgentQuestion { question, context, answer }), Some(scope)) = (asked, scope.get().cloned()) {
        let asked_by = AskedBy { call, question, context, answer, suspended, scope };
        // The driver polls this future.
        let _ = sender.send((id, Message::Asked(Box::new(asked_by)))).await;
    }
    execution.await
}
