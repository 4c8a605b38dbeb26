//! Providers of tools that ask the user before a turn.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tests::support::stores::stored_runs;
use tests::support::ways::{resolved_in_all_ways, restored};
use tool_core::agent::{AgentBuilder, Outcome, ToolSearch, on_question};
use tool_core::engine::{AgentExt, AgentProfile};
use tool_core::memory::{InMemoryStore, RunStatus};
use tool_core::run::{Decision, Run, Step, Wait, WaitReason};
use tool_core::signatures::{DecisionKind, ResolveErrorKind, Timestamp};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{AskError, AskErrorKind, Asker, Progress, Question};
use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest};
use tool_core::{Agent, CancellationToken, Event, RunError, RunErrorKind, ToolContext, ToolSet, tool, tools};

const QUESTION: &str = "May the assistant read your files?";

#[tool("Reads a file")]
fn read(path: String) -> String {
    format!("the text of {path}")
}

/// Provides a tool to read files once the user has agreed. Notes what it learns.
#[derive(Clone, Default)]
struct Files(Arc<Mutex<Vec<Result<bool, AskErrorKind>>>>);

impl Files {
    fn learned(&self) -> Vec<Result<bool, AskErrorKind>> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl ToolProvider for Files {
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(async move {
            let question = request.asker().ask::<bool>(QUESTION).expires(Duration::from_secs(60));
            let agreed = question.await.map_err(|refusal| refusal.kind());
            self.0.lock().unwrap().push(agreed);
            Ok(if agreed == Ok(true) { tools![read] } else { ToolSet::default() })
        })
    }

    fn is_dynamic(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        "files"
    }
}

fn agent(files: &Files) -> AgentBuilder {
    let model = ScriptedModel::new().calls("read", r#"{"path": "a"}"#).says("Done.");
    Agent::builder(model).tool_provider(files.clone())
}

fn waiting(outcome: Result<tool_core::Answer, RunError>) -> Run {
    let error = outcome.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    restored(error.into_run())
}

#[tokio::test]
async fn the_run_waits_before_its_turn_in_all_ways() {
    let files = Files::default();
    let agree = |wait: &Wait| {
        assert_eq!((wait.question().unwrap().text(), &*wait.path, &*wait.tool), (QUESTION, "", "files"));
        Some(Decision::answer(true).by("ada"))
    };
    let answer = resolved_in_all_ways(|| agent(&files), &agree).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "the text of a");
    // Nobody is asked again in the second turn.
    assert!(files.learned().iter().all(|learned| *learned == Ok(true)));

    let decline = |_: &Wait| Some(Decision::decline());
    let answer = resolved_in_all_ways(|| agent(&files), &decline).await.unwrap();
    assert!(
        answer.new_messages()[2].text().contains("there is no tool"),
        "{}",
        answer.new_messages()[2].text()
    );
    assert!(files.learned().iter().all(|learned| *learned == Err(AskErrorKind::Declined)));

    let cancel = |_: &Wait| None;
    let error = resolved_in_all_ways(|| agent(&files), &cancel).await.unwrap_err();
    assert!(error.run().is_done() && error.run().waits().is_empty());
    assert_eq!(files.learned(), []);
}

