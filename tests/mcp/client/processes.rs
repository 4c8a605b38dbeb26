//! The processes that a server starts end with it.

#![cfg(unix)]

use tool_mcp::McpServer;

use super::support::wait_until;
use super::transports::{PROGRAM, read_pid};

/// Returns `true` unless the process has ended. A zombie has; only its parent can remove it.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

/// Wrappers such as `npx` start the server as a child of theirs, and servers start helpers.
#[tokio::test]
async fn no_descendant_survives() {
    let directory = std::env::temp_dir().join(format!("mcp-groups-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    // The helpers do not read the input; the second one ignores the request to terminate as well.
    let helpers = [("patient", "sleep 600"), ("deaf", "trap '' TERM; while :; do sleep 1; done")];
    for (name, helper) in helpers {
        let script = format!(
            "sh -c \"echo \\$\\$ > {0}/{name}; {helper}\" > /dev/null 2>&1 & {PROGRAM} mcp-served; exit 0",
            directory.display()
        );
        let tools = McpServer::stdio("sh").args(["-c", &script]).connect().await.unwrap();
        let pid = read_pid(&directory.join(name)).await;
        assert!(is_alive(&pid), "{name}");
        drop(tools);
        wait_until("the helper has ended", async || !is_alive(&pid)).await;
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

/// The runtime may shut down before the tools are dropped, or at the same time.
#[test]
fn no_descendant_survives_the_runtime() {
    let file = std::env::temp_dir().join(format!("mcp-runtime-{}", std::process::id()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let script = format!("sleep 600 & echo $! > {}; {PROGRAM} mcp-served; exec sleep 600", file.display());
    let (tools, pid) = runtime.block_on(async {
        let tools = McpServer::stdio("sh").args(["-c", &script]).connect().await.unwrap();
        (tools, read_pid(&file).await)
    });
    drop(runtime);
    let waiting = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    waiting.block_on(wait_until("the helper has ended", async || !is_alive(&pid)));
    drop(tools);
    std::fs::remove_file(&file).unwrap();
}
