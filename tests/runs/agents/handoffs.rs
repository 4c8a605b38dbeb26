//! Runs that are handed off to another agent.

use super::*;
use tool_core::layer::{OutputVerdict, guard};

#[tokio::test]
async fn a_run_is_handed_off_with_instructions_and_tools() {
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
            builder.handoff_to("billing", "Takes over invoices", &billing().build().unwrap())
        };
        let answer = in_all_ways(build, |_| Decision::approve()).await.unwrap();
        assert_eq!((answer.text(), answer.turns(), answer.tool_executions().len()), ("Refunded.", 3, 3));
        assert_eq!(answer.new_messages()[0].text(), "What now?");
        let handoffs: Vec<_> = answer.handoffs().iter().map(|one| (one.agent(), one.turn())).collect();
        assert_eq!(handoffs, [("billing", 1)]);
        let parts: Vec<_> =
            answer.usage_by_agent().into_iter().map(|(agent, usage)| (agent, usage.total_tokens)).collect();
        assert_eq!(parts, [("agent".to_owned(), 2), ("billing".to_owned(), 10)]);
        assert_eq!(effects.take(), ["pay call_1_1"; 3]);
        let transcript = answer.transcript().to_string();
        let speakers: Vec<_> = transcript
            .lines()
            .filter(|line| line.starts_with("model") || line.starts_with("handed off"))
            .map(|line| line.split_once(" {").map_or(line, |(speaker, _)| speaker))
            .collect();
        let expected = [
            "model calls billing:",
            "model calls pay:",
            "handed off to: billing",
            "model calls refund:",
            "model: Refunded.",
        ];
        assert_eq!(speakers, expected, "{transcript}");
    }
    let mut events = Vec::new();
    let agent = Agent::builder(desk()).tools(tools![pay]).context(effects).handoff_to(
        "billing",
        "Takes over",
        &billing().build().unwrap(),
    );
    let mut stream = agent.build().unwrap().ask("Go").stream();
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::HandedOff { agent, .. }) => events.push(format!("handed off to {agent}")),
            Ok(Event::TurnStarted { turn, .. }) => events.push(format!("turn {turn}")),
            _ => {}
        }
    }
    assert_eq!(events, ["turn 1", "handed off to billing", "turn 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_handed_off_run_continues_from_each_stored_state_and_is_undone_by_both_agents() {
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
            .handoff_to("billing", "Takes over", &billing.build().unwrap())
    };
    let agent = build(false).run_store(states.clone()).build().unwrap();
    let expected = await_it(&agent, "Go", |_| Decision::approve()).await.unwrap();
    assert_eq!((expected.text(), effects.take().len()), ("It is paid.", 3));
    for state in states.take() {
        let mut run: Run = serde_json::from_str(&state).unwrap();
        run.decide_calls(&Decision::approve());
        let mut outcome = build(false).build().unwrap().resume(run).await;
        if let Err(error) = outcome {
            let mut run = restored(error.into_run());
            run.decide_calls(&Decision::approve());
            outcome = build(false).build().unwrap().resume(run).await;
        }
        let answer = outcome.unwrap();
        assert_eq!(
            (answer.text(), answer.new_messages().len(), answer.usage()),
            (expected.text(), expected.new_messages().len(), expected.usage())
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
async fn a_run_that_was_handed_off_to_an_unknown_agent_fails_without_a_request() {
    let billing = Agent::builder(ScriptedModel::new().fails("the line is dead")).build().unwrap();
    let desk = ScriptedModel::new().calls("billing", "{}");
    let agent = Agent::builder(desk).handoff_to("billing", "Takes over", &billing).build().unwrap();
    let run = restored(agent.ask("Go").await.unwrap_err().into_run());
    assert_eq!(run.handoffs().len(), 1);
    let error = Agent::builder(ScriptedModel::new()).build().unwrap().resume(run).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Tools { .. }), "{error}");
    let expected = "the run was handed off to `billing`: the agent has no `handoff_to` of this name";
    assert_eq!(error.to_string(), expected);
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Complaint {
    reason: String,
}

#[tokio::test]
async fn a_tool_with_arguments_hands_off_once_it_succeeds() {
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
        Agent::builder(model).handoff_by(complain(), &manager())
    };
    let answer = in_all_ways(build, |_| Decision::approve()).await.unwrap();
    assert_eq!((answer.text(), answer.turns()), ("I am sorry.", 3));
    let handoffs: Vec<_> = answer.handoffs().iter().map(|one| (one.agent(), one.turn())).collect();
    assert_eq!(handoffs, [("complain", 2)]);
}

#[tokio::test]
async fn an_inner_run_can_be_handed_off() {
    let refunder = || {
        billing(ScriptedModel::new().calls("refund", r#"{"number": 7}"#).says("Refunded.")).build().unwrap()
    };
    let inner = || {
        Agent::builder(ScriptedModel::new().calls("refunds", "{}")).handoff_to(
            "refunds",
            "Takes over",
            &refunder(),
        )
    };
    let answer = in_all_ways(|| desk(asks(), inner()), |_| Decision::approve()).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "Refunded.");
    let parts: Vec<_> = answer.usage_by_agent().into_iter().map(|(agent, _)| agent).collect();
    assert_eq!(parts, ["agent", "billing", "billing/refunds"]);
}

#[tokio::test]
async fn calls_after_a_handoff_are_decided_by_the_agent_that_takes_over() {
    let billing = || billing(ScriptedModel::new().calls("refund", r#"{"number": 7}"#).says("Refunded."));
    let desk = |billing: AgentBuilder| {
        let billing = billing.build().unwrap();
        Agent::builder(ScriptedModel::new().calls("billing", "{}"))
            .decider(on_approval(|_| Decision::approve()))
            .handoff_to("billing", "Takes over", &billing)
            .build()
            .unwrap()
    };
    let denies = |_: &ToolCall| Decision::deny("not today");
    let answer = desk(billing().decider(on_approval(denies))).ask("Refund it").await.unwrap();
    assert_eq!(answer.new_messages()[4].text(), "the call was denied: not today");
    let error = desk(billing()).ask("Refund it").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    let error = desk(billing().layer(guard::call(|_: &ToolCall| CallVerdict::LeaveToCaller)))
        .ask("Refund it")
        .decider(on_approval(|_| Decision::approve()));
    let error = error.await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    // The question's decides about the calls of every agent.
    let agent = desk(billing().decider(on_approval(denies)));
    let answer = agent.ask("Refund it").decider(on_approval(|_| Decision::approve())).await.unwrap();
    assert_eq!(answer.new_messages()[4].text(), "refunded 7");
}

#[tokio::test(start_paused = true)]
async fn an_undo_after_a_handoff_has_the_time_limit_and_the_error_handler_of_its_agent() {
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
        let billing = Agent::builder(ScriptedModel::new().calls("close", "{}")).tools(tools![close]).layer(
            guard::output(|execution| match &*execution.call().name {
                "release" => OutputVerdict::replace("released by billing"),
                _ => OutputVerdict::Pass,
            }),
        );
        let billing = limit(billing, !limits_desk).build().unwrap();
        let desk = Agent::builder(ScriptedModel::new().calls("reserve", "{}").calls("billing", "{}"))
            .tools(tools![reserve])
            .undo_tools(tools![release])
            .handoff_to("billing", "Takes over", &billing);
        let error = limit(desk, limits_desk).build().unwrap().ask("Go").await.unwrap_err();
        let [undo] = error.run().undo_executions() else { panic!("one call is undone: {error}") };
        let kind = undo.outcome().err().map(ToolError::kind);
        assert_eq!(kind, limits_desk.then_some(tool_core::tool::ToolErrorKind::TimedOut));
    }
}

#[tokio::test]
async fn instructions_and_options_of_the_question_outlive_a_handoff() {
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
            .handoff_to("billing", "Takes over", &billing);
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
async fn a_typed_question_with_tools_of_its_own_can_be_handed_off() {
    let billing = ScriptedModel::new()
        .expects(|request| {
            let tools: Vec<_> = request.tools().iter().map(|tool| tool.name()).collect();
            tools == ["find_invoice", "refund", "final_answer"]
        })
        .calls("final_answer", r#"{"answer": 700}"#);
    let billing = self::billing(billing).build().unwrap();
    let desk = ScriptedModel::new().calls("billing", "{}");
    let agent = Agent::builder(desk).handoff_to("billing", "Takes over", &billing).build().unwrap();
    let over = agent.tools().clone().union(tools![pay]).unwrap();
    let cents = agent.ask("What is invoice 7?").only_tools(over).context(Effects::default());
    assert_eq!(cents.answer_as::<u32>().await.unwrap(), 700);
}

#[tokio::test]
async fn a_repeated_id_refers_to_no_call_of_the_agent_before_a_handoff() {
    let calls = |calls: &[(&str, &str)]| {
        let calls = calls.iter().map(|(id, name)| ToolCall::new(*id, *name, "{}"));
        ScriptedModel::new().replies(ChatResponse::new(AssistantMessage::default().with_tool_calls(calls)))
    };
    let speaker = |text: &'static str| FunctionTool::new("who", move || text);
    let build = || {
        let billing = calls(&[("x-9xT2", "who")]).replies(ChatResponse::new(
            AssistantMessage::default().with_tool_calls([ToolCall::new("call_2_0", "who", "{}")]),
        ));
        let billing = Agent::builder(billing.says("Done.")).tools(speaker("billing")).build().unwrap();
        Agent::builder(calls(&[("x-9xT2", "who"), ("go", "billing")])).tools(speaker("desk")).handoff_to(
            "billing",
            "Takes over",
            &billing,
        )
    };
    let answer = alike(build).await.unwrap();
    let outputs: Vec<_> =
        answer.tool_executions().iter().map(|one| one.output().unwrap().to_string()).collect();
    assert_eq!(outputs, ["desk", "handed off", "billing", "billing"]);
}

#[tokio::test]
async fn repetitions_are_counted_across_handoffs() {
    let build = || {
        let model = || ScriptedModel::new().calls("sum", "{}").calls("sum", "{}");
        let billing =
            Agent::builder(model().says("Done.")).tools(FunctionTool::new("sum", || 3)).build().unwrap();
        let desk = Agent::builder(model().calls("billing", "{}")).tools(FunctionTool::new("sum", || 3));
        desk.handoff_to("billing", "Takes over", &billing)
    };
    let answer = alike(build).await.unwrap();
    let outcomes: Vec<_> = answer.tool_executions().iter().map(|one| one.outcome().is_ok()).collect();
    assert_eq!(outcomes, [true, true, true, true, false]);
}

#[tokio::test(start_paused = true)]
async fn an_undo_tool_has_the_policy_of_the_agent_whose_call_it_undoes() {
    let effects = Effects::default();
    // Both agents have undo tools of the same name; one of these tools is `at_most_once`.
    let build = |is_at_most_once: [bool; 2]| {
        let agent = |model, policy: bool, agent: &'static str| {
            let log = effects.clone();
            let cancel = move |_: serde_json::Map<String, serde_json::Value>| {
                log.0.lock().unwrap().push(format!("cancelled by {agent}"));
            };
            let cancel = FunctionTool::new("cancel_room", cancel);
            let cancel = if policy { cancel.at_most_once() } else { cancel };
            let hidden = ToolSet::default().with(cancel).unwrap();
            Agent::builder(model).tools(tools![book_room, close]).undo_tools(hidden).context(effects.clone())
        };
        let billing = Replies(&[&[], &[], &[("book_room", OSLO)], &[("close", "{}")]], "");
        let billing = agent(billing, is_at_most_once[1], "billing").build().unwrap();
        let desk = Replies(&[&[("book_room", ROME)], &[("billing", "{}")]], "");
        agent(desk, is_at_most_once[0], "desk").handoff_to("billing", "Takes over", &billing).build().unwrap()
    };
    for is_at_most_once in [[false, true], [true, false]] {
        let agent = build(is_at_most_once);
        let mut run = agent.ask("Go").start();
        let mut interrupted = Vec::new();
        // Each undo call is interrupted once, after it was started.
        while let step = run.next().await.unwrap()
            && !matches!(step, Step::Done)
        {
            let undo = match step {
                Step::CallTools(calls) => calls.into_iter().next().filter(|call| call.name == "cancel_room"),
                _ => None,
            };
            let Some(undo) = undo.filter(|undo| !interrupted.contains(&undo.id)) else {
                run.advance().await.unwrap();
                continue;
            };
            run.begin_call(&undo).await.unwrap();
            interrupted.push(undo.id);
            run = agent.resume(restored(run.into_run())).start();
        }
        assert_eq!(interrupted.len(), 2);
        let undone = effects.take().into_iter().filter(|effect| effect.starts_with("cancelled"));
        let expected = if is_at_most_once[0] { "cancelled by billing" } else { "cancelled by desk" };
        assert_eq!(undone.collect::<Vec<_>>(), [expected], "the other one was not started again");
    }
}

#[tokio::test]
async fn a_second_handoff_in_one_turn_is_reported_as_not_followed() {
    let other = |text| Agent::builder(Replies(&[], text)).build().unwrap();
    let sales = || FunctionTool::new("sales", || "noted");
    let desk = || {
        let calls = Replies(&[&[("billing", "{}"), ("sales", "{}")]], "");
        Agent::builder(calls)
            .handoff_to("billing", "Takes over invoices", &other("It is paid."))
            .handoff_by(sales(), &other("Buy this."))
    };
    let answer = alike(desk).await.unwrap();
    assert_eq!(answer.text(), "It is paid.");
    let results: Vec<_> = answer.new_messages()[2..4].iter().map(Message::text).collect();
    let refused = "not handed off, because this turn handed the run off to `billing`; output: noted";
    assert_eq!(results, ["handed off", refused]);
}
