//! Unguessable texts, and digests of them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};

use super::error::OAuthError;

/// Returns 256 random bits in 43 characters that need no escapes.
pub(super) fn random_text() -> Result<String, OAuthError> {
    let mut bytes = [0; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| OAuthError::failed("the system has no random numbers"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Returns the SHA-256 digest of a text; of a verifier, it is the challenge of the method `S256`.
pub(super) fn digest(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_is_that_of_the_standard() {
        // <https://www.rfc-editor.org/rfc/rfc7636#appendix-B>
        let challenge = digest("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
        assert_eq!(challenge, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn texts_differ_and_are_long_enough_for_a_verifier() {
        let (one, other) = (random_text().unwrap(), random_text().unwrap());
        assert!(one != other && one.len() == 43);
    }
}
