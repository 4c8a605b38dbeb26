//! Agents as tools of others: their runs are part of the state of the outer run.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tests::support::sampling::size;
use tests::support::stores::EveryState;
use tests::support::ways::{alike, await_it, in_all_ways, restored};
use tool_core::agent::{AgentBuilder, AgentTool};
use tool_core::memory::{InMemoryStore, RunStore, SaveOutcome, StoreFuture};
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ModelFuture, ModelOptions, Usage};
use tool_core::run::{Run, RunLimits, RunRevision, Step, StopReason};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{IdempotencyKey, ToolExecution, ToolFuture, Undone};
use tool_core::{
    Agent, Answer, Approval, ChatMemory, ChatModel, Event, FunctionTool, Message, RunErrorKind, Tool,
    ToolCall, ToolError, ToolSet, tool, tools,
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
    Agent::builder(model).tool(inner.as_tool("billing", "Answers questions about invoices").max_turns(5))
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
async fn an_agent_answers_as_a_tool() {
    let inner = || ScriptedModel::new().calls("find_invoice", r#"{"number": 7}"#).says("700 cents.");
    let answer = alike(|| desk(asks(), billing(inner()))).await.unwrap();
    assert_eq!(answer.text(), "It is paid.");
    assert_eq!(answer.messages()[2].text(), "700 cents.");
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
async fn a_nested_call_that_needs_approval_pauses_the_outer_run() {
    let decide = |call: &ToolCall| {
        assert_eq!((&*call.name, &*call.id), ("refund", "call_1_0/call_2_0"));
        Approval::Approve
    };
    let answer = in_all_ways(|| desk(asks(), billing(refunds())), decide).await.unwrap();
    assert_eq!(answer.messages()[2].text(), "Refunded.");
    assert_eq!(answer.inner_runs()[0].run().messages()[5].text(), "refunded 7");
    let answer =
        in_all_ways(|| desk(asks(), billing(refunds())), |_| Approval::deny("not today")).await.unwrap();
    assert_eq!(answer.inner_runs()[0].run().messages()[5].text(), "the call was denied: not today");
    assert_eq!(answer.messages()[2].text(), "Refunded.");
}

#[tokio::test]
async fn a_nested_call_is_resolved_by_its_path_in_another_process() {
    let paths: [&[&str]; 3] = [&["billing", "call_2_0"], &["call_1_0", "call_2_0"], &["call_1_0/call_2_0"]];
    for path in paths {
        let (outer, inner) = (asks(), refunds());
        let error =
            desk(outer.clone(), billing(inner.clone())).build().unwrap().ask("Refund it").await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::ApprovalNeeded), "{error}");
        assert!(error.to_string().contains("`refund`"), "{error}");
        let state = serde_json::to_string(error.run()).unwrap();

        let mut run: Run = serde_json::from_str(&state).unwrap();
        let refused = run.resolve_approval(["billing", "call_9"], Approval::Approve).unwrap_err().to_string();
        assert_eq!(refused, "unexpected step: the current turn has no call with this id");
        let refused =
            run.resolve_approval(["shipping", "call_2_0"], Approval::Approve).unwrap_err().to_string();
        assert_eq!(refused, "unexpected step: no call with this path is open");
        run.resolve_approval(path, Approval::Approve).unwrap();
        assert_eq!(run.awaiting_approval().count(), 0);
        let answer = desk(outer, billing(inner)).build().unwrap().resume(restored(run)).await.unwrap();
        assert_eq!(answer.inner_runs()[0].run().messages()[5].text(), "refunded 7");
    }
}

#[tokio::test]
async fn other_calls_of_the_turn_finish_before_the_run_pauses() {
    let outer = || {
        ScriptedModel::new()
            .calls_all([("billing", QUESTION), ("find_invoice", r#"{"number": 8}"#), ("billing", QUESTION)])
            .says("Done.")
    };
    // Both inner runs take their replies from one script, in any order.
    let inner = || {
        ScriptedModel::new()
            .calls("refund", r#"{"number": 7}"#)
            .calls("refund", r#"{"number": 7}"#)
            .says("a")
            .says("a")
    };
    let build = || desk(outer(), billing(inner())).tools(tools![find_invoice]);
    let error = build().build().unwrap().ask("Go on").await.unwrap_err();
    let awaiting: Vec<_> = error.awaiting_approval().map(|call| &*call.id).collect();
    assert_eq!(awaiting.len(), 2, "{awaiting:?}");
    assert!(awaiting[0].starts_with("call_1_0/") && awaiting[1].starts_with("call_1_2/"), "{awaiting:?}");
    let finished: Vec<_> = error
        .run()
        .current_calls()
        .filter(|(_, execution)| execution.is_some())
        .map(|(call, _)| &*call.id)
        .collect();
    assert_eq!(finished, ["call_1_1"]);
    let mut run = error.into_run();
    let refused = run.resolve_approval(["billing", "call_1_0"], Approval::Approve).unwrap_err().to_string();
    assert_eq!(
        refused,
        "unexpected step: several calls have this path; begin it with the id of the outer call"
    );
    let answer = await_it(&build().build().unwrap(), "Go on", |_| Approval::Approve).await.unwrap();
    assert_eq!(answer.inner_runs().len(), 2);
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
    #[inject] undone: &Undone,
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

/// Returns an agent over two levels of others.
fn travel(desk: Replies, hotels: Replies, effects: &Effects) -> AgentBuilder {
    let tools = || tools![book_room, pay, sign, close];
    let guide = Agent::builder(Replies(&[&[("book_room", OSLO), ("sign", "{}")]], "Seen."))
        .tools(tools())
        .undo_tools(tools![cancel_room]);
    let guide = guide.build().unwrap().as_tool("guide", "Shows cities").context::<Effects>();
    let hotels = Agent::builder(hotels).tools(tools()).undo_tools(tools![cancel_room]).tool(guide);
    let hotels = hotels.build().unwrap().as_tool("hotels", "Books hotels").context::<Effects>();
    Agent::builder(desk).tools(tools()).undo_tools(tools![cancel_room]).tool(hotels).context(effects.clone())
}

const HOTELS: &str = r#"{"question": "A room, please"}"#;

#[tokio::test]
async fn a_run_with_two_levels_of_agents_continues_from_each_stored_state() {
    let desk =
        Replies(&[&[("hotels", HOTELS), ("book_room", ROME)], &[("pay", r#"{"cents": 5}"#)]], "Enjoy Rome.");
    let hotels =
        Replies(&[&[("pay", r#"{"cents": 7}"#)], &[("guide", HOTELS), ("book_room", ROME)]], "Booked.");
    let effects = Effects::default();
    let states = EveryState::default();
    let agent = travel(desk.clone(), hotels.clone(), &effects).run_store(states.clone()).build().unwrap();
    let expected = await_it(&agent, "Go on", |_| Approval::Approve).await.unwrap();
    let mut all_effects = effects.take();
    all_effects.sort();
    let signed = all_effects.iter().position(|effect| effect == "sign call_0_1");
    assert!(signed.is_some() && all_effects.len() == 6, "{all_effects:?}");
    assert_eq!(expected.usage().total_tokens, 80);
    let states = states.take();
    // Each step of each level is stored.
    assert!(states.len() > 20, "{}", states.len());
    for state in states {
        let run: Run = serde_json::from_str(&state).unwrap();
        assert_eq!(serde_json::to_string(&run).unwrap(), state);
        let agent = travel(desk.clone(), hotels.clone(), &effects).build().unwrap();
        let mut outcome = agent.resume(run).await;
        if outcome.is_err() {
            let mut run = restored(outcome.unwrap_err().into_run());
            run.resolve_all_approvals(&Approval::Approve);
            outcome = agent.resume(run).await;
        }
        let answer = outcome.unwrap();
        assert_eq!((answer.text(), answer.usage()), (expected.text(), expected.usage()));
        let paid = effects.take().iter().filter(|effect| effect.starts_with("pay")).count();
        assert!(paid <= 2);
    }
}

#[tokio::test]
async fn undoing_the_outer_run_undoes_the_calls_of_inner_runs_in_reverse_order() {
    let desk =
        Replies(&[&[("book_room", r#"{"city": "Bonn"}"#)], &[("hotels", HOTELS)], &[("close", "{}")]], "");
    let hotels = Replies(&[&[("guide", HOTELS)], &[("book_room", ROME)]], "Booked.");
    let effects = Effects::default();
    let error = in_all_ways(|| travel(desk.clone(), hotels.clone(), &effects), |_| Approval::Approve)
        .await
        .unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::ToolFailed { .. })), "{error}");
    let once = [
        "book Bonn call_0_0",
        "book Oslo call_0_0",
        "sign call_0_1",
        "book Rome call_1_0",
        "cancel Rome undo_call_1_0",
        "cancel Oslo undo_call_0_0",
        "cancel Bonn undo_call_0_0",
    ];
    assert_eq!(effects.take(), [once; 3].concat());
    let undone: Vec<_> =
        error.run().undo_executions().iter().map(|one| one.output().unwrap().to_string()).collect();
    assert_eq!(undone, ["calls undone: 2", "Success"]);
    let inner = error.run().inner_runs().next().unwrap();
    assert_eq!(inner.run().undo_executions().len(), 2);
}

#[tokio::test]
async fn an_undo_of_two_levels_continues_from_each_stored_state() {
    let desk = Replies(&[&[("hotels", HOTELS)], &[("close", "{}")]], "");
    let hotels = Replies(&[&[("guide", HOTELS)], &[("book_room", ROME)]], "Booked.");
    let (effects, states) = (Effects::default(), EveryState::default());
    let agent = || travel(desk.clone(), hotels.clone(), &effects);
    await_it(&agent().run_store(states.clone()).build().unwrap(), "Go on", |_| Approval::Approve)
        .await
        .unwrap_err();
    effects.take();
    for state in states.take().into_iter().step_by(size(3, 1)) {
        let mut error =
            agent().build().unwrap().resume(serde_json::from_str(&state).unwrap()).await.unwrap_err();
        if matches!(error.kind(), RunErrorKind::ApprovalNeeded) {
            let mut run = restored(error.into_run());
            run.resolve_all_approvals(&Approval::Approve);
            error = agent().build().unwrap().resume(run).await.unwrap_err();
        }
        assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::ToolFailed { .. })), "{error}");
        let inner = error.run().inner_runs().next().unwrap().run();
        let guide = inner.inner_runs().next().unwrap().run();
        assert_eq!(
            (
                error.run().undo_executions().len(),
                inner.undo_executions().len(),
                guide.undo_executions().len()
            ),
            (1, 2, 1)
        );
        effects.take();
    }
}

#[tokio::test]
async fn an_inner_run_that_fails_undoes_its_calls_and_the_outer_model_reads_why() {
    let desk = Replies(&[&[("hotels", HOTELS)]], "No room.");
    let hotels = Replies(&[&[("book_room", ROME)], &[("close", "{}")]], "");
    let effects = Effects::default();
    let answer = alike(|| travel(desk.clone(), hotels.clone(), &effects)).await.unwrap();
    assert_eq!(answer.messages()[2].text(), "the agent gave no answer: one of its tools failed");
    assert_eq!(effects.take(), [["book Rome call_0_0", "cancel Rome undo_call_0_0"]; 3].concat());
    // An outer run that fails later does not undo them again.
    let desk = Replies(&[&[("hotels", HOTELS)], &[("close", "{}")]], "");
    let error = alike(|| travel(desk.clone(), hotels.clone(), &effects)).await.unwrap_err();
    assert_eq!((effects.take().len(), error.run().undo_executions().len()), (6, 0));
}

#[tokio::test]
async fn cancellation_reaches_inside_and_undoes() {
    let desk = Replies(&[&[("hotels", HOTELS)]], "");
    let hotels = Replies(&[&[("book_room", ROME)], &[("guide", HOTELS)]], "");
    for streamed in [false, true] {
        let effects = Effects::default();
        let cancellation = tool_core::CancellationToken::new();
        let cancel = cancellation.clone();
        let hook = move |event: &Event| {
            let Event::Agent { event, .. } = event else { return };
            let Event::Agent { event, .. } = &**event else { return };
            if matches!(**event, Event::CallStarted(_)) {
                cancel.cancel();
            }
        };
        let ask = travel(desk.clone(), hotels.clone(), &effects).build().unwrap().ask("Go on");
        let ask = ask.on_event(hook).cancellation_token(cancellation);
        let error = match streamed {
            false => ask.await.unwrap_err(),
            true => {
                let mut events = ask.stream();
                loop {
                    match events.next().await {
                        Some(Ok(_)) => {}
                        Some(Err(error)) => break error,
                        None => panic!("the stream ends with an error"),
                    }
                }
            }
        };
        assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)), "{error}");
        let effects = effects.take();
        assert_eq!(effects.last().unwrap(), "cancel Rome undo_call_0_0", "{effects:?}");
        assert!(!effects.contains(&"sign call_0_1".to_owned()));
    }
}

#[tokio::test]
async fn a_state_that_is_cancelled_while_a_nested_call_waits_undoes_all_levels() {
    let desk = Replies(&[&[("hotels", HOTELS)]], "");
    let hotels = Replies(&[&[("book_room", ROME)], &[("guide", HOTELS)]], "");
    let effects = Effects::default();
    let agent = travel(desk, hotels, &effects).build().unwrap();
    let error = agent.ask("Go on").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::ApprovalNeeded), "{error}");
    let awaiting: Vec<_> = error.awaiting_approval().map(|call| call.id.clone()).collect();
    assert_eq!(awaiting, ["call_0_0/call_1_0/call_0_1"]);
    let mut run = restored(error.into_run());
    run.cancel();
    let error = agent.resume(restored(run)).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)), "{error}");
    let expected = [
        "book Rome call_0_0",
        "book Oslo call_0_0",
        "cancel Oslo undo_call_0_0",
        "cancel Rome undo_call_0_0",
    ];
    assert_eq!(effects.take(), expected);
}

#[tokio::test]
async fn tokens_and_calls_of_inner_runs_count_for_the_outer_limits() {
    let desk = || Replies(&[&[("billing", QUESTION)]], "It is paid.");
    let inner = || {
        Replies(&[&[("find_invoice", r#"{"number": 7}"#)], &[("find_invoice", r#"{"number": 8}"#)]], "Two.")
    };
    let billing = || Agent::builder(inner()).tools(tools![find_invoice]).build().unwrap();
    let build = |own: bool| {
        let tool = billing().as_tool("billing", "Answers");
        Agent::builder(desk()).tool(if own { tool.own_limits(RunLimits::new()) } else { tool })
    };
    let answer = alike(|| build(false).max_total_tokens(50).max_calls(3)).await.unwrap();
    assert_eq!(answer.usage().total_tokens, 50);
    let parts: Vec<_> =
        answer.usage_by_agent().into_iter().map(|(agent, usage)| (agent, usage.total_tokens)).collect();
    assert_eq!(parts, [("".to_owned(), 20), ("billing".to_owned(), 30)]);
    let error = alike(|| build(false).max_total_tokens(29)).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTotalTokens(29))), "{error}");
    let inner = error.run().inner_runs().next().unwrap().run();
    assert_eq!((inner.tool_executions().len(), error.run().usage().total_tokens), (1, 30));
    let error = alike(|| build(false).max_calls(2)).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxCalls(2))), "{error}");
    // Limits of its own.
    let answer = alike(|| build(true).max_total_tokens(20).max_calls(1)).await.unwrap();
    assert_eq!(answer.usage().total_tokens, 50);
    let limited = || {
        Agent::builder(desk())
            .tool(billing().as_tool("billing", "Answers").own_limits(RunLimits::new().max_calls(1)))
    };
    let answer = alike(limited).await.unwrap();
    assert_eq!(answer.messages()[2].text(), "the agent gave no answer: it reached one of its limits");
    let limited = || Agent::builder(desk()).tool(billing().as_tool("billing", "Answers").max_turns(2));
    let answer = alike(limited).await.unwrap();
    assert_eq!(answer.messages()[2].text(), "the agent gave no answer: it reached one of its limits");
}

#[tokio::test]
async fn the_time_of_inner_runs_counts() {
    #[tool("Waits")]
    async fn wait() {
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    let waiting = || Agent::builder(Replies(&[&[("wait", "{}")]], "")).tools(tools![wait]);
    let desk = |agent: AgentBuilder| {
        Agent::builder(Replies(&[&[("billing", QUESTION)]], "Too late."))
            .tool(agent.build().unwrap().as_tool("billing", "Answers"))
    };
    let limit = Duration::from_millis(30);
    let error = alike(|| desk(waiting()).max_time(limit)).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTime(_))), "{error}");
    let late = || {
        #[tool("Waits longer than the outer run may")]
        async fn wait() {
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        let agent = Agent::builder(Replies(&[&[("wait", "{}")]], "")).tools(tools![wait]).build().unwrap();
        let tool = agent.as_tool("billing", "Answers").own_limits(RunLimits::new());
        Agent::builder(Replies(&[&[("billing", QUESTION)]], "In time.")).tool(tool)
    };
    let answer = alike(|| late().max_time(Duration::from_millis(350))).await.unwrap();
    assert_eq!(answer.text(), "In time.");
    let answer = alike(|| desk(waiting().max_time(limit))).await.unwrap();
    assert_eq!(answer.messages()[2].text(), "the agent gave no answer: it reached one of its limits");
    let answer = alike(|| desk(waiting()).call_timeout(limit)).await.unwrap();
    assert_eq!(answer.messages()[2].text(), "the agent gave no answer: it reached one of its limits");
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
    let build = || desk().tool(inner().build().unwrap().as_tool("billing", "Answers").context::<Customer>());
    let answer = alike(build).await.unwrap();
    assert_eq!(answer.inner_runs()[0].run().tool_executions()[0].output().unwrap().to_string(), "Ada -");
    // A named value that is missing, and one that is not named, are found before the first request.
    let tool = || inner().build().unwrap().as_tool("billing", "Answers");
    let missing = [
        Agent::builder(ScriptedModel::new()).tool(tool().context::<Customer>()),
        Agent::builder(ScriptedModel::new()).tool(tool()).context(Customer("Ada")),
    ];
    for agent in missing {
        let error = agent.build().unwrap().ask("Who?").await.unwrap_err();
        let RunErrorKind::MissingContext(missing) = error.kind() else { panic!("{error}") };
        let types: Vec<_> =
            missing.iter().flat_map(|(tool, types)| types.iter().map(move |one| (tool, *one))).collect();
        assert_eq!(types, [("billing", std::any::type_name::<Customer>())], "{missing}");
    }
    let own = inner().context(Customer("Eve")).build().unwrap().as_tool("billing", "Answers");
    let answer = desk().tool(own).build().unwrap().ask("Who?").await.unwrap();
    assert_eq!(answer.inner_runs()[0].run().tool_executions()[0].output().unwrap().to_string(), "Eve -");
}

#[tokio::test]
async fn the_depth_of_agents_is_bounded() {
    let nested = |levels: u32| {
        let mut agent = Agent::builder(Replies(&[], "deepest")).build().unwrap();
        for _ in 0..levels {
            agent = Agent::builder(Replies(&[&[("inner", QUESTION)]], "asked"))
                .tool(agent.as_tool("inner", "Asks"))
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
    let answer = nested(5).ask("Go").limits(RunLimits::new().max_depth(5)).await.unwrap();
    assert_eq!(deepest(&answer).len(), 5);
    assert_eq!(deepest(&answer)[4], "deepest");
    // More levels could not be restored, or would need too much of the stack.
    let answer = nested(13).ask("Go").limits(RunLimits::new().max_depth(100)).await.unwrap();
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
    assert_eq!(answer.messages()[2].text(), "700 cents.");
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
            Agent::builder(Replies(&[&[("billing", QUESTION)]], "It is paid.")).tool(tool).build().unwrap();
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
        let agent = Agent::builder(outer).tool(tool).build().unwrap();
        for _ in 0..2 {
            agent.ask("Go").conversation("user-7").await.unwrap();
        }
        let lengths: Vec<_> = inner.requests().iter().map(Vec::len).collect();
        assert_eq!(lengths, if asked { [1, 3] } else { [1, 1] });
        let conversations = memory.conversations().await.unwrap();
        let conversations: Vec<_> = conversations.iter().map(|id| id.as_str()).collect();
        assert_eq!(conversations, if asked { vec!["user-7/billing"] } else { vec![] });
    }
}

#[tokio::test]
async fn an_agent_tool_can_be_renamed_and_extended_and_needs_no_run() {
    let inner = || billing(refunds()).build().unwrap().as_tool("billing", "Answers");
    let set = || tool_core::ToolSet::default().with(inner()).unwrap().prefix("ask_").unwrap();
    let outer = || ScriptedModel::new().calls("ask_billing", QUESTION).says("Done.");
    let answer = in_all_ways(|| Agent::builder(outer()).tools(set()), |_| Approval::Approve).await.unwrap();
    assert_eq!(answer.inner_runs()[0].agent(), "ask_billing");
    assert_eq!(answer.messages()[2].text(), "Refunded.");
    // Outside a run, nobody could approve the call later.
    let call = ToolCall::new("a", "ask_billing", QUESTION);
    let error = set().call(&call, &tool_core::ToolContext::new()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the agent gave no answer: one of its calls needs the approval of a person"
    );
}

#[tokio::test]
async fn an_approver_decides_about_nested_calls() {
    let decided = Arc::new(Mutex::new(Vec::new()));
    let approver = |name: &'static str| {
        let decided = Arc::clone(&decided);
        move |call: &ToolCall| {
            decided.lock().unwrap().push(format!("{name} {}", call.id));
            Approval::Approve
        }
    };
    alike(|| desk(asks(), billing(refunds())).approver(approver("outer"))).await.unwrap();
    alike(|| desk(asks(), billing(refunds()).approver(approver("inner"))).approver(approver("outer")))
        .await
        .unwrap();
    let expected = [["outer call_1_0/call_2_0"; 3], ["inner call_2_0"; 3]].concat();
    assert_eq!(*decided.lock().unwrap(), expected);
}

#[tokio::test]
async fn an_external_call_of_an_agent_awaits_its_result() {
    let mut policy = tool_core::model::ToolPolicy::default();
    policy.external = true;
    let locate = tool_core::FunctionTool::new("locate", || "never").with_policy(policy);
    let inner = Agent::builder(Replies(&[&[("locate", "{}")]], "There.")).tool(locate).build().unwrap();
    let outer = Agent::builder(Replies(&[&[("billing", QUESTION)]], "Found."))
        .tool(inner.as_tool("billing", "Answers"));
    let agent = outer.build().unwrap();
    let error = agent.ask("Where?").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::ResultsNeeded), "{error}");
    let call = error.awaiting_results().next().unwrap().clone();
    assert_eq!(call.id, "call_0_0/call_0_0");
    let mut run = restored(error.into_run());
    run.record_result(ToolExecution::new(call, Ok("Rome".into()))).unwrap();
    let answer = agent.resume(restored(run)).await.unwrap();
    assert_eq!(answer.inner_runs()[0].run().messages()[2].text(), "Rome");
}

