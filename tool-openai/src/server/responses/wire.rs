//! The wire types of requests.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct WireRequest {
    pub(super) model: String,
    pub(super) input: Option<WireInput>,
    pub(super) instructions: Option<String>,
    pub(super) tools: Option<Vec<WireTool>>,
    pub(super) tool_choice: Option<Value>,
    pub(super) parallel_tool_calls: Option<bool>,
    pub(super) previous_response_id: Option<String>,
    pub(super) store: Option<bool>,
    pub(super) stream: Option<bool>,
    pub(super) metadata: Option<BTreeMap<String, String>>,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
    pub(super) max_output_tokens: Option<u32>,
    pub(super) top_logprobs: Option<u8>,
    pub(super) include: Option<Vec<String>>,
    pub(super) service_tier: Option<String>,
    pub(super) safety_identifier: Option<String>,
    /// The former name of `safety_identifier`, which clients of other servers still send.
    pub(super) user: Option<String>,
    pub(super) reasoning: Option<WireReasoning>,
    pub(super) text: Option<WireText>,
    // Unsupported fields that must not be ignored silently.
    pub(super) background: Option<bool>,
    pub(super) conversation: Option<Value>,
    pub(super) prompt: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`input` must be a string or a list of items")]
pub(super) enum WireInput {
    Text(String),
    Items(Vec<WireItem>),
}

/// An item of any type, with the fields of all types.
#[derive(Deserialize)]
pub(super) struct WireItem {
    pub(super) r#type: Option<String>,
    pub(super) role: Option<String>,
    pub(super) content: Option<Value>,
    pub(super) call_id: Option<String>,
    pub(super) name: Option<String>,
    /// A string in calls of functions.
    pub(super) arguments: Option<Value>,
    pub(super) output: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum WireContent {
    Text(String),
    Parts(Vec<WirePart>),
}

#[derive(Deserialize)]
pub(super) struct WirePart {
    pub(super) r#type: String,
    pub(super) text: Option<String>,
    pub(super) refusal: Option<String>,
    pub(super) image_url: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct WireTool {
    pub(super) r#type: String,
    pub(super) name: Option<String>,
    pub(super) description: Option<String>,
    pub(super) parameters: Option<Value>,
    pub(super) strict: Option<bool>,
    pub(super) defer_loading: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct WireReasoning {
    pub(super) effort: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct WireText {
    pub(super) format: Option<WireFormat>,
}

#[derive(Deserialize)]
pub(super) struct WireFormat {
    pub(super) r#type: String,
    pub(super) name: Option<String>,
    pub(super) schema: Option<Value>,
    pub(super) strict: Option<bool>,
}
