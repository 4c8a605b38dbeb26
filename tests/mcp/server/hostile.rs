//! Tools that panic when they are cancelled, and runtimes that shut down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::{self, Runtime};
use tokio::sync::Notify;
use tool_core::{ToolCall, ToolContext, ToolSet, tool, tools};
use tool_mcp::McpServer;
use tool_mcp::server::Server;

use super::tools::sum;

const SOON: Duration = Duration::from_secs(120);

struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        panic!("a panic in `drop`");
    }
}

static CANCELLABLE: Notify = Notify::const_new();

#[tool("Waits, and panics when it is cancelled")]
async fn wait_forever() {
    let _guard = PanicOnDrop;
    CANCELLABLE.notify_one();
    std::future::pending().await
}

static STARTED: Notify = Notify::const_new();
static RELEASED: AtomicBool = AtomicBool::new(false);

#[tool("Blocks", blocking)]
fn block() {
    STARTED.notify_one();
    while !RELEASED.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

async fn connect(url: String, timeout: Duration) -> ToolSet {
    McpServer::http(url).trusted().timeout(timeout).connect().await.unwrap().tools().await.unwrap()
}

async fn call(set: &ToolSet, name: &str, arguments: &str) -> Result<String, String> {
    let call = ToolCall::new("call_1", name, arguments);
    let output =
        tokio::time::timeout(SOON, set.call(&call, &ToolContext::new())).await.expect("the call hangs");
    output.map(|output| output.to_string()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_panic_of_a_cancelled_tool_affects_no_other_call() {
    let server = Server::new(tools![sum, wait_forever]).spawn("127.0.0.1:0").await.unwrap();
    let set = connect(server.url(), SOON).await;
    let waiting = tokio::spawn({
        let set = set.clone();
        async move {
            let call = ToolCall::new("call_1", "wait_forever", "{}");
            set.call(&call, &ToolContext::new()).await
        }
    });
    tokio::time::timeout(SOON, CANCELLABLE.notified()).await.unwrap();
    waiting.abort();
    assert_eq!(call(&set, "sum", r#"{"a": 1, "b": 2}"#).await.unwrap(), "3.0");
    drop(set);
    tokio::time::timeout(SOON, server.stop()).await.expect("the server does not stop").unwrap();
}

#[test]
fn a_runtime_that_shuts_down_during_a_call_leaves_no_caller_waiting() {
    let serving = Runtime::new().unwrap();
    let calling = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = serving.block_on(Server::new(tools![block]).spawn("127.0.0.1:0")).unwrap();
    calling.block_on(async {
        let set = connect(server.url(), SOON / 2).await;
        let calling = tokio::spawn(async move { call(&set, "block", "{}").await });
        tokio::time::timeout(SOON, STARTED.notified()).await.unwrap();
        serving.shutdown_background();
        // Either the server still reports that the tool was interrupted, or the client tries to resume the response until the
        // timeout of the call, which passes at once, or it learns first that the server is gone.
        tokio::time::pause();
        let error = calling.await.unwrap().unwrap_err();
        let expected = [
            "did not respond to the call of `block`",
            "the tool was interrupted",
            "disconnected while its tool",
        ];
        assert!(expected.iter().any(|expected| error.contains(expected)), "{error}");
        drop(server);
    });
    RELEASED.store(true, Ordering::SeqCst);
}
