//! Questions, what is called for them, and what is answered.

use serde_json::{Value, json};

use super::reply;
use crate::{
    AssistantMessage, ChatRequest, Message, ToolCall, ToolChoice, ToolDefinition, ToolDefinitions, ToolError,
    ToolOutput,
};

/// What came of a question: the calls of every turn, and the answer.
pub(super) struct Told {
    pub(super) turns: Vec<Vec<(String, Value)>>,
    pub(super) answer: String,
}

/// A question with its tools; what they give back is told by `results`, in the order of the calls.
pub(super) struct Question<'a> {
    history: Vec<Message>,
    text: &'a str,
    tools: Vec<ToolDefinition>,
    choice: ToolChoice,
    parallel: Option<bool>,
}

impl<'a> Question<'a> {
    pub(super) fn new(text: &'a str, tools: &[ToolDefinition]) -> Self {
        let tools = tools.to_vec();
        Self { history: Vec::new(), text, tools, choice: ToolChoice::Auto, parallel: None }
    }

    pub(super) fn told(self, results: &[Result<&str, &str>]) -> Told {
        let mut results = results.iter();
        let mut messages = self.history;
        messages.push(Message::user(self.text));
        let tools: ToolDefinitions = self.tools.into_iter().collect();
        let (mut turns, mut choice) = (Vec::new(), self.choice);
        for _ in 0..12 {
            let request = ChatRequest::borrowing(&messages)
                .tools(tools.clone())
                .tool_choice(choice.clone())
                .parallel_tool_calls(self.parallel);
            let message = reply(&request).message;
            if message.tool_calls.is_empty() {
                assert!(!message.text.is_empty(), "{}", self.text);
                return Told { turns, answer: message.text };
            }
            let calls = message.tool_calls.clone();
            messages.push(Message::Assistant(message));
            turns.push(calls.iter().map(|call| (call.name.clone(), arguments(call))).collect());
            for call in &calls {
                let outcome = match results.next().copied().unwrap_or(Ok("?")) {
                    Ok(text) => Ok(ToolOutput::text(text)),
                    Err(text) => Err(ToolError::failed(text)),
                };
                messages.push(Message::tool(call, &outcome));
            }
            if choice != ToolChoice::None {
                choice = ToolChoice::Auto;
            }
        }
        panic!("no end: {}", self.text);
    }
}

fn arguments(call: &ToolCall) -> Value {
    serde_json::from_str(&call.arguments).unwrap()
}

/// A tool; a parameter with `?` at the end of its name may be left out.
pub(super) fn tool(name: &str, description: &str, parameters: Value) -> ToolDefinition {
    let mut properties = serde_json::Map::new();
    let mut required = Vec::new();
    for (name, schema) in parameters.as_object().unwrap() {
        if !name.ends_with('?') {
            required.push(name.clone());
        }
        let schema = if schema.is_string() { json!({ "type": schema }) } else { schema.clone() };
        properties.insert(name.trim_end_matches('?').to_owned(), schema);
    }
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    ToolDefinition::new(name, description).with_parameters(schema)
}

fn sum() -> ToolDefinition {
    tool("sum", "Sums two numbers", json!({ "a": "number", "b": "number" }))
}

fn square_root() -> ToolDefinition {
    tool("square_root", "Returns the square root of a number", json!({ "x": "number" }))
}

fn weather() -> ToolDefinition {
    tool("get_weather", "Tells the weather of a city", json!({ "city": "string" }))
}

fn email() -> ToolDefinition {
    let parameters = json!({ "to": "string", "subject": "string", "body": "string" });
    tool("send_email", "Sends an e-mail", parameters)
}

fn call(name: &str, arguments: Value) -> (String, Value) {
    (name.to_owned(), arguments)
}

/// The calls of a question that is answered after one turn.
fn calls(text: &str, tools: &[ToolDefinition]) -> Vec<(String, Value)> {
    let told = Question::new(text, tools).told(&[]);
    assert!(told.turns.len() < 2, "{text}: {:?}", told.turns);
    told.turns.into_iter().flatten().collect()
}

