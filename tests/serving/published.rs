//! The published schemas that all other tests check responses against.

use serde_json::json;

use tests::support::schema::Document;

#[test]
fn published_schemas_reject_invalid_documents() {
    let chunk =
        json!({ "id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [] });
    assert!(Document::Chunk.allows(&chunk) && !Document::Completion.allows(&chunk));
    let event =
        json!({ "type": "response.output_text.delta", "sequence_number": 1, "item_id": "a", "delta": "b" });
    assert!(!Document::Event.allows(&event), "positions and log probabilities are missing");
    assert!(!Document::Response.allows(&json!({ "id": "a", "object": "response" })));
    assert!(!Document::Error.allows(&json!({ "error": { "message": "a" } })));
}
