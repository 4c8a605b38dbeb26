//! Changes of a program, each of which replay names at its place, and nothing else.

use std::cell::Cell;

use tool_core::agent::AgentBuilder;
use tool_core::content::Content;
use tool_core::layer::{AnswerVerdict, CallVerdict, OutputVerdict, QuestionVerdict, guard, rewrite};
use tool_core::run::{Decision, ErrorPolicy, Run, RunLimits};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{ExternalTool, ToolErrorKind, ToolExecution};
use tool_core::{Agent, RunErrorKind, ToolCall, ToolError, ToolSet, tool, tools};
use tool_testing::{DifferenceKind, ReplayOutcome, replay};

thread_local! {
    /// The tools may be executed: while runs are kept, and not while they are repeated.
    static EXECUTES: Cell<bool> = const { Cell::new(false) };
}

fn execute() {
    assert!(EXECUTES.get(), "a tool is executed");
}

/// The tools of the desk as they were.
mod desk {
    use super::{ToolError, execute, tool};

    /// Finds an order.
    #[tool]
    pub(super) fn find_order(id: u32) -> Result<String, ToolError> {
        execute();
        if id == 7 { Ok("order 7: 50 EUR".into()) } else { Err(ToolError::failed("there is no such order")) }
    }

    /// Pays back a part of an order.
    #[tool(undo = "charge")]
    pub(super) fn refund(order: u32, cents: u32, currency: Currency) -> String {
        execute();
        let _ = currency;
        format!("refunded {cents} of order {order}")
    }

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    pub(super) enum Currency {
        Eur,
        Chf,
    }

    /// Charges what was paid back.
    #[tool]
    pub(super) fn charge(order: u32, cents: u32) {
        execute();
        let _ = (order, cents);
    }

    /// Deletes an account.
    #[tool(needs_approval)]
    pub(super) fn delete_account(name: String) {
        execute();
        let _ = name;
    }

    /// Sends a mail.
    #[tool]
    pub(super) fn send_mail(to: String, subject: Option<String>) {
        execute();
        let _ = (to, subject);
    }

    /// Stops everything.
    #[tool]
    pub(super) fn stop() -> Result<(), ToolError> {
        execute();
        Err(ToolError::fatal("stopped"))
    }
}

/// The same tools with changes.
mod changed {
    pub(super) mod renamed_parameter {
        use tool_core::tool;
        /// Finds an order.
        #[tool]
        pub(in super::super) fn find_order(order: u32) -> String {
            super::super::execute();
            order.to_string()
        }
    }
    pub(super) mod other_type {
        use tool_core::tool;
        /// Finds an order.
        #[tool]
        pub(in super::super) fn find_order(id: bool) -> String {
            super::super::execute();
            id.to_string()
        }
    }
    pub(super) mod required {
        use tool_core::tool;
        /// Sends a mail.
        #[tool]
        pub(in super::super) fn send_mail(to: String, subject: String) {
            super::super::execute();
            let _ = (to, subject);
        }
    }
    pub(super) mod range {
        use super::super::desk::Currency;
        use tool_core::tool;
        /// Pays back a part of an order.
        #[tool(undo = "charge")]
        pub(in super::super) fn refund(
            order: u32,
            #[param(range = 1..=1_000)] cents: u32,
            currency: Currency,
        ) -> String {
            super::super::execute();
            let _ = (order, currency);
            cents.to_string()
        }
    }
    pub(super) mod variant {
        use tool_core::tool;

        #[derive(serde::Deserialize, schemars::JsonSchema)]
        pub(in super::super) enum Currency {
            Chf,
            Usd,
        }

