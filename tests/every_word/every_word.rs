//! Every word of the macros once: that it compiles here without a warning is what is tested.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tool_core::{ConversationId, ToolCall, ToolContext, tool, toolbox, tools};

#[derive(Clone, Debug)]
struct User {
    name: String,
}

/// Orders a meal.
#[expect(clippy::too_many_arguments, reason = "it has them all")]
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
    convert = shown,
    max_output_chars = 4000,
    crate = "tool_core"
)]
async fn order(
    #[param("how many", name = "count", range = 1..=10, default = 1, example = 2)] number: u32,
    #[param("what", length = 1..=64, pattern = "^[a-z ]+$", example = "soup of the day")] dish: &str,
    /// how to bring it
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
        Err(String::from("not this way"))
    }
}

fn shown(number: u32) -> String {
    format!("number {number}")
}

/// Waits.
#[tool(blocking, timeout = "1m", pure, attempts = 3)]
fn wait(#[param(range = 0.5..)] seconds: f64, text: &str, #[inject] user: &User) -> String {
    format!("{seconds} {text} {}", user.name)
}

fn into_text(user: User) -> String {
    user.name
}

/// Counts.
#[derive(Debug, Default)]
struct Counter(AtomicU32);

#[toolbox]
impl Counter {
    /// Counts.
    #[tool(exclusive, attempts = 2, undo = "reset", return_direct = "always")]
    fn count(&self, #[param("by how much", range = 1..=9, default = 1)] by: u32) -> u32 {
        self.0.fetch_add(by, Ordering::Relaxed) + by
    }

    /// Counts later.
    #[tool]
    async fn count_later(self: Arc<Self>, text: &str, #[inject] user: &User) -> u32 {
        tokio::task::yield_now().await;
        self.count(u32::try_from(text.len() + user.name.len()).unwrap_or_default())
    }

    /// Tells the way.
    #[tool(blocking)]
    fn way(self: &Arc<Self>, #[inject] user: User) -> String {
        format!("{self:?} ") + &user.name + &into_text(user)
    }

    /// Knows nothing.
    #[tool(pure, return_direct)]
    fn nothing() {}
}

#[toolbox(fn others)]
impl Counter {
    /// Resets.
    #[tool]
    fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn they_all_work() {
    /// Inside of a function.
    #[tool]
    fn inside(#[param(default = 2)] number: u8) -> u8 {
        number
    }

    let counter = Arc::new(Counter::default());
    let set = tools![order, wait, inside]
        .union(Arc::clone(&counter))
        .and_then(|set| set.union(Counter::others(counter)))
        .unwrap();
    let context = ToolContext::new().with(User { name: String::from("ada") });
    let table = [
        ("order_meal", r#"{"dish": "soup", "table": null}"#, "number 9"),
        ("wait", r#"{"seconds": 1, "text": "x"}"#, "1 x ada"),
        ("inside", "", "2"),
        ("count", r#"{"by": 2}"#, "2"),
        ("count_later", r#"{"text": "ab"}"#, "7"),
        ("way", "", "Counter(7) adaada"),
        ("nothing", "", "Success"),
        ("reset", "", "Success"),
    ];
    for (name, arguments, expected) in table {
        let output = set.call(&ToolCall::new("1", name, arguments), &context).await.unwrap();
        assert_eq!(output.to_string(), expected, "{name}");
    }
}
