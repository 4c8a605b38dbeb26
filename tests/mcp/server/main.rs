//! A small stdio server that is built with the SDK and started as a child process by the tests of the client.
//!
//! Its tool `die` ends the process, and `environment` returns the names of its variables.

use rmcp::ServiceExt;

mod tools;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    eprintln!("ready");
    let service = tools::Tools::default().serve(rmcp::transport::stdio()).await?;
    service.waiting().await?;
    Ok(())
}
