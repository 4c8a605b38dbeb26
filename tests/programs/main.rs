//! Servers and clients that tests and scripts start as processes of their own: the first argument says which.

use std::error::Error;
use std::time::Duration;

mod mcp_client;
mod mcp_served;
mod mcp_tools;
mod sdk_server;
mod soak;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("mcp-client") => {
            let url = arguments.last().ok_or("say the URL of the server")?;
            mcp_client::run(&url).await.map_err(|error| error as _)
        }
        Some("mcp-served") => mcp_served::run().await,
        Some("mcp-tools") => mcp_tools::run(arguments.next().is_some()).await,
        Some("sdk-server") => sdk_server::run().await,
        Some("soak") => {
            let seconds = arguments.next().ok_or("say the number of seconds")?.parse()?;
            soak::run(Duration::from_secs(seconds)).await
        }
        _ => Err("say `mcp-client`, `mcp-served`, `mcp-tools`, `sdk-server` or `soak`".into()),
    }
}
