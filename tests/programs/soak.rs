//! A server under load: 64 callers, tools that fail, time out, panic and return 1 MB, and callers that disconnect. Memory
//! must stay flat, every request must be answered, and no call and no task may be left at the end.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tool_core::layer::{AnswerVerdict, CallVerdict, OutputVerdict, QuestionVerdict, guard};
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse};
use tool_core::provider::ModelFuture;
use tool_core::{Agent, ChatModel, Event, Message, ToolCall, tool, tools};
use tool_openai::OpenAi;
use tool_openai::server::Server;

const CALLERS: usize = 64;

const MEBIBYTE: f64 = 1048576.0;

/// The largest growth of the memory between two parts of the run.
const MAX_GROWTH: f64 = 1.05;

/// The tools that return; `wait` never does.
const TOOLS: [&str; 5] = ["sum", "fail", "stall", "explode", "large"];

/// The calls of `wait` in progress.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// A model that calls the tool that the question names, and then repeats the question.
struct Obedient;

impl ChatModel for Obedient {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let messages = request.messages();
        let question = messages.iter().rev().find(|message| matches!(message, Message::User(_)));
        let question = question.map(|message| message.text().into_owned()).unwrap_or_default();
        let reply = match messages.last() {
            Some(Message::Tool(_)) => AssistantMessage::text(question),
            _ => AssistantMessage::text("").with_tool_calls([ToolCall::new("call_1", question, "{}")]),
        };
        Box::pin(async { Ok(ChatResponse::new(reply)) })
    }
}

/// Returns a number.
#[tool]
fn sum() -> u32 {
    42
}

/// Returns an error.
#[tool]
fn fail() -> Result<(), String> {
    Err("no".into())
}

/// Exceeds its timeout.
#[tool(timeout = "20ms")]
async fn stall() {
    std::future::pending::<()>().await;
}

/// Panics.
#[tool]
fn explode() {
    panic!("expected by the soak test");
}

/// Returns a long text.
#[tool]
fn large() -> String {
    "x".repeat(1 << 20)
}

/// Waits until the caller disconnects.
#[tool]
async fn wait() {
    struct Waiting;

    impl Drop for Waiting {
        fn drop(&mut self) {
            WAITING.fetch_sub(1, Ordering::SeqCst);
        }
    }

    WAITING.fetch_add(1, Ordering::SeqCst);
    let _waiting = Waiting;
    std::future::pending::<()>().await;
}

/// The requests of all callers.
#[derive(Default)]
struct Requests {
    answered: AtomicUsize,
    abandoned: AtomicUsize,
}

pub(crate) async fn run(duration: Duration) -> Result<(), Box<dyn Error>> {
    std::panic::set_hook(Box::new(|_| {}));
    let tasks_before = Handle::current().metrics().num_alive_tasks();
    let tools = tools![sum, fail, stall, explode, large, wait];
    let agent = Agent::builder(Obedient)
        .tools(tools)
        .layer(guard::question(|_| QuestionVerdict::Pass))
        .layer(guard::question(|_| QuestionVerdict::Pass).beside().named("beside"))
        .layer(guard::call(|_: &ToolCall| CallVerdict::Pass))
        .layer(guard::output(|_| OutputVerdict::Pass))
        .layer(guard::answer(|_| AnswerVerdict::Pass))
        .build()?;
    // Few entries are stored, so that the store is full early.
    let server = Server::new().agent("soak", agent).max_stored_entries(32).spawn("127.0.0.1:0").await?;
    let openai = OpenAi::builder().base_url(server.url()).max_retries(0).build()?;
    let chat = Agent::builder(openai.chat_model("soak")).build()?;
    let responses = Agent::builder(openai.responses_model("soak")).build()?;

    let (requests, started_at) = (Arc::new(Requests::default()), Instant::now());
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (agents, requests) = ([chat.clone(), responses.clone()], Arc::clone(&requests));
        callers.spawn(async move {
            for round in caller.. {
                if started_at.elapsed() >= duration {
                    return Ok(());
                }
                request(&agents[round % 2], round / 2, &requests).await?;
            }
            Ok::<_, String>(())
        });
    }
    let mut samples = Vec::new();
    while started_at.elapsed() < duration {
        tokio::time::sleep(Duration::from_millis(200)).await;
        samples.push(resident_bytes()?);
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    drop((chat, responses, openai));
    server.stop_within(Duration::from_secs(30)).await?;
    until("every call has ended", || WAITING.load(Ordering::SeqCst) == 0).await?;
    until("every task has ended", || Handle::current().metrics().num_alive_tasks() <= tasks_before).await?;

    // The first part is the start: pools and stores fill up.
    let (earlier, later) = samples[samples.len() * 4 / 10..].split_at(samples.len() * 3 / 10);
    let (earlier, later) = (mean(earlier), mean(later));
    println!(
        "{} requests answered, {} abandoned, {:.1} MiB and then {:.1} MiB of memory",
        requests.answered.load(Ordering::Relaxed),
        requests.abandoned.load(Ordering::Relaxed),
        earlier / MEBIBYTE,
        later / MEBIBYTE,
    );
    if later > earlier * MAX_GROWTH {
        return Err("the memory grows".into());
    }
    Ok(())
}

/// Sends one request, streamed or not, and waits for its answer or disconnects.
async fn request(agent: &Agent, round: usize, requests: &Requests) -> Result<(), String> {
    // After each of the tools comes a request that is abandoned. Every second pass is streamed.
    let (pass, position) = (round / (TOOLS.len() + 1), round % (TOOLS.len() + 1));
    let Some(tool) = TOOLS.get(position) else {
        let waiting = agent.ask("wait").into_future();
        if let Ok(answer) = tokio::time::timeout(Duration::from_millis(30), waiting).await {
            return Err(format!("`wait` was answered: {answer:?}"));
        }
        requests.abandoned.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    };
    let failed = |error| format!("the request for `{tool}` failed: {error}");
    let text = if pass.is_multiple_of(2) {
        agent.ask(*tool).await.map_err(failed)?.text().to_owned()
    } else {
        let mut events = agent.ask(*tool).stream();
        let mut text = None;
        while let Some(event) = events.next().await {
            if let Event::Done(answer) = event.map_err(failed)? {
                text = Some(answer.text().to_owned());
            }
        }
        text.ok_or("a stream ended without an answer")?
    };
    if text != *tool {
        return Err(format!("the request for `{tool}` was answered with `{text}`"));
    }
    requests.answered.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

async fn until(description: &str, is_reached: impl Fn() -> bool) -> Result<(), String> {
    for _ in 0..1000 {
        if is_reached() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(format!("timed out waiting until {description}"))
}

/// Returns the memory of this process that is in use.
fn resident_bytes() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|_| "the soak test needs Linux")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no `VmRSS`")?;
    let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes * 1024.0)
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len().max(1) as f64
}
