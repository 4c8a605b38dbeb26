//! Models behind clouds, against a server with their documented routes, bodies and errors. Nothing here was tried against the clouds.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};
use tests::support::{RawServer, whole_answer};
use tokio::net::TcpListener;
use tool_anthropic::{Anthropic, Messages};
use tool_core::model::ChatRequest;
use tool_core::provider::ModelInfo;
use tool_core::{Agent, ChatModel, Message, ModelOptions};
use tool_openai::{AwsCredentials, Error, ErrorKind, OpenAi, Token};

use crate::responses::endpoint::{event_stream, json_answer};

fn question() -> ChatRequest<'static> {
    ChatRequest::new([Message::user("Hello")])
}

fn hello() -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "content": [{ "type": "text", "text": "Hi." }], "usage": { "input_tokens": 1, "output_tokens": 1 },
    })
}

/// The path, the value of a header and the body of each request.
fn sent(server: &RawServer, header: &str) -> Vec<(String, Option<String>, Value)> {
    let parse = |request: String| {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let value = head.lines().find_map(|line| line.strip_prefix(header)?.strip_prefix(": "));
        (path, value.map(str::to_owned), serde_json::from_str(body).unwrap_or_default())
    };
    server.requests().into_iter().map(parse).collect()
}

fn claude(endpoint: tool_anthropic::Endpoint, base_url: String, model: &str) -> Messages {
    let builder = Anthropic::builder().endpoint(endpoint).base_url(base_url).api_key("k").max_retries(0);
    builder.build().unwrap().chat_model(model)
}

#[tokio::test]
async fn vertex_has_the_model_in_the_path_and_the_version_in_the_body() {
    let stream = [
        json!({ "type": "message_start", "message": { "id": "msg_1", "usage": { "input_tokens": 1, "output_tokens": 1 } } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "Hi." } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 1 } }),
        json!({ "type": "message_stop" }),
    ];
    let stream: String = stream.iter().map(|event| format!("data: {event}\n\n")).collect();
    let stream = whole_answer("200 OK", &[("content-type", "text/event-stream")], stream.as_bytes());
    let answers = vec![json_answer(&hello()), stream, json_answer(&json!({ "input_tokens": 7 }))];
    let server = RawServer::answering_in_turn(answers).await.unchecked();
    let base_url = format!("{}/projects/p/locations/eu/publishers/anthropic/models", server.base_url());
    let endpoint = tool_anthropic::Endpoint::vertex("p", "eu");
    let model = claude(endpoint, base_url, "claude-sonnet-4@20250514;x/../y");
    assert_eq!(model.chat(&question()).await.unwrap().message.text, "Hi.");
    let request = question();
    let mut deltas = model.stream(&request);
    while let Some(delta) = deltas.next().await {
        delta.unwrap();
    }
    assert_eq!(model.count_tokens(&question()).await.unwrap(), Some(7));
    // There is no list of models: nothing is sent.
    assert_eq!(model.model_info().await.unwrap(), None::<ModelInfo>);

    let models = "/v1/projects/p/locations/eu/publishers/anthropic/models";
    let name = "claude-sonnet-4@20250514%3Bx%2F..%2Fy";
    let sent = sent(&server, "anthropic-version");
    let paths: Vec<_> = sent.iter().map(|(path, version, _)| (&**path, version.as_deref())).collect();
    assert_eq!(
        paths,
        [
            (&*format!("{models}/{name}:rawPredict"), None),
            (&*format!("{models}/{name}:streamRawPredict"), None),
            (&*format!("{models}/count-tokens:rawPredict"), None),
        ]
    );
    let fields = |index: usize| {
        let (_, _, body) = &sent[index];
        ["anthropic_version", "model", "stream"].map(|name| body.get(name).cloned().unwrap_or_default())
    };
    let (version, model) = (json!("2026-10-21"), json!("claude-sonnet-4@20250514;x/../y"));
    assert_eq!(fields(0), [version.clone(), Value::Null, Value::Null]);
    assert_eq!(fields(1), [version.clone(), Value::Null, json!(true)]);
    assert_eq!(fields(2), [version, model, Value::Null]);
}

