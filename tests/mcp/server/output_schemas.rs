//! Structured content against the schema that the server lists.

use std::sync::Arc;

use serde_json::{Value, json};
use tool_core::content::Image;
use tool_core::{ToolOutput, schemars, tool, tools};
use tool_mcp::server::Server;

use super::client::{Client, Connection};

#[derive(serde::Serialize, schemars::JsonSchema)]
struct Node {
    name: String,
    next: Option<Box<Node>>,
}

#[derive(serde::Serialize, schemars::JsonSchema)]
struct Tree(Vec<Tree>);

#[derive(serde::Serialize, schemars::JsonSchema)]
enum Sum {
    Number(f64),
    Of(Vec<Sum>),
}

#[derive(serde::Serialize, schemars::JsonSchema)]
struct Found {
    value: Value,
}

fn chain() -> Node {
    Node { name: "a".into(), next: Some(Box::new(Node { name: "b".into(), next: None })) }
}

#[tool]
fn unit() {}

#[tool]
fn shared_text(text: String) -> Arc<str> {
    text.into()
}

#[tool]
fn optional(text: Option<String>) -> Option<String> {
    text
}

#[tool]
fn node() -> Node {
    chain()
}

#[tool]
fn nodes() -> Result<Vec<Node>, String> {
    Ok(vec![chain()])
}

#[tool]
fn optional_node() -> Option<Node> {
    Some(chain())
}

#[tool]
fn tree() -> Tree {
    Tree(vec![Tree(vec![]), Tree(vec![])])
}

#[tool]
fn sum_of() -> Sum {
    Sum::Of(vec![Sum::Number(1.5), Sum::Of(vec![])])
}

#[tool]
fn found() -> Found {
    Found { value: json!([1, null]) }
}

#[tool]
fn anything() -> Value {
    json!({ "a": 1 })
}

#[tokio::test]
async fn structured_content_is_valid_by_its_schema() {
    let server = Server::new(tools![
        unit,
        shared_text,
        optional,
        node,
        nodes,
        optional_node,
        tree,
        sum_of,
        found,
        anything
    ])
    .output_schema::<()>("unit")
    .output_schema::<Arc<str>>("shared_text")
    .output_schema::<Option<String>>("optional")
    .output_schema::<Node>("node")
    .output_schema::<Vec<Node>>("nodes")
    .output_schema::<Option<Node>>("optional_node")
    .output_schema::<Tree>("tree")
    .output_schema::<Sum>("sum_of")
    .output_schema::<Found>("found")
    .output_schema::<Value>("anything");
    let client = Client::connect(Connection::Streams, server).await;
    let listed = client.service.list_all_tools().await.unwrap();
    let chain = json!({ "name": "a", "next": { "name": "b", "next": null } });
    let sum = json!({ "Of": [{ "Number": 1.5 }, { "Of": [] }] });
    // The tool, its arguments, the text, and the structured content.
    let table = [
        ("unit", json!({}), "Success", json!({ "result": null })),
        ("shared_text", json!({ "text": "12" }), "12", json!({ "result": "12" })),
        ("shared_text", json!({ "text": "" }), "", json!({ "result": "" })),
        ("optional", json!({ "text": "null" }), r#""null""#, json!({ "result": "null" })),
        ("optional", json!({}), "null", json!({ "result": null })),
        ("node", json!({}), &chain.to_string(), chain.clone()),
        ("nodes", json!({}), &json!([chain]).to_string(), json!({ "result": [chain] })),
        ("optional_node", json!({}), &chain.to_string(), json!({ "result": chain })),
        ("tree", json!({}), "[[],[]]", json!({ "result": [[], []] })),
        ("sum_of", json!({}), &sum.to_string(), json!({ "result": sum })),
        ("found", json!({}), r#"{"value":[1,null]}"#, json!({ "value": [1, null] })),
        ("anything", json!({}), r#"{"a":1}"#, json!({ "result": { "a": 1 } })),
    ];
    for (name, arguments, text, structured) in table {
        let tool = listed.iter().find(|tool| tool.name == name).unwrap();
        let schema = Value::Object((**tool.output_schema.as_ref().unwrap()).clone());
        let result = client.call(name, arguments).await.unwrap();
        assert_eq!(super::client::text(&result), (text.to_owned(), false), "{name}");
        assert_eq!(result.structured_content, Some(structured.clone()), "{name}");
        assert!(jsonschema::is_valid(&schema, &structured), "{name}: {schema}");
        // The TypeScript SDK refuses lists with other properties.
        assert!(schema["properties"].as_object().unwrap().values().all(Value::is_object), "{name}: {schema}");
    }
}

#[tool]
fn picture() -> ToolOutput {
    ToolOutput::text("paid 5").with_part(Image::from_bytes("image/png", [1]))
}

#[tool(max_output_chars = 60)]
fn long_list() -> Vec<u32> {
    (0..200).collect()
}

/// The tool was executed, so the model reads its output nevertheless.
#[tokio::test]
async fn output_that_does_not_match_its_schema_is_not_lost() {
    let server = Server::new(tools![picture, long_list])
        .output_schema::<Node>("picture")
        .output_schema::<Vec<u32>>("long_list");
    let client = Client::connect(Connection::Streams, server).await;
    let problem = "the tool was executed, but its output does not match its output schema:";
    for (name, rest, blocks) in [
        ("picture", "paid 5", 3),
        ("long_list", "[0,1,2,3,4,5,6,7,8,9\n[… 662 characters left out …]\n,198,199]", 2),
    ] {
        let result = client.call(name, json!({})).await.unwrap();
        assert_eq!(super::client::text(&result), (format!("{problem}|{rest}"), true));
        assert_eq!((result.content.len(), result.structured_content), (blocks, None));
    }
}
