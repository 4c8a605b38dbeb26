//! Rules of an agent hold for everything that happens inside its runs.

use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tool_core::agent::{Decider, DeciderFuture};
use tool_core::engine::{AgentExt, AskExt, RunPath};
use tool_core::run::Wait;

use super::*;

#[tool("Sends money back")]
fn send_back(euros: u32) -> String {
    format!("sent {euros}")
}

#[tool("Sends money back", needs_approval)]
fn send_back_guarded(euros: u32) -> String {
    format!("sent {euros}")
}

type Rule<'a> = &'a dyn Fn(AgentBuilder) -> AgentBuilder;

/// Three agents that ask each other in turn: `desk`, `billing` and `refunds`, which sends money back. Each gets a rule.
fn three(rules: [Rule<'_>; 3], tool: &'static str) -> AgentBuilder {
    let refunds = Replies(&[&[("send_back", r#"{"euros": 700}"#)]], "Sent.");
    let guarded = Replies(&[&[("send_back_guarded", r#"{"euros": 700}"#)]], "Sent.");
    let refunds = if tool == "send_back" { refunds } else { guarded };
    let refunds = rules[2](Agent::builder(refunds).tools(tools![send_back, send_back_guarded]));
    let refunds = refunds.build().unwrap().as_tool("refunds", "Sends money back");
    let billing = rules[1](Agent::builder(Replies(&[&[("refunds", QUESTION)]], "Refunded.")).tools(refunds));
    let billing = billing.build().unwrap().as_tool("billing", "Answers");
    rules[0](Agent::builder(Replies(&[&[("billing", QUESTION)]], "Done.")).tools(billing))
}

/// Returns what happened to the call of the innermost agent.
fn fate(answer: &Answer) -> String {
    let billing = answer.inner_runs()[0].run();
    let refunds = billing.inner_runs().next().unwrap().run();
    refunds.messages()[2].text().into_owned()
}

#[tokio::test]
async fn a_rule_is_asked_about_all_calls_inside_with_the_path_of_agents() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let none = |builder: AgentBuilder| builder;
    let watch = |builder: AgentBuilder| {
        let calls = Arc::clone(&seen);
        builder.layer(guard::call_with_context(move |call, at| {
            calls.lock().unwrap().push(format!("{}:{}", at.agents.join("/"), call.name));
            CallVerdict::Pass
        }))
    };
    let cases: [(usize, &[&str]); 2] = [
        (0, &[":billing", "billing:refunds", "billing/refunds:send_back"]),
        (1, &[":refunds", "refunds:send_back"]),
    ];
    for (level, expected) in cases {
        let rules = |at: usize| -> Rule<'_> { if at == level { &watch } else { &none } };
        let agent = three([rules(0), rules(1), rules(2)], "send_back").build().unwrap();
        assert_eq!(agent.ask("Refund it").await.unwrap().text(), "Done.");
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), expected);
    }
}

/// Every level that demands approval × every level that has an approver.
#[tokio::test]
async fn an_approval_is_given_at_the_level_that_demands_it_or_further_out() {
    let demands = |builder: AgentBuilder| {
        builder.layer(guard::needs_approval(|call| call.name.starts_with("send_back")))
    };
    let approves = |builder: AgentBuilder| builder.decider(on_approval(|_| Decision::approve()));
    // The level 3 is the policy of the tool, which the innermost agent's approver may approve.
    for demanding in 0..4 {
        for approving in 0..4 {
            let rules: [Box<dyn Fn(AgentBuilder) -> AgentBuilder>; 3] = [0, 1, 2].map(|level| {
                let rule = move |builder: AgentBuilder| {
                    let builder = if demanding == level { demands(builder) } else { builder };
                    if approving == level { approves(builder) } else { builder }
                };
                Box::new(rule) as _
            });
            let tool = if demanding == 3 { "send_back_guarded" } else { "send_back" };
            let build = || three([&rules[0], &rules[1], &rules[2]], tool);
            let answer = in_all_ways(build, |call| Decision::deny(format!("{} by the caller", call.id)));
            let fate = fate(&answer.await.unwrap());
            let expected = match approving <= demanding && approving < 3 {
                true => "sent 700",
                false => "the call was denied: call_0_0/call_0_0/call_0_0 by the caller",
            };
            assert_eq!(fate, expected, "demanded at {demanding}, approver at {approving}");
        }
    }
}

/// The policy of the tool demands approval first; the outer rule still holds.
#[tokio::test]
async fn an_inner_approver_does_not_give_the_approval_that_an_outer_rule_and_the_tool_demand() {
    let demands =
        |builder: AgentBuilder| builder.layer(guard::needs_approval(|call| call.name == "send_back_guarded"));
    let approves = |builder: AgentBuilder| {
        builder.decider(on_approval(|_| Decision::approve())).layer(guard::needs_approval(|_| true))
    };
    let build = || three([&demands, &|builder| builder, &approves], "send_back_guarded");
    let answer = in_all_ways(build, |_| Decision::deny("by the caller")).await.unwrap();
    assert_eq!(fate(&answer), "the call was denied: by the caller");
}

#[tokio::test]
async fn an_outer_rule_that_panics_lets_no_inner_approver_decide() {
    let panics = |builder: AgentBuilder| {
        builder.layer(guard::call_with_context(|_, at| {
            assert!(at.agents.len() < 2, "cannot decide");
            CallVerdict::Pass
        }))
    };
    let approves = |builder: AgentBuilder| builder.decider(on_approval(|_| Decision::approve()));
    let agent = three([&panics, &approves, &approves], "send_back").build().unwrap();
    let error = agent.ask("Refund it").await.unwrap_err();
    assert_eq!(error.to_string(), "the layer `guard::call` failed: it panicked: cannot decide");
    let refunds = error.run().inner_runs().next().unwrap().run().inner_runs().next().unwrap().run();
    assert!(refunds.tool_executions().is_empty() && error.is_resumable());
}

#[tokio::test]
async fn calls_inside_are_left_to_the_caller_by_an_outer_rule() {
    let leaves = |builder: AgentBuilder| {
        builder.layer(guard::call_with_context(|_, at| match at.agents == ["billing", "refunds"] {
            true => CallVerdict::LeaveToCaller,
            false => CallVerdict::Pass,
        }))
    };
    let agent = || three([&leaves, &|builder| builder, &|builder| builder], "send_back").build().unwrap();
    let error = agent().ask("Refund it").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    let mut run = restored(error.into_run());
    let call = run.results().next().unwrap();
    assert_eq!(call.id, "call_0_0/call_0_0/call_0_0");
    run.record_result(ToolExecution::new(call, Ok("sent by the caller".into()))).unwrap();
    assert_eq!(fate(&agent().resume(run).await.unwrap()), "sent by the caller");
}

/// Outside of its run, nothing can wait for the approval.
#[tokio::test]
async fn an_outer_rule_holds_for_an_agent_that_is_asked_by_request() {
    let demands =
        |builder: AgentBuilder| builder.layer(guard::needs_approval(|call| call.name == "send_back"));
    let approves = |builder: AgentBuilder| builder.decider(on_approval(|_| Decision::approve()));
    let agent = three([&demands, &|builder| builder, &approves], "send_back").build().unwrap();
    let mut driver = agent.ask("Refund it").start();
    driver.advance().await.unwrap();
    let request = driver.into_run().request_call("call_0_0").unwrap();
    let never = tool_core::CancellationToken::new();
    let context = tool_core::ToolContext::new();
    let execution =
        agent.execute_request(&[], request, &context, &never, tool_core::tool::Progress::default()).await;
    let error = execution.outcome().unwrap_err().to_string();
    assert_eq!(error, "the agent gave no answer: one of its calls needs the approval of a person");
}

#[tokio::test]
async fn the_rules_of_the_asked_agent_hold_after_a_handoff() {
    let billing = || {
        let model = Replies(&[&[], &[("send_back", r#"{"euros": 700}"#)]], "Sent.");
        Agent::builder(model).tools(tools![send_back]).build().unwrap()
    };
    let desk = || {
        Agent::builder(Replies(&[&[("billing", "{}")]], "")).handoff_to("billing", "Takes over", &billing())
    };
    let build = || {
        desk().layer(guard::call_with_context(|call, at| {
            match at.agents == ["billing"] && call.name == "send_back" {
                true => CallVerdict::NeedsApproval,
                false => CallVerdict::Pass,
            }
        }))
    };
    let answer = in_all_ways(build, |_| Decision::deny("by the caller")).await.unwrap();
    assert_eq!(answer.new_messages()[4].text(), "the call was denied: by the caller");

    // The tools of the question stay offered, so the rule that guards them stays, too.
    let leaves = guard::call_with_context(|_, at| match at.agents.is_empty() {
        true => CallVerdict::Pass,
        false => CallVerdict::LeaveToCaller,
    });
    let agent = desk().layer(leaves).build().unwrap();
    let error = agent.ask("Refund it").tools(tools![send_back_guarded]).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
}

/// A call that runs alone in the inner run runs alone in the outer one, too.
#[tokio::test]
async fn an_exclusive_call_runs_alone_among_all_runs_of_a_question() {
    type Log = Arc<Mutex<Vec<&'static str>>>;
    async fn log(log: &Log, begin: &'static str, end: &'static str) {
        log.lock().unwrap().push(begin);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        log.lock().unwrap().push(end);
    }

    #[tool("Locks the register", exclusive)]
    async fn settle(#[inject] steps: &Log) {
        log(steps, "settle", "settled").await;
    }

    #[tool("Looks")]
    async fn look(#[inject] steps: &Log) {
        log(steps, "look", "looked").await;
    }

    for is_exclusive in [false, true] {
        let log = Log::default();
        let (settles, looks) =
            (Replies(&[&[("settle", "{}")]], "Done."), Replies(&[&[("look", "{}")]], "Done."));
        let inner = Agent::builder(if is_exclusive { looks } else { settles });
        let inner = inner.tools(tools![settle, look]).context(Arc::clone(&log)).build().unwrap();
        let mut policy = tool_core::model::ToolPolicy::default();
        policy.exclusive = is_exclusive;
        // Two agents beside a call: the exclusive calls of both run one after the other, and not beside the third.
        let middle = Replies(&[&[("inner", QUESTION), ("look", "{}")]], "Done.");
        let middle = Agent::builder(middle)
            .tools(inner.as_tool("inner", "Settles").policy(policy))
            .tools(tools![look])
            .context(Arc::clone(&log));
        let middle = middle.build().unwrap().as_tool("middle", "Settles");
        let desk = Replies(&[&[("middle", QUESTION), ("look", "{}"), ("middle", QUESTION)]], "Done.");
        let desk = Agent::builder(desk).tools(middle).tools(tools![look]).context(Arc::clone(&log));
        assert_eq!(desk.build().unwrap().ask("Settle").await.unwrap().text(), "Done.");
        let log = log.lock().unwrap();
        let positions = |what| log.iter().enumerate().filter(move |(_, one)| **one == what).map(|(at, _)| at);
        match is_exclusive {
            false => positions("settle").for_each(|at| assert_eq!(log[at + 1], "settled", "{log:?}")),
            // The two calls inside of the exclusive ones are the last to begin in their branches.
            true => assert_eq!(log[log.len() - 2..], ["look", "looked"], "{log:?}"),
        }
        assert_eq!(log.len(), 10);
    }
}

/// Approves after this.
struct After<F>(F);

impl<F: Fn() -> BoxFuture<'static, ()> + Send + Sync> Decider for After<F> {
    fn decide<'a>(&'a self, _: &'a Wait) -> DeciderFuture<'a> {
        Box::pin(async {
            (self.0)().await;
            Decision::approve()
        })
    }
}

/// The time of a decider counts neither between two of its decisions nor for a run around its own.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_decider_does_not_count() {
    #[tool("Asks for approval", needs_approval)]
    fn pay() {}

    let hour = || After(|| Box::pin(tokio::time::sleep(Duration::from_secs(3_600))) as BoxFuture<'_, ()>);
    let limited = |agent: AgentBuilder| agent.limits(|l| l.max_time(Duration::from_secs(60)));
    let payer = || Agent::builder(Replies(&[&[("pay", "{}"), ("pay", "{}")]], "Paid.")).tools(tools![pay]);
    let paid = limited(payer().decider(hour())).build().unwrap().ask("Go").await.unwrap();
    assert_eq!(paid.text(), "Paid.");
    let inner = payer().decider(hour()).build().unwrap().as_tool("payer", "Pays");
    let desk = Agent::builder(Replies(&[&[("payer", QUESTION)]], "Done.")).tools(inner);
    assert_eq!(limited(desk).build().unwrap().ask("Go").await.unwrap().text(), "Done.");
}

/// The time that a run has left holds for an agent that is about to be asked.
#[test]
fn the_time_of_a_run_limits_the_start_of_an_agent() {
    let limits = RunLimits::new().max_time(Duration::from_secs(10));
    let run = Run::new([Message::user("Go")]).with_limits(limits);
    let inner = std::iter::once("inner".to_owned()).collect();
    assert_eq!(run.engine_view().limit_at(&inner), Some((RunPath::default(), Duration::from_secs(10))));
}

/// An exclusive call that its own run does not start in this step holds back no other run.
#[tokio::test(start_paused = true)]
async fn an_exclusive_call_of_the_next_step_holds_back_nothing() {
    #[tool("Locks the register", exclusive)]
    fn settle() {}

    #[tool("Asks for approval", needs_approval)]
    fn pay() {}

    #[tool("Rests")]
    async fn rest() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    #[tool("Looks")]
    fn look(#[inject] looked: &Arc<Notify>) {
        looked.notify_one();
    }

    let looked = Arc::new(Notify::new());
    let decider = Arc::clone(&looked);
    let payer = Agent::builder(Replies(&[&[("pay", "{}")]], "Paid.")).tools(tools![pay]);
    let payer = payer.decider(After(move || {
        let looked = Arc::clone(&decider);
        Box::pin(async move { looked.notified().await }) as BoxFuture<'_, ()>
    }));
    let first = Agent::builder(Replies(&[&[("payer", QUESTION), ("settle", "{}")]], "Settled."));
    let first = first.tools(payer.build().unwrap().as_tool("payer", "Pays")).tools(tools![settle]);
    // Looks while the payer waits.
    let second = Replies(&[&[("rest", "{}")], &[("look", "{}")]], "Looked.");
    let second = Agent::builder(second).tools(tools![rest, look]).context(looked);
    let desk = Replies(&[&[("first", QUESTION), ("second", QUESTION)]], "Done.");
    let desk = Agent::builder(desk).tools(first.build().unwrap().as_tool("first", "Settles"));
    let desk = desk.tools(second.build().unwrap().as_tool("second", "Looks")).build().unwrap();
    let asked = tokio::time::timeout(Duration::from_secs(60), desk.ask("Go"));
    assert_eq!(asked.await.expect("it hangs").unwrap().text(), "Done.");
}

/// An exclusive call inside of an exclusive agent starts before calls that begin later and overlap.
#[tokio::test(start_paused = true)]
async fn an_exclusive_call_inside_of_an_exclusive_agent_does_not_starve() {
    type Log = Arc<Mutex<Vec<&'static str>>>;

    #[tool("Locks the register", exclusive)]
    fn settle(#[inject] log: &Log) {
        log.lock().unwrap().push("settle");
    }

    #[tool("Looks for a while")]
    async fn look(#[inject] log: &Log, millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        log.lock().unwrap().push("looked");
    }

    const LONG: (&str, &str) = ("look", r#"{"millis": 10}"#);
    const SHORT: (&str, &str) = ("look", r#"{"millis": 5}"#);
    let log = Log::default();
    let agent = |replies: &'static [&'static [(&'static str, &'static str)]]| {
        let agent = Agent::builder(Replies(replies, "Done.")).tools(tools![settle, look]);
        agent.context(Arc::clone(&log)).build().unwrap()
    };
    let all = Replies(&[&[("one", QUESTION), ("two", QUESTION), ("three", QUESTION)]], "Done.");
    let all = Agent::builder(all)
        .tools(agent(&[&[LONG], &[LONG], &[LONG]]).as_tool("one", "Looks"))
        .tools(agent(&[&[SHORT], &[LONG], &[LONG]]).as_tool("two", "Looks"))
        .tools(agent(&[&[("settle", "{}")]]).as_tool("three", "Settles"));
    let mut policy = tool_core::model::ToolPolicy::default();
    policy.exclusive = true;
    let all = all.build().unwrap().as_tool("all", "Does all").policy(policy);
    let desk = Agent::builder(Replies(&[&[("all", QUESTION)]], "Done.")).tools(all).build().unwrap();
    assert_eq!(desk.ask("Go").await.unwrap().text(), "Done.");
    let log = log.lock().unwrap();
    assert_eq!(log.iter().position(|one| *one == "settle"), Some(2), "{log:?}");
}

#[tool("Waits for an hour")]
async fn wait(#[inject] user: &Asker) -> Result<(), ToolError> {
    Err(user.park(&(), Timestamp::now().after(Duration::from_secs(3_600))).await.into())
}

/// Also one inside of an agent: nobody is held until it is due.
#[tokio::test(start_paused = true)]
async fn a_run_that_leaves_its_parked_calls_waits() {
    let inner = Agent::builder(Replies(&[&[("wait", "{}")]], "Done.")).tools(tools![wait]).build().unwrap();
    for first in [("inner", QUESTION), ("wait", "{}")] {
        let model = ScriptedModel::new().calls_all([first]);
        let desk = Agent::builder(model).tools(tools![wait]).tools(inner.clone().as_tool("inner", "Waits"));
        let outcome = desk.build().unwrap().ask("Go").return_when_parked().outcome().await;
        assert!(matches!(outcome, tool_core::agent::Outcome::Waiting(_)), "{first:?}");
    }
}

/// A parked call, or an agent with one, leaves its room to others.
#[tokio::test(start_paused = true)]
async fn what_is_parked_holds_no_room() {
    #[derive(Clone)]
    struct Stop(CancellationToken);

    #[tool("Cancels the run")]
    fn look(#[inject] stop: &Stop) {
        stop.0.cancel();
    }

    let inner =
        || Agent::builder(Replies(&[&[("wait", "{}")]], "Done.")).tools(tools![wait]).build().unwrap();
    for first in [("inner", QUESTION), ("wait", "{}")] {
        let cancellation = CancellationToken::new();
        let model = ScriptedModel::new().calls_all([first, ("look", "{}")]);
        let desk = Agent::builder(model).tools(tools![wait, look]);
        let desk = desk.tools(inner().as_tool("inner", "Waits")).max_concurrent_calls(1);
        let desk = desk.context(Stop(cancellation.clone())).limits(|l| l.max_time(Duration::from_secs(60)));
        let error = desk.build().unwrap().ask("Go").cancellation_token(cancellation).await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)), "{first:?}: {error}");
    }
}

/// The time of an agent with limits of its own is not that of the run around it, also while it is parked, and after a restart.
#[tokio::test(start_paused = true)]
async fn the_parked_time_of_an_agent_with_own_limits_does_not_count() {
    /// Returns `true` if the run ends by its limit before it is cancelled.
    async fn takes_too_long(ask: Ask) -> bool {
        let token = CancellationToken::new();
        let cancelled = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            token.cancel();
        };
        let (ended, ()) = tokio::join!(ask.cancellation_token(token.clone()).into_future(), cancelled);
        match ended.unwrap_err().kind() {
            RunErrorKind::Stopped(StopReason::MaxTime(_)) => true,
            RunErrorKind::Stopped(StopReason::Cancelled) => false,
            other => panic!("{other:?}"),
        }
    }

    for has_own_limits in [true, false] {
        let inner = Agent::builder(Replies(&[&[("wait", "{}")]], "Done.")).tools(tools![wait]);
        let inner = inner.build().unwrap().as_tool("inner", "Waits");
        let inner = if has_own_limits { inner.own_limits() } else { inner };
        let states = EveryState::default();
        let desk = Agent::builder(Replies(&[&[("inner", QUESTION)]], "Done.")).tools(inner);
        let desk =
            desk.limits(|l| l.max_time(Duration::from_secs(30))).run_store(states.clone()).build().unwrap();
        assert_eq!(takes_too_long(desk.ask("Go")).await, !has_own_limits);
        let states = states.take().into_iter().map(|state| serde_json::from_str::<Run>(&state).unwrap());
        let parked = states.into_iter().find(|run| !run.waits().is_empty()).unwrap();
        assert_eq!(takes_too_long(desk.resume(parked)).await, !has_own_limits);
    }
}

#[tokio::test]
async fn a_state_can_be_read_at_each_allowed_depth_of_waiting_agents() {
    for levels in 1..=12 {
        let build = || {
            let model = Replies(&[&[("data", "{}"), ("send_back_guarded", r#"{"euros": 7}"#)]], "deepest");
            // The deepest data that a state contains.
            let data = (0..32).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]));
            let data =
                FunctionTool::new("data", move || tool_core::ToolOutput::text("1").with_data(data.clone()));
            let mut agent =
                Agent::builder(model).tools(tools![send_back_guarded]).tools(data).build().unwrap();
            for _ in 0..levels {
                let outer = Agent::builder(Replies(&[&[("inner", QUESTION)]], "asked"));
                agent = outer
                    .limits(|l| l.max_turns(5))
                    .limits(|_| RunLimits::new().max_depth(12))
                    .tools(agent.as_tool("inner", "Asks"))
                    .build()
                    .unwrap();
            }
            agent
        };
        let error = build().ask("Go").await.unwrap_err();
        let state = serde_json::to_string(error.run()).unwrap();
        let mut run: Run =
            serde_json::from_str(&state).unwrap_or_else(|error| panic!("{levels} levels: {error}"));
        run.decide_calls(&Decision::approve());
        let answer = build().resume(run).await.unwrap();
        assert_eq!(answer.text(), "asked");
        let _ = restored(answer.inner_runs()[0].run().clone());
    }
}

/// An agent that cannot go on now leaves its place to others.
#[tokio::test]
async fn a_call_beside_an_agent_that_cannot_go_on_is_executed() {
    #[tool]
    fn note() -> &'static str {
        "noted"
    }

    for is_nested in [false, true] {
        let clerk = Agent::builder(ScriptedModel::new().fails("offline")).build().unwrap();
        let mut clerk = clerk.as_tool("clerk", "Helps");
        if is_nested {
            let model = ScriptedModel::new().calls("clerk", r#"{"question": "?"}"#);
            clerk = Agent::builder(model).tools(clerk).build().unwrap().as_tool("clerk", "Helps");
        }
        let model = ScriptedModel::new().calls_all([("clerk", r#"{"question": "?"}"#), ("note", "{}")]);
        let desk = Agent::builder(model).tools(clerk).tools(tools![note]).max_concurrent_calls(1);
        let error = desk.build().unwrap().ask("Go").await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Model(_)), "{error}");
        let outcomes: Vec<_> =
            error.run().current_calls().map(|(call, done)| (&*call.name, done.is_some())).collect();
        assert_eq!(outcomes, [("clerk", false), ("note", true)], "nested: {is_nested}");
    }
}

/// What an agent could not do is no failure of the run any more once the run around that agent has stopped.
#[tokio::test]
async fn a_failure_inside_of_a_run_that_has_stopped_is_not_reported() {
    #[tool]
    fn close() -> Result<(), ToolError> {
        Err(ToolError::fatal("closed"))
    }

    let clerk = Agent::builder(ScriptedModel::new().fails("offline")).build().unwrap();
    let model = ScriptedModel::new().calls_all([("clerk", r#"{"question": "?"}"#), ("close", "{}")]);
    let branch = Agent::builder(model).tools(clerk.as_tool("clerk", "Helps")).tools(tools![close]);
    let branch = branch.max_concurrent_calls(1).build().unwrap();
    let model = ScriptedModel::new().calls("branch", r#"{"question": "?"}"#).says("Done.");
    let desk = Agent::builder(model).tools(branch.as_tool("branch", "Helps")).build().unwrap();
    let answer = desk.ask("Go").await.unwrap();
    assert_eq!(answer.text(), "Done.");
    assert!(answer.tool_executions()[0].error().is_some());
}

/// Agents that could not go on are asked again one after the other, if there is room for one.
#[tokio::test]
async fn agents_that_go_on_again_keep_to_the_room() {
    struct Offline(Arc<AtomicUsize>);

    impl ChatModel for Offline {
        fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
            Box::pin(async {
                assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), 0, "two agents are asked at once");
                tokio::task::yield_now().await;
                self.0.fetch_sub(1, Ordering::SeqCst);
                Err(tool_core::model::ModelError::new("offline"))
            })
        }
    }

    let active = Arc::new(AtomicUsize::new(0));
    let clerk =
        |name: &str| Agent::builder(Offline(Arc::clone(&active))).build().unwrap().as_tool(name, "Helps");
    let question = r#"{"question": "?"}"#;
    let model = ScriptedModel::new().calls_all([("first", question), ("second", question)]);
    let desk = Agent::builder(model).tools(clerk("first")).tools(clerk("second")).max_concurrent_calls(1);
    let mut run = desk.build().unwrap().ask("Go").start();
    assert!(run.advance().await.unwrap());
    for _ in 0..3 {
        let error = run.advance().await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Model(_)), "{error}");
    }
}
