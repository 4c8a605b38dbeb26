//! What is particular to an endpoint.

mod presets;

use std::borrow::Cow;

use reqwest::Url;

/// What is particular to an endpoint that has OpenAI's API: a value of plain switches, made by one of the functions named
/// after a provider and changed at will.
///
/// | endpoint | key | length | switched |
/// | --- | --- | --- | --- |
/// | [`openai`](Self::openai) | `OPENAI_API_KEY` | `max_completion_tokens` | |
/// | [`azure`](Self::azure) | `AZURE_OPENAI_API_KEY`, as `api-key` | `max_completion_tokens` | the model is the deployment |
/// | [`azure_deployments`](Self::azure_deployments) | the same | `max_completion_tokens` | the deployment stands in the path |
/// | [`deepseek`](Self::deepseek) | `DEEPSEEK_API_KEY` | `max_tokens` | reasoning goes back always; no JSON schema, no `strict`, no `parallel_tool_calls` |
/// | [`mistral`](Self::mistral) | `MISTRAL_API_KEY` | `max_tokens` | `random_seed`, ids of nine characters, `any` for `required`, no `stream_options` |
/// | [`groq`](Self::groq) | `GROQ_API_KEY` | `max_completion_tokens` | no `strict`, no JSON schema beside tools |
/// | [`gemini`](Self::gemini) | `GEMINI_API_KEY` | `max_tokens` | no `strict`, no `parallel_tool_calls`, no JSON schema beside tools; names begin with a letter or `_` |
/// | [`openrouter`](Self::openrouter) | `OPENROUTER_API_KEY` | `max_tokens` | |
/// | [`ollama`](Self::ollama) | none | `max_tokens` | no `strict`, no `parallel_tool_calls`, no choice of tools |
/// | [`vllm`](Self::vllm) | none | `max_tokens` | |
/// | [`llama_cpp`](Self::llama_cpp) | none | `max_tokens` | no `strict`, no JSON schema beside tools; a tool by name is the only one |
/// | [`lm_studio`](Self::lm_studio) | none | `max_tokens` | no `strict`, no `parallel_tool_calls`; a tool by name is the only one |
/// | [`compatible`](Self::compatible) | `OPENAI_API_KEY` | `max_tokens` | |
///
/// Without one, the endpoint is told by the host of the base URL, and is [`compatible`](Self::compatible) where that is none
/// of these.
///
/// ```
/// use tool_openai::{Endpoint, OpenAi};
///
/// let mut endpoint = Endpoint::vllm();
/// endpoint.json_schema = false;
/// let openai = OpenAi::builder().endpoint(endpoint).base_url("http://gpu.example:8000/v1").build()?;
/// # Ok::<_, tool_openai::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Endpoint {
    /// Who it is. What a provider wants back is sent to endpoints of the same name only. Empty is the host of the base URL.
    pub name: Cow<'static, str>,
    /// Where it is, unless the builder says so; empty if that is not known.
    pub base_url: Cow<'static, str>,
    /// The environment variable with the key.
    pub key_variable: Cow<'static, str>,
    /// How the key is sent.
    pub key_header: AuthScheme,
    /// Azure's older form of URL, `openai/deployments/{model}/…?api-version=…`, with this version.
    pub azure_api_version: Option<Cow<'static, str>>,
    /// The field with the most tokens that the model may write: `max_completion_tokens`, or `max_tokens`.
    pub max_tokens_field: Cow<'static, str>,
    /// The field with the seed: `seed`, or `random_seed`.
    pub seed_field: Cow<'static, str>,
    /// `stream_options` is known: a stream is asked to end with the tokens that it took.
    pub stream_options: bool,
    /// `strict` is known in tools and answer formats.
    pub strict: bool,
    /// `parallel_tool_calls` is known.
    pub parallel_tool_calls: bool,
    /// The word for [`ToolChoice::Required`](tool_core::ToolChoice::Required); without one the model decides.
    pub required_tool_choice: Option<Cow<'static, str>>,
    /// A tool can be chosen by its name; else it is the only one that is offered, and required if that can be said.
    pub named_tool_choice: bool,
    /// The answer can be held to a JSON schema. Without it the model does not
    /// [support](tool_core::ChatModel::supports_response_format) answer formats.
    pub json_schema: bool,
    /// The same where tools are offered; without it, [typed answers](tool_core::Ask::answer_as) come by a tool then.
    pub json_schema_with_tools: bool,
    /// `content` may be null beside calls; else it is an empty text.
    pub null_content: bool,
    /// `refusal` is known in messages; else a refusal is a text that the model said.
    pub refusals: bool,
    /// How ids of calls are sent.
    pub call_ids: CallIds,
    /// When the model's reasoning goes back, where it came as `reasoning_content`.
    pub reasoning_back: ReasoningReplay,
    /// Names of tools begin with a letter or `_`.
    pub names_begin_with_letter: bool,
    /// A tool's schema is an object without `anyOf`, `oneOf`, `allOf`, `enum` and `not` at its top.
    pub plain_parameters: bool,
    /// How many tools a request may have.
    pub max_tools: Option<usize>,
    /// How many characters of a tool's description are sent; the rest is cut off, and [told
    /// of](crate::OpenAiBuilder::on_warning).
    pub max_description: Option<usize>,
}

