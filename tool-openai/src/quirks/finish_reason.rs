//! Finish reasons that OpenAI does not have.

use tool_core::model::FinishReason;

/// Returns `true` if the finish reason means that the provider aborted the reply: Mistral and OpenRouter (`error`), SGLang
/// and vLLM (`abort`), DeepSeek.
pub(crate) fn is_provider_failure(finish_reason: &str) -> bool {
    matches!(finish_reason, "error" | "abort" | "insufficient_system_resource")
}

/// Parses a finish reason. Returns `None` for the empty string, which Ollama sends in each chunk, and the string `null` of
/// DashScope.
pub(crate) fn parse_finish_reason(wire: &str) -> Option<FinishReason> {
    Some(match wire {
        "" | "null" => return None,
        "stop" => FinishReason::Stop,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        // Mistral's name, and names used by gateways to other APIs: a truncated reply must be recognized.
        "length" | "model_length" | "max_tokens" | "MAX_TOKENS" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        other => FinishReason::Other(other.to_owned()),
    })
}
