//! What the API reports about models and requests.

use serde_json::Value;
use tool_core::model::{ChatRequest, ModelInfo};

use crate::client::Client;
use crate::error::Error;
use crate::options::MessagesOptions;
use crate::request::{Purpose, encode};

/// Asks for the number of input tokens of a request.
pub(crate) async fn count_tokens(
    client: &Client,
    model: &str,
    options: &MessagesOptions,
    request: &ChatRequest<'_>,
) -> Result<u64, Error> {
    let body = encode(client, model, options, request, Purpose::Count)?.body;
    let url = client.url("messages/count_tokens");
    let (text, id) = client.with_retries(None, || client.fetch(&url, Some(&body))).await?;
    let count = serde_json::from_str::<Value>(&text).ok().and_then(|json| json["input_tokens"].as_u64());
    let invalid = Error::invalid_response("the response has no `input_tokens`");
    count.ok_or_else(|| invalid.with_request("POST", &url, id.as_deref()))
}

/// Asks for what is known of a model.
pub(crate) async fn model_info(client: &Client, model: &str) -> Result<ModelInfo, Error> {
    // A name is one segment of the path.
    let name: String = model.chars().map(|c| if "/?#%".contains(c) { '_' } else { c }).collect();
    let url = client.url(&format!("models/{name}"));
    let (text, id) = client.with_retries(None, || client.fetch(&url, None)).await?;
    let json = serde_json::from_str(&text);
    let json = json.map_err(|error| format!("the response does not follow the API: {error}"));
    let invalid = |reason| Error::invalid_response(reason).with_request("GET", &url, id.as_deref());
    let json: Value = json.map_err(|reason: String| invalid(reason))?;
    let supports = |name: &str| json.pointer(&format!("/capabilities/{name}/supported"))?.as_bool();
    let mut info = ModelInfo::default();
    info.context_window = json["max_input_tokens"].as_u64();
    info.max_output_tokens = json["max_tokens"].as_u64();
    info.supports_images = supports("image_input");
    info.supports_files = supports("pdf_input");
    info.supports_response_format = supports("structured_outputs");
    info.supports_reasoning = supports("thinking");
    Ok(info)
}
