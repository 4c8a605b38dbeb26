//! Sends a request to a model, and counts it.

use futures_util::{TryFutureExt, stream};

use crate::content::Content;
use crate::model::{
    Attempt, ChatModel, ChatRequest, ChatResponse, ChatStream, Delta, EarlierAttempt, Message, Meter,
    ModelError, ModelErrorKind, ModelFuture, TokensPerText, ToolDefinition, Usage,
};

// Tokens that are not part of any text. A byte of text is at most one token.
const TOKENS_PER_MESSAGE: u64 = 16;
const TOKENS_PER_REQUEST: u64 = 64;
/// Providers describe to the model how tools are called.
const TOKENS_FOR_TOOLS: u64 = 1_000;
/// `gpt-4o-mini` reads 48,169 tokens of an image of eight tiles, which are the most.
const TOKENS_PER_IMAGE: u64 = 50_000;

/// Extra fields that providers read in place of the limit of output tokens, or that multiply the output.
const OUTPUT_FIELDS: [&str; 4] = ["max_tokens", "max_completion_tokens", "max_output_tokens", "n"];

/// Extra fields that name an input which the provider has stored.
const STORED_INPUT_FIELDS: [&str; 3] = ["previous_response_id", "conversation", "prompt"];

/// The part of a provider's count by which it can be too low.
const COUNTING_MARGIN: u64 = 20;

impl ChatRequest<'_> {
    /// Sends the request to a model, like [`ChatModel::chat`], and counts what it costs for the run that the request is of. A model that
    /// is made of others sends requests to them by this.
    ///
    /// # Errors
    ///
    /// Fails like [`ChatModel::chat`]; also, with the kind [`Unaffordable`](ModelErrorKind::Unaffordable), if a limit of the run or
    /// a budget leaves too little for the request.
    pub fn send_to<'a>(&'a self, model: &'a dyn ChatModel) -> ModelFuture<'a> {
        let Some(meter) = self.meter().filter(|_| !model.passes_requests_on()) else {
            return model.chat(self);
        };
        Box::pin(async move {
            let request = self.begin(model, meter).await?;
            let response = model.chat(&request).await;
            end(&request, response.as_ref().map(ChatResponse::credible_usage)).await;
            response
        })
    }

    /// Sends the request to a model and streams the response, like [`ChatModel::stream`], and counts what it costs like
    /// [`send_to`](Self::send_to).
    pub fn stream_to<'a>(&'a self, model: &'a dyn ChatModel) -> ChatStream<'a> {
        let Some(meter) = self.meter().filter(|_| !model.passes_requests_on()) else {
            return model.stream(self);
        };
        ChatStream::sent_by(|mut sender| async move {
            let request = self.begin(model, meter).await?;
            let response = model.stream(&request).forward(&mut sender).await;
            end(&request, response.as_ref().map(ChatResponse::credible_usage)).await;
            response
        })
    }

    /// Sends the request to a model. Unless it is streamed, the response is the only delta.
    pub(crate) fn reply_of<'a>(&'a self, model: &'a dyn ChatModel, is_streamed: bool) -> ChatStream<'a> {
        match is_streamed {
            true => self.stream_to(model),
            false => ChatStream::new(stream::once(self.send_to(model).map_ok(Delta::Done))),
        }
    }

    /// Counts another attempt. A model that repeats a request by itself calls it before it sends the request again.
    ///
    /// # Errors
    ///
    /// Fails with the kind [`Unaffordable`](ModelErrorKind::Unaffordable) if a limit of the run or a budget leaves too little for it.
    pub async fn repeat(&self, earlier: EarlierAttempt) -> Result<(), ModelError> {
        match self.attempt() {
            Some((meter, id)) => meter.repeat(id, earlier).await,
            None => Ok(()),
        }
    }

    /// Reserves the cost of an attempt, and returns the request that can be paid.
    async fn begin(&self, model: &dyn ChatModel, meter: &dyn Meter) -> Result<ChatRequest<'_>, ModelError> {
        let extra = &self.options().extra;
        if let Some(name) = OUTPUT_FIELDS.iter().find(|name| meter.is_limited() && extra.contains_key(**name))
        {
            return Err(ModelError::invalid_request(format!(
                "the extra field `{name}` can exceed the limit of cost; leave it out, and limit answers by \
                 `ModelOptions::max_output_tokens`"
            )));
        }
        let mut attempt = self.worst_attempt(model, meter).await;
        let is_too_dear = |begun: &Result<_, ModelError>| {
            begun.as_ref().is_err_and(|error| error.kind() == ModelErrorKind::Unaffordable)
        };
        let mut begun = meter.begin(attempt).await;
        // The bound is several times as high as what a provider counts.
        if is_too_dear(&begun) {
            let counted = model.count_tokens(self).await.ok().flatten();
            if let Some(counted) = counted {
                // It is an estimate.
                let counted = counted.saturating_add(counted / COUNTING_MARGIN);
                attempt.input_tokens = counted.min(attempt.input_tokens);
                begun = meter.begin(attempt).await;
            }
            if is_too_dear(&begun) {
                let estimate = counted.is_none().then(|| self.input_size().estimate(meter.tokens_per_text()));
                let admitted_by = estimate.unwrap_or(u64::MAX).min(attempt.input_tokens);
                begun = meter.begin(Attempt { admitted_by: Some(admitted_by), ..attempt }).await;
            }
        }
        Ok(self.as_attempt(begun?))
    }

    /// Returns the worst case of an attempt. The provider is asked for its limits once if that is needed.
    pub(crate) async fn worst_attempt<'a>(
        &'a self,
        model: &'a dyn ChatModel,
        meter: &dyn Meter,
    ) -> Attempt<'a> {
        let name = self.options().model.as_deref().or(model.model_name()).unwrap_or_default();
        let (mut info, set) = (meter.known(name), self.options().max_output_tokens.map(u64::from));
        // A model of others reports what all of them allow.
        let is_asked = meter.is_limited() && !model.passes_requests_on();
        if is_asked && set.or(info.max_output_tokens).is_none() {
            // A provider that fails now can be asked again.
            if let Ok(asked) = model.model_info().await {
                meter.remember(name, asked.unwrap_or_default());
                info = meter.known(name);
            }
        }
        let output_tokens = set.into_iter().chain(info.max_output_tokens).min();
        let size = self.input_size();
        let input_tokens = size.max_tokens().min(info.context_window.unwrap_or(u64::MAX));
        Attempt { model: name, input_tokens, output_tokens, text_bytes: size.text_alone(), admitted_by: None }
    }

    /// Returns the size of the input.
    fn input_size(&self) -> InputSize {
        struct ToolBytes(usize);
        let bytes = |tool: &ToolDefinition| tool.to_json().to_string().len();
        let count = |tools: &[ToolDefinition]| ToolBytes(tools.iter().map(bytes).sum());
        let tools = match self.tools().is_empty() {
            true => InputSize::default(),
            false => InputSize::new(self.tools().encoded(count).0, TOKENS_FOR_TOOLS),
        };
        let format = self.response_format().map_or(0, |format| format.schema().to_string().len());
        let (extra, stored) = match &self.options().extra {
            extra if extra.is_empty() => (0, 0),
            extra if STORED_INPUT_FIELDS.iter().any(|name| extra.contains_key(*name)) => (0, u64::MAX),
            extra => serde_json::to_string(extra).map_or((0, u64::MAX), |extra| (extra.len(), 0)),
        };
        let rest = InputSize { other: stored, ..InputSize::new(format + extra, TOKENS_PER_REQUEST) };
        self.messages()
            .iter()
            .map(input_size)
            .chain([tools, rest])
            .fold(InputSize::default(), InputSize::plus)
    }
}

