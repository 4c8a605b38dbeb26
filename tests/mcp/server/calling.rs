//! Results of calls.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tool_core::tools;
use tool_mcp::server::Server;

use super::client::{Client, Connection, params};
use super::tools::{Weather, Witness, exclusive, shared, without_context};

#[tokio::test]
async fn returns_text_images_and_structured_content() {
    let connections = Connection::ALL.map(async |connection| {
        let server =
            Server::new(without_context()).output_schema::<f64>("sum").output_schema::<Weather>("weather");
        let client = Client::connect(connection, server).await;
        let text = |text: &str| json!([{ "type": "text", "text": text }]);
        // The tool, the arguments, the content, the structured content, and whether it is an error.
        let rome = json!({ "celsius": 22.5, "city": "Rome" });
        let table = [
            ("sum", json!({ "a": 2, "b": 0.5 }), text("2.5"), json!({ "result": 2.5 }), false),
            ("weather", json!({ "city": "Rome" }), text(r#"{"celsius":22.5,"city":"Rome"}"#), rome, false),
            ("weather", json!({ "city": "" }), text("no city has no name"), Value::Null, true),
            ("hello", Value::Null, text("hello you"), Value::Null, false),
            (
                "dot",
                json!({}),
                json!([{ "type": "text", "text": "a dot" }, { "type": "image", "data": "AQID", "mimeType": "image/png" }]),
                Value::Null,
                false,
            ),
            ("flaky", json!({}), text("3"), Value::Null, false),
        ];
        for (name, arguments, content, structured, is_error) in table {
            let result = client.call(name, arguments).await.unwrap();
            assert_eq!(serde_json::to_value(&result.content).unwrap(), content, "{connection:?} {name}");
            assert_eq!(result.structured_content.unwrap_or_default(), structured, "{name}");
            assert_eq!(result.is_error, Some(is_error), "{name}");
        }
    });
    join_all(connections).await;
}

#[tokio::test]
async fn reports_errors_for_the_model() {
    for connection in Connection::ALL {
        let client = Client::connect(connection, Server::new(without_context())).await;
        let table = [
            ("sum", json!({ "a": 1 }), "invalid arguments: `b` is missing"),
            ("sum", json!({ "a": "one", "b": 2 }), "`a`: expected a number, got \"one\""),
            ("sum", json!({ "a": 1, "b": 2, "c": 3 }), "`c`"),
            ("slow", json!({}), "the tool timed out after 20ms"),
            ("panics", json!({}), "the tool failed (reference call_"),
        ];
        for (name, arguments, expected) in table {
            let (text, is_error) = client.text(name, arguments).await;
            assert!(is_error && text.contains(expected), "{connection:?} {name}: {text}");
            assert!(!text.contains("secret"));
        }
    }
}

#[tokio::test]
async fn an_unknown_tool_is_a_protocol_error() {
    for connection in Connection::ALL {
        let client = Client::connect(connection, Server::new(without_context())).await;
        let error = client.call("sums", json!({})).await.unwrap_err().to_string();
        assert!(error.contains("-32602") && error.contains("did you mean `sum`?"), "{connection:?}: {error}");
    }
}

#[tokio::test]
async fn an_exclusive_tool_runs_alone() {
    for (tool, expected) in [("exclusive", 1), ("shared", 4)] {
        let witness = Witness::default();
        let server = Server::new(tools![exclusive, shared]).context(witness.context());
        let client = Client::connect(Connection::Http, server).await;
        let arguments = |name| if name == "shared" { json!({ "calls": expected }) } else { json!({}) };
        let calls =
            ["shared", tool, tool, tool].map(|name| client.service.call_tool(params(name, arguments(name))));
        let results = futures_util::future::join_all(calls).await;
        assert!(
            results.iter().all(|result| result.as_ref().is_ok_and(|result| result.is_error == Some(false)))
        );
        assert_eq!(*witness.max_running.borrow(), expected, "{tool}");
    }
}

#[tokio::test]
async fn executes_calls_concurrently() {
    let client = Client::connect(Connection::Streams, Server::new(without_context())).await;
    let calls =
        (0..200).map(|number| client.service.call_tool(params("sum", json!({ "a": number, "b": 1 }))));
    for (number, result) in futures_util::future::join_all(calls).await.into_iter().enumerate() {
        assert_eq!(super::client::text(&result.unwrap()).0.parse::<f64>().unwrap(), number as f64 + 1.0);
    }
}
