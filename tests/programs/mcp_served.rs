//! A small server on the SDK's side for servers, for the tests of the import: over stdio, as a child process.
//!
//! It ends as a process does when its tool `die` is called; `environment` tells which variables it has.

use rmcp::ServiceExt;
use tests::support::mcp_served::Tools;

pub(crate) async fn run() -> Result<(), Box<dyn std::error::Error>> {
    eprintln!("ready");
    let service = Tools::default().serve(rmcp::transport::stdio()).await?;
    service.waiting().await?;
    Ok(())
}