/// The only call.
fn only(text: &str, tools: &[ToolDefinition]) -> Value {
    let mut calls = calls(text, tools);
    assert_eq!(calls.len(), 1, "{text}: {calls:?}");
    calls.remove(0).1
}

fn answer(text: &str, tools: &[ToolDefinition]) -> String {
    let told = Question::new(text, tools).told(&[]);
    assert!(told.turns.is_empty(), "{text}: {:?}", told.turns);
    told.answer
}

#[test]
fn one_call_and_a_sentence_with_its_result() {
    let question = "What is the square root of 475695037565?";
    let told = Question::new(question, &[sum(), square_root()]).told(&[Ok("689706.4865324959")]);
    assert_eq!(told.turns, [[call("square_root", json!({ "x": 475_695_037_565_u64 }))]]);
    assert_eq!(told.answer, "The square root of 475695037565 is 689706.4865324959.");

    let camel = ToolDefinition::new("squareRoot", "").with_parameters(square_root().parameters().clone());
    assert_eq!(calls(question, &[sum(), camel]), [call("squareRoot", json!({ "x": 475_695_037_565_u64 }))]);

    let told = Question::new("What is 2.5 plus 40?", &[sum(), square_root()]).told(&[Ok("42.5")]);
    assert_eq!(told.turns, [[call("sum", json!({ "a": 2.5, "b": 40 }))]]);
    assert_eq!(told.answer, "2.5 plus 40 is 42.5.");
}

#[test]
fn what_no_tool_does_is_not_done() {
    let tools = [sum(), square_root(), weather()];
    for question in [
        "What is 2.5 minus 40?",
        "What is 5 - 3?",
        "What is the difference of 5 and 3?",
        "Multiply the sum of 2 and 3 by 4",
        "Delete the sum of 2 and 3",
        "Who wrote Hamlet?",
        "What is the population of Paris?",
        "Frobnicate the weather in Paris",
        "Hello!",
        "",
        "?!",
        "blah 5 blah",
    ] {
        let answer = answer(question, &tools);
        assert_eq!(answer, "I cannot answer that with the tools I have (sum, square_root, get_weather).", "{question}");
    }
    let plain = answer("Hello!", &[]);
    assert!(plain.starts_with("I am an offline model without knowledge of my own"), "{plain}");
    let forbidden = Question { choice: ToolChoice::None, ..Question::new("What is 1 + 2?", &tools) };
    let told = forbidden.told(&[]);
    assert_eq!((told.turns.len(), told.answer), (0, plain));
}

