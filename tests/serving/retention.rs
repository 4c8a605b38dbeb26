//! Limits of stored responses.

use std::time::Duration;

use serde_json::{Value, json};
use tool_core::testing::ScriptedModel;
use tool_openai::server::Server;

use crate::caller::Caller;

async fn respond(caller: &Caller, previous: &Value) -> Value {
    let body = json!({ "model": "m", "input": "Hi", "previous_response_id": previous });
    caller.ask("responses", &body).await["id"].clone()
}

#[tokio::test]
async fn limits_the_number_and_age_of_stored_responses() {
    let script = || (0..5).fold(ScriptedModel::new(), |model, _| model.says("Hi."));
    let model = script();
    let caller = Caller::new(Server::new().model("m", model.clone()).max_stored_entries(2)).await;
    let first = respond(&caller, &Value::Null).await;
    let second = respond(&caller, &first).await;
    let third = respond(&caller, &second).await;
    let status = async |id: &Value| caller.get(&format!("responses/{}", id.as_str().unwrap())).await.status;
    assert_eq!((status(&first).await, status(&second).await, status(&third).await), (404, 200, 200));
    // The conversation of a response is complete nevertheless.
    respond(&caller, &third).await;
    assert_eq!(model.requests()[3].len(), 7);

    let server = Server::new().model("m", script()).max_stored_age(Duration::from_millis(10));
    let caller = Caller::new(server).await;
    let first = respond(&caller, &Value::Null).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let body = json!({ "model": "m", "input": "Hi", "previous_response_id": first });
    assert_eq!(caller.post("responses", &body).await.status, 404);
}
