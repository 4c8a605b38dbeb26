//! Layers of sets of tools, alone and in an agent.

use std::future::{Future, pending, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tests::support::ways::restored;
use tool_core::layer::{
    AnswerVerdict, Audit, CallVerdict, Layer, LayerContext, LayerError, LayerFuture, LayerPhase,
    OutputVerdict, RecordedCall, Redact, guard, rewrite,
};
use tool_core::model::Usage;
use tool_core::run::{Decision, StopReason};
use tool_core::signatures::{VerdictKind, VerdictRecord};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Asker, CallToUndo, OutcomeOrigin, ToolExecution};
use tool_core::toolset::ExtraParameters;
use tool_core::{
    Agent, CancellationToken, RunError, RunErrorKind, ToolCall, ToolContext, ToolError, ToolOutput, ToolSet,
    tool, tools,
};

/// What happened, in its order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: impl ToString) {
        self.0.lock().unwrap().push(line.to_string());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[tool("Acts", undo = "take_back", attempts = 2)]
fn act(text: String, #[inject] log: &Log) -> String {
    log.add(format!("did {text}"));
    format!("a secret {text}")
}

#[tool("Takes an act back")]
fn take_back(text: String, #[inject] undone: Option<&CallToUndo>, #[inject] log: &Log) {
    let output = undone.and_then(|undone| undone.output.as_ref()).map(ToString::to_string);
    log.add(format!("took back {text}: {}", output.as_deref().unwrap_or("nothing")));
}

/// Takes nothing from its context.
#[tool("Echoes")]
fn echo(text: String) -> String {
    text
}

