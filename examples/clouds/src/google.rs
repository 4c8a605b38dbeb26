//! Claude on Google's Vertex AI, with the tokens of the default credentials:
//! `cargo run --features google --bin google -- PROJECT LOCATION MODEL`.

use std::error::Error;
use std::sync::Arc;

use tool_anthropic::{Anthropic, Endpoint, Token};
use tool_core::Agent;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [project, location, model] = &arguments[..] else {
        return Err("usage: google PROJECT LOCATION MODEL".into());
    };
    // The login of `gcloud auth application-default login`, a service account, or the metadata server.
    let provider = gcp_auth::provider().await?;
    let source = move || {
        let provider = Arc::clone(&provider);
        async move {
            let token = provider.token(&["https://www.googleapis.com/auth/cloud-platform"]).await?;
            Ok::<_, gcp_auth::Error>(Token::new(token.as_str()).expires_at(token.expires_at().into()))
        }
    };
    let claude =
        Anthropic::builder().endpoint(Endpoint::vertex(project, location)).token_source(source).build()?;
    let agent = Agent::builder(claude.chat_model(model)).build()?;
    println!("{}", agent.ask("Good morning!").await?);
    Ok(())
}