#[test]
fn one_call_after_another() {
    let tools = [sum(), square_root(), weather(), email()];
    let (sum_of, root_of) = (call("sum", json!({ "a": 9, "b": 16 })), call("square_root", json!({ "x": 25.0 })));
    for (question, answer) in [
        ("What is the square root of the sum of 9 and 16?", "The square root of the sum of 9 and 16 is 5.0."),
        ("Add 9 and 16, then take the square root of that", "The result of square_root is 5.0."),
        ("Add 9 and 16 and take the square root of the result.", "The result of square_root is 5.0."),
    ] {
        let told = Question::new(question, &tools).told(&[Ok("25.0"), Ok("5.0")]);
        assert_eq!(told.turns, [[sum_of.clone()], [root_of.clone()]], "{question}");
        assert_eq!(told.answer, answer);
    }

    for (question, inner, outer) in [
        ("Add the square root of 16 to 3", json!({ "x": 16 }), json!({ "a": 4.0, "b": 3 })),
        ("What is the sum of 3 and the square root of 16?", json!({ "x": 16 }), json!({ "a": 3, "b": 4.0 })),
    ] {
        let told = Question::new(question, &tools).told(&[Ok("4.0"), Ok("7.0")]);
        assert_eq!(told.turns, [[call("square_root", inner)], [call("sum", outer)]], "{question}");
    }

    let question =
        "Look up the weather in Paris and send it to bob@example.com by email with subject 'Weather'";
    let told = Question::new(question, &tools).told(&[Ok("sunny, 22 °C"), Ok("Success")]);
    let mail = json!({ "to": "bob@example.com", "subject": "Weather", "body": "sunny, 22 °C" });
    assert_eq!(told.turns, [[call("get_weather", json!({ "city": "Paris" }))], [call("send_email", mail)]]);
    assert_eq!(told.answer, "Done: send_email.");

    let find = tool("find_user", "Finds a user by name", json!({ "name": "string" }));
    let question = "Find the user Alice and send her an email with subject 'Hi' and body 'See you'";
    let told = Question::new(question, &[find, email()]).told(&[Ok(r#"{"id": 7, "email": "a@b.org"}"#)]);
    let mail = json!({ "to": "a@b.org", "subject": "Hi", "body": "See you" });
    assert_eq!(told.turns, [[call("find_user", json!({ "name": "Alice" }))], [call("send_email", mail)]]);
}

#[test]
fn a_chain_of_operators_is_worked_off_in_their_order() {
    let multiply = tool("multiply", "Multiplies two numbers", json!({ "a": "number", "b": "number" }));
    let subtract = tool("subtract", "Subtracts b from a", json!({ "a": "number", "b": "number" }));
    let tools = [sum(), multiply, subtract];
    let told = Question::new("What is 2 + 3 * 4?", &tools).told(&[Ok("12"), Ok("14")]);
    let first = call("multiply", json!({ "a": 3, "b": 4 }));
    assert_eq!(told.turns, [[first], [call("sum", json!({ "a": 2, "b": 12 }))]]);
    assert_eq!(told.answer, "2 + 3 * 4 is 14.");
    let told = Question::new("10 minus 3 minus 2", &tools).told(&[Ok("7"), Ok("5")]);
    let first = call("subtract", json!({ "a": 10, "b": 3 }));
    assert_eq!(told.turns, [[first], [call("subtract", json!({ "a": 7, "b": 2 }))]]);
    assert_eq!(only("Subtract 3 from 10", &tools), json!({ "a": 10, "b": 3 }));
    let told = Question::new("Add 9 and 16, then subtract 5", &tools).told(&[Ok("25"), Ok("20")]);
    assert_eq!(told.turns[1], [call("subtract", json!({ "a": 25, "b": 5 }))]);

    let calculate = tool("calculate", "Evaluates an arithmetic expression", json!({ "expression": "string" }));
    assert_eq!(only("What is 2 + 3 * 4?", &[calculate]), json!({ "expression": "2 + 3 * 4" }));
}

#[test]
fn independent_calls_go_together() {
    let (paris, rome) = (call("get_weather", json!({ "city": "Paris" })), call("get_weather", json!({ "city": "Rome" })));
    let question = "What is the weather in Paris and in Rome?";
    let told = Question::new(question, &[weather()]).told(&[Ok("sunny"), Ok("It rains.")]);
    assert_eq!(told.turns, [[paris.clone(), rome.clone()]]);
    assert_eq!(told.answer, "The weather in Paris is sunny.\nIt rains.");

    let one_by_one = Question { parallel: Some(false), ..Question::new(question, &[weather()]) };
    let told = one_by_one.told(&[Ok("sunny"), Ok("wet")]);
    assert_eq!(told.turns, [[paris.clone()], [rome.clone()]]);
    assert_eq!(told.answer, "The weather in Paris is sunny.\nThe weather in Rome is wet.");

    let three = calls("What is the weather in Paris, New York and rome?", &[weather()]);
    let (new_york, rome) = (json!({ "city": "New York" }), json!({ "city": "rome" }));
    assert_eq!(three, [paris, call("get_weather", new_york), call("get_weather", rome)]);

    let question = "What is the square root of 16 and the sum of 2 and 3?";
    let told = Question::new(question, &[sum(), square_root()]).told(&[Ok("4.0"), Ok("5.0")]);
    let both = [call("square_root", json!({ "x": 16 })), call("sum", json!({ "a": 2, "b": 3 }))];
    assert_eq!(told.turns, [both]);
    assert_eq!(told.answer, "The square root of 16 is 4.0.\nThe sum of 2 and 3 is 5.0.");

    let product = tool("product", "", json!({ "a": "number", "b": "number" }));
    let both = calls("Find the sum and the product of 3 and 4", &[sum(), product]);
    assert_eq!(both, ["sum", "product"].map(|name| call(name, json!({ "a": 3, "b": 4 }))));
}

#[test]
fn what_is_missing_is_said() {
    let nights = json!({ "type": "integer", "description": "how long to stay" });
    let book = tool("book_room", "Books a room in a hotel", json!({ "city": "string", "nights": nights }));
    assert_eq!(
        answer("Book a room in Paris", &[book, sum()]),
        "I would call `book_room` for that, but the question does not say `nights` (how long to stay)."
    );
    let missing = answer("What is the sum?", &[sum()]);
    assert_eq!(missing, "I would call `sum` for that, but the question does not say `a` and `b`.");
    let excess = answer("What is the sum of 1, 2 and 3?", &[sum()]);
    assert_eq!(excess, "I would call `sum` for that, but the question lists more values than it takes: 3.");
    let partly = Question::new("Add 9 and 16, then multiply that by 2", &[sum()]).told(&[Ok("25")]);
    assert_eq!(partly.answer, "The result of sum is 25.\nI cannot do this part with the tools I have (sum): multiply that by 2.");
}

#[test]
fn failures_are_told_and_not_retried() {
    let told = Question::new("What is the square root of -4?", &[square_root()]).told(&[Err("must not be negative")]);
    assert_eq!(told.turns, [[call("square_root", json!({ "x": -4 }))]]);
    assert_eq!(told.answer, "I could not do that: square_root failed: must not be negative.");
    let told = Question::new("Add 9 and 16, then take the square root of that", &[sum(), square_root()])
        .told(&[Err("no.")]);
    assert_eq!(told.turns.len(), 1);
    assert_eq!(told.answer, "I could not do that: sum failed: no.\nSo I did not call square_root.");
}

#[test]
fn the_answer_is_worded_from_the_results() {
    let told = |question, tool: ToolDefinition, result| Question::new(question, &[tool]).told(&[Ok(result)]).answer;
    let is_prime = || tool("is_prime", "", json!({ "n": "integer" }));
    assert_eq!(told("Is 97 prime?", is_prime(), "true"), "Yes: is_prime gives true.");
    assert_eq!(told("Is 98 prime?", is_prime(), "false"), "No: is_prime gives false.");
    assert_eq!(told("What's the weather in Paris?", weather(), r#"{"c": 22}"#), r#"The weather in Paris is {"c": 22}."#);
    assert_eq!(told("What's the weather in Paris?", weather(), "It is 22 degrees."), "It is 22 degrees.");
    assert_eq!(told("Calculate the square root of 9", square_root(), "3.0"), "The square root of 9 is 3.0.");
    assert_eq!(told("weather in Paris, please", weather(), "hot\nwet"), "The result of get_weather is:\nhot\nwet");
}

#[test]
fn arguments_by_type_and_name() {
    let book = |parameters| [tool("book_table", "Books a table", parameters)];
    let enumeration = json!({ "oneOf": [{ "const": "inside" }, { "const": "outdoor_terrace" }] });
    for (question, parameters, expected) in [
        ("with people = 4 and hour 19", json!({ "hour": "integer", "people": "integer" }), json!({ "hour": 19, "people": 4 })),
        ("for twenty-five guests", json!({ "guests": "integer" }), json!({ "guests": 25 })),
        ("for a dozen people", json!({ "people": "integer" }), json!({ "people": 12 })),
        ("for 1,000 people at 1e5", json!({ "people": "integer", "price": "number" }), json!({ "people": 1000, "price": 1e5 })),
        ("with a discount of 15%", json!({ "discount": "number" }), json!({ "discount": 15 })),
        ("for 2.5 people", json!({ "people": "integer", "weight?": "number" }), Value::Null),
        ("at “Chez Léon”", json!({ "name": "string" }), json!({ "name": "Chez Léon" })),
        ("at 「花」", json!({ "name": "string" }), json!({ "name": "花" })),
        ("for a@b.org at New York", json!({ "place": "string", "address": { "type": "string", "format": "email" } }), json!({ "place": "New York", "address": "a@b.org" })),
        ("on 2026-03-01 at 19:30", json!({ "time": "string", "day": { "type": "string", "format": "date" } }), json!({ "time": "19:30", "day": "2026-03-01" })),
        ("outside", json!({ "place": { "type": "string", "enum": ["Inside", "Outside"] } }), json!({ "place": "Outside" })),
        ("on the outdoor terrace", json!({ "place?": enumeration }), json!({ "place": "outdoor_terrace" })),
        ("with breakfast", json!({ "breakfast": "boolean" }), json!({ "breakfast": true })),
        ("without breakfast", json!({ "breakfast": "boolean", "dinner?": "boolean" }), json!({ "breakfast": false })),
        ("for 3", json!({ "people": { "type": ["integer", "null"] } }), json!({ "people": 3 })),
        ("for 3", json!({ "people?": { "anyOf": [{ "type": "null" }, { "type": "integer" }] } }), json!({ "people": 3 })),
        ("in Rome for 3", json!({ "city": "string", "people?": "integer", "note?": "string" }), json!({ "city": "Rome", "people": 3 })),
        ("for guests Alice, Bob and Eve Smith", json!({ "guests": { "type": "array", "items": { "type": "string" } } }), json!({ "guests": ["Alice", "Bob", "Eve Smith"] })),
        ("with numbers 1, 2 and 3", json!({ "numbers": { "type": "array", "items": { "type": "integer" } } }), json!({ "numbers": [1, 2, 3] })),
        ("in the city berlin, phone number 030123", json!({ "phone": "string", "city": "string" }), json!({ "phone": "030123", "city": "berlin" })),
        ("in Rome", json!({ "at": { "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] } }), json!({ "at": { "city": "Rome" } })),
        ("in Rome", json!({ "city": "string", "at?": { "type": "object", "properties": { "x": { "type": "number" } }, "required": ["x"] } }), json!({ "city": "Rome" })),
        ("from Rome to Paris", json!({ "to_city": "string", "from_city": "string" }), json!({ "to_city": "Paris", "from_city": "Rome" })),
        ("at https://a.org/b?c=1", json!({ "link": "string" }), json!({ "link": "https://a.org/b?c=1" })),
    ] {
        let told = calls(&format!("Book a table {question}"), &book(parameters));
        let got = told.first().map_or(Value::Null, |(_, arguments)| arguments.clone());
        assert_eq!(got, expected, "{question}");
    }
}

#[test]
fn references_and_hostile_schemas() {
    let place = json!({ "type": "object", "properties": { "city": { "type": "string" }, "in": { "$ref": "#/$defs/Place" } }, "required": ["city"] });
    let schema = json!({ "type": "object", "properties": { "place": { "$ref": "#/$defs/Place" } }, "required": ["place"], "$defs": { "Place": place } });
    let visit = ToolDefinition::new("visit", "").with_parameters(schema);
    assert_eq!(only("Visit Rome", &[visit]), json!({ "place": { "city": "Rome" } }));
    for schema in [
        json!(null),
        json!([]),
        json!(true),
        json!({ "properties": [] }),
        json!({ "properties": { "x": 5 }, "required": [7, "y"] }),
        json!({ "properties": { "x": { "$ref": "#/properties/x" } }, "required": ["x"] }),
        json!({ "properties": { "x": { "type": "array", "items": { "$ref": "#" } } }, "required": ["x"] }),
        json!({ "properties": { "x": { "anyOf": [], "enum": [] } }, "required": ["x"] }),
        json!({ "properties": { "": { "type": 5 } }, "required": [""] }),
    ] {
        for question in ["Visit Rome", "visit 5 and 6, then visit it", "visit ''", "visit"] {
            let visit = ToolDefinition::new("visit", "").with_parameters(schema.clone());
            Question::new(question, &[visit]).told(&[]);
        }
    }
}

#[test]
fn no_text_is_a_danger() {
    let tools = [sum(), square_root(), weather(), email(), tool("", "", json!({ "": "string" }))];
    let pieces = [
        "北京天气怎么样", "“", "'", "«", "-", "−5", "1e999", "99999999999999999999999", ".5", "1,", "a@", "@b.c",
        "http://", "ß", "e\u{301}", "👩‍👩‍👧", "\u{0}", "the", "and", "then", "sum", "weather in", "'s", "It", "5 pm",
        "2 +", "* 3", "twenty", "million million million million", "\n", "«a»", "1.2.3.4", "/x", "ΑΣ", "İ",
    ];
    for first in pieces {
        for second in pieces {
            for joint in ["", " "] {
                let text = [first, second, "and the square root of", second, first].join(joint);
                Question::new(&text, &tools).told(&[Ok(&text), Err(&text)]);
            }
        }
    }
}

#[test]
fn an_earlier_answer_is_used_when_the_question_lacks_a_value() {
    let earlier = ToolCall::new("call_7", "sum", r#"{"a": 9, "b": 16}"#);
    let history = vec![
        Message::user("What is 9 plus 16?"),
        Message::Assistant(AssistantMessage::default().with_tool_calls([earlier.clone()])),
        Message::tool(&earlier, &Ok(ToolOutput::text("25.0"))),
        Message::assistant("9 plus 16 is 25.0."),
    ];
    let question = Question { history: history.clone(), ..Question::new("And its square root?", &[sum(), square_root()]) };
    assert_eq!(question.told(&[Ok("5.0")]).turns, [[call("square_root", json!({ "x": 25.0 }))]]);

    let messages: Vec<_> = history.into_iter().chain([Message::user("And the square root of 4?")]).collect();
    let request = ChatRequest::new(messages).tools([square_root()].into_iter().collect());
    let response = reply(&request);
    assert_eq!(response.message.tool_calls[0].id, "call_8");
    assert_eq!(response.model.as_deref(), Some("offline"));
    assert!(response.usage.is_some_and(|usage| usage.input_tokens > 1 && usage.output_tokens > 0));
}

#[test]
fn what_is_forced_is_called_if_it_can_be() {
    let now = tool("now", "Tells the time", json!({}));
    let forced = |choice, text| Question { choice, ..Question::new(text, &[sum(), now.clone()]) }.told(&[]).turns;
    assert_eq!(forced(ToolChoice::Required, "Hello"), [[call("now", json!({}))]]);
    assert_eq!(forced(ToolChoice::Tool("now".into()), "1 + 2"), vec![vec![call("now", json!({}))], vec![call("sum", json!({ "a": 1, "b": 2 }))]]);
    assert_eq!(forced(ToolChoice::Tool("sum".into()), "Here: 1 and 2"), [[call("sum", json!({ "a": 1, "b": 2 }))]]);
    assert!(forced(ToolChoice::Tool("sum".into()), "Hello").is_empty());
    assert!(forced(ToolChoice::Tool("gone".into()), "Hello").is_empty());
}

#[test]
fn a_call_that_was_changed_on_the_way_is_not_made_again() {
    let changed = ToolCall::new("call_1", "get_weather", r#"{"city": "Paris, Texas"}"#);
    let messages = vec![
        Message::user("What is the weather in Paris?"),
        Message::Assistant(AssistantMessage::default().with_tool_calls([changed.clone()])),
        Message::tool(&changed, &Ok(ToolOutput::text("hot"))),
    ];
    let request = ChatRequest::new(messages).tools([weather()].into_iter().collect());
    assert_eq!(reply(&request).message.text, "The weather in Paris is hot.");
}
