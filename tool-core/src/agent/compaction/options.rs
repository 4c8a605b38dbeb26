//! The options of compaction.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::model::ChatModel;

/// What a model is asked for a summary.
const PROMPT: &str = "Summarize this conversation for yourself: the messages before are about to be removed, and you go on with the summary \
    alone. Write what the user wants, what was found out and done, with all names, numbers, identifiers and decisions that can still \
    matter, and what is open. Write nothing else, and call no tools.";

/// How long most providers keep an unused prefix in their cache.
const CACHE_LIFETIME: Duration = Duration::from_secs(5 * 60);

/// The time that a summary may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Keeps long runs cheap: what the model need not read again of the messages of a run is hidden from it. Pass it to
/// [`AgentBuilder::compaction`](crate::agent::AgentBuilder::compaction).
///
/// The run itself keeps all messages: a compaction is an entry of its log ([`Run::compactions`](crate::run::Run::compactions)), and only
/// requests are shorter. Between two compactions, each request begins with the messages of the one before, so that prompt caches are hit.
///
/// - **What is hidden.** A provider that [summarizes](crate::ChatModel::supports_compaction) conversations by itself is asked to replace all
///   messages but the last. If there is none, or it fails: first, outputs of calls. Those of `pure` tools are replaced by a line, longer ones of
///   others keep their first 500 characters. Then the reasoning of replies before the last message of the user, if that makes a summary
///   unnecessary. At last, all messages but the last are replaced by a summary, which the model writes itself. Instructions and the question
///   stay, a call stays with its result, and of calls of `at_most_once` tools the summary states what they did: of the last 30, with the first
///   500 characters of each output. Outputs of tools declared with `keep_output` are hidden only by a summary.
/// - **Nothing is lost.** A model that is offered tools is offered one more, `read_output`, which reads and searches what was hidden: from the first
///   compaction on, or from the start if the provider summarizes. No other tool has its name.
/// - **A summary that fails**, is empty, is cut off, calls a tool, takes too long or is longer than what it replaces is discarded: only outputs
///   are hidden, and the run continues. After three compactions in a row that failed or hid too little, the run is compacted only when the
///   provider refuses a request as too long, or by [`Agent::compact`](crate::Agent::compact). A provider that refuses to summarize as if the
///   request were invalid, or answers it, whose summary a layer changes, or that fails three times in a row, is not asked again in a run.
/// - **Its tokens** count for the run, as those of the layer `compaction` in [`Run::usage_by_layer`](crate::run::Run::usage_by_layer). The
///   [layers](crate::agent::AgentBuilder::layer) of the run see its request, and judge its text, if it has one, as the output of a call named
///   `summarize`.
///
/// Do not combine it with a compaction that the provider makes at a threshold of its own, such as by OpenAI's extra field
/// `context_management`: the run does not know of that one.
///
/// ```
/// use tool_core::agent::Compaction;
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, tool, tools};
///
/// #[tool("Reads a page", pure)]
/// fn read(page: u32) -> String {
///     format!("page {page}: {}", "lorem ipsum ".repeat(200))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new()
///     .calls("read", r#"{"page": 1}"#)
///     .calls("read", r#"{"page": 2}"#)
///     .expects(|request| request.messages()[2].text().contains("was removed"))
///     .says("Both are the same.");
/// let compaction = Compaction::when_it_pays().at_most_tokens(1_000).keep_recent_tokens(700);
/// let agent = Agent::builder(model).tools(tools![read]).compaction(compaction).build()?;
/// let answer = agent.ask("Compare the pages").await?;
/// assert!(answer.new_messages()[2].text().starts_with("page 1: lorem"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct Compaction {
    pub(super) at: Option<u64>,
    pub(super) at_most: Option<u64>,
    pub(super) keep_recent: Option<u64>,
    pub(in crate::agent) cache_lifetime: Duration,
    pub(in crate::agent) offers_tool: bool,
    pub(in crate::agent) model: Option<Arc<dyn ChatModel>>,
    /// The author's text, in place of [`PROMPT`] or the provider's own.
    pub(in crate::agent) prompt: Option<Arc<str>>,
    pub(in crate::agent) timeout: Duration,
}

