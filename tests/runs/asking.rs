//! Tools that ask a person in the middle of a call.

use std::future::IntoFuture;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tests::support::deciding::Decide;
use tests::support::stores::{post_command, stored_runs};
use tests::support::ways::resolved_in_all_ways;
use tool_core::agent::on_question;
use tool_core::engine::AgentExt;
use tool_core::memory::{InMemoryStore, RunStatus};
use tool_core::model::{AssistantMessage, ChatResponse, ToolDefinition, ToolPolicy};
use tool_core::run::{Decision, Run, Step, Wait, WaitReason};
use tool_core::signatures::{DecisionKind, ResolveErrorKind, Timestamp};
use tool_core::store::{PostOutcome, RunCommand};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{
    AskErrorKind, Asker, Attempt, IdempotencyKey, OutcomeOrigin, Question, ToolErrorKind, ToolFuture,
};
use tool_core::{
    Agent, FunctionTool, RunError, RunErrorKind, Tool, ToolCall, ToolContext, ToolError, ToolSet, tool, tools,
};

fn restored(run: &Run) -> Run {
    serde_json::from_str(&serde_json::to_string(run).unwrap()).unwrap()
}

/// Returns the run of a question that waits, as another process loads it.
fn waiting(outcome: Result<tool_core::Answer, RunError>) -> Run {
    let error = outcome.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    restored(error.run())
}

fn text(wait: &Wait) -> &str {
    wait.question().unwrap().text()
}

/// Answers the question with this text.
fn answer(run: &mut Run, question: &str, answer: impl Serialize) {
    let wait = run.waits().into_iter().find(|wait| text(wait) == question);
    run.resolve(&wait.unwrap_or_else(|| panic!("{question}")).id, Decision::answer(answer)).unwrap();
}

/// Counts what happens in a tool, and with which attempts.
#[derive(Default)]
struct Log(Mutex<Vec<String>>);

