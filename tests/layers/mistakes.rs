//! Layers that are refused, and what a layer must not let pass in odd places.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tests::support::deciding::Waiting;
use tests::support::ways::restored;
use tool_core::agent::{Event, on_approval};
use tool_core::layer::{
    AnswerVerdict, CallVerdict, OutputVerdict, QuestionVerdict, TextVerdict, guard, rewrite,
};
use tool_core::memory::InMemoryStore;
use tool_core::run::{Decision, ErrorPolicy, Step, StopReason};
use tool_core::schemars::{self, JsonSchema};
use tool_core::signatures::{DecisionKind, VerdictKind};
use tool_core::testing::ScriptedModel;
use tool_core::tool::ExternalTool;
use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest};
use tool_core::{Agent, RunErrorKind, ToolCall, ToolError, ToolOutput, tool, tools};

#[tool("Acts")]
fn act(text: String) -> String {
    format!("did {text}")
}

#[tool("Acts", return_direct)]
fn act_directly(text: String) -> String {
    format!("did {text}")
}

fn pass() -> tool_core::signatures::ClosureLayer {
    guard::call(|_: &ToolCall| CallVerdict::Pass)
}

fn refused(builder: tool_core::agent::AgentBuilder) -> String {
    builder.build().unwrap_err().to_string()
}

#[test]
fn build_refuses_invalid_layers() {
    let agent = || Agent::builder(ScriptedModel::new());
    let answers = || guard::answer(|_| AnswerVerdict::retry("again"));
    let table = [
        (
            agent().layer(pass()).layer(pass()),
            "two layers are named `guard::call`; give one another name, with `named` for a closure",
        ),
        (
            agent().layer(guard::needs_approval(|_| true)).layer(guard::needs_approval(|_| false)),
            "two layers are named `needs_approval`; give one another name, with `named` for a closure",
        ),
        (
            agent().layer(guard::text(0, |_| TextVerdict::Pass)),
            "the layer `guard::text` is invalid: its window has no characters",
        ),
        (
            agent().limits(|l| l.max_wrong_answers(u32::MAX)).layer(answers()),
            "the layer `guard::answer` is invalid: it can send back answers without end; lower `max_wrong_answers`",
        ),
    ];
    for (builder, expected) in table {
        assert_eq!(refused(builder), expected);
    }
    agent().layer(pass()).layer(pass().named("another")).layer(answers()).build().unwrap();
}

#[derive(serde::Deserialize, serde::Serialize, JsonSchema)]
struct Text {
    text: String,
}

fn renames(tool: &str) -> tool_core::signatures::ClosureLayer {
    rewrite::arguments(tool, |text: Text| text)
}

/// Supplies the tool `act`.
struct Acts;

impl ToolProvider for Acts {
    fn tools<'a>(&'a self, _: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(async { Ok(tools![act]) })
    }
}

/// A layer that never sees its tool would let everything pass in silence.
#[tokio::test]
async fn a_layer_names_only_tools_that_exist() {
    let unknown = "the layer `rewrite::arguments` is invalid: there is no tool `atc`; did you mean `act`?";
    let agent = || Agent::builder(ScriptedModel::new().says("Done.")).layer(renames("act"));
    agent().tools(tools![act]).build().unwrap();
    assert_eq!(refused(agent()), "the layer `rewrite::arguments` is invalid: there is no tool `act`");
    assert_eq!(
        refused(Agent::builder(ScriptedModel::new()).tools(tools![act]).layer(renames("atc"))),
        unknown
    );
    let set = tools![act].layer(renames("atc"));
    assert_eq!(refused(Agent::builder(ScriptedModel::new()).tools(set)), unknown);
    // The tool of a provider is known when it is first offered.
    let provided = |tool| {
        let builder = Agent::builder(ScriptedModel::new().says("Done.")).tool_provider(Acts);
        builder.layer(renames(tool)).build().unwrap()
    };
    assert_eq!(provided("act").ask("go").await.unwrap().text(), "Done.");
    let error = provided("atc").ask("go").await.unwrap_err();
    assert!(error.to_string().contains(unknown), "{error}");
    // An agent inside has tools of its own.
    let inner = Agent::builder(ScriptedModel::new()).tools(tools![act]).build().unwrap();
    agent().tools(inner.as_tool("inner", "Acts")).build().unwrap();
}

