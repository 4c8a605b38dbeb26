//! Questions, what is called for them, and what is answered.

use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};

use super::{OfflineModel, reply};
use crate::{
    AssistantMessage, ChatModel, ChatRequest, Delta, Message, ToolCall, ToolChoice, ToolDefinition,
    ToolDefinitions, ToolError, ToolOutput,
};

/// A question, and how it is asked.
pub(super) struct Question<'a> {
    history: Vec<Message>,
    text: &'a str,
    tools: ToolDefinitions,
    choice: ToolChoice,
    parallel: Option<bool>,
}

impl<'a> Question<'a> {
    pub(super) fn new(text: &'a str, tools: &[ToolDefinition]) -> Self {
        let tools = tools.iter().cloned().collect();
        Self { history: Vec::new(), text, tools, choice: ToolChoice::Auto, parallel: None }
    }

    /// The calls as `sum {"a":1,"b":2} & now {} > next turn`, and the answer. The results of the calls are in
    /// their order; one that begins with `!` is an error.
    pub(super) fn told(self, results: &[&str]) -> (String, String) {
        let mut results = results.iter();
        let mut messages = self.history;
        messages.push(Message::user(self.text));
        let (mut turns, mut choice) = (Vec::new(), self.choice);
        for _ in 0..12 {
            let request = ChatRequest::borrowing(&messages)
                .with_tools(self.tools.clone())
                .with_tool_choice(choice.clone())
                .with_parallel_tool_calls(self.parallel);
            let message = reply(&request).message;
            if message.tool_calls.is_empty() {
                assert!(!message.text.is_empty(), "{}", self.text);
                return (turns.join(" > "), message.text);
            }
            let calls = message.tool_calls.clone();
            messages.push(Message::Assistant(message));
            let turn: Vec<_> = calls.iter().map(|call| format!("{} {}", call.name, call.arguments)).collect();
            assert!(turn.iter().all(|call| !turns.join(" > ").contains(call)), "again: {turn:?}");
            turns.push(turn.join(" & "));
            for call in &calls {
                let outcome = match results.next().copied().unwrap_or("?") {
                    text if text.starts_with('!') => Err(ToolError::failed(text.trim_start_matches('!'))),
                    text => Ok(ToolOutput::text(text)),
                };
                messages.push(Message::tool(call, &outcome));
            }
            // As a run does: what must be called, must be called once.
            choice = if choice == ToolChoice::None { choice } else { ToolChoice::Auto };
        }
        panic!("no end: {}", self.text);
    }
}

/// A tool. Of a parameter, a type, a format or a schema is told; one with `?` may be left out.
pub(super) fn tool(name: &str, description: &str, parameters: Value) -> ToolDefinition {
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
    ToolDefinition::new(name, description).with_parameters(schema)
}

/// Tools, one a line: name, description, parameters.
pub(super) fn tools(lines: &str) -> Vec<ToolDefinition> {
    let tools = lines.trim().lines().map(|line| {
        let [name, description, parameters] = columns(line);
        tool(name, description, serde_json::from_str(parameters).unwrap())
    });
    tools.collect()
}

pub(super) fn columns<const N: usize>(line: &str) -> [&str; N] {
    let columns: Vec<_> = line.split('|').map(str::trim).collect();
    columns.try_into().unwrap_or_else(|_| panic!("{line}"))
}

fn some_tools() -> Vec<ToolDefinition> {
    tools(
        r#"
        sum | Sums two numbers | {"a": "number", "b": "number"}
        multiply | Multiplies two numbers | {"a": "number", "b": "number"}
        subtract | Subtracts b from a | {"a": "number", "b": "number"}
        squareRoot | | {"x": "number"}
        is_prime | | {"n": "integer"}
        get_weather | Tells the weather of a city | {"city": "string"}
        send_email | Sends an e-mail | {"to": "string", "subject": "string", "body": "string"}
        find_user | Finds a user by name | {"name": "string"}
        book_room | Books a room | {"city": "string", "nights": {"type": "integer", "description": "how long"}}
        "#,
    )
}

