//! The service that executes calls, each as an invocation of its own.
//!
//! A call without the definition of its tool is refused, unless it undoes another one: the model was not offered its tool, and no rule of a
//! tool applies to it.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, select};
use restate_sdk::prelude::*;
use tool_core::tool::{Progress, ToolError, ToolExecution};
use tool_core::{Agent, CancellationToken, ToolContext, ToolSet};

use crate::events::Unfinished;
use crate::limit::limited;
use crate::names::CallInput;
use crate::path::stream_name;
use crate::settings::Settings;
use crate::step::panicked;

/// The owner of the tools.
pub(crate) enum Owner {
    Agent(Agent),
    /// A worker without an agent, and the values that its tools take from the context.
    Tools(ToolSet, ToolContext),
}

/// Executes calls for runs. It cannot be invoked from outside, because that would bypass approvals.
pub(crate) struct Calls {
    pub(crate) owner: Owner,
    pub(crate) settings: Arc<Settings>,
}

#[restate_sdk::service]
pub(crate) trait CallsService {
    async fn call(input: Json<CallInput>) -> HandlerResult<Json<ToolExecution>>;
}

impl CallsService for Calls {
    async fn call(
        &self,
        ctx: Context<'_>,
        Json(input): Json<CallInput>,
    ) -> HandlerResult<Json<ToolExecution>> {
        let undoes = input.request.undone.is_some();
        let is_first = loop {
            match is_first_execution!(ctx) {
                Ok(is_first) => break is_first,
                // An effect must not remain because somebody cancels the call that undoes it.
                Err(_) if undoes => {}
                Err(cancelled) => return Err(cancelled.into()),
            }
        };
        let unfinished = Unfinished::default();
        // A cancelled step returns nothing to its caller, so the outcome is left here.
        let executed: Arc<Mutex<Option<ToolExecution>>> = Arc::default();
        if is_first {
            let execution = self.execute_until(input.clone(), ctx.signal("cancelled"), &unfinished).await;
            *executed.lock().unwrap_or_else(PoisonError::into_inner) = Some(execution);
        }
        let recorded = loop {
            // The journal may have the outcome already: it is then returned, and the tool is not executed.
            let (input, executed, published) = (input.clone(), Arc::clone(&executed), unfinished.clone());
            let cancelled = ctx.signal("cancelled");
            // Boxed, because the compiler cannot prove for every lifetime that the future is `Send`.
            let execute = move || -> BoxFuture<'_, HandlerResult<Json<ToolExecution>>> {
                Box::pin(async move {
                    let earlier = executed.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    let execution = match earlier {
                        Some(execution) => execution,
                        None if input.at_most_once => {
                            ToolExecution::new(input.request.call, Err(ToolError::outcome_unknown()))
                        }
                        None => self.execute_until(input, cancelled, &published).await,
                    };
                    *executed.lock().unwrap_or_else(PoisonError::into_inner) = Some(execution.clone());
                    Ok(Json(execution))
                })
            };
            match ctx.run(execute).name("outcome").await {
                // Cancelled after it was executed.
                Err(_) if undoes || is_first => {}
                recorded => break recorded,
            }
        };
        unfinished.finish().await;
        Ok(recorded?)
    }
}

impl Calls {
    /// Executes a call. Its tool must be the one that the model was offered.
    pub(crate) async fn execute(
        &self,
        input: CallInput,
        cancellation: &CancellationToken,
        unfinished: &Unfinished,
    ) -> ToolExecution {
        let publisher = self.settings.publisher.as_ref().zip(input.events.as_ref());
        let publishing = publisher.map(|(publisher, target)| {
            publisher.begin(target, stream_name(&input.path, "call", &input.request.call.id), None)
        });
        let call = input.request.call.clone();
        let progress =
            publishing.as_ref().map(|publishing| publishing.progress(&input.path, &call)).unwrap_or_default();
        // The engine would repeat a call whose hook, handler of errors or provider panics without end.
        let executed = AssertUnwindSafe(self.execute_with(input, cancellation, progress));
        let execution = executed
            .catch_unwind()
            .await
            .unwrap_or_else(|panic| ToolExecution::new(call, Err(ToolError::fatal(panicked(&*panic)))));
        if let Some(publishing) = publishing {
            unfinished.add(publishing);
        }
        execution
    }

    async fn execute_with(
        &self,
        input: CallInput,
        cancellation: &CancellationToken,
        progress: Progress,
    ) -> ToolExecution {
        let CallInput { mut request, definition, offered, context, agent: names, .. } = input;
        // The rules for approval and the like come from the recorded definition: without it, there are none.
        if definition.is_none() && request.undone.is_none() {
            let error = ToolError::unknown_tool(&request.call.name, offered.iter().map(|name| &**name));
            return ToolExecution::new(request.call, Err(error));
        }
        request.definition = definition;
        let values = match &self.owner {
            Owner::Agent(_) => ToolContext::new(),
            Owner::Tools(_, values) => values.clone(),
        };
        let context = match self.settings.types.apply_to_call(values, &context) {
            Ok(context) => context,
            Err(reason) => return ToolExecution::new(request.call, Err(ToolError::not_executed(&reason))),
        };
        match &self.owner {
            Owner::Agent(agent) => {
                let names: Vec<_> = names.iter().map(|name| &**name).collect();
                agent.execute_request(&names, request, &context, cancellation, progress).await
            }
            Owner::Tools(tools, _) => tools.execute_request(request, &context, cancellation, progress).await,
        }
    }

    /// Executes a call until its invocation is cancelled, unless it undoes another one.
    ///
    /// Nothing resolves the signal: it fails when the invocation is cancelled, which a recorded step does not notice.
    async fn execute_until(
        &self,
        input: CallInput,
        cancelled: impl Future<Output = Result<(), TerminalError>> + Send,
        unfinished: &Unfinished,
    ) -> ToolExecution {
        let (call, undoes) = (input.request.call.clone(), input.request.undone.is_some());
        let cancellation = CancellationToken::new();
        let execution = self.execute(input, &cancellation, unfinished);
        let execution = if undoes {
            execution.await
        } else {
            match select(std::pin::pin!(execution), std::pin::pin!(cancelled)).await {
                Either::Left((execution, _)) => execution,
                Either::Right(_) => {
                    cancellation.cancel();
                    ToolExecution::new(call, Err(ToolError::interrupted()))
                }
            }
        };
        limited(execution, self.settings.max_bytes)
    }
}

/// Records that execution begins. Evaluates to `true` if no earlier execution of the handler has recorded it. A macro, because the
/// SDK's futures are `Send` only for a context of a known type.
macro_rules! is_first_execution {
    ($ctx:expr) => {{
        // Belongs to this execution of the handler: a replay does not run the closure.
        let is_first = ::std::sync::Arc::new(::std::sync::atomic::AtomicBool::new(false));
        let begun = ::std::sync::Arc::clone(&is_first);
        let record = move || async move {
            begun.store(true, ::std::sync::atomic::Ordering::SeqCst);
            Ok(())
        };
        let recorded = $ctx.run(record).name("begin").await;
        recorded.map(|()| is_first.load(::std::sync::atomic::Ordering::SeqCst))
    }};
}
pub(crate) use is_first_execution;
