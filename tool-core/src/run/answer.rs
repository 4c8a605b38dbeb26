//! The result of a run.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::{Cost, FinishReason, Message, Usage};
use crate::run::{CacheUse, CompactionRecord, Handoff, InnerRun};
use crate::tool::ToolExecution;
use crate::transcript::Transcript;

/// The answer of a run, with the calls, tokens and messages that led to it. `Display` is the text.
#[derive(Clone, Serialize, Deserialize)]
pub struct Answer {
    pub(crate) text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<String>,
    pub(crate) finish_reason: FinishReason,
    pub(crate) tool_executions: Vec<ToolExecution>,
    pub(crate) usage: Usage,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) own_usage_by_agent: Vec<(String, Usage)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) usage_by_layer: Vec<(String, Usage)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) handoffs: Vec<Handoff>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) inner_runs: Vec<InnerRun>,
    pub(crate) turns: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) cache: Vec<CacheUse>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) compactions: Vec<CompactionRecord>,
    pub(crate) messages: Vec<Message>,
}

impl Answer {
    /// Returns the text of the model's last message.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the model's refusal if it refused to answer; the text is empty then.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Returns why the model stopped. [`FinishReason::Length`] means that the text is incomplete.
    #[must_use]
    pub fn finish_reason(&self) -> &FinishReason {
        &self.finish_reason
    }

    /// Returns the records of the finished calls, in the order in which the model requested them.
    #[must_use]
    pub fn tool_executions(&self) -> &[ToolExecution] {
        &self.tool_executions
    }

    /// Returns the tokens of all turns, of the [agents](Self::inner_runs) that calls of the run asked, and of the
    /// requests of [layers](Self::usage_by_layer).
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the steps by which the run was handed off to other agents.
    #[must_use]
    pub fn handoffs(&self) -> &[Handoff] {
        &self.handoffs
    }

    /// Returns the tokens of each agent: first the agent that was asked, under its
    /// [name](crate::agent::AgentBuilder::name) or `agent` if it has none, then the agents
    /// that it [handed the run over](Self::handoffs) to, and the [agents](Self::inner_runs) that calls asked, under
    /// the names of their tools. The names of nested agents are joined by `/`.
    #[must_use]
    pub fn usage_by_agent(&self) -> Vec<(String, Usage)> {
        let mut parts = self.own_usage_by_agent.clone();
        for inner in &self.inner_runs {
            inner.add_usage("", &mut parts);
        }
        parts
    }

    /// Returns what the own requests of [layers](crate::layer::Layer) used, by the names of the layers, which
    /// [report](crate::layer::LayerContext::usage_reporter) it. It is not part of what the [agents](Self::usage_by_agent) used.
    #[must_use]
    pub fn usage_by_layer(&self) -> Vec<(String, Usage)> {
        self.usage_by_layer.clone()
    }

    /// Returns what the run cost, with the runs of the [agents](Self::inner_runs) that its calls asked, with the requests of
    /// [layers](Self::usage_by_layer) and with requests that failed; `None` without [prices](crate::agent::AgentBuilder::prices).
    #[must_use]
    pub fn cost(&self) -> Option<Cost> {
        self.usage.cost
    }

    /// Returns what each agent cost, under the names of [`usage_by_agent`](Self::usage_by_agent).
    #[must_use]
    pub fn cost_by_agent(&self) -> Vec<(String, Cost)> {
        costs(self.usage_by_agent())
    }

    /// Returns what the own requests of each layer cost, under the names of [`usage_by_layer`](Self::usage_by_layer).
    #[must_use]
    pub fn cost_by_layer(&self) -> Vec<(String, Cost)> {
        costs(self.usage_by_layer())
    }

    /// Sets the name of the agent that was asked.
    pub(crate) fn set_agent_name(&mut self, name: Option<&str>) {
        if let Some((first, _)) = self.own_usage_by_agent.first_mut() {
            name.unwrap_or("agent").clone_into(first);
        }
    }

    /// Returns the runs of the agents that calls of the run asked, in the order of the calls.
    #[must_use]
    pub fn inner_runs(&self) -> &[InnerRun] {
        &self.inner_runs
    }

    /// Returns the number of requests to the model.
    #[must_use]
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// Returns what each request has read from the provider's prompt cache beside what it could have read, of an agent that
    /// [tracks](crate::agent::AgentBuilder::track_cache) it; otherwise nothing. Agents [inside](Self::inner_runs) track
    /// [their own](crate::run::Run::cache).
    #[must_use]
    pub fn cache(&self) -> &[CacheUse] {
        &self.cache
    }

    /// Returns what was hidden from the model, in the order of time; positions are those of the
    /// [run's messages](crate::run::Run::messages), with the earlier ones of the conversation.
    #[must_use]
    pub fn compactions(&self) -> &[CompactionRecord] {
        &self.compactions
    }

    /// Returns the messages that the run added to the conversation, starting with the user's, like [`Run::new_messages`](crate::run::Run::new_messages). Pass them to
    /// [`Ask::history`](crate::agent::Ask::history) to continue the conversation.
    #[must_use]
    pub fn new_messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns a readable view of the conversation. Unlike `Debug`, its `Display` shows all content.
    pub fn transcript(&self) -> Transcript<'_> {
        let own = Transcript::new(&self.messages, &self.tool_executions);
        let own = Handoff::add_to_transcript(&self.handoffs, &self.tool_executions, own);
        let own = CompactionRecord::add_to_transcript(&self.compactions, &self.tool_executions, own);
        InnerRun::add_transcripts(&self.inner_runs, own)
    }

    /// Returns the answer without its messages, executions and inner runs.
    pub(crate) fn summary(&self) -> Self {
        Self {
            text: self.text.clone(),
            refusal: self.refusal.clone(),
            finish_reason: self.finish_reason.clone(),
            tool_executions: Vec::new(),
            usage: self.usage,
            own_usage_by_agent: self.usage_by_agent(),
            usage_by_layer: self.usage_by_layer(),
            handoffs: Vec::new(),
            inner_runs: Vec::new(),
            turns: self.turns,
            cache: self.cache.clone(),
            compactions: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// Converts the answer into its [`new_messages`](Self::new_messages).
    #[must_use]
    pub fn into_messages(self) -> Vec<Message> {
        self.messages
    }
}

fn costs(parts: Vec<(String, Usage)>) -> Vec<(String, Cost)> {
    parts.into_iter().filter_map(|(name, usage)| Some((name, usage.cost?))).collect()
}

/// Shows sizes instead of texts, because conversations are private.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("text", &format_args!("{} bytes", self.text.len()))
            .field("tool_executions", &self.tool_executions)
            .field("usage", &self.usage)
            .field("turns", &self.turns)
            .finish_non_exhaustive()
    }
}

/// The text, or the refusal if there is no text.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.refusal {
            Some(refusal) if self.text.is_empty() => refusal,
            _ => &self.text,
        })
    }
}