/// Question, results, calls, answer.
const DIALOGS: &str = r#"
What is the square root of 475695037565? | 689706.4865324959 | squareRoot {"x":475695037565} | The square root of 475695037565 is 689706.4865324959.
What is 2.5 plus 40? | 42.5 | sum {"a":2.5,"b":40} | 2.5 plus 40 is 42.5.
Calculate the square root of 9 | 3.0 | squareRoot {"x":9} | The square root of 9 is 3.0.
Is 97 prime? | true | is_prime {"n":97} | Yes: is_prime gives true.
Is 98 prime? | false | is_prime {"n":98} | No: is_prime gives false.
What's the weather like in Rome? | {"c": 22} | get_weather {"city":"Rome"} | The weather in Rome is {"c": 22}.
What's the weather in Rome? | It is 22 degrees. | get_weather {"city":"Rome"} | It is 22 degrees.
weather Rome | hot | get_weather {"city":"Rome"} | The result of get_weather is hot.

What is the square root of the sum of 9 and 16? | 25.0; 5.0 | sum {"a":9,"b":16} > squareRoot {"x":25.0} | The square root of the sum of 9 and 16 is 5.0.
Add 9 and 16, then take the square root of that | 25.0; 5.0 | sum {"a":9,"b":16} > squareRoot {"x":25.0} | The result of squareRoot is 5.0.
Add 9 and 16 and take the square root of the result. | 25.0; 5.0 | sum {"a":9,"b":16} > squareRoot {"x":25.0} | The result of squareRoot is 5.0.
Add 9 and 16, then subtract 5 | 25; 20 | sum {"a":9,"b":16} > subtract {"a":25,"b":5} | The result of subtract is 20.
Add the square root of 16 to 3 | 4.0; 7.0 | squareRoot {"x":16} > sum {"a":4.0,"b":3} | The result of sum is 7.0.
What is the sum of 3 and the square root of 16? | 4.0; 7.0 | squareRoot {"x":16} > sum {"a":3,"b":4.0} | The sum of 3 and the square root of 16 is 7.0.
What is 2 + 3 * 4? | 12; 14 | multiply {"a":3,"b":4} > sum {"a":2,"b":12} | 2 + 3 * 4 is 14.
10 minus 3 minus 2 | 7; 5 | subtract {"a":10,"b":3} > subtract {"a":7,"b":2} | 10 minus 3 minus 2 is 5.
What is the sum of 2 + 3? | 5 | sum {"a":2,"b":3} | The sum of 2 + 3 is 5.
Subtract 3 from 10 | 7 | subtract {"a":10,"b":3} | The result of subtract is 7.
Look up the weather in Paris and send it to bob@a.org by email with subject 'Weather' | sunny, 22 °C; Success | get_weather {"city":"Paris"} > send_email {"to":"bob@a.org","subject":"Weather","body":"sunny, 22 °C"} | Done: send_email.
Find the user Alice and send her an email with subject 'Hi' and body 'Yo' | {"id": 7, "mail": "a@b.org"}; Success | find_user {"name":"Alice"} > send_email {"to":"a@b.org","subject":"Hi","body":"Yo"} | Done: send_email.

What is the weather in Paris and in Rome? | sunny; It rains. | get_weather {"city":"Paris"} & get_weather {"city":"Rome"} | The weather in Paris is sunny. / It rains.
What is the weather in Paris? And in Rome? | sunny; wet | get_weather {"city":"Paris"} & get_weather {"city":"Rome"} | The weather in Paris is sunny. / The weather in Rome is wet.
Show me the weather in Paris, New York and rome | a; b; c | get_weather {"city":"Paris"} & get_weather {"city":"New York"} & get_weather {"city":"rome"} | The weather in Paris is a. / The weather in New York is b. / The weather in rome is c.
What is the square root of 16 and the sum of 2 and 3? | 4.0; 5.0 | squareRoot {"x":16} & sum {"a":2,"b":3} | The square root of 16 is 4.0. / The sum of 2 and 3 is 5.0.
Find the sum and the product of 3 and 4 | 7; 12 | sum {"a":3,"b":4} & multiply {"a":3,"b":4} | The sum is 7. / The product of 3 and 4 is 12.

What is the square root of -4? | !must not be negative. | squareRoot {"x":-4} | I could not do that: squareRoot failed: must not be negative.
Add 9 and 16, then take the square root of that | !no | sum {"a":9,"b":16} | I could not do that: sum failed: no. / So I did not call squareRoot.
Book a room in Paris | | | I would call `book_room` for that, but the question does not say `nights` (how long).
What is the sum? | | | I would call `sum` for that, but the question does not say `a` and `b`.
What is the sum of 1, 2 and 3? | | | I would call `sum` for that, but the question lists more values than it takes: 3.
"#;

