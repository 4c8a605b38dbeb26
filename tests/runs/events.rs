//! The events of a run as they are sent, and which calls they name.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use futures_util::StreamExt;
use serde_json::Value;
use tool_core::agent::{EventRecord, on_approval};
use tool_core::engine::AskExt;
use tool_core::layer::{AnswerVerdict, CallVerdict, guard};
use tool_core::model::Usage;
use tool_core::run::Decision;
use tool_core::signatures::{DecisionKind, ToolProgress};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, Event, ToolCall, ToolError, tool, tools};

#[tool]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[tool(needs_approval)]
fn erase() {}

#[tool(return_direct = "always")]
fn bill() -> &'static str {
    "a bill"
}

#[tool(pure)]
fn price() -> u32 {
    3
}

fn read(json: &Value) -> Event {
    serde_json::from_str::<EventRecord>(&json.to_string()).unwrap().event
}

/// Removes what differs from run to run.
fn without_times(record: &Value) -> String {
    let mut record = record.clone();
    if let Some(execution) = record.as_object_mut() {
        execution.retain(|name, _| !matches!(&**name, "started_at" | "duration"));
    }
    if record["type"] == "agent" {
        record["event"] = without_times(&record["event"]).parse().unwrap();
    }
    record.to_string()
}

/// Reads the stream of a question, and returns the records in their serialized form.
async fn records(agent: &Agent, last: u64) -> Vec<Value> {
    let records = agent.ask("What now?").stream().records(last);
    records.map(|record| serde_json::to_value(record.unwrap()).unwrap()).collect().await
}

