//! The address of an endpoint and how to connect to it.

mod open_ai;
mod builder;

pub use self::builder::OpenAiBuilder;
pub use self::open_ai::OpenAi;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use tool_http::client::ErrorKind;

    #[test]
    fn a_base_url_keeps_its_path_and_query() {
        for (query, base_url) in [
            ("", "http://localhost:1/v1"),
            ("", "http://localhost:1/v1/"),
            ("?version=1&secret=x", "http://localhost:1/v1?version=1&secret=x"),
        ] {
            let openai = OpenAi::builder().base_url(base_url).build().unwrap();
            let url = openai.0.url("chat/completions", "m");
            assert_eq!(url.as_str(), format!("http://localhost:1/v1/chat/completions{query}"));
            assert!(!format!("{openai:?}").contains("secret"), "{openai:?}");
        }
    }

    /// The URLs of `openai` 3.57.0, of Google's and of Microsoft's documentation.
    #[test]
    fn clouds_have_the_documented_urls() {
        let table = [
            (Endpoint::foundry("mine"), "https://mine.services.ai.azure.com/openai/v1/"),
            (
                Endpoint::vertex("p", "europe-west1"),
                "https://europe-west1-aiplatform.googleapis.com/v1/projects/p/locations/europe-west1/endpoints/openapi/",
            ),
            (
                Endpoint::vertex("p", "global"),
                "https://aiplatform.googleapis.com/v1/projects/p/locations/global/endpoints/openapi/",
            ),
            (
                Endpoint::vertex("p", "us"),
                "https://aiplatform.us.rep.googleapis.com/v1/projects/p/locations/us/endpoints/openapi/",
            ),
            (Endpoint::bedrock("eu-west-1"), "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1/"),
            (Endpoint::bedrock_mantle("eu-west-1"), "https://bedrock-mantle.eu-west-1.api.aws/openai/v1/"),
        ];
        for (endpoint, expected) in table {
            let openai = OpenAi::builder().endpoint(endpoint).api_key("k").build().unwrap();
            assert_eq!(openai.0.connection.base_url().as_str(), expected);
        }
    }

    #[test]
    fn rejects_invalid_base_urls() {
        for text in [
            "",
            "localhost",
            "localhost:80/v1",
            "file:///etc/passwd",
            "http://user:secret@host/v1",
            "ftp://user:secret@host",
            "http://user:secret@ho st/v1",
            "http://localhost/v1/chat/completions",
            "http://localhost/v1/chat/completions/?api-version=1",
        ] {
            let error = OpenAi::builder().base_url(text).build().unwrap_err();
            assert!(error.kind() == ErrorKind::Config);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_key_is_never_shown() {
        let builder = OpenAi::builder().api_key("sk-secret").base_url("http://localhost/v1");
        assert!(!format!("{builder:?}").contains("sk-secret"));
        let openai = builder.build().unwrap();
        assert!(!format!("{openai:?} {:?}", openai.chat_model("m")).contains("sk-secret"));
    }

    #[test]
    fn rejects_keys_that_cannot_be_sent() {
        for (key, expected) in [
            ("", "the API key is empty; "),
            (" ", "the API key is empty; "),
            ("sk-\nsecret", "the API key contains a "),
        ] {
            let error = OpenAi::builder().api_key(key).base_url("http://localhost/v1").build().unwrap_err();
            assert!(error.kind() == ErrorKind::Config && error.to_string().starts_with(expected), "{error}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
        }
    }
}
