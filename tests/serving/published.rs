//! The published schemas that all other tests check responses against.

use serde_json::json;

use crate::caller::Published;

#[test]
#[ignore = "needs the published schemas, which `.ci/run` has"]
fn published_schemas_reject_invalid_documents() {
    assert!(!Published::is_missing(), "the published schemas are not available");
    let chunk =
        json!({ "id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [] });
    assert!(Published::Chunk.allows(&chunk) && !Published::Completion.allows(&chunk));
    let event =
        json!({ "type": "response.output_text.delta", "sequence_number": 1, "item_id": "a", "delta": "b" });
    assert!(!Published::Event.allows(&event), "positions and log probabilities are missing");
    assert!(!Published::Response.allows(&json!({ "id": "a", "object": "response" })));
    assert!(!Published::Error.allows(&json!({ "error": { "message": "a" } })));
}
