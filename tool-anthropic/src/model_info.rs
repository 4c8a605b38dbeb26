//! What the API reports about models and requests.

use tool_core::provider::ModelInfo;
use tool_http::client::Error;
use tool_http::client::json::Members;

use crate::client::Client;
use crate::request::{EncodedRequest, ModelRequest, Purpose};

/// Asks for the number of input tokens of a request.
pub(crate) async fn count_tokens(request: ModelRequest<'_>) -> Result<u64, Error> {
    let EncodedRequest { body, beta, .. } = request.encode(Purpose::Count)?;
    let parse = |json: &str| Members::parse(json)?.parsed("input_tokens");
    request.client.fetch(request.url(Purpose::Count), Some(&body), beta, parse).await
}

/// Asks for what is known of a model.
pub(crate) async fn model_info(client: &Client, model: &str) -> Result<ModelInfo, Error> {
    // A name is one segment of the path.
    let name: String = model.chars().map(|c| if "/?#%".contains(c) { '_' } else { c }).collect();
    client.fetch(client.url(&format!("models/{name}")), None, None, parse_info).await
}

/// Parses a description; each part can be missing.
fn parse_info(json: &str) -> Option<ModelInfo> {
    let model = Members::parse(json)?;
    let capabilities = model.get("capabilities").and_then(Members::parse).unwrap_or_default();
    let supports = |name: &str| Members::parse(capabilities.get(name)?)?.parsed("supported");
    let mut info = ModelInfo::default();
    info.context_window = model.parsed("max_input_tokens");
    info.max_output_tokens = model.parsed("max_tokens");
    info.supports_images = supports("image_input");
    info.supports_files = supports("pdf_input");
    info.supports_response_format = supports("structured_outputs");
    info.supports_reasoning = supports("thinking");
    Some(info)
}
