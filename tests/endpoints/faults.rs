//! Errors between the client and an endpoint: they are clear, arrive in time, and do not contain the key.

use std::error::Error as _;
use std::time::Duration;

use futures_util::StreamExt;
use tests::support::{RawServer, whole_answer};
use tool_core::model::{ChatRequest, Delta};
use tool_core::{Agent, ChatModel, Message};
use tool_openai::{ErrorKind, OpenAi, OpenAiBuilder};

/// Returns a client whose read timeout is the earliest of all deadlines. A test waits for it only on a paused clock.
fn client(base_url: &str) -> OpenAi {
    OpenAi::builder()
        .base_url(base_url)
        .api_key("sk-very-secret-key")
        .connect_timeout(Duration::from_secs(120))
        .read_timeout(Duration::from_secs(60))
        .max_retries(0)
        .build()
        .unwrap()
}

/// The time for which a silent server keeps a connection.
const SILENCE: Duration = Duration::from_secs(600);

/// Returns the error of a request after checking that no part of it contains the key.
async fn failure(base_url: &str) -> tool_openai::Error {
    let model = client(base_url).chat_model("m");
    let request = ChatRequest::new([Message::user("Hello")]);
    let streamed = model.stream(&request).next().await.unwrap().unwrap_err();
    let run = Agent::builder(model).build().unwrap().ask("Hello").await.unwrap_err();
    let tool_core::RunErrorKind::Model(error) = run.kind() else { panic!("{run}") };
    assert_eq!(streamed.to_string(), error.to_string());
    let mut shown = format!("{run} {run:?} {error} {error:?} {streamed:?}");
    let mut source = run.source();
    while let Some(error) = source {
        shown.push_str(&format!(" {error} {error:?}"));
        source = error.source();
    }
    assert!(!shown.contains("sk-very-secret-key"), "{shown}");
    let kind = downcast(streamed);
    assert!(shown.contains(&kind.to_string()));
    kind
}

fn downcast(error: tool_core::model::ModelError) -> tool_openai::Error {
    error.downcast().unwrap()
}

#[tokio::test]
async fn reports_a_refused_connection() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = failure(&format!("http://{address}/v1")).await;
    assert_eq!(error.kind(), ErrorKind::Connect);
    let cause = std::net::TcpStream::connect(address).unwrap_err();
    let text = format!("could not connect to http://{address}/v1/chat/completions: {cause}");
    assert_eq!([error.to_string(), format!("{error:?}")], [text.clone(), text]);
}

#[tokio::test(start_paused = true)]
async fn reports_a_timeout() {
    let server = RawServer::start(vec![vec![]], SILENCE).await;
    let error = failure(&server.base_url()).await;
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
    assert_eq!(error.to_string(), format!("POST {}/chat/completions timed out", server.base_url()));
}

