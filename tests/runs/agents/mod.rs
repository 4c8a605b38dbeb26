//! Agents as tools of others: their runs are part of the state of the outer run.

mod approvals;
mod around;
mod handoffs;
mod rules;
mod undoing;

use std::collections::HashSet;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tests::support::deciding::{Decide, Waiting};
use tests::support::sampling::size;
use tests::support::stores::EveryState;
use tests::support::ways::{alike, await_it, drive_it, in_all_ways, restored, stream_it};
use tool_core::agent::{AgentBuilder, AgentTool, Ask, on_approval};
use tool_core::layer::{CallVerdict, guard};
use tool_core::memory::{InMemoryStore, RunFilter, RunSummary};
use tool_core::model::{
    AssistantMessage, ChatRequest, ChatResponse, Currency, FinishReason, ModelOptions, ModelPrices, Prices,
    Usage,
};
use tool_core::provider::ModelFuture;
use tool_core::run::{Decision, Run, RunLimits, Step, StopReason};
use tool_core::signatures::Timestamp;
use tool_core::store::{RunChanges, RunLog, RunRevision, RunStore, SaveOutcome, StoreFuture};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Asker, CallToUndo, IdempotencyKey, ToolExecution, ToolFuture};
use tool_core::{
    Agent, Answer, CancellationToken, ChatMemory, ChatModel, ConversationId, Event, FunctionTool, Message,
    RunErrorKind, Tool, ToolCall, ToolError, ToolSet, tool, tools,
};

#[tool("Finds an invoice")]
fn find_invoice(number: u32) -> String {
    format!("invoice {number}: 700 cents")
}

#[tool("Refunds an invoice", needs_approval)]
fn refund(number: u32) -> String {
    format!("refunded {number}")
}

const QUESTION: &str = r#"{"question": "What is invoice 7?"}"#;

fn billing(model: ScriptedModel) -> AgentBuilder {
    Agent::builder(model).instructions("You answer for billing.").tools(tools![find_invoice, refund])
}

/// Returns an outer agent that asks another.
fn desk(model: ScriptedModel, inner: AgentBuilder) -> AgentBuilder {
    let inner = inner.build().unwrap();
    Agent::builder(model)
        .tools(inner.as_tool("billing", "Answers questions about invoices").limits(|l| l.max_turns(5)))
}

fn asks() -> ScriptedModel {
    ScriptedModel::new().calls("billing", QUESTION).says("It is paid.")
}

