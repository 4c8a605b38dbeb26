//! The differences between OpenAI-compatible endpoints.
//!
//! Differences between endpoints are fields of `Endpoint`, because users can then set each one, and a new preset is a few lines.

use std::borrow::Cow;

use reqwest::Url;
use tool_http::client::AuthScheme;

/// The address of an OpenAI-compatible endpoint and its differences from OpenAI's own.
///
/// There is a constructor for each known provider, and every field can be changed:
///
/// | endpoint | key | token limit | differences |
/// | --- | --- | --- | --- |
/// | [`openai`](Self::openai) | `OPENAI_API_KEY` | `max_completion_tokens` | |
/// | [`azure`](Self::azure) | `AZURE_OPENAI_API_KEY`, as `api-key` | `max_completion_tokens` | the model is the deployment |
/// | [`azure_deployments`](Self::azure_deployments) | the same | `max_completion_tokens` | the deployment is part of the path; no search for tools |
/// | [`foundry`](Self::foundry) | the same, or tokens of Entra ID | `max_completion_tokens` | the model is the deployment |
/// | [`vertex`](Self::vertex) | tokens of Google | `max_tokens` | as [`gemini`](Self::gemini); models are named `google/gemini-…` |
/// | [`bedrock`](Self::bedrock), [`bedrock_mantle`](Self::bedrock_mantle) | `AWS_BEARER_TOKEN_BEDROCK`, or [`bedrock_keys`](crate::bedrock_keys) | `max_completion_tokens` | |
/// | [`deepseek`](Self::deepseek) | `DEEPSEEK_API_KEY` | `max_tokens` | reasoning is always sent back; no JSON schema, no `strict`, no `parallel_tool_calls` |
/// | [`mistral`](Self::mistral) | `MISTRAL_API_KEY` | `max_tokens` | `random_seed`, ids of nine characters, `any` for `required`, no `stream_options` |
/// | [`groq`](Self::groq) | `GROQ_API_KEY` | `max_completion_tokens` | no `strict`, no JSON schema together with tools |
/// | [`gemini`](Self::gemini) | `GEMINI_API_KEY` | `max_tokens` | no `strict`, no `parallel_tool_calls`, no JSON schema together with tools; tool names start with a letter or `_` |
/// | [`openrouter`](Self::openrouter) | `OPENROUTER_API_KEY` | `max_tokens` | |
/// | [`ollama`](Self::ollama) | none | `max_tokens` | no `strict`, no `parallel_tool_calls`, no `tool_choice` |
/// | [`vllm`](Self::vllm) | none | `max_tokens` | |
/// | [`llama_cpp`](Self::llama_cpp) | none | `max_tokens` | no `strict`, no JSON schema together with tools; a tool that is chosen by name is the only one offered |
/// | [`llama_cpp_python`](Self::llama_cpp_python) | none | `max_tokens` | no `strict`, no `parallel_tool_calls`, no JSON schema, no `required` |
/// | [`lm_studio`](Self::lm_studio) | none | `max_tokens` | no `strict`, no `parallel_tool_calls`; a tool that is chosen by name is the only one offered |
/// | [`compatible`](Self::compatible) | `OPENAI_API_KEY` | `max_tokens` | |
///
/// Only OpenAI and Azure search for tools and compact conversations in their Responses API.
///
/// By default, the endpoint is detected from the host of the base URL. An unknown host is [`compatible`](Self::compatible).
///
/// ```
/// use tool_openai::{Endpoint, OpenAi};
///
/// let mut endpoint = Endpoint::vllm();
/// endpoint.supports_json_schema = false;
/// let openai = OpenAi::builder().endpoint(endpoint).base_url("http://gpu.example:8000/v1").build()?;
/// # Ok::<_, tool_openai::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Endpoint {
    /// The provider's name. Provider data of a conversation, such as signatures, is sent only to endpoints of the same name.
    /// Without one, the host of the base URL is the name.
    pub name: Option<Cow<'static, str>>,
    /// The base URL, unless the builder sets one.
    pub base_url: Option<Cow<'static, str>>,
    /// The environment variable that holds the key. Without one, no key is needed.
    pub api_key_variable: Option<Cow<'static, str>>,
    /// The header that the key is sent in.
    pub auth_scheme: AuthScheme,
    /// The version for Azure's older form of URL, `openai/deployments/{model}/…?api-version=…`.
    pub azure_api_version: Option<Cow<'static, str>>,
    /// The field that limits the tokens of a reply: `max_completion_tokens` or `max_tokens`.
    pub max_tokens_field: Cow<'static, str>,
    /// The field for the seed: `seed` or `random_seed`.
    pub seed_field: Cow<'static, str>,
    /// The endpoint accepts `stream_options`, which requests the token usage of a stream.
    pub supports_stream_options: bool,
    /// The endpoint accepts `strict` in tools and response formats.
    pub supports_strict: bool,
    /// The endpoint accepts `parallel_tool_calls`.
    pub supports_parallel_tool_calls: bool,
    /// The value of `tool_choice` for [`ToolChoice::Required`](tool_core::model::ToolChoice::Required). Without one the model
    /// decides.
    pub required_tool_choice: Option<Cow<'static, str>>,
    /// `tool_choice` can name a tool. Otherwise that tool is the only one offered, and required if possible.
    pub supports_named_tool_choice: bool,
    /// The endpoint can constrain replies to a JSON schema. Otherwise the model does not
    /// [support](tool_core::ChatModel::supports_response_format) response formats.
    pub supports_json_schema: bool,
    /// The endpoint can constrain replies to a JSON schema while tools are offered. Otherwise
    /// [typed answers](tool_core::agent::Ask::answer_as) are returned through a tool in that case.
    pub supports_json_schema_with_tools: bool,
    /// The endpoint is known to support JSON schemas with every model, so its errors about one are about the schema itself. Otherwise
    /// such an error suggests that the endpoint may not support them.
    pub guarantees_json_schema: bool,
    /// The endpoint's Responses API searches deferred tools by itself. Otherwise, and for models that are known to be older than
    /// `gpt-5.4`, the model does not [support](tool_core::ChatModel::supports_tool_search) it.
    pub supports_tool_search: bool,
    /// The endpoint's Responses API counts the input tokens of a request: `POST /responses/input_tokens`. Otherwise the model does not
    /// [count](tool_core::ChatModel::count_tokens) them.
    pub counts_input_tokens: bool,
    /// The endpoint's Responses API compacts a conversation on demand: `POST /responses/compact`. Otherwise the model does not
    /// [summarize](tool_core::ChatModel::supports_compaction) by itself.
    pub supports_compaction: bool,
    /// `content` may be left out of messages with tool calls and without text. Otherwise an empty string is sent.
    pub supports_missing_content: bool,
    /// The endpoint accepts `refusal` in messages. Otherwise a refusal is sent as text.
    pub supports_refusals: bool,
    /// The form of the ids of tool calls.
    pub call_id_format: CallIdFormat,
    /// The condition under which `reasoning_content` or `reasoning` is sent back to the model, whichever the server sent.
    pub reasoning_replay: ReasoningReplay,
    /// The signature that is sent with the first call of a message if the endpoint requires one and the call has none, because another model
    /// made it. It is reported as a [warning](crate::OpenAiBuilder::on_warning).
    pub missing_signature: Option<Cow<'static, str>>,
    /// The server removes the start of a conversation that exceeds the context of the model, without an error, and reports the context at
    /// `/api/ps`, as Ollama does. It is asked for it after the first response if there is a hook for
    /// [warnings](crate::OpenAiBuilder::on_warning), and for the [description](tool_core::ChatModel::model_info) of the model.
    pub truncates_silently: bool,
    /// `cache_control` is written, so that the provider stores the start of the conversation for five minutes. OpenRouter stores it of Claude only
    /// with this field, and charges a little more for what is written.
    pub writes_cache_control: bool,
    /// Tool names must start with a letter or `_`.
    pub tool_names_start_with_letter: bool,
    /// The schema of a tool's parameters must not have `anyOf`, `oneOf`, `allOf`, `enum` or `not` at its top level.
    pub requires_plain_parameters: bool,
    /// The maximum number of tools in a request.
    pub max_tools: Option<usize>,
    /// The maximum length of a tool's description. Longer ones are truncated, which is reported as a
    /// [warning](crate::OpenAiBuilder::on_warning).
    pub max_description_chars: Option<usize>,
}

