//! The model options that requests set.

use axum::http::HeaderMap;
use serde_json::Value;
use tool_core::ModelOptions;
use tool_core::engine::AgentExt;
use tool_core::model::RunUser;

use super::backend::{Backend, FieldNames};
use super::error::ApiError;

/// Chooses the options that take effect, from the request's and the defaults.
pub(super) type ChooseOptions = dyn Fn(&ModelOptions, ModelOptions) -> ModelOptions + Send + Sync;

/// Says whose run a request starts, from the headers of an admitted request.
pub(super) type ChooseUser = dyn Fn(&HeaderMap) -> Option<RunUser> + Send + Sync;

/// Returns the options that a request sets. Refuses those that determine the price of an answer if they would be ignored, because
/// the caller relies on them.
pub(super) fn choose_options(
    backend: &Backend,
    choose: Option<&ChooseOptions>,
    mut sent: ModelOptions,
    names: &FieldNames,
) -> Result<ModelOptions, ApiError> {
    // The same as no tier.
    sent.service_tier.take_if(|tier| tier == "auto");
    let allowed = match backend {
        Backend::Model(_) => sent.clone(),
        // The options of a question take precedence over the options of all agents that its run is handed off to.
        Backend::Agent(agent) if agent.has_handoffs() => ModelOptions::default(),
        Backend::Agent(agent) => restrict(&sent, agent.ask("").start().run().options()),
    };
    let chosen = choose.map_or_else(|| allowed.clone(), |choose| choose(&sent, allowed.clone()));
    for (param, sent, chosen) in [
        ("service_tier", &sent.service_tier, &chosen.service_tier),
        (names.reasoning_effort, &sent.reasoning_effort, &chosen.reasoning_effort),
    ] {
        if sent.is_some() && sent != chosen {
            return Err(ApiError::invalid(param, format!("callers cannot set `{param}` here; omit it")));
        }
    }
    Ok(chosen)
}

/// Returns the options of a request that the author's leave open: a lower limit of tokens, and others that are not set.
fn restrict(sent: &ModelOptions, author: &ModelOptions) -> ModelOptions {
    let fields = |options| match serde_json::to_value(options) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (mut allowed, of_author) = (fields(sent), fields(author));
    allowed.retain(|name, value| match (&**name, of_author.get(name)) {
        (_, Some(of_author)) => value == of_author,
        ("service_tier" | "reasoning_effort", None) => false,
        (_, None) => true,
    });
    let mut allowed: ModelOptions = serde_json::from_value(allowed.into()).unwrap_or_default();
    allowed.max_output_tokens =
        sent.max_output_tokens.map(|sent| sent.min(author.max_output_tokens.unwrap_or(sent)));
    allowed
}