#[test]
fn dialogs() {
    for line in DIALOGS.lines().filter(|line| !line.is_empty()) {
        let [question, results, calls, answer] = columns(line);
        let results: Vec<_> = results.split(';').map(str::trim).collect();
        let told = Question::new(question, &some_tools()).told(&results);
        assert_eq!(told, (calls.to_owned(), answer.replace(" / ", "\n")), "{question}");
    }
}

#[test]
fn what_no_tool_does_is_not_done() {
    let tools = tools(
        r#"
        sum | Sums two numbers | {"a": "number", "b": "number"}
        get_weather | Tells the weather of a city | {"city": "string"}
        "#,
    );
    for question in "What is 2.5 minus 40?|What is 5 - 3?|What is the difference of 5 and 3?|Hello!||?!|blah 5 blah\
        |Multiply the sum of 2 and 3 by 4|Delete the sum of 2 and 3|Who wrote Hamlet?|What is the population of Paris?\
        |Frobnicate the weather in Paris|北京天气怎么样"
        .split('|')
    {
        let (calls, answer) = Question::new(question, &tools).told(&[]);
        assert_eq!(calls, "", "{question}");
        assert_eq!(answer, "I cannot answer that with the tools I have (sum, get_weather).", "{question}");
    }
    let (_, answer) = Question::new("Add 9 and 16, then multiply that by 2", &tools).told(&["25"]);
    let rest = "I cannot do this part with the tools I have (sum, get_weather): multiply that by 2.";
    assert_eq!(answer, format!("The result of sum is 25.\n{rest}"));
    let forbidden = Question { choice: ToolChoice::None, ..Question::new("What is 1 + 2?", &tools) };
    let plain = Question::new("Hello!", &[]).told(&[]);
    assert!(plain.1.starts_with("I am an offline model without knowledge of my own"), "{plain:?}");
    assert_eq!(forbidden.told(&[]), plain);
}

