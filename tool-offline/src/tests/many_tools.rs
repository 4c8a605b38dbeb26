//! Many tools offered at once, of which the right one must be called.

use serde_json::Value;

use super::{Question, columns, tools};

/// Name, description, parameters.
const TOOLS: &str = r#"
sum | Sums two numbers | {"a": "number", "b": "number"}
multiply | Multiplies two numbers | {"a": "number", "b": "number"}
square_root | Returns the square root of a number | {"x": "number"}
mean | | {"values": {"type": "array", "items": {"type": "number"}}}
factorial | | {"n": "integer"}
is_prime | Whether a number is prime | {"n": "integer"}
celsius_to_fahrenheit | Converts a temperature | {"celsius": "number"}
convert_currency | Changes money | {"amount": "number", "from": "string", "to": "string"}
bmi | Computes the body mass index | {"weight_kg": "number", "height_m": "number"}
roll_dice | Rolls a dice | {"sides": "integer"}
reverse_text | | {"text": "string"}
word_count | Counts the words of a text | {"text": "string"}
to_upper | Turns a text into upper case | {"text": "string"}
translate | Translates a text | {"text": "string", "language": "string"}
greet | Greets a person | {"name": "string"}
get_current_weather | Returns the weather in a place | {"location": "string", "unit?": {"enum": ["celsius", "kelvin"]}}
getTime | Returns the time in a time zone | {"timezone": "string"}
now | Returns the local time of this computer | {}
days_between | | {"start": "date", "end": "date"}
stock_price | | {"symbol": "string"}
create_task | | {"title": "string", "priority?": {"type": "string", "enum": ["low", "medium", "high"]}}
delete_task | Deletes a task | {"id": "integer"}
set_light | | {"room": "string", "on": "boolean"}
add_user | | {"name": "string", "age": "integer", "email": "string"}
send_message | Sends a message | {"to": "string", "text": "string"}
send_sms | Sends a short message to a phone | {"phone_number": "string", "message": "string"}
search_web | Searches the web | {"query": "string", "limit?": "integer"}
book_flight | | {"from": "string", "to": "string", "date": "date"}
read_file | Reads a file | {"path": "string"}
refund_order | Refunds an order | {"order_id": "integer", "reason?": "string"}
rectangle_area | | {"width": "number", "height": "number"}
random_number | | {"min": "integer", "max": "integer"}
define_word | Looks a word up in the dictionary | {"word": "string"}
play_song | | {"title": "string", "artist?": "string"}
distance | Distance of two cities in km | {"from_city": "string", "to_city": "string"}
schedule_meeting | | {"title": "string", "attendees": "strings", "date": "string"}
"#;