#[tokio::test]
async fn a_record_has_the_texts_and_is_read_again() {
    let inner = ScriptedModel::new().calls("add", r#"{"a": 2, "b": 40}"#).says("42");
    let expert = Agent::builder(inner).tools(tools![add]).build().unwrap();
    let expert = expert.as_tool("expert", "Knows numbers").stream_text();
    let model = ScriptedModel::new().calls("expert", r#"{"question": "2 + 40?"}"#).says("It is 42.");
    let agent = Agent::builder(model).tools(expert).build().unwrap();
    let records = records(&agent, 0).await;
    for record in &records {
        let again = read(record).at(record["position"].as_u64().unwrap());
        assert_eq!(serde_json::to_value(again).unwrap(), *record);
    }
    let shown: Vec<_> = records.iter().map(without_times).collect();
    let expected = include_str!("events/records.jsonl");
    assert_eq!(shown.join("\n"), expected.trim_end());
}

#[tokio::test]
async fn a_record_has_what_the_run_waits_for() {
    let model = ScriptedModel::new().calls("erase", "{}");
    let agent = Agent::builder(model).tools(tools![erase]).build().unwrap();
    let records: Vec<_> = agent.ask("Erase").stream().records(7).collect().await;
    let [.., waiting, end] = &records[..] else { panic!("{records:?}") };
    let (waiting, end) = (waiting.as_ref().unwrap(), end.as_ref().unwrap_err());
    assert_eq!(waiting.position, 7 + records.len() as u64 - 1);
    let json = serde_json::to_value(waiting).unwrap();
    assert_eq!((&json["type"], &json["waits"][0]["tool"]), (&"waiting".into(), &"erase".into()));
    let Event::Waiting(waits) = read(&json) else { panic!("{json}") };
    assert_eq!(waits, end.run().waits());
}

/// What the events before contain is not sent twice, and the state of inner runs is nobody else's.
#[tokio::test]
async fn the_record_of_an_answer_is_a_summary() {
    let expert = Agent::builder(ScriptedModel::new().says("42").with_usage(Usage::new(5, 1)))
        .instructions("secret")
        .build()
        .unwrap();
    let model = ScriptedModel::new().calls("expert", r#"{"question": "?"}"#).says("It is 42.");
    let agent = Agent::builder(model).tools(expert.as_tool("expert", "Knows numbers")).build().unwrap();
    let records = records(&agent, 0).await;
    assert!(records.iter().all(|record| !record.to_string().contains("secret")), "{records:?}");
    let Event::Done(answer) = read(records.last().unwrap()) else { panic!("{records:?}") };
    assert_eq!((answer.text(), answer.turns()), ("It is 42.", 2));
    let parts: Vec<_> = answer.usage_by_agent().into_iter().map(|(agent, _)| agent).collect();
    assert_eq!(parts, ["agent", "expert"]);
    assert_eq!(
        (answer.new_messages().len(), answer.tool_executions().len(), answer.inner_runs().len()),
        (0, 0, 0)
    );
}

/// Other processes store and read these.
#[test]
fn the_form_of_each_kind_stays_the_same() {
    for line in include_str!("events/kinds.jsonl").lines() {
        let record: EventRecord = serde_json::from_str(line).unwrap();
        assert_eq!(matches!(record.event, Event::Unknown), line.contains("unknown"), "{line}");
        assert_eq!(serde_json::to_string(&record).unwrap(), line);
    }
}

#[test]
fn an_event_of_a_later_version_is_read() {
    for json in
        [r#"{"position": 1, "type": "dreamt", "of": ["sheep"]}"#, r#"{"type": "dreamt", "position": 1}"#]
    {
        let record: EventRecord = serde_json::from_str(json).unwrap();
        assert!(matches!(record, EventRecord { position: 1, event: Event::Unknown, .. }), "{record:?}");
    }
    let unknown = Event::Unknown.inside("expert", "1").at(2);
    let json = r#"{"position":2,"type":"agent","agent":"expert","call_id":"1","event":{"type":"unknown"}}"#;
    assert_eq!(serde_json::to_string(&unknown).unwrap(), json);
}

/// A known kind without its fields is a mistake of the writer.
#[test]
fn a_broken_record_is_refused() {
    let error = serde_json::from_str::<EventRecord>(r#"{"position": 1, "type": "text"}"#).unwrap_err();
    assert_eq!(error.to_string(), "missing field `text` at line 1 column 31");
}

#[test]
fn debug_omits_texts_and_arguments() {
    let call = ToolCall::new("1", "add", r#"{"a": "secret"}"#);
    let failed = tool_core::ToolExecution::new(call.clone(), Err(ToolError::failed("secret")));
    let events = [
        Event::Text("secret".into()),
        Event::Reasoning("secret".into()),
        Event::call_ready(3, call.clone()),
        Event::CallStarted(call),
        Event::call_progress("1", "add", ToolProgress::from("secret")),
        Event::CallFinished(failed).inside("expert", "1"),
        Event::Failed("secret".into()),
    ];
    for event in events {
        let shown = format!("{:?}", event.at(1));
        assert!(
            shown.starts_with("EventRecord { position: 1, event: ") && !shown.contains("secret"),
            "{shown}"
        );
    }
}

/// A model announces three calls under one id, and the second of them stands for two.
#[tokio::test]
async fn a_ready_call_names_the_announced_one() {
    let both = r#"{"tool_uses": [
        {"recipient_name": "functions.add", "parameters": {"a": 2, "b": 0}},
        {"recipient_name": "functions.add", "parameters": {"a": 3, "b": 0}}
    ]}"#;
    let (first, last) = (r#"{"a": 1, "b": 0}"#, r#"{"a": 4, "b": 0}"#);
    let calls = [("add", first), ("multi_tool_use.parallel", both), ("add", last)];
    let model = ScriptedModel::new().calls_all(calls).says("Done.");
    let agent = Agent::builder(model).tools(tools![add]).build().unwrap();
    let mut events = agent.ask("Add").stream();
    let (mut announced, mut ready) = (Vec::new(), Vec::new());
    while let Some(event) = events.next().await {
        match event.unwrap() {
            Event::CallAnnounced { index, name, .. } => announced.push((index, name)),
            Event::CallReady { index, call, .. } => ready.push((index, call.arguments)),
            _ => {}
        }
    }
    let names = ["add", "multi_tool_use.parallel", "add"].map(str::to_owned);
    assert_eq!(announced, names.into_iter().enumerate().collect::<Vec<_>>());
    let arguments = |text: &str| serde_json::from_str::<Value>(text).unwrap()["a"].as_i64().unwrap();
    let ready: Vec<_> = ready.iter().map(|(index, text)| (*index, arguments(text))).collect();
    assert_eq!(ready, [(0, 1), (1, 2), (1, 3), (2, 4)]);
}

/// Returns the calls that an agent reports as finished, with their outcomes and decisions.
async fn finished(agent: Agent) -> Vec<String> {
    let mut events = agent.ask("Go").stream();
    let mut finished = Vec::new();
    while let Some(event) = events.next().await {
        if let Event::CallFinished(execution) = event.unwrap() {
            let decisions: Vec<_> = execution.decisions().iter().map(|one| one.kind).collect();
            finished.push(format!("{} {decisions:?}", execution.with_timing(UNIX_EPOCH, Duration::ZERO)));
        }
    }
    finished
}

#[tokio::test]
async fn a_denied_call_is_reported() {
    let model = || ScriptedModel::new().calls("erase", "{}").says("It stays.");
    let agent = |decision: Decision| {
        let agent = Agent::builder(model()).tools(tools![erase]);
        agent.decider(on_approval(move |_| decision.clone())).build().unwrap()
    };
    let denied = finished(agent(Decision::deny("not today"))).await;
    assert_eq!(denied, ["erase {} fails: the call was denied: not today [Denied]"]);
    let changed = finished(agent(Decision::approve_with(r#"{ }"#))).await;
    assert_eq!(changed, ["erase { } returns: Success [ApprovedWithChanges]"]);
}

#[tokio::test]
async fn a_call_that_a_layer_denies_is_reported_once() {
    let model = ScriptedModel::new().calls_all([("add", r#"{"a": 1, "b": 2}"#), ("price", "{}")]).says("No.");
    let deny = |call: &ToolCall| match &*call.name {
        "add" => CallVerdict::deny("no sums"),
        _ => CallVerdict::Pass,
    };
    let agent = Agent::builder(model).tools(tools![add, price]).layer(guard::call(deny)).build().unwrap();
    let expected =
        [r#"add {"a": 1, "b": 2} fails: the call was denied: no sums []"#, "price {} returns: 3 []"];
    assert_eq!(finished(agent).await, expected);
}

#[tokio::test]
async fn a_call_denied_between_two_steps_is_reported_with_the_next() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let model = ScriptedModel::new().calls_all([("erase", "{}"), ("erase", "{ }")]).says("It stays.");
    let agent = Agent::builder(model).tools(tools![erase]).on_event(move |event| {
        if let Event::CallFinished(execution) = event {
            let kinds: Vec<DecisionKind> = execution.decisions().iter().map(|one| one.kind).collect();
            sender.send((execution.call().id.clone(), kinds)).unwrap();
        }
    });
    let mut run = agent.build().unwrap().ask("Erase").start();
    while run.run().waits().is_empty() {
        run.advance().await.unwrap();
    }
    for (wait, count) in run.run().waits().into_iter().zip(1..) {
        run.resolve(&wait.id, Decision::deny("no")).unwrap();
        let _ = run.advance().await;
        let id = format!("call_1_{}", count - 1);
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [(id, vec![DecisionKind::Denied])]);
    }
}

/// Also beside a call whose output is the answer, which layers have still to judge.
#[tokio::test]
async fn a_call_denied_while_nobody_drives_the_run_is_reported_once() {
    for earlier in [0, 2] {
        let (sender, receiver) = std::sync::mpsc::channel();
        let model = (0..earlier).fold(ScriptedModel::new(), |model, _| model.calls("price", "{}"));
        let model = model.calls_all([("bill", "{}"), ("erase", "{}")]);
        let agent = Agent::builder(model).tools(tools![price, bill, erase]);
        let agent = agent.layer(guard::answer(|_: &str| AnswerVerdict::Pass)).on_event(move |event| {
            if let Event::CallFinished(execution) = event {
                sender.send(execution.call().id.clone()).unwrap();
            }
        });
        let agent = agent.build().unwrap();
        let mut run = agent.ask("Go").await.unwrap_err().into_run();
        run.resolve_all(|_| Decision::deny("no")).unwrap();
        let run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
        assert_eq!(agent.resume(run).await.unwrap().text(), "a bill");
        let mut reported: Vec<_> = receiver.try_iter().collect();
        reported.sort();
        let turns = (1..=earlier).map(|turn| format!("call_{turn}_0"));
        let last = (0..2).map(|position| format!("call_{}_{position}", earlier + 1));
        assert_eq!(reported, turns.chain(last).collect::<Vec<_>>());
    }
}

/// Each call that was ready is reported to have ended, once.
#[tokio::test]
async fn a_call_without_an_execution_of_its_own_is_reported() {
    let model = ScriptedModel::new().calls("price", "{}").calls("price", "{}").says("3");
    let agent = Agent::builder(model).tools(tools![price]).build().unwrap();
    assert_eq!(finished(agent).await, ["price {} returns: 3 []", "price {} returns: 3 []"]);
}

/// A driver does not run far ahead of the reader of its events: each sender of a call has one place beside those of the stream.
#[tokio::test(start_paused = true)]
async fn a_run_whose_stream_nobody_reads_stops_after_a_few_events() {
    let ahead = async |agent: Agent| {
        let emitted = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&emitted);
        let ask = agent.ask("Go").on_event(move |_| _ = counted.fetch_add(1, Ordering::SeqCst));
        let (mut driver, _events) = ask.start_streamed();
        let driving = async { while driver.advance().await.unwrap() {} };
        assert!(tokio::time::timeout(Duration::from_secs(3_600), driving).await.is_err());
        emitted.load(Ordering::SeqCst)
    };
    let one = |model: ScriptedModel| model.calls("add", r#"{"a": 2, "b": 40}"#);
    let turns = (0..12).fold(ScriptedModel::new(), |model, _| one(model));
    assert_eq!(ahead(Agent::builder(turns).tools(tools![add]).build().unwrap()).await, 18);
    let calls = [("add", r#"{"a": 2, "b": 40}"#); 12];
    let adds = || ScriptedModel::new().calls_all(calls).says("Done.");
    assert_eq!(ahead(Agent::builder(adds()).tools(tools![add]).build().unwrap()).await, 18);
    let expert = Agent::builder(adds()).tools(tools![add]).build().unwrap();
    let expert = expert.as_tool("expert", "Knows numbers").stream_text();
    let asks = ScriptedModel::new().calls("expert", r#"{"question": "?"}"#).says("Done.");
    assert_eq!(ahead(Agent::builder(asks).tools(expert).build().unwrap()).await, 18);
}
