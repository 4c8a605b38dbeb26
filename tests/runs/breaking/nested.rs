//! Tools that ask a model: an agent as a tool of another agent, and of itself.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tool_core::agent::AgentBuilder;
use tool_core::model::ConversationId;
use tool_core::run::{ErrorPolicy, StopReason};
use tool_core::tool::ToolErrorKind;
use tool_core::{Agent, CancellationToken, ChatMemory, RunErrorKind, tool, tools};

use super::{Puppet, call, conversation, in_all_ways};
use tests::support::ways::assert_valid;

/// The agent that a tool asks.
#[derive(Clone)]
struct Inner(Agent);

#[tool]
async fn delegate(
    question: String,
    #[inject] inner: &Inner,
    #[inject] cancellation: &CancellationToken,
) -> Result<String, String> {
    let answer = inner.0.ask(question).cancellation_token(cancellation.clone()).await;
    answer.map(|answer| answer.text().to_owned()).map_err(|error| error.to_string())
}

#[tool]
fn look() -> &'static str {
    "seen"
}

#[tool]
fn panics() {
    panic!("secret")
}

fn inner(calls: fn(usize) -> Vec<tool_core::ToolCall>) -> Inner {
    let agent = Agent::builder(Puppet::calling(calls)).tools(tools![look, panics]);
    Inner(agent.build().unwrap())
}

fn outer(inner: Inner) -> AgentBuilder {
    let delegate = |id| call(id, "delegate", r#"{"question": "What now?"}"#);
    let model = Puppet::calling(move |turn| match turn {
        0 => vec![delegate("a"), delegate("b")],
        _ => vec![],
    });
    Agent::builder(model).tools(tools![delegate]).context(inner)
}

#[tokio::test]
async fn the_outcome_of_an_inner_run_is_its_tools_result() {
    let one_look = || inner(|turn| if turn == 0 { vec![call("a", "look", "{}")] } else { vec![] });
    let answer = in_all_ways(|| outer(one_look())).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "That was all.");

    let for_ever = || inner(|turn| vec![call("", ["look", "panics"][turn % 2], "{}")]);
    let answer = in_all_ways(|| outer(for_ever())).await.unwrap();
    assert!(answer.new_messages()[2].text().starts_with("the model still called tools after 10 turns"));
    let model = Puppet::calling(|turn| match turn {
        0 => vec![call("a", "delegate", r#"{"question": "What now?"}"#)],
        _ => vec![],
    });
    let build = || Agent::builder(model.clone()).tools(tools![delegate]).context(for_ever());
    let error =
        in_all_ways(|| build().error_policy(ToolErrorKind::Failed, ErrorPolicy::EndRun)).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::ToolFailed { .. })));
}

/// The state of an inner tool that a test observes.
#[derive(Default)]
struct Watched {
    is_started: AtomicBool,
    is_dropped: AtomicBool,
    is_cancelled: AtomicBool,
}

/// Reports that the future of a call was dropped.
struct Guard(Arc<Watched>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.is_dropped.store(true, Ordering::SeqCst);
    }
}

