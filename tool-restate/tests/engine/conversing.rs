//! Conversations.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tool_core::agent::Compaction;
use tool_core::content::Content;
use tool_core::layer::{QuestionVerdict, guard};
use tool_core::memory::Window;
use tool_core::model::ChatRequest;
use tool_core::run::Decision;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, tool, tools};
use tool_restate::{ErrorKind, Worker};

use crate::support::{agent, answer, end_by_engine, failure, serve, unique, until, waiting_calls, within};

#[tool("Needs a person", needs_approval)]
fn ask_person() -> &'static str {
    "yes"
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn questions_of_a_conversation_follow_each_other() {
    let name = unique("clerk");
    let model = ScriptedModel::new()
        .says("Hello Ada.")
        .expects(|request| request.messages().len() == 3)
        .says("You are Ada.")
        .fails("the line is dead")
        .expects(|request| request.messages().len() == 3)
        .says("Once more.");
    let clerk = Agent::builder(model).name(&*name).build().unwrap();
    let _worker = serve(Worker::new().model_attempts(1).agent(clerk).window(Window::messages(2))).await;
    let clerk = agent(&name);
    let first = clerk.ask("I am Ada.").conversation("user-7").send().await.unwrap();
    assert_eq!(answer(&first).await.text(), "Hello Ada.");
    let second = clerk.ask("Who am I?").conversation("user-7").send().await.unwrap();
    assert_eq!(answer(&second).await.text(), "You are Ada.");
    // A run without an answer adds nothing.
    let third = clerk.ask("And now?").conversation("user-7").send().await.unwrap();
    failure(&third).await;
    let fourth = clerk.ask("Again?").conversation("user-7").send().await.unwrap();
    assert_eq!(answer(&fourth).await.text(), "Once more.");
    while clerk.conversation("user-7").await.unwrap().len() < 6 {
        tokio::task::yield_now().await;
    }
    let texts: Vec<_> =
        clerk.conversation("user-7").await.unwrap().iter().map(|one| one.text().into_owned()).collect();
    assert_eq!(texts, ["I am Ada.", "Hello Ada.", "Who am I?", "You are Ada.", "Again?", "Once more."]);
    assert!(clerk.conversation("user-8").await.unwrap().is_empty());
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_run_that_waits_for_a_person_does_not_lock_its_conversation() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("ask_person", "{}").says("Meanwhile.").says("Allowed.");
    let clerk = Agent::builder(model).name(&*name).tools(tools![ask_person]).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let clerk = agent(&name);
    let waiting = clerk.ask("May I?").conversation("user-7").send().await.unwrap();
    let calls = waiting_calls(&waiting).await;
    let other = clerk.ask("What else?").conversation("user-7").send().await.unwrap();
    assert_eq!(answer(&other).await.text(), "Meanwhile.");
    waiting.decide(&calls[0].id, Decision::approve()).await.unwrap();
    assert_eq!(answer(&waiting).await.text(), "Allowed.");
    while clerk.conversation("user-7").await.unwrap().len() < 6 {
        tokio::task::yield_now().await;
    }
    let messages = clerk.conversation("user-7").await.unwrap();
    let texts: Vec<_> = messages.iter().map(|one| one.text().into_owned()).collect();
    assert_eq!(texts, ["What else?", "Meanwhile.", "May I?", "", "yes", "Allowed."]);
}

/// A question that a layer answers in place of the model is part of no conversation.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_blocked_question_is_not_stored() {
    let name = unique("clerk");
    let model = ScriptedModel::new().expects(|request| request.messages().len() == 1).says("Hello.");
    let block = guard::question(|question: &Content| match question.text().contains("secret") {
        true => QuestionVerdict::answer("Not here."),
        false => QuestionVerdict::Pass,
    });
    let clerk = Agent::builder(model).name(&*name).layer(block).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let clerk = agent(&name);
    for (question, expected) in [("What is the secret?", "Not here."), ("Hello", "Hello.")] {
        let run = clerk.ask(question).conversation("user-7").send().await.unwrap();
        assert_eq!(answer(&run).await.text(), expected);
    }
}

#[tool("Looks up a contract", keep_output)]
fn contract(id: u32) -> String {
    format!("contract {id}: {}", "clause ".repeat(600))
}

