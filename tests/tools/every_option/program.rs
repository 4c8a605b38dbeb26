//! Uses every option of the macros. They must compile without a warning, and the tools must work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tool_core::model::ConversationId;
use tool_core::{ToolCall, ToolContext, ToolSet, tool, toolbox, tools};

#[derive(Clone, Debug)]
struct User {
    name: String,
}

/// Orders a meal.
#[expect(clippy::too_many_arguments, reason = "it uses every kind of parameter")]
#[tool(
    "Orders a meal",
    name = "order_meal",
    return_direct = "if_last",
    strict,
    timeout = "5s",
    needs_approval,
    exclusive,
    at_most_once,
    undo = "cancel_meal",
    convert = format_number,
    max_output_chars = 4000,
    deferred,
    crate = "tool_core"
)]
async fn order(
    #[param("the number of meals", name = "count", range = 1..=10, default = 1, example = 2)] number: u32,
    #[param("the dish", length = 1..=64, pattern = "^[a-z ]+$", example = "soup of the day")] dish: &str,
    /// a note for the waiter
    #[param(required = false)]
    note: Option<String>,
    #[param(required = true)] table: Option<u8>,
    #[param(default = "card")] payment: &str,
    #[param(default = Vec::new())] extras: &[String],
    #[inject] user: &User,
    #[inject] by_value: User,
    #[inject] maybe: Option<&AtomicU32>,
    #[inject] call: &ToolCall,
    #[inject] id: &ConversationId,
    #[inject] context: &ToolContext,
) -> Result<u32, String> {
    tokio::task::yield_now().await;
    let _: (Option<&AtomicU32>, &ToolCall, &ConversationId, &ToolContext) = (maybe, call, id, context);
    if user.name == by_value.name && note.is_none() && table.is_none() && extras.is_empty() {
        Ok(number + u32::try_from(dish.len() + payment.len()).unwrap_or_default())
    } else {
        Err(String::from("unexpected arguments"))
    }
}

fn format_number(number: u32) -> String {
    format!("number {number}")
}

/// Shows its arguments.
#[tool(blocking, timeout = "1m", pure, attempts = 3)]
fn show(#[param(range = 0.5..)] seconds: f64, text: &str, #[inject] user: &User) -> String {
    format!("{seconds} {text} {}", user.name)
}

fn name_of_user(user: User) -> String {
    user.name
}

/// A counter.
#[derive(Debug, Default)]
struct Counter(AtomicU32);

#[toolbox]
impl Counter {
    /// Adds to the counter.
    #[tool(exclusive, attempts = 2, undo = "reset", return_direct = "always")]
    fn count(&self, #[param("the number to add", range = 1..=9, default = 1)] by: u32) -> u32 {
        self.0.fetch_add(by, Ordering::Relaxed) + by
    }

    /// Adds the length of a text to the counter.
    #[tool]
    async fn count_later(self: Arc<Self>, text: &str, #[inject] user: &User) -> u32 {
        tokio::task::yield_now().await;
        self.count(u32::try_from(text.len() + user.name.len()).unwrap_or_default())
    }

    /// Describes the counter.
    #[tool(blocking)]
    fn describe(self: &Arc<Self>, #[inject] user: User) -> String {
        format!("{self:?} ") + &user.name + &name_of_user(user)
    }

    /// Does nothing.
    #[tool(pure, return_direct)]
    fn nothing() {}
}

#[toolbox(fn reset_tools)]
impl Counter {
    /// Resets the counter.
    #[tool]
    fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

pub(crate) async fn call_all() {
    /// Returns its argument.
    #[tool]
    fn inside(#[param(default = 2)] number: u8) -> u8 {
        number
    }

    let counter = Arc::new(Counter::default());
    let set = tools![order, show, inside]
        .union(ToolSet::from(Arc::clone(&counter)))
        .and_then(|set| set.union(Counter::reset_tools(counter)))
        .unwrap();
    let context = ToolContext::new().with(User { name: String::from("ada") });
    let table = [
        ("order_meal", r#"{"dish": "soup", "table": null}"#, "number 9"),
        ("show", r#"{"seconds": 1, "text": "x"}"#, "1 x ada"),
        ("inside", "", "2"),
        ("count", r#"{"by": 2}"#, "2"),
        ("count_later", r#"{"text": "ab"}"#, "7"),
        ("describe", "", "Counter(7) adaada"),
        ("nothing", "", "Success"),
        ("reset", "", "Success"),
    ];
    for (name, arguments, expected) in table {
        let output = set.call(&ToolCall::new("1", name, arguments), &context).await.unwrap();
        assert_eq!(output.to_string(), expected, "{name}");
    }
}
