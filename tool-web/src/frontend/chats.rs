//! The conversations of one router: what their runs wait for, and what a request of their user does to them.

use std::collections::HashSet;
use std::sync::Arc;

use tool_core::engine::AgentExt;
use tool_core::memory::RunStatus;
use tool_core::model::{ConversationId, ToolDefinition};
use tool_core::run::{Run, Wait, WaitReason};
use tool_core::store::ChatStore;
use tool_core::{Agent, Message};

use super::adapter::Executors;
use super::asked::{Asked, Reply};
use super::stream::Start;
use crate::auth::{Principal, Right};
use crate::driving::{Followed, check_budget};
use crate::guard::{Guard, HttpError};
use crate::hub::Hub;
use crate::log::{FrontendTools, RunLog};
use crate::source::{Loaded, Source};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolName {
    UiStream,
    AgUi,
}

/// The chats of one router.
#[derive(Clone)]
pub(super) struct Chats {
    pub(super) protocol: ProtocolName,
    pub(super) hub: Arc<Hub>,
    pub(super) source: Arc<Source>,
    pub(super) guard: Arc<Guard>,
    /// Without the tools that are sent with questions.
    pub(super) executors: Executors,
}

/// What a request has done.
pub(super) struct Taken {
    pub(super) log: Arc<RunLog>,
    /// The id of the assistant's message that the response is part of.
    pub(super) message: String,
    pub(super) start: Start,
}

/// Returns the id of the assistant's message that answers so many messages of the user. A run that is continued has the same.
pub(super) fn message_id(run: &str, messages: usize) -> String {
    format!("msg_{run}_{messages}")
}

/// Returns the conversation of a chat. The same id of another sender is another conversation.
pub(super) fn conversation(sender: &Principal, chat: &str) -> Result<ConversationId, HttpError> {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_.:".contains(char);
    if chat.is_empty() || chat.len() > 200 || !chat.chars().all(is_plain) {
        return Err(HttpError::bad_request(
            "the id of a chat has 1 to 200 letters, digits, `-`, `_`, `.` or `:`",
        ));
    }
    // A chat has no slash, so no two pairs are the same text.
    Ok(ConversationId::new(format!("{}/{chat}", sender.name())))
}

/// Returns `true` if the agent, or one that it hands runs over to, has providers of tools.
pub(super) fn has_providers(agent: &Agent) -> bool {
    agent.tool_providers().len() > 0 || agent.handoffs().any(|(_, next)| has_providers(next))
}

impl Chats {
    /// Returns `true` if a browser may offer a tool with this name: no own tool of the agent has it, and the application lists it if a
    /// provider could supply it.
    pub(super) fn may_offer(&self, name: &str) -> bool {
        let agent = self.source.agent.as_ref();
        let is_listed = || self.executors.browser.contains(name);
        agent.is_none_or(|agent| agent.tools().get(name).is_none() && (is_listed() || !has_providers(agent)))
    }

    /// Returns what the sender may do in a run.
    pub(super) fn executors(&self, sender: &Principal, log: Option<&RunLog>) -> Executors {
        let mut executors = Executors { decides: sender.may(Right::Decide), ..self.executors.clone() };
        let tools = log.map(RunLog::tools).unwrap_or_default();
        executors.browser.extend(tools.iter().map(|tool| tool.definition().name().to_owned()));
        executors
    }

    /// Returns what the sender may end of what a run waits for.
    pub(super) fn waits(&self, executors: &Executors, run: &Run) -> Vec<Wait> {
        // The tools of an agent that a run was handed off to can have the same names.
        let is_own = run.handoffs().is_empty();
        let mut waits = run.waits();
        waits.retain(|wait| {
            let is_free = is_own || executors.decides || !matches!(wait.reason, WaitReason::Approval(_));
            is_free && executors.may_end(wait)
        });
        waits
    }

    /// Returns a conversation with what its run adds to it, and that run if it has not finished.
    pub(super) async fn history(
        &self,
        conversation: &ConversationId,
    ) -> Result<(Vec<Message>, Option<Run>), HttpError> {
        let Some(id) = self.hub.run_of(&self.source, conversation).await else {
            return Ok((self.remembered(conversation).await?, None));
        };
        let mut messages = self.remembered(conversation).await?;
        let loaded = self.hub.load(&id).await?.filter(|loaded| loaded.status != RunStatus::Finished);
        match loaded {
            // Its messages are added before it is removed.
            Some(Loaded { run, .. }) if !messages.ends_with(run.new_messages()) => {
                messages.extend_from_slice(run.new_messages());
                Ok((messages, Some(run)))
            }
            // It can have finished meanwhile.
            _ => Ok((self.remembered(conversation).await?, None)),
        }
    }