/// The form of the ids of tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallIdFormat {
    /// Ids are sent unchanged.
    Verbatim,
    /// Ids are nine letters and digits, the only form that Mistral accepts. Ids of another form are converted, always in the
    /// same way.
    NineAlphanumeric,
}

/// The condition under which the model's reasoning is sent back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningReplay {
    /// Never.
    Never,
    /// With the tool calls that it led to.
    WithCalls,
    /// Always.
    Always,
}

impl Endpoint {
    /// Detects the endpoint at this URL by its host.
    pub(crate) fn from_url(url: &Url) -> Self {
        let host = url.host_str().unwrap_or_default();
        let is_below = |domain: &str| host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
        // One label, such as a region: the hosts below it can be anyone's.
        let is_between = |start: &str, end: &str| {
            let label = host.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
            label.is_some_and(|label| !label.is_empty() && !label.contains('.'))
        };
        let cloud = |endpoint| Self { base_url: None, ..endpoint };
        match host {
            "api.deepseek.com" => Self::deepseek(),
            "api.mistral.ai" => Self::mistral(),
            "api.groq.com" => Self::groq(),
            "generativelanguage.googleapis.com" => Self::gemini(),
            "openrouter.ai" => Self::openrouter(),
            "aiplatform.googleapis.com" => cloud(Self::vertex("", "")),
            _ if is_between("", "-aiplatform.googleapis.com") => cloud(Self::vertex("", "")),
            _ if is_between("aiplatform.", ".rep.googleapis.com") => cloud(Self::vertex("", "")),
            _ if is_between("bedrock-runtime.", ".amazonaws.com") => cloud(Self::bedrock("")),
            _ if is_between("bedrock-mantle.", ".api.aws") => cloud(Self::bedrock_mantle("")),
            _ if is_below("openai.com") => Self::openai(),
            _ if is_below("openai.azure.com") || is_below("services.ai.azure.com") => cloud(Self::azure("")),
            _ => Self::compatible(),
        }
    }

