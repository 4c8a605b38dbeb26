//! A small server on the SDK's side for servers, for the tests of the import: over stdio, as a child process.
//!
//! It ends as a process does when its tool `die` is called; `environment` tells which variables it has.

use rmcp::ServiceExt;

mod tools;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    eprintln!("ready");
    let service = tools::Tools::default().serve(rmcp::transport::stdio()).await?;
    service.waiting().await?;
    Ok(())
}