impl Log {
    fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

type SharedLog = std::sync::Arc<Log>;

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Seat {
    row: u8,
    letter: char,
}

#[tool("Books a seat on a flight", at_most_once)]
async fn book(
    flight: String,
    #[inject] user: &Asker,
    #[inject] attempt: &Attempt,
    #[inject] log: &SharedLog,
) -> Result<String, ToolError> {
    log.add(format!("look {} {}", attempt.number, attempt.key));
    let free = [Seat { row: 3, letter: 'A' }, Seat { row: 12, letter: 'C' }];
    let seat: Seat = user.ask("Which seat?").choices(free).await?;
    log.add(format!("reserve {} {}", attempt.number, attempt.key));
    Ok(format!("{}{} on {flight}", seat.row, seat.letter))
}

fn booking(log: &SharedLog) -> tool_core::agent::AgentBuilder {
    let model = ScriptedModel::new().calls("book", r#"{"flight": "OS 87"}"#).says("Booked.");
    Agent::builder(model).tools(tools![book]).context(SharedLog::clone(log))
}

#[tokio::test]
async fn a_call_waits_for_the_answer_in_all_ways() {
    let log = SharedLog::default();
    let build = || booking(&log);
    let answers = |wait: &Wait| {
        assert_eq!((text(wait), &*wait.tool), ("Which seat?", "book"));
        Some(Decision::answer(json!({ "row": 12, "letter": "C" })).by("ada").because("window"))
    };
    let answer = resolved_in_all_ways(build, &answers).await.unwrap();
    let execution = &answer.tool_executions()[0];
    assert_eq!((execution.output().unwrap().to_string(), execution.attempts()), ("12C on OS 87".into(), 1));
    let decision = &execution.decisions()[0];
    assert_eq!((decision.kind, decision.by.as_deref()), (DecisionKind::Answered, Some("ada")));
    // What stands before the question is executed again, as the same attempt with the same key.
    let log = log.take();
    assert_eq!(log.len(), 9);
    for way in log.chunks(3) {
        assert_eq!((&way[0], way[0].replace("look", "reserve")), (&way[1], way[2].clone()));
    }
}

/// LangGraph's `interrupt` matches answers by the order in which they are awaited; these belong to their texts.
#[tokio::test]
async fn answers_belong_to_their_questions_and_not_to_an_order() {
    async fn ask_both(user: &Asker) -> Result<String, ToolError> {
        let (from, to) = (user.ask::<String>("From?"), user.ask::<String>("To?"));
        let (from, to) = futures_util::future::join(from.into_future(), to.into_future()).await;
        // The same question twice has two answers.
        let again: String = user.ask("To?").await?;
        Ok(format!("{} {} {again}", from?, to?))
    }
    let tool =
        FunctionTool::new(
            "travel",
            |_: (), context: ToolContext| async move { ask_both(context.asker()).await },
        );
    let model = ScriptedModel::new().calls("travel", "{}").says("Done.");
    let agent = Agent::builder(model).tools(tool).build().unwrap();
    let mut run = waiting(agent.ask("Go").await);
    assert_eq!(run.waits().iter().map(text).collect::<Vec<_>>(), ["From?", "To?"]);
    answer(&mut run, "To?", "Rome");
    // It waits until all questions are answered.
    let mut run = waiting(agent.resume(restored(&run)).await);
    answer(&mut run, "From?", "Vienna");
    let mut run = waiting(agent.resume(run).await);
    answer(&mut run, "To?", "Oslo");
    let answer = agent.resume(run).await.unwrap();
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "Vienna Rome Oslo");
}

#[tool("Asks for a name")]
async fn name(of: String, #[inject] user: &Asker) -> Result<String, ToolError> {
    Ok(format!("{of}: {}", user.ask::<String>(format!("Who is {of}?")).await?))
}

#[tokio::test]
async fn each_answer_reaches_its_own_call_inside_agents_as_well() {
    let calls = |ids: &[(&str, &str, &str)]| {
        let calls = ids.iter().map(|(id, name, of)| {
            let arguments = if *name == "name" { json!({ "of": of }) } else { json!({ "question": of }) };
            ToolCall::new(*id, *name, arguments.to_string())
        });
        ChatResponse::new(AssistantMessage::default().with_tool_calls(calls.collect::<Vec<_>>()))
    };
    // The calls of all levels have the same ids.
    let innermost = ScriptedModel::new().replies(calls(&[("a", "name", "1"), ("b", "name", "2")])).says("in");
    let innermost = Agent::builder(innermost).tools(tools![name]).build().unwrap();
    let middle = ScriptedModel::new().replies(calls(&[("a", "name", "3"), ("b", "ask", "?")])).says("mid");
    let middle = Agent::builder(middle).tools(tools![name]).tools(innermost.as_tool("ask", "Asks"));
    let outer = ScriptedModel::new()
        .replies(calls(&[("a", "name", "4"), ("b", "ask", "?"), ("c", "name", "5")]))
        .says("out");
    let outer = Agent::builder(outer).tools(tools![name]);
    let outer = outer.tools(middle.build().unwrap().as_tool("ask", "Asks")).build().unwrap();

    let mut run = waiting(outer.ask("Go").await);
    let waits = run.waits();
    let paths: Vec<_> = waits.iter().map(|wait| (&*wait.path, text(wait))).collect();
    let expected = [
        ("a", "Who is 4?"),
        ("b/a", "Who is 3?"),
        ("b/b/a", "Who is 1?"),
        ("b/b/b", "Who is 2?"),
        ("c", "Who is 5?"),
    ];
    assert_eq!(paths, expected);
    for number in ["2", "5", "3", "1", "4"] {
        run = restored(&run);
        answer(&mut run, &format!("Who is {number}?"), format!("<{number}>"));
    }
    let answer = outer.resume(run).await.unwrap();
    let outputs = |run: &[tool_core::tool::ToolExecution]| -> Vec<_> {
        run.iter().map(|one| one.output().unwrap().to_string()).collect()
    };
    let middle = answer.inner_runs()[0].run();
    let innermost = middle.inner_runs().next().unwrap().run();
    assert_eq!(outputs(answer.tool_executions()), ["4: <4>", "mid", "5: <5>"]);
    assert_eq!(outputs(middle.tool_executions()), ["3: <3>", "in"]);
    assert_eq!(outputs(innermost.tool_executions()), ["1: <1>", "2: <2>"]);
}

#[tokio::test]
async fn a_decision_is_final_and_a_stale_one_is_refused() {
    let agent = booking(&SharedLog::default()).build().unwrap();
    let mut run = waiting(agent.ask("Book").await);
    let wait = run.waits().remove(0);
    let seat = json!({ "row": 3, "letter": "A" });
    let refused = run.resolve(&wait.id, Decision::approve()).unwrap_err();
    let expected = "the decision is of another kind: the call asks the user; use `Decision::answer(…)` or `Decision::decline()`";
    assert_eq!((refused.kind(), &*refused.to_string()), (ResolveErrorKind::WrongDecision, expected));
    let refused = run.resolve(&wait.id, Decision::answer("12C")).unwrap_err();
    let choices = r#"{"row":3,"letter":"A"}, {"row":12,"letter":"C"}"#;
    assert_eq!(refused.to_string(), format!("the answer is not valid: not one of the choices: {choices}"));
    run.resolve(&wait.id, Decision::answer(seat.clone()).by("ada")).unwrap();
    let mut run = restored(&run);
    let refused = run.resolve(&wait.id, Decision::decline().by("bob")).unwrap_err();
    assert_eq!(refused.to_string(), "this was decided before by ada");
    let other = waiting(booking(&SharedLog::default()).build().unwrap().ask("Book").await).waits().remove(0);
    assert_ne!(other.id, wait.id);
    assert_eq!(
        run.resolve(&other.id, Decision::answer(seat)).unwrap_err().kind(),
        ResolveErrorKind::UnknownWait
    );
}

#[tokio::test]
async fn the_model_reads_that_a_question_was_declined_or_expired() {
    let patient = || {
        FunctionTool::new("patient", |_: (), context: ToolContext| async move {
            let question = context.asker().ask::<String>("Why?").expires(Duration::from_secs(60));
            question.await.map_err(ToolError::from)
        })
    };
    let agent = || {
        let model = ScriptedModel::new().calls("patient", "{}").says("Done.");
        Agent::builder(model).tools(patient()).build().unwrap()
    };
    let declining = agent();
    let mut run = waiting(declining.ask("Go").await);
    let wait = run.waits().remove(0);
    assert_eq!(wait.deadline.unwrap().since(wait.since), Duration::from_secs(60));
    run.resolve(&wait.id, Decision::deny("none of your business")).unwrap();
    let answer = declining.resume(run).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "the user declined to answer: none of your business");

    let expiring = agent();
    let mut run = waiting(expiring.ask("Go").await);
    let wait = run.waits().remove(0);
    assert!(!run.tick(wait.since), "the time has not come");
    assert!(run.tick(wait.deadline.unwrap()));
    // Expiry precedes decisions, and time does not go backwards.
    assert!(!run.tick(wait.since));
    let refused = run.resolve(&wait.id, Decision::answer("because")).unwrap_err();
    assert_eq!(refused.decided().unwrap().kind, DecisionKind::Expired);
    let answer = expiring.resume(restored(&run)).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "the question to the user expired without an answer");
    assert_eq!(answer.tool_executions()[0].error().unwrap().kind(), ToolErrorKind::Failed);
}

