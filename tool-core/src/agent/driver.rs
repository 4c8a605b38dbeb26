//! Drives a run: asks the model, makes the calls, records both.

use futures_util::{SinkExt, StreamExt, stream};

use super::Event;
use super::event::EventSender;
use super::tools::RunTools;
use crate::run::{Kind, Run, RunError, Step};
use crate::{
    Answer, ChatModel, ChatRequest, ChatResponse, Delta, Message, ModelError, ToolError, ToolExecution,
};

/// Who hears of what happens on the way.
#[derive(Clone)]
pub(super) enum Listener {
    Nobody,
    Events(EventSender),
}

impl Listener {
    fn is_there(&self) -> bool {
        matches!(self, Self::Events(_))
    }

    /// Tells of an event, which is made only if somebody listens. A listener that went away took the
    /// driver with it, so there is nobody to tell of that.
    async fn hear(&mut self, event: impl FnOnce() -> Event) {
        if let Self::Events(events) = self {
            let _ = events.send(Ok(event())).await;
        }
    }
}

pub(super) async fn drive(
    mut run_tools: RunTools,
    mut run: Run,
    mut listener: Listener,
) -> Result<Answer, RunError> {
    let agent = run_tools.agent().clone();
    loop {
        // Calls are looked up in the very set that the model was offered.
        let tools = match run_tools.resolve(&run).await {
            Ok(tools) => tools,
            Err(kind) => return Err(RunError::new(kind, run)),
        };
        let recorded = match run.next(tools.definitions()) {
            Step::CallModel(request) => {
                let (turn, messages) = (run.turns() + 1, request.messages().len());
                listener.hear(|| Event::TurnStarted { turn, messages }).await;
                match ask(&*agent.0.model, &request, &mut listener).await {
                    Ok(response) => {
                        let told = listener.is_there().then(|| response.clone());
                        let recorded = run.replied(response);
                        if let Some(mut response) = told {
                            // With the ids that the run gave the calls.
                            let replies = run.messages().iter().rev();
                            let mut replies = replies.filter_map(Message::as_assistant);
                            response.message = replies.next().cloned().unwrap_or_default();
                            listener.hear(|| Event::TurnFinished { turn, response }).await;
                        }
                        recorded
                    }
                    Err(error) => return Err(RunError::new(Kind::Model(error), run)),
                }
            }
            Step::CallTools(calls) => {
                let (caller, context, tools) = (listener.clone(), run_tools.context(), &tools);
                let executions = calls.into_iter().map(|call| {
                    let mut listener = caller.clone();
                    async move {
                        let policy = tools.definitions().policy_of(&call.name);
                        if policy.is_some_and(|policy| policy.needs_approval) {
                            // Nobody is there to give it.
                            let why = "it needs the approval of a person";
                            return ToolExecution::new(call, Err(ToolError::not_made(why)));
                        }
                        listener.hear(|| Event::CallStarted(call.clone())).await;
                        tools.execute(call, context).await
                    }
                });
                let mut executions = stream::iter(executions).buffer_unordered(agent.0.max_concurrent_calls);
                let mut recorded = Ok(());
                while let Some(execution) = executions.next().await {
                    listener.hear(|| Event::CallFinished(execution.clone())).await;
                    recorded = recorded.and(run.called(execution));
                }
                recorded
            }
            Step::Done => return run.finish(),
        };
        if let Err(error) = recorded {
            return Err(RunError::new(Kind::OutOfStep(error), run));
        }
    }
}

/// Asks the model; streamed if somebody listens.
async fn ask(
    model: &dyn ChatModel,
    request: &ChatRequest<'_>,
    listener: &mut Listener,
) -> Result<ChatResponse, ModelError> {
    if !listener.is_there() {
        return model.chat(request).await;
    }
    let mut deltas = model.stream(request);
    while let Some(delta) = deltas.next().await {
        match delta? {
            Delta::Text(text) => listener.hear(|| Event::Text(text)).await,
            Delta::Reasoning(text) => listener.hear(|| Event::Reasoning(text)).await,
            Delta::Done(response) => return Ok(response),
            Delta::ToolCall { .. } | Delta::Arguments { .. } => {}
        }
    }
    Err(ModelError::new("the stream ended before the response was whole"))
}