        /// Pays back a part of an order.
        #[tool(undo = "charge")]
        pub(in super::super) fn refund(order: u32, cents: u32, currency: Currency) -> String {
            super::super::execute();
            let _ = (order, currency);
            cents.to_string()
        }
    }
    pub(super) mod no_undo {
        use super::super::desk::Currency;
        use tool_core::tool;
        /// Pays back a part of an order.
        #[tool]
        pub(in super::super) fn refund(order: u32, cents: u32, currency: Currency) -> String {
            super::super::execute();
            let _ = (order, currency);
            cents.to_string()
        }
    }
    pub(super) mod other_undo {
        use super::super::desk::Currency;
        use tool_core::tool;
        /// Pays back a part of an order.
        #[tool(undo = "charge_again")]
        pub(in super::super) fn refund(order: u32, cents: u32, currency: Currency) -> String {
            super::super::execute();
            let _ = (order, currency);
            cents.to_string()
        }
        /// Charges what was paid back.
        #[tool]
        pub(in super::super) fn charge_again(order: u32, cents: u32) {
            super::super::execute();
            let _ = (order, cents);
        }
    }
    pub(super) mod approved {
        use tool_core::tool;
        /// Sends a mail.
        #[tool(needs_approval)]
        pub(in super::super) fn send_mail(to: String, subject: Option<String>) {
            super::super::execute();
            let _ = (to, subject);
        }
        /// Deletes an account.
        #[tool]
        pub(in super::super) fn delete_account(name: String) {
            super::super::execute();
            let _ = name;
        }
    }
    pub(super) mod described {
        use tool_core::tool;
        /// Sends a letter.
        #[tool]
        pub(in super::super) fn send_mail(to: String, subject: Option<String>) {
            super::super::execute();
            let _ = (to, subject);
        }
    }
    pub(super) mod returned {
        use tool_core::{ToolError, tool};
        /// Finds an order.
        #[tool(return_direct)]
        pub(in super::super) fn find_order(id: u32) -> Result<String, ToolError> {
            super::super::execute();
            Ok(id.to_string())
        }
    }
}

fn all() -> ToolSet {
    tools![desk::find_order, desk::refund, desk::delete_account, desk::send_mail, desk::stop]
}

/// Returns all tools but one, with others.
fn with(gone: &str, others: ToolSet) -> ToolSet {
    all().filter(|tool| tool.name() != gone).union(others).unwrap()
}

/// What a desk is made of. A change replaces a part.
struct Desk {
    tools: ToolSet,
    billing: ToolSet,
    billing_name: &'static str,
    billing_limits: fn(RunLimits) -> RunLimits,
    manager_name: &'static str,
    finish: fn(AgentBuilder) -> AgentBuilder,
    layers: fn(AgentBuilder) -> AgentBuilder,
    undo: ToolSet,
}

fn layers(builder: AgentBuilder) -> AgentBuilder {
    builder.layer(no_strangers()).layer(guard::output(hide).named("hides"))
}

fn hide(execution: &ToolExecution) -> OutputVerdict {
    let is_hidden = execution.call().name == "find_order" && execution.output().is_some();
    if is_hidden { OutputVerdict::replace("order 7: hidden") } else { OutputVerdict::Pass }
}

fn no_strangers() -> impl tool_core::layer::Layer {
    guard::call(|call: &ToolCall| match call.arguments.contains("stranger") {
        true => CallVerdict::Deny("not to strangers".into()),
        false => CallVerdict::Pass,
    })
    .named("no strangers")
}

impl Desk {
    fn new() -> Self {
        Self {
            tools: all(),
            billing: tools![desk::refund, desk::find_order],
            billing_name: "billing",
            billing_limits: |limits| limits,
            manager_name: "manager",
            finish: |builder| builder,
            layers,
            undo: tools![desk::charge],
        }
    }

    fn build(self, model: ScriptedModel, billing: ScriptedModel, manager: ScriptedModel) -> Agent {
        let billing =
            Agent::builder(billing).tools(self.billing).undo_tools(self.undo.clone()).build().unwrap();
        let manager = Agent::builder(manager).instructions("You decide.").build().unwrap();
        let builder = Agent::builder(model)
            .name("desk")
            .instructions("You help.")
            .tools(self.tools)
            .undo_tools(self.undo)
            .tools(billing.as_tool(self.billing_name, "Pays back").limits(self.billing_limits))
            .handoff_to(self.manager_name, "Decides", &manager);
        (self.finish)((self.layers)(builder)).build().unwrap()
    }

    /// Returns the desk of the present program, whose models nobody asks.
    fn present(self) -> Agent {
        self.build(ScriptedModel::new(), ScriptedModel::new(), ScriptedModel::new())
    }
}

