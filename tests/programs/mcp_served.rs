//! A small stdio server that is built with the SDK and started as a child process by the tests of the client.
//!
//! Its tool `die` ends the process, and `environment` returns the names of its variables.

use rmcp::ServiceExt;
use tests::support::mcp_served::Tools;

pub(crate) async fn run() -> Result<(), Box<dyn std::error::Error>> {
    eprintln!("ready");
    let service = Tools::default().serve(rmcp::transport::stdio()).await?;
    service.waiting().await?;
    Ok(())
}
