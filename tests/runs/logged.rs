//! The events that are read from the log of a stored run are those that its driver has emitted, over random trees of runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::BoxedStrategy;
use serde_json::{Value, json};
use tests::support::sampling::cases;
use tool_core::agent::{AgentBuilder, EventRecord};
use tool_core::layer::{
    AnswerVerdict, Layer, LayerContext, LayerFuture, LayerPhase, OutputVerdict, QuestionVerdict, guard,
};
use tool_core::memory::InMemoryStore;
use tool_core::model::{AssistantMessage, ChatResponse, ReturnDirect, ToolDefinition};
use tool_core::run::{Decision, Wait, WaitReason};
use tool_core::store::{RunEvents, RunReader};
use tool_core::testing::ScriptedModel;
use tool_core::tool::ExternalTool;
use tool_core::{Agent, Event, FunctionTool, RunErrorKind, ToolCall, ToolContext, ToolError, ToolOutput};

/// The tools of each agent. The last one of the outer agent asks the inner one.
const TOOLS: [&str; 11] =
    ["plain", "tried", "asked", "remote", "direct", "asks", "booked", "unknown", "fatal", "careful", "inner"];

/// The position of the tool that hands the run over, if the agent has it.
const HANDOFF: usize = 7;

/// What one reply does.
#[derive(Clone, Debug)]
enum Reply {
    Calls(Vec<usize>),
    Text,
    Failure,
}

#[derive(Clone, Debug)]
struct Case {
    outer: Vec<Reply>,
    inner: Vec<Reply>,
    /// What layers do, a bit each: to questions, outputs and answers, of the outer agent and of the inner one.
    layers: u8,
    /// How what waits is decided, in this order.
    decisions: Vec<u8>,
    /// After which stop the user says something.
    says: usize,
    hands_off: bool,
}

fn replies(tools: usize, most: usize) -> BoxedStrategy<Vec<Reply>> {
    let calls = prop::collection::vec(0..tools, 1..4).prop_map(Reply::Calls);
    prop::collection::vec(prop_oneof![6 => calls, 1 => Just(Reply::Text), 1 => Just(Reply::Failure)], 1..most)
        .boxed()
}

fn any_case() -> impl Strategy<Value = Case> {
    let decisions = prop::collection::vec(0..4_u8, 8);
    let own = (replies(TOOLS.len(), 5), replies(TOOLS.len() - 1, 4));
    (own, 0..64_u8, decisions, 0..4_usize, any::<bool>()).prop_map(
        |((outer, inner), layers, decisions, says, hands_off)| Case {
            outer,
            inner,
            layers,
            decisions,
            says,
            hands_off,
        },
    )
}

/// Plays the replies again and again.
fn model(replies: &[Reply], prefix: &str) -> ScriptedModel {
    let (mut model, mut calls) = (ScriptedModel::new(), 0);
    for reply in replies.iter().cycle().take(24) {
        model = match reply {
            Reply::Text => model.says("Done."),
            Reply::Failure => model.fails("the line is dead"),
            Reply::Calls(tools) => {
                let call = |tool: &usize| {
                    calls += 1;
                    ToolCall::new(format!("{prefix}{calls}"), TOOLS[*tool], r#"{"question": "go"}"#)
                };
                // Which of two handoffs is refused is known only once both have finished.
                let tools = tools
                    .iter()
                    .enumerate()
                    .filter(|(at, tool)| **tool != HANDOFF || !tools[..*at].contains(tool));
                let calls: Vec<_> = tools.map(|(_, tool)| tool).map(call).collect();
                let message = AssistantMessage::text("Well.").with_tool_calls(calls);
                model.replies(ChatResponse::new(message))
            }
        };
    }
    model
}

/// Ignores its arguments.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Any {
    #[serde(default)]
    #[allow(dead_code, reason = "it is only read")]
    question: Option<String>,
}

