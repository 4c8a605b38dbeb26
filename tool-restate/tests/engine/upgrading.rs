//! Workers of a newer program.

use tool_core::layer::{OutputVerdict, QuestionVerdict, guard};
use tool_core::run::Decision;
use tool_core::testing::ScriptedModel;
use tool_core::tool::ToolErrorKind;
use tool_core::{Agent, ToolSet, tool, tools};
use tool_restate::{ChangedTools, ErrorKind, RemoteOutcome, Worker, register};

use crate::support::{
    Mortal, Serving, admin, agent, answer, failure, free_address, paths, serve, serve_at, unique,
    waiting_calls, within,
};

#[tool("Pays somebody", needs_approval)]
fn pay(euros: u32) -> String {
    format!("paid {euros}")
}

#[tool("Reads the balance")]
fn balance() -> u32 {
    500
}

mod newer {
    use tool_core::tool;

    #[tool("Pays somebody at once", needs_approval)]
    pub(crate) fn pay(cents: u32) -> String {
        format!("paid {cents} cents")
    }

    #[tool("Transfers money", needs_approval)]
    pub(crate) fn transfer() -> &'static str {
        "transferred"
    }

    #[tool("Searches")]
    pub(crate) fn search() {}
}

fn clerk(name: &str, model: &ScriptedModel, tools: ToolSet) -> Agent {
    Agent::builder(model.clone()).name(name).tools(tools).build().unwrap()
}

/// Runs that wait under one version finish on it, while the next one serves new runs.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_waiting_run_finishes_while_the_next_version_is_deployed() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("pay", r#"{"euros": 5}"#).says("New.").says("Paid.");
    let _old = serve(Worker::new().agent(clerk(&name, &model, tools![pay, balance]))).await;
    let run = agent(&name).ask("Pay").send().await.unwrap();
    let calls = waiting_calls(&run).await;
    let _new = serve(Worker::new().agent(clerk(&name, &model, tools![pay, newer::search]))).await;
    assert_eq!(answer(&agent(&name).ask("Hello").send().await.unwrap()).await.text(), "New.");
    run.decide(&calls[0].id, Decision::approve()).await.unwrap();
    let answer = answer(&run).await;
    assert_eq!(answer.text(), "Paid.");
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "paid 5");
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_program_is_registered_under_one_uri() {
    let name = unique("clerk");
    let model = ScriptedModel::new();
    let program = |tools, version| Worker::new().agent(clerk(&name, &model, tools)).version(version);
    let first = serve(program(tools![pay, balance], "1")).await;
    let uri = |serving: &Serving| format!("http://{}", serving.address);
    let same = serve_at(program(tools![pay, balance], "1"), free_address()).await;
    let error = register(&admin(), &uri(&same)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyRegistered);
    let expected = format!(
        "`{}` serves the same program as `{}/`, which would get nothing any more; register one URI for all its workers, or set \
         another `Worker::version`",
        uri(&same),
        uri(&first)
    );
    assert_eq!(error.to_string(), expected);
    // The same URI again, other tools, and another version are accepted.
    register(&admin(), &uri(&first)).await.unwrap();
    for newer in
        [program(tools![pay], "1"), program(tools![newer::pay], "1"), program(tools![newer::pay], "2")]
    {
        let newer = serve_at(newer, free_address()).await;
        register(&admin(), &uri(&newer)).await.unwrap();
    }
}

mod booking {
    use tool_core::tool;

    #[tool("Books a room", undo = "unbook")]
    pub(crate) fn book() {}

    #[tool("Cancels a booking")]
    pub(crate) fn unbook() -> &'static str {
        "old"
    }
}

mod newer_booking {
    use tool_core::tool;

    #[tool("Cancels a booking for a fee")]
    pub(crate) fn unbook() -> &'static str {
        "new"
    }
}

/// The newest deployment has other definitions of the tools under the same names, also on workers with only tools.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn calls_and_undos_go_to_the_program_that_offered_the_tool() {
    for (is_routed, is_approved) in [(false, true), (false, false), (true, true)] {
        let (name, shop) = (unique("clerk"), unique("shop"));
        let model = ScriptedModel::new().calls("book", "{}").calls("pay", r#"{"euros": 5}"#).says("Paid.");
        let clerk = |tools, undo_tools| {
            let clerk = Agent::builder(model.clone()).name(&*name).tools(tools).undo_tools(undo_tools);
            let worker = Worker::new().agent(clerk.build().unwrap());
            if is_routed { worker.tools_at(&*shop, ["pay"]) } else { worker }
        };
        let _old = serve(clerk(tools![pay, booking::book], tools![booking::unbook])).await;
        let _old_shop = serve(Worker::tools_only(&*shop, tools![pay])).await;
        let run = agent(&name).ask("Pay").send().await.unwrap();
        let calls = within("the approval", waiting_calls(&run)).await;
        let _new = serve(clerk(tools![newer::pay, booking::book], tools![newer_booking::unbook])).await;
        let _new_shop = serve(Worker::tools_only(&*shop, tools![newer::pay])).await;
        if is_approved {
            run.decide(&calls[0].id, Decision::approve()).await.unwrap();
            let answer = within("the answer", answer(&run)).await;
            assert_eq!(answer.text(), "Paid.");
            assert_eq!(answer.tool_executions()[1].output().unwrap().to_string(), "paid 5");
        } else {
            run.cancel().await.unwrap();
            let failure = within("the end", failure(&run)).await;
            assert_eq!(failure.undo_executions[0].output().unwrap().to_string(), "old");
        }
    }
}

