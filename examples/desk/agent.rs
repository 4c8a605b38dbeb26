//! What the desk can do: its tools, its agents, and what follows from whose run it is.

use std::error::Error;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use tool_core::agent::{RunInfo, RunResources, RunSetup};
use tool_core::layer::{Audit, Redact, guard};
use tool_core::memory::Budget;
use tool_core::model::ModelOptions;
use tool_core::store::{BudgetStore, ChatStore, RunStore};
use tool_core::tool::Asker;
use tool_core::{Agent, ChatMemory, ChatModel, ToolCall, ToolError, tool, tools};

use crate::users::{Customer, customer};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// The tokens that a customer has per day, and the longest reply of the model, which budgets reserve before each request.
const TOKENS_PER_DAY: u64 = 200_000;
const MAX_REPLY: u32 = 2_000;

/// Refunds above this need an approval of the staff.
const FREE_EUROS: u32 = 50;

#[tool("Returns where the parcels of the customer are")]
fn parcels(#[inject] customer: &Customer) -> String {
    let parcel = |(number, item): &(u32, &str)| format!("Order {number}, {item}, arrives tomorrow.");
    customer.orders.iter().map(parcel).collect::<Vec<_>>().join(" ")
}

#[tool("Moves the delivery of an order", at_most_once)]
async fn move_delivery(
    order: u32,
    #[inject] customer: &Customer,
    #[inject] asker: &Asker,
) -> Result<String, ToolError> {
    let item = customer.item(order)?;
    let days = ["Thursday morning", "Friday evening", "Saturday"];
    let day: String = asker.ask(format!("When should the {item} arrive?")).choices(days).await?;
    Ok(format!("Order {order} now arrives on {day}."))
}

#[tool("Cancels an order", needs_approval, at_most_once)]
fn cancel_order(order: u32, #[inject] customer: &Customer) -> Result<String, ToolError> {
    let item = customer.item(order)?;
    Ok(format!("Order {order}, {item}, is cancelled."))
}

#[tool("Pays money back for an order", at_most_once)]
pub(crate) fn refund(order: u32, euros: u32, #[inject] customer: &Customer) -> Result<String, ToolError> {
    customer.item(order)?;
    Ok(format!("Refunded {euros} euros for order {order}."))
}

#[tool("Returns the invoice of an order")]
fn invoice(order: u32, #[inject] customer: &Customer) -> Result<String, ToolError> {
    let item = customer.item(order)?;
    let Customer { name, email, card, .. } = customer;
    Ok(format!("Invoice for {name} ({email}): {item}, paid with the card {card}."))
}

#[derive(Deserialize, JsonSchema)]
struct Refund {
    euros: u32,
}

/// A call that cannot be read needs an approval, too.
fn needs_approval(call: &ToolCall) -> bool {
    call.name == "refund" && !call.arguments_as::<Refund>().is_ok_and(|refund| refund.euros <= FREE_EUROS)
}

/// Knows the customers, wherever a run starts or goes on: in a chat, on the page, after a restart.
struct Customers {
    daily: Budget,
}

impl RunSetup for Customers {
    async fn open(&self, run: &RunInfo) -> Result<RunResources, Box<dyn Error + Send + Sync>> {
        let user = run.user().ok_or("log in first")?;
        let customer = customer(user).ok_or("there is no such customer")?;
        Ok(RunResources::new().budget(self.daily.key(user.as_str())).context(customer))
    }
}

/// What the desk keeps.
pub(crate) trait Store: ChatStore + RunStore + BudgetStore + Clone + 'static {}

impl<T: ChatStore + RunStore + BudgetStore + Clone + 'static> Store for T {}

/// Returns the desk, which is the same in each replica.
pub(crate) fn desk(
    model: impl ChatModel + Clone + 'static,
    store: &impl Store,
    audit: impl Fn(String) + Send + Sync + 'static,
) -> Result<Agent, Box<dyn Error>> {
    let options = ModelOptions::default().with_max_output_tokens(MAX_REPLY);
    let billing = Agent::builder(model.clone()).tools(tools![invoice]).options(options.clone()).build()?;
    let billing = billing.as_tool("billing", "Asks the colleagues of billing a question about invoices");
    let agent = Agent::builder(model)
        .name("desk")
        .instructions(
            "You are the support desk of a shop. Be brief and friendly. Never promise what no tool can do.",
        )
        .options(options)
        .tools(tools![parcels, move_delivery, cancel_order, refund])
        .tools(billing.pass_context::<Customer>())
        .layer(guard::needs_approval(needs_approval))
        .layer(Redact::new().card_numbers().email_addresses())
        .layer(Audit::new(move |record| audit(record.to_string())))
        .memory(ChatMemory::new(store.clone()))
        .run_store(store.clone())
        .max_run_age(7 * DAY)
        .keep_finished(DAY)
        .run_setup(Customers { daily: Budget::tokens(store.clone(), TOKENS_PER_DAY, DAY) });
    Ok(agent.build()?)
}
