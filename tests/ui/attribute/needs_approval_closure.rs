use tool_core::tool;

#[tool("Pays a bill", needs_approval = |amount: u32| amount > 100)]
fn pay(amount: u32) -> u32 {
    amount
}

fn main() {}