/// The new program has the old one's URI, and then the old one is back.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_run_can_wait_until_its_tools_are_back() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("pay", r#"{"euros": 5}"#).says("Paid.");
    let address = free_address();
    let worker = |tools| Worker::new().agent(clerk(&name, &model, tools)).changed_tools(ChangedTools::Wait);
    let worker = |tools| worker(tools).model_patience(std::time::Duration::from_secs(1));
    let old = Mortal::start(worker(tools![pay]), address).await;
    crate::support::register_at(address).await;
    let run = agent(&name).ask("Pay").send().await.unwrap();
    let calls = waiting_calls(&run).await;
    drop(old);
    let new = Mortal::start(worker(tools![newer::pay]), address).await;
    run.decide(&calls[0].id, Decision::approve()).await.unwrap();
    match within("the pause", run.wait()).await.unwrap() {
        RemoteOutcome::Paused(reason) => assert!(reason.contains("(changed: `pay`)"), "{reason}"),
        other => panic!("{other:?}"),
    }
    drop(new);
    let _old = Mortal::start(worker(tools![pay]), address).await;
    run.resume().await.unwrap();
    let answer = within("the answer", answer(&run)).await;
    assert_eq!(answer.text(), "Paid.");
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "paid 5");
}

/// It pauses with another call that waits for a person, who can still decide about it afterwards.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_call_waits_for_a_person_while_its_run_is_paused() {
    let name = unique("clerk");
    let pay = |euros| ("pay", format!(r#"{{"euros": {euros}}}"#));
    let model = ScriptedModel::new().calls_all([pay(5), pay(6)]).says("Paid.");
    let address = free_address();
    let worker = |tools| Worker::new().agent(clerk(&name, &model, tools)).changed_tools(ChangedTools::Wait);
    let worker = |tools| worker(tools).model_patience(std::time::Duration::from_secs(1));
    let old = Mortal::start(worker(tools![self::pay]), address).await;
    crate::support::register_at(address).await;
    let run = agent(&name).ask("Pay").send().await.unwrap();
    let calls = waiting_calls(&run).await;
    drop(old);
    let new = Mortal::start(worker(tools![newer::pay]), address).await;
    run.decide(&calls[0].id, Decision::approve()).await.unwrap();
    loop {
        match within("the pause", run.wait()).await.unwrap() {
            RemoteOutcome::Paused(_) => break,
            RemoteOutcome::Waiting(_) => tokio::time::sleep(std::time::Duration::from_secs(6)).await,
            other => panic!("{other:?}"),
        }
    }
    drop(new);
    let _old = Mortal::start(worker(tools![self::pay]), address).await;
    run.resume().await.unwrap();
    assert_eq!(within("the other call", waiting_calls(&run)).await, calls[1..]);
    run.decide(&calls[1].id, Decision::approve()).await.unwrap();
    assert_eq!(within("the answer", answer(&run)).await.text(), "Paid.");
}

/// The new program has the old one's URI, so the run that waits meets it.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_run_that_meets_other_tools_fails_with_the_difference_or_continues_with_what_both_have() {
    for changed_tools in [ChangedTools::Fail, ChangedTools::Continue] {
        let name = unique("clerk");
        let offered = |request: &tool_core::model::ChatRequest<'_>| {
            request.tools().iter().map(|tool| tool.name().to_owned()).collect::<Vec<_>>()
        };
        let model = ScriptedModel::new()
            .calls("pay", r#"{"euros": 5}"#)
            .expects(move |request| offered(request) == ["balance"])
            .says("Not paid.");
        let address = free_address();
        let dying =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let old = Worker::new().agent(clerk(&name, &model, tools![pay, balance]));
        let serving = dying.spawn(serve_at(old, address)).await.unwrap();
        crate::support::register_at(address).await;
        let run = agent(&name).ask("Pay").send().await.unwrap();
        let calls = waiting_calls(&run).await;
        drop(serving);
        dying.shutdown_background();
        free(address).await;
        let new = clerk(&name, &model, tools![newer::pay, balance, newer::search]);
        let _new = serve_at(Worker::new().agent(new).changed_tools(changed_tools), address).await;
        run.decide(&calls[0].id, Decision::approve()).await.unwrap();
        if changed_tools == ChangedTools::Continue {
            let answer = answer(&run).await;
            // The approval was given for another tool.
            let error = answer.tool_executions()[0].outcome().unwrap_err();
            assert_eq!(error.kind(), ToolErrorKind::NotExecuted);
            assert_eq!(answer.text(), "Not paid.");
        } else {
            let failure = failure(&run).await;
            let expected =
                "the worker has other tools than the run started with (new: `search`; changed: `pay`)";
            assert!(failure.message.starts_with(expected), "{}", failure.message);
        }
    }
}

