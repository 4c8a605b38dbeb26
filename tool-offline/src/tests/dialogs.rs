//! Questions with results, and the calls and answers that they must produce.

use serde_json::json;
use tool_core::model::ToolChoice;

use super::{Question, columns, sample_tools, tool, tools};

/// Question, results, calls, answer.
const DIALOGS: &str = r#"
What is the square root of 475695037565? | 689706.4865324959 | squareRoot {"x":475695037565} | The square root of 475695037565 is 689706.4865324959.
What is 2.5 plus 40? | 42.5 | sum {"a":2.5,"b":40} | 2.5 plus 40 is 42.5.
Calculate the square root of 9 | 3.0 | squareRoot {"x":9} | The square root of 9 is 3.0.
Is 97 prime? | true | is_prime {"n":97} | Yes: is_prime returned true.
Is 98 prime? | false | is_prime {"n":98} | No: is_prime returned false.
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
fn calls_and_answers_match() {
    for line in DIALOGS.lines().filter(|line| !line.is_empty()) {
        let [question, results, calls, answer] = columns(line);
        let results: Vec<_> = results.split(';').map(str::trim).collect();
        let actual = Question::new(question, &sample_tools()).run(&results);
        assert_eq!(actual, (calls.to_owned(), answer.replace(" / ", "\n")), "{question}");
    }
}

#[test]
fn declines_what_no_tool_does() {
    let tools = tools(
        r#"
        sum | Sums two numbers | {"a": "number", "b": "number"}
        get_weather | Returns the weather in a city | {"city": "string"}
        "#,
    );
    for question in "What is 2.5 minus 40?|What is 5 - 3?|What is the difference of 5 and 3?|Hello!||?!|blah 5 blah\
        |Multiply the sum of 2 and 3 by 4|Delete the sum of 2 and 3|Who wrote Hamlet?|What is the population of Paris?\
        |Frobnicate the weather in Paris|北京天气怎么样"
        .split('|')
    {
        let (calls, answer) = Question::new(question, &tools).run(&[]);
        assert_eq!(calls, "", "{question}");
        assert_eq!(answer, "I cannot answer that with the tools I have (sum, get_weather); I read English only.", "{question}");
    }
    let (_, answer) = Question::new("Add 9 and 16, then multiply that by 2", &tools).run(&["25"]);
    let rest = "I cannot do this part with the tools I have (sum, get_weather): multiply that by 2.";
    assert_eq!(answer, format!("The result of sum is 25.\n{rest}"));
    let forbidden = Question { choice: ToolChoice::None, ..Question::new("What is 1 + 2?", &tools) };
    let plain = Question::new("Hello!", &[]).run(&[]);
    assert!(plain.1.starts_with("I am an offline model without knowledge of my own"), "{plain:?}");
    assert_eq!(forbidden.run(&[]), plain);
}

#[test]
fn passes_whole_formulas_to_a_tool_for_formulas() {
    let calculate = tool("calculate", "Evaluates an expression", json!({ "expression": "string" }));
    let (calls, answer) = Question::new("What is 2 + 3 * 4?", &[calculate]).run(&["14"]);
    assert_eq!((&*calls, &*answer), (r#"calculate {"expression":"2 + 3 * 4"}"#, "2 + 3 * 4 is 14."));
}
