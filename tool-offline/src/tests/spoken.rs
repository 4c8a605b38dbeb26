//! Codes, ids and times as people write them.

use serde_json::json;

use super::{Question, tool};

#[test]
fn experiment() {
    let bookings = [
        tool("get_booking", "Returns the details of a booking", json!({ "booking_number": "string" })),
        tool("cancel_booking", "Cancels a booking", json!({ "booking_number": "string", "first_name": "string", "last_name": "string" })),
    ];
    let customers = [tool("get_customer", "Returns the data of a customer", json!({ "customer_id": "integer" })), tool("customer_name", "Finds the name of a customer by ID", json!({ "id": "string" })), tool("orders", "Lists the orders of a customer", json!({"id": "integer"}))];
    let alarm = [
        tool("get_current_date_time", "Get the current date and time in the user's timezone", json!({})),
        tool("set_alarm", "Set a user alarm for the given time, provided in ISO-8601 format", json!({ "time": "string" })),
    ];
    let sums = [tool("subtract", "Subtracts b from a", json!({"a":"number","b":"number"}))];
    for (text, tools, results) in [
        ("Show me booking 123-456", &bookings[..], &["ok"][..]),
        ("What are the details of booking 123-456?", &bookings[..], &["ok"]),
        ("My name is Klaus Heisler, I want to cancel booking 123-456", &bookings[..], &["ok"]),
        ("Cancel my booking 123-456, Klaus Heisler", &bookings[..], &["ok"]),
        ("What is the name of the customer with ID 42?", &customers[1..2], &["Ada"]),
        ("Get the customer with ID 42", &customers[..1], &["Ada"]),
        ("What is the name of the customer with ID 42?", &customers[..], &["Ada"]),
        ("List the orders of the customer with ID 42", &customers[2..], &["Ada"]),
        ("What has customer with ID 42 ordered? List the orders", &customers[..], &["Ada"]),
        ("Can you set an alarm 10 minutes from now?", &alarm[..], &["2026-03-01T23:55:00+01:00[Europe/Berlin]", "Success"]),
        ("Set an alarm 10 minutes from now", &alarm[1..], &["Success"]),
        ("Set an alarm in 10 minutes", &alarm[..], &["2026-03-01T23:55:00Z", "Success"]),
        ("What is 123-456?", &sums[..], &["-333"]),
        ("What is 10 - 3?", &sums[..], &["7"]),
    ] {
        println!("{text}\n   {:?}", Question::new(text, tools).run(results));
    }
}
