//! What comes back of a call.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tool_core::tools;
use tool_mcp::server::Server;

use super::client::{Client, Way, params};
use super::tools::{Weather, Witness, alone, beside, plain};

#[tokio::test]
async fn results() {
    for way in Way::ALL {
        let server = Server::new(plain()).output_schema::<f64>("sum").output_schema::<Weather>("weather");
        let client = Client::connect(way, server).await;
        let text = |text: &str| json!([{ "type": "text", "text": text }]);
        // The tool, what it takes, what comes back, as structured content too, and whether it is an error.
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
            assert_eq!(serde_json::to_value(&result.content).unwrap(), content, "{way:?} {name}");
            assert_eq!(result.structured_content.unwrap_or_default(), structured, "{name}");
            assert_eq!(result.is_error, Some(is_error), "{name}");
        }
    }
}

#[tokio::test]
async fn errors_are_for_the_model_to_read() {
    for way in Way::ALL {
        let client = Client::connect(way, Server::new(plain())).await;
        let table = [
            ("sum", json!({ "a": 1 }), "invalid arguments: `b` is missing"),
            ("sum", json!({ "a": "one", "b": 2 }), "`a`: expected a number, got \"one\""),
            ("sum", json!({ "a": 1, "b": 2, "c": 3 }), "`c`"),
            ("slow", json!({}), "took longer than 20ms"),
            ("panics", json!({}), "the tool failed (reference call_"),
        ];
        for (name, arguments, expected) in table {
            let (text, is_error) = client.text(name, arguments).await;
            assert!(is_error && text.contains(expected), "{way:?} {name}: {text}");
            assert!(!text.contains("secret"));
        }
    }
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_an_error_of_the_protocol() {
    for way in Way::ALL {
        let client = Client::connect(way, Server::new(plain())).await;
        let error = client.call("sums", json!({})).await.unwrap_err().to_string();
        assert!(error.contains("-32602") && error.contains("did you mean `sum`?"), "{way:?}: {error}");
    }
}

#[tokio::test]
async fn an_exclusive_tool_is_called_alone() {
    for (tool, expected) in [("alone", 1), ("beside", 4)] {
        let witness = Witness::default();
        let server = Server::new(tools![alone, beside]).context(witness.context());
        let client = Client::connect(Way::Http, server).await;
        let calls =
            ["beside", tool, tool, tool].map(|name| client.service.call_tool(params(name, json!({}))));
        let results = futures_util::future::join_all(calls).await;
        assert!(
            results.iter().all(|result| result.as_ref().is_ok_and(|result| result.is_error == Some(false)))
        );
        let most = witness.most.load(Ordering::SeqCst);
        assert!(if expected == 1 { most == 1 } else { most > 1 }, "{tool}: {most}");
    }
}

#[tokio::test]
async fn calls_are_made_side_by_side() {
    let client = Client::connect(Way::Streams, Server::new(plain())).await;
    let calls =
        (0..200).map(|number| client.service.call_tool(params("sum", json!({ "a": number, "b": 1 }))));
    for (number, result) in futures_util::future::join_all(calls).await.into_iter().enumerate() {
        assert_eq!(super::client::text(&result.unwrap()).0.parse::<f64>().unwrap(), number as f64 + 1.0);
    }
}