impl Compaction {
    /// Compacts once it pays: once reading again what could be hidden has cost twice what the compaction costs, by the agent's
    /// [prices](crate::agent::AgentBuilder::prices). Without them, an input token that is read from a cache is assumed to cost a tenth of
    /// another one, one that is written to it 1.25 times as much, and an output token five times as much.
    ///
    /// A run is compacted as well once it fills 80 % of the model's context window, if that is known, and when the provider refuses a request
    /// because it is too long. After such a refusal, only outputs are hidden, or messages
    /// are removed without a summary, unless another model [summarizes](Self::summarize_with).
    pub fn when_it_pays() -> Self {
        Self {
            at: None,
            at_most: None,
            keep_recent: None,
            cache_lifetime: CACHE_LIFETIME,
            offers_tool: false,
            model: None,
            prompt: None,
            timeout: TIMEOUT,
        }
    }

    /// Compacts once a request has this many tokens, whether it pays or not.
    pub fn at_tokens(mut self, tokens: u64) -> Self {
        self.at = Some(tokens);
        self
    }

    /// Compacts at the latest once a request has this many tokens.
    pub fn at_most_tokens(mut self, tokens: u64) -> Self {
        self.at_most = Some(tokens);
        self
    }

    /// Sets about how many tokens of the last messages stay as they are; 4,000 by default, or a quarter of
    /// [`at_tokens`](Self::at_tokens). The last reply with its results always stays.
    pub fn keep_recent_tokens(mut self, tokens: u64) -> Self {
        self.keep_recent = Some(tokens);
        self
    }

    /// Sets how long the provider keeps in its cache what is not read again; 5 minutes by default. If the last request of a run is longer ago,
    /// because a call took long or somebody had to approve it, the whole conversation is paid for anew: then outputs are hidden at once.
    pub fn cache_lifetime(mut self, lifetime: Duration) -> Self {
        self.cache_lifetime = lifetime;
        self
    }

    /// Offers the model a tool, `compact_conversation`, whose call orders a compaction before the next request. A model knows better than prices
    /// when a part of its work is done. Orders that hide nothing or too little are ignored after the third one. An order is also ignored if
    /// the reply's reasoning is bound to earlier messages and the provider does not summarize by itself.
    ///
    /// An agent with a tool of that name cannot be built.
    pub fn offer_tool(mut self) -> Self {
        self.offers_tool = true;
        self
    }

    /// Lets another model write the summaries, which reads the conversation as a text. By default, the run's own model continues the
    /// conversation, which is in its cache. A provider that summarizes by itself is still asked first.
    pub fn summarize_with(mut self, model: impl ChatModel + 'static) -> Self {
        self.model = Some(Arc::new(model));
        self
    }

    /// Sets what the model is asked for a summary, also if the provider summarizes by itself, which has a prompt of its own otherwise. A provider
    /// that takes none, such as OpenAI, is not asked then. Say in it what must not be lost, and that no tool is to be called.
    pub fn summary_prompt(mut self, text: impl Into<String>) -> Self {
        self.prompt = Some(text.into().into());
        self
    }

    /// Returns what a model is asked for a summary.
    pub(in crate::agent) fn prompt(&self) -> &str {
        self.prompt.as_deref().unwrap_or(PROMPT)
    }

    /// Limits the time of a summary, also of one by the provider; 60 seconds by default.
    pub fn summary_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl Default for Compaction {
    fn default() -> Self {
        Self::when_it_pays()
    }
}

impl fmt::Debug for Compaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compaction")
            .field("at", &self.at)
            .field("at_most", &self.at_most)
            .field("keep_recent", &self.keep_recent)
            .finish_non_exhaustive()
    }
}
