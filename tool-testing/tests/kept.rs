//! Runs as files: what is written, removed and read.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tool_core::engine::AskExt;
use tool_core::layer::Redact;
use tool_core::memory::{InMemoryStore, RunFilter};
use tool_core::run::Run;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, tool, tools};
use tool_testing::{KeptRuns, ReplayOutcome, check_runs, export_run, export_runs, replay};

/// A directory that is removed.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tool-testing-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
enum Plan {
    Gold,
    Silver,
}

/// Finds a customer.
#[tool]
fn find(
    #[param(pattern = "^C-[0-9]{4}$")] customer: String,
    plan: Plan,
    #[param(range = 1_000..=9_999)] pin: u32,
) -> String {
    let _ = (plan, pin);
    format!("{customer}: Ada Lovelace, ada@example.com")
}

/// Takes one name.
#[tool]
fn only(#[param(pattern = "^Ada$")] name: String) {
    let _ = name;
}

#[tool("Pays a bill", needs_approval)]
fn pay(name: String) {
    let _ = name;
}

fn desk(model: ScriptedModel) -> Agent {
    let day = Duration::from_secs(24 * 3_600);
    let builder = Agent::builder(model).name("desk").tools(tools![find, pay, only]);
    builder.run_store(InMemoryStore::new()).keep_finished(day).build().unwrap()
}

fn present() -> Agent {
    desk(ScriptedModel::new())
}

