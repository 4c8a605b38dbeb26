//! Other names for what an agent does.

use crate::agent::{Agent, AgentBuilder, Ask, EventStream};
use crate::content::Content;
use crate::model::{ChatModel, Message};

impl Agent {
    #[allow(clippy::new_ret_no_self, reason = "the message names the builder")]
    #[doc(hidden)]
    #[deprecated = "an agent is built: write `Agent::builder(model)`, `.instructions(\"…\")`, `.tools(tools![…])` and `.build()?`"]
    pub fn new(model: impl ChatModel + 'static) -> AgentBuilder {
        Self::builder(model)
    }

    #[doc(hidden)]
    #[deprecated = "agents are asked: write `agent.ask(\"…\").await?`"]
    pub fn prompt(&self, question: impl Into<Content>) -> Ask {
        self.ask(question)
    }

    #[doc(hidden)]
    #[deprecated = "agents are asked: write `agent.ask(\"…\").await?`"]
    pub fn invoke(&self, question: impl Into<Content>) -> Ask {
        self.ask(question)
    }

    #[doc(hidden)]
    #[deprecated = "agents are asked: write `agent.ask(\"…\").await?`"]
    pub fn run(&self, question: impl Into<Content>) -> Ask {
        self.ask(question)
    }

    #[doc(hidden)]
    #[deprecated = "agents are asked: write `agent.ask(\"…\").await?`"]
    pub fn generate(&self, question: impl Into<Content>) -> Ask {
        self.ask(question)
    }

    #[doc(hidden)]
    #[deprecated = "a question takes the messages before it: write `agent.ask(\"…\").history(messages).await?`"]
    pub fn chat(
        &self,
        question: impl Into<Content>,
        history: impl IntoIterator<Item = impl Into<Message>>,
    ) -> Ask {
        self.ask(question).history(history)
    }

    #[doc(hidden)]
    #[deprecated = "a question is streamed: write `agent.ask(\"…\").stream()`"]
    pub fn stream(&self, question: impl Into<Content>) -> EventStream {
        self.ask(question).stream()
    }

    #[doc(hidden)]
    #[deprecated = "a question is streamed: write `agent.ask(\"…\").stream()`"]
    pub fn stream_prompt(&self, question: impl Into<Content>) -> EventStream {
        self.ask(question).stream()
    }
}
