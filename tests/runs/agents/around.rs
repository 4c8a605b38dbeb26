//! Tools that ask agents themselves, and limits of tools around agents.

use super::*;

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
        // It has effects of its own, so the runs of its agents are not part of the run of the call.
        let definition = agents[0].definition().clone().with_kind(tool_core::provider::ToolKind::Function);
        Self { definition, agents, effects: Effects::default(), hangs: false }
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

/// A tool around another that only passes its calls on.
struct Wrapper(AgentTool);

impl Tool for Wrapper {
    fn definition(&self) -> &tool_core::model::ToolDefinition {
        self.0.definition()
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a tool_core::ToolContext) -> ToolFuture<'a> {
        self.0.call(arguments, context)
    }

    fn wrapped(&self) -> Option<&dyn Tool> {
        Some(&self.0)
    }
}

#[tokio::test]
async fn a_wrapper_of_an_agent_has_its_kind_and_nests_its_run() {
    let build = || {
        let inner = billing(refunds()).build().unwrap();
        Agent::builder(asks()).tools(Wrapper(inner.as_tool("billing", "Answers")))
    };
    let answer = in_all_ways(build, |_| Decision::approve()).await.unwrap();
    assert_eq!(answer.inner_runs().len(), 1);
}

/// Where a value of a context comes from.
struct Place(&'static str);

/// A wrapper that counts how often it is entered, and adds a value to the context.
struct Enters(AgentTool, Effects, Mutex<Vec<CancellationToken>>);

impl Tool for Enters {
    fn definition(&self) -> &tool_core::model::ToolDefinition {
        self.0.definition()
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a tool_core::ToolContext) -> ToolFuture<'a> {
        ToolFuture::boxed(async move {
            let key = context.idempotency_key().unwrap();
            self.1.take_effect("enter", key);
            self.2.lock().unwrap().push(context.cancellation().clone());
            let context = context.clone().with(Place("of the wrapper"));
            let first = self.0.call(arguments, &context).await?;
            self.1.take_effect("leave", key);
            // The call was not abandoned when it asked.
            assert!(self.2.lock().unwrap().iter().all(|token| !token.is_cancelled()));
            // A call asks its agent once.
            let second = self.0.call(arguments, &context).await.unwrap_err();
            Ok(format!("{first}; {second}").into())
        })
    }

    fn wrapped(&self) -> Option<&dyn Tool> {
        Some(&self.0)
    }
}

#[tokio::test]
async fn a_wrapper_of_an_agent_is_entered_again_with_the_answer() {
    #[tool("Reads the context")]
    fn read(#[inject] place: &Place) -> &'static str {
        place.0
    }
    let effects = Effects::default();
    let build = || {
        let inner = ScriptedModel::new().calls("read", "{}").says("Read.");
        let inner = Agent::builder(inner).tools(tools![read]).build().unwrap();
        let inner = inner.as_tool("billing", "Answers").pass_context::<Place>();
        Agent::builder(asks())
            .tools(Enters(inner, effects.clone(), Mutex::default()))
            .context(Place("of the run"))
    };
    for way in 0..3 {
        let agent = build().build().unwrap();
        let answer = match way {
            0 => await_it(&agent, "Go", |_| Decision::approve()).await.unwrap(),
            1 => stream_it(&agent, "Go", |_| Decision::approve()).await.unwrap(),
            _ => drive_it(&agent, "Go", |_| Decision::approve()).await.unwrap(),
        };
        assert_eq!(effects.take(), ["enter call_1_0", "enter call_1_0", "leave call_1_0"], "{way}");
        let output = answer.new_messages()[2].text().to_string();
        assert_eq!(output, "Read.; the call was not executed: a call asks its agent once");
        assert_eq!(answer.inner_runs()[0].run().messages()[2].text(), "of the run");
    }
}

