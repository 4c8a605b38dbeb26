//! Answers in the JSON of a schema: filled as arguments are, from the results of calls and from the question.

use super::choose::{Tool, Tools};
use super::facts::{self, Fact};
use super::fill::fill;
use super::progress::{Made, made};
use super::thesaurus::terms;
use super::words::Text;
use crate::{Message, ResponseFormat, ToolDefinition};

/// The JSON text, filled from the last message of the user that says enough: a later one may only say that an answer
/// was wrong.
///
/// # Errors
///
/// The names of what is lacking, if the least is lacking.
pub(super) fn formatted(format: &ResponseFormat, messages: &[Message]) -> Result<String, Vec<String>> {
    let definition = ToolDefinition::new(format.name(), "").with_parameters(format.original_schema().clone());
    let tools = Tools::new([&definition].into_iter());
    let Some(tool) = tools.get(0) else { return Err(Vec::new()) };
    let mut missing: Option<Vec<String>> = None;
    for (at, message) in messages.iter().enumerate().rev() {
        let (Message::User(question), Some(behind)) = (message, messages.get(at..)) else { continue };
        match filled(tool, &question.text(), &made(behind)) {
            Ok(json) => return Ok(json),
            Err(more) if missing.as_ref().is_some_and(|missing| missing.len() <= more.len()) => {}
            Err(less) => missing = Some(less),
        }
    }
    Err(missing.unwrap_or_default())
}

fn filled(tool: &Tool<'_>, question: &str, made: &[Made<'_>]) -> Result<String, Vec<String>> {
    let text = Text::new(question);
    let is_explained = |at: usize| terms([(at, text.word(at))]).iter().any(|term| tool.explains(term));
    // What was found out last comes before what was asked for.
    let results = made.iter().rev().filter_map(|made| made.result.filter(|result| !result.is_error));
    let results: Vec<_> = results.map(|result| result.content.text()).collect();
    let found = results.iter().flat_map(|result| match facts::fields(result, 0) {
        fields if fields.is_empty() => vec![Fact::known(result)],
        fields => fields,
    });
    let names = facts::names(&text, text.all(), &is_explained);
    let phrases = facts::phrases(&text, text.all(), &is_explained);
    let facts: Vec<_> = found.chain(facts::plain(&text)).chain(names).chain(phrases).collect();
    let filled = fill(tool, &text, &text.all(), &facts);
    if filled.missing.is_empty() {
        return Ok(filled.arguments.to_string());
    }
    Err(filled.missing.iter().filter_map(|slot| Some(tool.slots.get(*slot)?.path.join("."))).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::reply;
    use super::super::tests::tool;
    use crate::{AssistantMessage, ChatRequest, Message, ResponseFormat, ToolCall, ToolOutput};

    /// What is answered to a question, behind one call if there is a result.
    fn answered(schema: &Value, question: &str, result: Option<&str>) -> String {
        let call = ToolCall::new("call_1", "find_user", r#"{"name": "Ada"}"#);
        let called = AssistantMessage::default().with_tool_calls([call.clone()]);
        let result = result.map(|text| Message::tool(&call, &Ok(ToolOutput::text(text))));
        let behind = result.into_iter().flat_map(|result| [Message::Assistant(called.clone()), result]);
        let messages: Vec<_> = [Message::user(question)].into_iter().chain(behind).collect();
        let request = ChatRequest::new(messages)
            .with_tools(
                [tool("find_user", "Finds a user by name", json!({ "name": "string" }))]
                    .into_iter()
                    .collect(),
            )
            .with_response_format(ResponseFormat::json_schema("answer", schema.clone()));
        let message = reply(&request).message;
        assert!(message.tool_calls.is_empty(), "{question}: {:?}", message.tool_calls);
        message.text
    }

    #[test]
    fn an_answer_has_the_form_that_is_asked_for() {
        let schema = |properties: Value| tool("answer", "", properties).parameters().clone();
        let stay = schema(json!({
            "guest": schema(json!({ "name": "string", "email?": "string" })),
            "room": { "enum": ["single", "double"] },
            "nights": "integer",
            "arrival": "date",
            "breakfast": "boolean",
        }));
        let number = schema(json!({ "answer": "number" }));
        let user = schema(json!({ "name": "string", "age": "integer" }));
        let table = [
            (
                &stay,
                "A double room for Ada Lovelace (ada@a.org) from 2026-03-01, 3 nights, with breakfast.",
                None,
                r#"{"guest":{"name":"Ada Lovelace","email":"ada@a.org"},"room":"double","nights":3,"arrival":"2026-03-01","breakfast":true}"#,
            ),
            (
                &user,
                "How old is Ada, user 7?",
                Some(r#"{"age": 36, "name": "Ada"}"#),
                r#"{"name":"Ada","age":36}"#,
            ),
            // What was found out wins over what was asked with.
            (&number, "How much is 9 of that?", Some("42.5"), r#"{"answer":42.5}"#),
            (&number, "How much is 9?", None, r#"{"answer":9}"#),
            (
                &user,
                "How old is Ada?",
                None,
                "I cannot answer in the form that is asked for: nothing says `age`.",
            ),
        ];
        for (schema, question, result, expected) in table {
            let answer = answered(schema, question, result);
            assert_eq!(answer, expected, "{question}");
            // Whoever says only that the answer was wrong gets it again.
            let wrong = [Message::assistant(&*answer), Message::user("that was wrong")];
            let messages: Vec<_> = [Message::user(question)].into_iter().chain(wrong).collect();
            let format = ResponseFormat::json_schema("answer", schema.clone());
            let again = reply(&ChatRequest::new(messages).with_response_format(format)).message.text;
            assert!(again == expected || result.is_some(), "{question}: {again}");
        }
    }
}
