//! The differences between servers of the Messages API.

use std::borrow::Cow;

use tool_http::client::AuthScheme;

/// The version of the API that this crate is written for.
pub(crate) const VERSION: &str = "2026-10-21";

/// The earlier version, the only one with sampling options, which compatible servers implement.
pub(crate) const FIRST_VERSION: &str = "2023-06-01";

/// The address of a server with Anthropic's Messages API, and its differences from Anthropic's own.
///
/// There is a constructor for each known server, and every field can be changed:
///
/// | endpoint | key | differences |
/// | --- | --- | --- |
/// | [`anthropic`](Self::anthropic) | `ANTHROPIC_API_KEY`, as `x-api-key` | |
/// | [`deepseek`](Self::deepseek) | `DEEPSEEK_API_KEY` | [`compatible`](Self::compatible) |
/// | [`moonshot`](Self::moonshot) | `MOONSHOT_API_KEY` | [`compatible`](Self::compatible); a call cannot be required |
/// | [`minimax`](Self::minimax) | `MINIMAX_API_KEY` | [`compatible`](Self::compatible); a call cannot be required |
/// | [`zai`](Self::zai) | `ZAI_API_KEY` | [`compatible`](Self::compatible) |
/// | [`ollama`](Self::ollama), [`lm_studio`](Self::lm_studio), [`llama_cpp`](Self::llama_cpp) | none, otherwise as a bearer token | [`compatible`](Self::compatible) |
/// | [`foundry`](Self::foundry) | `ANTHROPIC_FOUNDRY_API_KEY`, or tokens of Entra ID | the model is the deployment; no list of models |
/// | [`vertex`](Self::vertex) | tokens of Google | the model is part of the path; no list of models |
/// | [`bedrock`](Self::bedrock) | `AWS_BEARER_TOKEN_BEDROCK`, or [`bedrock_keys`](crate::bedrock_keys) | no strict tools, JSON schemas, counts of tokens, list of models |
/// | [`bedrock_mantle`](Self::bedrock_mantle) | the same | no list of models |
/// | [`aws`](Self::aws) | `ANTHROPIC_AWS_API_KEY` | needs a workspace |
/// | [`compatible`](Self::compatible) | `ANTHROPIC_API_KEY` | version 2023-06-01; no strict tools, JSON schemas, cache points, files, compaction or search for tools |
///
/// By default, the endpoint is detected from the host of the base URL. An unknown host is taken for a gateway to
/// [`anthropic`](Self::anthropic).
///
/// ```
/// use tool_anthropic::{Anthropic, Endpoint};
///
/// let mut endpoint = Endpoint::compatible();
/// endpoint.supports_output_format = true;
/// let server = Anthropic::builder().endpoint(endpoint).base_url("http://gpu.example:8000").build()?;
/// # Ok::<_, tool_anthropic::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Endpoint {
    /// The provider's name. The blocks of a reply, such as signed thinking, are sent back only to endpoints of the same name.
    pub name: Cow<'static, str>,
    /// The base URL, unless the builder sets one, if it is known.
    pub base_url: Option<Cow<'static, str>>,
    /// The environment variable that holds the key, if there is one.
    pub api_key_variable: Option<Cow<'static, str>>,
    /// The header that the key is sent in.
    pub auth_scheme: AuthScheme,
    /// The version of the API, for the header `anthropic-version`. Only with 2023-06-01, `temperature` and `top_p` are sent.
    pub version: Cow<'static, str>,
    /// Where requests are sent, and where the model is named.
    pub routes: Routes,
    /// The workspace, for the header `anthropic-workspace-id`.
    pub workspace: Option<Cow<'static, str>>,
    /// The endpoint describes models. Otherwise nothing is [known](tool_core::ChatModel::model_info) of them.
    pub describes_models: bool,
    /// The endpoint [counts](tool_core::ChatModel::count_tokens) the tokens of a request.
    pub counts_tokens: bool,
    /// Extra fields that the endpoint refuses. A request with one of them is not sent.
    pub refused_fields: &'static [&'static str],
    /// The limit of a reply's tokens if the options set none, because the API requires one.
    pub default_max_tokens: u32,
    /// The endpoint accepts `strict` in tools.
    pub supports_strict: bool,
    /// The endpoint can constrain replies to a JSON schema. Otherwise the model does not
    /// [support](tool_core::ChatModel::supports_response_format) response formats, and typed answers are returned through a tool.
    pub supports_output_format: bool,
    /// The endpoint searches deferred tools by itself.
    pub supports_tool_search: bool,
    /// The endpoint accepts `cache_control` in tools, the system prompt and messages.
    pub supports_cache: bool,
    /// The endpoint accepts files.
    pub supports_files: bool,
    /// The endpoint [summarizes](tool_core::ChatModel::supports_compaction) conversations by itself, in a beta of the API that it is asked for by a
    /// header.
    pub supports_compaction: bool,
    /// `tool_choice` can require a call. Otherwise a request that requires one is refused.
    pub supports_required_calls: bool,
}

/// Where an endpoint expects requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Routes {
    /// `/v1/messages`, with the model in the body and the version in a header.
    Messages,
    /// `/{model}:rawPredict` and `/{model}:streamRawPredict`, with the version in the body, as on Vertex AI.
    RawPredict,
}
