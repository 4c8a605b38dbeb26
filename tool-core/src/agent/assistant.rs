//! The part of `#[assistant]` that is not generated: from a template to a question, and from a question to the return value.

use std::any::Any;
use std::fmt::{self, Write};
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use serde::Serialize;

use crate::agent::question_rules::QuestionError;
use crate::agent::{Agent, Ask, EventStream, TypedAsk};
use crate::content::Content;
use crate::run::{Answer, RunError};
use crate::tool::AnswerType;

/// The value that a method of an assistant returns until it is awaited.
pub type Asking<R> = Pin<Box<dyn Future<Output = R> + Send>>;

/// A piece of a template. Values have the name of their parameter.
#[allow(missing_debug_implementations, reason = "values are private")]
pub enum Piece<'a> {
    /// A text as it is written in the template.
    Text(&'a str),
    /// `{name}`
    Value(&'static str, &'a dyn TemplateValue),
    /// `{name:?}`
    Debug(&'static str, &'a dyn fmt::Debug),
}

/// A value that a template can contain.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be inserted into a template",
    label = "must implement `serde::Serialize`",
    note = "above a type of your own, write `#[derive(serde::Serialize)]`, or insert the value as its `Debug` form, with `:?` after the name"
)]
pub trait TemplateValue {
    /// Appends the value to a text: a value that is a string in JSON as the string itself, and any other as JSON.
    ///
    /// # Errors
    ///
    /// Fails if the value cannot be serialized.
    fn write(&self, text: &mut String) -> serde_json::Result<()>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + ?Sized> TemplateValue for T {
    fn write(&self, text: &mut String) -> serde_json::Result<()> {
        push_json(text, &serde_json::to_string(self)?)
    }
}

fn push_json(text: &mut String, json: &str) -> serde_json::Result<()> {
    if json.starts_with('"') {
        text.push_str(&serde_json::from_str::<String>(json)?);
    } else {
        text.push_str(json);
    }
    Ok(())
}

/// Asks a question that is written by a template.
pub fn ask_template(agent: &Agent, instructions: &[Piece<'_>], template: &[Piece<'_>]) -> Ask {
    let (text, failure) = write_text(template);
    let mut ask = ask_message(agent, instructions, text);
    ask.question.rules.error = failure.or(ask.question.rules.error);
    ask
}

/// Returns the text of a template, and the first error of a value.
fn write_text(template: &[Piece<'_>]) -> (String, Option<QuestionError>) {
    let mut text = String::new();
    let mut failure = None;
    for piece in template {
        let (name, written) = match piece {
            Piece::Text(piece) => {
                text.push_str(piece);
                continue;
            }
            Piece::Value(name, value) => (name, value.write(&mut text).map_err(|error| error.to_string())),
            Piece::Debug(name, value) => (name, write!(text, "{value:?}").map_err(|error| error.to_string())),
        };
        if let Err(reason) = written {
            let error = format!("the value of `{name}` cannot be written: {reason}");
            failure.get_or_insert(QuestionError(error));
        }
    }
    (text, failure)
}

/// A value that is a whole message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the message to a model",
    label = "must be `&str`, `String` or `Content`",
    note = "write a template that contains the parameter, with its name in braces: `#[ask(\"…\")]`"
)]
pub trait MessageValue {
    /// Converts the value into the content of the message.
    fn into_message(self) -> Content;
}

#[diagnostic::do_not_recommend]
impl<T: Into<Content>> MessageValue for T {
    fn into_message(self) -> Content {
        self.into()
    }
}

/// Asks a question that is a parameter.
pub fn ask_message(agent: &Agent, instructions: &[Piece<'_>], message: impl MessageValue) -> Ask {
    let ask = agent.ask(message.into_message());
    if instructions.is_empty() {
        return ask;
    }
    let (text, failure) = write_text(instructions);
    let mut ask = ask.instructions(text);
    ask.question.rules.error = failure;
    ask
}

/// A value that an `async` method returns.
#[diagnostic::on_unimplemented(
    message = "an `async` method with `#[ask]` cannot return `{Self}`",
    label = "must be a `Result` whose error can be created from a `RunError`",
    note = "write `Result<T, RunError>`, where `T` is `String`, `Answer`, or a type that implements `serde::Deserialize` and `schemars::JsonSchema`",
    note = "without `async`, a method can return `EventStream`, `Ask` or `TypedAsk<T>`"
)]
pub trait AssistantReply: Sized {
    /// Sends the question and returns the answer.
    fn receive(ask: Ask) -> Asking<Self>;
}