/// Question, tool, arguments.
const CALLED: &str = r#"
What is 2.5 plus 40? | sum | {"a": 2.5, "b": 40}
Could you sum up 12 and 30 for me? | sum | {"a": 12, "b": 30}
sum(2, 3) | sum | {"a": 2, "b": 3}
What is 6 times 7? | multiply | {"a": 6, "b": 7}
What's the product of 6 and -7? | multiply | {"a": 6, "b": -7}
Multiply 6 by 7 | multiply | {"a": 6, "b": 7}
Can you tell me the square root of 2? | square_root | {"x": 2}
What is the average of 1, 2 and 3.5? | mean | {"values": [1, 2, 3.5]}
What is the factorial of five? | factorial | {"n": 5}
Is 97 prime? | is_prime | {"n": 97}
Is 97 a prime number? | is_prime | {"n": 97}
Convert 20 celsius to fahrenheit | celsius_to_fahrenheit | {"celsius": 20}
Convert 100 USD to EUR | convert_currency | {"amount": 100, "from": "USD", "to": "EUR"}
What is the BMI for weight 70 and height 1.75? | bmi | {"weight_kg": 70, "height_m": 1.75}
BMI with a height of 1.75 and a weight of 70 | bmi | {"weight_kg": 70, "height_m": 1.75}
Roll a dice with 20 sides | roll_dice | {"sides": 20}
Throw a 6 sided die | roll_dice | {"sides": 6}
Reverse the text 'hello' | reverse_text | {"text": "hello"}
Reverse hello | reverse_text | {"text": "hello"}
How many words are in "one two three"? | word_count | {"text": "one two three"}
What is the word count of hello world? | word_count | {"text": "hello world"}
Turn 'hello' into upper case | to_upper | {"text": "hello"}
Translate 'good morning' into French | translate | {"text": "good morning", "language": "French"}
translate good morning to french | translate | {"text": "good morning", "language": "french"}
Greet Alice | greet | {"name": "Alice"}
Please say hello to Alice | greet | {"name": "Alice"}
What will the forecast be for New York? | get_current_weather | {"location": "New York"}
What's the weather in Paris, France in celsius? | get_current_weather | {"location": "Paris, France", "unit": "celsius"}
Is it raining in berlin? | get_current_weather | {"location": "berlin"}
How cold is it in Oslo right now? | get_current_weather | {"location": "Oslo"}
What time is it in Tokyo? | getTime | {"timezone": "Tokyo"}
What time is it? | now | {}
How many days are between 2026-03-01 and 2026-04-01? | days_between | {"start": "2026-03-01", "end": "2026-04-01"}
What is the stock price of ACME? | stock_price | {"symbol": "ACME"}
How much does a share of ACME cost? | stock_price | {"symbol": "ACME"}
Create a task 'Buy milk' with high priority | create_task | {"title": "Buy milk", "priority": "high"}
Add a new task called Water plants | create_task | {"title": "Water plants"}
Remove task 12 | delete_task | {"id": 12}
Turn on the light in the kitchen | set_light | {"room": "kitchen", "on": true}
Switch the light in the living room off | set_light | {"room": "living room", "on": false}
Add a user named Eve, age 30, with email eve@a.org | add_user | {"name": "Eve", "age": 30, "email": "eve@a.org"}
Send a message to Bob saying I will be late | send_message | {"to": "Bob", "text": "I will be late"}
Send an sms to 0123 saying 'On my way' | send_sms | {"phone_number": "0123", "message": "On my way"}
Search the web for rust tutorials | search_web | {"query": "rust tutorials"}
Search the web for 'tea and cake' with a limit of 3 | search_web | {"query": "tea and cake", "limit": 3}
Book a flight from Rome to Oslo on 2026-05-01 | book_flight | {"from": "Rome", "to": "Oslo", "date": "2026-05-01"}
Read the file notes/today.txt | read_file | {"path": "notes/today.txt"}
Please refund order #47, reason: 'arrived broken' | refund_order | {"order_id": 47, "reason": "arrived broken"}
What is the area of a rectangle with height 4 and width 3? | rectangle_area | {"width": 3, "height": 4}
Give me a random number between 1 and 10 | random_number | {"min": 1, "max": 10}
What does serendipity mean? | define_word | {"word": "serendipity"}
Play Imagine by John Lennon | play_song | {"title": "Imagine"}
How far is it from Berlin to Paris? | distance | {"from_city": "Berlin", "to_city": "Paris"}
Schedule a meeting 'Plan' with Al and Bo on 2026-01-05 | schedule_meeting | {"title": "Plan", "attendees": ["Al", "Bo"], "date": "2026-01-05"}
"#;

/// Questions that no tool fits, however close some come.
const DECLINED: &str = "What is the capital of Mongolia?
Divide 10 by 2
What is 10 / 2?
Convert 20 celsius to kelvin
Create a poem about spring
Read my palm
Send flowers to Bob
How are you?
Update task 12
Show me task 12
Do not delete task 12
Where is my order 4711?
Is the light in the kitchen on?
Show me the messages of Bob";

#[test]
fn calls_the_right_tool_among_many() {
    let tools = tools(TOOLS);
    for line in CALLED.trim().lines() {
        let [question, name, arguments] = columns(line);
        let (calls, answer) = Question::new(question, &tools).run(&[]);
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        assert_eq!(calls, format!("{name} {arguments}"), "{question}\n{answer}");
    }
}

#[test]
fn declines_if_none_of_many_tools_fits() {
    let tools = tools(TOOLS);
    for question in DECLINED.lines() {
        let (calls, answer) = Question::new(question, &tools).run(&[]);
        assert_eq!(calls, "", "{question}");
        assert!(
            answer.starts_with("I cannot answer that with the tools I have (sum, "),
            "{question}: {answer}"
        );
    }
}
