//! The wire types of requests.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct WireRequest {
    pub(super) model: String,
    #[serde(default)]
    pub(super) input: Option<WireInput>,
    #[serde(default)]
    pub(super) instructions: Option<String>,
    #[serde(default)]
    pub(super) tools: Option<Vec<WireTool>>,
    #[serde(default)]
    pub(super) tool_choice: Option<Value>,
    #[serde(default)]
    pub(super) parallel_tool_calls: Option<bool>,
    #[serde(default)]
    pub(super) previous_response_id: Option<String>,
    #[serde(default)]
    pub(super) store: Option<bool>,
    #[serde(default)]
    pub(super) stream: Option<bool>,
    #[serde(default)]
    pub(super) metadata: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) temperature: Option<f64>,
    #[serde(default)]
    pub(super) top_p: Option<f64>,
    #[serde(default)]
    pub(super) max_output_tokens: Option<u32>,
    #[serde(default)]
    pub(super) top_logprobs: Option<u8>,
    #[serde(default)]
    pub(super) include: Option<Vec<String>>,
    #[serde(default)]
    pub(super) service_tier: Option<String>,
    #[serde(default)]
    pub(super) safety_identifier: Option<String>,
    /// The former name of `safety_identifier`, which clients of other servers still send.
    #[serde(default)]
    pub(super) user: Option<String>,
    #[serde(default)]
    pub(super) reasoning: Option<WireReasoning>,
    #[serde(default)]
    pub(super) text: Option<WireText>,
    // Unsupported fields that must not be ignored silently.
    #[serde(default)]
    pub(super) background: Option<bool>,
    #[serde(default)]
    pub(super) conversation: Option<Value>,
    #[serde(default)]
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
    #[serde(default)]
    pub(super) r#type: Option<String>,
    #[serde(default)]
    pub(super) role: Option<String>,
    #[serde(default)]
    pub(super) content: Option<Value>,
    #[serde(default)]
    pub(super) call_id: Option<String>,
    #[serde(default)]
    pub(super) name: Option<String>,
    /// A string in calls of functions.
    #[serde(default)]
    pub(super) arguments: Option<Value>,
    #[serde(default)]
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
    #[serde(default)]
    pub(super) text: Option<String>,
    #[serde(default)]
    pub(super) refusal: Option<String>,
    #[serde(default)]
    pub(super) image_url: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct WireTool {
    pub(super) r#type: String,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) parameters: Option<Value>,
    #[serde(default)]
    pub(super) strict: Option<bool>,
    #[serde(default)]
    pub(super) defer_loading: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct WireReasoning {
    #[serde(default)]
    pub(super) effort: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct WireText {
    #[serde(default)]
    pub(super) format: Option<WireFormat>,
}

#[derive(Deserialize)]
pub(super) struct WireFormat {
    pub(super) r#type: String,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) schema: Option<Value>,
    #[serde(default)]
    pub(super) strict: Option<bool>,
}
