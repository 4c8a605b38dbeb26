//! Keys that are signed on this machine with credentials of AWS: a request that was signed in its query (SigV4), in base64.
//!
//! Five HMACs take the place of `aws-sigv4`, which would add 19 crates and needs a newer Rust. No body is signed.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac};
use secrecy::{ExposeSecret, SecretString};

use super::config::read_variable;
use super::error::Error;
use super::token_source::{BoxError, Token, TokenSource};

/// The longest time that AWS accepts such a key.
const MAX_KEY_TIME: Duration = Duration::from_secs(12 * 60 * 60);

/// Credentials of AWS, for keys that are made from them. Never shown.
#[derive(Clone)]
pub struct AwsCredentials {
    access_key_id: String,
    secret_access_key: SecretString,
    session_token: Option<SecretString>,
    expires_at: Option<SystemTime>,
}

impl AwsCredentials {
    /// Creates credentials from the id of a key and its secret.
    pub fn new(access_key_id: impl Into<String>, secret_access_key: impl Into<SecretString>) -> Self {
        let (access_key_id, secret_access_key) = (access_key_id.into(), secret_access_key.into());
        Self { access_key_id, secret_access_key, session_token: None, expires_at: None }
    }

    /// Reads the credentials from the environment variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, for a session,
    /// `AWS_SESSION_TOKEN`.
    ///
    /// The environment does not contain the end of a session, and nothing renews it: AWS refuses the keys of a session that has ended
    /// although they are said to be valid for longer. For services that run for longer, ask the library of AWS in a closure.
    ///
    /// # Errors
    ///
    /// Fails if one of the first two is not set.
    pub fn from_env() -> Result<Self, Error> {
        let required = |name: &str| {
            let missing = || Error::config(format!("the environment variable {name} is not set; set it"));
            read_variable(name)?.ok_or_else(missing)
        };
        let credentials = Self::new(required("AWS_ACCESS_KEY_ID")?, required("AWS_SECRET_ACCESS_KEY")?);
        let session = read_variable("AWS_SESSION_TOKEN")?;
        Ok(session.into_iter().fold(credentials, Self::session_token))
    }

    /// Sets the token of a session, which a role has.
    #[must_use]
    pub fn session_token(mut self, token: impl Into<SecretString>) -> Self {
        self.session_token = Some(token.into());
        self
    }

    /// Sets when the credentials expire. A key does not outlast them.
    #[must_use]
    pub fn expires_at(mut self, time: SystemTime) -> Self {
        self.expires_at = Some(time);
        self
    }
}

/// Shows no secret.
impl fmt::Debug for AwsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsCredentials").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// The request that a service accepts as a key.
#[derive(Clone, Copy, Debug)]
pub struct SignedKeyForm {
    /// The start of a key.
    pub prefix: &'static str,
    /// The host of the request, without a scheme.
    pub host: &'static str,
    /// The service that it is signed for.
    pub service: &'static str,
    /// The start of its query.
    pub action: &'static str,
    /// The end of its query, which is not signed.
    pub end: &'static str,
}

/// Returns a source of keys for a region, each made from what `credentials` returns and valid for at most twelve hours.
pub fn signed_keys<F, T, E>(
    form: SignedKeyForm,
    region: &str,
    credentials: F,
) -> impl TokenSource + use<F, T, E>
where
    F: Fn() -> T + Send + Sync,
    T: Future<Output = Result<AwsCredentials, E>> + Send,
    E: Into<BoxError>,
{
    let region: Arc<str> = region.into();
    move || {
        let (credentials, region) = (credentials(), Arc::clone(&region));
        async move {
            let credentials = credentials.await.map_err(Into::into)?;
            Ok::<_, BoxError>(sign(form, &region, &credentials, SystemTime::now())?)
        }
    }
}