/// The recordings are made by `clouds/sdk/run`.
#[tokio::test]
async fn requests_are_those_of_the_official_clients() {
    let recorded: BTreeMap<String, Value> =
        serde_json::from_str(include_str!("../wire/clouds/requests.json")).unwrap();
    let mut found = BTreeMap::new();
    let mut answer = hello();
    answer["input_tokens"] = json!(1);
    answer["choices"] = json!([{ "message": { "content": "Hi." }, "finish_reason": "stop" }]);
    answer["output"] = json!([{ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Hi." }] }]);
    let source = || async { Ok::<_, std::io::Error>(Token::new("a-token-of-a-cloud")) };
    let options = ModelOptions::default().with_max_output_tokens(9);
    let request = question().with_options(options);
    let vertex = "/v1/projects/p/locations/eu/publishers/anthropic/models";
    for (endpoint, path, name) in [
        (tool_anthropic::Endpoint::vertex("p", "eu"), vertex, "claude-sonnet-4@20250514;x"),
        (tool_anthropic::Endpoint::foundry("r"), "/anthropic", "m"),
        (tool_anthropic::Endpoint::bedrock("eu-west-1"), "/anthropic", "m"),
        (tool_anthropic::Endpoint::bedrock_mantle("eu-west-1"), "/anthropic", "m"),
        (tool_anthropic::Endpoint::aws("eu-west-1", "wrkspc_1"), "", "m"),
    ] {
        let server = RawServer::start(vec![json_answer(&answer)], Duration::ZERO).await.unchecked();
        let cloud = endpoint.name.clone();
        let builder =
            Anthropic::builder().endpoint(endpoint).base_url(format!("http://{}{path}", server.address));
        let model = builder.token_source(source).build().unwrap().chat_model(name);
        model.chat(&request).await.unwrap();
        let mut deltas = model.stream(&request);
        while let Some(delta) = deltas.next().await {
            delta.unwrap();
        }
        // Nothing is sent to Bedrock's runtime, which counts no tokens.
        model.count_tokens(&request).await.unwrap();
        let names = ["reply", "stream", "count"].map(|kind| format!("{cloud} {kind}"));
        found.extend(names.into_iter().zip(server.requests().iter().map(|request| recording(request))));
    }
    for (name, endpoint, path) in [
        ("azure", tool_openai::Endpoint::foundry("r"), "/openai/v1"),
        ("bedrock", tool_openai::Endpoint::bedrock("eu-west-1"), "/openai/v1"),
        ("bedrock-mantle", tool_openai::Endpoint::bedrock_mantle("eu-west-1"), "/openai/v1"),
        ("vertex", tool_openai::Endpoint::vertex("p", "eu"), "/v1/projects/p/locations/eu/endpoints/openapi"),
        // OpenAI's models there have no chat completions.
        (
            "vertex responses",
            tool_openai::Endpoint::vertex("p", "eu"),
            "/v1/projects/p/locations/eu/publishers/openai/v1",
        ),
    ] {
        let server = RawServer::start(vec![json_answer(&answer)], Duration::ZERO).await;
        let builder =
            OpenAi::builder().endpoint(endpoint).base_url(format!("http://{}{path}", server.address));
        let client = builder.token_source(source).build().unwrap();
        match name {
            "vertex responses" => client.responses_model("m").chat(&question()).await.unwrap(),
            _ => client.chat_model("m").chat(&question()).await.unwrap(),
        };
        found.insert(name.to_owned(), recording(&server.requests()[0]));
    }
    assert_eq!(found.keys().collect::<Vec<_>>(), recorded.keys().collect::<Vec<_>>());
    for (name, recorded) in recorded {
        assert_eq!(found[&name], recorded, "{name}");
    }
}

/// Returns a request in the form of the recordings.
fn recording(request: &str) -> Value {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let names = ["anthropic-version", "anthropic-workspace-id", "api-key", "authorization", "x-api-key"];
    let headers = head.lines().filter_map(|line| line.split_once(": "));
    let headers: BTreeMap<_, _> = headers.filter(|(name, _)| names.contains(name)).collect();
    let body: Value = serde_json::from_str(body).unwrap();
    json!({ "path": head.split(' ').nth(1).unwrap(), "headers": headers, "body": body })
}

#[tokio::test]
async fn what_bedrock_lacks_is_not_requested() {
    let server = RawServer::answering_in_turn(vec![]).await;
    let model = claude(tool_anthropic::Endpoint::bedrock("eu-west-1"), server.base_url(), "m");
    assert_eq!(model.count_tokens(&question()).await.unwrap(), None);
    assert_eq!(model.model_info().await.unwrap(), None::<ModelInfo>);
    assert!(!model.supports_response_format());
    for (endpoint, field) in [
        (tool_anthropic::Endpoint::bedrock("eu-west-1"), "inference_geo"),
        (tool_anthropic::Endpoint::vertex("p", "eu"), "cache_control"),
    ] {
        let name = endpoint.name.clone();
        let model = claude(endpoint, server.base_url(), "m");
        let options = ModelOptions::default().with_extra(field, "x");
        let error = model.chat(&question().with_options(options)).await.unwrap_err();
        let text = format!("the endpoint `{name}` refuses the extra field `{field}`; leave it out");
        assert_eq!((error.to_string(), error.is_permanent()), (text, true));
    }
    assert_eq!(server.requests(), [""; 0]);
}

/// The bodies are those of the public reports that the presets were made from.
#[tokio::test]
async fn errors_of_clouds_are_explained() {
    let unknown =
        r#"{"Output":{"__type":"com.amazon.coral.service#UnknownOperationException"},"Version":"1.0"}"#;
    let table = [
        (
            "200 OK",
            unknown,
            ErrorKind::Server,
            "failed, UnknownOperationException: com.amazon.coral.service#UnknownOperationException",
        ),
        (
            "403 Forbidden",
            r#"{"Message":"Bearer Token has expired"}"#,
            ErrorKind::Authentication,
            "failed with status 403: Bearer Token has expired",
        ),
        (
            "401 Unauthorized",
            r#"[{"error":{"code":401,"message":"Request had invalid authentication credentials.","status":"UNAUTHENTICATED"}}]"#,
            ErrorKind::Authentication,
            "failed with status 401, UNAUTHENTICATED: Request had invalid authentication credentials.",
        ),
        (
            "400 Bad Request",
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"tools.0.strict: Extra inputs are not permitted"}}"#,
            ErrorKind::InvalidRequest,
            "failed with status 400, invalid_request_error: tools.0.strict: Extra inputs are not permitted",
        ),
    ];
    for (status, body, kind, expected) in table {
        let server =
            RawServer::answering(status, &[("content-type", "application/json")], body.as_bytes()).await;
        let url = server.base_url();
        let claude = claude(tool_anthropic::Endpoint::bedrock("eu-west-1"), url.clone(), "m");
        let openai = OpenAi::builder().endpoint(tool_openai::Endpoint::bedrock("eu-west-1")).base_url(url);
        let openai = openai.api_key("k").max_retries(0).build().unwrap().chat_model("m");
        for model in [&claude as &dyn ChatModel, &openai] {
            let error = model.chat(&question()).await.unwrap_err().downcast::<Error>().unwrap();
            let text = error.to_string();
            assert_eq!(
                (error.kind(), text.split_once(' ').unwrap().1.split_once(' ').unwrap().1),
                (kind, expected)
            );
        }
    }
}

#[tokio::test]
async fn the_platform_on_aws_gets_the_workspace() {
    let server = RawServer::answering_in_turn(vec![json_answer(&hello())]).await;
    let model = claude(tool_anthropic::Endpoint::aws("us-east-1", "wrkspc_1"), server.base_url(), "m");
    model.chat(&question()).await.unwrap();
    assert_eq!(sent(&server, "anthropic-workspace-id")[0].1.as_deref(), Some("wrkspc_1"));
}

#[tokio::test]
async fn bedrock_gets_a_key_that_was_signed_here() {
    let expired = whole_answer("403 Forbidden", &[], br#"{"Message":"Bearer Token has expired"}"#);
    let answers = vec![expired, json_answer(&hello())];
    let server = RawServer::answering_in_turn(answers).await;
    let number = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let credentials = move || {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let credentials = AwsCredentials::new(format!("AKID{number}"), "secret-access-key");
        async move { Ok::<_, std::io::Error>(credentials.session_token("secret-session-token")) }
    };
    let builder = Anthropic::builder()
        .endpoint(tool_anthropic::Endpoint::bedrock("eu-west-1"))
        .base_url(server.base_url());
    let builder = builder.token_source(tool_anthropic::bedrock_keys("eu-west-1", credentials));
    let agent = Agent::builder(builder.build().unwrap().chat_model("m")).build().unwrap();
    assert_eq!(agent.ask("Hello").await.unwrap().text(), "Hi.");
    let keys = sent(&server, "authorization");
    for (index, (_, key, _)) in keys.iter().enumerate() {
        let key = key.as_deref().unwrap().strip_prefix("Bearer bedrock-api-key-").unwrap();
        let url = String::from_utf8(decoded(key)).unwrap();
        let expected = format!(
            "bedrock.amazonaws.com/?Action=CallWithBearerToken&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKID{index}%2F"
        );
        assert!(
            url.starts_with(&expected) && url.contains("%2Feu-west-1%2Fbedrock%2Faws4_request&"),
            "{url}"
        );
        assert!(!url.contains("secret-access-key"), "{url}");
    }
    assert_eq!(keys.len(), 2);
}

/// A service quotes the request that it has signed itself, with the token of the session.
#[tokio::test]
async fn a_session_that_a_server_quotes_is_redacted() {
    let body = r#"{"message":"The Canonical String should have been 'X-Amz-Security-Token=secret%2Bsession%2Ftoken%3D'"}"#;
    let server = RawServer::answering("403 Forbidden", &[], body.as_bytes()).await;
    let credentials = || async {
        Ok::<_, std::io::Error>(AwsCredentials::new("AKID", "secret").session_token("secret+session/token="))
    };
    let builder =
        OpenAi::builder().endpoint(tool_openai::Endpoint::bedrock("eu-west-1")).base_url(server.base_url());
    let builder = builder.token_source(tool_openai::bedrock_keys("eu-west-1", credentials)).max_retries(0);
    let error = builder.build().unwrap().chat_model("m").chat(&question()).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("session"), "{shown}");
    assert!(shown.contains("X-Amz-Security-Token=[key]"), "{shown}");
}

/// A server can quote the key that it received without its start, only its end, or the request that it contains.
#[tokio::test]
async fn parts_of_a_key_that_a_server_quotes_are_redacted() {
    let quote = async |headers: HeaderMap| {
        let key = headers["authorization"].to_str().unwrap().strip_prefix("Bearer bedrock-api-key-").unwrap();
        let url = String::from_utf8(decoded(key)).unwrap();
        let (_, signature) = url.strip_suffix("&Version=1").unwrap().split_once("&X-Amz-Signature=").unwrap();
        assert_eq!(signature.len(), 64);
        let message = format!("{key} {} {signature} {url}", &key[key.len() - 110..]);
        (StatusCode::FORBIDDEN, json!({ "message": message }).to_string())
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let routes = Router::new().route("/v1/{*path}", post(quote));
    let server = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    // The signature starts at each of the three bytes that four characters are made of.
    for id in ["AKID", "AKIDA", "AKIDAB"] {
        let credentials = AwsCredentials::new(id, "secret").session_token("secret+session/token=");
        let credentials = move || ready(Ok::<_, std::io::Error>(credentials.clone()));
        let builder = OpenAi::builder().endpoint(tool_openai::Endpoint::bedrock("eu-west-1")).base_url(&url);
        let builder =
            builder.token_source(tool_openai::bedrock_keys("eu-west-1", credentials)).max_retries(0);
        let error = builder.build().unwrap().chat_model("m").chat(&question()).await.unwrap_err();
        let error = error.downcast::<Error>().unwrap();
        let parts: Vec<_> = error.message().unwrap().split(' ').collect();
        let [key, end, signature, request] = parts[..] else { panic!("{parts:?}") };
        assert_eq!((key, signature), ("[key]", "[key]"));
        // At most ten of the quoted characters are before the signature.
        assert!(end.ends_with("[key]") && end.len() < 16, "{end}");
        let signed = "&X-Amz-SignedHeaders=host&X-Amz-Security-Token=[key]&X-Amz-Signature=[key]&Version=1";
        assert!(request.ends_with(signed), "{request}");
    }
    server.abort();
}

/// Returns a completion with these tokens, whole or streamed.
fn completion((input, output): (u64, u64), is_streamed: bool) -> Vec<u8> {
    let usage =
        json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output });
    if is_streamed {
        let chunk = json!({ "choices": [{ "delta": { "content": "Hi." }, "finish_reason": "stop" }], "usage": usage });
        return event_stream(format!("data: {chunk}\n\ndata: [DONE]\n\n").as_bytes());
    }
    json_answer(
        &json!({ "choices": [{ "message": { "content": "Hi." }, "finish_reason": "stop" }], "usage": usage }),
    )
}

