//! Tokens, codes, verifiers and secrets appear in no error, `Debug` output or log.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tool_mcp::McpServer;
use tool_mcp::oauth::{InMemoryCredentials, Login, OAuth};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::support::{ROUTE, call, call_error, fake, parameter};

/// All records of this thread, as text.
#[derive(Clone, Default)]
struct Records(Arc<Mutex<String>>);

impl Visit for Records {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = writeln!(self.0.lock().unwrap(), "{field}={value:?}");
    }
}

impl Subscriber for Records {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        attributes.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn secrets_appear_nowhere() {
    let records = Records::default();
    let _guard = tracing::subscriber::set_default(records.clone());
    tracing::trace!("this thread is recorded");
    let fake = fake().await;
    fake.add_client("desk", Some("client-secret-1"));
    let store = InMemoryCredentials::default();
    let oauth = OAuth::new(Login::route(ROUTE))
        .user("ada")
        .confidential_client(fake.issuer(), "desk", "client-secret-1")
        .store(store.clone());
    fake.set_metadata("token_endpoint_auth_methods_supported", json!(["client_secret_post"]));
    let server = McpServer::http(fake.url()).oauth(oauth.clone()).trusted().record_messages();
    let mut texts = vec![format!("{oauth:?} {store:?} {server:?}")];

    // The server repeats the code and the verifier in its error.
    let url = server.start_login().await.unwrap().unwrap();
    let redirect = fake.approve(&url).await.unwrap();
    let code = parameter(&redirect, "code").unwrap();
    let echo = json!({ "error": "invalid_request", "error_description": format!("{code} client-secret-1") });
    fake.respond("/token", 400, echo.to_string());
    let error = server.finish_login(&redirect).await.unwrap_err();
    assert!(
        error.to_string().ends_with("refused (HTTP 400 Bad Request): invalid_request […] […]"),
        "{error}"
    );
    texts.push(format!("{error} {error:?}"));
    let verifier = parameter(fake.requests("/token").last().unwrap(), "code_verifier").unwrap();

    let tokens = json!({
        "access_token": "access-token-1",
        "refresh_token": "refresh-token-1",
        "token_type": "Bearer",
    });
    fake.respond("/token", 200, tokens.to_string());
    let url = server.start_login().await.unwrap().unwrap();
    let redirect = fake.approve(&url).await.unwrap();
    server.finish_login(&redirect).await.unwrap();

    // A server that reports the token that it got, first over the protocol and then in the body of an error.
    fake.respond("/mcp", 500, "access-token-1 is broken");
    let error = server.clone().connect().await.unwrap_err();
    assert!(error.to_string().ends_with("[…] is broken"), "{error}");
    texts.push(format!("{error} {error:?}"));

    texts.push(records.0.lock().unwrap().clone());
    let secrets = [&*code, &*verifier, "client-secret-1", "access-token-1", "refresh-token-1"];
    for text in &texts {
        for secret in secrets {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
    assert!(texts.last().unwrap().contains("this thread is recorded"));
}

#[tokio::test]
async fn credentials_in_a_header_that_a_server_repeats_are_redacted() {
    let fake = fake().await;
    // The header of the client `desk` with the secret `a-secret`.
    let echo = json!({ "error": "invalid_client", "error_description": "Basic ZGVzazphLXNlY3JldA==" });
    fake.respond("/token", 401, echo.to_string());
    let oauth = OAuth::client_credentials(fake.issuer(), "desk", "a-secret");
    let error = McpServer::http(fake.url()).oauth(oauth).connect().await.unwrap_err().to_string();
    assert!(error.ends_with("refused (HTTP 401 Unauthorized): invalid_client Basic […]"), "{error}");
}

#[tokio::test]
async fn a_refresh_token_that_a_server_repeats_is_redacted() {
    let fake = fake().await;
    let (server, _) = super::support::logged_in(&fake).await;
    let tools = server.connect().await.unwrap();
    assert_eq!(call(&tools, "read").await.unwrap(), "read: read");
    fake.end_logins();
    // The fake describes the error by the token.
    let error = call_error(&tools, "read").await.to_string();
    assert!(error.contains("refused (HTTP 400 Bad Request): invalid_grant […];"), "{error}");
}
