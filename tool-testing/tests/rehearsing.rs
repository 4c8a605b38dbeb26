//! What becomes of runs that have not ended.

use std::time::Duration;

use tool_core::layer::{CallVerdict, guard};
use tool_core::memory::{InMemoryStore, RunFilter};
use tool_core::run::Decision;
use tool_core::store::RunStore;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, RunErrorKind, ToolCall, ToolSet, tool, tools};
use tool_testing::{RehearsedOutcome, rehearse};

#[tool("Deletes an account", needs_approval)]
fn delete(name: String) {
    panic!("{name} is deleted");
}

#[tool("Finds an account")]
fn find(name: String) -> String {
    format!("{name}: there")
}

mod changed {
    use tool_core::tool;

    #[tool("Deletes an account for good", needs_approval)]
    pub(super) fn delete(name: String) {
        panic!("{name} is deleted");
    }

    pub(super) mod renamed {
        use tool_core::tool;

        #[tool("Deletes an account", needs_approval)]
        pub(in super::super) fn delete(account: String) {
            panic!("{account} is deleted");
        }
    }

    #[tool("Finds an account", needs_approval)]
    pub(super) fn find(name: String) -> String {
        panic!("{name} is found")
    }
}

fn desk(store: &InMemoryStore, tools: ToolSet, model: ScriptedModel) -> Agent {
    let layer = guard::call(|call: &ToolCall| match call.arguments.contains("root") {
        true => CallVerdict::Deny("never".into()),
        false => CallVerdict::Pass,
    });
    Agent::builder(model).name("desk").tools(tools).layer(layer).run_store(store.clone()).build().unwrap()
}

/// A store with a run that waits for an approval, one of which the approval was stored, and one whose model has failed.
async fn stored() -> InMemoryStore {
    let store = InMemoryStore::new();
    let model = || {
        let model =
            ScriptedModel::new().calls("find", r#"{"name": "root"}"#).calls("find", r#"{"name": "ada"}"#);
        model.calls("delete", r#"{"name": "ada"}"#)
    };
    let old = |model| desk(&store, tools![delete, find], model);
    old(model()).ask("waits").await.unwrap_err();
    let agent = old(model());
    let mut run = agent.ask("approved").await.unwrap_err().into_run();
    let wait = run.waits().remove(0);
    run.resolve(&wait.id, Decision::approve()).unwrap();
    store.save_run(run.id().clone().as_str(), &mut run).await.unwrap();
    let failing = old(ScriptedModel::new().calls("find", r#"{"name": "ada"}"#));
    let error = failing.ask("failed").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Model(_)));
    store
}

/// Returns what becomes of the three runs, by their questions.
async fn outcomes(
    store: &InMemoryStore,
    agents: impl IntoIterator<Item = Agent>,
) -> Vec<(String, RehearsedOutcome)> {
    let before = content(store).await;
    let rehearsal = rehearse(store, agents).await.unwrap();
    assert!(content(store).await == before, "the store has changed");
    let mut outcomes = Vec::new();
    for run in rehearsal.runs {
        let stored = store.load_run(&run.id).await.unwrap().unwrap();
        outcomes.push((stored.new_messages()[0].text().into_owned(), run.outcome));
    }
    outcomes.sort_by(|one, other| one.0.cmp(&other.0));
    outcomes
}

/// Returns all that a store has.
async fn content(store: &InMemoryStore) -> Vec<String> {
    let mut content = Vec::new();
    for mut listed in store.list_runs(&RunFilter::new()).await.unwrap() {
        listed.age = Duration::ZERO;
        let run = store.load_run(&listed.id).await.unwrap().unwrap();
        let log = store.entries(&listed.id, None, usize::MAX).await.unwrap().unwrap();
        content.push(format!("{listed:?} {} {log:?}", serde_json::to_string(&run).unwrap()));
    }
    content.sort();
    content
}

#[tokio::test]
async fn each_run_that_has_not_ended_goes_on_or_it_is_said_why_not() {
    let store = stored().await;
    let with = |tools: ToolSet| [desk(&store, tools, ScriptedModel::new())];
    let names = async |agents: Vec<Agent>| -> Vec<String> {
        let outcomes = outcomes(&store, agents).await.into_iter();
        outcomes.map(|(question, outcome)| format!("{question} {}", outcome.as_str())).collect()
    };
    let all = |outcome: &str| ["approved", "failed", "waits"].map(|run| format!("{run} {outcome}"));
    assert_eq!(names(with(tools![delete, find]).into()).await, all("goes on"));
    // An approval lapses with the definition.
    assert_eq!(
        names(with(tools![changed::delete, find]).into()).await,
        ["approved waits again", "failed goes on", "waits waits again"]
    );
    for tools in [tools![find], tools![changed::renamed::delete, find]] {
        assert_eq!(
            names(with(tools).into()).await,
            ["approved stranded", "failed goes on", "waits stranded"]
        );
    }
    assert_eq!(names(with(tools![delete, changed::find]).into()).await, all("differs"));
    assert_eq!(names(Vec::new()).await, all("stranded"));
    let unguarded =
        Agent::builder(ScriptedModel::new()).name("desk").tools(tools![delete, find]).build().unwrap();
    assert_eq!(names(vec![unguarded]).await, ["approved differs", "failed goes on", "waits differs"]);
}

#[tokio::test]
async fn a_rehearsal_is_a_text_json_and_junit() {
    let store = stored().await;
    let rehearsal = rehearse(&store, [desk(&store, tools![find], ScriptedModel::new())]).await.unwrap();
    let text = rehearsal.to_string();
    assert_eq!(text.lines().last(), Some("goes on: 1, waits again: 0, differs: 0, stranded: 2"));
    assert!(
        text.contains("of `delete` is refused: there is no tool `delete`; the tools are `find`"),
        "{text}"
    );
    let json = rehearsal.to_json();
    assert_eq!(json["runs"].as_array().unwrap().len(), 3);
    assert!(
        json["runs"]
            .as_array()
            .unwrap()
            .iter()
            .any(|run| run["outcome"] == "stranded" && run["agent"] == "desk")
    );
    let junit = rehearsal.to_junit();
    assert!(junit.contains(r#"<testsuite name="rehearsal" tests="3" failures="2">"#), "{junit}");
    assert!(rehearsal.check().unwrap_err().to_string().starts_with("2 of 3 runs cannot go on as they are:"));
    let good = rehearse(&store, [desk(&store, tools![delete, find], ScriptedModel::new())]).await.unwrap();
    good.check().unwrap();
}