#[tokio::test]
async fn a_default_holds_if_the_question_expires_or_nobody_can_be_asked() {
    let lucky = FunctionTool::new("lucky", |_: (), context: ToolContext| async move {
        let number = context.asker().ask::<u8>("Which number?").default(7).expires(Duration::from_secs(1));
        number.await.map(|number| number.to_string()).map_err(ToolError::from)
    });
    let set = tool_core::ToolSet::default().with(lucky).unwrap();
    let call = ToolCall::new("call_1", "lucky", "{}");
    assert_eq!(set.call(&call, &ToolContext::new()).await.unwrap().to_string(), "7");
    let model = ScriptedModel::new().calls("lucky", "{}").says("Done.");
    let agent = Agent::builder(model).tools(set).build().unwrap();
    let mut run = waiting(agent.ask("Go").await);
    let wait = run.waits().remove(0);
    assert_eq!(wait.question().unwrap().default(), Some(&json!(7)));
    run.tick(wait.deadline.unwrap());
    assert_eq!(agent.resume(run).await.unwrap().new_messages()[2].text(), "7");
}

#[tokio::test]
async fn nobody_can_be_asked_outside_a_run_in_undo_calls_and_in_pure_tools() {
    let asks = |name: &str| {
        FunctionTool::new(name, |_: (), context: ToolContext| async move {
            context.asker().ask::<bool>("Really?").await.map(|_| "asked").map_err(|error| {
                assert_eq!(error.kind(), AskErrorKind::Unavailable);
                ToolError::from(error)
            })
        })
    };
    let expected = "the tool has to ask the user, and nobody can be asked here";
    let set = tool_core::ToolSet::default().with(asks("bare")).unwrap();
    let error = set.call(&ToolCall::new("a", "bare", "{}"), &ToolContext::new()).await.unwrap_err();
    assert_eq!(error.to_string(), expected);
    let model = ScriptedModel::new().calls("pure", "{}").says("Done.");
    let agent = Agent::builder(model).tools(asks("pure").pure()).build().unwrap();
    let pure = format!(
        "{expected}: a `pure` tool cannot ask, because its output depends on its arguments alone; remove `pure`"
    );
    assert_eq!(agent.ask("Go").await.unwrap().new_messages()[2].text(), pure);

    let model = ScriptedModel::new().calls("plain", "{}").calls("fatal", "{}");
    let plain = FunctionTool::new("plain", || "done").undo("unplain");
    let fatal = FunctionTool::new("fatal", || Err::<String, _>(ToolError::fatal("broken")));
    let agent = Agent::builder(model).tools(plain).tools(fatal).tools(asks("unplain")).build().unwrap();
    let error = agent.ask("Go").await.unwrap_err();
    assert_eq!(error.run().undo_executions()[0].error().unwrap().to_string(), expected);
}

