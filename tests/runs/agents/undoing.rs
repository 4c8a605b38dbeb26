//! Inner runs with effects: they continue from each stored state, and their calls are undone.

use super::*;
use tool_core::engine::{AgentExt, ToolSetExt};

/// Returns an agent over two levels of others.
fn travel(desk: Replies, hotels: Replies, effects: &Effects) -> AgentBuilder {
    let tools = || tools![book_room, pay, sign, close];
    let guide = Agent::builder(Replies(&[&[("book_room", OSLO), ("sign", "{}")]], "Seen."))
        .tools(tools())
        .undo_tools(tools![cancel_room]);
    let guide = guide.build().unwrap().as_tool("guide", "Shows cities").pass_context::<Effects>();
    let hotels = Agent::builder(hotels).tools(tools()).undo_tools(tools![cancel_room]).tools(guide);
    let hotels = hotels.build().unwrap().as_tool("hotels", "Books hotels").pass_context::<Effects>();
    Agent::builder(desk).tools(tools()).undo_tools(tools![cancel_room]).tools(hotels).context(effects.clone())
}

#[tokio::test(start_paused = true)]
async fn a_run_with_two_levels_of_agents_continues_from_each_stored_state() {
    let desk =
        Replies(&[&[("hotels", HOTELS), ("book_room", ROME)], &[("pay", r#"{"cents": 5}"#)]], "Enjoy Rome.");
    let hotels =
        Replies(&[&[("pay", r#"{"cents": 7}"#)], &[("guide", HOTELS), ("book_room", ROME)]], "Booked.");
    let effects = Effects::default();
    let states = EveryState::default();
    let agent = travel(desk.clone(), hotels.clone(), &effects).run_store(states.clone()).build().unwrap();
    let expected = await_it(&agent, "Go on", |_| Decision::approve()).await.unwrap();
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
            run.decide_calls(&Decision::approve());
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
    let error = in_all_ways(|| travel(desk.clone(), hotels.clone(), &effects), |_| Decision::approve())
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

#[tokio::test(start_paused = true)]
async fn an_undo_of_two_levels_continues_from_each_stored_state() {
    let desk = Replies(&[&[("hotels", HOTELS)], &[("close", "{}")]], "");
    let hotels = Replies(&[&[("guide", HOTELS)], &[("book_room", ROME)]], "Booked.");
    let (effects, states) = (Effects::default(), EveryState::default());
    let agent = || travel(desk.clone(), hotels.clone(), &effects);
    await_it(&agent().run_store(states.clone()).build().unwrap(), "Go on", |_| Decision::approve())
        .await
        .unwrap_err();
    effects.take();
    for state in states.take().into_iter().step_by(size(3, 1)) {
        let mut error =
            agent().build().unwrap().resume(serde_json::from_str(&state).unwrap()).await.unwrap_err();
        if matches!(error.kind(), RunErrorKind::Waiting) {
            let mut run = restored(error.into_run());
            run.decide_calls(&Decision::approve());
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
    assert_eq!(answer.new_messages()[2].text(), "the agent gave no answer: one of its tools failed");
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
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    let awaiting: Vec<_> = error.approvals().map(|call| call.id).collect();
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
            &[],
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
    let expected = "the call was not executed: this call undoes another one; drive its run with `RunDriver`, or request it with \
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
    let agent = Agent::builder(Replies(&[&[("hotels", HOTELS)]], "Enjoy.")).tools(hotels).build().unwrap();
    let answer = agent.ask("Go").await.unwrap();
    assert_eq!(effects.take(), ["book Rome call_0_0", "cancel Rome undo_call_0_0"]);
    assert_eq!(
        answer.tool_executions()[0].outcome().unwrap_err().kind(),
        tool_core::tool::ToolErrorKind::Panicked
    );
    assert_eq!(restored(answer.inner_runs()[0].run().clone()).undo_executions().len(), 1);
}

/// What undoes a call of an agent is not interrupted by the time or the cancellation of the run around it.
#[tokio::test(start_paused = true)]
async fn an_undo_inside_is_not_interrupted() {
    type Log = Arc<Mutex<Vec<&'static str>>>;

    #[tool("Books", undo = "cancel")]
    fn book() {}

    #[tool("Cancels for a while")]
    async fn cancel(#[inject] log: &Log) {
        log.lock().unwrap().push("began");
        tokio::time::sleep(Duration::from_secs(60)).await;
        log.lock().unwrap().push("ended");
    }

    #[tool("Fails for good")]
    fn close() -> Result<(), ToolError> {
        Err(ToolError::fatal("closed"))
    }

    let log = Log::default();
    let inner = Replies(&[&[("book", "{}")], &[("close", "{}")]], "");
    let inner = Agent::builder(inner).tools(tools![book, close]).undo_tools(tools![cancel]);
    let inner = inner.context(Arc::clone(&log)).build().unwrap();
    let desk = Agent::builder(Replies(&[&[("inner", QUESTION)]], "Done."));
    let desk = desk.tools(inner.as_tool("inner", "Books")).build().unwrap();
    let error = desk.ask("Go").limits(|l| l.max_time(Duration::from_secs(30))).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTime(_))), "{error}");
    assert_eq!(std::mem::take(&mut *log.lock().unwrap()), ["began", "ended"]);

    let cancellation = tool_core::CancellationToken::new();
    let cancelled = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        cancellation.cancel();
        std::future::pending::<()>().await;
    };
    let asked = desk.ask("Go").cancellation_token(cancellation.clone());
    tokio::select! {
        outcome = async { asked.await } => {
            let error = outcome.unwrap_err();
            assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)), "{error}");
        }
        () = cancelled => unreachable!(),
    }
    assert_eq!(*log.lock().unwrap(), ["began", "ended"]);
}

/// Whatever event a hook of an agent inside fails at: its call fails, what its agents had done is undone, and the runs around go on.
#[tokio::test]
async fn a_panic_in_a_hook_of_each_level_undoes_what_is_inside() {
    #[tool("Reserves a room", undo = "release")]
    fn reserve(city: String, #[inject] effects: &Effects, #[inject] key: &IdempotencyKey) {
        effects.take_effect(&format!("reserve {city}"), key);
    }

    #[tool]
    fn release(city: String, #[inject] effects: &Effects, #[inject] key: &IdempotencyKey) {
        effects.take_effect(&format!("release {city}"), key);
    }

    for level in ["guide", "hotels"] {
        let mut panics = 0;
        for nth in 0.. {
            let (effects, panicked) = (Effects::default(), Arc::new(AtomicBool::new(false)));
            let build = || {
                let part = |name: &str, model: Replies| {
                    let (panicked, seen) = (Arc::clone(&panicked), AtomicUsize::new(0));
                    let is_at = name == level;
                    let agent = Agent::builder(model).tools(tools![reserve]).undo_tools(tools![release]);
                    agent.context(effects.clone()).on_event(move |_| {
                        if is_at && seen.fetch_add(1, Ordering::SeqCst) == nth {
                            panicked.store(true, Ordering::SeqCst);
                            panic!("the hook is broken");
                        }
                    })
                };
                let guide = part("guide", Replies(&[&[("reserve", OSLO)]], "Seen."));
                let guide = guide.build().unwrap().as_tool("guide", "Shows cities");
                let hotels = Replies(&[&[("guide", HOTELS)], &[("reserve", ROME)]], "Booked.");
                let hotels = part("hotels", hotels).tools(guide).build().unwrap().as_tool("hotels", "Books");
                part("desk", Replies(&[&[("hotels", HOTELS), ("reserve", r#"{"city": "Bonn"}"#)]], "Enjoy."))
                    .tools(hotels)
            };
            let answer = alike(build).await.unwrap();
            if !panicked.load(Ordering::SeqCst) {
                break;
            }
            let failed = answer.inner_runs()[0].run();
            let failed = if level == "guide" { failed.inner_runs().next().unwrap().run() } else { failed };
            assert!(failed.is_done() && !failed.is_undoing());
            // What has an answer is undone if the run around it fails.
            if failed.clone().finish().is_ok() {
                continue;
            }
            panics += 1;
            let effects = effects.take();
            for city in if level == "guide" { &["Oslo"][..] } else { &["Oslo", "Rome"] } {
                let count = |what: &str| effects.iter().filter(|one| one.starts_with(what)).count();
                let (reserved, released) =
                    (count(&format!("reserve {city}")), count(&format!("release {city}")));
                // A call that has begun counts as one that may have had its effect.
                assert!(reserved <= released, "{level} {nth} {city}: {effects:?}");
            }
            assert!(effects.iter().filter(|one| one.starts_with("release Bonn")).count() == 0);
        }
        assert!(panics > 5, "{level}: {panics}");
    }
}