fn refunds() -> ScriptedModel {
    ScriptedModel::new()
        .calls("find_invoice", r#"{"number": 7}"#)
        .calls("refund", r#"{"number": 7}"#)
        .says("Refunded.")
}

#[tokio::test]
async fn the_model_reads_that_an_answer_was_cut_off() {
    for (text, finish_reason, expected) in [
        ("It is", FinishReason::Length, "It is\n\n(the answer was cut off here)"),
        ("It is", FinishReason::ContentFilter, "It is\n\n(the answer was cut off here)"),
        ("", FinishReason::Length, "the agent gave no answer: it was cut off"),
        ("It is paid.", FinishReason::Stop, "It is paid."),
    ] {
        let response = ChatResponse::new(AssistantMessage::text(text)).with_finish_reason(finish_reason);
        let inner = ScriptedModel::new().replies(response);
        let answer = desk(asks(), billing(inner)).build().unwrap().ask("?").await.unwrap();
        assert_eq!(answer.new_messages()[2].text(), expected);
    }
    #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    struct Question {
        question: String,
    }
    let ask = async |text: &str, typed: fn(AgentTool) -> AgentTool| {
        let response =
            ChatResponse::new(AssistantMessage::text(text)).with_finish_reason(FinishReason::Length);
        let inner = billing(ScriptedModel::new().replies(response)).build().unwrap();
        let agent = Agent::builder(asks()).tools(typed(inner.as_tool("billing", "Answers"))).build().unwrap();
        agent.ask("?").await.unwrap().new_messages()[2].text().into_owned()
    };
    // A number or a word could be the beginning of a longer one.
    let cut_off = "the answer of the agent was cut off";
    assert_eq!(ask("12", AgentTool::typed::<Question, u32>).await, cut_off);
    assert_eq!(ask("12", AgentTool::typed::<Question, Vec<u32>>).await, cut_off);
    assert_eq!(ask("Red", AgentTool::typed::<Question, String>).await, cut_off);
    assert_eq!(ask(r#"{"answer":12}"#, AgentTool::typed::<Question, u32>).await, "12");
    assert_eq!(ask(" [12]", AgentTool::typed::<Question, Vec<u32>>).await, "[12]");
    assert_eq!(ask(r#""Red""#, AgentTool::typed::<Question, String>).await, r#""Red""#);
}

#[tokio::test]
async fn an_agent_answers_as_a_tool() {
    let inner = || ScriptedModel::new().calls("find_invoice", r#"{"number": 7}"#).says("700 cents.");
    let answer = alike(|| desk(asks(), billing(inner()))).await.unwrap();
    assert_eq!(answer.text(), "It is paid.");
    assert_eq!(answer.new_messages()[2].text(), "700 cents.");
    assert_eq!(answer.tool_executions().len(), 1);
    let [inner] = answer.inner_runs() else { panic!("one agent was asked") };
    assert_eq!((inner.agent(), inner.call_id()), ("billing", &*answer.tool_executions()[0].call().id));
    let messages: Vec<_> = inner.run().messages().iter().map(|one| one.text().into_owned()).collect();
    let expected =
        ["You answer for billing.", "What is invoice 7?", "", "invoice 7: 700 cents", "700 cents."];
    assert_eq!(messages, expected);
    assert_eq!(inner.run().tool_executions()[0].call().name, "find_invoice");
}

#[tokio::test]
async fn a_refusal_of_the_agent_is_no_output() {
    let refusal = || ChatResponse::new(AssistantMessage::refusal("I will not."));
    let answer = alike(|| desk(asks(), billing(ScriptedModel::new().replies(refusal())))).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "the agent gave no answer: it refused to answer");
    assert!(answer.tool_executions()[0].outcome().is_err());
}

/// A model whose reply depends on the request alone, so that a restored run continues as the first one would have.
#[derive(Clone)]
struct Replies(&'static [&'static [(&'static str, &'static str)]], &'static str);

impl ChatModel for Replies {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let turn = request.messages().iter().filter(|one| one.as_assistant().is_some()).count();
        let calls = self.0.get(turn).into_iter().flat_map(|calls| calls.iter().enumerate());
        let calls: Vec<_> = calls
            .map(|(position, (name, arguments))| {
                ToolCall::new(format!("call_{turn}_{position}"), *name, *arguments)
            })
            .collect();
        let reply = if calls.is_empty() {
            AssistantMessage::text(self.1)
        } else {
            AssistantMessage::default().with_tool_calls(calls)
        };
        let usage = Usage::new(7, 3);
        Box::pin(async move { Ok(ChatResponse::new(reply).with_usage(usage)) })
    }
}

/// The effects of calls, each with its key.
#[derive(Clone, Default)]
struct Effects(Arc<Mutex<Vec<String>>>);

impl Effects {
    fn take_effect(&self, what: &str, key: &IdempotencyKey) {
        let call = key.as_str().rsplit_once('/').map_or("", |(_, call)| call);
        self.0.lock().unwrap().push(format!("{what} {call}"));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[tool("Books a room", undo = "cancel_room")]
async fn book_room(city: String, #[inject] effects: &Effects, #[inject] key: &IdempotencyKey) -> String {
    effects.take_effect(&format!("book {city}"), key);
    tokio::task::yield_now().await;
    format!("a room in {city}")
}

#[tool]
fn cancel_room(
    city: String,
    #[inject] undone: &CallToUndo,
    #[inject] effects: &Effects,
    #[inject] key: &IdempotencyKey,
) {
    assert!(undone.output.is_some() && key.as_str().contains("/undo_"));
    effects.take_effect(&format!("cancel {city}"), key);
}

#[tool(at_most_once)]
fn pay(cents: u32, #[inject] effects: &Effects, #[inject] key: &IdempotencyKey) -> u32 {
    effects.take_effect("pay", key);
    cents
}

#[tool(needs_approval)]
fn sign(#[inject] effects: &Effects, #[inject] key: &IdempotencyKey) {
    effects.take_effect("sign", key);
}

#[tool]
fn close() -> Result<(), ToolError> {
    Err(ToolError::fatal("the bank is closed"))
}

const ROME: &str = r#"{"city": "Rome"}"#;
const OSLO: &str = r#"{"city": "Oslo"}"#;

const HOTELS: &str = r#"{"question": "A room, please"}"#;

#[tokio::test]
async fn tokens_and_calls_of_inner_runs_count_for_the_outer_limits() {
    let desk = || Replies(&[&[("billing", QUESTION)]], "It is paid.");
    let inner = || {
        Replies(&[&[("find_invoice", r#"{"number": 7}"#)], &[("find_invoice", r#"{"number": 8}"#)]], "Two.")
    };
    let billing = || Agent::builder(inner()).tools(tools![find_invoice]).build().unwrap();
    let build = |own: bool| {
        let tool = billing().as_tool("billing", "Answers");
        Agent::builder(desk()).tools(if own { tool.limits(|_| RunLimits::new()).own_limits() } else { tool })
    };
    let answer = alike(|| build(false).limits(|l| l.max_total_tokens(50).max_calls(3))).await.unwrap();
    assert_eq!(answer.usage().total_tokens, 50);
    let parts: Vec<_> =
        answer.usage_by_agent().into_iter().map(|(agent, usage)| (agent, usage.total_tokens)).collect();
    assert_eq!(parts, [("agent".to_owned(), 20), ("billing".to_owned(), 30)]);
    let error = alike(|| build(false).limits(|l| l.max_total_tokens(29))).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTotalTokens(29))), "{error}");
    let inner = error.run().inner_runs().next().unwrap().run();
    assert_eq!((inner.tool_executions().len(), error.run().usage().total_tokens), (1, 30));
    let error = alike(|| build(false).limits(|l| l.max_calls(2))).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxCalls(2))), "{error}");
    // Limits of its own.
    let answer = alike(|| build(true).limits(|l| l.max_total_tokens(20).max_calls(1))).await.unwrap();
    assert_eq!(answer.usage().total_tokens, 50);
    let limited = || {
        Agent::builder(desk()).tools(
            billing().as_tool("billing", "Answers").limits(|_| RunLimits::new().max_calls(1)).own_limits(),
        )
    };
    let answer = alike(limited).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "the agent gave no answer: it reached one of its limits");
    let limited =
        || Agent::builder(desk()).tools(billing().as_tool("billing", "Answers").limits(|l| l.max_turns(2)));
    let answer = alike(limited).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "the agent gave no answer: it reached one of its limits");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_inner_runs_counts() {
    #[tool("Waits")]
    async fn wait() {
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    let waiting = || Agent::builder(Replies(&[&[("wait", "{}")]], "")).tools(tools![wait]);
    let desk = |agent: AgentBuilder| {
        Agent::builder(Replies(&[&[("billing", QUESTION)]], "Too late."))
            .tools(agent.build().unwrap().as_tool("billing", "Answers"))
    };
    let limit = Duration::from_millis(30);
    let error = alike(|| desk(waiting()).limits(|l| l.max_time(limit))).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTime(_))), "{error}");
    let late = || {
        #[tool("Waits longer than the outer run may")]
        async fn wait() {
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        let agent = Agent::builder(Replies(&[&[("wait", "{}")]], "")).tools(tools![wait]).build().unwrap();
        let tool = agent.as_tool("billing", "Answers").limits(|_| RunLimits::new()).own_limits();
        Agent::builder(Replies(&[&[("billing", QUESTION)]], "In time.")).tools(tool)
    };
    let answer = alike(|| late().limits(|l| l.max_time(Duration::from_millis(350)))).await.unwrap();
    assert_eq!(answer.text(), "In time.");
    let answer = alike(|| desk(waiting().limits(|l| l.max_time(limit)))).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "the agent gave no answer: it reached one of its limits");
    let answer = alike(|| desk(waiting()).call_timeout(limit)).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "the agent gave no answer: it reached one of its limits");
}