/// How the key is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthScheme {
    /// `Authorization: Bearer …`.
    Bearer,
    /// `api-key: …`, as Azure has it.
    ApiKey,
}

/// How ids of calls are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallIds {
    /// As they came.
    AsGiven,
    /// As nine letters and digits, which is all that Mistral takes: an id of another form becomes always the same of them.
    NineAlphanumeric,
}

/// When the model's reasoning goes back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningReplay {
    /// Never.
    Never,
    /// With the calls that it led to.
    WithCalls,
    /// Always.
    Always,
}

impl Endpoint {
    /// The one at this URL, as far as its host tells.
    pub(crate) fn at(url: &Url) -> Self {
        let host = url.host_str().unwrap_or_default();
        let is_below = |domain: &str| host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
        match host {
            "api.openai.com" => Self::openai(),
            "api.deepseek.com" => Self::deepseek(),
            "api.mistral.ai" => Self::mistral(),
            "api.groq.com" => Self::groq(),
            "generativelanguage.googleapis.com" => Self::gemini(),
            "openrouter.ai" => Self::openrouter(),
            _ if is_below("openai.com") => Self::openai(),
            _ if is_below("openai.azure.com") || is_below("services.ai.azure.com") => Self::azure_at(""),
            _ => Self::compatible(),
        }
    }

    /// The path of an API, and what stands behind the `?`, for a model.
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
    fn the_host_tells_the_endpoint() {
        let table = [
            ("https://api.openai.com/v1", Endpoint::openai()),
            ("https://eu.api.openai.com/v1", Endpoint::openai()),
            ("https://api.deepseek.com", Endpoint::deepseek()),
            ("https://api.mistral.ai/v1", Endpoint::mistral()),
            ("https://api.groq.com/openai/v1", Endpoint::groq()),
            ("https://generativelanguage.googleapis.com/v1beta/openai", Endpoint::gemini()),
            ("https://openrouter.ai/api/v1", Endpoint::openrouter()),
            ("http://127.0.0.1:8080/v1", Endpoint::compatible()),
            ("https://notopenai.com/v1", Endpoint::compatible()),
            ("https://api.openai.com.example.org/v1", Endpoint::compatible()),
        ];
        for (url, expected) in table {
            assert_eq!(Endpoint::at(&Url::parse(url).unwrap()), expected, "{url}");
        }
        let azure = Endpoint::at(&Url::parse("https://mine.openai.azure.com/openai/v1").unwrap());
        assert_eq!((azure.key_header, &*azure.base_url), (AuthScheme::ApiKey, ""));
    }

    #[test]
    fn a_deployment_stands_in_the_path() {
        let endpoint = Endpoint::azure_deployments("mine", "2025-04-01-preview");
        let (path, query) = endpoint.path("chat/completions", "my model/4");
        assert_eq!(path, "openai/deployments/my%20model%2F4/chat/completions");
        assert_eq!(query, Some(("api-version", "2025-04-01-preview")));
        assert_eq!(Endpoint::openai().path("responses", "m"), ("responses".into(), None));
    }
}