/// An answer that today's choices or type refuse is asked for again, and so is what was answered after it.
#[tokio::test]
async fn an_answer_that_is_no_longer_valid_is_asked_for_again() {
    let seats = std::sync::Arc::new(Mutex::new(vec!["1A", "2B"]));
    let tool = {
        let seats = seats.clone();
        FunctionTool::new("sit", move |_: (), context: ToolContext| {
            let seats = seats.lock().unwrap().clone();
            async move {
                let user = context.asker();
                let class: String = user.ask("Which class?").await?;
                let seat: String = user.ask("Which seat?").choices(seats).await?;
                let meal: String = user.ask("Which meal?").await?;
                let drink: String = user.ask("Which drink?").await?;
                Ok::<_, ToolError>(format!("{class} {seat} {meal} {drink}"))
            }
        })
    };
    let agent =
        Agent::builder(ScriptedModel::new().calls("sit", "{}").says("Done.")).tools(tool).build().unwrap();
    let mut run = waiting(agent.ask("Go").await);
    for (question, reply) in [("Which class?", "first"), ("Which seat?", "1A"), ("Which meal?", "fish")] {
        answer(&mut run, question, reply);
        run = waiting(agent.resume(run).await);
    }
    let before = run.waits().remove(0);
    assert_eq!(text(&before), "Which drink?");
    // The list may grow.
    *seats.lock().unwrap() = vec!["1A", "9F"];
    run = waiting(agent.resume(run).await);
    assert_eq!(text(&run.waits()[0]), "Which drink?");
    // The seat was taken meanwhile.
    *seats.lock().unwrap() = vec!["9F"];
    answer(&mut run, "Which drink?", "tea");
    run = waiting(agent.resume(run).await);
    let again = run.waits().remove(0);
    assert_eq!(
        (text(&again), again.question().unwrap().problem()),
        ("Which seat?", Some(r#"not one of the choices: "9F""#))
    );
    for (question, reply) in [("Which seat?", "9F"), ("Which meal?", "soup"), ("Which drink?", "milk")] {
        assert_eq!(run.waits().iter().map(text).collect::<Vec<_>>(), [question]);
        answer(&mut run, question, reply);
        match agent.resume(run).await {
            Ok(answer) => {
                assert_eq!(answer.new_messages()[2].text(), "first 9F soup milk");
                return;
            }
            outcome => run = waiting(outcome),
        }
    }
    panic!("it does not end");
}

#[tokio::test]
async fn an_answer_is_decoded_like_an_argument() {
    let tool = FunctionTool::new("count", |_: (), context: ToolContext| async move {
        context.asker().ask::<u8>("How many?").await.map(|many| format!("{many}")).map_err(ToolError::from)
    });
    let agent =
        Agent::builder(ScriptedModel::new().calls("count", "{}").says("Done.")).tools(tool).build().unwrap();
    let mut run = waiting(agent.ask("Go").await);
    let first = run.waits().remove(0);
    assert_eq!(first.question().unwrap().schema()["type"], "integer");
    answer(&mut run, "How many?", "many");
    let mut run = waiting(agent.resume(run).await);
    let second = run.waits().remove(0);
    assert_ne!(second.id, first.id);
    assert!(second.question().unwrap().problem().unwrap().contains("`answer`"), "{second:?}");
    assert_eq!(
        run.resolve(&first.id, Decision::answer(3)).unwrap_err().kind(),
        ResolveErrorKind::AlreadyDecided
    );
    // Repaired, as an argument is.
    answer(&mut run, "How many?", "3");
    assert_eq!(agent.resume(run).await.unwrap().new_messages()[2].text(), "3");
}

#[tokio::test]
async fn a_secret_is_never_stored() {
    let tool = FunctionTool::new("log_in", |_: (), context: ToolContext| async move {
        let user = context.asker();
        let password: String = user.ask("Password?").secret().await?;
        let code: String = user.ask("Code?").secret().await?;
        Ok::<_, ToolError>(format!("{} letters", password.len() + code.len()))
    });
    let model = ScriptedModel::new().calls("log_in", "{}").says("Done.");
    let agent = Agent::builder(model).tools(tool).build().unwrap();
    let mut run = waiting(agent.ask("Go").await);
    answer(&mut run, "Password?", "hunter2");
    let state = serde_json::to_string(&run).unwrap();
    assert!(!state.contains("hunter2"), "{state}");
    // Another process asks again.
    let again = waiting(agent.resume(restored(&run)).await);
    assert_eq!(again.waits().iter().map(text).collect::<Vec<_>>(), ["Password?"]);
    // This one does not.
    let error = agent.resume(run).await.unwrap_err();
    let mut run = error.into_run();
    assert_eq!(run.waits().iter().map(text).collect::<Vec<_>>(), ["Code?"]);
    assert!(!serde_json::to_string(&run).unwrap().contains("hunter2"));
    answer(&mut run, "Code?", "12");
    let answer = agent.resume(run).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "9 letters");
}

#[tokio::test]
async fn choices_can_have_labels() {
    let tool = FunctionTool::new("book", |_: (), context: ToolContext| async move {
        let free = [3, 12].map(|row| (Seat { row, letter: 'A' }, format!("row {row}")));
        let seat: Seat = context.asker().ask("Which seat?").choices_with_labels(free).await?;
        let size: String =
            context.asker().ask("Which size?").choices(["small", "large"]).default("small").await?;
        Ok::<_, ToolError>(format!("{}{} {size}", seat.row, seat.letter))
    });
    let agent =
        Agent::builder(ScriptedModel::new().calls("book", "{}").says("Booked.")).tools(tool).build().unwrap();
    let mut run = waiting(agent.ask("Go").await);
    let wait = run.waits().remove(0);
    let question = wait.question().unwrap();
    let labels: Vec<_> = question.labeled_choices().map(|(label, _)| label.into_owned()).collect();
    assert_eq!(labels, ["row 3", "row 12"]);
    let chosen = Decision::answer_text(question, "row 12");
    assert!(chosen == Decision::answer(Seat { row: 12, letter: 'A' }));
    assert_eq!(
        run.resolve(&wait.id, Decision::answer(Seat { row: 4, letter: 'A' })).unwrap_err().kind(),
        ResolveErrorKind::InvalidAnswer
    );
    // Maps with keys that are no strings are no JSON.
    let unwritable = std::collections::HashMap::from([((1, 2), 3)]);
    let error = run.resolve(&wait.id, Decision::answer(unwritable)).unwrap_err();
    assert_eq!(error.kind(), ResolveErrorKind::InvalidAnswer, "{error}");
    run.resolve(&wait.id, chosen).unwrap();
    let mut run = waiting(agent.resume(run).await);
    let wait = run.waits().remove(0);
    let labels: Vec<_> =
        wait.question().unwrap().labeled_choices().map(|(label, _)| label.into_owned()).collect();
    assert_eq!(labels, ["small", "large"]);
    answer(&mut run, "Which size?", "large");
    assert_eq!(agent.resume(run).await.unwrap().new_messages()[2].text(), "12A large");
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Login {
    name: String,
    #[schemars(range(max = 9999))]
    pin: u16,
    kind: Option<LoginKind>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum LoginKind {
    Private,
    Work,
}

/// Refuses each text, and quotes it.
#[derive(JsonSchema)]
#[schemars(with = "String")]
struct Refused;

impl<'de> Deserialize<'de> for Refused {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Err(serde::de::Error::custom(format_args!("`{text}` is none")))
    }
}

#[tokio::test]
async fn the_problem_of_a_secret_answer_does_not_quote_it() {
    async fn check<T: tool_core::signatures::AnswerType>(wrong: Value, expected: &str) {
        let tool = FunctionTool::new("log_in", |_: (), context: ToolContext| async move {
            context.asker().ask::<T>("Login?").secret().await?;
            Ok::<_, ToolError>("in")
        });
        let model = ScriptedModel::new().calls("log_in", "{}");
        let agent = Agent::builder(model).tools(tool).build().unwrap();
        // Not restored, because the answer is not stored.
        let mut run = agent.ask("Go").await.unwrap_err().into_run();
        answer(&mut run, "Login?", wrong.clone());
        let (mut events, mut shown) = (agent.resume(run).stream(), String::new());
        let mut last = None;
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => shown += &serde_json::to_string(&event.at(0)).unwrap_or_default(),
                Err(error) => last = Some(error),
            }
        }
        let error = last.unwrap();
        shown += &format!("{error} {error:?}");
        let run = error.into_run();
        let wait = run.waits().remove(0);
        assert_eq!(wait.question().unwrap().problem(), Some(expected), "{wrong}");
        shown += &serde_json::to_string(&run).unwrap();
        for secret in ["hunter2", "471104711"] {
            assert!(!shown.contains(secret), "{wrong}: {shown}");
        }
    }
    check::<u8>(json!("hunter2"), "expected an integer from 0 to 255").await;
    check::<u8>(json!(471_104_711), "expected an integer from 0 to 255").await;
    check::<bool>(json!("hunter2"), "expected true or false").await;
    check::<LoginKind>(json!("hunter2"), r#"expected one of "private", "work""#).await;
    check::<Refused>(json!("hunter2"), "expected a string").await;
    check::<Vec<u8>>(json!(["hunter2"]), "expected a list").await;
    let logins = [
        json!("hunter2"),
        json!({"name": "hunter2"}),
        json!({"name": {"first": 471_104_711}, "pin": 1}),
        json!({"name": "a", "pin": 471_104_711}),
        json!({"name": "a", "pin": "hunter2"}),
        json!({"name": "a", "pin": 1, "kind": "hunter2"}),
        json!({"name": "a", "pin": 1, "hunter2": 1}),
        json!({"name": "a", "pin": 1, "nam": "hunter2"}),
    ];
    for login in logins {
        check::<Login>(login, "expected an object").await;
    }
}

/// A caller that drives the run step by step executes calls that record values.
#[tokio::test]
async fn a_call_executed_by_the_caller_records_values() {
    #[tool]
    async fn hold_seat(#[inject] user: &Asker) -> Result<u32, ToolError> {
        user.once("hold", async { Ok::<_, ToolError>(17) }).await
    }
    let model = ScriptedModel::new().calls("hold_seat", "{}");
    let agent = Agent::builder(model).tools(tools![hold_seat]).build().unwrap();
    let mut run = agent.ask("Hold a seat").start();
    let Step::CallModel(request) = run.next().await.unwrap() else { panic!("the model was not called yet") };
    let response = agent.model().chat(&request).await.unwrap();
    run.record_response(response).await.unwrap();
    let Step::CallTools(calls) = run.next().await.unwrap() else { panic!("the call was not started") };
    let execution = run.execute(calls[0].clone()).await.unwrap();
    assert_eq!(execution.outcome().unwrap().to_string(), "17");
}

#[tool("Books a room", undo = "release")]
async fn book_room(
    #[inject] user: &Asker,
    #[inject] key: &IdempotencyKey,
    #[inject] log: &SharedLog,
) -> Result<String, ToolError> {
    let hold = async {
        log.add(format!("hold {}", key.step("hold")));
        Ok::<_, ToolError>(17)
    };
    let hold: u32 = user.once("hold", hold).await?;
    match user.ask::<bool>(format!("Book hold {hold}?")).await? {
        true => Ok(format!("booked {hold}")),
        false => Err(ToolError::failed("released")),
    }
}

#[tool]
async fn release(#[inject] log: &SharedLog) -> &'static str {
    log.add("release");
    "released"
}

#[tokio::test]
async fn a_value_is_computed_once() {
    let log = SharedLog::default();
    let model = ScriptedModel::new().calls("book_room", "{}").says("Done.");
    let agent = Agent::builder(model).tools(tools![book_room, release]).context(log.clone()).build().unwrap();
    let mut run = waiting(agent.ask("Go").await);
    let expected = format!("hold {}/call_1_0/step/hold", run.id());
    answer(&mut run, "Book hold 17?", true);
    assert_eq!(agent.resume(run).await.unwrap().new_messages()[2].text(), "booked 17");
    assert_eq!(log.take(), [expected]);
}

/// A use that fails records nothing, so that the next one has its value also when the call is executed again.
#[tokio::test]
async fn a_value_that_is_computed_at_the_second_attempt_is_computed_once() {
    #[tool("Books a room")]
    async fn book(#[inject] user: &Asker, #[inject] log: &SharedLog) -> Result<String, ToolError> {
        let mut rooms = Vec::new();
        while rooms.len() < 2 {
            let room = user.once("room", async {
                log.add("asked");
                match log.0.lock().unwrap().len() {
                    asked if asked % 2 == 1 => Err(ToolError::failed("down")),
                    asked => Ok(asked),
                }
            });
            rooms.extend(room.await.ok());
        }
        let yes = user.ask::<bool>(format!("Take {rooms:?}?")).await?;
        Ok(format!("{rooms:?} {yes}"))
    }
    let log = SharedLog::default();
    let model = ScriptedModel::new().calls("book", "{}").says("Done.");
    let agent = Agent::builder(model).tools(tools![book]).context(log.clone()).build().unwrap();
    let mut run = waiting(agent.ask("Go").await);
    answer(&mut run, "Take [2, 4]?", true);
    log.take();
    let answer = agent.resume(run).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "[2, 4] true");
    assert_eq!(log.take(), [""; 0]);
}