#[tokio::test]
async fn ollama_is_asked_once_for_the_context_and_a_full_one_is_reported() {
    let full = "the conversation has reached the 4096 tokens of context that the server uses for `qwen3`, beyond which it removes \
                earlier messages; set `OLLAMA_CONTEXT_LENGTH`, `num_ctx` in a Modelfile, or the context length in the settings of the app";
    let loaded = json_answer(&json!({ "models": [
        { "name": "other:8b", "context_length": 8 },
        { "name": "qwen3:latest", "context_length": 4096 },
    ] }));
    for is_streamed in [false, true] {
        // What the server reports, and the warnings after a request below the context and two that reach it.
        let table = [
            (loaded.clone(), vec![full, full]),
            (json_answer(&json!({ "models": [{ "name": "other", "context_length": 8 }] })), vec![]),
            (json_answer(&json!({ "models": [{ "name": "qwen3:latest" }] })), vec![]),
            (whole_answer("404 Not Found", &[], b""), vec![]),
        ];
        for (list, expected) in table {
            let replies = [(4000, 95), (4000, 96), (1, 5000)].map(|tokens| completion(tokens, is_streamed));
            let [first, second, third] = replies;
            let server = RawServer::answering_in_turn(vec![first, list, second, third]).await.unchecked();
            let warnings = Arc::new(Mutex::new(Vec::new()));
            let seen = Arc::clone(&warnings);
            let builder =
                OpenAi::builder().endpoint(tool_openai::Endpoint::ollama()).base_url(server.base_url());
            let builder = builder.max_retries(0).max_concurrent_requests(1);
            let builder = builder.on_warning(move |warning| seen.lock().unwrap().push(warning.to_string()));
            let model = builder.build().unwrap().chat_model("qwen3");
            for _ in 0..3 {
                if is_streamed {
                    let request = question();
                    let mut deltas = model.stream(&request);
                    while let Some(delta) = deltas.next().await {
                        delta.unwrap();
                    }
                } else {
                    model.chat(&question()).await.unwrap();
                }
            }
            assert_eq!(*warnings.lock().unwrap(), expected);
            let paths: Vec<_> = sent(&server, "").into_iter().map(|(path, _, _)| path).collect();
            let chat = "/v1/chat/completions";
            assert_eq!(paths, [chat, "/api/ps", chat, chat]);
        }
    }
}

