//! Answers in the JSON of a response format, filled in from results and from the question.

use crate::facts::{self, Fact};
use crate::fill::fill;
use crate::matching::{Tool, Tools};
use crate::progress::{ExecutedCall, executed_calls};
use crate::thesaurus::terms;
use crate::tokens::Text;
use tool_core::Message;
use tool_core::model::{ResponseFormat, ToolDefinition};

/// Returns the JSON text for the latest user message that has all values. A later message may only say that an answer
/// was wrong.
///
/// # Errors
///
/// Returns the names of the missing values, for the message that lacks the fewest.
pub(crate) fn answer(format: &ResponseFormat, messages: &[Message]) -> Result<String, Vec<String>> {
    let definition = ToolDefinition::new(format.name()).with_parameters(format.original_schema().clone());
    let tools = Tools::new([&definition].into_iter());
    let Some(tool) = tools.get(0) else { return Err(Vec::new()) };
    let mut missing: Option<Vec<String>> = None;
    for (at, message) in messages.iter().enumerate().rev() {
        let (Message::User(question), Some(behind)) = (message, messages.get(at..)) else { continue };
        match fill_answer(tool, &question.text(), &executed_calls(behind)) {
            Ok(json) => return Ok(json),
            Err(more) if missing.as_ref().is_some_and(|missing| missing.len() <= more.len()) => {}
            Err(less) => missing = Some(less),
        }
    }
    Err(missing.unwrap_or_default())
}

fn fill_answer(tool: &Tool<'_>, question: &str, calls: &[ExecutedCall<'_>]) -> Result<String, Vec<String>> {
    let text = Text::new(question);
    let is_explained = |at: usize| terms([(at, text.word(at))]).iter().any(|term| tool.matches_term(term));
    // Results come before the values of the question, the latest first.
    let results = calls.iter().rev().filter_map(|executed| executed.result.filter(|result| !result.is_error));
    let results: Vec<_> = results.map(|result| result.content.text()).collect();
    let found = results.iter().flat_map(|result| match facts::fields(result, 0) {
        fields if fields.is_empty() => vec![Fact::result(result)],
        fields => fields,
    });
    let names = facts::names(&text, text.all(), &is_explained);
    let phrases = facts::phrases(&text, text.all(), &is_explained);
    let facts: Vec<_> = found.chain(facts::literals(&text)).chain(names).chain(phrases).collect();
    let filled = fill(tool, &text, &text.all(), &facts);
    if filled.missing.is_empty() {
        return Ok(filled.arguments.to_string());
    }
    Err(filled.missing.iter().filter_map(|slot| Some(tool.slots.get(*slot)?.path.join("."))).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::reply::respond;
    use crate::tests::tool;
    use tool_core::model::{AssistantMessage, ChatRequest, ResponseFormat, ToolDefinitions};
    use tool_core::{Message, ToolCall, ToolOutput};

    /// Returns the answer to a question, after one call if there is a result.
    fn answer_to(schema: &Value, question: &str, result: Option<&str>) -> String {
        let call = ToolCall::new("call_1", "find_user", r#"{"name": "Ada"}"#);
        let called = AssistantMessage::default().with_tool_calls([call.clone()]);
        let result = result.map(|text| Message::tool(&call, &Ok(ToolOutput::text(text))));
        let behind = result.into_iter().flat_map(|result| [Message::Assistant(called.clone()), result]);
        let messages: Vec<_> = [Message::user(question)].into_iter().chain(behind).collect();
        let request = ChatRequest::new(messages)
            .with_tools(
                [tool("find_user", "Finds a user by name", json!({ "name": "string" }))]
                    .into_iter()
                    .collect::<ToolDefinitions>(),
            )
            .with_response_format(ResponseFormat::json_schema("answer", schema.clone()));
        let message = respond(&request).message;
        assert!(message.tool_calls.is_empty(), "{question}: {:?}", message.tool_calls);
        message.text
    }

    #[test]
    fn fills_the_requested_format() {
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
            // A result wins over a value of the question.
            (&number, "How much is 9 of that?", Some("42.5"), r#"{"answer":42.5}"#),
            (&number, "How much is 9?", None, r#"{"answer":9}"#),
            (
                &user,
                "How old is Ada?",
                None,
                "I cannot answer in the requested format: there is no value for `age`.",
            ),
        ];
        for (schema, question, result, expected) in table {
            let answer = answer_to(schema, question, result);
            assert_eq!(answer, expected, "{question}");
            // A message that says only that the answer was wrong produces it again.
            let wrong = [Message::assistant(&*answer), Message::user("that was wrong")];
            let messages: Vec<_> = [Message::user(question)].into_iter().chain(wrong).collect();
            let format = ResponseFormat::json_schema("answer", schema.clone());
            let again = respond(&ChatRequest::new(messages).with_response_format(format)).message.text;
            assert!(again == expected || result.is_some(), "{question}: {again}");
        }
    }
}