#[tokio::test]
async fn nothing_but_the_decision_ends_the_wait() {
    let (files, model) = (Files::default(), ScriptedModel::new().says("Good morning!"));
    let agent = Agent::builder(model).tool_provider(files.clone()).build().unwrap();
    let mut run = waiting(agent.ask("Hello").await);
    let id = run.waits()[0].id.clone();
    // Another process asks the same.
    run = waiting(agent.resume(run).await);
    assert_eq!(run.waits()[0].id, id);
    assert!(run.is_blocked() && !run.is_asking());
    assert!(matches!(run.next(agent.tools().definitions()), Step::Waiting(waits) if waits.len() == 1));
    let response = tool_core::model::ChatResponse::new(tool_core::model::AssistantMessage::text("Hi"));
    run.record_response(response).unwrap_err();
    let mut wrong = |decision| run.resolve(&id, decision).unwrap_err().kind();
    assert_eq!(wrong(Decision::approve()), ResolveErrorKind::WrongDecision);
    run.resolve(&id, Decision::defer()).unwrap();
    assert_eq!(run.waits().len(), 1);
    run.resolve(&id, Decision::answer("maybe")).unwrap();
    let mut run = waiting(agent.resume(run).await);
    let again = run.waits().remove(0);
    assert!(again.question().unwrap().problem().is_some() && again.id != id);
    let id = again.id;
    assert_eq!(files.learned(), []);

    run.resolve(&id, Decision::answer(true).by("ada").because("today")).unwrap();
    let mut run = restored(run);
    assert_eq!(
        run.resolve(&id, Decision::decline()).unwrap_err().decided().unwrap().by.as_deref(),
        Some("ada")
    );
    let mut driver = agent.resume(run).start();
    let mut decided = Vec::new();
    while driver.advance().await.unwrap() {}
    decided.extend(driver.run().decisions().map(|one| (one.kind, one.why.clone())));
    assert_eq!(decided, [(DecisionKind::Answered, None), (DecisionKind::Answered, Some("today".to_owned()))]);
    assert_eq!(files.learned(), [Ok(true)]);
}

#[tokio::test]
async fn time_and_messages_of_the_user_end_the_wait() {
    let (files, model) = (Files::default(), ScriptedModel::new().says("Late.").says("Never mind."));
    let agent = Agent::builder(model).tool_provider(files.clone()).build().unwrap();
    let mut run = waiting(agent.ask("Hello").await);
    let deadline = run.waits()[0].deadline.unwrap();
    assert!(!run.tick(Timestamp::from_millis(deadline.as_millis() - 1)));
    assert!(run.tick(deadline));
    assert_eq!(run.decisions().map(|one| one.kind).collect::<Vec<_>>(), [DecisionKind::Expired]);
    assert_eq!(agent.resume(restored(run)).await.unwrap().text(), "Late.");
    assert_eq!(files.learned(), [Err(AskErrorKind::Expired)]);

    let mut run = waiting(agent.ask("Hello").await);
    run.deny_and_say("Never mind").unwrap();
    assert!(run.waits().is_empty());
    assert_eq!(agent.resume(run).await.unwrap().text(), "Never mind.");
    assert_eq!(files.learned(), [Err(AskErrorKind::Declined)]);
}

#[tokio::test]
async fn deciders_and_other_processes_answer() {
    let files = Files::default();
    let agreeing = on_question(|question: &Question| {
        assert_eq!(question.text(), QUESTION);
        Decision::answer(true)
    });
    let answer = agent(&files).decider(agreeing).build().unwrap().ask("Read").await.unwrap();
    assert_eq!(answer.text(), "Done.");

    let events = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&events);
    let on_event = move |event: &Event| {
        if let Event::CallDecided(decided) = event {
            record.lock().unwrap().push((decided.tool.clone(), decided.record.kind));
        }
    };
    let stored = agent(&files).run_store(InMemoryStore::new()).on_event(on_event).build().unwrap();
    let run = waiting(stored.ask("Read").await);
    let listed = stored_runs(&stored).await.remove(0);
    assert_eq!((listed.status, listed.run.waits().len()), (RunStatus::Waiting, 1));
    let decided = stored.decide(run.id().as_str(), &run.waits()[0].id, Decision::answer(true)).await.unwrap();
    let outcome = decided.resume().unwrap().outcome().await;
    assert!(matches!(&outcome, Outcome::Answer(answer) if answer.text() == "Done."), "{outcome:?}");
    assert_eq!(*events.lock().unwrap(), [("files".to_owned(), DecisionKind::Answered)]);
}

