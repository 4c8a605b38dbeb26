//! Answers as values of a type.

use std::collections::HashMap;
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;

use serde::de::IgnoredAny;

use crate::agent::{Ask, RunDriver};
use crate::arguments::Contract;
use crate::model::{FINAL_TOOL, ResponseFormat, ReturnDirect, ToolDefinition, ToolPolicy};
use crate::run::{Answer, RunError, RunErrorKind};
use crate::schema::{arguments_schema, arguments_schema_for_providers};
use crate::tool::{
    AnswerType, Tool, ToolArguments, ToolContext, ToolFuture, ToolOutput, Wrapped, arguments_contract,
    decode_answer,
};
use crate::toolset::ToolSet;

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
        let (ask, by_tool) = parser.constrain(self.ask, self.by_tool);
        let mut run = ask.start();
        match run.drive_to_answer(|text| parser.parse(text), by_tool).await {
            Ok(Some(value)) => Ok((value, run.finish().await?)),
            Ok(None) => match run.finish().await {
                Err(error) => Err(error),
                Ok(_) => unreachable!("a run without the text of an answer has no answer"),
            },
            Err(kind) => Err(run.into_error(kind)),
        }
    }
}

impl RunDriver {
    /// Drives the run until it has an answer that can be read, or ends without one. An answer of a wrong form is sent back to the
    /// model, which gives its answers by calling a tool or as text.
    pub(super) async fn drive_to_answer<T>(
        &mut self,
        read: impl Fn(&str) -> Result<T, String>,
        by_tool: bool,
    ) -> Result<Option<T>, RunErrorKind> {
        loop {
            self.drive_to_end().await?;
            if let Some(read) = self.read_answer(&read, by_tool)? {
                return Ok(read);
            }
        }
    }

