//! Tests of the whole model, and the helpers that they share.

mod arguments;
mod dialogs;
mod many_tools;
mod requests;
mod robustness;
mod spoken;

use serde_json::{Value, json};
use tool_core::model::{ChatRequest, ToolChoice, ToolDefinition, ToolDefinitions};
use tool_core::{Message, ToolError, ToolOutput};

use crate::reply::respond;

/// A question and the settings of its request.
pub(crate) struct Question<'a> {
    history: Vec<Message>,
    text: &'a str,
    tools: ToolDefinitions,
    choice: ToolChoice,
    parallel: Option<bool>,
}

impl<'a> Question<'a> {
    pub(crate) fn new(text: &'a str, tools: &[ToolDefinition]) -> Self {
        let tools = tools.iter().cloned().collect();
        Self { history: Vec::new(), text, tools, choice: ToolChoice::Auto, parallel: None }
    }

    /// Runs the question to its end. Returns the calls as `sum {"a":1,"b":2} & now {} > next turn`, and the answer.
    ///
    /// `results` has the results of the calls in order; a result that starts with `!` is an error.
    pub(crate) fn run(self, results: &[&str]) -> (String, String) {
        let mut results = results.iter();
        let mut messages = self.history;
        messages.push(Message::user(self.text));
        let (mut turns, mut choice) = (Vec::new(), self.choice);
        for _ in 0..12 {
            let request = ChatRequest::borrowing(&messages)
                .with_tools(self.tools.clone())
                .with_tool_choice(choice.clone())
                .with_parallel_tool_calls(self.parallel);
            let message = respond(&request).message;
            if message.tool_calls.is_empty() {
                assert!(!message.text.is_empty(), "{}", self.text);
                return (turns.join(" > "), message.text);
            }
            let calls = message.tool_calls.clone();
            messages.push(Message::Assistant(message));
            let turn: Vec<_> = calls.iter().map(|call| format!("{} {}", call.name, call.arguments)).collect();
            assert!(turn.iter().all(|call| !turns.join(" > ").contains(call)), "repeated: {turn:?}");
            turns.push(turn.join(" & "));
            for call in &calls {
                let outcome = match results.next().copied().unwrap_or("?") {
                    text if text.starts_with('!') => Err(ToolError::failed(text.trim_start_matches('!'))),
                    text => Ok(ToolOutput::text(text)),
                };
                messages.push(Message::tool(call, &outcome));
            }
            // Like a run: a forced call is forced once.
            choice = if choice == ToolChoice::None { choice } else { ToolChoice::Auto };
        }
        panic!("no answer after 12 turns: {}", self.text);
    }
}

/// Builds a tool. A parameter is given as a type, a format or a schema; a name that ends in `?` is optional.
pub(crate) fn tool(name: &str, description: &str, parameters: Value) -> ToolDefinition {
    let mut properties = serde_json::Map::new();
    let mut required = Vec::new();
    for (name, schema) in parameters.as_object().unwrap() {
        if !name.ends_with('?') {
            required.push(name.clone());
        }
        let schema = match schema.as_str() {
            Some("strings") => json!({ "type": "array", "items": { "type": "string" } }),
            Some("integers") => json!({ "type": "array", "items": { "type": "integer" } }),
            Some(format @ ("email" | "date")) => json!({ "type": "string", "format": format }),
            Some(name) => json!({ "type": name }),
            None => schema.clone(),
        };
        properties.insert(name.trim_end_matches('?').to_owned(), schema);
    }
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    ToolDefinition::new(name).with_description(description).with_parameters(schema)
}

/// Parses one tool per line: name, description, parameters.
pub(crate) fn tools(lines: &str) -> Vec<ToolDefinition> {
    let tools = lines.trim().lines().map(|line| {
        let [name, description, parameters] = columns(line);
        tool(name, description, serde_json::from_str(parameters).unwrap())
    });
    tools.collect()
}

/// Splits a line of a table.
pub(crate) fn columns<const N: usize>(line: &str) -> [&str; N] {
    let columns: Vec<_> = line.split('|').map(str::trim).collect();
    columns.try_into().unwrap_or_else(|_| panic!("{line}"))
}

fn sample_tools() -> Vec<ToolDefinition> {
    tools(
        r#"
        sum | Sums two numbers | {"a": "number", "b": "number"}
        multiply | Multiplies two numbers | {"a": "number", "b": "number"}
        subtract | Subtracts b from a | {"a": "number", "b": "number"}
        squareRoot | | {"x": "number"}
        is_prime | | {"n": "integer"}
        get_weather | Returns the weather in a city | {"city": "string"}
        send_email | Sends an e-mail | {"to": "string", "subject": "string", "body": "string"}
        find_user | Finds a user by name | {"name": "string"}
        book_room | Books a room | {"city": "string", "nights": {"type": "integer", "description": "how long"}}
        "#,
    )
}
