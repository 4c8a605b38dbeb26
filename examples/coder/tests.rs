//! The coding agent with a scripted model, also one that wants out of its directory.

use std::fs;
use std::io::{BufReader, Cursor, Read, Write, stdin, stdout};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tool_core::run::{Decision, Run};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, RunErrorKind, SqliteStore};

use crate::coder;
use crate::files::Project;

/// A project in a directory that is removed.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("coder-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("project/src")).unwrap();
        fs::write(root.join("project/src/lib.rs"), "fn one() {}\nfn two() {}\n").unwrap();
        fs::write(root.join("secret"), "the key").unwrap();
        Self(root)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.join("project").join(path)
    }

    async fn agent(&self, model: ScriptedModel) -> Agent {
        let store = SqliteStore::open(self.0.join("coder.db")).await.unwrap();
        let agent = coder(model, Project::open(&self.path(".")).unwrap(), &store);
        agent.run_lease(Duration::from_millis(300)).build().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Approves all that waits. Returns the results that the model has read.
async fn results(agent: &Agent) -> Vec<String> {
    let mut run: Run = match agent.ask("Go").await {
        Ok(answer) => return texts(answer.new_messages()),
        Err(error) => error.into_run(),
    };
    loop {
        run.resolve_all(|_| Decision::approve()).unwrap();
        match agent.resume(run).await {
            Ok(answer) => return texts(answer.new_messages()),
            Err(error) if matches!(error.kind(), RunErrorKind::Waiting) => run = error.into_run(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn texts(messages: &[tool_core::Message]) -> Vec<String> {
    let results = messages.iter().filter(|message| matches!(message, tool_core::Message::Tool(_)));
    results.map(|message| message.text().into_owned()).collect()
}

#[tokio::test]
async fn it_lists_reads_searches_edits_and_runs() {
    let folder = Folder::new("work");
    let model = ScriptedModel::new()
        .calls("list", r#"{"folder": "src"}"#)
        .calls("read", r#"{"path": "src/lib.rs"}"#)
        .calls("search", r#"{"text": "two"}"#)
        .calls("edit", r#"{"path": "src/lib.rs", "old": "fn two", "new": "fn three"}"#)
        .calls("edit", r#"{"path": "src/new.rs", "old": "", "new": "mod a;"}"#)
        .calls("edit", r#"{"path": "src/lib.rs", "old": "fn", "new": "gn"}"#)
        .calls("run", r#"{"command": "cat src/new.rs; ls nothing"}"#)
        .says("Done.");
    let results = results(&folder.agent(model).await).await;
    let expected = [
        "src/lib.rs",
        "fn one() {}\nfn two() {}\n",
        "src/lib.rs:2: fn two() {}",
        "`src/lib.rs` is written",
        "`src/new.rs` is written",
        "the text occurs 2 times in `src/lib.rs`",
    ];
    assert_eq!(results[..6], expected);
    assert!(results[6].starts_with("exit status: 2\nmod a;"), "{}", results[6]);
    assert_eq!(fs::read_to_string(folder.path("src/lib.rs")).unwrap(), "fn one() {}\nfn three() {}\n");
}

#[tokio::test]
async fn no_path_leads_out_of_the_project() {
    let folder = Folder::new("out");
    symlink("../secret", folder.path("link")).unwrap();
    symlink("..", folder.path("up")).unwrap();
    symlink(folder.0.join("created"), folder.path("dangling")).unwrap();
    let absolute = folder.0.join("secret").display().to_string();
    let paths =
        ["../secret", "src/../../secret", "link", "up/secret", "./up/../secret", &absolute, "/etc/passwd"];
    let mut model = ScriptedModel::new();
    for path in paths {
        model = model.calls("read", serde_json::json!({ "path": path }).to_string());
        for old in ["the key", ""] {
            let arguments = serde_json::json!({ "path": path, "old": old, "new": "mine" });
            model = model.calls("edit", arguments.to_string());
        }
    }
    for path in ["dangling", "up/created", "../created"] {
        let arguments = serde_json::json!({ "path": path, "old": "", "new": "mine" });
        model = model.calls("edit", arguments.to_string());
    }
    model = model.calls("list", r#"{"folder": "up"}"#).calls("list", r#"{"folder": ".."}"#);
    model = model.calls("search", r#"{"text": "the key"}"#).says("I cannot.");
    let results = results(&folder.agent(model).await).await;
    assert_eq!(results.last().map(String::as_str), Some("nothing was found"));
    for result in &results[..results.len() - 1] {
        assert!(result.contains("cannot be opened in the project") || result.contains("exists"), "{result}");
    }
    assert_eq!(fs::read_to_string(folder.0.join("secret")).unwrap(), "the key");
    assert!(!folder.0.join("created").exists());
}

/// The environment variable with the folder of a process that will be killed.
const FOLDER: &str = "CODER_KILLED";

#[tokio::test]
#[ignore = "needs a folder: the other test starts it in a process"]
async fn process_that_is_killed() {
    let folder = Folder(std::env::var_os(FOLDER).unwrap().into());
    let model = ScriptedModel::new()
        .calls("edit", r#"{"path": "src/lib.rs", "old": "fn one() {}\n", "new": ""}"#)
        .calls("run", r#"{"command": "cat src/lib.rs"}"#);
    let chat = tool_cli::Chat::new(folder.agent(model).await);
    chat.run_with(BufReader::new(stdin()), stdout()).await.unwrap();
}

/// A process that is killed while it waits for an approval leaves a run with which the next one goes on.
#[tokio::test]
async fn it_goes_on_after_it_was_killed() {
    let folder = Folder::new("killed");
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "tests::process_that_is_killed", "--nocapture"])
        .env(FOLDER, &folder.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    process.stdin.as_mut().unwrap().write_all(b"Shorten the file\ny\n").unwrap();
    let (mut shown, mut bytes) = (Vec::new(), BufReader::new(process.stdout.take().unwrap()).bytes());
    while String::from_utf8_lossy(&shown).matches("[y]es").count() < 2 {
        shown.push(bytes.next().unwrap().unwrap());
    }
    // Kills without a chance to clean up.
    process.kill().unwrap();
    process.wait().unwrap();

    let model = ScriptedModel::new().says("It has one function.");
    let mut output = Cursor::new(Vec::new());
    let chat = tool_cli::Chat::new(folder.agent(model.clone()).await);
    chat.run_with(Cursor::new("y\n"), &mut output).await.unwrap();
    let shown = String::from_utf8(output.into_inner()).unwrap();
    assert!(shown.contains("Execute run") && shown.contains("It has one function."), "{shown}");
    let [edited, ran] = &texts(&model.requests()[0])[..] else { panic!("{shown}") };
    assert_eq!([&**edited, &**ran], ["`src/lib.rs` is written", "fn two() {}\n"]);
}
