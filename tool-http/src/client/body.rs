//! Bodies of responses, read up to a limit.

use bytes::Bytes;
use reqwest::Response;

/// The body of a response up to a limit.
#[derive(Clone, Debug)]
pub struct BodyStart {
    /// At most as many bytes as the limit.
    pub bytes: Bytes,
    /// The body is longer than the limit.
    pub is_truncated: bool,
}

/// Reads at most `limit` bytes of a body. The rest is not read; if there is any, the connection is closed when the response is
/// dropped.
///
/// # Errors
///
/// Returns an error, without the URL, if the connection fails.
pub async fn read_body(response: &mut Response, limit: usize) -> reqwest::Result<BodyStart> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(reqwest::Error::without_url)? {
        let fitting = chunk.len().min(limit - body.len());
        body.extend_from_slice(&chunk[..fitting]);
        if fitting < chunk.len() {
            return Ok(BodyStart { bytes: body.into(), is_truncated: true });
        }
    }
    Ok(BodyStart { bytes: body.into(), is_truncated: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reads_up_to_the_limit() {
        for (limit, expected, is_truncated) in
            [(0, "", true), (2, "ab", true), (3, "abc", false), (9, "abc", false)]
        {
            let mut response = Response::from(http::Response::new("abc"));
            let body = read_body(&mut response, limit).await.unwrap();
            assert_eq!((&*body.bytes, body.is_truncated), (expected.as_bytes(), is_truncated), "{limit}");
        }
    }
}
