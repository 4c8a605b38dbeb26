//! Prints a review of a set of tools as a table, and shows how a test fails on findings.

use std::error::Error;

use schemars::JsonSchema;
use serde::Deserialize;
use tool_core::{ToolSet, tool, tools};

/// Sums two numbers.
#[tool]
fn sum(#[param("the first number")] a: f64, #[param("the second number")] b: f64) -> f64 {
    a + b
}

#[derive(Deserialize, JsonSchema)]
struct Guest {
    /// The full name.
    name: String,
    age: u8,
}

/// Books a room in a hotel.
#[tool]
fn book_room(#[param("the guests")] guests: Vec<Guest>, nights: u8) -> String {
    let names: Vec<_> = guests.iter().map(|guest| format!("{} ({})", guest.name, guest.age)).collect();
    format!("{nights} nights for {}", names.join(", "))
}

#[tool("Books a room in a hotel")]
fn book_rooms(#[param("the number of rooms")] rooms: u8) -> String {
    format!("{rooms} rooms")
}

#[tool]
fn process(#[param("what to do")] input: String) -> String {
    input
}

fn print_report(title: &str, tools: &ToolSet) {
    let report = tools.check();
    let width = report.costs().iter().map(|cost| cost.name().len()).max().unwrap_or_default().max(4);
    println!("{title}\n");
    println!("{:width$}  {:>6}  finding", "tool", "tokens");
    for cost in report.costs() {
        let found = report.findings().iter().filter(|finding| finding.tool() == Some(cost.name()));
        let mut texts = found.map(|finding| finding.text());
        println!("{:width$}  {:>6}  {}", cost.name(), cost.tokens(), texts.next().unwrap_or("none"));
        for text in texts {
            println!("{:width$}  {:>6}  {text}", "", "");
        }
    }
    println!("{:width$}  {:>6}  {} findings\n", "all", report.tokens(), report.findings().len());
}

fn main() -> Result<(), Box<dyn Error>> {
    let clean = tools![sum];
    print_report("Tools with flaws", &tools![book_room, book_rooms, process]);
    print_report("A tool without flaws", &clean);
    // In a test: `ToolSet::registered()?.check().into_result()?`.
    clean.check().into_result()?;
    println!("the clean set passes");
    Ok(())
}
