//! A model of OpenAI in Microsoft Foundry, with tokens of Entra ID: `cargo run --features entra --bin entra -- RESOURCE DEPLOYMENT`.

use std::error::Error;
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use azure_identity::DeveloperToolsCredential;
use tool_core::Agent;
use tool_openai::{Endpoint, OpenAi, Token};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(resource), Some(deployment)) = (arguments.next(), arguments.next()) else {
        return Err("usage: entra RESOURCE DEPLOYMENT".into());
    };
    // The login of `az` or `azd`; a service has `ManagedIdentityCredential` or `WorkloadIdentityCredential`.
    let credential = DeveloperToolsCredential::new(None)?;
    let source = move || {
        let credential = Arc::clone(&credential);
        async move {
            let token = credential.get_token(&["https://ai.azure.com/.default"], None).await?;
            let expiry = token.expires_on.into();
            Ok::<_, azure_core::Error>(Token::new(token.token.secret()).expires_at(expiry))
        }
    };
    let openai = OpenAi::builder().endpoint(Endpoint::foundry(&resource)).token_source(source).build()?;
    let agent = Agent::builder(openai.chat_model(deployment)).build()?;
    println!("{}", agent.ask("Good morning!").await?);
    Ok(())
}
