//! Drives one scripted case in all three ways: awaited, streamed, and by hand with the run serialised and restored
//! between any two steps. All three must come to the same, tell the same events and ask the same of a person.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tool_core::agent::AgentBuilder;
use tool_core::run::{Run, Step};
use tool_core::tool::ToolExecution;
use tool_core::{Agent, Answer, Approval, Event, Message, RunError, RunErrorKind, ToolCall};

/// What a run came to, in a form that can be compared: times differ from run to run.
pub fn summary(outcome: &Result<Answer, RunError>) -> Value {
    match outcome {
        Ok(answer) => json!({
            "text": answer.text(),
            "finish_reason": answer.finish_reason(),
            "executions": executions(answer.tool_executions()),
            "usage": answer.usage(),
            "turns": answer.turns(),
            "messages": answer.messages(),
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
    })
}

fn executions(made: &[ToolExecution]) -> Value {
    let summary = |one: &ToolExecution| {
        let outcome = match one.outcome() {
            Ok(output) => output.to_string(),
            Err(error) => format!("{:?}: {error}", error.kind()),
        };
        json!([one.call(), outcome, one.attempts(), one.is_reused(), one.original_arguments()])
    };
    made.iter().map(summary).collect()
}

/// Serialises and restores a run.
pub fn restored(run: Run) -> Run {
    let state = serde_json::to_string(&run).unwrap();
    let run: Run = serde_json::from_str(&state).unwrap();
    assert_eq!(serde_json::to_string(&run).unwrap(), state);
    run
}

/// What was told, but what only a stream tells, in an order of its own: calls of one turn may come in any.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn note(&self, event: &Event) {
        let told = match event {
            Event::TurnStarted { turn, messages, .. } => format!("turn {turn} of {messages}"),
            Event::TurnFinished { turn, .. } => format!("turn {turn} finished"),
            Event::CallReady(call) => format!("ready {}", call.id),
            Event::CallStarted(call) => format!("started {}", call.id),
            Event::CallRetried(execution) => format!("again {}", execution.call().id),
            Event::CallFinished(execution) => format!("finished {}", execution.call().id),
            Event::ApprovalNeeded(calls) => format!("approval of {}", calls.len()),
            Event::Done(answer) => format!("done {}", answer.text()),
            Event::Failed(_) => "failed".into(),
            _ => return,
        };
        self.0.lock().unwrap().push(told);
    }

    fn take(&self) -> Vec<String> {
        let mut told = std::mem::take(&mut *self.0.lock().unwrap());
        // How often it is said that something is waited for depends on who waits.
        told.retain(|one| !one.starts_with("approval of") && one != "failed");
        told.sort();
        told
    }
}

/// What a person says to a call.
pub type Decide = fn(&ToolCall) -> Approval;

fn decide(run: &mut Run, say: Decide) {
    let waiting: Vec<_> = run.awaiting_approval().cloned().collect();
    assert!(!waiting.is_empty());
    for call in waiting {
        run.resolve_approval(&call.id, say(&call)).unwrap();
    }
}

/// Awaits the answer to a question; approvals are decided by `say`.
pub async fn await_it(agent: &Agent, question: &str, say: Decide) -> Result<Answer, RunError> {
    let mut outcome = agent.ask(question).await;
    loop {
        match outcome {
            Err(error) if matches!(error.kind(), RunErrorKind::ApprovalNeeded) => {
                let mut run = restored(error.into_run());
                decide(&mut run, say);
                outcome = agent.resume(run).await;
            }
            outcome => return outcome,
        }
    }
}

async fn read_to_the_end(mut events: tool_core::agent::EventStream) -> Result<Answer, RunError> {
    while let Some(event) = events.next().await {
        if let Event::Done(answer) = event? {
            assert!(events.next().await.is_none(), "there is nothing behind the end");
            return Ok(answer);
        }
    }
    panic!("the stream ended without an end");
}

