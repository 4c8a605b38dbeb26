//! The known endpoints, each with the documentation of its differences.

use reqwest::Url;
use tool_http::client::AuthScheme;

use crate::endpoint::{Endpoint, FIRST_VERSION, VERSION};

/// The base URL of Anthropic's own endpoint.
pub(crate) const BASE_URL: &str = "https://api.anthropic.com";

/// Current models write more, but a reply that is not streamed must be shorter than 21,333 tokens.
const DEFAULT_MAX_TOKENS: u32 = 16_384;

impl Endpoint {
    /// Detects the endpoint at this URL by its host.
    pub(crate) fn from_url(url: &Url) -> Self {
        match url.host_str().unwrap_or_default() {
            "api.deepseek.com" => Self::deepseek(),
            "api.moonshot.ai" | "api.moonshot.cn" => Self::moonshot(),
            "api.minimax.io" | "api.minimaxi.com" => Self::minimax(),
            "api.z.ai" => Self::zai(),
            "ollama.com" => Self::ollama(),
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
        let table = [
            ("https://api.anthropic.com", Endpoint::anthropic()),
            ("https://api.deepseek.com/anthropic", Endpoint::deepseek()),
            ("https://api.moonshot.ai/anthropic", Endpoint::moonshot()),
            ("https://api.z.ai/api/anthropic", Endpoint::zai()),
            ("http://127.0.0.1:8080", Endpoint::anthropic()),
            ("https://api.deepseek.com.example.org", Endpoint::anthropic()),
        ];
        for (url, expected) in table {
            assert_eq!(Endpoint::from_url(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }
}