/// A process that dies after a value was recorded does not compute it again.
#[tokio::test(start_paused = true)]
async fn a_recorded_value_is_stored_before_the_call_goes_on() {
    let log = SharedLog::default();
    let tool = |goes_on: bool| {
        let log = log.clone();
        FunctionTool::new("order", move |_: (), context: ToolContext| {
            let log = log.clone();
            async move {
                let user = context.asker();
                let number = user
                    .once("order", async {
                        log.add("order");
                        Ok::<_, ToolError>(17)
                    })
                    .await?;
                if !goes_on {
                    log.add("stuck");
                    std::future::pending::<()>().await;
                }
                Ok::<_, ToolError>(format!("order {number}"))
            }
        })
    };
    let store = InMemoryStore::new();
    let agent = |goes_on| {
        let model = if goes_on { ScriptedModel::new() } else { ScriptedModel::new().calls("order", "{}") };
        Agent::builder(model.says("Done."))
            .tools(tool(goes_on))
            .run_store(store.clone())
            .on_drop(tool_core::agent::OnDrop::Keep)
            .build()
            .unwrap()
    };
    let dying = agent(false);
    let mut asking = Box::pin(dying.ask("Go").into_future());
    while !log.0.lock().unwrap().iter().any(|line| line == "stuck") {
        assert!(futures_util::FutureExt::now_or_never(&mut asking).is_none());
        tokio::task::yield_now().await;
    }
    drop(asking);
    let agent = agent(true);
    let run = stored_runs(&agent).await.remove(0).run;
    let answer = agent.resume(run).await.unwrap();
    assert_eq!(
        (answer.new_messages()[2].text(), answer.tool_executions()[0].attempts()),
        ("order 17".into(), 2)
    );
    assert_eq!(log.take(), ["order", "stuck"]);
}

