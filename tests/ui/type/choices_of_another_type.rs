use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tool_core::tool::Asker;
use tool_core::{ToolError, tool};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Seat {
    row: u8,
}

#[tool("Books a seat")]
async fn book(#[inject] user: &Asker) -> Result<u8, ToolError> {
    let seat = user.ask::<Seat>("Which seat?").choices(["3A"]).await?;
    Ok(seat.row)
}

fn main() {}