async fn with_runs() -> Agent {
    let find = r#"{"customer": "C-1815", "plan": "Gold", "pin": 4711}"#;
    let again = r#"{"customer": "C-1815", "plan": "Silver", "pin": 1234}"#;
    let model = ScriptedModel::new()
        .calls("find", find)
        .calls("find", again)
        .says("It is Ada Lovelace.")
        .calls("pay", r#"{"name": "Ada Lovelace"}"#);
    let agent = desk(model);
    agent.ask("Who is C-1815 (Ada Lovelace)?").user("ada@example.com").await.unwrap();
    agent.ask("Pay for Ada Lovelace").await.unwrap_err();
    agent
}

fn read(file: &Path) -> (String, Run) {
    let text = fs::read_to_string(file).unwrap();
    let run = serde_json::from_value(serde_json::from_str::<Value>(&text).unwrap()["run"].take()).unwrap();
    (text, run)
}

#[tokio::test]
async fn kept_runs_are_the_same_bytes_each_time_and_are_repeated() {
    let (agent, directory) = (with_runs().await, Directory::new("same"));
    let error = export_runs(&agent, &RunFilter::new(), &directory.0).await.unwrap_err().to_string();
    assert!(error.contains(".unredacted()") && !directory.0.exists(), "{error}");
    let files = export_runs(&agent, &RunFilter::new(), &directory.0).unredacted().await.unwrap();
    assert_eq!(files.len(), 2);
    let first: Vec<_> = files.iter().map(|file| read(file).0).collect();
    assert_eq!(export_runs(&agent, &RunFilter::new(), &directory.0).unredacted().await.unwrap(), files);
    assert_eq!(files.iter().map(|file| read(file).0).collect::<Vec<_>>(), first);
    check_runs(KeptRuns::in_dir(&directory.0), [present()]).await.unwrap();
}

#[tokio::test]
async fn what_is_redacted_is_in_no_file_and_calls_still_match() {
    let (agent, directory) = (with_runs().await, Directory::new("redacted"));
    let by_patterns = Redact::new().email_addresses().pattern("Ada Lovelace|C-[0-9]{4}|4711|Gold");
    let files = export_runs(&agent, &RunFilter::new(), &directory.0).redact(by_patterns).await.unwrap();
    for file in &files {
        let (text, run) = read(file);
        for secret in ["Ada", "ada@", "C-1815", "4711"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        assert_eq!(replay(&run, &present()).await, ReplayOutcome::Same);
    }
    let runs: Vec<_> = files.iter().map(|file| read(file).1).collect();
    let arguments = |run: &Run| -> Vec<Value> {
        let calls = run.tool_executions().iter().map(|execution| execution.call());
        calls.map(|call| serde_json::from_str(&call.arguments).unwrap()).collect()
    };
    let found = runs.iter().map(arguments).find(|found| found.len() == 2).unwrap();
    // The schema demands this form, and the same text has the same one.
    assert_eq!((&found[0]["customer"], &found[1]["customer"]), (&"C-0001".into(), &"C-0001".into()));
    assert_eq!((found[0]["pin"].is_u64(), &found[1]["pin"]), (true, &1234.into()));
    assert!(found[0]["plan"] == "Gold" || found[0]["plan"] == "Silver", "{}", found[0]);
}

#[tokio::test]
async fn a_function_redacts_all_texts_and_nothing_else() {
    let (agent, directory) = (with_runs().await, Directory::new("function"));
    let replace = |text: &str| match text {
        "Gold" | "Silver" | "C-1815" => text.to_owned(),
        text if text.parse::<u32>().is_ok() => text.to_owned(),
        _ => "x".to_owned(),
    };
    let files = export_runs(&agent, &RunFilter::new(), &directory.0).redact(replace).await.unwrap();
    for file in files {
        let (text, run) = read(&file);
        assert!(!text.contains("Ada") && !text.contains("ada@"), "{text}");
        assert_eq!(replay(&run, &present()).await, ReplayOutcome::Same);
    }
    let model = ScriptedModel::new().calls("only", r#"{"name": "Ada"}"#).says("Done.");
    let agent = desk(model);
    agent.ask("Hi").await.unwrap();
    let export = export_runs(&agent, &RunFilter::new(), &directory.0).redact(|_: &str| "?".into());
    let error = export.await.unwrap_err();
    assert!(error.to_string().starts_with("an argument of `only` cannot be redacted"), "{error}");
}

#[tokio::test]
async fn what_is_missing_or_unreadable_fails() {
    let directory = Directory::new("missing");
    let check = async || {
        let checked = check_runs(KeptRuns::in_dir(&directory.0), [present()]).await;
        checked.unwrap_err().to_string()
    };
    assert!(check().await.contains("cannot read the directory"));
    fs::create_dir_all(&directory.0).unwrap();
    assert!(check().await.starts_with("there is no kept run in"));
    fs::write(directory.0.join("a.json"), r#"{"format": 9, "run": {}}"#).unwrap();
    assert!(check().await.ends_with("is no kept run of this version: its format is 9, expected 1"));
    fs::write(directory.0.join("a.json"), r#"{"format": 1, "run": {}}"#).unwrap();
    assert!(check().await.contains("is no kept run of this version: "));
    fs::remove_file(directory.0.join("a.json")).unwrap();
    let mut driver =
        Agent::builder(ScriptedModel::new().says("Hi")).name("other").build().unwrap().ask("Hi").start();
    while driver.advance().await.unwrap() {}
    let files = export_run(driver.agent(), driver.run().clone(), &directory.0).unredacted().await.unwrap();
    assert_eq!(
        check().await.lines().last().unwrap().split(".json: ").nth(1).unwrap(),
        "there is no agent `other`; the agents are: desk"
    );
    assert!(fs::metadata(&files[0]).is_ok());
}

/// Anything can be a name of a run, of a member or of a file.
#[tokio::test]
async fn no_name_leads_out_of_the_directory_and_none_keeps_a_secret() {
    let directory = Directory::new("names");
    let file = tool_core::content::File::from_url("https://example.com/a").with_name("secret.pdf");
    let content: tool_core::content::Content =
        [tool_core::content::Part::from("Hi"), tool_core::content::Part::from(file)].into_iter().collect();
    let model = ScriptedModel::new().calls("unheard_of", r#"{"secret": {"secret": 4711}}"#).says("Done.");
    let mut driver = desk(model).ask(content).run_id("../../Escaped").start();
    while driver.advance().await.unwrap() {}
    let redact = |text: &str| text.replace("secret", "x").replace("4711", "1");
    let export = export_run(driver.agent(), driver.run().clone(), directory.0.join("a/b")).redact(redact);
    let files = export.await.unwrap();
    assert_eq!(files, [directory.0.join("a/b").join("%2e%2e%2f%2e%2e%2f%45scaped.json")]);
    let (text, run) = read(&files[0]);
    assert!(!text.contains("secret") && !text.contains("4711"), "{text}");
    assert_eq!(replay(&run, &present()).await, ReplayOutcome::Same);
}

/// Tools of an agent to which a run was handed over demand their form, too.
#[tokio::test]
async fn arguments_of_agents_behind_a_handoff_keep_their_form() {
    let directory = Directory::new("handed");
    let build = |model, next| {
        let next = Agent::builder(next).tools(tools![find]).build().unwrap();
        Agent::builder(model).name("desk").handoff_to("next", "Takes over", &next).build().unwrap()
    };
    let find = r#"{"customer": "C-1815", "plan": "Gold", "pin": 4711}"#;
    let next = ScriptedModel::new().calls("find", find).says("Done.");
    let mut driver = build(ScriptedModel::new().calls("next", "{}"), next).ask("Hi").start();
    while driver.advance().await.unwrap() {}
    let present = || build(ScriptedModel::new(), ScriptedModel::new());
    let redact = Redact::new().pattern("C-[0-9]{4}");
    let files = export_run(&present(), driver.run().clone(), &directory.0).redact(redact).await.unwrap();
    assert!(read(&files[0]).0.contains("C-0001"));
    check_runs(KeptRuns::in_dir(&directory.0), [present()]).await.unwrap();
}