#[tokio::test]
async fn a_call_that_waits_when_its_run_ends_was_not_executed_unless_it_recorded_something() {
    let log = SharedLog::default();
    let model = ScriptedModel::new().calls("book_room", "{}");
    let agent = Agent::builder(model).tools(tools![book_room, release]).context(log.clone()).build().unwrap();
    let mut run = waiting(agent.ask("Go").await);
    run.cancel();
    assert!(run.waits().is_empty(), "a cancelled run asks nothing");
    let error = agent.resume(restored(&run)).await.unwrap_err();
    assert_eq!(error.tool_executions()[0].error().unwrap().kind(), ToolErrorKind::OutcomeUnknown);
    assert_eq!(log.take()[1..], ["release"]);

    let agent = booking(&log).build().unwrap();
    let mut run = waiting(agent.ask("Go").await);
    run.cancel();
    assert_eq!(run.tool_executions()[0].origin(), OutcomeOrigin::NotExecuted);
    assert_eq!(run.messages().last().unwrap().text(), "the call was not executed: the run was cancelled");
}

#[tokio::test]
async fn only_an_execution_that_is_found_running_is_uncertain() {
    let log = SharedLog::default();
    let agent = booking(&log).build().unwrap();
    let mut run = waiting(agent.ask("Book").await);
    answer(&mut run, "Which seat?", json!({ "row": 3, "letter": "A" }));
    // The process dies after the answer, before the call continues.
    let mut run = restored(&run);
    let _ = run.next(agent.tools().definitions());
    let attempt = run.begin_call("call_1_0").unwrap();
    assert_eq!(attempt.number, 1);
    // And once more, while it continues.
    let answer = agent.resume(restored(&run)).await.unwrap();
    assert_eq!(answer.tool_executions()[0].error().unwrap().kind(), ToolErrorKind::OutcomeUnknown);
}

#[tokio::test]
async fn a_message_of_the_user_declines_open_questions() {
    let agent = booking(&SharedLog::default()).build().unwrap();
    let mut run = waiting(agent.ask("Book").await);
    run.deny_and_say("Never mind").unwrap();
    assert!(run.waits().is_empty());
    let answer = agent.resume(run).await.unwrap();
    let texts: Vec<_> =
        answer.new_messages()[2..4].iter().map(|message| message.text().into_owned()).collect();
    let declined = "the user declined to answer: the user sent another message instead";
    assert_eq!(texts, [declined, "Never mind"]);
}

#[tokio::test(start_paused = true)]
async fn retries_keep_the_answers() {
    let attempts = std::sync::Arc::new(AtomicU32::new(0));
    let tool = {
        let attempts = attempts.clone();
        FunctionTool::new("try", move |_: (), context: ToolContext| {
            let attempts = attempts.clone();
            async move {
                let word: String = context.asker().ask("Which word?").await?;
                match attempts.fetch_add(1, Ordering::SeqCst) {
                    0 => Err(ToolError::failed("busy")),
                    _ => Ok(format!("{word} {}", context.attempt())),
                }
            }
        })
    };
    let model = ScriptedModel::new().calls("try", "{}").says("Done.");
    let agent = Agent::builder(model).tools(tool.attempts(2)).build().unwrap();
    let mut run = waiting(agent.ask("Go").await);
    answer(&mut run, "Which word?", "please");
    assert_eq!(agent.resume(run).await.unwrap().new_messages()[2].text(), "please 2");
}

#[tokio::test]
async fn a_call_asks_at_most_32_questions() {
    let tool = FunctionTool::new("nag", |_: (), context: ToolContext| async move {
        for number in 0..40 {
            context.asker().ask::<u32>(format!("{number}?")).await?;
        }
        Ok::<_, ToolError>("done")
    });
    let model = ScriptedModel::new().calls("nag", "{}").says("Done.");
    let asked = std::sync::Arc::new(AtomicU32::new(0));
    let agent = Agent::builder(model).tools(tool).decider(on_question({
        let asked = asked.clone();
        move |_: &Question| Decision::answer(asked.fetch_add(1, Ordering::SeqCst))
    }));
    let answer = agent.build().unwrap().ask("Go").await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "the call has asked 32 questions and may not ask more");
    assert_eq!(asked.load(Ordering::SeqCst), 32);
}