#[tokio::test]
async fn transcripts_show_the_conversation_of_an_agent_inside_its_call() {
    let inner = || Replies(&[&[("find_invoice", r#"{"number": 7}"#)]], "700 cents.");
    let build = || {
        let billing = Agent::builder(inner()).tools(tools![find_invoice]).build().unwrap();
        Agent::builder(Replies(&[&[("billing", QUESTION)]], "It is paid."))
            .tool(billing.as_tool("billing", "Answers"))
    };
    let answer = alike(build).await.unwrap();
    let timeless = |text: String| {
        let lines = text.lines().map(|line| match (line.rfind(" ("), line.ends_with(')'), line.find(" (")) {
            (Some(start), true, _) => line[..start].to_owned(),
            (_, _, Some(start)) if line.contains("returns (") => {
                let end = line.find("):").unwrap();
                format!("{}{}", &line[..start], &line[end + 1..])
            }
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
    assert_eq!(timeless(answer.transcript().to_string()), expected);
    let expected = r#"sequenceDiagram
    participant User
    participant Model
    participant billing
    participant find_invoice
    User->>Model: What now?
    Model->>billing: {"question": "What is invoice 7?"}
    billing->>find_invoice: {"number": 7}
    find_invoice-->>billing: invoice 7: 700 cents
    billing-->>Model: 700 cents.
    Model->>User: It is paid."#;
    assert_eq!(timeless(answer.transcript().mermaid().to_string()), expected);
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
        Agent::builder(outer()).tool(tool)
    };
    let answer = in_all_ways(build, |_| Approval::Approve).await.unwrap();
    assert_eq!(answer.messages()[2].text(), r#"{"cents":700}"#);
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
    let changes: [(&str, serde_json::Value); 3] = [
        (&format!("{inner}/call"), "call_9".into()),
        (&format!("{record}/state"), serde_json::json!({ "ready": { "attempts": 0 } })),
        (&format!("{inner}/run/stage"), serde_json::json!("asking")),
    ];
    for (place, value) in changes {
        let mut changed = state.clone();
        *changed.pointer_mut(place).unwrap() = value;
        let refused = serde_json::from_value::<Run>(changed).unwrap_err().to_string();
        assert_eq!(refused, "the state of the run is inconsistent", "{place}");
    }
}

#[tokio::test]
async fn a_stored_run_of_an_agent_that_waits_stays_readable() {
    let path =
        std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("states/format_3/agent_waiting.json");
    if std::env::var_os("BLESS").is_some() && !path.exists() {
        let agent = desk(asks(), billing(refunds())).build().unwrap();
        let error = agent.ask("Refund it").await.unwrap_err();
        std::fs::write(&path, serde_json::to_string(error.run()).unwrap()).unwrap();
    }
    let mut run: Run = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    run.resolve_approval(["billing", "call_2_0"], Approval::Approve).unwrap();
    let agent =
        desk(ScriptedModel::new().says("It is paid."), billing(ScriptedModel::new().says("Refunded.")));
    let answer = agent.build().unwrap().resume(run).await.unwrap();
    assert_eq!(answer.inner_runs()[0].run().messages()[5].text(), "refunded 7");
    assert_eq!(answer.text(), "It is paid.");
}

#[tokio::test]
async fn a_run_is_handed_over_with_instructions_and_tools() {
    let billing = || {
        let is_billings = |request: &ChatRequest<'_>| {
            let instructions: Vec<_> = request
                .messages()
                .iter()
                .filter(|one| matches!(one, Message::System(_)))
                .map(Message::text)
                .collect();
            let tools: Vec<_> = request.tools().iter().map(|tool| tool.name()).collect();
            instructions == ["You answer for billing."] && tools == ["find_invoice", "refund"]
        };
        let used = Usage::new(5, 0);
        billing(
            ScriptedModel::new()
                .expects(is_billings)
                .calls("refund", r#"{"number": 7}"#)
                .with_usage(used)
                .expects(is_billings)
                .says("Refunded.")
                .with_usage(used),
        )
    };
    let desk = || {
        ScriptedModel::new()
            .calls_all([("billing", "{}"), ("pay", r#"{"cents": 1}"#)])
            .with_usage(Usage::new(1, 1))
    };
    let effects = Effects::default();
    for instructions in ["", "You are the first."] {
        let build = || {
            let builder = Agent::builder(desk()).tools(tools![pay]).context(effects.clone());
            let builder = if instructions.is_empty() { builder } else { builder.instructions(instructions) };
            builder.hand_over_to("billing", "Takes over invoices", &billing().build().unwrap())
        };
        let answer = in_all_ways(build, |_| Approval::Approve).await.unwrap();
        assert_eq!((answer.text(), answer.turns(), answer.tool_executions().len()), ("Refunded.", 3, 3));
        assert_eq!(answer.messages()[0].text(), "What now?");
        let handovers: Vec<_> = answer.handovers().iter().map(|one| (one.agent(), one.turn())).collect();
        assert_eq!(handovers, [("billing", 1)]);
        let parts: Vec<_> =
            answer.usage_by_agent().into_iter().map(|(agent, usage)| (agent, usage.total_tokens)).collect();
        assert_eq!(parts, [("".to_owned(), 2), ("billing".to_owned(), 10)]);
        assert_eq!(effects.take(), ["pay call_1_1"; 3]);
    }
    let mut events = Vec::new();
    let agent = Agent::builder(desk()).tools(tools![pay]).context(effects).hand_over_to(
        "billing",
        "Takes over",
        &billing().build().unwrap(),
    );
    let mut stream = agent.build().unwrap().ask("Go").stream();
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::HandedOver { agent, .. }) => events.push(format!("handed over to {agent}")),
            Ok(Event::TurnStarted { turn, .. }) => events.push(format!("turn {turn}")),
            _ => {}
        }
    }
    assert_eq!(events, ["turn 1", "handed over to billing", "turn 2"]);
}

#[tokio::test]
async fn a_handed_over_run_continues_from_each_stored_state_and_is_undone_by_both_agents() {
    let effects = Effects::default();
    let states = EveryState::default();
    // The agent that takes over has another tool of the same name that undoes its calls.
    let build = |fails: bool| {
        let log = effects.clone();
        let cancel = move |_: serde_json::Map<String, serde_json::Value>| {
            log.0.lock().unwrap().push("cancelled by billing".into())
        };
        let cancel = tool_core::FunctionTool::new("cancel_room", cancel);
        let cancel = tool_core::ToolSet::default().with(cancel).unwrap();
        let calls: Replies = match fails {
            false => Replies(&[&[], &[], &[("book_room", OSLO)], &[("sign", "{}")]], "It is paid."),
            true => Replies(&[&[], &[], &[("book_room", OSLO)], &[("close", "{}")]], ""),
        };
        let billing = Agent::builder(calls)
            .tools(tools![book_room, sign, close])
            .undo_tools(cancel)
            .context(effects.clone());
        Agent::builder(Replies(&[&[("book_room", ROME)], &[("billing", "{}")]], ""))
            .tools(tools![book_room])
            .undo_tools(tools![cancel_room])
            .context(effects.clone())
            .hand_over_to("billing", "Takes over", &billing.build().unwrap())
    };
    let agent = build(false).run_store(states.clone()).build().unwrap();
    let expected = await_it(&agent, "Go", |_| Approval::Approve).await.unwrap();
    assert_eq!((expected.text(), effects.take().len()), ("It is paid.", 3));
    for state in states.take() {
        let mut run: Run = serde_json::from_str(&state).unwrap();
        run.resolve_all_approvals(&Approval::Approve);
        let mut outcome = build(false).build().unwrap().resume(run).await;
        if let Err(error) = outcome {
            let mut run = restored(error.into_run());
            run.resolve_all_approvals(&Approval::Approve);
            outcome = build(false).build().unwrap().resume(run).await;
        }
        let answer = outcome.unwrap();
        assert_eq!(
            (answer.text(), answer.messages().len(), answer.usage()),
            (expected.text(), expected.messages().len(), expected.usage())
        );
    }
    effects.take();
    let error = alike(|| build(true)).await.unwrap_err();
    assert_eq!(error.run().undo_executions().len(), 2);
    let once =
        ["book Rome call_0_0", "book Oslo call_2_0", "cancelled by billing", "cancel Rome undo_call_0_0"];
    assert_eq!(effects.take(), [once; 3].concat());
    let agent = build(true).run_store(states.clone()).build().unwrap();
    agent.ask("Go").await.unwrap_err();
    for state in states.take() {
        let run: Run = serde_json::from_str(&state).unwrap();
        effects.take();
        let error = build(true).build().unwrap().resume(run).await.unwrap_err();
        assert_eq!(error.run().undo_executions().len(), 2);
    }
}

#[tokio::test]
async fn a_run_that_was_handed_over_to_an_unknown_agent_fails_without_a_request() {
    let billing = Agent::builder(ScriptedModel::new().fails("the line is dead")).build().unwrap();
    let desk = ScriptedModel::new().calls("billing", "{}");
    let agent = Agent::builder(desk).hand_over_to("billing", "Takes over", &billing).build().unwrap();
    let run = restored(agent.ask("Go").await.unwrap_err().into_run());
    assert_eq!(run.handovers().len(), 1);
    let error = Agent::builder(ScriptedModel::new()).build().unwrap().resume(run).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Tools { .. }), "{error}");
    let expected = "the run was handed over to `billing`: the agent has no `hand_over_to` of this name";
    assert_eq!(error.to_string(), expected);
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Complaint {
    reason: String,
}

#[tokio::test]
async fn a_tool_with_arguments_hands_over_once_it_succeeds() {
    let manager = || {
        let reads_complaint = |request: &ChatRequest<'_>| {
            let texts: Vec<_> = request.messages().iter().map(Message::text).collect();
            texts == ["What now?", "", "the reason is missing", "", "noted: noise"]
        };
        Agent::builder(ScriptedModel::new().expects(reads_complaint).says("I am sorry.")).build().unwrap()
    };
    let complain = || {
        let tool =
            tool_core::FunctionTool::new("complain", |complaint: Complaint| match &*complaint.reason {
                "" => Err("the reason is missing".to_owned()),
                reason => Ok(format!("noted: {reason}")),
            });
        tool.needs_approval().return_direct(true)
    };
    let build = || {
        let model = ScriptedModel::new()
            .calls("complain", r#"{"reason": ""}"#)
            .calls("complain", r#"{"reason": "noise"}"#);
        Agent::builder(model).hand_over_by(complain(), &manager())
    };
    let answer = in_all_ways(build, |_| Approval::Approve).await.unwrap();
    assert_eq!((answer.text(), answer.turns()), ("I am sorry.", 3));
    let handovers: Vec<_> = answer.handovers().iter().map(|one| (one.agent(), one.turn())).collect();
    assert_eq!(handovers, [("complain", 2)]);
}

#[tokio::test]
async fn an_inner_run_can_be_handed_over() {
    let refunder = || {
        billing(ScriptedModel::new().calls("refund", r#"{"number": 7}"#).says("Refunded.")).build().unwrap()
    };
    let inner = || {
        Agent::builder(ScriptedModel::new().calls("refunds", "{}")).hand_over_to(
            "refunds",
            "Takes over",
            &refunder(),
        )
    };
    let answer = in_all_ways(|| desk(asks(), inner()), |_| Approval::Approve).await.unwrap();
    assert_eq!(answer.messages()[2].text(), "Refunded.");
    let parts: Vec<_> = answer.usage_by_agent().into_iter().map(|(agent, _)| agent).collect();
    assert_eq!(parts, ["", "billing", "billing/refunds"]);
}

#[tokio::test]
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
        let tool = hotels.build().unwrap().as_tool("hotels", "Books").with_policy(policy);
        Agent::builder(Replies(&[&[("hotels", HOTELS)]], "Enjoy.")).tool(tool)
    };
    let answer = alike(build).await.unwrap();
    assert_eq!((answer.messages()[2].text(), answer.tool_executions()[0].attempts()), ("Booked.".into(), 2));
    assert_eq!(answer.inner_runs().len(), 2);
    assert_eq!(
        effects.take(),
        [["book Rome call_1_0", "cancel Rome undo_call_1_0", "book Oslo call_3_0"]; 3].concat()
    );
}

#[tokio::test]
async fn a_message_of_the_user_denies_nested_calls_that_wait() {
    let agent = desk(asks(), billing(refunds())).build().unwrap();
    let mut run = agent.ask("Refund it").await.unwrap_err().into_run();
    run.push_user_message("Never mind").unwrap();
    let answer = agent.resume(restored(run)).await.unwrap();
    let denied = "the call was denied: the user sent another message instead";
    assert_eq!(answer.inner_runs()[0].run().messages()[5].text(), denied);
    assert_eq!(answer.messages()[3].text(), "Never mind");
}

/// Requests calls with these ids, names and arguments, and then answers.
#[derive(Clone)]
struct CallsWithIds(&'static [[&'static str; 3]]);

impl ChatModel for CallsWithIds {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let has_asked = request.messages().iter().any(|one| one.as_assistant().is_some());
        let calls = self.0.iter().map(|[id, name, arguments]| ToolCall::new(*id, *name, *arguments));
        let reply = match has_asked {
            true => AssistantMessage::text("Done."),
            false => AssistantMessage::default().with_tool_calls(calls),
        };
        Box::pin(async move { Ok(ChatResponse::new(reply)) })
    }
}

fn ids(run: &Run) -> Vec<(&str, &str)> {
    run.awaiting_approval().chain(run.awaiting_results()).map(|call| (&*call.name, &*call.id)).collect()
}

const SEVERAL: &str = "unexpected step: several calls have this path; begin it with the id of the outer call";

#[tokio::test]
async fn an_id_that_looks_like_a_path_approves_no_other_call() {
    const WIRE: &[[&str; 3]] = &[["x", "billing", QUESTION], ["x/call_1_0", "wire_money", "{}"]];
    let mut policy = tool_core::model::ToolPolicy::default();
    policy.needs_approval = true;
    let wire_money = tool_core::FunctionTool::new("wire_money", || "sent").with_policy(policy);
    let inner = billing(ScriptedModel::new().calls("refund", r#"{"number": 7}"#)).build().unwrap();
    let outer = Agent::builder(CallsWithIds(WIRE)).tool(inner.as_tool("billing", "Answers")).tool(wire_money);
    let run = outer.build().unwrap().ask("Go").await.unwrap_err().into_run();
    let expected = [("refund", "x/call_1_0"), ("wire_money", "call_1_1")];
    assert_eq!(ids(&run), expected);
    for (path, left) in [("x/call_1_0", expected[1]), ("call_1_1", expected[0])] {
        let mut run = restored(run.clone());
        run.resolve_approval(path, Approval::Approve).unwrap();
        assert_eq!(ids(&run), [left]);
    }
    // A state that was stored with both ids.
    let state = serde_json::to_string(&run).unwrap().replace("call_1_1", "x/call_1_0");
    let mut run: Run = serde_json::from_str(&state).unwrap();
    assert_eq!(ids(&run), [("refund", "x/call_1_0"), ("wire_money", "x/call_1_0")]);
    let refused = run.resolve_approval("x/call_1_0", Approval::Approve).unwrap_err();
    assert_eq!(refused.to_string(), SEVERAL);
    run.resolve_approval(["x", "call_1_0"], Approval::Approve).unwrap();
    assert_eq!(ids(&run), [("wire_money", "x/call_1_0")]);
    run.resolve_approval("x/call_1_0", Approval::Approve).unwrap();
    assert_eq!(ids(&run), []);
}

#[tokio::test]
async fn an_id_that_is_the_name_of_an_agent_approves_none_of_its_calls() {
    const BOTH: &[[&str; 3]] = &[["a", "billing", QUESTION], ["billing", "evil", QUESTION]];
    let inner = || billing(ScriptedModel::new().calls("refund", r#"{"number": 7}"#)).build().unwrap();
    let outer = Agent::builder(CallsWithIds(BOTH))
        .tool(inner().as_tool("billing", "Answers"))
        .tool(inner().as_tool("evil", "Answers"));
    let mut run = outer.build().unwrap().ask("Go").await.unwrap_err().into_run();
    let refused = run.resolve_approval(["billing", "call_1_0"], Approval::Approve).unwrap_err();
    let expected = "unexpected step: the path begins with the id of one call and the agent of another; \
                    pass the path as one text, as the run returns it";
    assert_eq!(refused.to_string(), expected);
    run.resolve_approval(["a", "call_1_0"], Approval::Approve).unwrap();
    assert_eq!(ids(&run), [("refund", "billing/call_1_0")]);
    run.resolve_approval("billing/call_1_0", Approval::Approve).unwrap();
    assert_eq!(ids(&run), []);
}

#[tokio::test]
async fn the_result_of_an_own_call_is_not_recorded_for_a_nested_one() {
    const LOCATE: &[[&str; 3]] = &[["x", "billing", QUESTION], ["own", "locate", "{}"]];
    let mut policy = tool_core::model::ToolPolicy::default();
    policy.external = true;
    let locate = || tool_core::FunctionTool::new("locate", || "never").with_policy(policy);
    let inner = Agent::builder(Replies(&[&[("locate", "{}")]], "There.")).tool(locate());
    let inner = inner.build().unwrap().as_tool("billing", "Answers");
    let outer = Agent::builder(CallsWithIds(LOCATE)).tool(inner).tool(locate()).build().unwrap();
    let run = outer.ask("Go").await.unwrap_err().into_run();
    let state = serde_json::to_string(&run).unwrap().replace("\"own\"", "\"x/call_0_0\"");
    let mut run: Run = serde_json::from_str(&state).unwrap();
    assert_eq!(ids(&run), [("locate", "x/call_0_0"); 2]);
    let call = ToolCall::new("x/call_0_0", "locate", "{}");
    run.record_result(ToolExecution::new(call.clone(), Ok("Rome".into()))).unwrap();
    let own = run.current_calls().find(|(call, _)| call.id == "x/call_0_0").unwrap();
    assert_eq!(own.1.unwrap().output().unwrap().to_string(), "Rome");
    run.record_result(ToolExecution::new(call, Ok("Oslo".into()))).unwrap();
    let answer = outer.resume(restored(run)).await.unwrap();
    assert_eq!(answer.inner_runs()[0].run().messages()[2].text(), "Oslo");
}

/// A tool that takes effect, asks agents one after the other, and may never return.
struct Around {
    agents: Vec<AgentTool>,
    definition: tool_core::model::ToolDefinition,
    effects: Effects,
    hangs: bool,
}

impl Around {
    fn new(agents: impl IntoIterator<Item = AgentTool>) -> Self {
        let agents = Vec::from_iter(agents);
        Self { definition: agents[0].definition().clone(), agents, effects: Effects::default(), hangs: false }
    }
}

impl Tool for Around {
    fn definition(&self) -> &tool_core::model::ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a tool_core::ToolContext) -> ToolFuture<'a> {
        ToolFuture::boxed(async move {
            self.effects.take_effect("around", context.idempotency_key().unwrap());
            let mut answers = Vec::new();
            for agent in &self.agents {
                answers.push(agent.call(arguments, context).await?.to_string());
            }
            if self.hangs {
                std::future::pending::<()>().await;
            }
            Ok(answers.join(", ").into())
        })
    }
}

#[tokio::test]
async fn a_tool_that_asks_agents_itself_runs_them_to_their_ends() {
    let inner = || billing(ScriptedModel::new().says("one").says("two")).build().unwrap();
    let around = || {
        let agent = inner().as_tool("billing", "Answers");
        Around::new([agent.clone(), agent])
    };
    let answer = alike(|| Agent::builder(asks()).tool(around())).await.unwrap();
    assert_eq!(answer.messages()[2].text(), "one, two");
    assert!(answer.inner_runs().is_empty());
    // One that has to wait fails: another agent that the tool asks must not continue its run.
    let waiting = || {
        Around::new([
            billing(refunds()).build().unwrap().as_tool("billing", "Answers"),
            inner().as_tool("other", "Answers"),
        ])
    };
    let answer = alike(|| Agent::builder(asks()).tool(waiting())).await.unwrap();
    let expected = "the agent gave no answer: one of its calls needs the approval of a person";
    assert_eq!(answer.messages()[2].text(), expected);
}

#[tokio::test]
async fn a_run_that_a_tool_asks_itself_is_undone_if_it_has_to_wait() {
    let effects = Effects::default();
    let inner = Agent::builder(Replies(&[&[("book_room", ROME)], &[("sign", "{}")]], "Booked."))
        .tools(tools![book_room, sign])
        .undo_tools(tools![cancel_room])
        .context(effects.clone());
    let around = Around::new([inner.build().unwrap().as_tool("hotels", "Books")]);
    let agent = Agent::builder(Replies(&[&[("hotels", HOTELS)]], "Enjoy.")).tool(around).build().unwrap();
    let answer = agent.ask("Go").await.unwrap();
    let expected = "the agent gave no answer: one of its calls needs the approval of a person";
    assert_eq!(answer.messages()[2].text(), expected);
    assert_eq!(effects.take(), ["book Rome call_0_0", "cancel Rome undo_call_0_0"]);
}

#[tokio::test]
async fn a_run_whose_time_is_up_beside_an_agent_with_own_limits_stops() {
    /// Takes longer than the run may.
    struct Slow;
    impl RunStore for Slow {
        fn replace_run<'a>(
            &'a self,
            _id: &'a str,
            _expected: Option<&'a RunRevision>,
            run: &'a Run,
        ) -> StoreFuture<'a, SaveOutcome> {
            if run.inner_runs().next().is_some_and(|inner| !inner.run().is_done()) {
                std::thread::sleep(Duration::from_millis(150));
            }
            Box::pin(async { Ok(SaveOutcome::Saved) })
        }

        fn load_run<'a>(&'a self, _id: &'a str) -> StoreFuture<'a, Option<Run>> {
            Box::pin(async { Ok(None) })
        }

        fn remove_run<'a>(&'a self, _id: &'a str) -> StoreFuture<'a, ()> {
            Box::pin(async { Ok(()) })
        }

        fn runs(&self) -> StoreFuture<'_, Vec<String>> {
            Box::pin(async { Ok(Vec::new()) })
        }
    }
    let inner = Agent::builder(Replies(&[&[("close", "{}")]], "Booked.")).tools(tools![close]);
    let inner = inner.build().unwrap().as_tool("hotels", "Books").own_limits(RunLimits::new());
    let agent = Agent::builder(Replies(&[&[("hotels", HOTELS)]], "Enjoy.")).tool(inner).run_store(Slow);
    let limits = RunLimits::new().max_time(Duration::from_millis(100));
    let error = agent.build().unwrap().ask("Go").limits(limits).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTime(_))), "{error}");
}

