//! The users of the desk and their logins: a signed cookie, which each replica can check.
//!
//! A real desk has a database, hashes of passwords or single sign-on, and `Secure` cookies.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::error::Unspecified;
use ring::hmac::{self, HMAC_SHA256, Key};
use ring::rand::{self, SystemRandom};
use serde::Deserialize;
use tool_core::ToolError;
use tool_web::{Principal, Right};

const LOGIN_TIME: Duration = Duration::from_secs(12 * 3_600);

/// What the tools know about the customer of a run.
pub(crate) struct Customer {
    pub(crate) name: &'static str,
    pub(crate) email: &'static str,
    pub(crate) card: &'static str,
    /// The numbers of the orders, and what was ordered.
    pub(crate) orders: &'static [(u32, &'static str)],
}

impl Customer {
    /// Returns what was ordered. Orders of other customers do not exist for this one.
    pub(crate) fn item(&self, order: u32) -> Result<&'static str, ToolError> {
        let found = self.orders.iter().find(|(number, _)| *number == order);
        found.map(|(_, item)| *item).ok_or_else(|| ToolError::failed(format!("you have no order {order}")))
    }
}

/// Returns the customer of a user.
pub(crate) fn customer(user: &str) -> Option<Customer> {
    let (name, orders): (_, &[_]) = match user {
        "ada" => ("Ada Lovelace", &[(7, "difference engine"), (8, "box of punched cards")]),
        "eve" => ("Eve Polastri", &[(9, "coat")]),
        _ => return None,
    };
    Some(Customer { name, orders, email: "orders@example.com", card: "4111 1111 1111 1111" })
}

#[derive(Deserialize)]
pub(crate) struct Login {
    name: String,
    password: String,
}

/// Customers may ask, and the staff sees and decides everything on the page.
fn principal(name: &str) -> Option<Principal> {
    match name {
        "ada" | "eve" => Some(Principal::new(name, [Right::Chat])),
        "grace" => Some(Principal::new(name, [Right::Read, Right::Decide, Right::Administer])),
        _ => None,
    }
}

pub(crate) struct Logins(Key);

impl Logins {
    /// Replicas that share a secret accept each other's logins. Without one, logins end with the process. An empty one, such as that of a
    /// variable whose value was not found, is refused: anybody could sign logins with it.
    pub(crate) fn new(secret: Option<String>) -> Result<Self, Box<dyn Error>> {
        Ok(Self(match secret {
            Some(secret) if secret.trim().is_empty() => {
                return Err("`DESK_SECRET` is empty; unset it, or write `export DESK_SECRET=$(head -c 32 /dev/urandom | base64)`".into());
            }
            Some(secret) => Key::new(HMAC_SHA256, secret.as_bytes()),
            None => Key::generate(HMAC_SHA256, &SystemRandom::new())
                .map_err(|_| "the system has no random numbers")?,
        }))
    }

    /// Returns the cookie of a user who knows the password: for this example, the name and `-pw`.
    pub(crate) fn log_in(&self, login: &Login) -> Option<String> {
        principal(&login.name).filter(|user| login.password == format!("{}-pw", user.name()))?;
        let claim = format!("{}.{}", login.name, (now() + LOGIN_TIME).as_secs());
        let tag = BASE64.encode(hmac::sign(&self.0, claim.as_bytes()));
        Some(format!("desk={claim}.{tag}; HttpOnly; SameSite=Strict; Path=/"))
    }

    /// Returns the sender of a request.
    pub(crate) fn sender(&self, headers: &HeaderMap) -> Option<Principal> {
        let cookies = headers.get(header::COOKIE)?.to_str().ok()?;
        let (claim, tag) =
            cookies.split("; ").find_map(|cookie| cookie.strip_prefix("desk="))?.rsplit_once('.')?;
        hmac::verify(&self.0, claim.as_bytes(), &BASE64.decode(tag).ok()?).ok()?;
        let (name, end) = claim.rsplit_once('.')?;
        let is_over = Duration::from_secs(end.parse().ok()?) < now();
        principal(name).filter(|_| !is_over)
    }
}

/// Returns the time since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns a number that nobody can guess.
pub(crate) fn nonce() -> Result<String, Unspecified> {
    let number: [u8; 16] = rand::generate(&SystemRandom::new())?.expose();
    Ok(BASE64.encode(number))
}