fn with_tools(builder: AgentBuilder) -> AgentBuilder {
    let attempts = Arc::new(AtomicU32::new(0));
    let flaky = move |_: Any| match attempts.fetch_add(1, Ordering::SeqCst) % 3 {
        0 => Err(ToolError::failed("a secret: not yet")),
        _ => Ok(ToolOutput::text("at last")),
    };
    let asks = |_: Any, context: ToolContext| async move {
        context.asker().ask::<String>("Who?").await.map_err(ToolError::from)
    };
    builder
        .tools(FunctionTool::new("plain", |_: Any| "a secret"))
        .tools(FunctionTool::new("tried", flaky).attempts(2))
        .tools(FunctionTool::new("asked", |_: Any| "approved").needs_approval())
        .tools(ExternalTool::new(ToolDefinition::new("remote")))
        .tools(FunctionTool::new("direct", |_: Any| "a secret answer").return_direct(ReturnDirect::IfAll))
        .tools(FunctionTool::new("asks", asks))
        .tools(FunctionTool::new("booked", |_: Any| "booked").undo("unbook"))
        .tools(FunctionTool::new("fatal", |_: Any| Err::<String, _>(ToolError::fatal("it is over"))))
        .tools(FunctionTool::new("careful", |_: Any| "carefully").at_most_once().needs_approval())
        .undo_tools(
            tool_core::ToolSet::default().with(FunctionTool::new("unbook", |_: Any| "unbooked")).unwrap(),
        )
}

fn with_layers(mut builder: AgentBuilder, layers: u8) -> AgentBuilder {
    let hide = |text: &str| text.contains("secret").then(|| text.replace("secret", "star"));
    if layers & 1 > 0 {
        builder = builder.layer(guard::question(|question| {
            QuestionVerdict::Rewrite(format!("{}!", question.text().trim_end_matches('!')).into())
        }));
    }
    if layers & 2 > 0 {
        builder = builder.layer(guard::output(move |execution| {
            let replaced = match execution.outcome() {
                Ok(output) => hide(&output.to_string()).map(|text| Ok(ToolOutput::text(text))),
                Err(error) => hide(&error.to_string()).map(|text| Err(ToolError::failed(text))),
            };
            replaced.map_or(OutputVerdict::Pass, OutputVerdict::Replace)
        }));
    }
    if layers & 4 > 0 {
        builder = builder
            .layer(guard::answer(move |text| hide(text).map_or(AnswerVerdict::Pass, AnswerVerdict::Replace)));
    }
    builder
}

type Seen = Arc<Mutex<Vec<EventRecord>>>;

fn agent(case: &Case, store: &InMemoryStore, seen: &Seen) -> Agent {
    let inner = with_tools(Agent::builder(model(&case.inner, "i")));
    let inner = with_layers(inner, case.layers >> 3).build().unwrap();
    let last = with_tools(Agent::builder(model(&case.inner, "h"))).build().unwrap();
    let outer = with_tools(Agent::builder(model(&case.outer, "o")));
    let outer = with_layers(outer, case.layers & 7).tools(inner.as_tool("inner", "Goes on"));
    let outer = if case.hands_off { outer.handoff_to("unknown", "Goes on", &last) } else { outer };
    let seen = Arc::clone(seen);
    let outer = outer.on_event(move |event| seen.lock().unwrap().push(event.clone().at(0)));
    outer.run_store(store.clone()).keep_finished(Duration::from_secs(3_600)).build().unwrap()
}

