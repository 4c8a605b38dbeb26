//! That the published schemas are there, and refuse what they should: the other tests check all that is sent by them.

use serde_json::json;

use crate::caller::Published;

#[test]
fn the_schemas_that_all_answers_are_checked_by() {
    if Published::is_missing() {
        println!("skipped: the published schemas are not there, so answers are not checked by them");
        return;
    }
    let chunk =
        json!({ "id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [] });
    assert!(Published::Chunk.allows(&chunk) && !Published::Completion.allows(&chunk));
    let event =
        json!({ "type": "response.output_text.delta", "sequence_number": 1, "item_id": "a", "delta": "b" });
    assert!(!Published::Event.allows(&event), "positions and probabilities are missing");
    assert!(!Published::Response.allows(&json!({ "id": "a", "object": "response" })));
    assert!(!Published::Error.allows(&json!({ "error": { "message": "a" } })));
}