    /// Returns what finished runs have added to a conversation.
    pub(super) async fn remembered(&self, conversation: &ConversationId) -> Result<Vec<Message>, HttpError> {
        Ok(match self.source.agent.as_ref().and_then(Agent::memory) {
            Some(memory) => memory.messages(conversation).await?,
            None => self.hub.histories.load(conversation).await.unwrap_or_default(),
        })
    }

    /// Takes what a request asks for, which `read` finds out from what the conversation waits for, with the tools of the client.
    pub(super) async fn take(
        &self,
        sender: &Principal,
        conversation: &ConversationId,
        read: impl FnOnce(&[Wait]) -> Result<(Asked, FrontendTools), HttpError>,
    ) -> Result<Taken, HttpError> {
        let mut run = self.hub.run_of(&self.source, conversation).await;
        if run.is_none() {
            // A decision can be repeated after the end.
            run = self.source.stored_run_of(conversation, false).await;
        }
        let loaded = match &run {
            Some(run) => self.hub.load(run).await?,
            None => None,
        };
        let log = loaded.as_ref().map(|loaded| self.hub.log_of(&loaded.source, loaded.run.id().as_str()));
        let executors = self.executors(sender, log.as_deref());
        let waits_of = |run: &Run| self.waits(&executors, run);
        let waits = loaded.as_ref().map(|loaded| waits_of(&loaded.run)).unwrap_or_default();
        let (asked, tools) = read(&waits)?;
        match asked {
            Asked::Question(question) => {
                let asked = self
                    .hub
                    .ask(&self.source, conversation, question, tools, sender.name(), waits_of)
                    .await?;
                let Followed { log, after, messages } = asked;
                let start = Start { after, is_new_message: true };
                Ok(Taken { message: message_id(&log.id, messages), log, start })
            }
            Asked::Replies(replies) => {
                if let Some((loaded, log)) = loaded.as_ref().zip(log) {
                    check_budget(&loaded.run)?;
                    // A run that was loaded again gets the tools, but not the open calls of others.
                    let (loaded, waits) = (&loaded.run, loaded.run.waits());
                    let calls = loaded.current_calls().filter(|(_, outcome)| outcome.is_none());
                    let names =
                        calls.map(|(call, _)| &*call.name).chain(waits.iter().map(|wait| &*wait.tool));
                    let open: HashSet<_> = names.collect();
                    let is_free = |tool: &ToolDefinition| !open.contains(tool.name());
                    log.offer(FrontendTools { set: tools.set.filter(is_free), ..tools });
                }
                self.decide(sender, run, loaded.as_ref(), &waits, replies).await
            }
        }
    }

    /// Records replies of the client.
    async fn decide(
        &self,
        sender: &Principal,
        run: Option<String>,
        loaded: Option<&Loaded>,
        waits: &[Wait],
        mut replies: Vec<Reply>,
    ) -> Result<Taken, HttpError> {
        let run = &run.ok_or_else(HttpError::unknown_run)?;
        let is_open = |reply: &Reply| waits.iter().any(|open| open.id == reply.wait);
        let is_decided = |reply: &Reply| {
            let mut decided = loaded.iter().flat_map(|loaded| loaded.run.decisions());
            self.hub.decisions.get(&reply.wait).is_some() || decided.any(|record| record.wait == reply.wait)
        };
        replies.retain(|reply| {
            let recorded = || self.hub.decisions.get(&reply.wait);
            is_open(reply)
                || !reply.may_be_old
                || recorded().is_some_and(|recorded| recorded.is(&reply.decision))
        });
        // What the sender may not end, or does not wait yet, is decided by nobody here.
        let is_known = |reply: &Reply| is_open(reply) || is_decided(reply);
        if replies.is_empty() || !replies.iter().all(is_known) {
            return Err(HttpError::conflict("the run does not wait for what was sent"));
        }
        if replies.iter().any(|reply| reply.decision.edited_arguments().is_some()) {
            sender.check(Right::Decide)?;
        }
        let decisions = replies.into_iter().map(|reply| (reply.wait, reply.decision)).collect();
        let recorded = self.hub.decide(run, sender.name(), decisions).await?;
        let recorded = recorded.map_err(|earlier| {
            let by = earlier.by.as_deref().unwrap_or("somebody");
            HttpError::conflict(format!("`{by}` has decided otherwise"))
        })?;
        let log = self.hub.log(run).ok_or_else(HttpError::unknown_run)?;
        let messages = match loaded {
            Some(loaded) => loaded.messages().await,
            None => log.questions().0,
        };
        // The response to a repeated request begins where the first one began.
        let after = recorded.iter().map(|recorded| recorded.position).min().flatten();
        Ok(Taken { message: message_id(run, messages), log, start: Start { after, is_new_message: false } })
    }
}
