use tool_core::tool::Asker;
use tool_core::{ToolError, tool};

#[tool("Books a seat")]
async fn book(#[inject] user: &Asker) -> Result<String, ToolError> {
    let seat: String = user.ask::<String>("Which seat?")?;
    Ok(seat)
}

fn main() {}
