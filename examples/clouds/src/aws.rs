//! A model on Bedrock, with short-term keys that are made from the credentials of AWS:
//! `cargo run --features aws --bin aws -- REGION MODEL`.

use std::error::Error;

use aws_config::BehaviorVersion;
use aws_credential_types::provider::ProvideCredentials;
use tool_core::Agent;
use tool_openai::{AwsCredentials, Endpoint, OpenAi, bedrock_keys};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(region), Some(model)) = (arguments.next(), arguments.next()) else {
        return Err("usage: aws REGION MODEL".into());
    };
    // The environment, a profile, a login by SSO, or the role of a container or machine.
    let config = aws_config::load_defaults(BehaviorVersion::latest()).await;
    let provider = config.credentials_provider().ok_or("AWS has no credentials here")?;
    let credentials = move || {
        let provider = provider.clone();
        async move {
            let found = provider.provide_credentials().await?;
            let credentials = AwsCredentials::new(found.access_key_id(), found.secret_access_key());
            let credentials =
                found.session_token().into_iter().fold(credentials, AwsCredentials::session_token);
            Ok::<_, Box<dyn Error + Send + Sync>>(
                found.expiry().into_iter().fold(credentials, AwsCredentials::expires_at),
            )
        }
    };
    let keys = bedrock_keys(&region, credentials);
    let openai = OpenAi::builder().endpoint(Endpoint::bedrock(&region)).token_source(keys).build()?;
    let agent = Agent::builder(openai.chat_model(model)).build()?;
    println!("{}", agent.ask("Good morning!").await?);
    Ok(())
}
