//! The known endpoints, each with the documentation of its differences.

use std::borrow::Cow;

use reqwest::Url;
use tool_http::client::{AuthScheme, AwsCredentials, SignedKeyForm, TokenSource, signed_keys};

use crate::endpoint::{Endpoint, FIRST_VERSION, Routes, VERSION};

/// The base URL of Anthropic's own endpoint.
pub(crate) const BASE_URL: &str = "https://api.anthropic.com";

/// Current models write more, but a reply that is not streamed must be shorter than 21,333 tokens.
const DEFAULT_MAX_TOKENS: u32 = 16_384;

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
/// use tool_anthropic::{Anthropic, AwsCredentials, Endpoint, bedrock_keys};
///
/// let bedrock = Anthropic::builder()
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
    /// Detects the endpoint at this URL by its host.
    pub(crate) fn from_url(url: &Url) -> Self {
        let host = url.host_str().unwrap_or_default();
        // One label, such as a region: the hosts below it can be anyone's.
        let is_between = |start: &str, end: &str| {
            let label = host.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
            label.is_some_and(|label| !label.is_empty() && !label.contains('.'))
        };
        let cloud = |endpoint| Self { base_url: None, ..endpoint };
        match host {
            "api.deepseek.com" => Self::deepseek(),
            "api.moonshot.ai" | "api.moonshot.cn" => Self::moonshot(),
            "api.minimax.io" | "api.minimaxi.com" => Self::minimax(),
            "api.z.ai" => Self::zai(),
            "ollama.com" => Self::ollama(),
            "aiplatform.googleapis.com" => cloud(Self::vertex("", "")),
            _ if is_between("", ".services.ai.azure.com") => cloud(Self::foundry("")),
            _ if is_between("", "-aiplatform.googleapis.com") => cloud(Self::vertex("", "")),
            _ if is_between("aiplatform.", ".rep.googleapis.com") => cloud(Self::vertex("", "")),
            _ if is_between("bedrock-runtime.", ".amazonaws.com") => cloud(Self::bedrock("")),
            _ if is_between("bedrock-runtime.", ".amazonaws.com.cn") => cloud(Self::bedrock("")),
            _ if is_between("bedrock-mantle.", ".api.aws") => cloud(Self::bedrock_mantle("")),
            _ => Self::anthropic(),
        }
    }

    /// Creates Anthropic's own endpoint.
    #[must_use]
    pub fn anthropic() -> Self {
        Self {
            name: "anthropic".into(),
            base_url: Some(BASE_URL.into()),
            api_key_variable: Some("ANTHROPIC_API_KEY".into()),
            auth_scheme: AuthScheme::Header("x-api-key"),
            version: VERSION.into(),
            routes: Routes::Messages,
            workspace: None,
            describes_models: true,
            counts_tokens: true,
            refused_fields: &[],
            default_max_tokens: DEFAULT_MAX_TOKENS,
            supports_strict: true,
            supports_output_format: true,
            supports_tool_search: true,
            supports_cache: true,
            supports_files: true,
            supports_compaction: true,
            supports_required_calls: true,
        }
    }

    /// Creates an endpoint with what nearly all compatible servers accept.
    #[must_use]
    pub fn compatible() -> Self {
        Self {
            name: "compatible".into(),
            base_url: None,
            version: FIRST_VERSION.into(),
            supports_strict: false,
            supports_output_format: false,
            supports_tool_search: false,
            supports_cache: false,
            supports_files: false,
            supports_compaction: false,
            ..Self::anthropic()
        }
    }

    /// Creates the endpoint of Claude in a resource of Microsoft Foundry, such as `mine` or `https://mine.services.ai.azure.com`. The model
    /// is the name of the deployment. Tokens of Entra ID have the scope `https://ai.azure.com/.default`.
    #[must_use]
    pub fn foundry(resource: &str) -> Self {
        let origin = match resource.split_once("://") {
            None => format!("https://{resource}.services.ai.azure.com"),
            Some((scheme, rest)) => format!("{scheme}://{}", rest.split('/').next().unwrap_or_default()),
        };
        let endpoint =
            Self::cloud("foundry", format!("{origin}/anthropic"), Some("ANTHROPIC_FOUNDRY_API_KEY"));
        // The official SDK has no models for it.
        Self { describes_models: false, ..endpoint }
    }

    /// Creates the endpoint of Claude on Google's Vertex AI, in a project and a location such as `europe-west1`, `eu`, `us` or `global`.
    /// Tokens have the scope `https://www.googleapis.com/auth/cloud-platform`. A base URL of your own ends with
    /// `/publishers/anthropic/models`.
    #[must_use]
    pub fn vertex(project: &str, location: &str) -> Self {
        let host = match location {
            "global" => "aiplatform.googleapis.com".to_owned(),
            "us" | "eu" => format!("aiplatform.{location}.rep.googleapis.com"),
            _ => format!("{location}-aiplatform.googleapis.com"),
        };
        let path = format!("v1/projects/{project}/locations/{location}/publishers/anthropic/models");
        Self {
            routes: Routes::RawPredict,
            describes_models: false,
            // <https://github.com/UKGovernmentBEIS/inspect_ai/issues/3851>
            refused_fields: &["cache_control"],
            ..Self::cloud("vertex", format!("https://{host}/{path}"), None)
        }
    }

    /// Creates the endpoint of Claude on Amazon Bedrock in a region, at `bedrock-runtime`. Models are named like
    /// `global.anthropic.claude-…`, or by an inference profile. Keys are in `AWS_BEARER_TOKEN_BEDROCK`, or made by
    /// [`bedrock_keys`](crate::bedrock_keys).
    #[must_use]
    pub fn bedrock(region: &str) -> Self {
        let base_url = format!("https://bedrock-runtime.{region}.amazonaws.com/anthropic");
        Self {
            describes_models: false,
            // Other routes than `/v1/messages` answer with status 200.
            counts_tokens: false,
            supports_strict: false,
            supports_output_format: false,
            refused_fields: &["inference_geo"],
            auth_scheme: AuthScheme::Bearer,
            ..Self::cloud("bedrock", base_url, Some("AWS_BEARER_TOKEN_BEDROCK"))
        }
    }

    /// Creates the endpoint of Claude on Amazon Bedrock in a region, at `bedrock-mantle`. Models are named like
    /// `anthropic.claude-opus-4-8`.
    #[must_use]
    pub fn bedrock_mantle(region: &str) -> Self {
        let base_url = format!("https://bedrock-mantle.{region}.api.aws/anthropic");
        let endpoint = Self::cloud("bedrock-mantle", base_url, Some("AWS_BEARER_TOKEN_BEDROCK"));
        // The official SDK has no models for it.
        Self { describes_models: false, auth_scheme: AuthScheme::Bearer, ..endpoint }
    }

    /// Creates the endpoint of the Claude Platform on AWS in a region and a workspace. Models have Anthropic's names.
    #[must_use]
    pub fn aws(region: &str, workspace: impl Into<Cow<'static, str>>) -> Self {
        let base_url = format!("https://aws-external-anthropic.{region}.api.aws");
        let endpoint = Self::cloud("aws", base_url, Some("ANTHROPIC_AWS_API_KEY"));
        Self { workspace: Some(workspace.into()), auth_scheme: AuthScheme::Bearer, ..endpoint }
    }

    fn cloud(name: &'static str, base_url: String, api_key_variable: Option<&'static str>) -> Self {
        Self {
            name: name.into(),
            base_url: Some(base_url.into()),
            api_key_variable: api_key_variable.map(Into::into),
            ..Self::anthropic()
        }
    }

    /// Creates the endpoint of DeepSeek: <https://api-docs.deepseek.com/guides/anthropic_api>.
    #[must_use]
    pub fn deepseek() -> Self {
        Self::known("deepseek", "https://api.deepseek.com/anthropic", Some("DEEPSEEK_API_KEY"))
    }

    /// Creates the endpoint of Moonshot: <https://platform.kimi.com/docs/api/messages>.
    #[must_use]
    pub fn moonshot() -> Self {
        let endpoint = Self::known("moonshot", "https://api.moonshot.ai/anthropic", Some("MOONSHOT_API_KEY"));
        Self { supports_required_calls: false, ..endpoint }
    }

    /// Creates the endpoint of MiniMax: <https://platform.minimax.io/docs/api-reference/text-anthropic-api>.
    #[must_use]
    pub fn minimax() -> Self {
        let endpoint = Self::known("minimax", "https://api.minimax.io/anthropic", Some("MINIMAX_API_KEY"));
        Self { supports_required_calls: false, ..endpoint }
    }

    /// Creates the endpoint of Z.ai.
    #[must_use]
    pub fn zai() -> Self {
        Self::known("zai", "https://api.z.ai/api/anthropic", Some("ZAI_API_KEY"))
    }

    /// Creates the endpoint of Ollama on this machine: <https://docs.ollama.com/api/anthropic-compatibility>.
    #[must_use]
    pub fn ollama() -> Self {
        Self::local("ollama", "http://localhost:11434")
    }

    /// Creates the endpoint of LM Studio on this machine.
    #[must_use]
    pub fn lm_studio() -> Self {
        Self::local("lm_studio", "http://localhost:1234")
    }

    /// Creates the endpoint of a llama.cpp server on this machine, which must be started with `--jinja`.
    #[must_use]
    pub fn llama_cpp() -> Self {
        Self::local("llama_cpp", "http://localhost:8080")
    }

    fn local(name: &'static str, base_url: &'static str) -> Self {
        Self { auth_scheme: AuthScheme::Bearer, ..Self::known(name, base_url, None) }
    }

    fn known(name: &'static str, base_url: &'static str, api_key_variable: Option<&'static str>) -> Self {
        Self {
            name: name.into(),
            base_url: Some(base_url.into()),
            api_key_variable: api_key_variable.map(Into::into),
            ..Self::compatible()
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
            ("https://api.anthropic.com", Endpoint::anthropic()),
            ("https://api.deepseek.com/anthropic", Endpoint::deepseek()),
            ("https://api.moonshot.ai/anthropic", Endpoint::moonshot()),
            ("https://api.z.ai/api/anthropic", Endpoint::zai()),
            ("http://127.0.0.1:8080", Endpoint::anthropic()),
            ("https://mine.services.ai.azure.com/anthropic", cloud(Endpoint::foundry("mine"))),
            ("https://europe-west1-aiplatform.googleapis.com/v1/x", cloud(Endpoint::vertex("p", "eu"))),
            ("https://aiplatform.googleapis.com/v1/x", cloud(Endpoint::vertex("p", "eu"))),
            ("https://aiplatform.us-east1.rep.googleapis.com/v1/x", cloud(Endpoint::vertex("p", "eu"))),
            ("https://aiplatform.eu.rep.googleapis.com/v1/x", cloud(Endpoint::vertex("p", "eu"))),
            ("https://bedrock-runtime.us-east-1.amazonaws.com/anthropic", cloud(Endpoint::bedrock("r"))),
            ("https://bedrock-mantle.us-east-1.api.aws/anthropic", cloud(Endpoint::bedrock_mantle("r"))),
            ("https://bedrock-runtime.cn-north-1.amazonaws.com.cn/anthropic", cloud(Endpoint::bedrock("r"))),
            ("https://api.deepseek.com.example.org", Endpoint::anthropic()),
            ("https://aiplatform.example.org", Endpoint::anthropic()),
            ("https://aiplatform.googleapis.com.example.org", Endpoint::anthropic()),
            ("https://my-aiplatform.googleapis.com.example.org", Endpoint::anthropic()),
            ("https://aiplatform.a.b.rep.googleapis.com", Endpoint::anthropic()),
            ("https://aiplatform.eu.rep.googleapis.com.example.org", Endpoint::anthropic()),
            ("https://notaiplatform.googleapis.com", Endpoint::anthropic()),
            ("https://services.ai.azure.com", Endpoint::anthropic()),
            ("https://bedrock-runtime.a.amazonaws.com.example.org", Endpoint::anthropic()),
            // A bucket of another customer.
            ("https://bedrock-runtime.a.s3.amazonaws.com", Endpoint::anthropic()),
            ("https://bedrock-mantle.a.b.api.aws", Endpoint::anthropic()),
        ];
        for (url, expected) in table {
            assert_eq!(Endpoint::from_url(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn a_resource_is_also_named_by_a_url() {
        for (resource, expected) in [
            ("mine", "https://mine.services.ai.azure.com/anthropic"),
            ("https://mine.services.ai.azure.com", "https://mine.services.ai.azure.com/anthropic"),
            ("https://mine.example.org/api/projects/p", "https://mine.example.org/anthropic"),
        ] {
            assert_eq!(Endpoint::foundry(resource).base_url.as_deref(), Some(expected));
        }
    }
}
