//! What the model promises: questions with their calls and answers.

use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tool_core::model::{AssistantMessage, ChatRequest, Delta, ToolChoice, ToolDefinition};
use tool_core::provider::{ResponseFormat, ToolDefinitions};
use tool_core::{ChatModel, Message, ToolCall, ToolError, ToolOutput};

use crate::OfflineModel;
use crate::reply::respond;

/// A question and the settings of its request.
struct Question<'a> {
    history: Vec<Message>,
    text: &'a str,
    tools: ToolDefinitions,
    choice: ToolChoice,
    parallel: Option<bool>,
}

impl<'a> Question<'a> {
    fn new(text: &'a str, tools: &[ToolDefinition]) -> Self {
        let tools = tools.iter().cloned().collect();
        Self { history: Vec::new(), text, tools, choice: ToolChoice::Auto, parallel: None }
    }

    /// Runs the question to its end. Returns the calls as `sum {"a":1,"b":2} & now {} > next turn`, and the answer.
    ///
    /// `results` has the results of the calls in order; a result that starts with `!` is an error.
    fn run(self, results: &[&str]) -> (String, String) {
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
fn tool(name: &str, description: &str, parameters: Value) -> ToolDefinition {
    let mut properties = serde_json::Map::new();
    let mut required = Vec::new();
    for (name, schema) in parameters.as_object().unwrap() {
        if !name.ends_with('?') {
            required.push(name.clone());
        }
        let schema = match schema.as_str() {
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
fn tools(lines: &str) -> Vec<ToolDefinition> {
    let tools = lines.trim().lines().map(|line| {
        let [name, description, parameters] = columns(line);
        tool(name, description, serde_json::from_str(parameters).unwrap())
    });
    tools.collect()
}

/// Splits a line of a table.
fn columns<const N: usize>(line: &str) -> [&str; N] {
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
        book_room | Books a room | {"city": "string", "nights": {"type": "integer", "description": "how long"}}
        "#,
    )
}

/// Question, results, calls, answer.
const DIALOGS: &str = r#"
What is the square root of 475695037565? | 689706.4865324959 | squareRoot {"x":475695037565} | The square root of 475695037565 is 689706.4865324959.
What is 2.5 plus 40? | 42.5 | sum {"a":2.5,"b":40} | 2.5 plus 40 is 42.5.
Calculate the square root of 9 | 3.0 | squareRoot {"x":9} | The result of squareRoot is 3.0.
Is 97 prime? | true | is_prime {"n":97} | The result of is_prime is true.
Is 98 prime? | false | is_prime {"n":98} | The result of is_prime is false.
What's the weather in Rome? | It is 22 degrees. | get_weather {"city":"Rome"} | It is 22 degrees.
weather Rome | hot | get_weather {"city":"Rome"} | The result of get_weather is hot.

What is the square root of the sum of 9 and 16? | 25.0; 5.0 | sum {"a":9,"b":16} > squareRoot {"x":25.0} | The square root of the sum of 9 and 16 is 5.0.
Add 9 and 16, then take the square root of that | 25.0; 5.0 | sum {"a":9,"b":16} > squareRoot {"x":25.0} | The result of squareRoot is 5.0.
Add 9 and 16 and take the square root of the result. | 25.0; 5.0 | sum {"a":9,"b":16} > squareRoot {"x":25.0} | The result of squareRoot is 5.0.
Add 9 and 16, then subtract 5 | 25; 20 | sum {"a":9,"b":16} > subtract {"a":25,"b":5} | The result of subtract is 20.
Add the square root of 16 to 3 | 4.0; 7.0 | squareRoot {"x":16} > sum {"a":4.0,"b":3} | The result of sum is 7.0.
What is the sum of 3 and the square root of 16? | 4.0; 7.0 | squareRoot {"x":16} > sum {"a":3,"b":4.0} | The sum of 3 and the square root of 16 is 7.0.
Total of the sum of 1 and 2 and the sum of 3 and 4, then add 5 and 6 | 7; 3; 11; 10 | sum {"a":3,"b":4} & sum {"a":1,"b":2} & sum {"a":5,"b":6} > sum {"a":3,"b":7} | The result of sum is 10. / The result of sum is 11.
What is 2 + 3 * 4? | | | I cannot answer that with the tools I have (sum, multiply, subtract, squareRoot, is_prime, get_weather, book_room); I read English only.
10 minus 3 minus 2 | | | I cannot answer that with the tools I have (sum, multiply, subtract, squareRoot, is_prime, get_weather, book_room); I read English only.
Subtract 3 from 10 | 7 | subtract {"a":10,"b":3} | The result of subtract is 7.
What is the weather in Paris, and send it to bob@a.org with subject 'Weather' | | | I cannot answer that with the tools I have (sum, multiply, subtract, squareRoot, is_prime, get_weather, book_room); I read English only.

What is the weather in Paris and in Rome? | sunny; It rains. | get_weather {"city":"Paris"} & get_weather {"city":"Rome"} | The weather in Paris is sunny. / It rains.
What is the weather in Paris? And in Rome? | sunny; wet | get_weather {"city":"Paris"} & get_weather {"city":"Rome"} | The weather in Paris is sunny. / The result of get_weather is wet.
Show me the weather in Paris, New York and rome | a; b; c | get_weather {"city":"Paris"} & get_weather {"city":"New York"} & get_weather {"city":"rome"} | The result of get_weather is a. / The result of get_weather is b. / The result of get_weather is c.
What is the square root of 16 and the sum of 2 and 3? | 4.0; 5.0 | squareRoot {"x":16} & sum {"a":2,"b":3} | The square root of 16 is 4.0. / The sum of 2 and 3 is 5.0.

What is the square root of -4? | !must not be negative. | squareRoot {"x":-4} | I could not do that: squareRoot failed: must not be negative.
Add 9 and 16, then take the square root of that | !no | sum {"a":9,"b":16} | I could not do that: sum failed: no. / So I did not call squareRoot.
Book a room in Paris |  |  | I would call `book_room` for that, but the question does not say `nights`.
What is the sum? | | | I would call `sum` for that, but the question does not say `a` and `b`.
What is the sum of 1, 2 and 3? | | | I cannot answer that with the tools I have (sum, multiply, subtract, squareRoot, is_prime, get_weather, book_room); I read English only.
"#;

#[test]
fn calls_and_answers_match() {
    for line in DIALOGS.lines().filter(|line| !line.is_empty()) {
        let [question, results, calls, answer] = columns(line);
        let results: Vec<_> = results.split(';').map(str::trim).collect();
        let actual = Question::new(question, &sample_tools()).run(&results);
        assert_eq!(actual, (calls.to_owned(), answer.replace(" / ", "\n")), "{question}");
    }
}

/// Tools, questions and calls of the examples.
const EXAMPLES: &str = r#"
book_rooms | Books rooms for the guest. | {"rooms?": {"type": "integer", "description": "how many rooms"}}
free_rooms | Counts the free rooms. | {}
breakfast | Returns when breakfast is served | {}
Please book 2 rooms. | book_rooms {"rooms":2}
How many free rooms are there? | free_rooms {}
When is breakfast served? | breakfast {}

book | Books a seat on a flight | {"flight": "string"}
Book a seat on the flight OS87 | book {"flight":"OS87"}

pay | Pays money to a person | {"recipient": "string", "euros": "integer"}
balance | Returns the balance of an account | {"account": "string"}
Pay 80 euros to Anna and show me the balance of the savings account | pay {"recipient":"Anna","euros":80} & balance {"account":"savings"}

refund | Pays money back for an order | {"order": {"type": "integer", "description": "the number of the order"}, "euros": "integer"}
order_state | Returns the state of an order | {"order": "integer"}
Refund 80 euros for order 7 | refund {"order":7,"euros":80}
What is the state of order 8? | order_state {"order":8}

count_primes | Counts the primes below a number | {"below": "integer"}
square_root | Returns the square root of a number | {"x": "number"}
How many primes are below 100000? | count_primes {"below":100000}

price | Returns the price of a trip in euros. | {"city": "string", "nights": "integer", "travellers": "integer"}
What is the price of 3 nights in Rome for 2 travellers? | price {"city":"Rome","nights":3,"travellers":2}

sights | Returns the sights of a city. | {"city": "string"}
Which sights are in Rome? | sights {"city":"Rome"}

list_directory | Lists a directory | {"path": "string"}
List the directory /tmp | list_directory {"path":"/tmp"}
"#;

#[test]
fn calls_the_tools_of_the_examples() {
    for example in EXAMPLES.trim().split("\n\n") {
        let is_tool = |line: &&str| line.matches('|').count() == 2;
        let (offered, questions): (Vec<_>, Vec<_>) = example.lines().partition(is_tool);
        for line in questions {
            let [question, expected] = columns(line);
            let (calls, _) = Question::new(question, &tools(&offered.join("\n"))).run(&[]);
            assert_eq!(calls, expected, "{question}");
        }
    }
}

/// The rest of "Book a table …", the parameters, and the arguments; `-` if it is not called.
const ARGUMENTS: &str = r#"
with people = 4 and hour 19 | {"hour": "integer", "people": "integer"} | {"hour": 19, "people": 4}
for 1,000 people at 1e5 | {"people": "integer", "price": "number"} | {"people": 1000, "price": 100000.0}
for 2.5 people | {"people": "integer", "weight?": "number"} | -
for a@b.org at New York | {"place": "string", "contact": "email"} | {"place": "New York", "contact": "a@b.org"}
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
from Rome to Paris | {"to_city": "string", "from_city": "string"} | {"to_city": "Paris", "from_city": "Rome"}
at https://a.org/b?c=1 | {"link": "string"} | {"link": "https://a.org/b?c=1"}
in Rome | {"at": {"properties": {"city": {"type": "string"}}, "required": ["city"]}} | {"at": {"city": "Rome"}}
in Rome | {"city": "string", "at?": {"properties": {"x": {"type": "number"}}, "required": ["x"]}} | {"city": "Rome"}
"#;

#[test]
fn fills_arguments_by_type_and_name() {
    for line in ARGUMENTS.trim().lines() {
        let [question, parameters, expected] = columns(line);
        let book = tool("book_table", "Books a table", serde_json::from_str(parameters).unwrap());
        let (calls, _) = Question::new(&format!("Book a table {question}"), &[book]).run(&[]);
        let expected =
            serde_json::from_str(expected).map_or(String::new(), |it: Value| format!("book_table {it}"));
        assert_eq!(calls, expected, "{question}");
    }
}

#[test]
fn respects_parallel_tool_calls() {
    let question = Question::new("What is the weather in Paris and in Rome?", &sample_tools());
    let (calls, _) = Question { parallel: Some(false), ..question }.run(&[]);
    assert_eq!(calls, r#"get_weather {"city":"Paris"} > get_weather {"city":"Rome"}"#);
}

#[tokio::test]
async fn streams_text_word_by_word() {
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

#[test]
fn uses_an_earlier_result_for_a_missing_value() {
    let earlier = ToolCall::new("call_7", "sum", r#"{"a": 9, "b": 16}"#);
    let history = vec![
        Message::user("What is 9 plus 16?"),
        Message::Assistant(AssistantMessage::default().with_tool_calls([earlier.clone()])),
        Message::tool(&earlier, &Ok(ToolOutput::text("25.0"))),
        Message::assistant("9 plus 16 is 25.0."),
    ];
    let question =
        Question { history: history.clone(), ..Question::new("And its square root?", &sample_tools()) };
    assert_eq!(question.run(&[]).0, r#"squareRoot {"x":25.0}"#);

    let messages: Vec<_> = history.into_iter().chain([Message::user("And the square root of 4?")]).collect();
    let response = respond(
        &ChatRequest::new(messages).with_tools(sample_tools().into_iter().collect::<ToolDefinitions>()),
    );
    assert_eq!(response.message.tool_calls[0].id, "call_8");
    assert_eq!(response.model.as_deref(), Some("offline"));
    assert!(response.usage.is_some_and(|usage| usage.input_tokens > 1 && usage.output_tokens > 0));
}

#[test]
fn calls_a_forced_tool_if_it_can_be_filled() {
    let tools = tools("sum | | {\"a\": \"number\", \"b\": \"number\"}\nnow | | {}");
    let forced = |choice, text| Question { choice, ..Question::new(text, &tools) }.run(&[]).0;
    let named = |name: &str| ToolChoice::Tool(name.to_owned());
    assert_eq!(forced(ToolChoice::Required, "Hello"), "now {}");
    assert_eq!(forced(named("now"), "1 + 2"), r#"now {} > sum {"a":1,"b":2}"#);
    assert_eq!(forced(named("sum"), "Here: 1 and 2"), r#"sum {"a":1,"b":2}"#);
    assert_eq!(forced(named("sum"), "Hello"), "");
    assert_eq!(forced(named("gone"), "Hello"), "");
}

#[test]
fn does_not_repeat_a_call_with_changed_arguments() {
    let changed = ToolCall::new("call_1", "get_weather", r#"{"city": "Paris, Texas"}"#);
    let messages = vec![
        Message::user("What is the weather in Paris?"),
        Message::Assistant(AssistantMessage::default().with_tool_calls([changed.clone()])),
        Message::tool(&changed, &Ok(ToolOutput::text("hot"))),
    ];
    let response = respond(
        &ChatRequest::new(messages).with_tools(sample_tools().into_iter().collect::<ToolDefinitions>()),
    );
    assert_eq!(response.message.text, "The weather in Paris is hot.");
}

#[test]
fn follows_references_and_survives_any_schema() {
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
        let visit = [ToolDefinition::new("visit").with_parameters(schema)];
        assert_eq!(Question::new("Visit Rome", &visit).run(&[]).0, called, "{visit:?}");
        for question in ["visit 5 and 6, then visit it", "visit ''", "visit"] {
            Question::new(question, &visit).run(&[]);
        }
    }
}

#[test]
fn survives_any_text() {
    let mut tools = sample_tools();
    tools.push(tool("", "", json!({ "": "string" })));
    let snippets: Vec<_> = "北京天气|“|'|«a»|-|−5|1e999|99999999999999999999999|.5|1,|a@|@b.c|http://|ß|e\u{301}|👩‍👩‍👧|\u{0}|the|and|then\
        |sum|weather in|'s|It|5 pm|2 +|* 3|twenty|million million million million|\n|1.2.3.4|/x|ΑΣ|İ"
        .split('|')
        .collect();
    let (step, repeated) = if std::env::var_os("TESTS_EXHAUSTIVE").is_some() { (1, 3_000) } else { (8, 150) };
    for (index, first) in snippets.iter().enumerate() {
        for second in snippets.iter().skip(index % step).step_by(step) {
            let text = format!("{first}{second} and the square root of {second} {first}");
            Question::new(&text, &tools).run(&[&text, &format!("!{text}")]);
        }
    }
    for snippet in ["sum of 5 and ", "the weather in Paris, ", "1 + ", "Foo Bar, "] {
        Question::new(&snippet.repeat(repeated), &tools).run(&[]);
    }
}

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
        "arrival": { "type": "string", "description": "the first night, as 2026-12-31" },
        "breakfast": "boolean",
    }));
    let number = schema(json!({ "answer": "number" }));
    let trip = schema(json!({ "city": "string", "nights": "integer", "travellers": "integer" }));
    let user = schema(json!({ "name": "string", "age": "integer" }));
    let table = [
        (
            &stay,
            "A double room for Ada Lovelace (ada@a.org) from 2026-03-01, 3 nights, with breakfast.",
            None,
            r#"{"guest":{"name":"Ada Lovelace","email":"ada@a.org"},"room":"double","nights":3,"arrival":"2026-03-01","breakfast":true}"#,
        ),
        (
            &trip,
            "Read the traveller's mail.\n\n3 nights in Rome for 2 travellers, please.",
            None,
            r#"{"city":"Rome","nights":3,"travellers":2}"#,
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
    }
}

#[test]
fn a_tool_with_the_words_of_the_question_is_preferred_to_one_with_synonyms() {
    let numbers = r#"{"a": "number", "b": "number"}"#;
    for [one, other] in [["add", "sum"], ["sum", "add"]] {
        let tools = tools(&format!("{one} | | {numbers}\n{other} | | {numbers}"));
        let calls = |text| Question::new(text, &tools).run(&["3"]).0;
        assert_eq!(calls("What is the sum of 1 and 2?"), r#"sum {"a":1,"b":2}"#);
        assert_eq!(calls("Add 1 and 2"), r#"add {"a":1,"b":2}"#);
    }
}
