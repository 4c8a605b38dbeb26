//! Chats over an input and an output in memory.

use std::io::Cursor;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tool_core::agent::OnDrop;
use tool_core::memory::{InMemoryStore, RunFilter};
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, Currency, ModelPrices, Prices, Usage};
use tool_core::provider::ModelFuture;
use tool_core::store::{DriverId, LeaseRequest, LeaseState, RunStore};
use tool_core::testing::ScriptedModel;
use tool_core::tool::Asker;
use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest};
use tool_core::{Agent, ChatMemory, ChatModel, ToolError, tool, tools};

use crate::Chat;
use crate::input::Input;
use crate::screen::Screen;
use crate::session::Session;

/// Sums two numbers.
#[tool]
fn sum(a: i64, b: i64) -> i64 {
    a + b
}

/// Pays a bill.
#[tool(needs_approval)]
fn pay(cents: u32) -> String {
    format!("paid {cents}")
}

fn agent(model: impl ChatModel + 'static) -> Agent {
    Agent::builder(model).tools(tools![sum, pay]).build().unwrap()
}

async fn chat(agent: Agent, input: &str) -> String {
    let mut output = Vec::new();
    Chat::new(agent).run_with(Cursor::new(input.to_owned()), &mut output).await.unwrap();
    String::from_utf8(output).unwrap()
}