#[tokio::test]
async fn the_innermost_answerer_is_asked_first() {
    let answering = |reply: &'static str| {
        move |question: &Question| match question.text() {
            "Who is 1?" => Decision::answer(reply),
            _ => Decision::defer(),
        }
    };
    let desk = |inner: Option<&'static str>, outer: Option<&'static str>| {
        let model = ScriptedModel::new().calls("name", r#"{"of": "1"}"#).says("in");
        let mut builder = Agent::builder(model).tools(tools![name]);
        if let Some(reply) = inner {
            builder = builder.decider(on_question(answering(reply)));
        }
        let model = ScriptedModel::new().calls("ask", r#"{"question": "?"}"#).says("out");
        let mut desk = Agent::builder(model).tools(builder.build().unwrap().as_tool("ask", "Asks"));
        if let Some(reply) = outer {
            desk = desk.decider(on_question(answering(reply)));
        }
        desk.build().unwrap()
    };
    for (inner, outer, expected) in [
        (Some("inner"), Some("outer"), "1: inner"),
        (None, Some("outer"), "1: outer"),
        (Some("inner"), None, "1: inner"),
    ] {
        let answer = desk(inner, outer).ask("Go").await.unwrap();
        let inner = answer.inner_runs()[0].run();
        assert_eq!(inner.tool_executions()[0].output().unwrap().to_string(), expected);
    }
    let run = waiting(desk(None, None).ask("Go").await);
    assert_eq!(run.waits()[0].path, "call_1_0/call_1_0");
}

#[tokio::test]
async fn an_answer_can_be_posted_to_a_stored_run() {
    let store = InMemoryStore::new();
    let agent = booking(&SharedLog::default()).run_store(store.clone()).build().unwrap();
    let run = waiting(agent.ask("Book").await);
    let stored = stored_runs(&agent).await.remove(0);
    assert_eq!(stored.status, RunStatus::Waiting);
    let wait = stored.run.waits().remove(0);
    assert_eq!(wait.id, run.waits()[0].id);
    let seat = json!({ "row": 3, "letter": "A" });
    let posted = post_command(
        &agent,
        run.id().as_str(),
        RunCommand::resolve(&wait.id, Decision::answer(seat).by("ada")),
    );
    assert_eq!(posted.await, tool_core::store::PostOutcome::Posted);
    // A second click changes nothing.
    let late = RunCommand::resolve(&wait.id, Decision::decline().by("bob"));
    assert_eq!(post_command(&agent, run.id().as_str(), late).await, tool_core::store::PostOutcome::Posted);
    let answer = agent.resume(stored.run).await.unwrap();
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "3A on OS 87");
    assert_eq!(answer.tool_executions()[0].decisions()[0].by.as_deref(), Some("ada"));
}

/// An order that is polled: the call is executed again at that time, with the state that it was parked with.
#[tokio::test]
async fn a_parked_call_continues_at_its_time() {
    let print = |_: (), context: ToolContext| async move {
        let user = context.asker();
        let polls: u32 = user.parked()?.unwrap_or(0);
        if polls < 2 {
            return Err(user
                .park(&(polls + 1), Timestamp::now().after(Duration::from_millis(20)))
                .await
                .into());
        }
        Ok::<_, ToolError>(format!("printed after {polls} polls"))
    };
    let agent = || {
        let model = ScriptedModel::new().calls("print", "{}").says("Done.");
        Agent::builder(model).tools(FunctionTool::new("print", print)).build().unwrap()
    };
    // Step by step, the run states the time.
    let stepped = agent();
    let mut driver = stepped.ask("Print").start();
    driver.advance().await.unwrap();
    let mut run = driver.into_run();
    let call = run.current_calls().next().unwrap().0.clone();
    for _ in 0..2 {
        let _ = run.next(stepped.tools().definitions());
        let request = run.request_call(&call.id).unwrap();
        let never = tool_core::CancellationToken::new();
        let context = ToolContext::new();
        let execution = stepped.execute_request(&[], request, &context, &never, Default::default()).await;
        assert!(execution.is_waiting());
        run.record_result(execution).unwrap();
        let wait = run.waits().remove(0);
        let WaitReason::Until(until) = wait.reason else { panic!("{wait:?}") };
        run.begin_call(&call.id).unwrap_err();
        assert!(run.tick(until));
        assert!(run.waits().is_empty());
        run = restored(&run);
    }
    assert_eq!(stepped.resume(run).await.unwrap().new_messages()[2].text(), "printed after 2 polls");
    // A driver sleeps.
    assert_eq!(agent().ask("Print").await.unwrap().new_messages()[2].text(), "printed after 2 polls");
}

/// Places an order and asks about it. If the call will not be continued, it takes back the order.
struct Order {
    definition: ToolDefinition,
    taken_back: SharedLog,
}

impl Tool for Order {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, _: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::boxed(async move {
            let order: u32 = context.asker().once("order", async { Ok::<_, ToolError>(17) }).await?;
            context.asker().ask::<bool>(format!("Pay for {order}?")).await?;
            Ok("paid".into())
        })
    }

    fn give_up(&self, context: &ToolContext) {
        let unknown = async { Err(ToolError::failed("nothing was ordered")) };
        let order: u32 = context.asker().once("order", unknown).now_or_never().unwrap().unwrap();
        let call = context.call().unwrap();
        assert!(context.cancellation().is_cancelled());
        self.taken_back.add(format!("{} {} {order}", call.name, call.id));
    }
}

