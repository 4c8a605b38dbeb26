//! The known endpoints, each with the documentation of its differences.

use std::borrow::Cow;

use tool_http::client::{AuthScheme, AwsCredentials, SignedKeyForm, TokenSource, signed_keys};

use crate::endpoint::{CallIdFormat, Endpoint, ReasoningReplay};

/// The maximum number of tools in a request to OpenAI: <https://platform.openai.com/docs/api-reference/chat/create>.
const MAX_TOOLS: usize = 128;

/// The signature that Gemini accepts for calls that another model made: <https://ai.google.dev/gemini-api/docs/thought-signatures>.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The short-term keys of Bedrock: <https://pypi.org/project/aws-bedrock-token-generator>.
const BEDROCK_KEYS: SignedKeyForm = SignedKeyForm {
    prefix: "bedrock-api-key-",
    host: "bedrock.amazonaws.com",
    service: "bedrock",
    action: "Action=CallWithBearerToken",
    end: "&Version=1",
};

/// Returns a source of short-term keys of Bedrock for a region, which are signed on this machine with what `credentials` returns: those of
/// a role, or [`AwsCredentials::from_env`]. A key is valid for twelve hours, or as long as the credentials.
///
/// ```
/// use tool_openai::{AwsCredentials, Endpoint, OpenAi, bedrock_keys};
///
/// let bedrock = OpenAi::builder()
///     .endpoint(Endpoint::bedrock("eu-central-1"))
///     .token_source(bedrock_keys("eu-central-1", async || AwsCredentials::from_env()));
/// # let region = String::from("eu-central-1");
/// # let bedrock = bedrock.token_source(bedrock_keys(&region, async || AwsCredentials::from_env()));
/// # drop(region);
/// # let _ = bedrock;
/// ```
pub fn bedrock_keys<F, T, E>(region: &str, credentials: F) -> impl TokenSource + use<F, T, E>
where
    F: Fn() -> T + Send + Sync,
    T: Future<Output = Result<AwsCredentials, E>> + Send,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    signed_keys(BEDROCK_KEYS, region, credentials)
}

impl Endpoint {
    /// Creates OpenAI's own endpoint.
    #[must_use]
    pub fn openai() -> Self {
        Self {
            name: Some("openai".into()),
            base_url: Some("https://api.openai.com/v1".into()),
            api_key_variable: Some("OPENAI_API_KEY".into()),
            auth_scheme: AuthScheme::Bearer,
            azure_api_version: None,
            max_tokens_field: "max_completion_tokens".into(),
            seed_field: "seed".into(),
            supports_stream_options: true,
            supports_strict: true,
            supports_parallel_tool_calls: true,
            required_tool_choice: Some("required".into()),
            supports_named_tool_choice: true,
            supports_json_schema: true,
            supports_json_schema_with_tools: true,
            guarantees_json_schema: true,
            supports_tool_search: true,
            counts_input_tokens: true,
            supports_compaction: true,
            supports_missing_content: true,
            supports_refusals: true,
            call_id_format: CallIdFormat::Verbatim,
            reasoning_replay: ReasoningReplay::WithCalls,
            missing_signature: None,
            truncates_silently: false,
            writes_cache_control: false,
            tool_names_start_with_letter: false,
            requires_plain_parameters: true,
            max_tools: Some(MAX_TOOLS),
            max_description_chars: None,
        }
    }

    /// Creates an endpoint with the fields that nearly all OpenAI-compatible servers accept.
    #[must_use]
    pub fn compatible() -> Self {
        Self {
            name: None,
            base_url: None,
            max_tokens_field: "max_tokens".into(),
            requires_plain_parameters: false,
            guarantees_json_schema: false,
            supports_tool_search: false,
            counts_input_tokens: false,
            supports_compaction: false,
            max_tools: None,
            ..Self::openai()
        }
    }

    /// Creates the endpoint of an Azure OpenAI resource, such as `mine` for `https://mine.openai.azure.com`. For another
    /// host, set the [base URL](crate::OpenAiBuilder::base_url). This is the [current
    /// API](https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle); the model is the name of the
    /// deployment.
    #[must_use]
    pub fn azure(resource: &str) -> Self {
        Self::azure_at(format!("{}/openai/v1", azure_origin(resource, "openai.azure.com")))
    }

    /// Creates the endpoint of an Azure OpenAI resource with the older form of the API in this version, such as
    /// `2024-10-21`. The model is the name of the deployment and part of the path.
    #[must_use]
    pub fn azure_deployments(resource: &str, api_version: impl Into<Cow<'static, str>>) -> Self {
        Self {
            azure_api_version: Some(api_version.into()),
            // Documented for the current form only: <https://learn.microsoft.com/azure/foundry/openai/how-to/tool-search>.
            supports_tool_search: false,
            supports_compaction: false,
            ..Self::azure_at(azure_origin(resource, "openai.azure.com"))
        }
    }

