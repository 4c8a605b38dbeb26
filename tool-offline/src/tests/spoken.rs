//! Codes, ids and times as people write them.

use tool_core::model::ToolDefinition;

use super::{Question, columns, tools};

fn sample_tools() -> Vec<ToolDefinition> {
    tools(
        r#"
        get_booking | Returns the details of a booking | {"booking_number": "string"}
        get_customer_info | Retrieve customer information | {"id": "integer"}
        update_customer | Updates a customer | {"customer_id": "string", "email": "string"}
        subtract | Subtracts b from a | {"a": "number", "b": "number"}
        set_timer | Sets a timer | {"minutes": "integer"}
        set_alarm | Set a user alarm for the given time, provided in ISO-8601 format | {"time": "string"}
        get_current_date_time | Get the current date and time in the user's timezone | {}
        "#,
    )
}

const NOW: &str = "2026-12-31T23:55:00+01:00[Europe/Berlin]";

/// A question and its calls. The tools other than the clock return nothing.
const QUESTIONS: &str = r#"
Show me booking 123-456 | get_booking {"booking_number":"123-456"}
What are the details of booking 123-456? | get_booking {"booking_number":"123-456"}
Show me the booking with number 123-45-6789 | get_booking {"booking_number":"123-45-6789"}
Show me booking #123-456 | get_booking {"booking_number":"123-456"}
What is 123-456? | subtract {"a":123,"b":456}
Calculate 123-456 | subtract {"a":123,"b":456}
What is 123 - 456? | subtract {"a":123,"b":456}
Tell me more about the customer with ID 42 | get_customer_info {"id":42}
customer with ID 42 | get_customer_info {"id":42}
Update the customer with ID 42, the new email is a@b.org | update_customer {"customer_id":"42","email":"a@b.org"}
Can you set an alarm 10 minutes from now? | get_current_date_time {} > set_alarm {"time":"2027-01-01T00:05:00+01:00[Europe/Berlin]"}
Set an alarm in ten minutes | get_current_date_time {} > set_alarm {"time":"2027-01-01T00:05:00+01:00[Europe/Berlin]"}
Set an alarm an hour from now | get_current_date_time {} > set_alarm {"time":"2027-01-01T00:55:00+01:00[Europe/Berlin]"}
Set an alarm at 19:30 | set_alarm {"time":"19:30"}
Set a timer for 10 minutes | set_timer {"minutes":10}
"#;

#[test]
fn reads_codes_ids_and_relative_times() {
    for line in QUESTIONS.trim().lines() {
        let [question, expected] = columns(line);
        let results = if expected.starts_with("get_current") { &[NOW, "Success"] } else { &["ok", "ok"] };
        let (calls, _) = Question::new(question, &sample_tools()).run(results);
        assert_eq!(calls, expected, "{question}");
    }
}

#[test]
fn without_the_present_time_the_words_are_passed_on() {
    let alarm: Vec<_> = sample_tools().into_iter().filter(|tool| tool.name() == "set_alarm").collect();
    let (calls, _) = Question::new("Set an alarm 10 minutes from now", &alarm).run(&["Success"]);
    assert_eq!(calls, r#"set_alarm {"time":"10 minutes from now"}"#);
    let (calls, _) =
        Question::new("Set an alarm 10 minutes from now", &sample_tools()).run(&["noon", "Success"]);
    assert_eq!(calls, r#"get_current_date_time {} > set_alarm {"time":"10 minutes from now"}"#);
}

#[test]
fn a_refusal_names_the_language() {
    let (calls, answer) = Question::new("Wie wird das Wetter morgen?", &sample_tools()[..1]).run(&[]);
    assert_eq!(calls, "");
    assert_eq!(answer, "I cannot answer that with the tools I have (get_booking); I read English only.");
}