#[tokio::test]
async fn another_tool_does_not_continue_the_run_of_an_agent() {
    let outer = || Agent::builder(Replies(&[&[("billing", QUESTION)]], "Done."));
    let inner = billing(ScriptedModel::new().calls("refund", r#"{"number": 7}"#).says("Refunded."));
    let agent = outer().tool(inner.build().unwrap().as_tool("billing", "Answers")).build().unwrap();
    let mut run = restored(agent.ask("Go").await.unwrap_err().into_run());
    run.resolve_all_approvals(&Approval::Approve);
    let effects = Effects::default();
    let other = Agent::builder(Replies(&[], "Other.")).build().unwrap();
    let mut around = Around::new([other.as_tool("billing", "Answers")]);
    around.effects = effects.clone();
    let answer = outer().tool(around).build().unwrap().resume(run).await.unwrap();
    let error = answer.tool_executions()[0].outcome().unwrap_err();
    assert_eq!(error.to_string(), ToolError::interrupted().to_string());
    assert_eq!(effects.take(), [""; 0]);
}

#[tokio::test]
async fn a_tool_around_an_agent_that_runs_at_most_once_does() {
    let mut policy = tool_core::model::ToolPolicy::default();
    policy.at_most_once = true;
    let (effects, states) = (Effects::default(), EveryState::default());
    let build = || {
        let inner = Agent::builder(Replies(&[], "Booked.")).build().unwrap();
        let mut around = Around::new([inner.as_tool("hotels", "Books").with_policy(policy)]);
        around.effects = effects.clone();
        Agent::builder(Replies(&[&[("hotels", HOTELS)]], "Enjoy.")).tool(around)
    };
    build().run_store(states.clone()).build().unwrap().ask("Go").await.unwrap();
    assert_eq!(effects.take(), ["around call_0_0"]);
    let states = states.take();
    let mut interrupted = 0;
    for state in states.iter().filter(|state| state.contains(r#""running""#)) {
        interrupted += 1;
        let answer = build().build().unwrap().resume(serde_json::from_str(state).unwrap()).await.unwrap();
        assert_eq!(effects.take(), [""; 0]);
        let error = answer.tool_executions()[0].outcome().unwrap_err();
        assert_eq!(error.to_string(), ToolError::outcome_unknown().to_string());
    }
    assert!(interrupted > 0);
}

#[tokio::test]
async fn the_time_limit_of_calls_holds_for_a_tool_around_an_agent() {
    let inner = Agent::builder(Replies(&[], "Booked.")).build().unwrap();
    let mut around = Around::new([inner.as_tool("hotels", "Books")]);
    around.hangs = true;
    let agent = Agent::builder(Replies(&[&[("hotels", HOTELS)]], "Enjoy."))
        .tool(around)
        .call_timeout(Duration::from_millis(20))
        .build()
        .unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(60), async { agent.ask("Go").await }).await;
    let answer = answer.expect("the call has a time limit").unwrap();
    let error = answer.tool_executions()[0].outcome().unwrap_err();
    assert_eq!(error.kind(), tool_core::tool::ToolErrorKind::TimedOut);
}

#[tokio::test]
async fn an_agent_that_is_to_undo_its_calls_apart_from_the_run_is_not_asked_again() {
    let desk = Replies(&[&[("hotels", HOTELS)], &[("close", "{}")]], "");
    let hotels = Replies(&[&[("book_room", ROME)]], "Booked.");
    let (effects, states) = (Effects::default(), EveryState::default());
    let agent = travel(desk, hotels, &effects).run_store(states.clone()).build().unwrap();
    agent.ask("Go").await.unwrap_err();
    assert_eq!(effects.take(), ["book Rome call_0_0", "cancel Rome undo_call_0_0"]);
    let states = states.take();
    let states = states.iter().map(|state| serde_json::from_str::<Run>(state).unwrap());
    let (mut run, undo) = states
        .filter_map(|mut run| match run.next(&Default::default()) {
            Step::CallTools(calls) if calls[0].id.starts_with("undo_") => {
                let undo = calls[0].clone();
                Some((run, undo))
            }
            _ => None,
        })
        .next()
        .expect("the run undoes the call of the agent");
    let request = run.request_call(&undo.id).unwrap();
    let never = tool_core::CancellationToken::new();
    let execution = agent
        .execute_request(
            request,
            &tool_core::ToolContext::new(),
            &never,
            tool_core::tool::Progress::default(),
        )
        .await;
    let expected = "the call was not executed: only a driver of its run undoes the calls of an agent";
    assert_eq!(execution.outcome().unwrap_err().to_string(), expected);
    // A set of tools is not passed the call that is undone.
    let execution = agent.tools().execute(undo, &tool_core::ToolContext::new()).await;
    let expected = "the call was not executed: it undoes another; execute it by a driver of its run, or request it with \
                    `Run::request_call`";
    assert_eq!(execution.outcome().unwrap_err().to_string(), expected);
    assert_eq!(effects.take(), [""; 0]);
}

#[tokio::test]
async fn an_agent_that_undoes_calls_of_others_is_asked_by_request() {
    #[tool("Books a trip", undo = "clerk")]
    fn book_trip(question: String) -> String {
        question
    }
    let model = ScriptedModel::new().calls("book_trip", r#"{"question": "Rome"}"#).fails("offline");
    let undoing = Agent::builder(ScriptedModel::new().says("Cancelled.")).build().unwrap();
    let agent = Agent::builder(model)
        .tools(tools![book_trip])
        .undo_tools(ToolSet::default().with(undoing.as_tool("clerk", "Cancels")).unwrap())
        .build()
        .unwrap();
    let mut run = agent.ask("Go").await.unwrap_err().into_run();
    run.cancel();
    let Step::CallTools(calls) = run.next(&Default::default()) else { panic!("the call is undone") };
    let undo = calls[0].clone();
    assert_eq!(undo.name, "clerk");
    let execution = agent.undo_tools().execute(undo.clone(), &tool_core::ToolContext::new()).await;
    assert!(execution.outcome().unwrap_err().to_string().contains("`Run::request_call`"));
    let request = run.request_call(&undo.id).unwrap();
    let never = tool_core::CancellationToken::new();
    let progress = tool_core::tool::Progress::default();
    let context = tool_core::ToolContext::new();
    let execution = agent.undo_tools().execute_request(request, &context, &never, progress).await;
    assert_eq!(execution.output().unwrap().to_string(), "Cancelled.");
}

#[tokio::test]
async fn an_inner_run_whose_model_panics_undoes_its_calls() {
    struct Panics;
    impl ChatModel for Panics {
        fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
            let has_booked = request.messages().iter().any(|one| one.as_assistant().is_some());
            assert!(!has_booked, "the model is broken");
            let calls = [ToolCall::new("call_0_0", "book_room", ROME)];
            let reply = AssistantMessage::default().with_tool_calls(calls);
            Box::pin(async move { Ok(ChatResponse::new(reply)) })
        }
    }
    let effects = Effects::default();
    let hotels = Agent::builder(Panics).tools(tools![book_room]).undo_tools(tools![cancel_room]);
    let hotels = hotels.context(effects.clone()).build().unwrap().as_tool("hotels", "Books");
    let agent = Agent::builder(Replies(&[&[("hotels", HOTELS)]], "Enjoy.")).tool(hotels).build().unwrap();
    let answer = agent.ask("Go").await.unwrap();
    assert_eq!(effects.take(), ["book Rome call_0_0", "cancel Rome undo_call_0_0"]);
    assert_eq!(
        answer.tool_executions()[0].outcome().unwrap_err().kind(),
        tool_core::tool::ToolErrorKind::Panicked
    );
    assert_eq!(restored(answer.inner_runs()[0].run().clone()).undo_executions().len(), 1);
}

#[tokio::test]
async fn calls_after_a_handover_are_decided_by_the_agent_that_takes_over() {
    let billing = || billing(ScriptedModel::new().calls("refund", r#"{"number": 7}"#).says("Refunded."));
    let desk = |billing: AgentBuilder| {
        let billing = billing.build().unwrap();
        Agent::builder(ScriptedModel::new().calls("billing", "{}"))
            .approver(|_: &ToolCall| Approval::Approve)
            .execute_calls_if(|_, _| true)
            .hand_over_to("billing", "Takes over", &billing)
            .build()
            .unwrap()
    };
    let denies = |_: &ToolCall| Approval::deny("not today");
    let answer = desk(billing().approver(denies)).ask("Refund it").await.unwrap();
    assert_eq!(answer.messages()[4].text(), "the call was denied: not today");
    let error = desk(billing()).ask("Refund it").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::ApprovalNeeded), "{error}");
    let error = desk(billing().execute_calls_if(|_, _| false))
        .ask("Refund it")
        .approver(|_: &ToolCall| Approval::Approve);
    let error = error.await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::ResultsNeeded), "{error}");
    // The question's decide about the calls of every agent.
    let agent = desk(billing().approver(denies).execute_calls_if(|_, _| false));
    let ask = agent.ask("Refund it").approver(|_: &ToolCall| Approval::Approve);
    let answer = ask.execute_calls_if(|_, _| true).await.unwrap();
    assert_eq!(answer.messages()[4].text(), "refunded 7");
}

