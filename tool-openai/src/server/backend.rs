//! What answers: a model, or an agent.

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{self, Stream, StreamExt};
use tokio::sync::mpsc;
use tool_core::{
    Agent, Answer, Approval, Ask, AssistantMessage, ChatModel, ChatResponse, Delta, Event, Message, ToolCall,
};

use super::error::ApiError;
use super::request::Request;

/// What answers under one name.
#[derive(Clone)]
pub(super) enum Backend {
    Model(Arc<dyn ChatModel>),
    Agent(Agent),
}

/// How many pieces wait for the caller before the model waits for it, too.
const BUFFERED_DELTAS: usize = 16;

pub(super) type Deltas = Pin<Box<dyn Stream<Item = Result<Delta, ApiError>> + Send>>;

impl Backend {
    pub(super) async fn respond(&self, request: Request) -> Result<ChatResponse, ApiError> {
        self.refuse_answer_format(&request)?;
        match self {
            Self::Model(model) => model.chat(&request.chat).await.map_err(|error| ApiError::server(&error)),
            Self::Agent(agent) => match ask(agent, request)?.await {
                Ok(answer) => Ok(response_of(answer)),
                Err(error) => Err(ApiError::server(&error)),
            },
        }
    }

    /// The pieces of the answer. An error before the first of them is one of the request.
    pub(super) async fn stream(self, request: Request) -> Result<Deltas, ApiError> {
        self.refuse_answer_format(&request)?;
        let mut deltas = match self {
            Self::Model(model) => stream_model(model, request),
            Self::Agent(agent) => stream_agent(ask(&agent, request)?),
        };
        match deltas.next().await {
            Some(Ok(first)) => Ok(stream::once(ready(Ok(first))).chain(deltas).boxed()),
            Some(Err(error)) => Err(error),
            None => Ok(deltas),
        }
    }

    /// Whoever asks for JSON of a schema takes the answer for such, so it is not ignored.
    fn refuse_answer_format(&self, request: &Request) -> Result<(), ApiError> {
        let is_supported = match self {
            Self::Model(model) => model.supports_answer_format(),
            Self::Agent(agent) => agent.model().supports_answer_format(),
        };
        if is_supported || request.chat.answer_format().is_none() {
            return Ok(());
        }
        let message = "this model cannot be held to a JSON schema; leave `response_format` out";
        Err(ApiError::invalid("response_format", message))
    }
}

/// A stream that owns the request of which the model's own stream borrows. One task polls both, so
/// nothing runs on when the caller goes away.
fn stream_model(model: Arc<dyn ChatModel>, request: Request) -> Deltas {
    let (sender, mut receiver) = mpsc::channel(BUFFERED_DELTAS);
    let driver = async move {
        let mut deltas = model.stream(&request.chat);
        while let Some(delta) = deltas.next().await {
            let delta = delta.map_err(|error| ApiError::server(&error));
            if sender.send(delta).await.is_err() {
                break;
            }
        }
    };
    let silent = stream::once(driver).filter_map(|()| ready(None));
    let received = stream::poll_fn(move |context| receiver.poll_recv(context));
    stream::select(received, silent).boxed()
}

fn stream_agent(ask: Ask) -> Deltas {
    let deltas = ask.stream().filter_map(|event| {
        ready(match event {
            Ok(Event::Text(text)) => Some(Ok(Delta::Text(text))),
            Ok(Event::Reasoning(text)) => Some(Ok(Delta::Reasoning(text))),
            Ok(Event::Done(answer)) => Some(Ok(Delta::Done(response_of(answer)))),
            Ok(_) => None,
            Err(error) => Some(Err(ApiError::server(&error))),
        })
    });
    deltas.boxed()
}

/// The question of a request to an agent: its last message; what stands before it is history.
fn ask(agent: &Agent, request: Request) -> Result<Ask, ApiError> {
    if !request.chat.tools().is_empty() {
        return Err(ApiError::invalid(
            "tools",
            "this model has tools of its own and takes none; leave `tools` out",
        ));
    }
    let mut messages = request.chat.messages().to_vec();
    match messages.pop() {
        Some(Message::User(question)) => {
            let mut ask = agent.ask(question).history(messages).options(request.chat.options().clone());
            if let Some(format) = request.chat.answer_format() {
                ask = ask.answer_format(format.clone());
            }
            Ok(if agent.has_approver() { ask } else { ask.approver(deny) })
        }
        _ => Err(ApiError::invalid("messages", "the last message must be the user's")),
    }
}

/// The protocol has no word for a call that waits for a person.
fn deny(_: &ToolCall) -> Approval {
    Approval::denied("nobody is there to approve it")
}

/// The answer as one message. The texts of all turns are in it, as they are when it is streamed.
fn response_of(answer: Answer) -> ChatResponse {
    let texts = answer.messages().iter().filter_map(Message::as_assistant).map(|message| &*message.text);
    let mut message = AssistantMessage::text(texts.collect::<String>());
    message.refusal = answer.refusal().map(str::to_owned);
    ChatResponse::new(message).with_usage(answer.usage()).with_finish_reason(answer.finish_reason().clone())
}