fn decision(wait: &Wait, choice: u8) -> Decision {
    match (&wait.reason, choice) {
        (WaitReason::Approval(_), 0) => Decision::deny("no"),
        (WaitReason::Approval(_), 1) => Decision::approve_with(r#"{"question": "edited"}"#),
        (WaitReason::Approval(_), _) => Decision::approve(),
        (WaitReason::Answer(_), 0) => Decision::decline(),
        (WaitReason::Answer(_), _) => Decision::answer("Ada"),
        _ => Decision::result(Ok(ToolOutput::text("a secret result"))),
    }
}

/// Reads all that is new.
async fn read(reader: &mut RunReader, store: &InMemoryStore, all: &mut Vec<EventRecord>) {
    while let Some(news) = reader.read(store).await.unwrap() {
        all.extend(news.events);
        if news.is_end {
            return;
        }
    }
}

/// Events about calls of one turn come in any order, but for those of one call.
fn normalized(events: &[EventRecord], with_rests: bool) -> BTreeMap<String, Vec<Vec<Value>>> {
    let mut by_path: BTreeMap<String, Vec<Vec<Value>>> = BTreeMap::new();
    let mut is_waiting = false;
    for record in events {
        let (mut path, mut event) = (String::new(), &record.event);
        while let Event::Agent { call_id, event: inner, .. } = event {
            path = format!("{path}/{call_id}");
            event = inner;
        }
        let mut json = serde_json::to_value(event.clone().at(0)).unwrap();
        // Known only once the time of the run has passed.
        for wait in json.get_mut("waits").and_then(Value::as_array_mut).into_iter().flatten() {
            wait["since"].take();
        }
        let about = match event {
            Event::Text(_)
            | Event::Reasoning(_)
            | Event::Refusal(_)
            | Event::CallAnnounced { .. }
            | Event::Arguments { .. }
            | Event::CallProgress { .. } => continue,
            Event::Waiting(_) | Event::Failed(_) if !with_rests => continue,
            // That it waits is no further event.
            Event::Failed(_) if is_waiting => continue,
            // A run inside has no end of its own in the log.
            Event::Waiting(_) | Event::Failed(_) | Event::Done(_) if !path.is_empty() => continue,
            Event::CallStarted(call) => call.id.clone(),
            Event::CallRetried(execution) | Event::CallFinished(execution) => execution.call().id.clone(),
            Event::CallDecided(decision) => decision.call_id.clone(),
            _ => String::new(),
        };
        is_waiting = matches!(event, Event::Waiting(_));
        let parts = by_path.entry(path).or_default();
        match (about.is_empty(), parts.last_mut()) {
            (false, Some(part)) if part[0]["about"] != "" => {
                part.push(json!({ "about": about, "event": json }))
            }
            _ => parts.push(vec![json!({ "about": about, "event": json })]),
        }
    }
    for part in by_path.values_mut().flatten() {
        part.sort_by_key(|event| event["about"].to_string());
        // A call that is saved as begun, because it may be, is perhaps not begun if the run ends at once.
        let is_cut_off = |event: &Value| {
            ["outcome_unknown", "interrupted"]
                .contains(&event["outcome"]["Err"]["kind"].as_str().unwrap_or_default())
        };
        let cut_off: Vec<_> =
            part.iter().filter(|one| is_cut_off(&one["event"])).map(|one| one["about"].clone()).collect();
        part.retain(|one| one["event"]["type"] != "call_started" || !cut_off.contains(&one["about"]));
    }
    by_path.values_mut().for_each(|parts| parts.retain(|part| !part.is_empty()));
    by_path
}

fn check(case: &Case) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (store, seen) = (InMemoryStore::new(), Seen::default());
        let agent = agent(case, &store, &seen);
        let run = agent.ask("Go").start().into_run();
        let id = run.id().to_string();
        let mut reader = RunReader::new(&*id);
        let mut live = Vec::new();
        let mut driving = agent.resume(run).await;
        for (stop, choice) in case.decisions.iter().cycle().take(24).enumerate() {
            read(&mut reader, &store, &mut live).await;
            let Err(error) = driving else { break };
            match error.kind() {
                RunErrorKind::Waiting => {
                    if stop == case.says {
                        agent.say(&id, "Faster").await.unwrap();
                    }
                    let waits = error.run().waits();
                    let decisions = waits
                        .iter()
                        .enumerate()
                        .map(|(at, wait)| (wait.id.clone(), decision(wait, (choice + at as u8) % 4)));
                    let decided = agent.decide_all(&id, decisions.collect::<Vec<_>>()).await.unwrap();
                    driving = decided.resume().unwrap().await;
                }
                RunErrorKind::Model(_) => {
                    let stored = agent.stored_run(&id).await.unwrap().unwrap();
                    driving = agent.resume(stored.run).await;
                }
                _ => break,
            }
        }
        read(&mut reader, &store, &mut live).await;
        let (mut late, mut again) = (Vec::new(), RunReader::new(&*id));
        read(&mut again, &store, &mut late).await;
        let emitted = seen.lock().unwrap().clone();
        let what = |events: &[EventRecord]| {
            events.iter().map(|record| format!("{:?}", record.event)).collect::<Vec<_>>().join("\n")
        };
        let all = format!("{case:?}\nemitted:\n{}\nread:\n{}", what(&emitted), what(&late));
        pretty_assertions(&normalized(&emitted, false), &normalized(&late, false), &all);
        pretty_assertions(&normalized(&emitted, true), &normalized(&live, true), &all);
        assert!(late.is_sorted_by_key(|record| record.position), "{all}");
        let hidden = case.layers & 0b11_0011 == 0b1_0010;
        let text = serde_json::to_string(&late).unwrap();
        assert!(!hidden || !text.contains("secret"), "{all}");
    });
}