    fn azure_at(base_url: String) -> Self {
        Self {
            name: Some("azure".into()),
            base_url: Some(base_url.into()),
            api_key_variable: Some("AZURE_OPENAI_API_KEY".into()),
            auth_scheme: AuthScheme::Header("api-key"),
            // It answers with 404: <https://learn.microsoft.com/en-us/answers/questions/5889782>.
            counts_input_tokens: false,
            ..Self::openai()
        }
    }

    /// Creates the endpoint of OpenAI's models in a resource of Microsoft Foundry, such as `mine` or `https://mine.services.ai.azure.com`. The
    /// model is the name of the deployment. Tokens of Entra ID have the scope `https://ai.azure.com/.default`.
    #[must_use]
    pub fn foundry(resource: &str) -> Self {
        Self::azure_at(format!("{}/openai/v1", azure_origin(resource, "services.ai.azure.com")))
    }

    /// Creates the endpoint of Gemini on Google's Vertex AI, in a project and a location such as `europe-west1`, `eu`, `us` or `global`. Tokens
    /// have the scope `https://www.googleapis.com/auth/cloud-platform`. The signatures of calls are not exchanged with those of AI Studio.
    #[must_use]
    pub fn vertex(project: &str, location: &str) -> Self {
        let host = match location {
            "global" => "aiplatform.googleapis.com".to_owned(),
            "us" | "eu" => format!("aiplatform.{location}.rep.googleapis.com"),
            _ => format!("{location}-aiplatform.googleapis.com"),
        };
        let path = format!("v1/projects/{project}/locations/{location}/endpoints/openapi");
        Self {
            name: Some("vertex".into()),
            base_url: Some(format!("https://{host}/{path}").into()),
            api_key_variable: None,
            ..Self::gemini()
        }
    }

    /// Creates the OpenAI-compatible endpoint of Amazon Bedrock in a region, at `bedrock-runtime`. Keys are in `AWS_BEARER_TOKEN_BEDROCK`, or
    /// made by [`bedrock_keys`](crate::bedrock_keys).
    #[must_use]
    pub fn bedrock(region: &str) -> Self {
        let base_url = format!("https://bedrock-runtime.{region}.amazonaws.com/openai/v1");
        Self::bedrock_at("bedrock", base_url)
    }

    /// Creates the OpenAI-compatible endpoint of Amazon Bedrock in a region, at `bedrock-mantle`. Some models are at `/v1` instead of
    /// `/openai/v1`: set the [base URL](crate::OpenAiBuilder::base_url) for them.
    #[must_use]
    pub fn bedrock_mantle(region: &str) -> Self {
        let base_url = format!("https://bedrock-mantle.{region}.api.aws/openai/v1");
        Self::bedrock_at("bedrock-mantle", base_url)
    }

    fn bedrock_at(name: &'static str, base_url: String) -> Self {
        Self {
            name: Some(name.into()),
            base_url: Some(base_url.into()),
            api_key_variable: Some("AWS_BEARER_TOKEN_BEDROCK".into()),
            max_tokens_field: "max_completion_tokens".into(),
            ..Self::compatible()
        }
    }

    /// Creates DeepSeek's endpoint, which requires its
    /// [reasoning](https://api-docs.deepseek.com/guides/thinking_mode) to be sent back after tool calls.
    #[must_use]
    pub fn deepseek() -> Self {
        Self {
            name: Some("deepseek".into()),
            base_url: Some("https://api.deepseek.com".into()),
            api_key_variable: Some("DEEPSEEK_API_KEY".into()),
            supports_strict: false,
            supports_parallel_tool_calls: false,
            supports_json_schema: false,
            supports_missing_content: false,
            reasoning_replay: ReasoningReplay::Always,
            max_tools: Some(MAX_TOOLS),
            ..Self::compatible()
        }
    }

    /// Creates Mistral's endpoint, which [rejects](https://docs.mistral.ai/api) unknown fields.
    #[must_use]
    pub fn mistral() -> Self {
        Self {
            name: Some("mistral".into()),
            base_url: Some("https://api.mistral.ai/v1".into()),
            api_key_variable: Some("MISTRAL_API_KEY".into()),
            seed_field: "random_seed".into(),
            supports_stream_options: false,
            required_tool_choice: Some("any".into()),
            supports_missing_content: false,
            supports_refusals: false,
            call_id_format: CallIdFormat::NineAlphanumeric,
            reasoning_replay: ReasoningReplay::Never,
            ..Self::compatible()
        }
    }