    /// Returns the path of an API for a model, and its query parameter.
    pub(crate) fn path(&self, api: &str, model: &str) -> (String, Option<(&'static str, &str)>) {
        match &self.azure_api_version {
            Some(version) => {
                let model = url::form_urlencoded::byte_serialize(model.as_bytes()).collect::<String>();
                let model = model.replace('+', "%20");
                (format!("openai/deployments/{model}/{api}"), Some(("api-version", version)))
            }
            None => (api.to_owned(), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_endpoints_by_host() {
        let cloud = |endpoint| Endpoint { base_url: None, ..endpoint };
        let table = [
            ("https://api.openai.com/v1", Endpoint::openai()),
            ("https://eu.api.openai.com/v1", Endpoint::openai()),
            ("https://api.deepseek.com", Endpoint::deepseek()),
            ("https://api.mistral.ai/v1", Endpoint::mistral()),
            ("https://api.groq.com/openai/v1", Endpoint::groq()),
            ("https://generativelanguage.googleapis.com/v1beta/openai", Endpoint::gemini()),
            ("https://openrouter.ai/api/v1", Endpoint::openrouter()),
            ("http://127.0.0.1:8080/v1", Endpoint::compatible()),
            ("https://aiplatform.googleapis.com/v1/x", cloud(Endpoint::vertex("p", "eu"))),
            ("https://europe-west1-aiplatform.googleapis.com/v1/x", cloud(Endpoint::vertex("p", "eu"))),
            ("https://aiplatform.eu.rep.googleapis.com/v1/x", cloud(Endpoint::vertex("p", "eu"))),
            ("https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1", cloud(Endpoint::bedrock("r"))),
            ("https://bedrock-mantle.eu-west-1.api.aws/openai/v1", cloud(Endpoint::bedrock_mantle("r"))),
            ("https://aiplatform.us-east1.rep.googleapis.com/v1/x", cloud(Endpoint::vertex("p", "eu"))),
            ("https://aiplatform.a.b.rep.googleapis.com/v1/x", Endpoint::compatible()),
            ("https://my-aiplatform.googleapis.com.example.org/v1", Endpoint::compatible()),
            // A bucket of another customer.
            ("https://bedrock-runtime.a.s3.amazonaws.com/v1", Endpoint::compatible()),
            ("https://bedrock-mantle.a.b.api.aws/v1", Endpoint::compatible()),
            ("https://bedrock-runtime.example.org/v1", Endpoint::compatible()),
            ("https://notopenai.com/v1", Endpoint::compatible()),
            ("https://api.openai.com.example.org/v1", Endpoint::compatible()),
        ];
        for (url, expected) in table {
            assert_eq!(Endpoint::from_url(&Url::parse(url).unwrap()), expected, "{url}");
        }
        let azure = Endpoint::from_url(&Url::parse("https://mine.openai.azure.com/openai/v1").unwrap());
        assert_eq!((azure.auth_scheme, azure.base_url), (AuthScheme::Header("api-key"), None));
    }

    #[test]
    fn a_resource_is_also_named_by_a_url() {
        for (resource, azure, foundry) in [
            (
                "mine",
                "https://mine.openai.azure.com/openai/v1",
                "https://mine.services.ai.azure.com/openai/v1",
            ),
            (
                "https://mine.example.org/api/projects/p",
                "https://mine.example.org/openai/v1",
                "https://mine.example.org/openai/v1",
            ),
        ] {
            assert_eq!(Endpoint::azure(resource).base_url.as_deref(), Some(azure));
            assert_eq!(Endpoint::foundry(resource).base_url.as_deref(), Some(foundry));
        }
    }
}