#[tool]
async fn watch(#[inject] watched: &Arc<Watched>, #[inject] cancellation: &CancellationToken) {
    let _guard = Guard(Arc::clone(watched));
    watched.is_started.store(true, Ordering::SeqCst);
    // Work that the tool has started elsewhere is notified.
    let (seen, cancelled) = (Arc::clone(watched), cancellation.clone().cancelled_owned());
    tokio::spawn(async move {
        cancelled.await;
        seen.is_cancelled.store(true, Ordering::SeqCst);
    });
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_reaches_the_innermost_tool() {
    for is_dropped in [false, true] {
        let watched = Arc::new(Watched::default());
        let innermost = Agent::builder(Puppet::calling(|_| vec![call("a", "watch", "{}")]))
            .tools(tools![watch])
            .context(Arc::clone(&watched));
        let middle = Agent::builder(Puppet::calling(|_| vec![call("a", "delegate", r#"{"question": ""}"#)]))
            .tools(tools![delegate])
            .context(Inner(innermost.build().unwrap()));
        let agent = outer(Inner(middle.build().unwrap())).build().unwrap();

        let cancellation = CancellationToken::new();
        let ask = agent.ask("What now?").cancellation_token(cancellation.clone()).into_future();
        let asked = tokio::spawn(ask);
        while !watched.is_started.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        if is_dropped {
            asked.abort();
            assert!(asked.await.unwrap_err().is_cancelled());
        } else {
            cancellation.cancel();
            let error = tokio::time::timeout(Duration::from_secs(5), asked).await.unwrap();
            let error = error.unwrap().unwrap_err();
            assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)), "{error}");
            assert_valid(error.new_messages());
        }
        assert!(watched.is_dropped.load(Ordering::SeqCst));
        tokio::time::timeout(Duration::from_secs(5), async {
            while !watched.is_cancelled.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
    }
}

static ASKED: AtomicU32 = AtomicU32::new(0);

/// Asks the agent that offers this tool, in its own conversation.
#[tool]
async fn ask_again(depth: u32, #[inject] agent: &Arc<OnceLock<Agent>>) -> Result<String, String> {
    ASKED.fetch_add(1, Ordering::SeqCst);
    let agent = agent.get().ok_or("there is no agent yet")?;
    let asked = agent.ask(format!("{} more", depth - 1)).conversation(format!("depth {depth}")).await;
    asked.map(|answer| answer.text().to_owned()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn an_agent_can_be_its_own_tool() {
    let memory = ChatMemory::in_memory();
    let model = Puppet::new(|turn, request| {
        let question = request.messages().iter().rfind(|one| matches!(one, tool_core::Message::User(_)));
        let question = question.unwrap().text();
        let depth: u32 = question.split(' ').next().unwrap().parse().unwrap();
        let calls = match turn {
            0 if depth > 0 => vec![call("a", "ask_again", &format!(r#"{{"depth": {depth}}}"#))],
            _ => vec![],
        };
        Ok(super::reply(calls))
    });
    let itself = Arc::new(OnceLock::new());
    let agent = Agent::builder(model).tools(tools![ask_again]).memory(memory.clone()).context(itself.clone());
    let agent = agent.build().unwrap();
    itself.set(agent.clone()).unwrap();
    let answer = agent.ask("12 more").conversation(conversation()).await.unwrap();
    assert_eq!((answer.text(), ASKED.load(Ordering::SeqCst)), ("That was all.", 12));
    for depth in 1..=12 {
        let stored = memory.messages(&ConversationId::new(format!("depth {depth}"))).await.unwrap();
        assert_eq!(stored.len(), if depth == 1 { 2 } else { 4 });
        assert_valid(&stored);
    }
}

/// A tool that asks on the conversation of its own call waits for itself; a time limit ends the wait.
#[tokio::test(start_paused = true)]
async fn a_time_limit_ends_a_wait_for_itself() {
    #[tool]
    async fn ask_here(
        #[inject] agent: &Arc<OnceLock<Agent>>,
        #[inject] id: &ConversationId,
    ) -> Result<String, String> {
        let agent = agent.get().ok_or("there is no agent yet")?;
        let asked = agent.ask("What now?").conversation(id.clone()).await;
        asked.map(|answer| answer.text().to_owned()).map_err(|error| error.to_string())
    }
    let itself = Arc::new(OnceLock::new());
    let model = Puppet::calling(|turn| if turn == 0 { vec![call("a", "ask_here", "{}")] } else { vec![] });
    let agent = Agent::builder(model).tools(tools![ask_here]).memory(ChatMemory::in_memory());
    let agent =
        agent.context(itself.clone()).limits(|l| l.max_time(Duration::from_millis(60))).build().unwrap();
    itself.set(agent.clone()).unwrap();
    let asked = tokio::time::timeout(Duration::from_secs(5), agent.ask("What now?").conversation("x"));
    match asked.await.expect("the wait is limited") {
        Ok(answer) => assert!(answer.new_messages()[2].text().contains("took longer")),
        Err(error) => assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTime(_)))),
    }
}
