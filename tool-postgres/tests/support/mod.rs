//! What the tests that disturb a server share.

use std::env;
use std::process::Command;
use std::time::Duration;

use tool_core::memory::{RunFilter, RunStatus, RunSummary};
use tool_core::model::{AssistantMessage, ChatModel, ChatRequest, ChatResponse};
use tool_core::provider::ModelFuture;
use tool_core::{Agent, Message, ToolCall};

/// The time after which a test hangs.
const HANG: Duration = Duration::from_secs(120);

pub(crate) fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("the script `run` sets {name}"))
}

/// Calls the tool, and repeats its output.
pub(crate) struct Clerk;

impl ChatModel for Clerk {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let reply = match request.messages().last() {
            Some(Message::Tool(result)) => AssistantMessage::text(result.content.text()),
            _ => AssistantMessage::default().with_tool_calls([ToolCall::new("call", "charge", "{}")]),
        };
        Box::pin(std::future::ready(Ok(ChatResponse::new(reply))))
    }
}

/// Lets a recovery end all runs, and returns them.
pub(crate) async fn end_all(agent: &Agent) -> Vec<RunSummary> {
    let recovery = agent.recover().start();
    let ending = async {
        loop {
            let listed = agent.list_runs(&RunFilter::new()).await.unwrap();
            if listed.iter().all(|run| run.status == RunStatus::Finished) {
                break listed;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let listed = tokio::time::timeout(HANG, ending).await.expect("all runs end");
    recovery.stop();
    assert!(agent.unreadable_runs().await.unwrap().is_empty());
    listed
}

/// Runs a script for the servers, in which `as` is their user.
fn script(text: &str, argument: &str) {
    let text = format!(
        "set -e; cd \"$POSTGRES_FOLDER\"
        options=\"-k $POSTGRES_FOLDER -c listen_addresses='' -c fsync=off -c max_connections=200\"
        as() {{ if [ $(id -u) = 0 ]; then setpriv --reuid=postgres --regid=postgres --clear-groups \"$@\"; else \"$@\"; fi; }}
        control() {{ as \"$POSTGRES_BIN/pg_ctl\" -D \"$1\" -w -l \"$1/log\" \"${{@:2}}\" >/dev/null; }}
        copy() {{ as \"$POSTGRES_BIN/pg_basebackup\" -h \"$POSTGRES_FOLDER\" -U postgres -c fast --no-sync \"$@\"; }}
        {text}"
    );
    assert!(Command::new("bash").args(["-c", &text, argument]).status().unwrap().success());
}

/// Restarts the server as its user does.
pub(crate) fn restart(how: &str) {
    script(r#"control "$POSTGRES_DATA" -m "$0" -o "$options" restart"#, how);
}

/// Two further servers, of which the second confirms what the first commits. They end when this is dropped.
#[allow(dead_code)] // Not all binaries need them.
pub(crate) struct Pair(());

#[allow(dead_code)]
impl Pair {
    pub(crate) fn start() -> Self {
        let pair = Self(());
        script(
            r#"copy -D first; control first -o "$options -p 5440 -c synchronous_standby_names=*" start
            copy -p 5440 -D second -R; control second -o "$options -p 5441" start"#,
            "",
        );
        pair
    }

    /// Returns the URL of both, for which a client finds out which of them takes writes.
    pub(crate) fn url(&self) -> String {
        let host = variable("POSTGRES_FOLDER").replace('/', "%2F");
        format!("postgres://postgres@{host}:5440,{host}:5441/postgres")
    }

    pub(crate) fn url_of_second(&self) -> String {
        let host = variable("POSTGRES_FOLDER").replace('/', "%2F");
        format!("postgres://postgres@{host}:5441/postgres")
    }

    /// The first server dies, and the second takes its place.
    pub(crate) fn fail_over(&self) {
        script("control first -m immediate stop; control second promote", "");
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        script("for one in first second; do control $one -m immediate stop 2>&1 || true; done", "");
    }
}
