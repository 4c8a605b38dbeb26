//! Receives one redirect on a port of this machine (RFC 8252, section 7.3).

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use reqwest::Url;
use subtle::ConstantTimeEq;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::error::OAuthError;

const PATH: &str = "/callback";

/// The number of connections at a time. Browsers open some without a request.
const MAX_CONNECTIONS: usize = 16;

/// The longest time of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest request, in bytes.
const MAX_REQUEST_BYTES: usize = 16 << 10;

const RECEIVED: &str = "The answer was received. You can close this page and return to the program.";

pub(super) struct Loopback {
    listener: TcpListener,
    port: u16,
}

impl Loopback {
    /// Listens on a port of `127.0.0.1`; 0 lets the system choose one.
    pub(super) async fn bind(port: u16) -> Result<Self, OAuthError> {
        let failed = |error| {
            OAuthError::failed(format!(
                "the port {port} of 127.0.0.1 cannot receive the login: {error}; set another one with `Login::port`"
            ))
        };
        let listener = TcpListener::bind(("127.0.0.1", port)).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Self { listener, port })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn redirect_uri(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// Waits for the redirect with this `state`, and returns its path and query. All other requests are rejected. No other redirect
    /// is received afterwards.
    pub(super) async fn receive(self, state: &str) -> String {
        let mut connections = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        connections.push(tokio::time::timeout(CONNECTION_TIMEOUT, self.serve(stream, state)));
                    }
                    // Such as too many open files.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                },
                Some(served) = connections.next() => {
                    if let Ok(Some(redirect)) = served {
                        return redirect;
                    }
                }
            }
        }
    }

    /// Answers one request. Returns the target of the redirect.
    async fn serve(&self, mut stream: TcpStream, state: &str) -> Option<String> {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut buffer = [0; 1024];
            let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
            request.extend_from_slice(&buffer[..count]);
            if request.len() > MAX_REQUEST_BYTES {
                return None;
            }
        }
        let redirect = std::str::from_utf8(&request).ok().and_then(|request| self.target(request, state));
        let (status, text) = match &redirect {
            Some(_) => ("200 OK", RECEIVED),
            None => ("400 Bad Request", "This is not the answer that the program waits for."),
        };
        let response = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\
             Connection: close\r\n\r\n{text}",
            text.len()
        );
        // The login succeeds even if the browser does not read the page.
        let _ = stream.write_all(response.as_bytes()).await;
        let _ = stream.shutdown().await;
        redirect
    }

    /// Returns the target of a request that is the redirect.
    fn target(&self, request: &str, state: &str) -> Option<String> {
        let mut lines = request.split("\r\n");
        let (method, target) = lines.next()?.strip_suffix(" HTTP/1.1")?.split_once(' ')?;
        let headers = lines.filter_map(|line| line.split_once(':'));
        let hosts: Vec<_> = headers.filter(|(name, _)| name.eq_ignore_ascii_case("host")).collect();
        // Pages of other hosts whose names lead to this machine have another `Host`.
        let is_for_us = matches!(&*hosts, [(_, host)] if host.trim() == format!("127.0.0.1:{}", self.port));
        let (path, _) = target.split_once('?')?;
        let url: Url = self.redirect_uri().parse::<Url>().ok()?.join(target).ok()?;
        let states: Vec<_> = url.query_pairs().filter(|(name, _)| name == "state").collect();
        let has_state = matches!(&*states, [(_, found)] if found.as_bytes().ct_eq(state.as_bytes()).into());
        (method == "GET" && path == PATH && is_for_us && has_state).then(|| target.to_owned())
    }
}
