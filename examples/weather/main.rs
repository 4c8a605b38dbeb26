//! Three recorded conversations with a model, in Chinese, replayed over HTTP: one call, two calls at once, and one
//! call after another. The replies are recorded; the tools are really called.

mod recording;

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use recording::Recording;
use tool_core::{Agent, Answer, tool, tools};
use tool_openai::OpenAi;
use tool_openai::server::Server;

#[tool("模拟获取天气的工具")]
async fn get_current_weather(location: String) -> String {
    tokio::time::sleep(Duration::from_millis(300)).await; // as long as a real service would take
    format!("{location}的天气是晴朗的，22摄氏度。")
}

#[tool("模拟发送邮件的工具")]
async fn send_email(to: String, subject: String, body: String) -> String {
    tokio::time::sleep(Duration::from_millis(300)).await;
    let _ = (subject, body);
    format!("邮件已成功发送至 {to}。")
}

#[tokio::main]
async fn main() -> Result<()> {
    replay("One call", include_str!("transcripts/weather.json")).await?;
    let parallel = replay("Two calls at once", include_str!("transcripts/parallel.json")).await?;
    anyhow::ensure!(overlap(&parallel)? > Duration::ZERO, "the two calls did not overlap");
    println!("the two calls were under way together for {:.0?}", overlap(&parallel)?);
    replay("One call after another", include_str!("transcripts/serial.json")).await?;
    Ok(())
}

async fn replay(title: &str, transcript: &str) -> Result<Answer> {
    let recording = Recording::read(transcript)?;
    let server = Server::new().model("recorded", recording.model()).spawn("127.0.0.1:0").await?;
    let openai = OpenAi::builder().base_url(server.base_url()).build()?;
    let agent = Agent::builder(openai.chat_model("recorded"))
        .tools(tools![get_current_weather, send_email])
        .build()?;

    println!("\n== {title} ==\nuser:  {}", recording.user);
    let answer = agent.ask(&*recording.user).await?;
    let begin = answer
        .tool_executions()
        .iter()
        .filter_map(|one| one.started_at())
        .min()
        .context("no call was made")?;
    for execution in answer.tool_executions() {
        let (start, end) = span(execution.started_at().context("no time")?, execution.duration(), begin);
        println!("call:  {} {}", execution.call().name, execution.call().arguments);
        println!("       {} [{start:.0?} to {end:.0?}]", execution.outcome()?);
    }
    println!("model: {answer}");
    Ok(answer)
}

/// From when to when a call was under way, counted from the first call.
fn span(started_at: SystemTime, duration: Duration, begin: SystemTime) -> (Duration, Duration) {
    let start = started_at.duration_since(begin).unwrap_or_default();
    (start, start + duration)
}

/// For how long all calls were under way together.
fn overlap(answer: &Answer) -> Result<Duration> {
    let starts = answer.tool_executions().iter().map(|one| one.started_at().context("no time"));
    let starts = starts.collect::<Result<Vec<_>>>()?;
    let ends = answer.tool_executions().iter().zip(&starts).map(|(one, start)| *start + one.duration());
    let (last_start, first_end) = (starts.iter().max().context("no call")?, ends.min().context("no call")?);
    Ok(first_end.duration_since(*last_start).unwrap_or_default())
}