async fn end(request: &ChatRequest<'_>, outcome: Result<Option<Usage>, &ModelError>) {
    if let Some((meter, id)) = request.attempt() {
        meter.end(id, outcome.map_err(|error| EarlierAttempt::from_unbilled(error.is_unbilled()))).await;
    }
}

/// The size of an input.
#[derive(Clone, Copy, Default)]
struct InputSize {
    /// The bytes of text.
    text: u64,
    /// Tokens that are part of no text, at most.
    overhead: u64,
    /// Other tokens, at most: of reasoning, which can be encrypted, images and files.
    other: u64,
}

impl InputSize {
    fn new(text: usize, overhead: u64) -> Self {
        Self { text: text as u64, overhead, other: 0 }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            text: self.text.saturating_add(other.text),
            overhead: self.overhead.saturating_add(other.overhead),
            other: self.other.saturating_add(other.other),
        }
    }

    /// Returns a number of tokens that the input does not exceed.
    fn max_tokens(self) -> u64 {
        self.text.saturating_add(self.overhead).saturating_add(self.other)
    }

    /// Returns a number of tokens that most inputs do not exceed, from what others have shown.
    fn estimate(self, seen: Option<TokensPerText>) -> u64 {
        Self { text: TokensPerText::estimate(seen, self.text), ..self }.max_tokens()
    }

    /// Returns the bytes of text if the usage shows how many tokens they are, because there is little else.
    fn text_alone(self) -> Option<u64> {
        (self.other == 0 && self.text >= self.overhead).then_some(self.text)
    }
}

/// Returns a number of tokens that the message does not exceed.
pub(crate) fn max_tokens(message: &Message) -> u64 {
    input_size(message).max_tokens()
}

fn input_size(message: &Message) -> InputSize {
    let of_content = |content: &Content| {
        let images = content.images().count() as u64 * TOKENS_PER_IMAGE;
        let other = if content.files().next().is_some() { u64::MAX } else { images };
        InputSize { other, ..InputSize::new(content.len(), TOKENS_PER_MESSAGE) }
    };
    match message {
        Message::System(content) | Message::User(content) => of_content(content),
        Message::Assistant(message) => {
            let reasoning = message.reasoning_and_data_bytes();
            let text = message.content_bytes().saturating_sub(reasoning);
            InputSize { other: reasoning as u64, ..InputSize::new(text, TOKENS_PER_MESSAGE) }
        }
        Message::Tool(result) => {
            of_content(&result.content).plus(InputSize::new(result.name.len() + result.call_id.len(), 0))
        }
    }
}
