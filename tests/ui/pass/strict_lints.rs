//! A crate that forbids everything that it can.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, missing_debug_implementations, missing_copy_implementations)]
#![deny(unreachable_pub, unused, nonstandard_style, rust_2018_idioms, let_underscore_drop)]
#![deny(unused_qualifications, unused_results, unused_lifetimes, single_use_lifetimes, unit_bindings)]

use tool_core::agent::EventStream;
use tool_core::{RunError, assistant, call, tool, tools};

/// Sums two numbers.
#[tool]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

/// Does nothing.
#[tool]
fn nothing() {}

/// Does nothing for a while.
#[tool]
async fn nothing_later(#[param(required = false)] for_long: Option<u32>) -> Result<(), String> {
    match for_long {
        None => Ok(()),
        Some(_) => Err(String::new()),
    }
}

mod other {
    /// Counts.
    #[tool_core::tool]
    #[must_use]
    pub(crate) fn count(text: &str) -> usize {
        text.len()
    }
}

/// Plans trips.
#[assistant("You plan trips.", agent = PlannerAgent)]
pub(crate) trait Planner {
    /// Plans a day.
    #[ask("Plan a day in {city} with {budget:?}.", max_turns = 2, temperature = 0.5)]
    async fn plan(&self, city: &str, budget: Option<u32>) -> Result<Vec<String>, RunError>;

    /// Returns a story.
    #[ask]
    fn story(&self, #[conversation] id: &str, city: String) -> EventStream;

    /// Plans two days.
    async fn plan_twice<'a>(&'a self, city: &'a str) -> Result<usize, RunError> {
        Ok(self.plan(city, None).await?.len() + self.plan(city, Some(1)).await?.len())
    }
}

/// Returns a future that is `Send`.
fn plan_twice<P: Planner>(planner: &P) -> impl Future<Output = Result<usize, RunError>> + Send {
    drop(planner.story("7", String::new()));
    planner.plan_twice("Rome")
}

pub(crate) fn main() {
    let _ = |agent| drop(plan_twice::<PlannerAgent>(agent));

    let pattern = call!(nothing_later { for_long: 1 | 5.. | None });
    assert_eq!(pattern.to_string(), "nothing_later { for_long: 1 | 5.. | None }");
    assert_eq!(tools![sum, nothing, nothing_later, other::count].len(), 4);
}
