//! What a provider reports about a model.

/// What a provider reports about a model, see [`ChatModel::model_info`](crate::ChatModel::model_info). `None` stands for what it does
/// not report.
///
/// ```
/// use tool_core::provider::ModelInfo;
///
/// let info = ModelInfo::default().with_context_window(200_000).with_max_output_tokens(64_000);
/// assert_eq!((info.context_window, info.supports_images), (Some(200_000), None));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct ModelInfo {
    /// The largest number of input tokens.
    pub context_window: Option<u64>,
    /// The largest number of output tokens.
    pub max_output_tokens: Option<u64>,
    /// The model reads images.
    pub supports_images: Option<bool>,
    /// The model reads PDF files.
    pub supports_files: Option<bool>,
    /// The model can be constrained to a JSON schema.
    pub supports_response_format: Option<bool>,
    /// The model can reason before it answers.
    pub supports_reasoning: Option<bool>,
}

impl ModelInfo {
    /// Sets the largest number of input tokens.
    pub fn with_context_window(mut self, tokens: u64) -> Self {
        self.context_window = Some(tokens);
        self
    }

    /// Sets the largest number of output tokens.
    pub fn with_max_output_tokens(mut self, tokens: u64) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }
}
