//! The tools that are served.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tool_core::{
    Attempt, CancellationToken, Image, Progress, ToolContext, ToolOutput, ToolProgress, ToolSet, schemars,
    tool, tools,
};

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

#[tool("Tells the weather")]
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

#[tool("Fails twice, then not", attempts = 3)]
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

#[tool("Tells more of its progress than anybody can hear")]
pub(crate) fn burst(#[inject] progress: &Progress) {
    for done in 0..100_000 {
        progress.report(ToolProgress::from("bursting").completed(done, 100_000));
    }
}

/// What a test sees of a call under way.
#[derive(Clone, Default)]
pub(crate) struct Witness {
    pub(crate) began: Arc<Notify>,
    pub(crate) go: Arc<Notify>,
    pub(crate) cancelled: Arc<Notify>,
    pub(crate) under_way: Arc<AtomicU32>,
    pub(crate) most: Arc<AtomicU32>,
}

struct UnderWay<'a>(&'a Witness);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Witness {
    fn enter(&self) -> UnderWay<'_> {
        let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        UnderWay(self)
    }

    pub(crate) fn context(&self) -> ToolContext {
        ToolContext::new().with(self.clone())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) == 0
    }
}

/// Waits until it is let go. What it has started elsewhere sees that nobody waits any more.
#[tool("Waits")]
pub(crate) async fn wait(
    #[inject] witness: &Witness,
    #[inject] cancellation: &CancellationToken,
) -> &'static str {
    let _under_way = witness.enter();
    let (cancelled, told) = (cancellation.cancelled(), Arc::clone(&witness.cancelled));
    tokio::spawn(async move {
        cancelled.await;
        told.notify_one();
    });
    witness.began.notify_one();
    witness.go.notified().await;
    "it was let go"
}

#[tool("Is called alone", exclusive)]
pub(crate) async fn alone(#[inject] witness: &Witness) {
    let _under_way = witness.enter();
    tokio::time::sleep(Duration::from_millis(5)).await;
}

#[tool("Is called beside others")]
pub(crate) async fn beside(#[inject] witness: &Witness) {
    let _under_way = witness.enter();
    tokio::time::sleep(Duration::from_millis(5)).await;
}

#[tool("Pays a bill", needs_approval)]
pub(crate) fn pay(cents: u32) -> String {
    format!("paid {cents}")
}

/// Those that take nothing from their context.
pub(crate) fn plain() -> ToolSet {
    tools![sum, weather, hello, dot, panics, flaky, slow, count, burst]
}