fn sign(
    form: SignedKeyForm,
    region: &str,
    credentials: &AwsCredentials,
    now: SystemTime,
) -> Result<Token, &'static str> {
    let SignedKeyForm { prefix, host, service, action, end } = form;
    let remaining = credentials.expires_at.map(|time| time.duration_since(now).unwrap_or_default());
    // A key is valid for whole seconds.
    let seconds = remaining.unwrap_or(MAX_KEY_TIME).min(MAX_KEY_TIME).as_secs();
    if seconds == 0 {
        return Err("the credentials of AWS have expired; return new ones");
    }
    let stamp = time_stamp(now);
    let day = &stamp[..8];
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let credential = encode(&format!("{}/{scope}", credentials.access_key_id));
    let session = credentials.session_token.as_ref().map(ExposeSecret::expose_secret);
    let session_field = session.map(|token| format!("&X-Amz-Security-Token={}", encode(token)));
    let session_field = session_field.unwrap_or_default();
    let start = format!(
        "{action}&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={stamp}&X-Amz-Expires={seconds}"
    );
    // The fields are signed in the order of their names.
    let signed = format!("{start}{session_field}&X-Amz-SignedHeaders=host");
    let request = format!("POST\n/\n{signed}\nhost:{host}\n\nhost\n{}", hash(""));
    let text = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{}", hash(&request));
    let secret = format!("AWS4{}", credentials.secret_access_key.expose_secret());
    let key = [day, region, service, "aws4_request"].into_iter().fold(secret.into_bytes(), mac);
    let signature = hex(&mac(key, &text));
    let url =
        format!("{host}/?{start}&X-Amz-SignedHeaders=host{session_field}&X-Amz-Signature={signature}{end}");
    let key = BASE64.encode(&url);
    // The end of the key, from the signature on. Three bytes are four characters.
    let signed_end = &key[url.rfind(&signature).unwrap_or_default() / 3 * 4..];
    let token = Token::new(format!("{prefix}{key}")).expires_at(now + Duration::from_secs(seconds));
    // A server quotes the request if it computes another signature.
    Ok(token.with_parts(session.into_iter().chain([&*signature, &key, signed_end])))
}

fn mac(key: Vec<u8>, text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), text.as_bytes()).as_ref().to_vec()
}

fn hash(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a time such as `20261128T212345Z`.
fn time_stamp(time: SystemTime) -> String {
    // `Sat, 28 Nov 2026 21:23:45 GMT`.
    let date = httpdate::fmt_http_date(time.max(SystemTime::UNIX_EPOCH));
    let month = "JanFebMarAprMayJunJulAugSepOctNovDec".find(&date[8..11]).unwrap_or_default() / 3 + 1;
    format!("{}{month:02}{}T{}Z", &date[12..16], &date[5..7], date[17..25].replace(':', ""))
}

fn encode(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte| if is_plain(byte) { char::from(byte).into() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Some forms of keys are also those of other services, so this one stands here as an example.
    const FORM: SignedKeyForm = SignedKeyForm {
        prefix: "bedrock-api-key-",
        host: "bedrock.amazonaws.com",
        service: "bedrock",
        action: "Action=CallWithBearerToken",
        end: "&Version=1",
    };

    #[test]
    fn keys_are_those_of_the_official_generator() {
        let file: Value = serde_json::from_str(include_str!("signed_keys.vectors.json")).unwrap();
        let vectors = file["vectors"].as_array().unwrap();
        assert_eq!(vectors.len(), 4);
        for vector in vectors {
            let text = |name: &str| vector[name].as_str();
            let seconds = |name: &str| Duration::from_secs(vector[name].as_u64().unwrap());
            let now = SystemTime::UNIX_EPOCH + seconds("unix_seconds");
            let expiry = now + seconds("expires_in");
            let id = text("access_key_id").unwrap();
            let credentials = AwsCredentials::new(id, text("secret_access_key").unwrap()).expires_at(expiry);
            let credentials =
                text("session_token").into_iter().fold(credentials, AwsCredentials::session_token);
            let token = sign(FORM, text("region").unwrap(), &credentials, now).unwrap();
            assert_eq!(token, Token::new(text("key").unwrap()), "{vector}");
            assert_eq!(format!("{token:?}"), format!("Token {{ expires_at: {:?}, .. }}", Some(expiry)));
        }
    }

    #[test]
    fn keys_last_at_most_twelve_hours_and_no_longer_than_the_credentials() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_901_025);
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let credentials = AwsCredentials::new("id", "secret");
        let end = |time| credentials.clone().expires_at(time);
        let millis = Duration::from_millis;
        let table = [
            (credentials.clone(), Some(hours(12))),
            (end(now + hours(13)), Some(hours(12))),
            (end(now + hours(1)), Some(hours(1))),
            (end(now + millis(1999)), Some(Duration::from_secs(1))),
            (end(now + millis(999)), None),
            (end(now - hours(1)), None),
        ];
        for (credentials, expected) in table {
            let token = sign(FORM, "us-east-1", &credentials, now).map(|token| format!("{token:?}"));
            let expired = "the credentials of AWS have expired; return new ones";
            let shown = expected.map(|time| format!("Token {{ expires_at: {:?}, .. }}", Some(now + time)));
            assert_eq!(token, shown.ok_or(expired));
        }
        assert_eq!(format!("{credentials:?}"), "AwsCredentials { expires_at: None, .. }");
    }
}