#[tokio::test]
async fn an_undo_after_a_handover_has_the_time_limit_and_the_error_handler_of_its_agent() {
    #[tool("Reserves a table", undo = "release")]
    fn reserve() {}

    #[tool]
    async fn release() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    for limits_desk in [true, false] {
        let limit = |builder: AgentBuilder, has_limit: bool| match has_limit {
            true => builder.call_timeout(Duration::from_millis(1)),
            false => builder,
        };
        let billing = Agent::builder(ScriptedModel::new().calls("close", "{}"))
            .tools(tools![close])
            .on_tool_error(|call, _| (call.name == "release").then(|| Ok("released by billing".into())));
        let billing = limit(billing, !limits_desk).build().unwrap();
        let desk = Agent::builder(ScriptedModel::new().calls("reserve", "{}").calls("billing", "{}"))
            .tools(tools![reserve])
            .undo_tools(tools![release])
            .hand_over_to("billing", "Takes over", &billing);
        let error = limit(desk, limits_desk).build().unwrap().ask("Go").await.unwrap_err();
        let [undo] = error.run().undo_executions() else { panic!("one call is undone: {error}") };
        let kind = undo.outcome().err().map(ToolError::kind);
        assert_eq!(kind, limits_desk.then_some(tool_core::tool::ToolErrorKind::TimedOut));
    }
}

