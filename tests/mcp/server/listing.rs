//! The server's information and its list of tools.

use rmcp::model::PaginatedRequestParams;
use serde_json::{Value, json};
use tool_core::agent::on_approval;
use tool_core::tools;
use tool_mcp::server::{Server, ServerErrorKind};

use super::client::{Client, Connection, Notifications, connect_http};
use super::tools::{Weather, Witness, pay, sum, wait, weather, without_context};

#[tokio::test]
async fn lists_tools_as_they_are_defined() {
    for connection in Connection::ALL {
        let server = Server::new(without_context())
            .output_schema::<Weather>("weather")
            .output_schema::<f64>("sum")
            .page_size(3);
        let client = Client::connect(connection, server).await;
        let listed = client.service.list_all_tools().await.unwrap();
        let set = without_context();
        assert_eq!(listed.len(), set.len());
        for (listed, defined) in listed.iter().zip(set.definitions().iter()) {
            assert_eq!(listed.name, defined.name(), "{connection:?}");
            assert_eq!(listed.description.as_deref(), defined.description());
            assert_eq!(Value::Object((*listed.input_schema).clone()), *defined.parameters());
        }
        assert_eq!(listed[0].annotations.as_ref().unwrap().read_only_hint, Some(true));
        assert_eq!(listed[1].annotations, None);
        let output =
            |index: usize| listed[index].output_schema.clone().map(|schema| Value::Object((*schema).clone()));
        assert_eq!(output(0).unwrap()["properties"]["result"]["type"], "number");
        assert_eq!(output(1).unwrap()["properties"]["celsius"]["type"], "number");
        assert_eq!(output(2), None);
    }
}

#[tokio::test]
async fn sends_its_name_version_and_instructions() {
    let server =
        Server::new(without_context()).name("n").version("1.2.3").title("N").instructions("Use them.");
    assert_eq!(
        format!("{:?}", Server::new(tools![sum]).name("n").bearer_token("secret")),
        format!(
            r#"Server {{ name: "n", version: "{}", tools: ToolsHandle(["sum"]), .. }}"#,
            env!("CARGO_PKG_VERSION")
        )
    );
    let client = Client::connect(Connection::Streams, server).await;
    let info = serde_json::to_value(client.service.peer_info().unwrap()).unwrap();
    assert_eq!(info["serverInfo"], json!({ "name": "n", "version": "1.2.3", "title": "N" }));
    assert_eq!(info["instructions"], "Use them.");
    assert_eq!(info["capabilities"], json!({ "logging": {}, "tools": { "listChanged": true } }));
}

#[tokio::test]
async fn rejects_an_unknown_cursor() {
    let client = Client::connect(Connection::Streams, Server::new(without_context())).await;
    let mut params = PaginatedRequestParams::default();
    params.cursor = Some("9.3".into());
    let error = client.service.list_tools(Some(params)).await.unwrap_err().to_string();
    assert!(error.contains("-32602") && error.contains("cursor"), "{error}");
}

#[tokio::test]
async fn rejects_invalid_configurations_before_serving() {
    let lacking = || Server::new(tools![sum, wait]);
    let error = lacking().spawn("127.0.0.1:0").await.unwrap_err();
    assert!(
        error.kind() == ServerErrorKind::MissingContext && format!("{error:?}").contains("`wait` needs `"),
        "{error:?}"
    );
    assert_eq!(lacking().into_service().unwrap_err().kind(), ServerErrorKind::MissingContext);
    let error = lacking().serve_streams(tokio::io::empty(), tokio::io::sink()).await.unwrap_err();
    assert_eq!(error.kind(), ServerErrorKind::MissingContext);
    assert!(lacking().context(Witness::default().context()).into_service().is_ok());

    let error = Server::new(tools![weather]).output_schema::<Weather>("wether").into_service().unwrap_err();
    assert!(error.kind() == ServerErrorKind::OutputSchema && error.to_string().contains("`wether`"));

    let error = Server::new(tools![sum]).spawn("0.0.0.0:0").await.unwrap_err();
    assert!(
        error.kind() == ServerErrorKind::Address && error.to_string().contains("`allow_remote()`"),
        "{error}"
    );
    assert!(Server::new(tools![sum]).allow_remote().spawn("0.0.0.0:0").await.is_ok());
}

#[tokio::test]
async fn serves_tools_that_need_approval_only_if_configured() {
    for (is_served, server) in [
        (false, Server::new(tools![sum, pay])),
        (true, Server::new(tools![sum, pay]).allow_unapproved()),
        (true, Server::new(tools![sum, pay]).decider(on_approval(|_| tool_core::run::Decision::approve()))),
    ] {
        let client = Client::connect(Connection::Streams, server).await;
        let names: Vec<_> =
            client.service.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name).collect();
        assert_eq!(names.contains(&"pay".into()), is_served);
        assert_eq!(client.call("pay", json!({ "cents": 1 })).await.is_ok(), is_served);
    }
}

#[tokio::test]
async fn a_service_is_part_of_another_application() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let service = Server::new(tools![weather]).into_service().unwrap();
    let app = axum::Router::new().route_service("/mcp", service);
    tokio::spawn(async move { axum::serve(listener, app).await });
    for connection in [Connection::Http, Connection::HttpNewest] {
        let client = connect_http(&url, None, connection, Notifications::default()).await.unwrap();
        assert_eq!(client.list_all_tools().await.unwrap()[0].name, "weather", "{connection:?}");
    }
}
