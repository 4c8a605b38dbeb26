use tool_core::tool::Asker;
use tool_core::{ToolError, tool};

struct Seat {
    row: u8,
}

#[tool("Books a seat")]
async fn book(#[inject] user: &Asker) -> Result<u8, ToolError> {
    let seat: Seat = user.ask("Which seat?").await?;
    Ok(seat.row)
}

fn main() {}