#[tokio::test]
async fn a_tool_that_asks_agents_itself_runs_them_to_their_ends() {
    let inner = || billing(ScriptedModel::new().says("one").says("two")).build().unwrap();
    let around = || {
        let agent = inner().as_tool("billing", "Answers");
        Around::new([agent.clone(), agent])
    };
    let answer = alike(|| Agent::builder(asks()).tools(around())).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "one, two");
    assert!(answer.inner_runs().is_empty());
    // One that has to wait fails: another agent that the tool asks must not continue its run.
    let waiting = || {
        Around::new([
            billing(refunds()).build().unwrap().as_tool("billing", "Answers"),
            inner().as_tool("other", "Answers"),
        ])
    };
    let answer = alike(|| Agent::builder(asks()).tools(waiting())).await.unwrap();
    let expected = "the agent gave no answer: one of its calls needs the approval of a person";
    assert_eq!(answer.new_messages()[2].text(), expected);
}

#[tokio::test]
async fn a_run_that_a_tool_asks_itself_is_undone_if_it_has_to_wait() {
    let effects = Effects::default();
    let inner = Agent::builder(Replies(&[&[("book_room", ROME)], &[("sign", "{}")]], "Booked."))
        .tools(tools![book_room, sign])
        .undo_tools(tools![cancel_room])
        .context(effects.clone());
    let around = Around::new([inner.build().unwrap().as_tool("hotels", "Books")]);
    let agent = Agent::builder(Replies(&[&[("hotels", HOTELS)]], "Enjoy.")).tools(around).build().unwrap();
    let answer = agent.ask("Go").await.unwrap();
    let expected = "the agent gave no answer: one of its calls needs the approval of a person";
    assert_eq!(answer.new_messages()[2].text(), expected);
    assert_eq!(effects.take(), ["book Rome call_0_0", "cancel Rome undo_call_0_0"]);
}

/// Takes longer than the run may, and blocks, so that no timer can be first.
#[tool("Takes its time")]
fn block() {
    std::thread::sleep(Duration::from_millis(20));
}

#[tool("Never returns")]
async fn hang() {
    std::future::pending::<()>().await;
}

/// Nothing that is in flight counts for the run any more, so no timer stops it.
#[tokio::test]
async fn a_run_whose_time_is_up_beside_an_agent_with_own_limits_stops() {
    let inner = Agent::builder(Replies(&[&[("hang", "{}")]], "Booked.")).tools(tools![hang]).build().unwrap();
    let inner = inner.as_tool("hotels", "Books").limits(|_| RunLimits::new()).own_limits();
    let calls: &[(&str, &str)] = &[("hotels", HOTELS), ("block", "{}")];
    let agent = Agent::builder(ScriptedModel::new().calls_all(calls.iter().copied()).says("Enjoy."));
    let agent = agent.tools(inner).tools(tools![block]).build().unwrap();
    let limits = RunLimits::new().max_time(Duration::from_millis(10));
    let error = agent.ask("Go").limits(|_| limits).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTime(_))), "{error}");
    // What has happened is recorded first.
    assert!(error.run().tool_executions()[1].outcome().is_ok());
}