    /// Reads the answer of a run that is done, which has none if it stopped. Returns `None` if the answer was sent back to the model.
    pub(super) fn read_answer<T>(
        &mut self,
        read: impl Fn(&str) -> Result<T, String>,
        by_tool: bool,
    ) -> Result<Option<Option<T>>, RunErrorKind> {
        let hint = if by_tool { "; give your answer by calling `final_answer`" } else { "" };
        let Some(text) = self.run.answer_text() else { return Ok(Some(None)) };
        // A refusal is no answer of any type, although its text, which is empty, could be read as one.
        let answer = if self.run.refusal().is_some() { Err(String::new()) } else { read(&text) };
        match answer {
            Ok(answer) => Ok(Some(Some(answer))),
            Err(why) => {
                self.change_run().reject_answer_with_hint(&why, hint).map_err(RunErrorKind::Step)?;
                Ok(None)
            }
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

/// Parses answers like the arguments of a tool, so that they are repaired alike and all mistakes are reported at once.
pub(super) struct AnswerParser<T> {
    definition: ToolDefinition,
    contract: Contract,
    parse: fn(&str, &Contract) -> Result<T, String>,
}

/// Wraps an answer that is the value alone, as models that are not constrained write it: JSON other than an object that has the
/// answer already, one word for a variant of an enum, or a date, time or other value that begins with a digit. More words could be
/// anything, and an object is wrapped only if the type accepts objects.
fn wrap_bare_value(text: &str, contract: &Contract) -> Option<String> {
    let text = text.trim();
    let is_json = if text.starts_with('{') {
        let shape = contract.shape();
        shape.node(shape.property("answer")).allows_type("object")
            && serde_json::from_str::<HashMap<String, IgnoredAny>>(text)
                .is_ok_and(|members| !members.contains_key("answer"))
    } else {
        serde_json::from_str::<IgnoredAny>(text).is_ok()
    };
    let begins_with_digit = text.starts_with(|c: char| c.is_ascii_digit());
    let is_sign = |c| matches!(c, '_' | '-') || begins_with_digit && matches!(c, ':' | '.' | '+');
    let is_word = || text.chars().all(|c| c.is_alphanumeric() || is_sign(c));
    match text {
        "" => None,
        _ if is_json => Some(format!(r#"{{"answer":{text}}}"#)),
        _ => is_word().then(|| format!(r#"{{"answer":"{text}"}}"#)),
    }
}

impl<T: AnswerType> AnswerParser<T> {
    pub(super) fn new() -> Self {
        if schemars::schema_for!(T).get("type").is_some_and(|kind| kind == "object") {
            Self::of::<T>(decode_answer)
        } else {
            Self::of::<Wrapped<T>>(|text, contract| {
                let decode = |text: &str| Ok(decode_answer::<Wrapped<T>>(text, contract)?.answer);
                decode(text).or_else(|error| {
                    wrap_bare_value(text, contract).map_or(Err(error), |wrapped| decode(&wrapped))
                })
            })
        }
    }

    fn of<Object: ToolArguments>(parse: fn(&str, &Contract) -> Result<T, String>) -> Self {
        let (parameters, _) = arguments_schema_for_providers(arguments_schema::<Object>());
        let description = "Gives the final answer to the user, once all the information for it is available";
        let definition =
            ToolDefinition::new(FINAL_TOOL).with_parameters(parameters).with_description(description);
        Self { definition, contract: arguments_contract::<Object>(), parse }
    }
}

impl<T> AnswerParser<T> {
    /// Constrains the answer of a question. Also returns `true` if the model gives it by calling a tool, because that is required
    /// or it cannot be constrained otherwise.
    pub(super) fn constrain(&self, mut ask: Ask, requires_tool: bool) -> (Ask, bool) {
        ask.rules.has_typed_answer = true;
        let model = ask.agent.model();
        let is_constrained = if ask.may_have_tools() {
            model.supports_response_format_with_tools()
        } else {
            model.supports_response_format()
        };
        let by_tool = requires_tool || !is_constrained;
        if by_tool {
            ask.tools.answer_tool = self.final_tool();
            return (ask, true);
        }
        let format = ResponseFormat::json_schema("answer", self.definition.parameters().clone());
        (ask.response_format(format), false)
    }

    fn final_tool(&self) -> ToolSet {
        let policy = ToolPolicy::default().with_return_direct(ReturnDirect::Always);
        let tool = FinalTool(self.definition.clone().with_policy(policy));
        ToolSet::default().with(tool).expect("its name is valid, and it takes an object")
    }

    pub(super) fn parse(&self, text: &str) -> Result<T, String> {
        (self.parse)(text, &self.contract)
            .map_err(|wrong| format!("the answer does not have the requested form: {wrong}"))
    }
}

/// Accepts any answer: it is checked later, where its type is known.
struct FinalTool(ToolDefinition);

impl Tool for FinalTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, arguments: &'a str, _context: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::ready(Ok(ToolOutput::text(arguments)))
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    struct Moment(String);

    #[test]
    fn dates_and_times_can_be_answered_alone() {
        let parser = AnswerParser::<Moment>::new();
        let moments =
            ["2026-11-23", "12:30", "12:30:00.5", "2026-11-23T12:30:00Z", "2026-11-23T12:30:00.25+01:00"];
        for moment in moments {
            for text in [moment.to_owned(), format!("\"{moment}\""), format!(r#"{{"answer":"{moment}"}}"#)] {
                assert_eq!(parser.parse(&text).map(|Moment(moment)| moment), Ok(moment.to_owned()), "{text}");
            }
        }
        for (text, why) in [
            ("at:12", "not valid JSON: expected value at line 1 column 1"),
            ("12:30 or later", "expected a JSON object, got 12:30 or later"),
            ("12:30\"", "expected a JSON object, got 12:30\""),
        ] {
            let error = parser.parse(text).map(|Moment(moment)| moment);
            assert_eq!(error, Err(format!("the answer does not have the requested form: {why}")), "{text}");
        }
    }
}