#[tokio::test]
async fn instructions_and_options_of_the_question_outlive_a_handover() {
    let options = |temperature: Option<f64>, max_output_tokens| {
        let mut options = ModelOptions::default();
        (options.temperature, options.max_output_tokens) = (temperature, max_output_tokens);
        options
    };
    for first in [None, Some("You are the first.")] {
        let is_billings = move |request: &ChatRequest<'_>| {
            let is_system = |one: &&Message| matches!(one, Message::System(_));
            let system: Vec<_> = request.messages().iter().filter(is_system).map(Message::text).collect();
            system == ["Answer in French.\n\nYou answer for billing."]
                && *request.options() == options(Some(0.5), Some(9))
        };
        let model = ScriptedModel::new()
            .expects(is_billings)
            .calls("find_invoice", r#"{"number": 7}"#)
            .expects(is_billings)
            .says("700 cents.");
        let billing = billing(model).options(options(Some(0.1), Some(9))).build().unwrap();
        let desk = Agent::builder(ScriptedModel::new().fails("offline").calls("billing", "{}"))
            .options(options(None, Some(1)))
            .hand_over_to("billing", "Takes over", &billing);
        let desk = match first {
            Some(text) => desk.instructions(text),
            None => desk,
        };
        let agent = desk.build().unwrap();
        let ask = agent.ask("What is invoice 7?").instructions("Answer in French.");
        let error = ask.options(options(Some(0.5), None)).await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Model(_)), "{error}");
        let answer = agent.resume(restored(error.into_run())).await.unwrap();
        assert_eq!(answer.text(), "700 cents.");
    }
}

