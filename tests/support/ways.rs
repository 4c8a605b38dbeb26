//! Drives one scripted case in all three ways: awaited, streamed, and step by step with the run serialized and restored
//! between any two steps. All three must produce the same outcome and events, and require the same approvals.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tool_core::agent::AgentBuilder;
use tool_core::engine::{AgentExt, InnerRun};
use tool_core::layer::LayerPhase;
use tool_core::run::{Decision, Run, Step, Wait, WaitReason};
use tool_core::tool::{OutcomeOrigin, ToolExecution};
use tool_core::{Agent, Answer, Event, Message, RunError, RunErrorKind, ToolCall};

/// Returns the outcome of a run in a comparable form, without times.
pub fn summary(outcome: &Result<Answer, RunError>) -> Value {
    match outcome {
        Ok(answer) => json!({
            "text": answer.text(),
            "finish_reason": answer.finish_reason(),
            "executions": executions(answer.tool_executions()),
            "usage": answer.usage(),
            "turns": answer.turns(),
            "messages": answer.new_messages(),
            "handoffs": answer.handoffs().iter().map(|handoff| handoff.agent()).collect::<Vec<_>>(),
            "inside": inner_runs(answer.inner_runs()),
        }),
        Err(error) => failure(format!("{error:?}"), error.run()),
    }
}

fn failure(error: String, run: &Run) -> Value {
    json!({
        "error": error,
        "executions": executions(run.tool_executions()),
        "undone": executions(run.undo_executions()),
        "messages": run.new_messages(),
        "usage": run.usage(),
        "turns": run.turns(),
        "handoffs": run.handoffs().iter().map(|handoff| handoff.agent()).collect::<Vec<_>>(),
        "inside": inner_runs(run.inner_runs()),
    })
}

/// Returns the whole records of runs inside, in the order of their calls, because these begin in any order.
fn inner_runs<'a>(inner: impl IntoIterator<Item = &'a InnerRun>) -> Vec<Value> {
    let mut inner: Vec<_> = inner.into_iter().collect();
    inner.sort_by_key(|inner| inner.call_id());
    inner
        .into_iter()
        .map(|inner| json!([inner.call_id(), inner.agent(), failure(String::new(), inner.run())]))
        .collect()
}

fn executions(executions: &[ToolExecution]) -> Value {
    let summary = |execution: &ToolExecution| {
        let outcome = match execution.outcome() {
            Ok(output) => output.to_string(),
            Err(error) => format!("{:?}: {error}", error.kind()),
        };
        json!([
            execution.call(),
            outcome,
            execution.attempts(),
            execution.origin() == OutcomeOrigin::Recorded,
            execution.original_arguments()
        ])
    };
    executions.iter().map(summary).collect()
}

/// Serializes and restores a run.
pub fn restored(run: Run) -> Run {
    let state = serde_json::to_string(&run).unwrap();
    let run: Run = serde_json::from_str(&state).unwrap();
    assert_eq!(serde_json::to_string(&run).unwrap(), state);
    run
}

/// The events of a run, sorted because calls of one turn finish in any order, without those that only a stream emits.
#[derive(Clone, Default)]
struct RecordedEvents(Arc<Mutex<Vec<String>>>);

impl RecordedEvents {
    fn record(&self, event: &Event) {
        let line = match event {
            Event::TurnStarted { turn, messages, .. } => format!("turn {turn} of {messages}"),
            Event::TurnFinished { turn, .. } => format!("turn {turn} finished"),
            Event::CallReady { call, .. } => format!("ready {}", call.id),
            Event::CallStarted(call) => format!("started {}", call.id),
            Event::CallRetried(execution) => format!("again {}", execution.call().id),
            Event::CallFinished(execution) => format!("finished {}", execution.call().id),
            Event::Compacted { outputs, messages, .. } => format!("compacted {outputs} and {messages}"),
            Event::Waiting(waits) => format!("waits for {}", waits.len()),
            Event::Done(answer) => format!("done {}", answer.text()),
            Event::Failed(_) => "failed".into(),
            _ => return,
        };
        self.0.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        let mut events = std::mem::take(&mut *self.0.lock().unwrap());
        // The number of reports of a wait depends on how the run is driven.
        events.retain(|event: &String| !event.starts_with("waits for") && event != "failed");
        events.sort();
        events
    }
}

