//! An endpoint that is configured.

use std::fmt;
use std::sync::Arc;

use crate::chat_completions::ChatCompletions;
use crate::client::Client;
use crate::responses::Responses;

/// An OpenAI-compatible endpoint. Clones share its connections.
#[derive(Clone)]
pub struct OpenAi(pub(super) Arc<Client>);

impl OpenAi {
    /// Returns a model of this endpoint that uses Chat Completions.
    #[must_use]
    pub fn chat_model(&self, name: impl Into<String>) -> ChatCompletions {
        ChatCompletions::new(Arc::clone(&self.0), name.into())
    }

    /// Returns a model of this endpoint that uses the Responses API.
    ///
    /// ```
    /// use tool_openai::OpenAi;
    ///
    /// let openai = OpenAi::builder().api_key("…").build()?;
    /// let model = openai.responses_model("gpt-5-mini").reasoning_summary("auto");
    /// assert_eq!(model.name(), "gpt-5-mini");
    /// # Ok::<_, tool_openai::Error>(())
    /// ```
    #[must_use]
    pub fn responses_model(&self, name: impl Into<String>) -> Responses {
        Responses::new(Arc::clone(&self.0), name.into())
    }
}

/// Shows the base URL, never the key.
impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenAi").field(&self.0).finish()
    }
}