/// The new tool needs approval, which a call without a known definition would not await.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_run_that_continues_does_not_execute_the_new_program_s_tools() {
    let name = unique("clerk");
    let model =
        ScriptedModel::new().calls("pay", r#"{"euros": 5}"#).calls("transfer", "{}").says("Not transferred.");
    let address = free_address();
    let dying = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let old = Worker::new().agent(clerk(&name, &model, tools![pay]));
    let serving = dying.spawn(serve_at(old, address)).await.unwrap();
    crate::support::register_at(address).await;
    let run = agent(&name).ask("Pay").send().await.unwrap();
    let calls = waiting_calls(&run).await;
    drop(serving);
    dying.shutdown_background();
    free(address).await;
    let new = clerk(&name, &model, tools![pay, newer::transfer]);
    let _new = serve_at(Worker::new().agent(new).changed_tools(ChangedTools::Continue), address).await;
    run.decide(&calls[0].id, Decision::approve()).await.unwrap();
    let answer = answer(&run).await;
    let error = answer.tool_executions()[1].outcome().unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::UnknownTool);
    assert_eq!(error.to_string(), "there is no tool `transfer`; the tools are `pay`");
}

/// Waits until no worker listens on the address any more.
async fn free(address: std::net::SocketAddr) {
    while tokio::net::TcpListener::bind(address).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// The tools of an agent belong to the tool that it is.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn an_agent_whose_tools_have_changed_is_another_tool() {
    for changed_tools in [ChangedTools::Fail, ChangedTools::Continue] {
        let (name, address) = (unique("desk"), free_address());
        let (outer, inner) = (
            ScriptedModel::new().calls("billing", r#"{"question": "Pay"}"#).says("Done."),
            ScriptedModel::new().calls("pay", r#"{"euros": 5}"#).says("Paid."),
        );
        let worker = |tools: ToolSet| {
            let billing = Agent::builder(inner.clone()).tools(tools).build().unwrap();
            let desk = Agent::builder(outer.clone()).name(&*name).tools(billing.as_tool("billing", "Bills"));
            Worker::new().agent(desk.build().unwrap()).changed_tools(changed_tools)
        };
        let old = Mortal::start(worker(tools![pay]), address).await;
        tool_restate::register(&admin(), &format!("http://{address}")).await.unwrap();
        let run = agent(&name).ask("Go").send().await.unwrap();
        let calls = within("the approval", waiting_calls(&run)).await;
        assert_eq!(paths(&calls), ["call_1_0/call_1_0"]);
        drop(old);
        let _new = Mortal::start(worker(tools![newer::pay]), address).await;
        run.decide(&calls[0].id, Decision::approve()).await.unwrap();
        match within("the end", run.wait()).await.unwrap() {
            RemoteOutcome::Failed(failure) if changed_tools == ChangedTools::Fail => {
                let expected = "the worker has other tools than the run started with (changed: `billing`); deploy it under \
                                another URI, or set `.changed_tools(..)`";
                assert_eq!(failure.message, expected);
            }
            RemoteOutcome::Answer(answer) if changed_tools == ChangedTools::Continue => {
                let error = answer.tool_executions()[0].error().unwrap().to_string();
                assert_eq!(
                    error,
                    "the agent `billing` has changed and cannot continue; what its calls have done so far remains"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The layers of a turn are those of the program that took it, so a replay by a newer program with others goes the same way.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_run_goes_on_under_a_program_with_another_layer() {
    for was_guarded in [false, true] {
        let name = unique("clerk");
        let model = ScriptedModel::new().calls("pay", r#"{"euros": 5}"#).says("Paid.");
        let worker = |is_guarded| {
            let clerk = Agent::builder(model.clone()).name(&*name).tools(tools![pay, balance]);
            let clerk = match is_guarded {
                true => clerk
                    .layer(guard::question(|_| QuestionVerdict::Pass))
                    .layer(guard::output(|_| OutputVerdict::Pass)),
                false => clerk,
            };
            Worker::new().agent(clerk.build().unwrap())
        };
        let address = free_address();
        let before = Mortal::start(worker(was_guarded), address).await;
        crate::support::register_at(address).await;
        let run = agent(&name).ask("Pay").send().await.unwrap();
        let calls = waiting_calls(&run).await;
        drop(before);
        let _after = Mortal::start(worker(!was_guarded), address).await;
        run.decide(&calls[0].id, Decision::approve()).await.unwrap();
        assert_eq!(within("the answer", answer(&run)).await.text(), "Paid.");
    }
}