#[tokio::test]
async fn a_typed_answer_takes_no_guard_of_answers() {
    #[derive(Debug, serde::Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "it is never read")]
    struct Sum {
        sum: i64,
    }

    let agent =
        Agent::builder(ScriptedModel::new()).layer(guard::answer(|_| AnswerVerdict::Pass)).build().unwrap();
    let error = agent.ask("2 + 2").answer_as::<Sum>().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the question cannot be asked: the layer `guard::answer` judges answers, which are read as a type here; ask without \
         a type, or return `false` from its `sees` for `LayerPhase::Answer`"
    );
}

#[tokio::test]
async fn both_forms_are_in_the_record_and_survive_storage() {
    let model = ScriptedModel::new().calls("act", r#"{"text": "a"}"#).fails("the line is dead").says("Done.");
    let agent = Agent::builder(model)
        .tools(tools![act])
        .layer(rewrite::call(|_| Some(r#"{"text":"b"}"#.into())))
        .layer(rewrite::output(|_, output| output.to_string().to_uppercase()))
        .build()
        .unwrap();
    let run = restored(agent.ask("go").await.unwrap_err().into_run());
    let answer = agent.resume(run).await.unwrap();
    let execution = &answer.tool_executions()[0];
    assert_eq!(
        (&*execution.call().arguments, execution.original_arguments()),
        (r#"{"text":"b"}"#, r#"{"text": "a"}"#)
    );
    assert_eq!(execution.output().unwrap().to_string(), "DID B");
    assert_eq!(execution.original_outcome().unwrap().to_string(), "did b");
    let verdicts: Vec<_> = execution.verdicts().iter().map(|one| (&*one.layer, one.kind)).collect();
    assert_eq!(
        verdicts,
        [("rewrite::call", VerdictKind::Rewritten), ("rewrite::output", VerdictKind::Replaced)]
    );
}

#[tokio::test]
async fn a_blocked_question_and_a_rejected_answer_are_not_stored() {
    let store = InMemoryStore::new();
    let model = ScriptedModel::new().says("The card is 4111.").says("I may not say.").says("Again 4111.");
    let agent = Agent::builder(model.clone())
        .memory(store)
        .layer(guard::question(|question| match question.text().contains("bomb") {
            true => QuestionVerdict::answer("No."),
            false => QuestionVerdict::Pass,
        }))
        .layer(guard::answer(|answer| match answer {
            _ if answer.contains("Again") => AnswerVerdict::replace("(removed)"),
            _ if answer.contains("4111") => AnswerVerdict::retry("leave out card numbers"),
            _ => AnswerVerdict::Pass,
        }))
        .build()
        .unwrap();
    let ask = async |question: &str| agent.ask(question).conversation("c").await.unwrap().text().to_owned();
    assert_eq!(ask("bomb").await, "No.");
    assert_eq!(ask("card").await, "I may not say.");
    assert_eq!(ask("once more").await, "(removed)");
    let read: Vec<_> = model.requests()[2].iter().map(|message| message.text().into_owned()).collect();
    let expected =
        ["card", "(this answer was rejected)", "leave out card numbers", "I may not say.", "once more"];
    assert_eq!(read, expected);
    let stored = agent.memory().unwrap().messages("c").await.unwrap();
    let stored: Vec<_> = stored.iter().map(|message| message.text().into_owned()).collect();
    assert_eq!(stored[5..], ["(removed)"]);
}

#[tokio::test]
async fn an_answer_that_is_sent_back_too_often_ends_the_run() {
    let model = ScriptedModel::new().says("a").says("b").says("c");
    let agent = Agent::builder(model).layer(guard::answer(|_| AnswerVerdict::retry("no"))).build().unwrap();
    let error = agent.ask("go").await.unwrap_err();
    assert!(
        matches!(error.kind(), RunErrorKind::Stopped(StopReason::WrongAnswer(why)) if why == "no"),
        "{error}"
    );
    assert!(
        error.new_messages().iter().all(|message| message.text().len() > 1),
        "no answer is in the record"
    );
}

#[tokio::test]
async fn outputs_that_are_returned_directly_are_judged_as_an_answer() {
    for verdict in
        [AnswerVerdict::replace("Hidden."), AnswerVerdict::retry("not so"), AnswerVerdict::end("why")]
    {
        let script = || ScriptedModel::new().calls("act_directly", r#"{"text": "a"}"#).says("Better.");
        let judged = verdict.clone();
        let build = || {
            let judged = judged.clone();
            let guard = guard::answer(move |answer| match answer {
                "did a" => judged.clone(),
                _ => AnswerVerdict::Pass,
            });
            Agent::builder(script()).tools(tools![act_directly]).layer(guard).build().unwrap()
        };
        let expected = match &verdict {
            AnswerVerdict::Replace(text) => Ok(text.clone()),
            AnswerVerdict::Retry(_) => Ok("Better.".to_owned()),
            _ => Err("the layer `guard::answer` has ended the run: why".to_owned()),
        };
        let answer = build().ask("go").await;
        assert_eq!(answer.as_ref().map(|one| one.text().to_owned()).map_err(ToString::to_string), expected);
        let mut shown = String::new();
        let mut events = build().ask("go").stream();
        while let Some(event) = events.next().await {
            if let Ok(Event::Text(text)) = event {
                shown.push_str(&text);
            }
        }
        assert_eq!(shown, expected.clone().unwrap_or_default());
        let mut driver = build().ask("go").start();
        while driver.advance().await.is_ok_and(|goes_on| goes_on) {}
        assert_eq!(
            driver.finish().await.map(|one| one.text().to_owned()).map_err(|error| error.to_string()),
            expected
        );
    }
}

/// Results of the caller are outputs, however they come in.
#[tokio::test]
async fn results_of_the_caller_are_judged() {
    for way in 0..3 {
        let model = ScriptedModel::new().calls("look", "{}").says("Done.");
        let look = ExternalTool::new(tool_core::model::ToolDefinition::new("look").with_description("Looks"));
        let agent = Agent::builder(model)
            .tools(look)
            .layer(rewrite::output(|_, output| output.to_string().replace("secret", "…")))
            .build()
            .unwrap();
        let error = agent.ask("go").await.unwrap_err();
        let wait = error.run().waits().remove(0);
        let result = Decision::result(Ok(ToolOutput::text("a secret")));
        let answer = match way {
            0 => {
                let mut run = error.into_run();
                run.resolve(&wait.id, result).unwrap();
                agent.resume(restored(run)).await
            }
            1 => {
                let mut driver = agent.resume(error.into_run()).start();
                driver.resolve(&wait.id, result).unwrap();
                while driver.advance().await.unwrap() {}
                driver.finish().await
            }
            _ => {
                let mut run = error.into_run();
                let call = run.results().next().unwrap().clone();
                run.record_result(tool_core::ToolExecution::new(call, Ok(ToolOutput::text("a secret"))))
                    .unwrap();
                agent.resume(run).await
            }
        };
        let answer = answer.unwrap();
        assert_eq!(answer.new_messages()[2].text(), "a …", "{way}");
        assert_eq!(answer.tool_executions()[0].original_outcome().unwrap().to_string(), "a secret");
    }
}

#[tokio::test]
async fn an_approval_binds_the_rewritten_arguments_and_is_asked_again_after_a_pass() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&asked);
    let model = ScriptedModel::new().calls("act", r#"{"text": "a"}"#).says("Done.");
    let agent = Agent::builder(model)
        .tools(tools![act])
        .layer(rewrite::call(|_| Some(r#"{"text":"b"}"#.into())))
        .layer(guard::call(move |call: &ToolCall| {
            log.lock().unwrap().push(call.arguments.clone());
            CallVerdict::Pass
        }))
        .layer(guard::needs_approval(|_| true))
        .decider(on_approval(|call| {
            assert_eq!(call.arguments, r#"{"text":"b"}"#);
            Decision::approve()
        }))
        .build()
        .unwrap();
    let answer = agent.ask("go").await.unwrap();
    let execution = &answer.tool_executions()[0];
    assert_eq!(execution.output().unwrap().to_string(), "did b");
    assert_eq!(execution.decisions()[0].kind, DecisionKind::Approved);
    assert_eq!(*asked.lock().unwrap(), [r#"{"text":"b"}"#; 2], "once before the approval and once after it");
}

#[tokio::test]
async fn a_caller_cannot_lead_a_request_past_a_layer() {
    let model = ScriptedModel::new().says("Done.").says("Done.");
    let agent = Agent::builder(model).layer(rewrite::request(|request| request)).build().unwrap();
    let mut driver = agent.ask("go").start();
    let Step::CallModel(request) = driver.next().await.unwrap() else { panic!("no request") };
    let response = agent.model().chat(&request).await.unwrap();
    let error = driver.record_response(response).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the run does not expect this: the agent has layers that see its requests; ask the model with `call_model`"
    );
    let response = driver.call_model().await.unwrap();
    driver.record_response(response).await.unwrap();
    assert_eq!(driver.finish().await.unwrap().text(), "Done.");
}

/// A message in the middle of a run is a question, too.
#[tokio::test]
async fn a_message_in_the_middle_of_a_run_is_judged() {
    let model = ScriptedModel::new().calls("act", r#"{"text": "a"}"#).says("Done.");
    let guard = guard::question(|question| match question.text().contains("bomb") {
        true => QuestionVerdict::answer("No."),
        false => QuestionVerdict::Pass,
    });
    let agent = Agent::builder(model.clone()).tools(tools![act]).layer(guard).build().unwrap();
    let mut driver = agent.ask("go").start();
    driver.advance().await.unwrap();
    driver.deny_and_say("now a bomb").unwrap();
    while driver.advance().await.unwrap() {}
    assert_eq!(driver.finish().await.unwrap().text(), "No.");
    assert_eq!(model.requests().len(), 1);
}

static CHARGED: AtomicU32 = AtomicU32::new(0);

#[tool("Charges", attempts = 3)]
fn charge() -> Result<String, ToolError> {
    CHARGED.fetch_add(1, Ordering::Relaxed);
    Ok("charged".to_owned())
}

/// The call has had its effect, whatever the model reads.
#[tokio::test]
async fn a_call_whose_output_is_replaced_by_an_error_is_not_executed_again() {
    let build = || {
        let model = ScriptedModel::new().calls("charge", "{}").says("Done.");
        let hide = guard::output(|_| OutputVerdict::fail(ToolError::failed("hidden")));
        Agent::builder(model).tools(tools![charge]).layer(hide)
    };
    let answer = build().build().unwrap().ask("go").await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "hidden");
    let mut driver = build().build().unwrap().ask("go").start();
    while driver.advance().await.unwrap() {}
    assert_eq!(CHARGED.load(Ordering::Relaxed), 2);
}

/// Each layer judges what the one before it has written.
#[tokio::test]
async fn each_replacement_of_a_reply_is_recorded() {
    for (last, expected) in [
        (AnswerVerdict::replace("three"), "three"),
        (AnswerVerdict::retry("why"), "one again"),
        (AnswerVerdict::end("why"), "the layer `second` has ended the run: why"),
    ] {
        let model = ScriptedModel::new().says("one").says("one again");
        let first = guard::answer(|text| match text {
            "one" => AnswerVerdict::replace("two"),
            _ => AnswerVerdict::Pass,
        });
        let second = guard::answer(move |text| match text {
            "two" => last.clone(),
            _ => AnswerVerdict::Pass,
        });
        let agent = Agent::builder(model).layer(first.named("first")).layer(second.named("second"));
        let mut driver = agent.build().unwrap().ask("go").start();
        while driver.advance().await.unwrap() {}
        let layers: Vec<_> = driver.run().verdicts().iter().map(|verdict| verdict.layer.clone()).collect();
        assert_eq!(layers, ["first", "second"]);
        let answer = driver.finish().await;
        assert_eq!(answer.map_or_else(|error| error.to_string(), |one| one.text().to_owned()), expected);
    }
}

/// The message by which a layer sends outputs back that were the answer is no question of the user.
#[tokio::test]
async fn the_message_of_a_retry_is_not_judged_as_a_question() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&asked);
    let question = guard::question(move |question| {
        log.lock().unwrap().push(question.text().into_owned());
        QuestionVerdict::Pass
    });
    let answer = guard::answer(|text| match text.contains("did a") {
        true => AnswerVerdict::retry("leave out secrets"),
        false => AnswerVerdict::Pass,
    });
    let model = ScriptedModel::new().calls("act_directly", r#"{"text": "a"}"#).says("did a").says("Fine.");
    let agent = Agent::builder(model).tools(tools![act_directly]).layer(question).layer(answer);
    let agent = agent.build().unwrap();
    let mut driver = agent.ask("Go").start();
    while driver.advance().await.unwrap() {
        driver = agent.resume(restored(driver.into_run())).start();
    }
    assert_eq!(driver.finish().await.unwrap().text(), "Fine.");
    assert_eq!(*asked.lock().unwrap(), ["Go"]);
}

/// An error that the caller supplies leaves as the layers have it, also if it ends the run.
#[tokio::test]
async fn an_error_of_the_caller_that_ends_the_run_is_judged() {
    for error in [ToolError::failed("a secret"), ToolError::fatal("a secret")] {
        let left = guard::call(|_: &ToolCall| CallVerdict::LeaveToCaller);
        let hide = guard::output(|_| OutputVerdict::fail(ToolError::failed("hidden")));
        let model = ScriptedModel::new().calls("act", r#"{"text": "a"}"#).says("Done.");
        let agent = Agent::builder(model).tools(tools![act]).layer(left).layer(hide);
        let agent = agent.default_error_policy(ErrorPolicy::EndRun).build().unwrap();
        let mut run = agent.ask("Go").await.unwrap_err().into_run();
        let wait = run.waits().remove(0).id;
        run.resolve(&wait, Decision::result(Err(error))).unwrap();
        let error = agent.resume(restored(run)).await.unwrap_err();
        assert_eq!(error.to_string(), "the tool `act` ended the run: hidden");
        assert_eq!(error.new_messages()[2].text(), "hidden");
    }
}

/// An output that is the answer does not leave before it is judged as one.
#[tokio::test]
async fn an_output_that_is_the_answer_does_not_leave_before_its_verdict() {
    let call = ("act_directly", r#"{"text": "a"}"#);
    for calls in [vec![call], vec![call, call], vec![call, ("act", call.1)]] {
        let model = ScriptedModel::new().calls_all(calls.clone()).says("No.");
        let answer = guard::answer(|_| AnswerVerdict::replace("No."));
        let agent = Agent::builder(model).tools(tools![act, act_directly]).layer(answer).build().unwrap();
        let mut events = agent.ask("Go").stream();
        let mut seen = Vec::new();
        while let Some(event) = events.next().await {
            if let Event::CallFinished(execution) = event.unwrap() {
                seen.push(execution.output().unwrap().to_string());
            }
        }
        let is_answer = calls.iter().all(|(name, _)| *name == "act_directly");
        assert_eq!(seen.len(), calls.len());
        assert_eq!(seen.contains(&"did a".to_owned()), !is_answer, "{seen:?}");
    }
}