#[tokio::test]
async fn the_provider_of_an_agent_inside_asks_as_well() {
    let files = Files::default();
    let build = || {
        let inside = agent(&files).build().unwrap();
        let model = ScriptedModel::new().calls("ask", r#"{"question": "Read a"}"#).says("All done.");
        Agent::builder(model).tools(inside.as_tool("ask", "Asks"))
    };
    let agree = |wait: &Wait| {
        assert!(matches!(wait.reason, WaitReason::Answer(_)));
        assert_eq!((&*wait.path, &*wait.tool), ("call_1_0", "files"));
        Some(Decision::answer(true))
    };
    let answer = resolved_in_all_ways(build, &agree).await.unwrap();
    assert_eq!(answer.text(), "All done.");
    assert_eq!(answer.inner_runs()[0].run().tool_executions().len(), 1);
}

#[tokio::test]
async fn open_calls_of_a_resumed_run_do_not_wait_for_providers() {
    let files = Files::default();
    #[tool("Asks for a name")]
    async fn name(#[inject] user: &tool_core::tool::Asker) -> Result<String, tool_core::ToolError> {
        Ok(user.ask("Which name?").await?)
    }
    let model = ScriptedModel::new().calls("name", "{}").says("Done.");
    let build =
        |model| Agent::builder(model).tools(tools![name]).tool_provider(files.clone()).build().unwrap();
    let agent = build(model);
    let mut run = waiting(agent.ask("Hello").await);
    run.resolve(run.waits()[0].id.clone(), Decision::answer(true)).unwrap();
    let mut run = waiting(agent.resume(run).await);
    files.learned();
    run.resolve(run.waits()[0].id.clone(), Decision::answer("Ada")).unwrap();
    let mut stored = serde_json::to_value(&run).unwrap();
    agent.resume(run).await.unwrap();
    assert_eq!(files.learned(), [Ok(true), Ok(true)]);
    // A deployment adds the provider while the call waits.
    stored["head"].as_object_mut().unwrap().remove("providers").unwrap();
    let run: Run = serde_json::from_value(stored).unwrap();
    let agent = build(ScriptedModel::new().says("Done."));
    assert_eq!(waiting(agent.resume(run).await).waits()[0].tool, "files");
    assert_eq!(files.learned(), [Err(AskErrorKind::Unavailable)]);
}

/// A provider that a deployment has removed, here one of two with the name, is not waited for.
#[tokio::test]
async fn the_question_of_a_removed_provider_ends() {
    let decided = Mutex::new(Arc::default());
    let build = |is_removed: bool| {
        let model = ScriptedModel::new().expects(|request| request.tools().len() == 1).says("Done.");
        let decided: Arc<Mutex<Vec<_>>> = Arc::clone(&decided.lock().unwrap());
        let on_event = move |event: &Event| {
            if let Event::CallDecided(decision) = event {
                decided.lock().unwrap().push(decision.record.kind);
            }
        };
        let agent = Agent::builder(model).tool_provider(Files::default()).on_event(on_event);
        if is_removed { agent } else { agent.tool_provider(Files::default()) }
    };
    let inside = |is_removed: bool| {
        let agent = build(is_removed).build().unwrap();
        let model = if is_removed {
            ScriptedModel::new()
        } else {
            ScriptedModel::new().calls("ask", r#"{"question": "Read a"}"#)
        };
        Agent::builder(model.says("Done.")).tools(agent.as_tool("ask", "Asks"))
    };
    type Build<'a> = &'a dyn Fn(bool) -> AgentBuilder;
    for (build, path, is_driven) in [
        (&build as Build<'_>, "", false),
        (&build, "", true),
        (&inside, "call_1_0", false),
        (&inside, "call_1_0", true),
    ] {
        *decided.lock().unwrap() = Arc::default();
        let (before, after) = (build(false).build().unwrap(), build(true).build().unwrap());
        let mut run = waiting(before.ask("Read").await);
        run.resolve(run.waits()[0].id.clone(), Decision::answer(true)).unwrap();
        let run = waiting(before.resume(run).await);
        // The same program asks again.
        let run = waiting(before.resume(run).await);
        assert_eq!((run.waits().len(), &*run.waits()[0].path), (1, path));
        let mut driver = after.resume(run).start();
        while is_driven && driver.advance().await.unwrap() {
            driver = after.resume(restored(driver.into_run())).start();
        }
        let answer = match is_driven {
            true => driver.finish().await.unwrap(),
            false => after.resume(driver.into_run()).await.unwrap(),
        };
        assert_eq!(answer.text(), "Done.");
        let mut decided = std::mem::take(&mut *decided.lock().unwrap().lock().unwrap());
        decided.dedup();
        assert_eq!(decided, [DecisionKind::Answered, DecisionKind::Unavailable]);
    }
}

type Provided<'a> = BoxFuture<'a, Result<ToolSet, AskError>>;

/// Asks what a function says, and provides tools then.
struct Asking<F>(F);

fn asking<F: for<'a> Fn(&'a Asker) -> Provided<'a>>(ask: F) -> Asking<F> {
    Asking(ask)
}

impl<F: for<'a> Fn(&'a Asker) -> Provided<'a> + Send + Sync> ToolProvider for Asking<F> {
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(async move { Ok((self.0)(request.asker()).await?) })
    }

    fn is_dynamic(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        "asking"
    }
}