impl<T: ReplyValue, E: ReplyError> AssistantReply for Result<T, E> {
    fn receive(ask: Ask) -> Asking<Self> {
        let receiving = T::receive(ask);
        Box::pin(async { Ok(receiving.await?) })
    }
}

/// An error in the `Err` of a method's return value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a method with `#[ask]`",
    label = "its error must implement `From<RunError>`",
    note = "write `Result<T, RunError>`, or an error that any other converts into, such as `Box<dyn std::error::Error>`"
)]
pub trait ReplyError: From<RunError> + 'static {}

#[diagnostic::do_not_recommend]
impl<E: From<RunError> + 'static> ReplyError for E {}

/// An answer in the `Ok` of a method's return value.
pub trait ReplyValue: Sized + 'static {
    /// Sends the question and returns the answer.
    fn receive(ask: Ask) -> Asking<Result<Self, RunError>>;
}

impl ReplyValue for Answer {
    fn receive(ask: Ask) -> Asking<Result<Self, RunError>> {
        ask.into_future()
    }
}

impl<T: AnswerType> ReplyValue for T {
    fn receive(ask: Ask) -> Asking<Result<Self, RunError>> {
        // A text needs no form. The downcast succeeds if `T` is `String`, under any alias.
        let identity: fn(String) -> String = |text| text;
        match (&identity as &dyn Any).downcast_ref::<fn(String) -> T>() {
            Some(&convert) => Box::pin(async move { Ok(convert(ask.await?.to_string())) }),
            None => ask.answer_as().into_future(),
        }
    }
}

/// A value that a method with `response = "tool"` returns.
#[diagnostic::on_unimplemented(
    message = "a method with `response = \"tool\"` cannot return `{Self}`",
    label = "must be a `Result` whose error can be created from a `RunError`"
)]
pub trait TypedReply: Sized {
    /// Sends the question and returns the answer, which the model gives by calling a tool.
    fn receive_by_tool(ask: Ask) -> Asking<Self>;
}

impl<T: AnswerType, E: ReplyError> TypedReply for Result<T, E> {
    fn receive_by_tool(ask: Ask) -> Asking<Self> {
        let receiving = ask.answer_as::<T>().by_tool().into_future();
        Box::pin(async { Ok(receiving.await?) })
    }
}

/// A value that a method without `async` returns.
#[diagnostic::on_unimplemented(
    message = "a method with `#[ask]` that is not `async` cannot return `{Self}`",
    label = "write `async fn`, or return `EventStream`, `Ask` or `TypedAsk<T>`"
)]
pub trait FromAsk {
    /// Converts the question, which is not sent yet.
    fn from_ask(ask: Ask) -> Self;
}

impl FromAsk for Ask {
    fn from_ask(ask: Ask) -> Self {
        ask
    }
}

impl<T: AnswerType> FromAsk for TypedAsk<T> {
    fn from_ask(ask: Ask) -> Self {
        ask.answer_as()
    }
}

impl FromAsk for EventStream {
    fn from_ask(ask: Ask) -> Self {
        ask.stream()
    }
}

/// Calls [`AssistantReply::receive`].
pub fn reply<R: AssistantReply>(ask: Ask) -> Asking<R> {
    R::receive(ask)
}

/// Calls [`TypedReply::receive_by_tool`].
pub fn reply_by_tool<R: TypedReply>(ask: Ask) -> Asking<R> {
    R::receive_by_tool(ask)
}

/// Calls [`FromAsk::from_ask`].
pub fn from_ask<R: FromAsk>(ask: Ask) -> R {
    R::from_ask(ask)
}