#[tokio::test]
async fn shows_answers_and_calls_and_continues_the_conversation() {
    let model = ScriptedModel::new()
        .calls("sum", r#"{"a":2,"b":40}"#)
        .says("It is 42.")
        .expects(|request| request.messages().len() == 5)
        .says("Yes.");
    let shown = chat(agent(model.clone()), "What is 2 + 40?\n\nReally?\n").await;
    let (call, rest) = shown.split_once(", ").unwrap(); // then the duration of the call
    assert_eq!(call, "\n> What is 2 + 40?\n[sum {\"a\":2,\"b\":40} -> 42");
    assert_eq!(rest.split_once(']').unwrap().1, "\nIt is 42.\n\n> \n\n> Really?\nYes.\n\n> \n");
    assert_eq!(model.remaining(), 0);
}

#[tokio::test]
async fn keys_decide_about_calls() {
    let cases = [
        ("y\n", "paid 700"),
        ("x\ny\n", "paid 700"),
        ("n\ntoo much\n", "the call was denied: too much"),
        ("n\n\n", "the call was denied"),
        ("e\n{\"cents\": 7}\n", "paid 7"),
    ];
    for (keys, outcome) in cases {
        let model = ScriptedModel::new().calls("pay", r#"{"cents":700}"#).says("Done.");
        let shown = chat(agent(model.clone()), &format!("Pay\n{keys}")).await;
        assert!(
            shown.contains("Execute pay {\"cents\":700}?\n[y]es, [n]o, [e]dit the arguments: "),
            "{shown}"
        );
        assert!(shown.ends_with("Done.\n\n> \n"), "{shown}");
        let read = model.requests()[1].last().unwrap().text().into_owned();
        assert!(read.starts_with(outcome), "{keys:?}: {read}");
    }
}

/// Orders a drink.
#[tool]
async fn order(#[inject] user: &Asker) -> Result<String, ToolError> {
    let size: String = user.ask("Which size?").choices(["small", "large"]).await?;
    let cups: u8 = user.ask("How many?").default(1).await?;
    Ok(format!("{cups} {size}"))
}

#[tokio::test]
async fn questions_of_tools_are_answered_by_number_or_text() {
    let cases = [
        ("2\n3\n", "3 large"),
        ("7\n1\n\n", "1 small"),
        ("1\nmany\n4\n", "4 small"),
        ("\n", "the user declined to answer"),
    ];
    for (lines, outcome) in cases {
        let model = ScriptedModel::new().calls("order", "{}").says("Done.");
        let agent = Agent::builder(model.clone()).tools(tools![order]).build().unwrap();
        let shown = chat(agent, &format!("A drink\n{lines}")).await;
        let expected = "Which size?\n  1: small\n  2: large\nanswer, or nothing to decline: ";
        assert!(shown.contains(expected), "{shown}");
        assert!(shown.ends_with("Done.\n\n> \n"), "{shown}");
        assert_eq!(model.requests()[1].last().unwrap().text(), outcome, "{shown}");
    }
}

/// Books a room in a hotel.
#[tool]
async fn book(#[inject] user: &Asker) -> Result<String, ToolError> {
    let form = json!({
        "type": "object",
        "properties": {
            "nights": { "type": "integer", "description": "how long" },
            "room": { "$ref": "#/$defs/Room", "default": "small" },
            "view": { "type": "string", "oneOf": [{ "const": "s", "title": "Sea" }, { "const": "g", "title": "Garden" }] },
            "wishes": { "type": "string", "title": "Wishes" },
            "zones": { "type": "array", "items": { "type": "string", "enum": ["bed", "dog"] } },
        },
        "required": ["nights"],
        "$defs": { "Room": { "type": "string", "enum": ["small", "large"] } },
    });
    user.ask_json("Which room?", form).await.map(|form| form.to_string()).map_err(ToolError::from)
}

#[tokio::test]
async fn a_form_is_asked_field_by_field_and_shown_before_it_is_sent() {
    let cases = [
        (
            "3\n\n2\nquiet\n[\"dog\"]\ny\n",
            r#"{"nights":3,"room":"small","view":"g","wishes":"quiet","zones":["dog"]}"#,
        ),
        ("3\n2\n\n\n\nx\na\n4\n2\n\n\n\ny\n", r#"{"nights":4,"room":"large"}"#),
        ("3\n-\n\n\n\ny\n", r#"{"nights":3}"#),
        ("3\n\n\n\n\nn\n", "the user declined to answer"),
    ];
    for (lines, outcome) in cases {
        let model = ScriptedModel::new().calls("book", "{}").says("Done.");
        let agent = Agent::builder(model.clone()).tools(tools![book]).build().unwrap();
        let shown = chat(agent, &format!("A room\n{lines}")).await;
        assert!(shown.ends_with("Done.\n\n> \n"), "{shown}");
        let read = model.requests()[1].last().unwrap().text().into_owned();
        assert_eq!(serde_json::from_str::<Value>(&read).ok(), serde_json::from_str(outcome).ok(), "{shown}");
        assert!(read.starts_with(&outcome[..1]), "{read}");
    }
    let model = ScriptedModel::new().calls("book", "{}").says("Done.");
    let agent = Agent::builder(model).tools(tools![book]).build().unwrap();
    let shown = chat(agent, "A room\n3\n\n2\n\n\ny\n").await;
    let form = "Which room?\nhow long\nnights (integer): 3\n  1: small\n  2: large\nroom, or - for nothing [small]: \n  1: Sea\n  2: Garden\n\
                view, or nothing: 2\nWishes\nwishes, or nothing: \nzones (array of \"bed\", \"dog\"), or nothing: \n\
                Send {\"nights\": 3, \"room\": \"small\", \"view\": \"g\"}? [y]es, [n]o, [a]gain: y\n";
    assert!(shown.contains(form), "{shown}");
}

#[tool]
async fn log_in(#[inject] user: &Asker) -> Result<String, ToolError> {
    let password: String = user.ask("Password?").secret().await?;
    Ok(format!("{} letters", password.len()))
}

#[tokio::test]
async fn a_secret_is_not_shown() {
    let model = ScriptedModel::new().calls("log_in", "{}").says("Done.");
    let agent = Agent::builder(model.clone()).tools(tools![log_in]).build().unwrap();
    let shown = chat(agent, "Log in\nhunter2\n").await;
    assert!(
        shown.contains("Password?\nanswer, or nothing to decline: \n") && !shown.contains("hunter2"),
        "{shown}"
    );
    assert_eq!(model.requests()[1].last().unwrap().text(), "7 letters");
}

#[tokio::test]
async fn call_is_shown_whole_on_one_line_and_printable() {
    let arguments = format!("{{\n\"cents\": 700{}\u{202e}}}", " ".repeat(5_000));
    let model = ScriptedModel::new().calls("pay", &arguments).says("Done.");
    let shown = chat(agent(model), "Pay\ny\n").await;
    let expected =
        format!("Execute pay {}?\n", arguments.replace('\n', r"\u{a}").replace('\u{202e}', r"\u{202e}"));
    assert!(shown.contains(&expected), "{shown}");
}

#[tokio::test]
async fn call_is_not_executed_if_the_input_ends() {
    let model = ScriptedModel::new().calls("pay", r#"{"cents":700}"#).says("Done.");
    let shown = chat(agent(model.clone()), "Pay\n").await;
    assert!(shown.contains("approval") && !shown.contains("paid 700"), "{shown}");
    assert_eq!(model.remaining(), 1);
}

#[tokio::test]
async fn approver_of_the_agent_decides_alone() {
    let model = ScriptedModel::new().calls("pay", r#"{"cents":700}"#).says("Done.");
    let deny = tool_core::agent::on_approval(|_| tool_core::run::Decision::deny("by rule"));
    let agent = Agent::builder(model.clone()).tools(tools![pay]).decider(deny).build().unwrap();
    let shown = chat(agent, "Pay\n").await;
    assert_eq!(shown, "\n> Pay\n[pay {\"cents\":700} -> the call was denied: by rule]\nDone.\n\n> \n");
    assert_eq!(model.requests()[1].last().unwrap().text(), "the call was denied: by rule");
}

#[tokio::test]
async fn failed_question_does_not_end_the_chat() {
    let model = ScriptedModel::new().fails("the service is busy").says("Hello.");
    let shown = chat(agent(model), "Hi\nHi\n").await;
    assert!(shown.contains("the service is busy]\n\n> Hi\nHello.\n"), "{shown}");
}

#[tokio::test]
async fn usage_has_the_cost_of_failed_questions() {
    let model = ScriptedModel::new().says("Hello.").with_usage(Usage::new(1_000, 2_000)).fails("gone");
    let prices = ModelPrices::new(1.0, 10.0).with_max_output_tokens(1_000);
    let prices = Prices::from_fn(Currency::USD, move |_, _| Some(prices));
    let agent = Agent::builder(model).prices(prices).build().unwrap();
    let shown = chat(agent, "Hi\n/usage\nHi\n/usage\n").await;
    assert!(shown.contains("\n1 questions, 1000 input tokens, 2000 output tokens, 0.021 USD\n"), "{shown}");
    // At worst, the failed request has cost its input and the longest answer.
    assert!(
        shown.contains("\n2 questions, 1000 input tokens, 2000 output tokens, 0.031122 USD\n"),
        "{shown}"
    );
}

#[tokio::test]
async fn commands_are_not_sent_to_the_model() {
    let file = std::env::temp_dir().join(format!("tool-cli-{}.txt", std::process::id()));
    let name = file.display();
    let model = ScriptedModel::new().says("Hello.").with_usage(Usage::new(10, 2));
    let input = format!("Hi\n/tools\n/usage\n/save\n/save {name}\n/save {name}\n/sabe\n/quit\nnot read\n");
    let shown = chat(agent(model.clone()), &input).await;
    let saved = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(shown.contains("\nsum: Sums two numbers.\npay: Pays a bill. (needs approval)\n"), "{shown}");
    assert!(shown.contains("\n1 questions, 10 input tokens, 2 output tokens\n"), "{shown}");
    assert!(shown.contains("\nwrite the name of a new file: `/save chat.txt`\n"), "{shown}");
    assert!(shown.contains(&format!("\n2 messages saved in {name}\n")), "{shown}");
    assert!(shown.contains(&format!("\nnot saved in {name}: ")), "{shown}");
    assert!(shown.contains("\nunknown command `/sabe`; /tools lists"), "{shown}");
    assert!(shown.ends_with("> /quit\n"), "{shown}");
    assert_eq!(saved, "user: Hi\nmodel: Hello.\n");
    assert_eq!(model.requests().len(), 1);
}

struct Tickets;

impl ToolProvider for Tickets {
    fn tools<'a>(&'a self, _: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(async { Ok(tools![sum]) })
    }

    fn name(&self) -> &str {
        "tickets"
    }
}

#[tokio::test]
async fn providers_of_tools_are_listed_with_the_tools() {
    let agent = || Agent::builder(ScriptedModel::new());
    for (agent, listed) in [
        (agent().tools(tools![pay]), "pay: Pays a bill. (needs approval)\n\n>"),
        (
            agent().tools(tools![pay]).tool_provider(Tickets),
            "pay: Pays a bill. (needs approval)\neach question adds tools of `tickets`\n\n>",
        ),
        (agent().tool_provider(Tickets), "> /tools\neach question adds tools of `tickets`\n\n>"),
        (agent(), "no tools\n\n>"),
    ] {
        let shown = chat(agent.build().unwrap(), "/tools\n").await;
        assert!(shown.contains(listed), "{shown}");
    }
}

#[tokio::test]
async fn memory_of_the_agent_continues_across_chats() {
    let model = ScriptedModel::new()
        .says("Nice to meet you.")
        .expects(|request| request.messages().len() == 3)
        .says("You are Ada.");
    let agent = Agent::builder(model.clone()).memory(ChatMemory::in_memory()).build().unwrap();
    chat(agent.clone(), "I am Ada.\n").await;
    let shown = chat(agent, "Who am I?\n").await;
    assert!(shown.contains("You are Ada."), "{shown}");
    assert_eq!(model.remaining(), 0);
}

/// A model that answers after a time, and interrupts the chat when it is asked.
struct Slow {
    delay: Duration,
    interrupts: Option<mpsc::Sender<()>>,
}

impl ChatModel for Slow {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async {
            if let Some(interrupts) = &self.interrupts {
                interrupts.send(()).await.unwrap();
            }
            tokio::time::sleep(self.delay).await;
            Ok(ChatResponse::new(AssistantMessage::text("Hello.")))
        })
    }
}

async fn chat_in_terminal(model: Slow, interrupts: mpsc::Receiver<()>) -> String {
    let mut output = Vec::new();
    let (input, screen) = (Input::lines(Cursor::new("Hi\n")), Screen::new(&mut output, true));
    Session::new(agent(model), "chat".into(), input, screen, interrupts).run().await.unwrap();
    String::from_utf8(output).unwrap()
}

#[tokio::test(start_paused = true)]
async fn spinner_turns_until_the_model_answers() {
    let (_sender, interrupts) = mpsc::channel(1);
    let model = Slow { delay: Duration::from_millis(250), interrupts: None };
    let shown = chat_in_terminal(model, interrupts).await;
    let spinner = "\r\x1b[K⠋ thinking\r\x1b[K⠙ thinking\r\x1b[K⠹ thinking\r\x1b[K";
    assert_eq!(shown, format!("\n> Hi\n{spinner}Hello.\n\n> \n"));
}

#[tokio::test(start_paused = true)]
async fn interrupt_stops_the_answer_and_not_the_chat() {
    let (sender, interrupts) = mpsc::channel(1);
    let model = Slow { delay: Duration::MAX, interrupts: Some(sender) };
    let shown = chat_in_terminal(model, interrupts).await;
    assert!(shown.contains("[the run was cancelled") && shown.ends_with("]\n\n> \n"), "{shown}");
}

/// The first chat ended, or its process died, before the user had decided.
#[tokio::test]
async fn a_chat_goes_on_with_the_run_of_its_conversation_that_waits() {
    let cases = [
        ("y\n", "paid 700", "Paid.\n\n> \n"),
        ("n\n\nAnd now?\n", "the call was denied", "Paid.\n\n> And now?\nYou may go.\n\n> \n"),
    ];
    for (input, outcome, end) in cases {
        let store = std::sync::Arc::new(InMemoryStore::new());
        let agent = |model: ScriptedModel| {
            let agent = Agent::builder(model).tools(tools![pay]).run_store(store.clone());
            agent.memory(ChatMemory::new(store.clone())).build().unwrap()
        };
        let first = agent(ScriptedModel::new().calls("pay", r#"{"cents":700}"#));
        let shown = chat(first, "Pay\n").await;
        assert!(shown.contains("approval"), "{shown}");

        // Runs of other users and conversations are theirs.
        for (conversation, user) in [("other", None), ("chat", Some("eve"))] {
            let mut chat = Chat::new(agent(ScriptedModel::new())).conversation(conversation);
            chat.user = user.map(Into::into);
            let mut output = Vec::new();
            chat.run_with(Cursor::new(""), &mut output).await.unwrap();
            assert_eq!(String::from_utf8(output).unwrap(), "\n> \n");
        }

        let model = ScriptedModel::new().says("Paid.").says("You may go.");
        let shown = chat(agent(model.clone()), input).await;
        assert!(
            shown.starts_with("Execute pay {\"cents\":700}?\n[y]es, [n]o, [e]dit the arguments: "),
            "{shown}"
        );
        assert!(shown.ends_with(end), "{shown}");
        let read = model.requests()[0].last().unwrap().text().into_owned();
        assert!(read.starts_with(outcome), "{input:?}: {read}");
        assert!(store.list_runs(&RunFilter::new()).await.unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_chat_waits_for_another_process_and_goes_on_when_that_has_died() {
    let waiting = "[another process works on this conversation; waiting for it, Ctrl-C to ask now]\n";
    // The other process dies after so many seconds, or goes on working.
    for (dies_after, shown) in [
        (2, format!("{waiting}[going on with what was interrupted]\nGood morning!\n\n> \n")),
        (3_600, format!("{waiting}\n> \n")),
    ] {
        let store = InMemoryStore::new();
        let agent = |model: Box<dyn ChatModel>| {
            let agent = Agent::builder(model).memory(ChatMemory::new(store.clone()));
            agent.run_store(store.clone()).build().unwrap()
        };
        let first = agent(Box::new(Slow { delay: Duration::MAX, interrupts: None }));
        let driving = first.ask("Hello").conversation("chat").on_drop(OnDrop::Keep);
        timeout(Duration::from_secs(1), driving).await.unwrap_err();
        let id = store.list_runs(&RunFilter::new()).await.unwrap()[0].id.clone();
        let (other, take) = (DriverId::unique(), LeaseRequest::Take(Duration::from_secs(7_200)));
        assert_eq!(store.lease(&id, &other, take).await.unwrap(), LeaseState::Held);
        let dying = async {
            tokio::time::sleep(Duration::from_secs(dies_after)).await;
            let _ = store.lease(&id, &other, LeaseRequest::Release).await.unwrap();
        };
        let second = agent(Box::new(ScriptedModel::new().says("Good morning!")));
        assert_eq!(tokio::join!(chat(second, ""), dying).0, shown);
    }
}

#[tokio::test]
async fn watch_lists_runs_and_decides_about_what_waits() {
    let model = ScriptedModel::new()
        .calls_all([("pay", r#"{"cents":700}"#), ("pay", r#"{"cents":9}"#)])
        .says("Paid what I could.");
    let store = std::sync::Arc::new(InMemoryStore::new());
    let agent = Agent::builder(model).tools(tools![pay]).run_store(store.clone()).build().unwrap();
    let run = agent.ask("Pay").await.unwrap_err().into_run();
    let mut output = Vec::new();
    let (_sender, interrupts) = mpsc::channel(1);
    let input = Input::lines(Cursor::new("2\n1\ny\nn\ntoo much\n\nq\n".to_owned()));
    let screen = Screen::new(&mut output, false);
    Session::new(agent, "watch".into(), input, screen, interrupts).watch("anna").await.unwrap();
    let shown = String::from_utf8(output).unwrap();
    assert!(
        shown.starts_with(
            "1: Waiting, turn 1, 0 tokens: Pay\n   waits: call_1_0 pay\n   waits: call_1_1 pay\n\
             a number, Enter to read again, or q: 2\n"
        ),
        "{shown}"
    );
    assert!(shown.contains("there is no such run\n"), "{shown}");
    assert!(shown.contains("Paid what I could.\nno stored runs\n"), "{shown}");
    assert!(store.load_run(run.id().as_str()).await.unwrap().is_none());
}