/// Keeps a run with which a person decides: what is named `no` is denied.
async fn keep(question: &str, model: ScriptedModel, billing: ScriptedModel, manager: ScriptedModel) -> Run {
    EXECUTES.set(true);
    let agent = Desk::new().build(model, billing, manager);
    let mut driver = agent.ask(question).start();
    let run = loop {
        match driver.advance().await {
            Ok(true) => {}
            Ok(false) => break driver.into_run(),
            Err(error) => {
                assert!(
                    matches!(error.kind(), RunErrorKind::Waiting),
                    "{question}: {error} {:?}",
                    error.tool_executions()
                );
                let waits = driver.run().waits();
                for wait in waits {
                    if question.contains("waits") {
                        return driver.into_run();
                    }
                    let decision =
                        if question.contains("denied") { Decision::deny("no") } else { Decision::approve() };
                    driver.resolve(wait.id, decision.by("ada")).unwrap();
                }
            }
        }
    };
    EXECUTES.set(false);
    run
}

const REFUND: &str = r#"{"order": 7, "cents": 5000, "currency": "Eur"}"#;

/// The kept runs: what they are about, and the run.
async fn kept() -> Vec<(&'static str, Run)> {
    let none = ScriptedModel::new;
    let plain = none()
        .calls("find_order", r#"{"id": 7}"#)
        .calls("refund", REFUND)
        .calls("send_mail", r#"{"to": "ada"}"#)
        .says("Done.");
    let failing = none()
        .calls("find_order", r#"{"id": 8}"#)
        .calls("unheard_of", "{}")
        .calls("send_mail", "{}")
        .calls("send_mail", r#"{"to": "a stranger"}"#)
        .says("I cannot.");
    let approved = || none().calls("delete_account", r#"{"name": "ada"}"#).says("It is gone.");
    let inside = none().calls("billing", r#"{"question": "Pay it back"}"#).says("Done.");
    let billing = none().calls("find_order", r#"{"id": 7}"#).calls("refund", REFUND).says("Paid back.");
    let handed = none().calls("manager", "{}");
    let stopped = none().calls("refund", REFUND).calls("stop", "{}");
    let two = none().calls_all([("find_order", r#"{"id": 7}"#), ("find_order", r#"{"id": 8}"#)]).says("One.");
    vec![
        ("plain", keep("plain", plain, none(), none()).await),
        ("failing", keep("failing", failing, none(), none()).await),
        ("approved", keep("approved", approved(), none(), none()).await),
        ("denied", keep("denied", approved(), none(), none()).await),
        ("waits", keep("waits", approved(), none(), none()).await),
        ("inside", keep("inside", inside, billing, none()).await),
        ("handed", keep("handed", handed, none(), none().says("Yes.")).await),
        ("stopped", keep("stopped", stopped, none(), none()).await),
        ("two", keep("two", two, none(), none()).await),
    ]
}

#[tokio::test]
async fn each_change_is_named_at_its_place_and_nothing_else() {
    use DifferenceKind as Kind;
    use changed::{
        approved, no_undo, other_type, other_undo, range, renamed_parameter, required, returned, variant,
    };
    let kept = kept().await;
    EXECUTES.set(false);
    let desk = Desk::new;
    let limited = |limits: fn(AgentBuilder) -> AgentBuilder| Desk { finish: limits, ..desk() };
    let layered = |layers: fn(AgentBuilder) -> AgentBuilder| Desk { layers, ..desk() };
    type Expected = &'static [(&'static str, Kind, &'static str)];
    let changes: Vec<(&str, Desk, Expected)> = vec![
        ("nothing", desk(), &[]),
        (
            "a parameter is renamed",
            Desk { tools: with("find_order", tools![renamed_parameter::find_order]), ..desk() },
            &[
                ("plain", Kind::Arguments, "call_1_0"),
                ("failing", Kind::Arguments, "call_1_0"),
                ("two", Kind::Arguments, "call_1_0"),
            ],
        ),
        (
            "a parameter has another type",
            Desk { tools: with("find_order", tools![other_type::find_order]), ..desk() },
            &[
                ("plain", Kind::Arguments, "call_1_0"),
                ("failing", Kind::Arguments, "call_1_0"),
                ("two", Kind::Arguments, "call_1_0"),
            ],
        ),
        (
            "a parameter is required",
            Desk { tools: with("send_mail", tools![required::send_mail]), ..desk() },
            &[("plain", Kind::Arguments, "call_3_0"), ("failing", Kind::Arguments, "call_4_0")],
        ),
        (
            "a range is narrower",
            Desk { tools: with("refund", tools![range::refund]), ..desk() },
            &[("plain", Kind::Arguments, "call_2_0"), ("stopped", Kind::Arguments, "call_1_0")],
        ),
        (
            "a variant is gone",
            Desk { tools: with("refund", tools![variant::refund]), ..desk() },
            &[("plain", Kind::Arguments, "call_2_0"), ("stopped", Kind::Arguments, "call_1_0")],
        ),
        (
            "a tool is gone",
            Desk { tools: with("find_order", tools![]), ..desk() },
            &[
                ("plain", Kind::ToolGone, "call_1_0"),
                ("failing", Kind::ToolGone, "call_1_0"),
                ("two", Kind::ToolGone, "call_1_0"),
            ],
        ),
        (
            "a tool is renamed",
            Desk { tools: all().rename("send_mail", "mail").unwrap(), ..desk() },
            &[("plain", Kind::ToolGone, "call_3_0"), ("failing", Kind::ToolGone, "call_3_0")],
        ),
        (
            "an approval is demanded",
            Desk { tools: with("send_mail", tools![approved::send_mail]), ..desk() },
            &[("plain", Kind::Approval, "call_3_0")],
        ),
        (
            "no approval is demanded",
            Desk { tools: with("delete_account", tools![approved::delete_account]), ..desk() },
            &[
                ("approved", Kind::Approval, "call_1_0"),
                ("denied", Kind::Approval, "call_1_0"),
                ("waits", Kind::Approval, "call_1_0"),
            ],
        ),
        (
            "a threshold is lower",
            layered(|builder| {
                let over = |call: &ToolCall| call.arguments.contains("5000");
                layers(builder).layer(guard::needs_approval(over).named("threshold"))
            }),
            &[
                ("plain", Kind::Approval, "call_2_0"),
                ("inside", Kind::Approval, "call_1_0/call_2_0"),
                ("stopped", Kind::Approval, "call_1_0"),
            ],
        ),
        (
            "a layer that denies is gone",
            layered(|builder| builder.layer(guard::output(hide).named("hides"))),
            &[("failing", Kind::Verdict, "call_4_0")],
        ),
        (
            "a layer that hides is gone",
            layered(|builder| builder.layer(no_strangers())),
            &[
                ("plain", Kind::Verdict, "call_1_0"),
                ("inside", Kind::Verdict, "call_1_0/call_1_0"),
                ("two", Kind::Verdict, "call_1_0"),
            ],
        ),
        (
            "a layer denies more",
            layered(|builder| {
                layers(builder).layer(
                    guard::call(|call: &ToolCall| match call.name == "refund" {
                        true => CallVerdict::Deny("never".into()),
                        false => CallVerdict::Pass,
                    })
                    .named("no refunds"),
                )
            }),
            &[
                ("plain", Kind::Verdict, "call_2_0"),
                ("inside", Kind::Verdict, "call_1_0/call_2_0"),
                ("stopped", Kind::Verdict, "call_1_0"),
            ],
        ),
        (
            "a layer rewrites arguments",
            layered(|builder| {
                layers(builder).layer(rewrite::call(|call: &ToolCall| {
                    (call.name == "send_mail" && call.arguments.contains("ada"))
                        .then(|| r#"{"to": "bob"}"#.to_owned())
                }))
            }),
            &[("plain", Kind::Verdict, "call_3_0")],
        ),
        (
            "a layer replaces answers",
            layered(|builder| {
                layers(builder).layer(guard::answer(|text: &str| match text {
                    "Done." => AnswerVerdict::replace("Ready."),
                    _ => AnswerVerdict::Pass,
                }))
            }),
            &[("plain", Kind::Verdict, ""), ("inside", Kind::Verdict, "")],
        ),
        (
            "a layer refuses questions",
            layered(|builder| {
                layers(builder).layer(guard::question(|text: &Content| match text.text() == "plain" {
                    true => QuestionVerdict::answer("No."),
                    false => QuestionVerdict::Pass,
                }))
            }),
            &[("plain", Kind::Verdict, "")],
        ),
        (
            "an agent is renamed",
            Desk { billing_name: "invoices", ..desk() },
            &[("inside", Kind::ToolGone, "call_1_0")],
        ),
        (
            "a tool of an agent inside is gone",
            Desk { billing: tools![desk::refund], ..desk() },
            &[("inside", Kind::ToolGone, "call_1_0/call_1_0")],
        ),
        (
            "a limit of an agent inside is lower",
            Desk { billing_limits: |limits| limits.max_turns(2), ..desk() },
            &[("inside", Kind::Limit, "call_1_0/call_2_0")],
        ),
        (
            "a limit of turns is lower",
            limited(|builder| builder.limits(|limits| limits.max_turns(3))),
            &[("plain", Kind::Limit, "call_3_0"), ("failing", Kind::Limit, "")],
        ),
        (
            "a limit of calls is lower",
            limited(|builder| builder.limits(|limits| limits.max_calls(1))),
            &[
                ("plain", Kind::Limit, "call_2_0"),
                ("failing", Kind::Limit, "call_2_0"),
                ("inside", Kind::Limit, "call_1_0"),
                ("stopped", Kind::Limit, "call_2_0"),
                ("two", Kind::Limit, "call_1_0"),
            ],
        ),
        (
            "outputs are limited",
            limited(|builder| builder.max_output_chars(12)),
            &[("plain", Kind::Output, "call_2_0"), ("stopped", Kind::Output, "call_1_0")],
        ),
        (
            "errors end the run",
            limited(|builder| builder.error_policy(ToolErrorKind::Failed, ErrorPolicy::EndRun)),
            &[("failing", Kind::End, ""), ("two", Kind::End, "")],
        ),
        (
            "nothing is undone",
            Desk { tools: with("refund", tools![no_undo::refund]), ..desk() },
            &[("stopped", Kind::Undo, "undo_call_1_0")],
        ),
        (
            "another tool undoes",
            Desk {
                tools: with("refund", tools![other_undo::refund]),
                undo: tools![desk::charge, other_undo::charge_again],
                ..desk()
            },
            &[("stopped", Kind::Undo, "undo_call_1_0")],
        ),
        (
            "a handoff is renamed",
            Desk { manager_name: "boss", ..desk() },
            &[("handed", Kind::ToolGone, "call_1_0")],
        ),
        (
            "an output is the answer",
            Desk { tools: with("find_order", tools![returned::find_order]), ..desk() },
            &[("plain", Kind::End, "")],
        ),
        (
            "the caller executes a tool",
            Desk {
                tools: with(
                    "send_mail",
                    ToolSet::default()
                        .with(ExternalTool::new(all().get("send_mail").unwrap().definition().clone()))
                        .unwrap(),
                ),
                ..desk()
            },
            &[("plain", Kind::Wait, "call_3_0"), ("failing", Kind::Wait, "call_3_0")],
        ),
    ];
    let mut failures = Vec::new();
    for (change, desk, expected) in changes {
        let agent = desk.present();
        for (about, run) in &kept {
            let outcome = replay(run, &agent).await;
            let found = match &outcome {
                ReplayOutcome::Diverged(difference) => Some((difference.kind, &*difference.path)),
                other => {
                    let is_same =
                        if change == "nothing" { *other == ReplayOutcome::Same } else { other.is_same() };
                    assert!(is_same, "{change}, {about}: {other}");
                    None
                }
            };
            let expected =
                expected.iter().find(|(run, ..)| run == about).map(|(_, kind, path)| (*kind, *path));
            if found != expected {
                failures.push(format!("{change}, {about}: {outcome}, expected {expected:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// What a model would read otherwise is noted, and the run is compared to its end.
#[tokio::test]
async fn what_the_model_reads_is_noted() {
    let kept = kept().await;
    let inside = &kept.iter().find(|(about, _)| *about == "inside").unwrap().1;
    let noted = async |desk: Desk| replay(inside, &desk.present()).await.to_string();
    let desk = Desk::new;
    let instructed = Desk { finish: |builder| builder.instructions("You help well."), ..desk() };
    assert_eq!(noted(instructed).await, "the same, but the instructions are others");
    let described = with("send_mail", tools![changed::described::send_mail]);
    assert_eq!(
        noted(Desk { tools: described, ..desk() }).await,
        "the same, but the tool `send_mail` has another definition"
    );
    let fewer = Desk { tools: with("send_mail", tools![]), ..desk() };
    assert_eq!(noted(fewer).await, "the same, but the tool `send_mail` is not offered any more");
    let more = Desk { billing: tools![desk::refund, desk::find_order, desk::stop], ..desk() };
    assert_eq!(noted(more).await, "the same, but the tool `stop` of the agent at call_1_0 is new");
    let mut older = serde_json::to_value(inside).unwrap();
    older["history"].as_object_mut().unwrap().remove("offered");
    let older: Run = serde_json::from_value(older).unwrap();
    let outcome = replay(&older, &desk().present()).await.to_string();
    assert_eq!(outcome, "the same, but the record does not say what the model was offered");
}
