//! The context of a model of Ollama, whose `/v1` removes the start of a conversation that is longer, without an error.

use std::sync::PoisonError;

use serde::Deserialize;
use tool_core::model::ChatResponse;

use crate::client::Client;
use crate::warning::Warning;

/// The path of the list of loaded models, which is beside `/v1`.
const PATH: &str = "../api/ps";

/// The longest list that is read.
const MAX_LIST_BYTES: usize = 1 << 20;

#[derive(Deserialize)]
struct LoadedModels {
    models: Vec<LoadedModel>,
}

#[derive(Deserialize)]
struct LoadedModel {
    name: String,
    context_length: Option<u64>,
}

/// Returns the context that the server uses for a model, in tokens, if the model is loaded.
pub(crate) async fn context_in_use(client: &Client, model: &str) -> Option<u64> {
    let response =
        client.connection.send(&client.connection.url(PATH), None, "application/json").await.ok()?;
    let list = response.read(MAX_LIST_BYTES, |json| serde_json::from_str::<LoadedModels>(json).ok()).await;
    let is_asked = |name: &str| name == model || name.strip_suffix(":latest") == Some(model);
    list.ok()?.models.into_iter().find(|loaded| is_asked(&loaded.name))?.context_length
}

/// Reports a response whose conversation has reached the context of the model. The server is asked for it after the first response.
pub(crate) async fn warn_about_context(client: &Client, model: &str, response: &ChatResponse) {
    let (Some(on_warning), Some(usage)) = (&client.on_warning, &response.usage) else { return };
    let known = || client.contexts.lock().unwrap_or_else(PoisonError::into_inner);
    let stored = known().get(model).copied();
    let context = match stored {
        Some(context) => context,
        None => {
            let context = context_in_use(client, model).await;
            known().insert(model.to_owned(), context);
            context
        }
    };
    let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
    if let Some(context) = context.filter(|context| tokens >= *context) {
        on_warning(&Warning::ContextReached { model, context });
    }
}