/// In another process, wherever the tool is: behind a handoff, inside of an agent, under another name.
#[tokio::test]
async fn a_tool_learns_of_calls_that_are_given_up() {
    let taken_back = SharedLog::default();
    let order = || Order { definition: ToolDefinition::new("order"), taken_back: taken_back.clone() };
    let store = InMemoryStore::new();
    let agent = |model: ScriptedModel| {
        let shop = ToolSet::default().with(order()).unwrap().prefix("shop_").unwrap();
        let shop =
            Agent::builder(ScriptedModel::new().calls("shop_order", "{}")).tools(shop).build().unwrap();
        let desk = Agent::builder(ScriptedModel::new().calls("shop", r#"{"question": "Order"}"#));
        let desk = desk.tools(shop.as_tool("shop", "Orders")).build().unwrap();
        let builder = Agent::builder(model).tools(order()).handoff_to("desk", "Takes over", &desk);
        builder.run_store(store.clone()).build().unwrap()
    };
    for (model, expected) in [
        (ScriptedModel::new().calls("order", "{}"), "order call_1_0 17"),
        (ScriptedModel::new().calls("desk", "{}"), "shop_order call_1_0 17"),
    ] {
        let run = waiting(agent(model).ask("Order").await);
        assert_eq!(text(&run.waits()[0]), "Pay for 17?");
        let other = agent(ScriptedModel::new());
        let posted = post_command(&other, run.id().as_str(), RunCommand::Cancel).await;
        assert_eq!(posted, PostOutcome::Posted);
        let stored = other.stored_run(run.id().as_str()).await.unwrap().unwrap();
        other.resume(stored.run).await.unwrap_err();
        assert_eq!(taken_back.take(), [expected]);
    }
    // An answer is no reason to take anything back.
    let mut run = waiting(agent(ScriptedModel::new().calls("order", "{}")).ask("Order").await);
    answer(&mut run, "Pay for 17?", true);
    agent(ScriptedModel::new().says("Done.")).resume(run).await.unwrap();
    assert_eq!(taken_back.take(), [""; 0]);
}

/// The process dies while the call goes on after the answer.
#[tokio::test]
async fn a_tool_learns_of_interrupted_calls_that_are_given_up() {
    let cases = [(true, false), (false, false), (true, true), (false, true)];
    for (is_at_most_once, is_inside) in cases {
        let taken_back = SharedLog::default();
        let agent = |model: ScriptedModel, outer: ScriptedModel| {
            let mut policy = ToolPolicy::default();
            policy.at_most_once = is_at_most_once;
            let definition = ToolDefinition::new("order").with_policy(policy);
            let tool = Order { definition, taken_back: taken_back.clone() };
            let agent = Agent::builder(model).tools(tool).build().unwrap();
            match is_inside {
                true => Agent::builder(outer).tools(agent.as_tool("shop", "Orders")).build().unwrap(),
                false => agent,
            }
        };
        let shop = ScriptedModel::new().calls("shop", r#"{"question": "Order"}"#);
        let mut run = waiting(agent(ScriptedModel::new().calls("order", "{}"), shop).ask("Order").await);
        answer(&mut run, "Pay for 17?", true);
        // The process ends while the call goes on.
        let begun = serde_json::to_string(&run).unwrap().replacen(r#""waiting":{"#, r#""running":{"#, 1);
        let run: Run = serde_json::from_str(&begun).unwrap();
        let says = || ScriptedModel::new().says("Done.");
        let answer = agent(says(), says()).resume(restored(&run)).await.unwrap();
        let executed = match is_inside {
            true => answer.inner_runs()[0].run().tool_executions(),
            false => answer.tool_executions(),
        };
        let kind = executed[0].outcome().err().map(ToolError::kind);
        assert_eq!(kind, is_at_most_once.then_some(ToolErrorKind::OutcomeUnknown));
        let expected = if is_at_most_once { &["order call_1_0 17"][..] } else { &[] };
        assert_eq!(taken_back.take(), expected, "{is_inside}");
    }
}

#[tokio::test]
async fn a_call_can_need_approval_and_ask() {
    let tool = FunctionTool::new("wipe", |_: (), context: ToolContext| async move {
        context.asker().ask::<bool>("All of it?").await.map(|all| all.to_string()).map_err(ToolError::from)
    });
    let model = ScriptedModel::new().calls("wipe", "{}").says("Done.");
    let agent = Agent::builder(model).tools(tool.needs_approval()).build().unwrap();
    let mut run = waiting(agent.ask("Go").await);
    assert!(matches!(&run.waits()[0].reason, WaitReason::Approval(call) if call.id == "call_1_0"));
    run.decide_call("call_1_0", Decision::approve()).unwrap();
    let mut run = waiting(agent.resume(run).await);
    answer(&mut run, "All of it?", true);
    let answer = agent.resume(run).await.unwrap();
    let kinds: Vec<_> = answer.tool_executions()[0].decisions().iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [DecisionKind::Approved, DecisionKind::Answered]);
}

#[test]
fn a_decision_is_checked_without_a_run() {
    let mut run = Run::new([tool_core::Message::user("Go")]);
    let message = AssistantMessage::default().with_tool_calls([ToolCall::new("a", "pay", "{}")]);
    run.record_response(ChatResponse::new(message)).unwrap();
    run.require_approval("a").unwrap();
    let wait = run.waits().remove(0);
    assert_eq!(wait.check(&Decision::approve_with(r#"{"cents": 5}"#)), Ok(()));
    for (decision, kind) in [
        (Decision::approve_with("[]"), ResolveErrorKind::InvalidArguments),
        (Decision::answer(7), ResolveErrorKind::WrongDecision),
    ] {
        let checked = wait.check(&decision).unwrap_err();
        assert_eq!(checked.kind(), kind);
        assert_eq!(run.resolve(&wait.id, decision).unwrap_err(), checked);
    }
}

/// A restored run remembers it, also of a secret question, whose answers it does not have.
#[tokio::test]
async fn a_tool_reads_why_nobody_can_be_asked() {
    let tool = FunctionTool::new("log_in", |_: (), context: ToolContext| async move {
        context.asker().ask::<String>("Password?").secret().await
    });
    let model = ScriptedModel::new().calls("log_in", "{}").says("Done.");
    let agent = Agent::builder(model).tools(tool).build().unwrap();
    let mut run = waiting(agent.ask("Go").await);
    let wait = run.waits().remove(0);
    run.resolve(&wait.id, Decision::unavailable().because("it is night")).unwrap();
    let answer = agent.resume(restored(&run)).await.unwrap();
    let error = answer.tool_executions()[0].error().unwrap();
    let expected = "the tool has to ask the user, and nobody can be asked here: it is night";
    assert_eq!(error.to_string(), expected);
}