fn call(name: &str, text: &str) -> ToolCall {
    ToolCall::new("call_1", name, format!(r#"{{"text":"{text}"}}"#))
}

fn outcome(outcome: Result<ToolOutput, ToolError>) -> String {
    outcome.map_or_else(|error| error.to_string(), |output| output.to_string())
}

/// An agent that calls a tool, and whose answer ends its run.
fn ended(tools: ToolSet, name: &str, log: &Log) -> Agent {
    let model = ScriptedModel::new().calls(name, r#"{"text":"a"}"#).says("Done.");
    let agent = Agent::builder(model).tools(tools).context(log.clone());
    agent.layer(guard::answer(|_| AnswerVerdict::end("why"))).build().unwrap()
}

#[tokio::test]
async fn decisions_are_reported_to_all_layers_of_the_set() {
    type Add = fn(ToolSet) -> ToolSet;
    let cases: [(Add, &str, &str); 8] = [
        (|set| set.layer(rewrite::call(|_| Some(r#"{"text":"b"}"#.into())).named("l")), "rewrote", ""),
        (|set| set.layer(guard::call(|_: &ToolCall| CallVerdict::deny("no")).named("l")), "denied", ": no"),
        (
            |set| set.layer(guard::call(|_: &ToolCall| CallVerdict::end("no")).named("l")),
            "ended the run at",
            ": no",
        ),
        (|set| set.layer(guard::call(|_: &ToolCall| CallVerdict::replace("x")).named("l")), "replaced", ""),
        (
            |set| set.layer(guard::call(|_: &ToolCall| CallVerdict::NeedsApproval).named("l")),
            "demanded approval of",
            "",
        ),
        (
            |set| set.layer(guard::call(|_: &ToolCall| CallVerdict::LeaveToCaller).named("l")),
            "left to the caller",
            "",
        ),
        (|set| set.layer(guard::output(|_| OutputVerdict::replace("x")).named("l")), "replaced", ""),
        (|set| set.layer(guard::output(|_| OutputVerdict::end("no")).named("l")), "ended the run at", ": no"),
    ];
    for (add, did, why) in cases {
        for is_first in [false, true] {
            let log = Log::default();
            let audit = || {
                let log = log.clone();
                Audit::new(move |record| log.add(record))
            };
            let tools = match is_first {
                true => add(tools![echo].layer(audit())),
                false => add(tools![echo]).layer(audit()),
            };
            let execution = tools.execute(call("echo", "a"), &ToolContext::new()).await;
            assert_eq!(log.take(), [format!("`l` {did} the call `echo` (call_1){why}")]);
            let recorded: Vec<_> = execution.verdicts().iter().map(|one| &*one.layer).collect();
            assert_eq!(recorded, ["l"], "{did}");
            let agent = ended(tools, "echo", &log);
            let error = agent.ask("go").await.unwrap_err();
            assert_eq!(log.take(), [format!("`l` {did} the call `echo` (call_1_0){why}")]);
            assert_eq!(error.run().tool_executions()[0].verdicts(), execution.verdicts(), "{did}");
        }
    }
}

/// A layer of the set of a tool in whose body another tool is called.
#[tokio::test]
async fn a_call_inside_another_is_not_taken_for_it() {
    let log = Log::default();
    let audit = log.clone();
    let inner = tools![echo].layer(rewrite::call(|_| Some(r#"{"text":"b"}"#.into())));
    let inner = inner.layer(Audit::new(move |record| audit.add(record)));
    #[tool("Relays")]
    async fn relay(#[inject] context: &ToolContext, #[inject] inner: &ToolSet) -> String {
        outcome(inner.call(&ToolCall::new("inner_1", "echo", r#"{"text":"a"}"#), context).await)
    }
    let context = ToolContext::new().with(inner);
    let execution = tools![relay].execute(ToolCall::new("call_1", "relay", "{}"), &context).await;
    assert_eq!(log.take(), ["`rewrite::call` rewrote the call `echo` (inner_1)"]);
    assert_eq!((execution.call().arguments.as_str(), execution.verdicts().len()), ("{}", 0));
}

/// Charges the account of its place.
struct Charging;

impl Layer for Charging {
    fn name(&self) -> &str {
        "charging"
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        phase == LayerPhase::Judge
    }

    fn judge<'a>(&'a self, _: &'a ToolCall, at: &'a LayerContext<'a>) -> LayerFuture<'a, CallVerdict> {
        at.usage_reporter().report(Usage::new(20, 1));
        Box::pin(ready(Ok(CallVerdict::Pass)))
    }
}

#[tokio::test]
async fn requests_of_a_layer_of_a_set_are_charged_to_the_run_that_calls() {
    let tools = || tools![echo].layer(Charging);
    assert_eq!(outcome(tools().call(&call("echo", "a"), &ToolContext::new()).await), "a");
    let model = || ScriptedModel::new().calls("echo", r#"{"text": "a"}"#).says("Done.");
    let inner = Agent::builder(model()).tools(tools()).build().unwrap();
    let answer = inner.ask("go").await.unwrap();
    assert_eq!(answer.usage_by_layer(), [("charging".to_owned(), Usage::new(20, 1))]);
    // The run of an agent inside, and the one around it.
    let inner = Agent::builder(model()).tools(tools()).build().unwrap();
    let model = ScriptedModel::new().calls("helper", r#"{"question": "go"}"#).says("Done.");
    let outer = Agent::builder(model).tools(inner.as_tool("helper", "Helps")).build().unwrap();
    let answer = outer.ask("go").await.unwrap();
    assert_eq!(answer.usage(), Usage::new(20, 1));
}

/// Panics at one part, or when it learns of a decision.
struct Panics(Option<LayerPhase>);

impl Layer for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        self.0 == Some(phase)
    }

    fn rewrite<'a>(&'a self, _: &'a ToolCall, _: &'a LayerContext<'a>) -> LayerFuture<'a, Option<String>> {
        panic!("secret")
    }

    fn judge<'a>(&'a self, _: &'a ToolCall, _: &'a LayerContext<'a>) -> LayerFuture<'a, CallVerdict> {
        Box::pin(async { panic!("secret") })
    }

    fn output<'a>(
        &'a self,
        _: &'a tool_core::tool::ToolExecution,
        _: &'a LayerContext<'a>,
    ) -> LayerFuture<'a, OutputVerdict> {
        Box::pin(async { panic!("secret") })
    }

    fn decided<'a>(
        &'a self,
        _: &'a VerdictRecord,
        _: Option<&'a ToolCall>,
        _: &'a LayerContext<'a>,
    ) -> LayerFuture<'a, ()> {
        panic!("secret")
    }
}

/// Nothing passes, and nothing is executed again that has had its effect.
#[tokio::test]
async fn a_panic_of_a_layer_of_a_set_fails_the_call() {
    let before = "the call was not executed: the layer `panics` failed";
    let cases = [
        (Some(LayerPhase::Rewrite), before, &[][..]),
        (Some(LayerPhase::Judge), before, &[]),
        (Some(LayerPhase::Output), "the layer `panics` failed", &["did a", "took back a: a secret a"]),
        (None, "the layer `panics` failed", &["did a", "took back a: a secret a"]),
    ];
    for (part, expected, done) in cases {
        let log = Log::default();
        let tools = tools![act, take_back].layer(Panics(part));
        let tools = tools.layer(guard::output(|execution| match &*execution.call().name {
            "act" => OutputVerdict::replace("hidden"),
            _ => OutputVerdict::Pass,
        }));
        let error = ended(tools, "act", &log).ask("go").await.unwrap_err();
        assert_eq!(error.new_messages()[2].text(), expected, "{part:?}");
        assert_eq!(log.take(), done, "{part:?}");
    }
}

/// What layers made of an outcome changes nothing about the effect of the call.
#[tokio::test]
async fn calls_are_undone_by_what_they_did() {
    type Verdict = Result<OutputVerdict, LayerError>;
    let verdicts: [fn() -> Verdict; 5] = [
        || Ok(OutputVerdict::replace("hidden")),
        || Ok(OutputVerdict::fail(ToolError::failed("no"))),
        || Ok(OutputVerdict::fail(ToolError::denied(None))),
        || Ok(OutputVerdict::end("no")),
        || Err("down".into()),
    ];
    for verdict in verdicts {
        let log = Log::default();
        // The model must not undo by itself.
        let denies = guard::call(|call: &ToolCall| match &*call.name {
            "take_back" => CallVerdict::deny("no"),
            _ => CallVerdict::Pass,
        });
        let hides = guard::output(move |execution| match &*execution.call().name {
            "act" => verdict(),
            _ => Ok(OutputVerdict::Pass),
        });
        let moves = rewrite::call(|call| (call.name == "act").then(|| r#"{"text":"b"}"#.to_owned()));
        let tools = tools![act, take_back].layer(denies).layer(hides).layer(moves);
        let error = ended(tools.clone(), "act", &log).ask("go").await.unwrap_err();
        assert_eq!(log.take(), ["did b", "took back b: a secret b"]);
        for run in [error.run(), &restored(error.run().clone())] {
            let execution = &run.tool_executions()[0];
            let arguments = (execution.original_arguments(), &*execution.call().arguments);
            assert_eq!(arguments, (r#"{"text":"a"}"#, r#"{"text":"b"}"#));
            assert_eq!(outcome(execution.original_outcome().cloned().map_err(Clone::clone)), "a secret b");
            assert_eq!(execution.verdicts()[0].kind, VerdictKind::Rewritten);
            let written = run.messages()[1].as_assistant().unwrap();
            assert_eq!(written.tool_calls[0].arguments, r#"{"text":"b"}"#);
        }
        let model = ScriptedModel::new().calls("take_back", r#"{"text": "b"}"#).says("Done.");
        let agent = Agent::builder(model).tools(tools).context(log.clone()).build().unwrap();
        assert_eq!(agent.ask("go").await.unwrap().new_messages()[2].text(), "the call was denied: no");
        assert_eq!(log.take(), [""; 0]);
    }
}

#[tokio::test]
async fn a_call_that_a_layer_of_a_set_answers_is_not_undone() {
    let log = Log::default();
    let tools = tools![act, take_back].layer(guard::call(|_: &ToolCall| CallVerdict::replace("cached")));
    let error = ended(tools, "act", &log).ask("go").await.unwrap_err();
    let execution = &error.run().tool_executions()[0];
    assert_eq!(
        (outcome(execution.outcome().cloned().map_err(Clone::clone)), execution.origin()),
        ("cached".into(), OutcomeOrigin::NotExecuted)
    );
    assert_eq!(log.take(), [""; 0]);
}

#[tool("Reads its call")]
fn read_call(text: String, #[inject] call: &ToolCall) -> String {
    format!("{text} {}", call.arguments)
}

#[tokio::test]
async fn a_tool_takes_the_arguments_that_layers_wrote() {
    let tools = tools![read_call].layer(rewrite::call(|_| Some(r#"{"text":"b"}"#.into())));
    let output = tools.call(&call("read_call", "a"), &ToolContext::new()).await;
    assert_eq!(outcome(output), r#"b {"text":"b"}"#);
}

#[tool("Pays", needs_approval)]
fn pay(text: String, #[inject] log: &Log) -> String {
    log.add(format!("paid {text}"));
    "paid".into()
}

/// The layers of a set see the outcome of an agent once it has one.
#[tokio::test]
async fn an_agent_that_waits_has_no_outcome_to_judge() {
    let log = Log::default();
    let model = ScriptedModel::new().calls("pay", r#"{"text": "a"}"#).says("Paid.");
    let inner = Agent::builder(model).tools(tools![pay]).context(log.clone()).build().unwrap();
    let seen = log.clone();
    let watches = guard::output(move |execution| {
        seen.add(format!("saw {}", execution.output().map_or_else(String::new, ToString::to_string)));
        OutputVerdict::replace("hidden")
    });
    let tools = ToolSet::default().with(inner.as_tool("helper", "Helps")).unwrap().layer(watches);
    let model = ScriptedModel::new().calls("helper", r#"{"question": "go"}"#).says("Done.");
    let outer = Agent::builder(model).tools(tools).build().unwrap();
    let mut run = outer.ask("go").await.unwrap_err().into_run();
    assert_eq!(log.take(), [""; 0]);
    let wait = run.waits().remove(0);
    run.resolve(&wait.id, Decision::approve()).unwrap();
    let answer = outer.resume(restored(run)).await.unwrap();
    assert_eq!(log.take(), ["paid a", "saw Paid."]);
    assert_eq!(answer.new_messages()[2].text(), "hidden");
    assert_eq!(answer.inner_runs()[0].agent(), "helper");
}

/// What the layers decided before the agent was asked holds when the call is executed again, also after a restart.
#[tokio::test]
async fn layers_of_a_set_judge_a_call_of_an_agent_once() {
    let log = Log::default();
    let model = ScriptedModel::new().calls("pay", r#"{"text": "a"}"#).says("Paid.").says("Paid.");
    let inner = Agent::builder(model).tools(tools![pay]).context(log.clone()).build().unwrap();
    let (wrote, judged) = (log.clone(), log.clone());
    let writes = move |call: &ToolCall| {
        wrote.add(format!("rewrote {}", call.name));
        Some(call.arguments.replace("go", "go on"))
    };
    let judges = move |call: &ToolCall| {
        judged.add(format!("judged {} {}", call.name, call.arguments));
        CallVerdict::Pass
    };
    let tools = ToolSet::default().with(inner.as_tool("helper", "Helps")).unwrap();
    let tools = tools.layer(guard::call(judges.clone())).layer(rewrite::call(writes.clone()).named("below"));
    let tools =
        tools.prefix("x_").unwrap().layer(guard::call(judges)).layer(rewrite::call(writes).named("above"));
    let model = ScriptedModel::new().calls("x_helper", r#"{"question":"go"}"#).says("Done.").says("Done.");
    let outer = Agent::builder(model).tools(tools).build().unwrap();
    let mut run = outer.ask("go").await.unwrap_err().into_run();
    let once = [
        "rewrote x_helper",
        r#"judged x_helper {"question":"go on"}"#,
        "rewrote helper",
        r#"judged helper {"question":"go on on"}"#,
    ];
    assert_eq!(log.take(), once);
    let wait = run.waits().remove(0);
    run.resolve(&wait.id, Decision::approve()).unwrap();
    // One that another version stored without notes is judged when the agent has answered.
    let mut former = serde_json::to_value(&run).unwrap();
    let call = former["stage"]["calling"]["calls"][0].as_object_mut().unwrap();
    assert!(call.remove("notes").is_some());
    let answer = outer.resume(serde_json::from_value(former).unwrap()).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "Paid.");
    assert_eq!(log.take(), [&["paid a"], &once[..]].concat());
    let answer = outer.resume(restored(run)).await.unwrap();
    assert_eq!(log.take(), ["paid a"]);
    assert_eq!(answer.inner_runs()[0].run().messages()[0].text(), "go on on");
    let execution = &answer.tool_executions()[0];
    assert_eq!(execution.call().arguments, r#"{"question":"go on on"}"#);
    assert_eq!(execution.original_arguments(), r#"{"question":"go"}"#);
    let layers: Vec<_> = execution.verdicts().iter().map(|verdict| &*verdict.layer).collect();
    assert_eq!(layers, ["above", "below"]);
    assert!(execution.duration() > std::time::Duration::ZERO);
}

/// An error of an agent that does not wait is an outcome.
#[tokio::test]
async fn refused_arguments_of_an_agent_are_judged() {
    let inner = Agent::builder(ScriptedModel::new()).build().unwrap();
    let tools = ToolSet::default().with(inner.as_tool("helper", "Helps")).unwrap();
    let writes = rewrite::call(|_| Some(r#"{"question":["a secret"]}"#.into()));
    let tools = tools.layer(writes).layer(guard::output(|_| OutputVerdict::replace("hidden")));
    let tools = tools.prefix("x_").unwrap().layer(guard::output(|_| OutputVerdict::replace("hidden, too")));
    let model = ScriptedModel::new().calls("x_helper", r#"{"question": "go"}"#).says("Done.");
    let answer = Agent::builder(model).tools(tools).build().unwrap().ask("go").await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "hidden, too");
    let outcome = answer.tool_executions()[0].original_outcome().unwrap_err().to_string();
    assert!(outcome.starts_with("the call was not executed: the layer `rewrite::call` wrote"), "{outcome}");
}

#[tool("Books")]
async fn book(text: String, #[inject] log: &Log, #[inject] user: &Asker) -> Result<String, ToolError> {
    let hold = user.once("hold", async {
        log.add("held");
        Ok::<_, ToolError>(7)
    });
    let hold = hold.await?;
    let seat: String = user.ask("Which seat?").await?;
    log.add(format!("booked {text} {seat} {hold}"));
    Ok("booked".into())
}

/// Values and answers of a call belong to it, also behind a layer.
#[tokio::test]
async fn a_call_behind_layers_asks_and_records_values() {
    let log = Log::default();
    let seen = log.clone();
    let watches = guard::output(move |execution| {
        seen.add(format!("saw {}", execution.output().unwrap()));
        OutputVerdict::Pass
    });
    let model = ScriptedModel::new().calls("book", r#"{"text": "a"}"#).says("Done.");
    let tools = tools![book].layer(rewrite::call(|_| Some(r#"{"text":"b"}"#.into()))).layer(watches);
    let agent = Agent::builder(model).tools(tools).context(log.clone()).build().unwrap();
    let mut run = agent.ask("go").await.unwrap_err().into_run();
    let wait = run.waits().remove(0);
    run.resolve(&wait.id, Decision::answer("1A")).unwrap();
    let _ = agent.resume(restored(run)).await.unwrap();
    assert_eq!(log.take(), ["held", "booked b 1A 7", "saw booked"]);
}

/// Layers stay with the tools, under the names that those had when the layers were added.
#[tokio::test]
async fn layers_follow_the_tools_of_a_set() {
    type Change = fn(ToolSet) -> ToolSet;
    let changes: [(&str, Change); 9] = [
        ("echo", |set| set),
        ("say", |set| set.rename("echo", "say").unwrap()),
        ("x_echo", |set| set.prefix("x_").unwrap()),
        ("echo", |set| set.only(["echo"]).unwrap()),
        ("echo", |set| set.filter(|_| true).without(["act"]).unwrap()),
        ("echo", ToolSet::deferred),
        ("echo", |set| tools![pay].union(set).unwrap()),
        ("echo", |set| set.max_output_chars(1_000).no_repair().ignore_unknown_arguments()),
        ("y_say", |set| set.rename("echo", "say").unwrap().layer(Panics(None)).prefix("y_").unwrap()),
    ];
    for (name, change) in changes {
        let log = Log::default();
        let audit = log.clone();
        let set = tools![echo, act].layer(guard::call(|call: &ToolCall| match call.name == "echo" {
            true => CallVerdict::deny("no"),
            false => CallVerdict::Pass,
        }));
        let set = change(set.layer(Audit::new(move |record| audit.add(record))));
        let error = set.call(&call(name, "a"), &ToolContext::new()).await.unwrap_err();
        assert_eq!(error.to_string(), "the call was denied: no", "{name}");
        assert_eq!(log.take(), ["`guard::call` denied the call `echo` (call_1): no"], "{name}");
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Reason {
    #[allow(dead_code)]
    reason: String,
}

/// The layers below further parameters see the arguments of the tool, and undo tools get those that the model wrote.
#[tokio::test]
async fn layers_below_and_above_further_parameters_see_their_arguments() {
    let log = Log::default();
    let watch = |name: &'static str| {
        let log = log.clone();
        rewrite::call(move |call| {
            log.add(format!("{name} {}", call.arguments));
            None::<String>
        })
        .named(name)
    };
    let set = tools![echo].layer(watch("below"));
    let set = set
        .extra_parameters(ExtraParameters::new(|_: &ToolCall, _: Reason| {}))
        .unwrap()
        .layer(watch("above"));
    let arguments = r#"{"text":"a","reason":"why"}"#;
    let execution = set.execute(ToolCall::new("call_1", "echo", arguments), &ToolContext::new()).await;
    assert_eq!(log.take(), [format!("above {arguments}"), r#"below {"text":"a"}"#.to_owned()]);
    assert_eq!(execution.call().arguments, arguments);
}

#[tokio::test]
async fn a_set_that_is_layered_twice_rewrites_before_it_judges() {
    let judges = guard::call(|call: &ToolCall| match call.arguments.contains("secret") {
        true => CallVerdict::deny("a secret"),
        false => CallVerdict::Pass,
    });
    let writes = rewrite::call(|_| Some(r#"{"text":"secret"}"#.into()));
    let first = tools![echo].layer(judges);
    // Cells of both sets, and a union of both kinds of tools.
    let both = first.union(tools![read_call]).unwrap().layer(writes);
    for (name, expected) in
        [("echo", "the call was denied: a secret"), ("read_call", r#"secret {"text":"secret"}"#)]
    {
        assert_eq!(outcome(both.call(&call(name, "a"), &ToolContext::new()).await), expected);
    }
}

/// An agent refuses such a layer when it is built; a set has no such moment.
#[tokio::test]
async fn a_layer_with_a_mistake_lets_nothing_pass() {
    let tools = tools![echo].layer(Redact::new().pattern("("));
    let error = tools.call(&call("echo", "a"), &ToolContext::new()).await.unwrap_err().to_string();
    assert!(error.starts_with("the call was not executed: the layer `redact` "), "{error}");
}

static PAID: AtomicU32 = AtomicU32::new(0);

#[tool("Pays at once", return_direct = "always", attempts = 2)]
fn pay_directly(text: String) -> Result<String, ToolError> {
    PAID.fetch_add(1, Ordering::Relaxed);
    if text == "a" { Ok("a secret".into()) } else { Err(ToolError::failed("a secret")) }
}

/// What is returned directly is judged like other outputs, after the last attempt.
#[tokio::test]
async fn an_output_that_is_returned_directly_is_judged() {
    type Future1 = Pin<Box<dyn Future<Output = OutputVerdict> + Send>>;
    for (text, attempts) in [("a", 1), ("b", 2)] {
        PAID.store(0, Ordering::Relaxed);
        let hides = guard::output(|_| -> Future1 { Box::pin(ready(OutputVerdict::replace("hidden"))) });
        let model = ScriptedModel::new().calls("pay_directly", format!(r#"{{"text": "{text}"}}"#));
        let agent = Agent::builder(model).tools(tools![pay_directly].layer(hides)).build().unwrap();
        let answer = agent.ask("go").await.unwrap();
        assert_eq!((answer.text(), PAID.load(Ordering::Relaxed)), ("hidden", attempts));
    }
}

/// The end by a layer of a set ends the run that calls as a failure of the tool.
#[tokio::test]
async fn the_end_by_a_layer_of_a_set_undoes_the_call() {
    let log = Log::default();
    let tools = tools![act, take_back].layer(guard::output(|execution| match &*execution.call().name {
        "act" => OutputVerdict::end("why"),
        _ => OutputVerdict::Pass,
    }));
    let error: RunError = ended(tools, "act", &log).ask("go").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::ToolFailed { .. })), "{error}");
    assert_eq!(log.take(), ["did a", "took back a: a secret a"]);
    assert_eq!(error.run().tool_executions()[0].verdicts()[0].kind, VerdictKind::Ended);
}

/// A layer of a set is a part of the call, also of one that undoes another.
#[tokio::test(start_paused = true)]
async fn a_layer_of_a_set_that_hangs_about_an_undo_is_limited_like_the_call() {
    type Verdict = Pin<Box<dyn Future<Output = OutputVerdict> + Send>>;
    let log = Log::default();
    let hangs = guard::output(|execution| -> Verdict {
        match &*execution.call().name {
            "take_back" => Box::pin(std::future::pending()),
            _ => Box::pin(ready(OutputVerdict::Pass)),
        }
    });
    let calls = [("act", r#"{"text":"a"}"#), ("act", r#"{"text":"b"}"#)];
    let model = ScriptedModel::new().calls_all(calls).says("Done.");
    let agent = Agent::builder(model).tools(tools![act, take_back].layer(hangs)).context(log.clone());
    let agent = agent.layer(guard::answer(|_| AnswerVerdict::end("why")));
    let agent = agent.call_timeout(std::time::Duration::from_millis(50)).build().unwrap();
    let _ = agent.ask("go").await.unwrap_err();
    assert_eq!(log.take(), ["did a", "did b", "took back b: a secret b", "took back a: a secret a"]);
}

#[tool("Calls back")]
async fn call_back(#[inject] context: &ToolContext, #[inject] inner: &ToolSet, #[inject] log: &Log) {
    log.add(outcome(inner.call(&call("echo", "a"), context).await));
}

#[tool("Calls", undo = "call_back")]
fn call_out() {}

/// A call in the body of a tool that undoes another is an ordinary call.
#[tokio::test]
async fn calls_inside_an_undo_are_judged() {
    let log = Log::default();
    let inner = tools![echo].layer(guard::call(|_: &ToolCall| CallVerdict::deny("no")));
    for tools in [
        tools![call_out, call_back],
        tools![call_out, call_back].layer(guard::output(|_| OutputVerdict::Pass)),
    ] {
        let model = ScriptedModel::new().calls("call_out", "{}").says("Done.");
        let agent = Agent::builder(model).tools(tools).context(log.clone()).context(inner.clone());
        let agent = agent.layer(guard::answer(|_| AnswerVerdict::end("why"))).build().unwrap();
        agent.ask("go").await.unwrap_err();
        assert_eq!(log.take(), ["the call was denied: no"]);
    }
}

static READINGS: AtomicU32 = AtomicU32::new(0);

/// A text that counts how often it is read.
#[derive(tool_core::schemars::JsonSchema)]
struct Counted(String);

impl<'de> serde::Deserialize<'de> for Counted {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        READINGS.fetch_add(1, Ordering::SeqCst);
        String::deserialize(deserializer).map(Self)
    }
}

#[tool("Counts")]
fn count(text: Counted) -> String {
    text.0
}

/// The model's arguments, the ones that a layer of the agent wrote, and the ones that a layer of the set wrote are checked once each;
/// the tool reads the last ones.
#[tokio::test]
async fn arguments_are_checked_once_per_text() {
    let writes = |text: &'static str| rewrite::call(move |_| Some(format!(r#"{{"text":"{text}"}}"#)));
    let model = ScriptedModel::new().calls("count", r#"{"text":"a"}"#).says("Done.");
    let agent = Agent::builder(model).tools(tools![count].layer(writes("c"))).layer(writes("b"));
    let answer = agent.build().unwrap().ask("go").await.unwrap();
    assert_eq!((&*answer.new_messages()[2].text(), READINGS.swap(0, Ordering::SeqCst)), ("c", 4));
}

/// The answer of an agent is judged by a layer of its set. A run that is cancelled meanwhile does not wait for that.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_judged_does_not_keep_a_cancelled_run() {
    struct Stops(CancellationToken);

    impl Layer for Stops {
        fn name(&self) -> &str {
            "stops"
        }

        fn sees(&self, phase: LayerPhase) -> bool {
            phase == LayerPhase::Output
        }

        fn output<'a>(
            &'a self,
            _: &'a ToolExecution,
            _: &'a LayerContext<'a>,
        ) -> LayerFuture<'a, OutputVerdict> {
            self.0.cancel();
            Box::pin(pending())
        }
    }

    let cancellation = CancellationToken::new();
    let inner = Agent::builder(ScriptedModel::new().says("Yes.")).build().unwrap();
    let tools = ToolSet::default().with(inner.as_tool("helper", "Helps")).unwrap();
    let model = ScriptedModel::new().calls("helper", r#"{"question": "go"}"#);
    let outer = Agent::builder(model).tools(tools.layer(Stops(cancellation.clone()))).build().unwrap();
    let error = outer.ask("go").cancellation_token(cancellation).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)), "{error}");
    assert_eq!(error.run().inner_runs().count(), 1);
}

/// What an agent inside has done and cannot report to a layer is reported before its run goes on.
#[tokio::test]
async fn a_layer_inside_that_cannot_record_stops_the_run() {
    struct Full;

    impl Layer for Full {
        fn name(&self) -> &str {
            "full"
        }

        fn sees(&self, phase: LayerPhase) -> bool {
            phase == LayerPhase::Record
        }

        fn record<'a>(&'a self, entry: RecordedCall<'a>, _: &'a LayerContext<'a>) -> LayerFuture<'a, ()> {
            let is_finished = matches!(entry, RecordedCall::Finished(_));
            Box::pin(ready(if is_finished { Err("the disk is full".into()) } else { Ok(()) }))
        }
    }

    let model = ScriptedModel::new().calls("echo", r#"{"text": "a"}"#).says("Done.");
    let inner = Agent::builder(model).tools(tools![echo]).layer(Full).build().unwrap();
    let model = ScriptedModel::new().calls("helper", r#"{"question": "go"}"#).says("Done.");
    let outer = Agent::builder(model).tools(inner.as_tool("helper", "Helps")).build().unwrap();
    let error = outer.ask("go").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Layer { layer, .. } if layer == "full"), "{error}");
}
