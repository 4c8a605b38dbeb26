//! The address of an endpoint and how to connect to it.

mod anthropic;
mod builder;

pub use self::anthropic::Anthropic;
pub use self::builder::AnthropicBuilder;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use tool_http::client::ErrorKind;

    #[test]
    fn the_version_is_appended_once() {
        for base_url in ["http://localhost:1", "http://localhost:1/", "http://localhost:1/v1/"] {
            let anthropic = Anthropic::builder().base_url(base_url).build().unwrap();
            assert_eq!(anthropic.0.url("messages").as_str(), "http://localhost:1/v1/messages");
        }
        let endpoint = Anthropic::builder().endpoint(Endpoint::deepseek()).api_key("k").build().unwrap();
        assert_eq!(endpoint.0.url("messages").as_str(), "https://api.deepseek.com/anthropic/v1/messages");
    }

    /// The URLs of the official SDK, `anthropic` 2.14.0.
    #[test]
    fn clouds_have_the_urls_of_the_official_sdk() {
        let models = "locations/LOCATION/publishers/anthropic/models";
        let vertex = |host: &str, location: &str| {
            format!("https://{host}/v1/projects/p/{}/", models.replace("LOCATION", location))
        };
        let table = [
            (Endpoint::foundry("mine"), "https://mine.services.ai.azure.com/anthropic/".to_owned()),
            (
                Endpoint::vertex("p", "europe-west1"),
                vertex("europe-west1-aiplatform.googleapis.com", "europe-west1"),
            ),
            (Endpoint::vertex("p", "global"), vertex("aiplatform.googleapis.com", "global")),
            (Endpoint::vertex("p", "eu"), vertex("aiplatform.eu.rep.googleapis.com", "eu")),
            (
                Endpoint::bedrock("us-east-1"),
                "https://bedrock-runtime.us-east-1.amazonaws.com/anthropic/".to_owned(),
            ),
            (
                Endpoint::bedrock_mantle("us-east-1"),
                "https://bedrock-mantle.us-east-1.api.aws/anthropic/".to_owned(),
            ),
            (Endpoint::aws("us-east-1", "w"), "https://aws-external-anthropic.us-east-1.api.aws/".to_owned()),
        ];
        for (endpoint, expected) in table {
            let anthropic = Anthropic::builder().endpoint(endpoint).api_key("k").build().unwrap();
            assert_eq!(anthropic.0.connection.base_url().as_str(), expected);
        }
    }

    #[test]
    fn rejects_invalid_settings_without_showing_secrets() {
        let builder = || Anthropic::builder().base_url("http://localhost");
        let table = [
            (
                builder().base_url("http://user:secret@host"),
                "the base URL contains a user name or password; set the key with `api_key`",
            ),
            (
                builder().base_url("http://localhost/v1/messages"),
                "the base URL must not contain `/messages`; it is appended",
            ),
            (builder().api_key(" "), "the API key is empty; set one, or none if the server needs none"),
            (
                builder().api_key("sk-\nsecret"),
                "the API key contains a character that is not allowed in headers, such as a line break; trim it",
            ),
            (builder().max_concurrent_requests(0), "`max_concurrent_requests` must be at least 1"),
            (
                Anthropic::builder(),
                "no API key; set one with `api_key`, or read it from ANTHROPIC_API_KEY with `api_key_from_env`",
            ),
            (
                Anthropic::builder().endpoint(Endpoint::compatible()),
                "the endpoint has no base URL; set one with `base_url`",
            ),
        ];
        for (builder, expected) in table {
            let error = builder.build().unwrap_err();
            assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Config, expected));
        }
    }

    #[test]
    fn the_key_is_never_shown() {
        let builder = Anthropic::builder().api_key("sk-ant-secret").base_url("http://localhost/");
        assert!(!format!("{builder:?}").contains("secret"));
        let anthropic = builder.build().unwrap();
        assert!(!format!("{anthropic:?} {:?}", anthropic.chat_model("m")).contains("secret"));
    }
}