/// Each question begins with the summary of the one before, and nothing is summarized twice. A summary of a run that waited counts the messages
/// without those of the questions meanwhile, so it is not stored.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn questions_begin_with_the_summary_of_the_ones_before() {
    fn summarizes(request: &ChatRequest<'_>) -> bool {
        // A summary that fails would only be missing.
        assert!(request.messages().last().unwrap().text().starts_with("Summarize this"));
        assert!(
            request.messages().iter().all(|one| !one.text().contains("two contracts")),
            "summarized twice"
        );
        true
    }
    let name = unique("clerk");
    let reads = |model: ScriptedModel| {
        let model = model.calls("contract", r#"{"id": 1}"#).calls("contract", r#"{"id": 2}"#);
        model.expects(summarizes).says("There were two contracts.").says("Read.")
    };
    let begins_with_summary = |request: &ChatRequest<'_>| {
        let texts: Vec<_> = request.messages().iter().map(|one| one.text().into_owned()).collect();
        let [question, summary, _, output, read, _] = &*texts else { panic!("{texts:#?}") };
        assert!(summary.ends_with("There were two contracts."), "{summary}");
        (&**question, output.starts_with("contract 2"), &**read) == ("Read both", true, "Read.")
    };
    let model = reads(ScriptedModel::new())
        .expects(begins_with_summary)
        .says("Two.")
        // Another conversation, in which the first run waits during the second one.
        .calls("ask_person", "{}")
        .says("Meanwhile.");
    let model = reads(model).expects(summarizes).says("There were three questions.").says("All of it.");
    let compaction = Compaction::when_it_pays().at_tokens(1_500).keep_recent_tokens(1_000);
    let clerk = Agent::builder(model).name(&*name).tools(tools![contract, ask_person]);
    let _worker = serve(Worker::new().agent(clerk.compaction(compaction).build().unwrap())).await;
    let clerk = agent(&name);
    let first = clerk.ask("Read both").conversation("user-7").send().await.unwrap();
    assert_eq!(answer(&first).await.text(), "Read.");
    let second = clerk.ask("How many?").conversation("user-7").send().await.unwrap();
    assert_eq!(answer(&second).await.text(), "Two.");
    let waiting = clerk.ask("May I?").conversation("user-8").send().await.unwrap();
    let calls = waiting_calls(&waiting).await;
    let other = clerk.ask("What else?").conversation("user-8").send().await.unwrap();
    assert_eq!(answer(&other).await.text(), "Meanwhile.");
    waiting.decide(&calls[0].id, Decision::approve()).await.unwrap();
    assert_eq!(answer(&waiting).await.text(), "Read.");
    while clerk.conversation("user-8").await.unwrap().len() < 10 {
        tokio::task::yield_now().await;
    }
    let last = clerk.ask("Again?").conversation("user-8").send().await.unwrap();
    assert_eq!(answer(&last).await.text(), "All of it.");
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_history_that_is_too_large_fails_its_run() {
    let name = unique("clerk");
    let model = ScriptedModel::new().says("x".repeat(60_000)).says("Afresh.");
    let worker = || Worker::new().agent(Agent::builder(model.clone()).name(&*name).build().unwrap());
    let _first = serve(worker()).await;
    let clerk = agent(&name);
    answer(&clerk.ask("Go on").conversation("user-7").send().await.unwrap()).await;
    let _second = serve(worker().version("2").max_value_bytes(50_000)).await;
    let failed = failure(&clerk.ask("Go on").conversation("user-7").send().await.unwrap()).await;
    assert!(failed.message.starts_with("the history of the conversation has 60"), "{}", failed.message);
    assert!(failed.message.contains("limit it with `Worker::window`"), "{}", failed.message);
    let error = clerk.conversation("user-7").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    let other = clerk.ask("Hello").conversation("user-8").send().await.unwrap();
    assert_eq!(answer(&other).await.text(), "Afresh.");
}

static HELD: AtomicU32 = AtomicU32::new(0);
static MAY_END: AtomicBool = AtomicBool::new(false);

#[tool("Takes long")]
async fn hold_on() {
    HELD.fetch_add(1, Ordering::SeqCst);
    while !MAY_END.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A run that was killed, or was cancelled and removed before its turn came, has the conversation no longer.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_run_that_is_gone_does_not_lock_its_conversation() {
    let name = unique("clerk");
    let model =
        ScriptedModel::new().calls("hold_on", "{}").calls("hold_on", "{}").says("Held.").says("Free.");
    let clerk = Agent::builder(model).name(&*name).tools(tools![hold_on]).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let clerk = agent(&name);
    let killed = clerk.ask("First").conversation("user-7").send().await.unwrap();
    until("the first call", || HELD.load(Ordering::SeqCst) == 1).await;
    end_by_engine("kill", &name, killed.key()).await;
    let second = clerk.ask("Second").conversation("user-7").send().await.unwrap();
    let second_is_executed = async {
        while HELD.load(Ordering::SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("the second call", second_is_executed).await;
    let removed = clerk.ask("Third").conversation("user-7").send().await.unwrap();
    removed.cancel().await.unwrap();
    failure(&removed).await;
    // As after the retention.
    end_by_engine("purge", &name, removed.key()).await;
    assert_eq!(removed.peek().await.unwrap_err().kind(), ErrorKind::UnknownRun);
    let last = clerk.ask("Last").conversation("user-7").send().await.unwrap();
    MAY_END.store(true, Ordering::SeqCst);
    assert_eq!(within("the second answer", answer(&second)).await.text(), "Held.");
    assert_eq!(within("the last answer", answer(&last)).await.text(), "Free.");
}
