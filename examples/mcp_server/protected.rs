//! A server that serves only requests with a token of an authorization server, which the crate `jsonwebtoken` verifies: its signature,
//! issuer, audience and expiry. Tools need scopes of the token.
//!
//! A real server takes the keys from the `jwks_uri` of its authorization server, and reads them again when a token names an unknown one.

use std::error::Error;
use std::future::ready;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tool_mcp::server::{
    Authorize, AuthorizeError, AuthorizeFuture, Credentials, Principal, ProtectedResource, Server,
};

const ISSUER: &str = "https://login.example";
const AUDIENCE: &str = "https://tools.example/mcp";

/// What a token states, besides what is verified.
#[derive(Deserialize)]
struct Claims {
    sub: String,
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

    fn verify(&self, token: &str) -> Result<Principal, AuthorizeError> {
        // The reply has no reason, because a reason would help an attacker who tries tokens.
        let verified = jsonwebtoken::decode::<Claims>(token, &self.key, &self.validation);
        let claims = verified.map_err(|_| AuthorizeError::unauthenticated())?.claims;
        Ok(Principal::new(claims.sub, claims.scope.split_whitespace()))
    }
}

impl Authorize for Verifier {
    fn authorize<'a>(&'a self, credentials: Credentials<'a>) -> AuthorizeFuture<'a> {
        let token = credentials.bearer_token().ok_or_else(AuthorizeError::unauthenticated);
        Box::pin(ready(token.and_then(|token| self.verify(token))))
    }
}

/// Serves to callers with a token, and calls the server with tokens of different kinds.
pub(crate) async fn demonstrate(server: Server) -> Result<(), Box<dyn Error>> {
    let (signing_key, public_key) = key_pair()?;
    let verifier = Verifier::new(DecodingKey::from_ed_der(&public_key));
    let resource = ProtectedResource::new(AUDIENCE).authorization_server(ISSUER).scopes(["sums"]);
    let server = server.protect(resource, verifier).scope("sum", "sums").scope("square_root", "roots");
    let server = server.spawn("127.0.0.1:0").await?;

    // From here on, the client.
    let sign = |claims: Value| jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), &claims, &signing_key);
    let valid = sign(claims(600))?;
    let mut of_other = claims(600);
    of_other["aud"] = "https://other.example/mcp".into();
    let table = [
        ("without a token", "sum", None),
        ("with an expired token", "sum", Some(sign(claims(-600))?)),
        ("with a token for another server", "sum", Some(sign(of_other)?)),
        ("without the scope", "square_root", Some(valid.clone())),
        ("with a valid token", "sum", Some(valid)),
    ];
    for (what, tool, token) in table {
        println!("{what}: {}", call(&server.url(), tool, token.as_deref()).await?);
    }
    server.stop_within(Duration::from_secs(5)).await?;
    Ok(())
}

/// Creates the key of an authorization server, and the public part of it.
fn key_pair() -> Result<(EncodingKey, Vec<u8>), Box<dyn Error>> {
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| "no random numbers")?;
    let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).map_err(|_| "not a key")?;
    Ok((EncodingKey::from_ed_der(document.as_ref()), pair.public_key().as_ref().to_vec()))
}

/// Returns the claims of a token that expires in so many seconds.
fn claims(lifetime: i64) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let exp = now.saturating_add_signed(lifetime);
    json!({ "iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": exp, "scope": "sums" })
}

/// Calls a tool. Returns the status, and the challenge or the result.
async fn call(url: &str, tool: &str, token: Option<&str>) -> Result<String, Box<dyn Error>> {
    let rest = url.strip_prefix("http://").ok_or("not a server of this machine")?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": tool,
        "arguments": { "a": 1, "b": 2 },
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The header `{"alg":"none","typ":"JWT"}`.
    const UNSIGNED: &str = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0";

    #[test]
    fn only_tokens_of_the_issuer_for_this_server_are_valid() {
        let (signing_key, public_key) = key_pair().unwrap();
        let (other_key, _) = key_pair().unwrap();
        let verifier = Verifier::new(DecodingKey::from_ed_der(&public_key));
        let sign = |claims: &Value| {
            jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), claims, &signing_key).unwrap()
        };
        // `None` removes the claim.
        let with = |name: &str, value: Option<Value>| {
            let mut claims = claims(600);
            let removed = claims.as_object_mut().unwrap().remove(name);
            assert!(removed.is_some() || value.is_some());
            value.into_iter().for_each(|value| claims[name] = value);
            sign(&claims)
        };
        let valid = sign(&claims(600));
        let [_, payload, signature] = valid.split('.').collect::<Vec<_>>()[..] else { unreachable!() };
        let header = |algorithm| Header::new(algorithm);
        let by_public_key = EncodingKey::from_secret(&public_key);
        let now = claims(0)["exp"].as_u64().unwrap();
        // The expected value states whether the token has the scope `sums`.
        let table = [
            ("a valid token", valid.clone(), Some(true)),
            (
                "one of several audiences",
                with("aud", Some(json!(["https://other.example", AUDIENCE]))),
                Some(true),
            ),
            ("another scope", with("scope", Some(json!("roots mail"))), Some(false)),
            ("no scope", with("scope", None), Some(false)),
            ("other audiences", with("aud", Some(json!(["https://other.example"]))), None),
            ("another audience", with("aud", Some(json!("https://other.example/mcp"))), None),
            ("no audience", with("aud", None), None),
            ("another issuer", with("iss", Some(json!("https://evil.example"))), None),
            ("no issuer", with("iss", None), None),
            ("no subject", with("sub", None), None),
            ("no expiry", with("exp", None), None),
            ("an expired token", sign(&claims(-600)), None),
            ("not yet valid", with("nbf", Some(json!(now + 600))), None),
            (
                "another key",
                jsonwebtoken::encode(&header(Algorithm::EdDSA), &claims(600), &other_key).unwrap(),
                None,
            ),
            (
                "the public key as a secret",
                jsonwebtoken::encode(&header(Algorithm::HS256), &claims(600), &by_public_key).unwrap(),
                None,
            ),
            ("no algorithm", format!("{UNSIGNED}.{payload}."), None),
            ("no algorithm and a signature", format!("{UNSIGNED}.{payload}.{signature}"), None),
            ("no signature", format!("{}.", valid.rsplit_once('.').unwrap().0), None),
            ("no token", "ada".into(), None),
        ];
        for (what, token, expected) in table {
            let verified = verifier.verify(&token);
            assert!(verified.iter().all(|principal| principal.user().as_str() == "ada"), "{what}");
            assert_eq!(verified.ok().map(|principal| principal.has_scope("sums")), expected, "{what}");
        }
    }
}
