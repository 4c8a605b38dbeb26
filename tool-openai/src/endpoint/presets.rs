//! The endpoints that are known, each with where its differences are told of.

use std::borrow::Cow;

use super::{AuthScheme, CallIds, Endpoint, ReasoningReplay};

/// How many tools OpenAI takes in a request: <https://platform.openai.com/docs/api-reference/chat/create>.
const MOST_TOOLS: usize = 128;

impl Endpoint {
    /// OpenAI itself.
    #[must_use]
    pub fn openai() -> Self {
        Self {
            name: "openai".into(),
            base_url: "https://api.openai.com/v1".into(),
            key_variable: "OPENAI_API_KEY".into(),
            key_header: AuthScheme::Bearer,
            azure_api_version: None,
            max_tokens_field: "max_completion_tokens".into(),
            seed_field: "seed".into(),
            stream_options: true,
            strict: true,
            parallel_tool_calls: true,
            required_tool_choice: Some("required".into()),
            named_tool_choice: true,
            json_schema: true,
            json_schema_with_tools: true,
            null_content: true,
            refusals: true,
            call_ids: CallIds::AsGiven,
            reasoning_back: ReasoningReplay::WithCalls,
            names_begin_with_letter: false,
            plain_parameters: true,
            max_tools: Some(MOST_TOOLS),
            max_description: None,
        }
    }

    /// Any server with OpenAI's API: the words that nearly all of them know.
    #[must_use]
    pub fn compatible() -> Self {
        Self {
            name: "".into(),
            base_url: "".into(),
            max_tokens_field: "max_tokens".into(),
            plain_parameters: false,
            max_tools: None,
            ..Self::openai()
        }
    }

    /// Azure OpenAI, by the name of the resource (`mine` of `https://mine.openai.azure.com`; with another host, set the
    /// [base URL](crate::OpenAiBuilder::base_url)): its [current API](https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle),
    /// in which the model is the name of the deployment.
    #[must_use]
    pub fn azure(resource: &str) -> Self {
        Self::azure_at(format!("{}/openai/v1", azure_origin(resource)))
    }

    /// Azure OpenAI in its older form, by the name of the resource and the version of the API, such as `2024-10-21`: the
    /// model is the name of the deployment, and stands in the path.
    #[must_use]
    pub fn azure_deployments(resource: &str, api_version: impl Into<Cow<'static, str>>) -> Self {
        Self { azure_api_version: Some(api_version.into()), ..Self::azure_at(azure_origin(resource)) }
    }

    pub(super) fn azure_at(base_url: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: "azure".into(),
            base_url: base_url.into(),
            key_variable: "AZURE_OPENAI_API_KEY".into(),
            key_header: AuthScheme::ApiKey,
            ..Self::openai()
        }
    }

    /// DeepSeek, which wants its [reasoning back](https://api-docs.deepseek.com/guides/thinking_mode) once it has called
    /// tools.
    #[must_use]
    pub fn deepseek() -> Self {
        Self {
            name: "deepseek".into(),
            base_url: "https://api.deepseek.com".into(),
            key_variable: "DEEPSEEK_API_KEY".into(),
            strict: false,
            parallel_tool_calls: false,
            json_schema: false,
            reasoning_back: ReasoningReplay::Always,
            max_tools: Some(MOST_TOOLS),
            ..Self::compatible()
        }
    }

    /// Mistral, which [refuses](https://docs.mistral.ai/api) fields that it does not know.
    #[must_use]
    pub fn mistral() -> Self {
        Self {
            name: "mistral".into(),
            base_url: "https://api.mistral.ai/v1".into(),
            key_variable: "MISTRAL_API_KEY".into(),
            seed_field: "random_seed".into(),
            stream_options: false,
            required_tool_choice: Some("any".into()),
            null_content: false,
            refusals: false,
            call_ids: CallIds::NineAlphanumeric,
            reasoning_back: ReasoningReplay::Never,
            ..Self::compatible()
        }
    }

    /// Groq: <https://console.groq.com/docs/openai>.
    #[must_use]
    pub fn groq() -> Self {
        Self {
            name: "groq".into(),
            base_url: "https://api.groq.com/openai/v1".into(),
            key_variable: "GROQ_API_KEY".into(),
            max_tokens_field: "max_completion_tokens".into(),
            strict: false,
            json_schema_with_tools: false,
            max_tools: Some(MOST_TOOLS),
            ..Self::compatible()
        }
    }

    /// Gemini, through its [endpoint with OpenAI's API](https://ai.google.dev/gemini-api/docs/openai).
    #[must_use]
    pub fn gemini() -> Self {
        Self {
            name: "gemini".into(),
            base_url: "https://generativelanguage.googleapis.com/v1beta/openai".into(),
            key_variable: "GEMINI_API_KEY".into(),
            strict: false,
            parallel_tool_calls: false,
            json_schema_with_tools: false,
            names_begin_with_letter: true,
            max_tools: Some(MOST_TOOLS),
            ..Self::compatible()
        }
    }

    /// OpenRouter: <https://openrouter.ai/docs/api-reference/overview>.
    #[must_use]
    pub fn openrouter() -> Self {
        Self {
            name: "openrouter".into(),
            base_url: "https://openrouter.ai/api/v1".into(),
            key_variable: "OPENROUTER_API_KEY".into(),
            ..Self::compatible()
        }
    }

    /// Ollama on this machine: <https://docs.ollama.com/api/openai-compatibility>.
    #[must_use]
    pub fn ollama() -> Self {
        Self {
            name: "ollama".into(),
            base_url: "http://localhost:11434/v1".into(),
            strict: false,
            parallel_tool_calls: false,
            required_tool_choice: None,
            named_tool_choice: false,
            null_content: false,
            ..Self::without_key()
        }
    }

    /// vLLM on this machine: <https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html>.
    #[must_use]
    pub fn vllm() -> Self {
        Self { name: "vllm".into(), base_url: "http://localhost:8000/v1".into(), ..Self::without_key() }
    }

    /// llama.cpp's server on this machine, started with `--jinja`:
    /// <https://github.com/ggml-org/llama.cpp/blob/master/docs/function-calling.md>.
    #[must_use]
    pub fn llama_cpp() -> Self {
        Self {
            name: "llama.cpp".into(),
            base_url: "http://localhost:8080/v1".into(),
            strict: false,
            json_schema_with_tools: false,
            named_tool_choice: false,
            ..Self::without_key()
        }
    }

    /// LM Studio on this machine, which takes [only words](https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/670) as
    /// the choice of tools.
    #[must_use]
    pub fn lm_studio() -> Self {
        Self {
            name: "lm-studio".into(),
            base_url: "http://localhost:1234/v1".into(),
            strict: false,
            parallel_tool_calls: false,
            named_tool_choice: false,
            ..Self::without_key()
        }
    }

    fn without_key() -> Self {
        Self { key_variable: "".into(), ..Self::compatible() }
    }
}

/// `https://mine.openai.azure.com` of `mine`, and of a URL that the portal shows.
fn azure_origin(resource: &str) -> String {
    match resource.split_once("://") {
        None => format!("https://{resource}.openai.azure.com"),
        Some((scheme, rest)) => format!("{scheme}://{}", rest.split('/').next().unwrap_or_default()),
    }
}
