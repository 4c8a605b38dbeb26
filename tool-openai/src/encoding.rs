//! How an answer is encoded: plain, as nothing else is asked for. What is not unpacked cannot be a bomb.

use reqwest::Response;
use reqwest::header::CONTENT_ENCODING;

use crate::Error;

/// Refuses an answer that is compressed; servers that do so without being asked are told of by name, as what they send
/// looks like garbage.
pub(crate) fn check(response: &Response) -> Result<(), Error> {
    let encodings = response.headers().get_all(CONTENT_ENCODING).iter();
    for encoding in encodings.map(|value| value.to_str().unwrap_or("unreadable").trim()) {
        if !encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity") {
            return Err(Error::invalid_response(format!(
                "the answer is compressed ({encoding}), which was not asked for; have the server, or a proxy before it, send \
                 it plain"
            )));
        }
    }
    Ok(())
}
