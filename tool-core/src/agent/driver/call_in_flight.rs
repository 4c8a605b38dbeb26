//! The execution of one call, and what it needs meanwhile from the driver of its run.

use std::sync::Arc;

use futures_channel::{mpsc, oneshot};
use futures_util::future::{BoxFuture, ready};
use futures_util::{FutureExt, SinkExt};

use crate::agent::executor::{AskedCall, CallExecutor};
use crate::model::ToolCall;
use crate::run::Run;
use crate::tool::{Asking, Attempt, CallNotes, ToolError, ToolExecution};

/// A call in flight has recorded a value, and continues once these notes are saved.
pub(super) struct Noted {
    pub(super) call_id: String,
    pub(super) notes: CallNotes,
    pub(super) noted: oneshot::Sender<()>,
}

/// The execution of a call, or the call that asks its agent this; nothing if the run of the agent goes on.
pub(super) type Executed = Result<ToolExecution, (String, Box<AskedCall>)>;

/// Executes a call that was started.
pub(super) fn execute_call<Id: Copy + Send + Sync + 'static>(
    run: &Run,
    executor: &Arc<CallExecutor>,
    call: ToolCall,
    attempt: Attempt,
    sender: (mpsc::Sender<(Id, Noted)>, Id),
) -> BoxFuture<'static, Executed> {
    let tool = executor.tools.get(&call.name);
    let executor = Arc::clone(executor);
    if executor.agent_of(&call).is_some() {
        return match run.open_inner_run(&call.id) {
            Some(_) => {
                let note = run.notes(&call.id).and_then(CallNotes::agent).cloned().unwrap_or_default();
                let reopened = async move {
                    executor.announce(&call, &attempt).await;
                    Err((String::new(), Box::new(executor.reopen(call, attempt, note))))
                };
                reopened.boxed()
            }
            None => async move { executor.ask(call, attempt).await }.boxed(),
        };
    }
    if tool.is_some() && run.open_inner_run(&call.id).is_some() {
        // Another tool has the name now, and cannot continue the run.
        let interrupted = ToolExecution::new(call, Err(ToolError::interrupted()));
        return ready(Ok(interrupted)).boxed();
    }
    let mut asking = Asking::new(run.notes(&call.id).cloned().unwrap_or_default());
    if tool.is_some_and(CallExecutor::has_asker) {
        let call_id = call.id.clone();
        asking = asking.store(Arc::new(move |notes| {
            let ((mut sender, id), call_id) = (sender.clone(), call_id.clone());
            let stored = async move {
                let (noted, is_noted) = oneshot::channel();
                let sent = sender.send((id, Noted { call_id, notes, noted })).await;
                sent.is_ok() && is_noted.await.is_ok()
            };
            stored.boxed()
        }));
    }
    async move { Ok(executor.execute(call, attempt, asking).await) }.boxed()
}