/// Approves or denies a call.
pub type Decide = fn(&ToolCall) -> Decision;

/// Decides about what a run waits for. Nothing cancels the run.
pub type Resolve<'a> = &'a (dyn Fn(&Wait) -> Option<Decision> + Sync);

/// Decides about calls that await approval.
fn approvals(decide: Decide) -> impl Fn(&Wait) -> Option<Decision> {
    move |wait| match &wait.reason {
        WaitReason::Approval(call) => {
            Some(decide(&ToolCall::new(&*wait.path, &*call.name, &*call.arguments)))
        }
        other => panic!("unexpected wait: {other:?}"),
    }
}

/// Decides about all that a run waits for.
pub fn resolve_all(run: &mut Run, resolve: Resolve<'_>) {
    let waits = run.waits();
    assert!(!waits.is_empty());
    for wait in waits {
        match resolve(&wait) {
            Some(decision) => run.resolve(&wait.id, decision).unwrap(),
            None => run.cancel(),
        }
    }
}

/// Awaits the answer to a question, with approvals by `decision`.
pub async fn await_it(agent: &Agent, question: &str, decision: Decide) -> Result<Answer, RunError> {
    await_resolved(agent, question, &approvals(decision)).await
}

/// Awaits the answer to a question, with a decision about each wait.
pub async fn await_resolved(agent: &Agent, question: &str, resolve: Resolve<'_>) -> Result<Answer, RunError> {
    let mut outcome = agent.ask(question).await;
    loop {
        match outcome {
            Err(error) if matches!(error.kind(), RunErrorKind::Waiting) => {
                let mut run = restored(error.into_run());
                resolve_all(&mut run, resolve);
                outcome = agent.resume(run).await;
            }
            outcome => return outcome,
        }
    }
}

async fn read_to_the_end(mut events: tool_core::agent::EventStream) -> Result<Answer, RunError> {
    while let Some(event) = events.next().await {
        if let Event::Done(answer) = event? {
            assert!(events.next().await.is_none(), "the stream continued after its end");
            return Ok(answer);
        }
    }
    panic!("the stream ended without an answer or error");
}

/// Reads the stream of the answer to a question, with approvals by `decision`.
pub async fn stream_it(agent: &Agent, question: &str, decision: Decide) -> Result<Answer, RunError> {
    stream_resolved(agent, question, &approvals(decision)).await
}

async fn stream_resolved(agent: &Agent, question: &str, resolve: Resolve<'_>) -> Result<Answer, RunError> {
    let mut outcome = read_to_the_end(agent.ask(question).stream()).await;
    loop {
        match outcome {
            Err(error) if matches!(error.kind(), RunErrorKind::Waiting) => {
                let mut run = restored(error.into_run());
                resolve_all(&mut run, resolve);
                outcome = read_to_the_end(agent.resume(run).stream()).await;
            }
            outcome => return outcome,
        }
    }
}

/// The reason why a run driven step by step ended without an answer.
enum Stopped {
    Run(RunError),
    Model(String, Box<Run>),
}

