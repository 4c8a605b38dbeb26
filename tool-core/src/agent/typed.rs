//! Answers of a type.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::agent::Ask;
use crate::model::{ResponseFormat, ReturnDirect, ToolDefinition, ToolPolicy};
use crate::run::{Answer, RunError};
use crate::tool::{FunctionTool, Tool, ToolContext, ToolFuture, ToolOutput};
use crate::toolset::ToolSet;

/// The tool by which a model gives its answer, if it cannot be held to a schema.
const FINAL_TOOL: &str = "final_answer";

/// What an answer may be read as: a type of one's own that derives `serde::Deserialize` and `schemars::JsonSchema`, or
/// one that has both, such as `Vec<String>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the answer of a model",
    label = "needs `serde::Deserialize`, `schemars::JsonSchema` and `Send`",
    note = "above a type of your own, write `#[derive(serde::Deserialize, schemars::JsonSchema)]`"
)]
pub trait AnswerType: DeserializeOwned + JsonSchema + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + Send + 'static> AnswerType for T {}

/// One question whose answer is read as a `T`; made by [`Ask::answer_as`]. Await it.
#[must_use = "nothing is asked until it is awaited"]
pub struct TypedAsk<T> {
    ask: Ask,
    marker: PhantomData<fn() -> T>,
}

impl Ask {
    /// Reads the answer as a `T`: the model is held to the JSON Schema of the type if it
    /// [can be](crate::ChatModel::supports_response_format), else it is offered a tool, `final_answer`, that takes the
    /// answer. What is wrong in form and clear in meaning is mended as it is in arguments; any other wrong answer goes back to the
    /// model with what is wrong, [so often](crate::RunLimits::wrong_answers) at most.
    ///
    #[cfg_attr(feature = "testing", doc = "```")]
    #[cfg_attr(not(feature = "testing"), doc = "```ignore")]
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
        TypedAsk { ask: self, marker: PhantomData }
    }
}

impl<T: AnswerType> TypedAsk<T> {
    /// The answer, and beside it the calls, tokens and messages that it took.
    ///
    /// # Errors
    ///
    /// The run ended without an answer, or [without one of the type](RunError::is_wrong_answer).
    pub async fn with_answer(self) -> Result<(T, Answer), RunError> {
        let reader = Reader::<T>::new();
        let model = self.ask.agent().model();
        let by_tool = match self.ask.may_have_tools() {
            true => !model.supports_response_format_with_tools(),
            false => !model.supports_response_format(),
        };
        let ask = if by_tool {
            self.ask.tools(reader.final_tool())
        } else {
            self.ask.response_format(reader.format())
        };
        let mut run = ask.start();
        loop {
            if let Err(kind) = run.drive_on().await {
                return Err(run.into_failed(kind));
            }
            let Some(text) = run.state().answer_text() else {
                return match run.finish().await {
                    Err(error) => Err(error),
                    Ok(_) => unreachable!("a run without the text of an answer has none"),
                };
            };
            match reader.read(&text).await {
                Ok(value) => return Ok((value, run.finish().await?)),
                Err(why) => {
                    let hint = if by_tool { "; give your answer by calling `final_answer`" } else { "" };
                    // It has an answer, as was just seen.
                    let _ = run.reject_answer_with(&why, hint);
                }
            }
        }
    }
}

impl<T: AnswerType> IntoFuture for TypedAsk<T> {
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

/// Reads answers as a tool reads its arguments, so that they are mended alike and all mistakes are told at once.
struct Reader<T> {
    tool: FunctionTool,
    read: Arc<Mutex<Option<T>>>,
}

/// What is no object, in one: models and tools give objects only.
#[derive(Deserialize, JsonSchema)]
struct Wrapped<T> {
    answer: T,
}

impl<T: AnswerType> Reader<T> {
    fn new() -> Self {
        let read = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&read);
        let put = move |value: T| *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        let description = "Gives the final answer to the user, when everything is known that it takes";
        let schema = schemars::schema_for!(T);
        let tool = if schema.get("type").is_some_and(|kind| kind == "object") {
            FunctionTool::new(FINAL_TOOL, put).with_description(description)
        } else {
            FunctionTool::new(FINAL_TOOL, move |wrapped: Wrapped<T>| put(wrapped.answer))
                .with_description(description)
        };
        Self { tool, read }
    }

    fn format(&self) -> ResponseFormat {
        ResponseFormat::json_schema("answer", self.tool.definition().parameters().clone())
    }

    fn final_tool(&self) -> ToolSet {
        let policy = ToolPolicy { return_direct: ReturnDirect::Always, ..ToolPolicy::default() };
        let tool = FinalTool(self.tool.definition().clone().with_policy(policy));
        ToolSet::default().with(tool).expect("its name is one, and it takes an object")
    }

    async fn read(&self, text: &str) -> Result<T, String> {
        let called = self.tool.call(unfenced(text), &ToolContext::new()).await;
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (read, called) {
            (Some(value), Ok(_)) => Ok(value),
            (_, Err(error)) => {
                // It is read as arguments are, but nobody wrote any.
                let error = error.to_string();
                let wrong = error.strip_prefix("invalid arguments: ").unwrap_or(&error);
                Err(format!("the answer is not of the form that is asked for: {wrong}"))
            }
            (None, Ok(_)) => Err("the answer is not of the form that is asked for".into()),
        }
    }
}

/// Takes the answer as it comes: whether it will do is seen where its type is known.
struct FinalTool(ToolDefinition);

impl Tool for FinalTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, arguments: &'a str, _context: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::ready(Ok(ToolOutput::text(arguments)))
    }
}

/// The JSON of a text that has it in a fence of Markdown, as models write it.
fn unfenced(text: &str) -> &str {
    let trimmed = text.trim();
    let inside = trimmed.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    match inside {
        Some(inside) => inside.strip_prefix("json").unwrap_or(inside).trim(),
        None => trimmed,
    }
}

#[cfg(test)]
mod tests {
    use super::unfenced;

    #[cfg(feature = "testing")]
    #[tokio::test]
    async fn an_error_says_once_what_is_wrong_with_the_answer() {
        let model = (0..3).fold(crate::testing::ScriptedModel::new(), |model, _| {
            model.calls(super::FINAL_TOOL, r#"{"answer": "many"}"#)
        });
        let agent = crate::Agent::builder(model).build().unwrap();
        let error = agent.ask("How many?").answer_as::<u32>().await.unwrap_err();
        assert!(error.is_wrong_answer());
        let text = error.to_string();
        assert!(
            text.starts_with(
                "the model gave no answer that will do: the answer is not of the form that is asked for: `answer`: "
            ),
            "{text}"
        );
    }

    #[test]
    fn fences_are_taken_off() {
        for text in ["{}", " {} ", "```json\n{}\n```", "```\n{}```"] {
            assert_eq!(unfenced(text), "{}", "{text}");
        }
        assert_eq!(unfenced("``` {}"), "``` {}");
    }
}