#[tokio::test]
async fn reports_an_invalid_key() {
    let body = br#"{"error": {"message": "Incorrect API key provided: sk-very-secret-key.", "type": "invalid_request_error", "param": null, "code": "invalid_api_key"}}"#;
    let headers = [("content-type", "application/json"), ("x-request-id", "req_1")];
    let server = RawServer::answering("401 Unauthorized", &headers, body).await;
    let error = failure(&server.base_url()).await;
    assert_eq!((error.status(), error.code()), (Some(401), Some("invalid_api_key")));
    assert_eq!(error.error_type(), Some("invalid_request_error"));
    let expected = format!(
        "POST {}/chat/completions failed with status 401, invalid_api_key: Incorrect API key provided: [key]. (request req_1)",
        server.base_url()
    );
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn reports_an_html_answer() {
    let body = b"<!doctype html>\n<html><head><title>Welcome to nginx!</title></head></html>";
    let server = RawServer::answering("200 OK", &[("content-type", "text/html; charset=utf-8")], body).await;
    let error = failure(&server.base_url()).await;
    assert_eq!(error.kind(), ErrorKind::InvalidResponse);
    let expected = format!(
        "POST {}/chat/completions answered with HTML: `<!doctype html> <html><head><title>Welcome to nginx!</title></head></html>`; check the base URL",
        server.base_url()
    );
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.body().map(str::as_bytes), Some(&body[..]));

    let server =
        RawServer::answering("502 Bad Gateway", &[("content-type", "text/html")], b"<html>502</html>").await;
    let error = failure(&server.base_url()).await;
    assert_eq!(error.status(), Some(502));
    let expected = format!(
        "POST {}/chat/completions answered with HTML with status 502: `<html>502</html>`",
        server.base_url()
    );
    assert_eq!(error.to_string(), expected);
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_404_suggests_checking_the_base_url() {
    let headers = [("content-type", "text/plain"), ("x-request-id", "req_1")];
    for (body, expected) in [
        ("404 page not found", ": unexpected text `404 page not found`; check the base URL (request req_1)"),
        (r#"{"detail": "Not Found"}"#, ": Not Found; check the base URL (request req_1)"),
        (
            r#"{"error": {"message": "no model m", "code": "model_not_found"}}"#,
            ", model_not_found: no model m (request req_1)",
        ),
    ] {
        let server = RawServer::answering("404 Not Found", &headers, body.as_bytes()).await;
        let error = failure(&server.base_url()).await;
        assert_eq!(
            error.to_string(),
            format!("POST {}/chat/completions failed with status 404{expected}", server.base_url())
        );
    }
}

/// Most servers have their API below `/v1`, and report another path as missing in their own form.
#[tokio::test]
async fn a_404_without_a_version_suggests_one() {
    for (status, body) in [
        ("404 Not Found", r#"{"detail": "Not Found"}"#),
        (
            "404 Not Found",
            r#"{"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}"#,
        ),
        ("405 Method Not Allowed", r#"{"detail": "Method Not Allowed"}"#),
        ("404 Not Found", "<html>404</html>"),
        ("200 OK", "<html>It works!</html>"),
    ] {
        let server = RawServer::answering(status, &[], body.as_bytes()).await;
        let error = failure(&format!("http://{}", server.address)).await.to_string();
        let hint = format!("; check the base URL, did you mean `{}`?", server.base_url());
        assert!(error.ends_with(&hint), "{error}");
    }
    let missing_model = br#"{"error": {"message": "no model m", "code": "model_not_found"}}"#;
    let server = RawServer::answering("404 Not Found", &[], missing_model).await;
    let error = failure(&format!("http://{}", server.address)).await.to_string();
    assert!(error.ends_with("model_not_found: no model m"), "{error}");
}

#[tokio::test]
async fn errors_of_an_answer_contain_the_request_id() {
    let name = " (request req_1)";
    for (kind, body) in [("text/html", "<p>Hello</p>"), ("application/json", r#"{"choices": []}"#)] {
        let headers = [("content-type", kind), ("x-request-id", "req_1")];
        let server = RawServer::answering("200 OK", &headers, body.as_bytes()).await;
        let error = failure(&server.base_url()).await.to_string();
        assert!(error.ends_with(name), "{error}");
    }
    let chunk = b"data: {\"choices\": [{\"index\": 0, \"delta\": {\"content\": \"Half of an\"}}]}\n\n";
    let headers = [("content-type", "text/event-stream"), ("x-request-id", "req_1")];
    let server = RawServer::answering("200 OK", &headers, chunk).await;
    let model = client(&server.base_url()).chat_model("m");
    let request = ChatRequest::new([Message::user("Hello")]);
    let error =
        downcast(model.stream(&request).filter_map(async |delta| delta.err()).boxed().next().await.unwrap());
    assert!(error.kind() == ErrorKind::Incomplete && error.to_string().ends_with(name), "{error}");
}

#[tokio::test]
async fn reports_a_missing_key() {
    let ask = async |builder: OpenAiBuilder| {
        let body = br#"{"error": {"message": "Who are you?", "code": "invalid_api_key"}}"#;
        let headers = [("content-type", "application/json")];
        let server = RawServer::answering("401 Unauthorized", &headers, body).await;
        let model = builder.base_url(server.base_url()).build().unwrap().chat_model("m");
        let error = downcast(model.chat(&ChatRequest::new([Message::user("Hello")])).await.unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Authentication);
        error.to_string()
    };
    let hint = "no key was sent, set one with `api_key`, `api_key_from_env` or `token_source`";
    assert!(ask(OpenAi::builder()).await.ends_with(hint));
    for builder in
        [OpenAi::builder().api_key("sk-wrong"), OpenAi::builder().header("authorization", "Basic dTpw")]
    {
        assert!(!ask(builder).await.contains(hint));
    }
}

#[tokio::test]
async fn reports_an_answer_that_is_not_http() {
    let server = RawServer::start(vec![b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()], Duration::ZERO).await;
    let error = failure(&server.base_url()).await;
    assert!(error.to_string().ends_with("failed"), "{error}");
    let server = RawServer::answering("200 OK", &[("content-type", "application/json")], b"").await;
    let error = failure(&server.base_url()).await;
    assert_eq!(error.kind(), ErrorKind::InvalidResponse, "{error}");
}

#[tokio::test]
async fn does_not_follow_redirects() {
    let other = RawServer::answering("200 OK", &[("content-type", "application/json")], b"{}").await;
    let location = other.base_url();
    let server = RawServer::answering("307 Temporary Redirect", &[("location", &location)], b"").await;
    let error = failure(&server.base_url()).await;
    assert_eq!(
        error.to_string(),
        format!(
            "POST {}/chat/completions is redirected to {location} (status 307); use that as the base URL",
            server.base_url()
        )
    );
    assert!(other.requests().is_empty());
}

/// Returns an answer with a chunked body, so that an early end is a connection error.
fn chunked(chunks: &[&str]) -> Vec<u8> {
    let mut answer = String::from(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    );
    for chunk in chunks {
        let data = format!("data: {chunk}\n\n");
        answer.push_str(&format!("{:x}\r\n{data}\r\n", data.len()));
    }
    answer.into_bytes()
}

const TEXT: &str = r#"{"choices":[{"delta":{"content":"It is"}}]}"#;
const FINISH: &str = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;

#[tokio::test]
async fn a_broken_stream_keeps_the_partial_response() {
    let plain = whole_answer(
        "200 OK",
        &[("content-type", "text/event-stream")],
        format!("data: {TEXT}\n\n").as_bytes(),
    );
    let request = ChatRequest::new([Message::user("Hello")]);
    // The connection ends, breaks, and stays silent.
    let cases = [(plain, Duration::ZERO), (chunked(&[TEXT]), Duration::ZERO), (chunked(&[TEXT]), SILENCE)];
    for (answer, pause) in cases {
        let server = RawServer::start(vec![answer], pause).await;
        let model = client(&server.base_url()).chat_model("m");
        let mut deltas = model.stream(&request);
        assert_eq!(deltas.next().await.unwrap().unwrap(), Delta::Text("It is".into()));
        let is_silent = !pause.is_zero();
        if is_silent {
            tokio::time::pause();
        }
        let error = downcast(deltas.next().await.unwrap().unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Incomplete, "{error:?}");
        assert_eq!(error.is_timeout(), is_silent, "{error:?}");
        assert_eq!(error.partial().unwrap().message.text, "It is");
        assert!(deltas.next().await.is_none());
    }
}

#[tokio::test]
async fn a_stream_that_breaks_after_its_end_is_complete() {
    let server = RawServer::start(vec![chunked(&[TEXT, FINISH])], Duration::ZERO).await;
    let model = client(&server.base_url()).chat_model("m");
    let request = ChatRequest::new([Message::user("Hello")]);
    let last = model.stream(&request).map(Result::unwrap).collect::<Vec<_>>().await.pop();
    assert!(matches!(last, Some(Delta::Done(response)) if response.message.text == "It is"));
}

#[tokio::test]
async fn an_empty_stream_is_an_error() {
    let server = RawServer::start(vec![chunked(&["[DONE]"])], Duration::ZERO).await;
    let error = failure_of_stream(&client(&server.base_url())).await;
    let expected =
        format!("POST {}/chat/completions: the stream ended before the response started", server.base_url());
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn rejects_an_endless_line() {
    let part = vec![b'x'; 1 << 20];
    let mut parts = vec![whole_answer("200 OK", &[("content-type", "text/event-stream")], b"data: ")];
    parts.extend(std::iter::repeat_n(part, 70));
    let server = RawServer::start(parts, Duration::ZERO).await;
    let error = failure_of_stream(&client(&server.base_url())).await;
    assert_eq!(error.kind(), ErrorKind::Incomplete);
    assert!(format!("{error:?}").ends_with("the stream is longer than 67108864 bytes"), "{error:?}");
}

async fn failure_of_stream(client: &OpenAi) -> tool_openai::Error {
    let model = client.chat_model("m");
    let request = ChatRequest::new([Message::user("Hello")]);
    downcast(model.stream(&request).next().await.unwrap().unwrap_err())
}

#[tokio::test]
async fn hides_a_key_that_the_server_repeats() {
    let body = br#"{"error": {"message": "bad key sk-very\u002dsecret-key", "code": "sk-very-secret-key"}}"#;
    let headers = [("x-request-id", "sk-very-secret-key")];
    let server = RawServer::answering("400 Bad Request", &headers, body).await;
    let error = failure(&server.base_url()).await;
    let expected = format!(
        "POST {}/chat/completions failed with status 400, [key]: bad key [key] (request [key])",
        server.base_url()
    );
    assert_eq!(error.to_string(), expected);
    let headers = [("location", "http://elsewhere/?key=sk-very-secret-key")];
    let server = RawServer::answering("302 Found", &headers, b"").await;
    failure(&server.base_url()).await;
    // The excerpt of the body ends in the middle of the key.
    for length in 96..120 {
        let body = format!("<html>{:length$}sk-very-secret-key", "").replace(' ', "x");
        let server = RawServer::answering("502 Bad Gateway", &[], body.as_bytes()).await;
        let text = failure(&server.base_url()).await.to_string();
        assert!(!text.contains("sk"), "{text}");
    }
    // One secret can be a part of another.
    let body = br#"{"error": {"message": "bad key sk-very-secret-and-more"}}"#;
    let server = RawServer::answering("400 Bad Request", &[], body).await;
    let builder = OpenAi::builder().base_url(server.base_url()).api_key("sk-very-secret-key").max_retries(0);
    let model = builder.header("x-key", "sk-very-secret-and-more").build().unwrap().chat_model("m");
    let request = ChatRequest::new([Message::user("Hello")]);
    let error = model.stream(&request).next().await.unwrap().unwrap_err();
    assert!(!error.to_string().contains("and-more"), "{error}");
    let body =
        br#"{"error": {"message": "no", "code": "tool_use_failed", "failed_generation": "sk-very-secret-key"}}"#;
    let server = RawServer::answering("400 Bad Request", &[], body).await;
    assert_eq!(failure(&server.base_url()).await.failed_generation(), Some("[key]"));
}

/// A query may contain a secret, and redirecting servers repeat it.
#[tokio::test]
async fn hides_the_query_of_a_url() {
    let headers = [("location", "/v1/chat/completions/?key=secret#there")];
    let server = RawServer::answering("307 Temporary Redirect", &headers, b"").await;
    let error = failure(&format!("{}?key=secret", server.base_url())).await;
    assert_eq!(
        error.to_string(),
        format!(
            "POST {}/chat/completions is redirected to /v1/chat/completions/ (status 307); use that as the base URL",
            server.base_url()
        )
    );
    let headers = [("location", "https://user:password@elsewhere/v1?key=secret")];
    let server = RawServer::answering("307 Temporary Redirect", &headers, b"").await;
    let error = failure(&server.base_url()).await.to_string();
    assert!(error.contains("is redirected to https://elsewhere/v1 (status 307)"), "{error}");
    // The server repeats it, as it was sent and decoded, also in what is no error of the API.
    let key = "an+18%2Dcharacter+key";
    for body in [
        r#"{"error": {"message": "an 18-character key or an+18%2Dcharacter+key"}}"#,
        r#"{"choices": "an 18-character key"}"#,
        r#"{"choices": "an+18%2Dcharacter+key"}"#,
    ] {
        for status in ["400 Bad Request", "200 OK"] {
            let server = RawServer::answering(status, &[], body.as_bytes()).await.unchecked();
            let error = failure(&format!("{}?key={key}", server.base_url())).await;
            let text = format!("{error} {error:?}");
            assert!(!text.contains("18-") && !text.contains("18%2D"), "{text}");
        }
    }
    let builder = OpenAi::builder().base_url("http://user:password@localhost/v1?key=secret");
    let text = format!("{builder:?} {:?}", OpenAi::builder().base_url("localhost:80/v1?key=secret").build());
    assert!(!text.contains("secret") && !text.contains("password"), "{text}");
}

#[test]
fn reports_a_missing_environment_variable() {
    // The test does not set environment variables, so only a missing key can be checked.
    if std::env::var_os("OPENAI_API_KEY").is_none() && std::env::var_os("OPENAI_BASE_URL").is_none() {
        let error = OpenAi::from_env().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        let expected = "the environment variable OPENAI_API_KEY is not set; set it, or set OPENAI_BASE_URL to a server that needs no key";
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test]
async fn hides_a_header_that_the_server_repeats() {
    let body = br#"{"error": {"message": "who is gateway-very-secret of blue?"}}"#;
    let server = RawServer::answering("400 Bad Request", &[], body).await;
    let openai = OpenAi::builder().base_url(server.base_url()).max_retries(0);
    let openai = openai.header("x-gateway", "gateway-very-secret").header("x-team", "blue").build().unwrap();
    let request = ChatRequest::new([Message::user("Hello")]);
    let error = downcast(openai.chat_model("m").chat(&request).await.unwrap_err());
    assert_eq!(error.message(), Some("who is [key] of blue?"));
}