#[tokio::test]
async fn the_context_of_ollama_is_known_once_the_model_is_loaded() {
    let loaded = json_answer(&json!({ "models": [{ "name": "qwen3:8b", "context_length": 32768 }] }));
    let server = RawServer::answering_in_turn(vec![json_answer(&json!({ "models": [] })), loaded]).await;
    let ollama = OpenAi::builder().endpoint(tool_openai::Endpoint::ollama()).base_url(server.base_url());
    let model = ollama.build().unwrap().chat_model("qwen3:8b");
    assert_eq!(model.model_info().await.unwrap(), None::<ModelInfo>);
    assert_eq!(model.model_info().await.unwrap().unwrap().context_window, Some(32768));
}

/// Decodes base64 that may be padded.
fn decoded(text: &str) -> Vec<u8> {
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bits = text.trim_end_matches('=').chars().flat_map(|digit| {
        let value = digits.find(digit).unwrap();
        (0..6).rev().map(move |bit| (value >> bit) & 1)
    });
    let mut bytes = Vec::new();
    while let [Some(first), Some(b), Some(c), Some(d), Some(e), Some(f), Some(g), Some(h)] =
        std::array::from_fn(|_| bits.next())
    {
        bytes.push([first, b, c, d, e, f, g, h].into_iter().fold(0, |byte, bit| byte << 1 | bit as u8));
    }
    bytes
}
