//! Answers as values of a type.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;

use super::answer_parser::AnswerParser;
use crate::agent::Ask;
use crate::run::{Answer, RunError};
use crate::tool::AnswerType;

/// One question whose answer is parsed as a `T`; created by [`Ask::answer_as`]. Await it.
#[must_use = "no request is sent until it is awaited: write `.await` behind it"]
pub struct TypedAsk<T> {
    ask: Ask,
    by_tool: bool,
    /// With it, only `answer_as` has a bound on `T`, so an unmet one is reported once and not for each later method.
    parser: fn() -> AnswerParser<T>,
}

impl Ask {
    /// Parses the answer as a `T`. The model is constrained to the JSON Schema of the type if it
    /// [supports that](crate::ChatModel::supports_response_format); otherwise it is offered a tool, `final_answer`, that takes
    /// the answer. Mistakes of form whose meaning is clear are repaired, as in arguments. Models are
    /// asked to put a value that is not a struct into an object, and can also give it alone: `true`, or the object of one variant
    /// of an enum. Any other wrong answer is sent back to the model with the mistakes found, at most
    /// [`max_wrong_answers`](crate::run::RunLimits::max_wrong_answers) times.
    ///
    /// ```
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    /// use tool_core::Agent;
    /// use tool_core::testing::ScriptedModel;
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct City {
    ///     name: String,
    ///     inhabitants: u32,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new()
    ///     .calls("final_answer", r#"{"name": "Vienna"}"#) // the model forgets something
    ///     .calls("final_answer", r#"{"name": "Vienna", "inhabitants": "2005760"}"#);
    /// let agent = Agent::builder(model).build()?;
    /// let city = agent.ask("What is the capital of Austria?").answer_as::<City>().await?;
    /// assert_eq!((&*city.name, city.inhabitants), ("Vienna", 2_005_760));
    /// # Ok(())
    /// # }
    /// ```
    pub fn answer_as<T: AnswerType>(self) -> TypedAsk<T> {
        TypedAsk { ask: self, by_tool: false, parser: AnswerParser::new }
    }
}

impl<T> TypedAsk<T> {
    /// Takes the answer through the tool `final_answer`, also from a model that can be constrained to the JSON Schema. Some
    /// models use their other tools less if they are constrained.
    pub fn by_tool(mut self) -> Self {
        self.by_tool = true;
        self
    }

    /// Returns the parsed answer together with the [`Answer`], which has the calls, tokens and messages.
    ///
    /// # Errors
    ///
    /// Fails if the run ended without an answer, or [without one of the type](crate::run::StopReason::WrongAnswer).
    pub async fn with_answer(self) -> Result<(T, Answer), RunError> {
        let parser = (self.parser)();
        let mut ask = self.ask;
        parser.constrain(&mut ask.question, self.by_tool);
        let mut run = ask.start();
        match run.drive_to_answer(|text| parser.parse(text)).await {
            Ok(Some(value)) => Ok((value, run.finish().await?)),
            Ok(None) => match run.finish().await {
                Err(error) => Err(error),
                Ok(_) => unreachable!("a run without the text of an answer has no answer"),
            },
            Err(kind) => Err(run.into_error(kind)),
        }
    }
}

impl<T: Send + 'static> IntoFuture for TypedAsk<T> {
    type Output = Result<T, RunError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.with_answer().await?.0) })
    }
}

impl<T> fmt::Debug for TypedAsk<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedAsk").field("ask", &self.ask).finish_non_exhaustive()
    }
}
