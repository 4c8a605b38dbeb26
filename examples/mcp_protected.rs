//! An MCP server that serves only requests with a token of an authorization server, which the crate `jsonwebtoken` verifies: its signature,
//! issuer, audience and expiry. Tools need scopes of the token.
//!
//! ```text
//! cargo run --features mcp_protected --example mcp_protected
//! ```
//!
//! The program is also its own authorization server and its own client, so it needs no network. A real server takes the keys from the
//! `jwks_uri` of its authorization server, and reads them again when a token names an unknown one.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tool_core::model::RunUser;
use tool_core::{tool, tools};
use tool_mcp::server::{
    Authorize, AuthorizeError, AuthorizeFuture, Credentials, Principal, ProtectedResource, Server,
};

const ISSUER: &str = "https://login.example";
const AUDIENCE: &str = "https://files.example/mcp";

#[tool("Lists the files of the user")]
fn list_files(#[inject] user: &RunUser) -> String {
    format!("the notes of {user}")
}

#[tool("Deletes a file")]
fn delete_file(name: String) -> String {
    format!("deleted {name}")
}

/// What the tokens of the authorization server state.
#[derive(Serialize, Deserialize)]
struct Claims {
    iss: String,
    aud: String,
    sub: String,
    exp: u64,
    /// Separated by spaces. A token without scopes is valid.
    #[serde(default)]
    scope: String,
}

/// Verifies tokens.
struct Verifier {
    key: DecodingKey,
    validation: Validation,
}

impl Verifier {
    fn new(key: DecodingKey) -> Self {
        // The header of a token must not choose the algorithm.
        let mut validation = Validation::new(Algorithm::EdDSA);
        validation.set_issuer(&[ISSUER]);
        validation.set_audience(&[AUDIENCE]);
        // Otherwise a token without them would be valid.
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.validate_nbf = true;
        Self { key, validation }
    }
}

impl Authorize for Verifier {
    fn authorize<'a>(&'a self, credentials: Credentials<'a>) -> AuthorizeFuture<'a> {
        Box::pin(async move {
            let token = credentials.bearer_token().ok_or_else(AuthorizeError::unauthenticated)?;
            // The reply has no reason, because a reason would help an attacker who tries tokens.
            let verified = jsonwebtoken::decode::<Claims>(token, &self.key, &self.validation);
            let claims = verified.map_err(|_| AuthorizeError::unauthenticated())?.claims;
            Ok(Principal::new(claims.sub, claims.scope.split_whitespace()))
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| "no random numbers")?;
    let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).map_err(|_| "not a key")?;
    let verifier = Verifier::new(DecodingKey::from_ed_der(pair.public_key().as_ref()));

    let resource = ProtectedResource::new(AUDIENCE).authorization_server(ISSUER).scopes(["files:read"]);
    let server = Server::new(tools![list_files, delete_file])
        .protect(resource, verifier)
        .scope("list_files", "files:read")
        .scope("delete_file", "files:write");
    let server = server.spawn("127.0.0.1:0").await?;

    // From here on, the client.
    let key = EncodingKey::from_ed_der(document.as_ref());
    let sign = |audience: &str, lifetime: i64| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let claims = Claims {
            iss: ISSUER.into(),
            aud: audience.into(),
            sub: "ada".into(),
            exp: now.saturating_add_signed(lifetime),
            scope: "files:read".into(),
        };
        jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), &claims, &key)
    };
    let valid = sign(AUDIENCE, 600)?;
    let table = [
        ("without a token", "list_files", None),
        ("with an expired token", "list_files", Some(sign(AUDIENCE, -600)?)),
        ("with a token for another server", "list_files", Some(sign("https://other.example/mcp", 600)?)),
        ("without the scope", "delete_file", Some(valid.clone())),
        ("with a valid token", "list_files", Some(valid)),
    ];
    for (what, tool, token) in table {
        println!("{what}: {}", call(&server.url(), tool, token.as_deref()).await?);
    }
    server.stop_within(Duration::from_secs(5)).await?;
    Ok(())
}

/// Calls a tool. Returns the status, and the challenge or the result.
async fn call(url: &str, tool: &str, token: Option<&str>) -> Result<String, Box<dyn Error>> {
    let rest = url.strip_prefix("http://").ok_or("not a server of this machine")?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": tool,
        "arguments": {},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    } });
    let body = body.to_string();
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{authorization}\
         Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut connection = TcpStream::connect(host).await?;
    connection.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    connection.read_to_string(&mut response).await?;
    let status = response.split(' ').nth(1).unwrap_or_default();
    let challenge = response.lines().find(|line| line.to_lowercase().starts_with("www-authenticate"));
    let result = response.lines().find(|line| line.contains("\"result\""));
    Ok(format!("{status} {}", challenge.or(result).unwrap_or_default().trim()))
}