#[derive(Clone)]
struct Customer(&'static str);

#[derive(Clone)]
struct Secret(&'static str);

#[tool]
fn who(#[inject] customer: Customer, #[inject] secret: Option<&Secret>) -> String {
    format!("{} {}", customer.0, secret.map_or("-", |secret| secret.0))
}

#[tokio::test]
async fn only_named_values_of_the_context_pass() {
    let inner = || Agent::builder(Replies(&[&[("who", "{}")]], "")).tools(tools![who]);
    let desk = || {
        Agent::builder(Replies(&[&[("billing", QUESTION)]], "")).context(Customer("Ada")).context(Secret("s"))
    };
    let build =
        || desk().tools(inner().build().unwrap().as_tool("billing", "Answers").pass_context::<Customer>());
    let answer = alike(build).await.unwrap();
    assert_eq!(answer.inner_runs()[0].run().tool_executions()[0].output().unwrap().to_string(), "Ada -");
    // A named value that is missing, and one that is not named, are found before the first request.
    let tool = || inner().build().unwrap().as_tool("billing", "Answers");
    let missing = [
        Agent::builder(ScriptedModel::new()).tools(tool().pass_context::<Customer>()),
        Agent::builder(ScriptedModel::new()).tools(tool()).context(Customer("Ada")),
    ];
    for agent in missing {
        let error = agent.build().unwrap().ask("Who?").await.unwrap_err();
        let RunErrorKind::MissingContext(missing) = error.kind() else { panic!("{error}") };
        let types: Vec<_> =
            missing.iter().flat_map(|(tool, types)| types.iter().map(move |one| (tool, *one))).collect();
        assert_eq!(types, [("billing", std::any::type_name::<Customer>())], "{missing}");
    }
    let own = inner().context(Customer("Eve")).build().unwrap().as_tool("billing", "Answers");
    let answer = desk().tools(own).build().unwrap().ask("Who?").await.unwrap();
    assert_eq!(answer.inner_runs()[0].run().tool_executions()[0].output().unwrap().to_string(), "Eve -");
}

#[tokio::test]
async fn the_depth_of_agents_is_bounded() {
    let nested = |levels: u32| {
        let mut agent = Agent::builder(Replies(&[], "deepest")).build().unwrap();
        for _ in 0..levels {
            agent = Agent::builder(Replies(&[&[("inner", QUESTION)]], "asked"))
                .tools(agent.as_tool("inner", "Asks"))
                .build()
                .unwrap();
        }
        agent
    };
    let deepest = |answer: &Answer| {
        let mut runs: Vec<_> = answer.inner_runs().iter().map(|inner| inner.run().clone()).collect();
        let mut texts = Vec::new();
        while let Some(run) = runs.pop() {
            texts.push(run.messages().last().unwrap().text().into_owned());
            texts.extend(
                run.tool_executions().iter().filter_map(|one| Some(one.outcome().err()?.to_string())),
            );
            runs.extend(run.inner_runs().map(|inner| inner.run().clone()));
        }
        texts
    };
    assert_eq!(deepest(&nested(4).ask("Go").await.unwrap()), ["asked", "asked", "asked", "deepest"]);
    let refused = "agents are nested too deeply here; answer without this one";
    assert_eq!(deepest(&nested(5).ask("Go").await.unwrap()), ["asked", "asked", "asked", "asked", refused]);
    let answer = nested(5).ask("Go").limits(|_| RunLimits::new().max_depth(5)).await.unwrap();
    assert_eq!(deepest(&answer).len(), 5);
    assert_eq!(deepest(&answer)[4], "deepest");
    // More levels could not be restored, or would need too much of the stack.
    let answer = nested(13).ask("Go").limits(|_| RunLimits::new().max_depth(100)).await.unwrap();
    assert_eq!((deepest(&answer).len(), &*deepest(&answer)[12]), (13, refused));
    let _ = restored(answer.inner_runs()[0].run().clone());
}

#[tokio::test]
async fn a_failure_of_the_inner_model_leaves_the_run_resumable() {
    let inner = ScriptedModel::new()
        .calls("find_invoice", r#"{"number": 7}"#)
        .fails("the line is dead")
        .says("700 cents.");
    let agent = desk(asks(), billing(inner)).build().unwrap();
    let error = agent.ask("Go").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Model(_)) && error.is_resumable(), "{error}");
    let answer = agent.resume(restored(error.into_run())).await.unwrap();
    assert_eq!(answer.inner_runs()[0].run().tool_executions().len(), 1);
    assert_eq!(answer.new_messages()[2].text(), "700 cents.");
    assert_eq!(answer.tool_executions()[0].attempts(), 1);
}

#[tokio::test]
async fn events_say_which_agent_spoke_and_inner_text_is_streamed_only_if_asked_for() {
    let inner = || Replies(&[&[("find_invoice", r#"{"number": 7}"#)]], "700 cents.");
    for asked in [false, true] {
        let tool = Agent::builder(inner())
            .tools(tools![find_invoice])
            .build()
            .unwrap()
            .as_tool("billing", "Answers");
        let tool = if asked { tool.stream_text() } else { tool };
        let agent =
            Agent::builder(Replies(&[&[("billing", QUESTION)]], "It is paid.")).tools(tool).build().unwrap();
        let hooked = Arc::new(Mutex::new(0));
        let count = Arc::clone(&hooked);
        let ask = agent
            .ask("Go")
            .on_event(move |event| *count.lock().unwrap() += u32::from(matches!(event, Event::Agent { .. })));
        let mut events = ask.stream();
        let (mut inner, mut texts) = (Vec::new(), Vec::new());
        while let Some(event) = events.next().await {
            match event.unwrap() {
                Event::Agent { agent, call_id, event, .. } => {
                    assert_eq!((&*agent, &*call_id), ("billing", "call_0_0"));
                    match *event {
                        Event::Text(text) => texts.push(format!("inner {text}")),
                        Event::CallFinished(execution) => inner.push(execution.call().name.clone()),
                        _ => {}
                    }
                }
                Event::Text(text) => texts.push(text),
                _ => {}
            }
        }
        assert_eq!(inner, ["find_invoice"]);
        assert!(*hooked.lock().unwrap() > 5);
        assert_eq!(texts, if asked { vec!["inner 700 cents.", "It is paid."] } else { vec!["It is paid."] });
    }
}

#[tokio::test]
async fn an_agent_has_a_conversation_of_its_own_only_if_asked_for() {
    for asked in [false, true] {
        let inner = ScriptedModel::new().says("one").says("two");
        let memory = ChatMemory::new(InMemoryStore::new());
        let tool = Agent::builder(inner.clone())
            .memory(memory.clone())
            .build()
            .unwrap()
            .as_tool("billing", "Answers");
        let tool = if asked { tool.own_conversation() } else { tool };
        let outer =
            ScriptedModel::new().calls("billing", QUESTION).says("a").calls("billing", QUESTION).says("b");
        let agent = Agent::builder(outer).tools(tool).build().unwrap();
        for _ in 0..2 {
            agent.ask("Go").conversation("user-7").await.unwrap();
        }
        let lengths: Vec<_> = inner.requests().iter().map(Vec::len).collect();
        assert_eq!(lengths, if asked { [1, 3] } else { [1, 1] });
        let conversations = memory.conversations().await.unwrap();
        let conversations: Vec<_> = conversations.iter().map(|id| id.as_str()).collect();
        assert_eq!(conversations, if asked { vec!["\u{1f}billing/user-7"] } else { vec![] });
    }
}

/// Otherwise, an application whose ids are `user/topic` would show the caller what an agent reads, and the other way round.
#[tokio::test]
async fn the_conversation_of_an_agent_is_never_that_of_a_question() {
    let inner = ScriptedModel::new().says("one").says("two");
    let memory = ChatMemory::new(InMemoryStore::new());
    let billing = Agent::builder(inner.clone()).memory(memory.clone()).build().unwrap();
    let outer = ScriptedModel::new().calls("billing", QUESTION).says("a");
    let tool = billing.as_tool("billing", "Answers").own_conversation();
    let agent = Agent::builder(outer).tools(tool).build().unwrap();
    agent.ask("Go").conversation("alice").await.unwrap();
    billing.ask("What did alice ask?").conversation("alice/billing").await.unwrap();
    assert_eq!(inner.requests()[1].len(), 1, "the question has no history");

    let outer = ["alice", "alice/billing", "billing/alice", "alice/billing/billing", "billing"]
        .map(ConversationId::new);
    let mut ids = HashSet::from(outer.clone());
    let mut level = outer.to_vec();
    for _ in 0..3 {
        level = level.iter().flat_map(|id| ["billing", "alice", "-"].map(|tool| id.of_agent(tool))).collect();
        assert!(level.iter().all(|id| ids.insert(id.clone())), "{level:?}");
    }
}

#[tokio::test]
async fn an_agent_tool_can_be_renamed_and_extended_and_needs_no_run() {
    let inner = || billing(refunds()).build().unwrap().as_tool("billing", "Answers");
    let set = || tool_core::ToolSet::default().with(inner()).unwrap().prefix("ask_").unwrap();
    let outer = || ScriptedModel::new().calls("ask_billing", QUESTION).says("Done.");
    let answer = in_all_ways(|| Agent::builder(outer()).tools(set()), |_| Decision::approve()).await.unwrap();
    assert_eq!(answer.inner_runs()[0].agent(), "ask_billing");
    assert_eq!(answer.new_messages()[2].text(), "Refunded.");
    // Outside a run, nobody could approve the call later.
    let call = ToolCall::new("a", "ask_billing", QUESTION);
    let error = set().call(&call, &tool_core::ToolContext::new()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the agent gave no answer: one of its calls needs the approval of a person"
    );
}

#[tokio::test]
async fn transcripts_show_the_conversation_of_an_agent_inside_its_call() {
    let inner = || Replies(&[&[("find_invoice", r#"{"number": 7}"#)]], "700 cents.");
    let build = || {
        let billing = Agent::builder(inner()).tools(tools![find_invoice]).build().unwrap();
        Agent::builder(Replies(&[&[("billing", QUESTION)]], "It is paid."))
            .tools(billing.as_tool("billing", "Answers"))
    };
    let answer = alike(build).await.unwrap();
    let without_times = |text: String| {
        let lines = text.lines().map(|line| match (line.find(" ("), line.find("):")) {
            (Some(start), Some(end)) => format!("{}{}", &line[..start], &line[end + 1..]),
            _ => line.to_owned(),
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let expected = r#"user: What now?
model calls billing: {"question": "What is invoice 7?"}
billing/user: What is invoice 7?
billing/model calls find_invoice: {"number": 7}
billing/find_invoice returns: invoice 7: 700 cents
billing/model: 700 cents.
billing returns: 700 cents.
model: It is paid."#;
    assert_eq!(without_times(answer.transcript().to_string()), expected);
}

#[tokio::test]
async fn a_typed_agent_answers_in_its_form_or_is_asked_again() {
    #[derive(serde::Serialize, serde::Deserialize, tool_core::schemars::JsonSchema)]
    struct Invoice {
        number: u32,
    }
    #[derive(serde::Serialize, serde::Deserialize, tool_core::schemars::JsonSchema)]
    struct Report {
        cents: u32,
    }
    let inner = || {
        ScriptedModel::new()
            .calls("refund", r#"{"number": 7}"#)
            .calls("final_answer", r#"{"cents": "many"}"#)
            .calls("final_answer", r#"{"cents": "700"}"#)
    };
    let outer = || ScriptedModel::new().calls("billing", r#"{"number": "7"}"#).says("Done.");
    let build = || {
        let tool = billing(inner()).build().unwrap().as_tool("billing", "Reports").typed::<Invoice, Report>();
        Agent::builder(outer()).tools(tool)
    };
    let answer = in_all_ways(build, |_| Decision::approve()).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), r#"{"cents":700}"#);
    assert_eq!(answer.inner_runs()[0].run().new_messages()[0].text(), r#"{"number":7}"#);
    assert_eq!(answer.tool_executions()[0].repairs().len(), 1);
    assert_eq!(answer.inner_runs()[0].run().turns(), 3);
}

#[test]
fn a_state_with_an_inner_run_that_belongs_to_no_call_is_refused() {
    let wait_for_refund =
        async { desk(asks(), billing(refunds())).build().unwrap().ask("Go").await.unwrap_err() };
    let error = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(wait_for_refund);
    let state = serde_json::to_value(error.run()).unwrap();
    let record = "/stage/calling/calls/0";
    let inner = format!("{record}/agent");
    assert_eq!(state.pointer(&format!("{inner}/call")).unwrap(), "call_1_0");
    let belongs_to_none = "the run of an agent belongs to no call that was started";
    let changes: [(&str, serde_json::Value, &str); 3] = [
        (&format!("{inner}/call"), "call_9".into(), belongs_to_none),
        (&format!("{record}/state"), serde_json::json!({ "ready": { "attempts": 0 } }), belongs_to_none),
        (
            &format!("{inner}/run/stage"),
            serde_json::json!("asking"),
            "the last message has calls that nobody executes",
        ),
    ];
    for (place, value, expected) in changes {
        let mut changed = state.clone();
        *changed.pointer_mut(place).unwrap() = value;
        let refused = serde_json::from_value::<Run>(changed).unwrap_err().to_string();
        assert_eq!(refused, format!("the state of the run is inconsistent: {expected}"), "{place}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_retried_asks_the_agent_again() {
    let mut policy = tool_core::model::ToolPolicy::default();
    policy.attempts = 2;
    let effects = Effects::default();
    let inner = || {
        ScriptedModel::new()
            .calls("book_room", ROME)
            .calls("close", "{}")
            .calls("book_room", OSLO)
            .says("Booked.")
    };
    let build = || {
        let hotels = Agent::builder(inner())
            .tools(tools![book_room, close])
            .undo_tools(tools![cancel_room])
            .context(effects.clone());
        let tool = hotels.build().unwrap().as_tool("hotels", "Books").policy(policy.clone());
        Agent::builder(Replies(&[&[("hotels", HOTELS)]], "Enjoy.")).tools(tool)
    };
    let answer = alike(build).await.unwrap();
    assert_eq!(
        (answer.new_messages()[2].text(), answer.tool_executions()[0].attempts()),
        ("Booked.".into(), 2)
    );
    assert_eq!(answer.inner_runs().len(), 2);
    assert_eq!(
        effects.take(),
        [["book Rome call_1_0", "cancel Rome undo_call_1_0", "book Oslo call_3_0"]; 3].concat()
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_agent_answered_is_retried_and_each_of_its_runs_is_undone() {
    let mut policy = tool_core::model::ToolPolicy::default();
    policy.attempts = 3;
    let cut_off = || ChatResponse::new(AssistantMessage::text("")).with_finish_reason(FinishReason::Length);
    let effects = Effects::default();
    let inner = || {
        ScriptedModel::new()
            .calls("book_room", ROME)
            .replies(cut_off())
            .calls("book_room", OSLO)
            .replies(cut_off())
            .calls("book_room", r#"{"city": "Bonn"}"#)
            .says("Booked.")
    };
    let states = EveryState::default();
    let build = || {
        let hotels = Agent::builder(inner()).tools(tools![book_room]).undo_tools(tools![cancel_room]);
        let hotels = hotels.context(effects.clone()).build().unwrap();
        let tool = hotels.as_tool("hotels", "Books").policy(policy.clone());
        let desk = Replies(&[&[("book_room", ROME)], &[("hotels", HOTELS)], &[("close", "{}")]], "");
        let tools = tools![book_room, close];
        let desk = Agent::builder(desk).tools(tools).undo_tools(tools![cancel_room]).tools(tool);
        desk.context(effects.clone()).run_store(states.clone())
    };
    let error = alike(build).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::ToolFailed { .. })), "{error}");
    let booked = ["book Rome call_0_0", "book Rome call_1_0", "book Oslo call_3_0", "book Bonn call_5_0"];
    let canceled = ["Bonn undo_call_5_0", "Oslo undo_call_3_0", "Rome undo_call_1_0", "Rome undo_call_0_0"]
        .map(|one| format!("cancel {one}"));
    let once = [booked.map(String::from), canceled].concat();
    assert_eq!(effects.take(), [&*once; 3].concat());
    let undone =
        |run: &Run| run.undo_executions().iter().map(|one| one.call().id.clone()).collect::<Vec<_>>();
    let expected =
        ["undo_call_1_0", "undo_undo_call_1_0", "undo_undo_undo_call_1_0", "undo_call_0_0"].map(String::from);
    assert_eq!(undone(error.run()), expected);
    // Each stored state is read, and its undo continues.
    for state in states.take() {
        let run: Run = serde_json::from_str(&state).unwrap();
        assert_eq!(serde_json::to_string(&run).unwrap(), state);
        if run.is_undoing() {
            let error = build().build().unwrap().resume(run).await.unwrap_err();
            assert_eq!(undone(error.run()), expected);
        }
    }
}

/// Counts the bytes that are saved.
#[derive(Clone, Debug, Default)]
struct CountingBytes(Arc<Mutex<(usize, usize)>>);

impl RunStore for CountingBytes {
    fn append_run<'a>(
        &'a self,
        _id: &'a str,
        _expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        let entries: usize = changes.entries().unwrap().iter().map(|(_, entry)| entry.len()).sum();
        let parts = changes.parts().unwrap();
        let parts: usize = parts.iter().map(|(_, part)| part.as_ref().map_or(0, String::len)).sum();
        let mut counted = self.0.lock().unwrap();
        *counted = (counted.0 + 1, counted.1 + entries + parts);
        Box::pin(async { Ok(SaveOutcome::Saved) })
    }

    fn load_run<'a>(&'a self, _id: &'a str) -> StoreFuture<'a, Option<Run>> {
        Box::pin(async { Ok(None) })
    }

    fn entries<'a>(
        &'a self,
        _id: &'a str,
        _after: Option<u64>,
        _limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        Box::pin(async { Ok(None) })
    }

    fn remove_run<'a>(&'a self, _id: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn list_runs<'a>(&'a self, _: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// A save has what has changed, however many agents work beside.
#[tokio::test]
async fn many_agents_at_once_write_what_changes() {
    let saved = async |agents: usize| {
        let store = CountingBytes::default();
        let hotels = Agent::builder(Replies(&[&[("book_room", ROME)]], "Booked."));
        let hotels = hotels.tools(tools![book_room]).undo_tools(tools![cancel_room]);
        let hotels = hotels.context(Effects::default()).build().unwrap();
        let calls = vec![("hotels", HOTELS); agents];
        let desk = ScriptedModel::new().calls_all(calls).says("Enjoy.");
        let desk = Agent::builder(desk).tools(hotels.as_tool("hotels", "Books")).max_concurrent_calls(agents);
        let desk = desk
            .limits(|l| l.max_calls(10_000).max_repeated_calls(10_000))
            .run_store(store.clone())
            .build()
            .unwrap();
        assert_eq!(desk.ask("Go").await.unwrap().inner_runs().len(), agents);
        let counted = store.0.lock().unwrap();
        *counted
    };
    let (few, many) = (saved(size(25, 250)).await, saved(size(100, 1_000)).await);
    // Four times as many agents.
    assert!(many.0 <= 4 * few.0 && many.1 <= 5 * few.1, "{few:?}, {many:?}");
}

/// What a request of a run inside can cost is stored before it is sent, and what it has cost when it fails.
#[tokio::test]
async fn what_a_request_inside_costs_is_stored() {
    struct Hangs;
    impl ChatModel for Hangs {
        fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
            Box::pin(std::future::pending())
        }
    }
    async fn stored(store: &InMemoryStore) -> Run {
        let listed = store.list_runs(&RunFilter::new()).await.unwrap();
        store.load_run(&listed[0].id).await.unwrap().unwrap()
    }
    let prices = || {
        Prices::from_fn(Currency::USD, |_, _| Some(ModelPrices::new(1.0, 10.0).with_max_output_tokens(1_000)))
    };
    let desk = |inner: AgentBuilder, store: &InMemoryStore| {
        let inner = inner.prices(prices()).build().unwrap().as_tool("billing", "Answers");
        let desk = Agent::builder(asks()).tools(inner).prices(prices());
        desk.run_store(store.clone()).build().unwrap()
    };
    let worst = |run: &Run| {
        let inner: Vec<_> = run.inner_runs().collect();
        assert!(inner[0].run().cost().unwrap().micros() > 10_000, "{:?}", inner[0].run().cost());
    };

    let store = InMemoryStore::new();
    let waits = desk(Agent::builder(Hangs), &store);
    let mut asking = Box::pin(waits.ask("Go").into_future());
    for _ in 0..1_000 {
        assert!((&mut asking).now_or_never().is_none());
        tokio::task::yield_now().await;
        if store.list_runs(&RunFilter::new()).await.unwrap().len() == 1
            && stored(&store).await.inner_runs().next().is_some_and(|inner| inner.run().cost().is_some())
        {
            break;
        }
    }
    worst(&stored(&store).await);

    let store = InMemoryStore::new();
    let fails = desk(Agent::builder(ScriptedModel::new().fails("down")), &store);
    let error = fails.ask("Go").await.unwrap_err();
    worst(error.run());
    let stored = stored(&store).await;
    assert_eq!((stored.cost(), stored.usage()), (error.run().cost(), error.run().usage()));
}
