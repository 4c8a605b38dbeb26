//! The served tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tool_core::content::Image;
use tool_core::signatures::ToolProgress;
use tool_core::tool::{Attempt, Progress};
use tool_core::{CancellationToken, ToolContext, ToolOutput, ToolSet, schemars, tool, tools};

#[derive(serde::Serialize, schemars::JsonSchema)]
pub(crate) struct Weather {
    celsius: f64,
    city: String,
}

/// Sums two numbers.
#[tool(pure)]
pub(crate) fn sum(a: f64, b: f64) -> f64 {
    a + b
}

#[tool("Returns the weather")]
pub(crate) fn weather(city: String) -> Result<Weather, String> {
    if city.is_empty() { Err("no city has no name".into()) } else { Ok(Weather { celsius: 22.5, city }) }
}

#[tool("Says hello")]
pub(crate) fn hello(name: Option<String>) -> String {
    format!("hello {}", name.unwrap_or_else(|| "you".into()))
}

#[tool("Draws a dot")]
pub(crate) fn dot() -> ToolOutput {
    ToolOutput::text("a dot")
        .with_part(Image::from_bytes("image/png", [1, 2, 3]))
        .with_data("for the application")
}

#[tool("Panics")]
pub(crate) fn panics() {
    panic!("the password is secret");
}

#[tool("Fails twice, then succeeds", attempts = 3)]
pub(crate) fn flaky(#[inject] attempt: &Attempt) -> Result<u32, String> {
    if attempt.number < 3 { Err("not yet".into()) } else { Ok(attempt.number) }
}

#[tool("Takes too long", timeout = "20ms")]
pub(crate) async fn slow() {
    std::future::pending::<()>().await;
}

#[tool("Counts to a number")]
pub(crate) async fn count(to: u64, #[inject] progress: &Progress) -> bool {
    for done in 1..=to {
        progress.report(ToolProgress::from("counting").completed(done, to));
        tokio::task::yield_now().await;
    }
    progress.has_listener()
}

#[tool("Reports more progress than can be sent")]
pub(crate) fn burst(#[inject] progress: &Progress) {
    for done in 0..100_000 {
        progress.report(ToolProgress::from("bursting").completed(done, 100_000));
    }
}

/// Lets a test observe and release calls.
#[derive(Clone, Default)]
pub(crate) struct Witness {
    pub(crate) started: Arc<Notify>,
    pub(crate) release: Arc<Notify>,
    pub(crate) cancelled: Arc<Notify>,
    pub(crate) running: Arc<AtomicU32>,
    pub(crate) max_running: Arc<watch::Sender<u32>>,
}

struct RunningCall<'a>(&'a Witness);

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Witness {
    fn enter(&self) -> RunningCall<'_> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.max_running.send_modify(|max| *max = running.max(*max));
        RunningCall(self)
    }

    pub(crate) fn context(&self) -> ToolContext {
        ToolContext::new().with(self.clone())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.load(Ordering::SeqCst) == 0
    }
}

/// Waits until it is released. A task that it spawns observes the cancellation.
#[tool("Waits")]
pub(crate) async fn wait(
    #[inject] witness: &Witness,
    #[inject] cancellation: &CancellationToken,
) -> &'static str {
    let _running = witness.enter();
    let (cancelled, notify) = (cancellation.clone().cancelled_owned(), Arc::clone(&witness.cancelled));
    tokio::spawn(async move {
        cancelled.await;
        notify.notify_one();
    });
    witness.started.notify_one();
    witness.release.notified().await;
    "released"
}

#[tool("Runs alone", exclusive)]
pub(crate) async fn exclusive(#[inject] witness: &Witness) {
    let _running = witness.enter();
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// Ends once so many calls have run at the same time.
#[tool("Runs alongside other calls")]
pub(crate) async fn shared(calls: u32, #[inject] witness: &Witness) {
    let _running = witness.enter();
    let _ = witness.max_running.subscribe().wait_for(|max| *max >= calls).await;
}

#[tool("Pays a bill", needs_approval)]
pub(crate) fn pay(cents: u32) -> String {
    format!("paid {cents}")
}

/// Returns the tools that need no context.
pub(crate) fn without_context() -> ToolSet {
    tools![sum, weather, hello, dot, panics, flaky, slow, count, burst]
}