/// Each provider asks for itself: two of one name, and one of an agent that the run was handed off to.
#[tokio::test]
async fn a_reply_is_for_the_provider_that_has_asked() {
    let build =
        || asking(|asker| async { asker.ask::<bool>(QUESTION).await.map(|_| ToolSet::default()) }.boxed());
    let billing = Agent::builder(ScriptedModel::new().says("It is paid."));
    let billing = billing.name("billing").tool_provider(build()).build().unwrap();
    let model = ScriptedModel::new().calls("hand_off_to_billing", "{}");
    let desk = Agent::builder(model).tool_provider(build()).tool_provider(build());
    let agent = desk.handoff_to("hand_off_to_billing", "Knows bills", &billing).build().unwrap();
    let mut outcome = agent.ask("Go").await;
    let mut ids = std::collections::HashSet::new();
    for _ in 0..3 {
        let mut run = waiting(outcome);
        let wait = run.waits().remove(0);
        run.resolve(&wait.id, Decision::answer(true)).unwrap();
        ids.insert(wait.id);
        outcome = agent.resume(run).await;
    }
    assert_eq!((ids.len(), outcome.unwrap().text()), (3, "It is paid."));
}

/// A provider that cannot do without an answer stops no run that has begun to call tools, and none that is undone.
#[tokio::test]
async fn a_provider_that_needs_an_answer_stops_no_open_calls() {
    #[tool("Books", undo = "cancel", needs_approval)]
    fn book() {}
    #[tool("Cancels")]
    fn cancel() {}
    let secret = || {
        asking(|asker| {
            async {
                let _: String = asker.ask("Which password?").secret().await?;
                Ok(tools![read])
            }
            .boxed()
        })
    };
    let agent = |model: ScriptedModel| {
        let agent = Agent::builder(model).tools(tools![book]).undo_tools(tools![cancel]);
        agent.tool_provider(secret()).build().unwrap()
    };
    let calls = [("read", r#"{"path": "a"}"#), ("book", "{}")];
    let first = agent(ScriptedModel::new().calls_all(calls));
    let mut run = waiting(first.ask("Go").await);
    run.resolve(run.waits()[0].id.clone(), Decision::answer("x")).unwrap();
    // The process has the secret, and no other one.
    let error = first.resume(run).await.unwrap_err();
    let mut run: Run = serde_json::from_str(&serde_json::to_string(error.run()).unwrap()).unwrap();
    assert_eq!(run.waits().len(), 1);
    run.resolve(run.waits()[0].id.clone(), Decision::approve()).unwrap();
    // The turn ends, and the next one needs the secret again.
    let mut run = waiting(agent(ScriptedModel::new()).resume(run).await);
    assert_eq!((&*run.waits()[0].tool, run.turns()), ("asking", 1));
    run.cancel();
    let error = agent(ScriptedModel::new()).resume(restored(run)).await.unwrap_err();
    assert_eq!(error.run().undo_executions().len(), 1);
    assert!(error.run().is_done(), "{error}");
}

/// The model is not asked before the tools are known.
#[tokio::test]
async fn a_question_that_expires_at_once_is_over() {
    let at_once = asking(|asker| {
        async {
            let agreed = asker.ask::<bool>(QUESTION).expires(Duration::ZERO).await;
            assert_eq!(agreed.unwrap_err().kind(), AskErrorKind::Expired);
            Ok(tools![read])
        }
        .boxed()
    });
    let model = ScriptedModel::new().expects(|request| request.tools().len() == 1).says("Done.");
    let agent = Agent::builder(model).tool_provider(at_once).build().unwrap();
    assert_eq!(agent.ask("Go").await.unwrap().text(), "Done.");
}

/// Only a call can be parked and record values.
#[tokio::test]
async fn a_provider_only_asks() {
    let counted = Arc::new(Mutex::new(0));
    let count = Arc::clone(&counted);
    let provider = asking(move |asker| {
        let count = Arc::clone(&count);
        async move {
            let refused = asker.park(&1, Timestamp::from_millis(0)).await;
            assert_eq!(refused.kind(), AskErrorKind::Unavailable);
            assert_eq!(asker.parked::<u32>().unwrap(), None);
            let counting = async {
                *count.lock().unwrap() += 1;
                Ok::<_, AskError>(())
            };
            asker.once("count", counting).await?;
            Ok(tools![read])
        }
        .boxed()
    });
    let model = ScriptedModel::new().calls("read", r#"{"path": "a"}"#).says("Done.");
    let agent = Agent::builder(model).tool_provider(provider).build().unwrap();
    agent.ask("Go").await.unwrap();
    assert_eq!(*counted.lock().unwrap(), 2);
}

/// A call that another process executes has the replies.
#[tokio::test]
async fn a_call_elsewhere_has_the_replies() {
    let files = Files::default();
    let first = agent(&files).build().unwrap();
    let mut run = waiting(first.ask("Read").await);
    run.resolve(run.waits()[0].id.clone(), Decision::answer(true)).unwrap();
    let mut driver = first.resume(run).start();
    driver.advance().await.unwrap();
    let request = driver.into_run().request_call("call_1_0").unwrap();
    let request = serde_json::from_str(&serde_json::to_string(&request).unwrap()).unwrap();
    let (context, never) = (ToolContext::new(), CancellationToken::new());
    let other = agent(&files).build().unwrap();
    let execution = other.execute_request(&[], request, &context, &never, Progress::default()).await;
    assert_eq!(execution.output().unwrap().to_string(), "the text of a");
}

/// A server whose tools are there while its user is logged in.
struct Tickets(Arc<Mutex<bool>>);

/// The same, whose provider returns the error of its asker.
struct Strict(Tickets);

impl ToolProvider for Strict {
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(async move {
            if !*self.0.0.lock().unwrap() {
                while request.asker().ask::<bool>("Have you logged in?").await? {}
            }
            self.0.tools(request).await
        })
    }

    fn is_dynamic(&self) -> bool {
        true
    }

    fn has_untrusted_names(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        "tickets"
    }
}

#[tool("Writes a ticket", needs_approval)]
fn write(text: String) -> String {
    format!("wrote {text}")
}

impl ToolProvider for Tickets {
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(async move {
            if *self.0.lock().unwrap() {
                return Ok(tools![write]);
            }
            while request.asker().ask::<bool>("Have you logged in?").await.unwrap_or(false) {}
            Err("log in first".into())
        })
    }

    fn is_dynamic(&self) -> bool {
        true
    }

    fn has_untrusted_names(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        "tickets"
    }
}

/// A server that is always there.
struct Notes;

#[tool("Writes a note", needs_approval)]
fn note() -> String {
    "noted".into()
}

impl ToolProvider for Notes {
    fn tools<'a>(&'a self, _: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(async { Ok(tools![note]) })
    }

    fn is_dynamic(&self) -> bool {
        true
    }

    fn has_untrusted_names(&self) -> bool {
        true
    }
}

