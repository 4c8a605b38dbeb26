//! Several models. A function chooses one of them for each request.

use std::fmt;
use std::sync::Arc;

use super::member::{Member, impl_by_members};
use crate::model::{ChatModel, ChatRequest, ChatResponse, ChatStream, DeltaSender, ModelError, ModelFuture};

/// Several models in the place of one: a function of yours chooses the model for each request, for example a small one for short
/// questions.
///
/// The model that was chosen is in the [message](crate::model::AssistantMessage::model), and so part of stored runs and
/// conversations, in the response and in traces, and determines the cost. Features that not all of the models support are not used,
/// as with a [`Fallback`](crate::model::Fallback), which can be one of the models.
///
/// ```
/// use tool_core::model::{ChatRequest, Router};
/// use tool_core::testing::ScriptedModel;
/// use tool_core::Agent;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (small, large) = (ScriptedModel::new().says("Good morning!"), ScriptedModel::new());
/// let is_short = |request: &ChatRequest<'_>| request.messages().iter().map(|one| one.text().len()).sum::<usize>() < 1_000;
/// let model = Router::new(move |request| if is_short(request) { "small" } else { "large" })
///     .model("small", small)
///     .model("large", large);
/// let answer = Agent::builder(model).build()?.ask("Hello").await?;
/// assert_eq!(answer.new_messages()[1].as_assistant().unwrap().model.as_deref(), Some("small"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct Router {
    members: Vec<(String, Arc<Member>)>,
    choose: Arc<dyn Fn(&ChatRequest<'_>) -> &'static str + Send + Sync>,
}

impl Router {
    /// Creates a router whose function returns the name of the [model](Self::model) for a request.
    pub fn new(choose: impl Fn(&ChatRequest<'_>) -> &'static str + Send + Sync + 'static) -> Self {
        Self { members: Vec::new(), choose: Arc::new(choose) }
    }

    /// Adds a model under a name. The first one shares the provider's cache of encoded messages with earlier requests, so it should be
    /// the one that is chosen most often.
    pub fn model(mut self, name: impl Into<String>, model: impl ChatModel + 'static) -> Self {
        let member = Member { model: Arc::new(model), shares_cache: self.members.is_empty() };
        self.members.push((name.into(), Arc::new(member)));
        self
    }

    async fn ask(
        &self,
        request: &ChatRequest<'_>,
        sender: Option<&mut DeltaSender>,
    ) -> Result<ChatResponse, ModelError> {
        let chosen = (self.choose)(request);
        let Some((name, member)) = self.members.iter().find(|(name, _)| name == chosen) else {
            let error =
                format!("the router chose the model `{chosen}`, which it does not have; add it with `model`");
            return Err(ModelError::new(error).permanent().unbilled());
        };
        let mut response = member.ask(request, sender, || {}).await?;
        response.message.model.get_or_insert_with(|| name.clone());
        Ok(response)
    }

    fn models(&self) -> impl Iterator<Item = &dyn ChatModel> {
        self.members.iter().map(|(_, member)| &*member.model)
    }
}

impl_by_members!(Router);
