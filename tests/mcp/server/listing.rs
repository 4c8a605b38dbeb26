//! What a host is told of the server and its tools.

use rmcp::model::PaginatedRequestParams;
use serde_json::{Value, json};
use tool_core::tools;
use tool_mcp::server::Server;

use super::client::{Client, Way};
use super::tools::{Weather, Witness, pay, plain, sum, wait, weather};

#[tokio::test]
async fn tools_are_told_as_they_are_defined() {
    for way in Way::ALL {
        let server =
            Server::new(plain()).output_schema::<Weather>("weather").output_schema::<f64>("sum").page_size(3);
        let client = Client::connect(way, server).await;
        let listed = client.service.list_all_tools().await.unwrap();
        let set = plain();
        assert_eq!(listed.len(), set.len());
        for (listed, defined) in listed.iter().zip(set.definitions().iter()) {
            assert_eq!(listed.name, defined.name(), "{way:?}");
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
async fn the_server_says_who_it_is() {
    let server = Server::new(plain()).name("n").version("1.2.3").title("N").instructions("Use them.");
    assert_eq!(
        format!("{:?}", Server::new(tools![sum]).name("n").bearer_token("secret")),
        format!(
            r#"Server {{ name: "n", version: "{}", tools: LiveTools(["sum"]), .. }}"#,
            env!("CARGO_PKG_VERSION")
        )
    );
    let client = Client::connect(Way::Streams, server).await;
    let info = serde_json::to_value(client.service.peer_info().unwrap()).unwrap();
    assert_eq!(info["serverInfo"], json!({ "name": "n", "version": "1.2.3", "title": "N" }));
    assert_eq!(info["instructions"], "Use them.");
    assert_eq!(info["capabilities"], json!({ "logging": {}, "tools": { "listChanged": true } }));
}

#[tokio::test]
async fn a_page_that_is_not_there_is_an_error() {
    let client = Client::connect(Way::Streams, Server::new(plain())).await;
    let mut params = PaginatedRequestParams::default();
    params.cursor = Some("9.3".into());
    let error = client.service.list_tools(Some(params)).await.unwrap_err().to_string();
    assert!(error.contains("-32602") && error.contains("cursor"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_served_is_told_before() {
    let lacks = || Server::new(tools![sum, wait]);
    let error = lacks().spawn("127.0.0.1:0").await.unwrap_err();
    assert!(error.is_missing_context() && format!("{error:?}").contains("`wait` takes `"), "{error:?}");
    assert!(lacks().router().unwrap_err().is_missing_context());
    assert!(
        lacks().serve_streams(tokio::io::empty(), tokio::io::sink()).await.unwrap_err().is_missing_context()
    );
    assert!(lacks().context(Witness::default().context()).router().is_ok());

    let error = Server::new(tools![weather]).output_schema::<Weather>("wether").router().unwrap_err();
    assert!(error.is_schema() && error.to_string().contains("`wether`"));

    let error = Server::new(tools![sum]).spawn("0.0.0.0:0").await.unwrap_err();
    assert!(error.is_address() && error.to_string().contains("`allow_remote()`"), "{error}");
    assert!(Server::new(tools![sum]).allow_remote().spawn("0.0.0.0:0").await.is_ok());
}

#[tokio::test]
async fn tools_that_need_approval_are_served_only_where_somebody_approves() {
    for (is_served, server) in [
        (false, Server::new(tools![sum, pay])),
        (true, Server::new(tools![sum, pay]).allow_unapproved()),
        (
            true,
            Server::new(tools![sum, pay]).approver(|_: &tool_core::ToolCall| tool_core::Approval::Approve),
        ),
    ] {
        let client = Client::connect(Way::Streams, server).await;
        let names: Vec<_> =
            client.service.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name).collect();
        assert_eq!(names.contains(&"pay".into()), is_served);
        assert_eq!(client.call("pay", json!({ "cents": 1 })).await.is_ok(), is_served);
    }
}