fn pretty_assertions(
    emitted: &BTreeMap<String, Vec<Vec<Value>>>,
    read: &BTreeMap<String, Vec<Vec<Value>>>,
    all: &str,
) {
    for (path, parts) in emitted {
        let read = read.get(path).cloned().unwrap_or_default();
        for (at, (one, other)) in parts.iter().zip(&read).enumerate() {
            assert_eq!(one, other, "part {at} of the run `{path}`\n{all}");
        }
        assert_eq!(parts.len(), read.len(), "the run `{path}`\n{all}");
    }
    assert_eq!(emitted.len(), read.len(), "{all}");
}

proptest! {
    #![proptest_config(cases(48, 2_500))]

    #[test]
    fn the_log_has_the_events_that_the_driver_emits(case in any_case()) {
        check(&case);
    }
}

#[test]
fn an_answer_that_a_tool_has_returned_is_shown_once_when_its_agent_is_undone() {
    let inner = vec![Reply::Calls(vec![6]), Reply::Calls(vec![4])];
    let outer = vec![Reply::Calls(vec![10])];
    check(&Case { outer, inner, layers: 0b10_0000, decisions: vec![2; 8], says: 3, hands_off: false });
}

#[test]
fn the_error_of_a_last_attempt_is_read_as_its_layer_has_left_it() {
    let (outer, inner) = (vec![Reply::Calls(vec![1, 1, 1])], vec![Reply::Calls(vec![0])]);
    check(&Case { outer, inner, layers: 0b1_0110, decisions: vec![0; 8], says: 0, hands_off: false });
}

/// Cannot judge.
struct Fails;

impl Layer for Fails {
    fn name(&self) -> &str {
        "fails"
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        phase == LayerPhase::Answer
    }

    fn answer<'a>(&'a self, _: &'a str, _: &'a LayerContext<'a>) -> LayerFuture<'a, AnswerVerdict> {
        Box::pin(async { Err("the line is dead".into()) })
    }
}

#[tokio::test]
async fn an_answer_that_no_layer_has_judged_is_shown_to_nobody() {
    let model = ScriptedModel::new().calls("direct", "{}");
    let agent = with_tools(Agent::builder(model)).layer(Fails).build().unwrap();
    let mut run = agent.ask("Go").await.unwrap_err().into_run();
    let mut events = RunEvents::of(&mut run);
    run.engine().cancel_unjudged();
    let text = serde_json::to_string(
        &events.take(&mut run).into_iter().map(|event| event.at(0)).collect::<Vec<_>>(),
    )
    .unwrap();
    assert!(text.contains("call_finished") && !text.contains("secret"), "{text}");
    assert!(!run.tool_executions()[0].output().unwrap().to_string().contains("secret"));
}