#[tool("Books", undo = "cancel_booking")]
fn book() {}

#[tool("Cancels")]
fn cancel_booking() {}

/// A login that has ended keeps none of the calls that need no tool of the provider: of others, and those that undo.
#[tokio::test]
async fn an_untrusted_provider_does_not_ask_before_other_calls() {
    let is_logged_in = Arc::new(Mutex::new(true));
    let log_in = |is: bool| *is_logged_in.lock().unwrap() = is;
    let agent = |model: ScriptedModel| {
        let agent = Agent::builder(model).tools(tools![book]).undo_tools(tools![cancel_booking]);
        let agent = agent.tool_provider(Tickets(is_logged_in.clone())).tool_provider(Notes);
        agent.tool_search(ToolSearch::bm25().min_tools(0)).build().unwrap()
    };
    // A search that was interrupted.
    let model = ScriptedModel::new().calls("search_tools", r#"{"query": "note"}"#);
    let mut driver = agent(model).ask("Go").start();
    driver.advance().await.unwrap();
    let run = driver.into_run();
    assert!(run.tool_executions().is_empty());
    log_in(false);
    let run = waiting(agent(ScriptedModel::new()).resume(restored(run)).await);
    assert_eq!((&*run.waits()[0].tool, run.tool_executions().len()), ("tickets", 1));

    // A booking is undone.
    log_in(true);
    let agent = |model: ScriptedModel| {
        let agent = Agent::builder(model).tools(tools![book]).undo_tools(tools![cancel_booking]);
        agent.tool_provider(Tickets(is_logged_in.clone())).build().unwrap()
    };
    let calls = [("book", "{}"), ("write", r#"{"text": "b"}"#)];
    let mut run = waiting(agent(ScriptedModel::new().calls_all(calls)).ask("Go").await);
    log_in(false);
    run.cancel();
    let error = agent(ScriptedModel::new()).resume(restored(run)).await.unwrap_err();
    assert!(error.run().is_done(), "{error}");
    assert_eq!(error.run().undo_executions().len(), 1);
}

/// A login that has ended while its call waits keeps the call, and nobody else's.
#[tokio::test]
async fn an_untrusted_provider_asks_before_open_calls_of_its_tools_go_on() {
    let is_logged_in = Arc::new(Mutex::new(true));
    let log_in = |is: bool| *is_logged_in.lock().unwrap() = is;
    let is_strict = Arc::new(Mutex::new(false));
    let agent = |model: ScriptedModel| {
        let (agent, tickets) = (Agent::builder(model).tools(tools![read]), Tickets(is_logged_in.clone()));
        let agent = match *is_strict.lock().unwrap() {
            true => agent.tool_provider(Strict(tickets)),
            false => agent.tool_provider(tickets),
        };
        agent.build().unwrap()
    };
    let begun = async || {
        log_in(true);
        let calls = [("read", r#"{"path": "a"}"#), ("write", r#"{"text": "b"}"#)];
        let mut run = waiting(agent(ScriptedModel::new().calls_all(calls)).ask("Go").await);
        run.resolve(run.waits()[0].id.clone(), Decision::approve()).unwrap();
        log_in(false);
        run
    };
    let resume = async |run: Run| agent(ScriptedModel::new().says("Done.")).resume(run).await;
    let asked = |run: &Run| {
        let [wait] = &run.waits()[..] else { panic!("{:?}", run.waits()) };
        assert_eq!((&*wait.path, &*wait.tool), ("", "tickets"));
        assert_eq!(wait.question().unwrap().text(), "Have you logged in?");
        wait.id.clone()
    };

    for strict in [true, false] {
        *is_strict.lock().unwrap() = strict;
        let mut run = waiting(resume(begun().await).await);
        let first = asked(&run);
        // It is not so.
        run.resolve(&first, Decision::answer(true)).unwrap();
        let mut run = waiting(resume(run).await);
        let second = asked(&run);
        assert_ne!(first, second);
        assert!(matches!(run.next(tools![read].definitions()), Step::Waiting(waits) if waits.len() == 1));
        run.engine().set_profile(AgentProfile::new(8));
        assert!(run.engine().poll().is_none());
        run.resolve(&second, Decision::answer(true)).unwrap();
        log_in(true);
        let answer = resume(restored(run)).await.unwrap();
        let outputs: Vec<_> =
            answer.tool_executions().iter().map(|one| one.output().unwrap().to_string()).collect();
        assert_eq!(outputs, ["the text of a", "wrote b"]);
    }

    // Declined, the call stays open until somebody has logged in.
    let mut run = waiting(resume(begun().await).await);
    run.resolve(asked(&run), Decision::decline()).unwrap();
    let error = resume(run).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Tools { .. }), "{error}");
    log_in(true);
    assert_eq!(resume(restored(error.into_run())).await.unwrap().text(), "Done.");

    let mut run = waiting(resume(begun().await).await);
    run.cancel();
    assert!(resume(restored(run)).await.unwrap_err().run().is_done());
}