/// Reads the stream of the answer to a question; approvals are decided by `say`.
pub async fn stream_it(agent: &Agent, question: &str, say: Decide) -> Result<Answer, RunError> {
    let mut outcome = read_to_the_end(agent.ask(question).stream()).await;
    loop {
        match outcome {
            Err(error) if matches!(error.kind(), RunErrorKind::ApprovalNeeded) => {
                let mut run = restored(error.into_run());
                decide(&mut run, say);
                outcome = read_to_the_end(agent.resume(run).stream()).await;
            }
            outcome => return outcome,
        }
    }
}

/// Why a loop by hand ends without an answer: the run says so, or the caller's own model fails.
enum Stopped {
    Run(RunError),
    Model(String, Box<Run>),
}

impl From<RunError> for Stopped {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

/// Drives by hand; should the model fail, the agent asks it once more and says so.
pub async fn drive_it(agent: &Agent, question: &str, say: Decide) -> Result<Answer, RunError> {
    match drive_by_hand(agent, question, say).await {
        Ok(answer) => Ok(answer),
        Err(Stopped::Run(error)) => Err(error),
        Err(Stopped::Model(_, run)) => agent.resume(*run).await,
    }
}

/// The calls of a turn are made in the opposite order, and the run is restored between any two of them.
async fn drive_by_hand(agent: &Agent, question: &str, say: Decide) -> Result<Answer, Stopped> {
    let mut run = agent.start(question);
    loop {
        match run.next().await? {
            Step::CallModel(request) => match agent.model().chat(&request).await {
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
            Step::NeedsApproval(calls) => {
                for call in calls {
                    run.resolve_approval(&call.id, say(&call)).unwrap();
                }
            }
            Step::Done => return Ok(run.finish().await?),
            other => panic!("there is no such step: {other:?}"),
        }
        run = agent.resume(restored(run.into_run())).start();
    }
}

/// Runs a case in all three ways, each with an agent of its own, and gives what the first came to.
pub async fn in_all_ways(build: impl Fn() -> AgentBuilder, say: Decide) -> Result<Answer, RunError> {
    let question = "What now?";
    let told = Told::default();
    let agent = || {
        let told = told.clone();
        build().on_event(move |event| told.note(event)).build().unwrap()
    };
    let awaited = await_it(&agent(), question, say).await;
    let events = told.take();
    assert_valid(messages(&awaited));
    let streamed = stream_it(&agent(), question, say).await;
    assert_eq!(summary(&awaited), summary(&streamed), "awaited and streamed");
    assert_eq!(events, told.take(), "awaited and streamed");
    let driven = match drive_by_hand(&agent(), question, say).await {
        Ok(answer) => summary(&Ok(answer)),
        Err(Stopped::Run(error)) => summary(&Err(error)),
        Err(Stopped::Model(error, run)) => failure(error, &run),
    };
    assert_eq!(summary(&awaited), driven, "awaited and by hand");
    // Who drives by hand may start a turn again after each restoration.
    let mut by_hand = told.take();
    by_hand.dedup_by(|one, other| one == other && one.contains(" of "));
    assert_eq!(events, by_hand, "awaited and by hand");
    awaited
}

/// The same for a case in which nobody has to approve anything.
pub async fn alike(build: impl Fn() -> AgentBuilder) -> Result<Answer, RunError> {
    in_all_ways(build, |_| panic!("nobody has to approve this")).await
}

fn messages(outcome: &Result<Answer, RunError>) -> &[Message] {
    match outcome {
        Ok(answer) => answer.messages(),
        Err(error) => error.messages(),
    }
}

/// Every call has one result right behind it, so that the next request is one that an API accepts.
pub fn assert_valid(messages: &[Message]) {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match message {
            Message::Tool(result) => {
                let found = open.iter().position(|id| *id == result.call_id);
                open.remove(found.expect("a result is of an open call"));
            }
            _ => assert!(open.is_empty(), "calls have no result: {open:?}"),
        }
        if let Message::Assistant(message) = message {
            open.extend(message.tool_calls.iter().map(|call| &*call.id));
        }
    }
    assert!(open.is_empty(), "calls have no result: {open:?}");
}