#[tokio::test]
async fn another_tool_does_not_continue_the_run_of_an_agent() {
    let outer = || Agent::builder(Replies(&[&[("billing", QUESTION)]], "Done."));
    let inner = billing(ScriptedModel::new().calls("refund", r#"{"number": 7}"#).says("Refunded."));
    let agent = outer().tools(inner.build().unwrap().as_tool("billing", "Answers")).build().unwrap();
    let mut run = restored(agent.ask("Go").await.unwrap_err().into_run());
    run.decide_calls(&Decision::approve());
    let effects = Effects::default();
    let other = Agent::builder(Replies(&[], "Other.")).build().unwrap();
    let mut around = Around::new([other.as_tool("billing", "Answers")]);
    around.effects = effects.clone();
    let answer = outer().tools(around).build().unwrap().resume(run).await.unwrap();
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
        let mut around = Around::new([inner.as_tool("hotels", "Books").policy(policy.clone())]);
        around.effects = effects.clone();
        Agent::builder(Replies(&[&[("hotels", HOTELS)]], "Enjoy.")).tools(around)
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

#[tokio::test(start_paused = true)]
async fn the_time_limit_of_calls_holds_for_a_tool_around_an_agent() {
    let inner = Agent::builder(Replies(&[], "Booked.")).build().unwrap();
    let mut around = Around::new([inner.as_tool("hotels", "Books")]);
    around.hangs = true;
    let agent = Agent::builder(Replies(&[&[("hotels", HOTELS)]], "Enjoy."))
        .tools(around)
        .call_timeout(Duration::from_millis(20))
        .build()
        .unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(60), async { agent.ask("Go").await }).await;
    let answer = answer.expect("the call has a time limit").unwrap();
    let error = answer.tool_executions()[0].outcome().unwrap_err();
    assert_eq!(error.kind(), tool_core::tool::ToolErrorKind::TimedOut);
}

/// A wrapper that asks in a task of its own, and is slow after the answer.
struct Detached(AgentTool, tokio::sync::mpsc::Sender<()>);

impl Tool for Detached {
    fn definition(&self) -> &tool_core::model::ToolDefinition {
        self.0.definition()
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a tool_core::ToolContext) -> ToolFuture<'a> {
        ToolFuture::boxed(async move {
            let (agent, arguments, context) = (self.0.clone(), arguments.to_owned(), context.clone());
            let held = self.1.clone();
            let asking = tokio::spawn(async move {
                let answer = agent.call(&arguments, &context).await;
                drop(held);
                answer
            });
            let answer = asking.await.unwrap()?;
            tokio::time::sleep(Duration::from_secs(100)).await;
            Ok(answer)
        })
    }

    fn wrapped(&self) -> Option<&dyn Tool> {
        Some(&self.0)
    }
}

/// An agent that has answered is not asked again, because its run has the time limit.
#[tokio::test(start_paused = true)]
async fn the_time_limit_of_calls_is_one_of_the_run_inside_and_no_task_of_a_wrapper_remains() {
    let (held, mut tasks) = tokio::sync::mpsc::channel(1);
    let inner = Agent::builder(Replies(&[], "Booked.")).build().unwrap();
    let agent = Agent::builder(Replies(&[&[("hotels", HOTELS)]], "Enjoy."))
        .tools(Detached(inner.as_tool("hotels", "Books hotels"), held))
        .call_timeout(Duration::from_secs(10))
        .build()
        .unwrap();
    let answer = agent.ask("Go").await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "Booked.");
    drop((agent, answer));
    let ended = tokio::time::timeout(Duration::from_secs(60), tasks.recv()).await;
    assert_eq!(ended.expect("a task waits for an answer that nobody gives"), None);
}

/// Each call that has finished was started, also one that undoes a call of an agent.
#[tokio::test]
async fn calls_that_undo_agents_are_started() {
    let inner = Agent::builder(Replies(&[&[("book_room", ROME)]], "Booked.")).tools(tools![book_room]);
    let inner = inner.undo_tools(tools![cancel_room]).context(Effects::default()).build().unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let agent = Agent::builder(Replies(&[&[("hotels", HOTELS)], &[("close", "{}")]], ""))
        .tools(tools![close])
        .tools(inner.as_tool("hotels", "Books hotels"))
        .on_event(move |event| match event {
            Event::CallStarted(call) => seen.lock().unwrap().push(format!("start {}", call.id)),
            Event::CallFinished(execution) => {
                seen.lock().unwrap().push(format!("finish {}", execution.call().id));
            }
            _ => {}
        });
    agent.build().unwrap().ask("Go").await.unwrap_err();
    let events = std::mem::take(&mut *events.lock().unwrap());
    let undo = ["start undo_call_0_0", "finish undo_call_0_0"];
    assert!(events.ends_with(&undo.map(str::to_owned)), "{events:?}");
}
