//! Serves tools to MCP hosts: over standard input and output, over HTTP, or over HTTP only to callers with a token.
//!
//! ```text
//! cargo run --features mcp --example mcp_server
//! cargo run --features mcp --example mcp_server -- --http [127.0.0.1:8000]
//! cargo run --features mcp --example mcp_server -- --protected
//! ```
//!
//! With `--protected` the program is also its own authorization server and its own client, so it needs no network.

mod protected;

use std::env;
use std::error::Error;
use std::time::Duration;

use tool_core::{tool, tools};
use tool_mcp::server::Server;

#[tool("Sums two numbers", pure)]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

#[tool("Returns the square root of a number", pure)]
fn square_root(
    /** must not be negative */
    x: f64,
) -> Result<f64, String> {
    if x < 0.0 { Err(format!("{x} is negative and has no real square root")) } else { Ok(x.sqrt()) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::new(tools![sum, square_root])
        .name("tools")
        .version(env!("CARGO_PKG_VERSION"))
        .title("Arithmetic")
        .instructions("Use the tools for arithmetic.")
        .output_schema::<f64>("sum")
        .output_schema::<f64>("square_root");

    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // Standard output belongs to the protocol, so nothing is printed.
        [] => server.serve_stdio().await?,
        ["--http", ref address @ ..] if address.len() < 2 => {
            let address = address.first().copied().unwrap_or("127.0.0.1:8000");
            let running = server.spawn(address).await?;
            println!("Listening at {}", running.url());
            tokio::signal::ctrl_c().await?;
            running.stop_within(Duration::from_secs(10)).await?;
        }
        ["--protected"] => protected::demonstrate(server).await?,
        _ => return Err("expected no arguments, `--http [ADDRESS]` or `--protected`".into()),
    }
    Ok(())
}
