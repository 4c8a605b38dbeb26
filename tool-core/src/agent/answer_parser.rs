//! Reads answers as values of a type.

use std::collections::HashMap;

use serde::de::IgnoredAny;

use super::question::AskedQuestion;
use crate::arguments::Contract;
use crate::model::{FINAL_TOOL, ResponseFormat, ReturnDirect, ToolDefinition, ToolPolicy};
use crate::schema::{arguments_schema, arguments_schema_for_providers};
use crate::tool::{
    AnswerType, Tool, ToolArguments, ToolContext, ToolFuture, ToolOutput, Wrapped, arguments_contract,
    decode_answer,
};
use crate::toolset::ToolSet;

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
    /// Constrains the answer of a question. The model gives it by calling a tool if that is required, or if it cannot be constrained otherwise.
    pub(super) fn constrain(&self, question: &mut AskedQuestion, requires_tool: bool) {
        question.rules.has_typed_answer = true;
        let model = question.agent.model();
        let is_constrained = if question.may_have_tools() {
            model.supports_response_format_with_tools()
        } else {
            model.supports_response_format()
        };
        if requires_tool || !is_constrained {
            question.tools.answer_tool = final_tool(self.definition.clone());
        } else {
            let format = ResponseFormat::json_schema("answer", self.definition.parameters().clone());
            question.response_format = Some(format);
        }
    }

    pub(super) fn parse(&self, text: &str) -> Result<T, String> {
        (self.parse)(text, &self.contract)
            .map_err(|wrong| format!("the answer does not have the requested form: {wrong}"))
    }
}

/// Returns the tool that takes an answer of a type that is not known.
pub(super) fn answer_of_any_form() -> ToolSet {
    final_tool(ToolDefinition::new(FINAL_TOOL))
}

fn final_tool(definition: ToolDefinition) -> ToolSet {
    let policy = ToolPolicy::default().with_return_direct(ReturnDirect::Always);
    let tool = FinalTool(definition.with_policy(policy));
    ToolSet::default().with(tool).expect("its name is valid, and it takes an object")
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