#[test]
fn one_by_one_if_the_request_wants_it_so() {
    let question = Question::new("What is the weather in Paris and in Rome?", &some_tools());
    let (calls, _) = Question { parallel: Some(false), ..question }.told(&[]);
    assert_eq!(calls, r#"get_weather {"city":"Paris"} > get_weather {"city":"Rome"}"#);
}

#[test]
fn a_tool_for_formulas_gets_them_whole() {
    let calculate = tool("calculate", "Evaluates an expression", json!({ "expression": "string" }));
    let (calls, answer) = Question::new("What is 2 + 3 * 4?", &[calculate]).told(&["14"]);
    assert_eq!((&*calls, &*answer), (r#"calculate {"expression":"2 + 3 * 4"}"#, "2 + 3 * 4 is 14."));
}

#[tokio::test]
async fn the_text_streams_word_by_word() {
    let messages = [Message::user("What is 1 + 2?")];
    let request = ChatRequest::borrowing(&messages);
    let deltas: Vec<_> = OfflineModel::new().stream(&request).map(Result::unwrap).collect().await;
    let texts = deltas.iter().filter_map(|delta| match delta {
        Delta::Text(text) => Some(&**text),
        _ => None,
    });
    let Some(Delta::Done(response)) = deltas.last() else { panic!("{deltas:?}") };
    assert_eq!(texts.collect::<String>(), response.message.text);
    assert!(deltas.len() > 10);
    assert_eq!(OfflineModel::new().chat(&request).now_or_never().unwrap().unwrap(), *response);
}

/// What is behind "Book a table", the parameters, and the arguments; `-` if it is not called.
const ARGUMENTS: &str = r#"
with people = 4 and hour 19 | {"hour": "integer", "people": "integer"} | {"hour": 19, "people": 4}
for twenty-five guests | {"guests": "integer"} | {"guests": 25}
for a dozen people | {"people": "integer"} | {"people": 12}
for 1,000 people at 1e5 | {"people": "integer", "price": "number"} | {"people": 1000, "price": 100000.0}
with a discount of 15% | {"discount": "number"} | {"discount": 15}
for 2.5 people | {"people": "integer", "weight?": "number"} | -
at “Chez Léon” | {"name": "string"} | {"name": "Chez Léon"}
at 「花」 | {"name": "string"} | {"name": "花"}
for a@b.org at New York | {"place": "string", "contact": "email"} | {"place": "New York", "contact": "a@b.org"}
on 2026-03-01 at 19:30 | {"time": "string", "day": "date"} | {"time": "19:30", "day": "2026-03-01"}
on 2026-03-01 | {"date": "string"} | {"date": "2026-03-01"}
outside | {"place": {"type": "string", "enum": ["Inside", "Outside"]}} | {"place": "Outside"}
on the terrace | {"at?": {"oneOf": [{"const": "inside"}, {"const": "terrace"}]}} | {"at": "terrace"}
with breakfast | {"breakfast": "boolean"} | {"breakfast": true}
without breakfast | {"breakfast": "boolean", "dinner?": "boolean"} | {"breakfast": false}
for 3 | {"people": {"type": ["integer", "null"]}} | {"people": 3}
for 3 | {"people?": {"anyOf": [{"type": "null"}, {"type": "integer"}]}} | {"people": 3}
in Rome | {"city": "string", "people": {"type": ["integer", "null"]}} | {"city": "Rome", "people": null}
in Rome | {"at": {"properties": {"city": {"type": "string"}, "zip": {"type": ["number", "null"]}}, "required": ["city", "zip"]}} | {"at": {"city": "Rome", "zip": null}}
in Rome for 3 | {"city": "string", "people?": "integer", "note?": "string"} | {"city": "Rome", "people": 3}
for guests Alice, Bob and Eve Smith | {"guests": "strings"} | {"guests": ["Alice", "Bob", "Eve Smith"]}
with numbers 1, 2 and 3 | {"numbers": "integers"} | {"numbers": [1, 2, 3]}
in the city berlin, phone number 030123 | {"phone": "string", "city": "string"} | {"phone": "030123", "city": "berlin"}
from Rome to Paris | {"to_city": "string", "from_city": "string"} | {"to_city": "Paris", "from_city": "Rome"}
at https://a.org/b?c=1 | {"link": "string"} | {"link": "https://a.org/b?c=1"}
in Rome | {"at": {"properties": {"city": {"type": "string"}}, "required": ["city"]}} | {"at": {"city": "Rome"}}
in Rome | {"city": "string", "at?": {"properties": {"x": {"type": "number"}}, "required": ["x"]}} | {"city": "Rome"}
"#;

#[test]
fn arguments_by_type_and_name() {
    for line in ARGUMENTS.trim().lines() {
        let [question, parameters, expected] = columns(line);
        let book = tool("book_table", "Books a table", serde_json::from_str(parameters).unwrap());
        let (calls, _) = Question::new(&format!("Book a table {question}"), &[book]).told(&[]);
        let expected =
            serde_json::from_str(expected).map_or(String::new(), |it: Value| format!("book_table {it}"));
        assert_eq!(calls, expected, "{question}");
    }
}

#[test]
fn references_are_followed_and_no_schema_is_a_danger() {
    let place = json!({ "properties": { "city": { "type": "string" }, "in": { "$ref": "#/$defs/Place" } }, "required": ["city"] });
    let loops =
        |count: usize| (0..count).map(|at| (at.to_string(), json!({ "$ref": "#" }))).collect::<Value>();
    for (schema, called) in [
        (
            json!({ "properties": { "place": { "$ref": "#/$defs/Place" } }, "required": ["place"], "$defs": { "Place": place } }),
            r#"visit {"place":{"city":"Rome"}}"#,
        ),
        (json!(null), "visit {}"),
        (json!([true]), "visit {}"),
        (json!({ "properties": [], "required": 5 }), "visit {}"),
        (json!({ "properties": { "x": 5 }, "required": [7, "y"] }), "visit {}"),
        (json!({ "properties": { "x": { "$ref": "#/properties/x" } }, "required": ["x"] }), ""),
        (
            json!({ "properties": { "x": { "type": "array", "items": { "$ref": "#" } } }, "required": ["x"] }),
            "",
        ),
        (json!({ "properties": { "x": { "anyOf": [], "enum": [] } }, "required": ["x"] }), ""),
        (json!({ "properties": { "": { "type": 5 } }, "required": [""] }), ""),
        (json!({ "properties": loops(60) }), "visit {}"),
    ] {
        let visit = [ToolDefinition::new("visit", "").with_parameters(schema)];
        assert_eq!(Question::new("Visit Rome", &visit).told(&[]).0, called, "{visit:?}");
        for question in ["visit 5 and 6, then visit it", "visit ''", "visit"] {
            Question::new(question, &visit).told(&[]);
        }
    }
}

#[test]
fn no_text_is_a_danger() {
    let mut tools = some_tools();
    tools.push(tool("", "", json!({ "": "string" })));
    let pieces: Vec<_> = "北京天气|“|'|«a»|-|−5|1e999|99999999999999999999999|.5|1,|a@|@b.c|http://|ß|e\u{301}|👩‍👩‍👧|\u{0}|the|and|then\
        |sum|weather in|'s|It|5 pm|2 +|* 3|twenty|million million million million|\n|1.2.3.4|/x|ΑΣ|İ"
        .split('|')
        .collect();
    let (step, count) = if std::env::var_os("TESTS_EXHAUSTIVE").is_some() { (1, 3_000) } else { (8, 300) };
    for (index, first) in pieces.iter().enumerate() {
        for second in pieces.iter().skip(index % step).step_by(step) {
            let text = format!("{first}{second} and the square root of {second} {first}");
            Question::new(&text, &tools).told(&[&text, &format!("!{text}")]);
        }
    }
    for piece in ["sum of 5 and ", "the weather in Paris, ", "1 + ", "Foo Bar, "] {
        Question::new(&piece.repeat(count), &tools).told(&[]);
    }
}

#[test]
fn an_earlier_result_is_used_when_the_question_lacks_a_value() {
    let earlier = ToolCall::new("call_7", "sum", r#"{"a": 9, "b": 16}"#);
    let history = vec![
        Message::user("What is 9 plus 16?"),
        Message::Assistant(AssistantMessage::default().with_tool_calls([earlier.clone()])),
        Message::tool(&earlier, &Ok(ToolOutput::text("25.0"))),
        Message::assistant("9 plus 16 is 25.0."),
    ];
    let question =
        Question { history: history.clone(), ..Question::new("And its square root?", &some_tools()) };
    assert_eq!(question.told(&[]).0, r#"squareRoot {"x":25.0}"#);

    let messages: Vec<_> = history.into_iter().chain([Message::user("And the square root of 4?")]).collect();
    let response = reply(&ChatRequest::new(messages).with_tools(some_tools().into_iter().collect()));
    assert_eq!(response.message.tool_calls[0].id, "call_8");
    assert_eq!(response.model.as_deref(), Some("offline"));
    assert!(response.usage.is_some_and(|usage| usage.input_tokens > 1 && usage.output_tokens > 0));
}

#[test]
fn what_is_forced_is_called_if_it_can_be() {
    let tools = tools("sum | | {\"a\": \"number\", \"b\": \"number\"}\nnow | | {}");
    let forced = |choice, text| Question { choice, ..Question::new(text, &tools) }.told(&[]).0;
    let named = |name: &str| ToolChoice::Tool(name.to_owned());
    assert_eq!(forced(ToolChoice::Required, "Hello"), "now {}");
    assert_eq!(forced(named("now"), "1 + 2"), r#"now {} > sum {"a":1,"b":2}"#);
    assert_eq!(forced(named("sum"), "Here: 1 and 2"), r#"sum {"a":1,"b":2}"#);
    assert_eq!(forced(named("sum"), "Hello"), "");
    assert_eq!(forced(named("gone"), "Hello"), "");
}

#[test]
fn a_call_that_was_changed_on_the_way_is_not_made_again() {
    let changed = ToolCall::new("call_1", "get_weather", r#"{"city": "Paris, Texas"}"#);
    let messages = vec![
        Message::user("What is the weather in Paris?"),
        Message::Assistant(AssistantMessage::default().with_tool_calls([changed.clone()])),
        Message::tool(&changed, &Ok(ToolOutput::text("hot"))),
    ];
    let response = reply(&ChatRequest::new(messages).with_tools(some_tools().into_iter().collect()));
    assert_eq!(response.message.text, "The weather in Paris is hot.");
}