#[tokio::test]
async fn a_typed_question_with_tools_of_its_own_can_be_handed_over() {
    let billing = ScriptedModel::new()
        .expects(|request| {
            let tools: Vec<_> = request.tools().iter().map(|tool| tool.name()).collect();
            tools == ["find_invoice", "refund", "final_answer"]
        })
        .calls("final_answer", r#"{"answer": 700}"#);
    let billing = self::billing(billing).build().unwrap();
    let desk = ScriptedModel::new().calls("billing", "{}");
    let agent = Agent::builder(desk).hand_over_to("billing", "Takes over", &billing).build().unwrap();
    let over = agent.tools().clone().union(tools![pay]).unwrap();
    let cents = agent.ask("What is invoice 7?").only_tools(over).context(Effects::default());
    assert_eq!(cents.answer_as::<u32>().await.unwrap(), 700);
}

#[tokio::test]
async fn a_repeated_id_refers_to_no_call_of_the_agent_before_a_handover() {
    let calls = |calls: &[(&str, &str)]| {
        let calls = calls.iter().map(|(id, name)| ToolCall::new(*id, *name, "{}"));
        ScriptedModel::new().replies(ChatResponse::new(AssistantMessage::default().with_tool_calls(calls)))
    };
    let speaker = |text: &'static str| FunctionTool::new("who", move || text);
    let build = || {
        let billing = calls(&[("x-9xT2", "who")]).replies(ChatResponse::new(
            AssistantMessage::default().with_tool_calls([ToolCall::new("call_2_0", "who", "{}")]),
        ));
        let billing = Agent::builder(billing.says("Done.")).tool(speaker("billing")).build().unwrap();
        Agent::builder(calls(&[("x-9xT2", "who"), ("go", "billing")])).tool(speaker("desk")).hand_over_to(
            "billing",
            "Takes over",
            &billing,
        )
    };
    let answer = alike(build).await.unwrap();
    let outputs: Vec<_> =
        answer.tool_executions().iter().map(|one| one.output().unwrap().to_string()).collect();
    assert_eq!(outputs, ["desk", "handed over", "billing", "billing"]);
}
