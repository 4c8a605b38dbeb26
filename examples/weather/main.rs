//! Replays three recorded conversations in Chinese over HTTP: one call, two parallel calls, and two sequential calls. The
//! replies are recorded; the tools are executed.

mod recording;

use std::error::Error;
use std::time::{Duration, SystemTime};

use recording::Recording;
use tool_core::tool::ToolExecution;
use tool_core::{Agent, Answer, tool, tools};
use tool_openai::OpenAi;
use tool_openai::server::Server;

#[tool("模拟获取天气的工具")]
async fn get_current_weather(location: String) -> String {
    tokio::time::sleep(Duration::from_millis(300)).await; // simulates a slow service
    format!("{location}的天气是晴朗的，22摄氏度。")
}

#[tool("模拟发送邮件的工具")]
async fn send_email(to: String, subject: String, body: String) -> String {
    tokio::time::sleep(Duration::from_millis(300)).await;
    let _ = (subject, body);
    format!("邮件已成功发送至 {to}。")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    replay("One call", include_str!("transcripts/weather.json")).await?;
    let parallel = replay("Parallel calls", include_str!("transcripts/parallel.json")).await?;
    let overlap = overlap(parallel.tool_executions()).ok_or("the two calls did not overlap")?;
    println!("both calls ran at the same time for {overlap:.0?}");
    replay("Sequential calls", include_str!("transcripts/serial.json")).await?;
    Ok(())
}

async fn replay(title: &str, transcript: &str) -> Result<Answer, Box<dyn Error>> {
    let recording = Recording::read(transcript)?;
    let server = Server::new().model("recorded", recording.model()).spawn("127.0.0.1:0").await?;
    let openai = OpenAi::builder().base_url(server.url()).build()?;
    let agent = Agent::builder(openai.chat_model("recorded"))
        .tools(tools![get_current_weather, send_email])
        .build()?;

    println!("\n== {title} ==\nuser:  {}", recording.user);
    let answer = agent.ask(&*recording.user).await?;
    let first_start = answer.tool_executions().iter().filter_map(ToolExecution::started_at).min();
    let recorded = recording.turns.iter().flat_map(|turn| &turn.results);
    for (execution, recorded) in answer.tool_executions().iter().zip(recorded) {
        let offset = execution
            .started_at()
            .zip(first_start)
            .and_then(|(start, first)| start.duration_since(first).ok());
        let start = offset.unwrap_or_default();
        let output = execution.output().ok_or("the call failed")?.to_string();
        assert_eq!(output, *recorded, "the tools return the recorded results");
        println!("call:  {}", execution.call());
        println!("       {output} [{start:.0?} to {:.0?}]", start + execution.duration());
    }
    println!("model: {answer}");
    Ok(answer)
}

/// Returns how long all calls ran at the same time.
fn overlap(executions: &[ToolExecution]) -> Option<Duration> {
    let end = |one: &ToolExecution| -> Option<SystemTime> { Some(one.started_at()? + one.duration()) };
    let last_start = executions.iter().filter_map(ToolExecution::started_at).max()?;
    let first_end = executions.iter().filter_map(end).min()?;
    first_end.duration_since(last_start).ok()
}