    /// Creates Groq's endpoint: <https://console.groq.com/docs/openai>.
    #[must_use]
    pub fn groq() -> Self {
        Self {
            name: Some("groq".into()),
            base_url: Some("https://api.groq.com/openai/v1".into()),
            api_key_variable: Some("GROQ_API_KEY".into()),
            max_tokens_field: "max_completion_tokens".into(),
            supports_strict: false,
            supports_json_schema_with_tools: false,
            max_tools: Some(MAX_TOOLS),
            ..Self::compatible()
        }
    }

    /// Creates Gemini's [OpenAI-compatible endpoint](https://ai.google.dev/gemini-api/docs/openai).
    #[must_use]
    pub fn gemini() -> Self {
        Self {
            name: Some("gemini".into()),
            base_url: Some("https://generativelanguage.googleapis.com/v1beta/openai".into()),
            api_key_variable: Some("GEMINI_API_KEY".into()),
            supports_strict: false,
            supports_parallel_tool_calls: false,
            supports_json_schema_with_tools: false,
            missing_signature: Some(NO_SIGNATURE.into()),
            tool_names_start_with_letter: true,
            max_tools: Some(MAX_TOOLS),
            ..Self::compatible()
        }
    }

    /// Creates OpenRouter's endpoint: <https://openrouter.ai/docs/api-reference/overview>. Set
    /// [`writes_cache_control`](Self::writes_cache_control) for Claude, of which nothing is cached otherwise.
    #[must_use]
    pub fn openrouter() -> Self {
        Self {
            name: Some("openrouter".into()),
            base_url: Some("https://openrouter.ai/api/v1".into()),
            api_key_variable: Some("OPENROUTER_API_KEY".into()),
            ..Self::compatible()
        }
    }

    /// Creates the endpoint of a local Ollama: <https://docs.ollama.com/api/openai-compatibility>.
    #[must_use]
    pub fn ollama() -> Self {
        Self {
            name: Some("ollama".into()),
            base_url: Some("http://localhost:11434/v1".into()),
            truncates_silently: true,
            supports_strict: false,
            supports_parallel_tool_calls: false,
            required_tool_choice: None,
            supports_named_tool_choice: false,
            supports_missing_content: false,
            ..Self::without_key()
        }
    }

    /// Creates the endpoint of a local vLLM: <https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html>.
    #[must_use]
    pub fn vllm() -> Self {
        Self {
            name: Some("vllm".into()),
            base_url: Some("http://localhost:8000/v1".into()),
            ..Self::without_key()
        }
    }

    /// Creates the endpoint of a local llama.cpp server that was started with `--jinja`:
    /// <https://github.com/ggml-org/llama.cpp/blob/master/docs/function-calling.md>.
    #[must_use]
    pub fn llama_cpp() -> Self {
        Self {
            name: Some("llama.cpp".into()),
            base_url: Some("http://localhost:8080/v1".into()),
            supports_strict: false,
            supports_json_schema_with_tools: false,
            supports_named_tool_choice: false,
            ..Self::without_key()
        }
    }

    /// Creates the endpoint of a local server of llama-cpp-python, started with `--chat_format chatml-function-calling`:
    /// <https://llama-cpp-python.readthedocs.io/en/latest/server/#function-calling>. Its template reads the `content` of every
    /// message, and requests with `"tool_choice": "required"` fail.
    #[must_use]
    pub fn llama_cpp_python() -> Self {
        Self {
            name: Some("llama-cpp-python".into()),
            base_url: Some("http://localhost:8000/v1".into()),
            supports_strict: false,
            supports_parallel_tool_calls: false,
            required_tool_choice: None,
            supports_json_schema: false,
            supports_missing_content: false,
            ..Self::without_key()
        }
    }

    /// Creates the endpoint of a local LM Studio, whose `tool_choice` accepts
    /// [only strings](https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/670).
    #[must_use]
    pub fn lm_studio() -> Self {
        Self {
            name: Some("lm-studio".into()),
            base_url: Some("http://localhost:1234/v1".into()),
            supports_strict: false,
            supports_parallel_tool_calls: false,
            supports_named_tool_choice: false,
            ..Self::without_key()
        }
    }

    fn without_key() -> Self {
        Self { api_key_variable: None, ..Self::compatible() }
    }
}

/// Returns `https://mine.openai.azure.com` for `mine` in this domain, and the origin of a URL as the portal shows it.
fn azure_origin(resource: &str, domain: &str) -> String {
    match resource.split_once("://") {
        None => format!("https://{resource}.{domain}"),
        Some((scheme, rest)) => format!("{scheme}://{}", rest.split('/').next().unwrap_or_default()),
    }
}