impl From<RunError> for Stopped {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

/// Drives a run step by step. If the model fails, the agent resumes the run and reports the failure.
pub async fn drive_it(agent: &Agent, question: &str, decision: Decide) -> Result<Answer, RunError> {
    match drive_in_steps(agent, question, &approvals(decision)).await {
        Ok(answer) => Ok(answer),
        Err(Stopped::Run(error)) => Err(error),
        Err(Stopped::Model(_, run)) => agent.resume(*run).await,
    }
}

/// Executes the calls of a turn in reverse order and restores the run between any two of them.
async fn drive_in_steps(agent: &Agent, question: &str, resolve: Resolve<'_>) -> Result<Answer, Stopped> {
    let mut run = agent.ask(question).start();
    loop {
        let model = run.agent().clone();
        match run.next().await? {
            // No way leads past a layer.
            Step::CallModel(_) if model.has_layer_for(LayerPhase::Model) => {
                let response = run.call_model().await?;
                run.record_response(response).await?;
            }
            Step::CallModel(request) => match model.model().chat(&request).await {
                Ok(response) => run.record_response(response).await?,
                Err(error) => {
                    let error = format!("the request to the model failed: {error}");
                    return Err(Stopped::Model(error, Box::new(run.into_run())));
                }
            },
            Step::CallTools(mut calls) => {
                let execution = run.execute(calls.pop().unwrap()).await?;
                run.record_result(execution).await?;
            }
            Step::Waiting(waits) => {
                for wait in waits {
                    match resolve(&wait) {
                        Some(decision) => run.resolve(&wait.id, decision).unwrap(),
                        None => run.cancel(),
                    }
                }
            }
            Step::Done => return Ok(run.finish().await?),
            other => panic!("unknown step: {other:?}"),
        }
        run = agent.resume(restored(run.into_run())).start();
    }
}

/// Runs a case in all three ways, each with its own agent, and returns the outcome of the first.
pub async fn in_all_ways(build: impl Fn() -> AgentBuilder, decision: Decide) -> Result<Answer, RunError> {
    resolved_in_all_ways(build, &approvals(decision)).await
}

/// Runs a case in all three ways, like [`in_all_ways`], with a decision about each wait.
pub async fn resolved_in_all_ways(
    build: impl Fn() -> AgentBuilder,
    resolve: Resolve<'_>,
) -> Result<Answer, RunError> {
    let question = "What now?";
    let recorded = RecordedEvents::default();
    let agent = || {
        let recorded = recorded.clone();
        build().on_event(move |event| recorded.record(event)).build().unwrap()
    };
    let awaited = await_resolved(&agent(), question, resolve).await;
    let events = recorded.take();
    assert_valid(messages(&awaited));
    let streamed = stream_resolved(&agent(), question, resolve).await;
    assert_eq!(summary(&awaited), summary(&streamed), "awaited and streamed");
    assert_eq!(events, recorded.take(), "awaited and streamed");
    let driven = match drive_in_steps(&agent(), question, resolve).await {
        Ok(answer) => summary(&Ok(answer)),
        Err(Stopped::Run(error)) => summary(&Err(error)),
        Err(Stopped::Model(error, run)) => failure(error, &run),
    };
    assert_eq!(summary(&awaited), driven, "awaited and step by step");
    // A run that is driven step by step may start a turn again after each restoration.
    let mut driven_events = recorded.take();
    driven_events.dedup_by(|one, other| one == other && one.contains(" of "));
    assert_eq!(events, driven_events, "awaited and step by step");
    awaited
}

/// Runs a case that requires no approvals in all three ways; see [`in_all_ways`].
pub async fn alike(build: impl Fn() -> AgentBuilder) -> Result<Answer, RunError> {
    in_all_ways(build, |_| panic!("no approval is expected")).await
}

fn messages(outcome: &Result<Answer, RunError>) -> &[Message] {
    match outcome {
        Ok(answer) => answer.new_messages(),
        Err(error) => error.new_messages(),
    }
}

/// Panics unless the results of each turn's calls follow it directly, as the APIs require.
pub fn assert_valid(messages: &[Message]) {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match message {
            Message::Tool(result) => {
                let found = open.iter().position(|id| *id == result.call_id);
                open.remove(found.expect("a result belongs to an open call"));
            }
            _ => assert!(open.is_empty(), "calls have no result: {open:?}"),
        }
        if let Message::Assistant(message) = message {
            open.extend(message.tool_calls.iter().map(|call| &*call.id));
        }
    }
    assert!(open.is_empty(), "calls have no result: {open:?}");
}
