#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

struct Hotel;

#[toolbox]
impl Hotel {
    #[tool("Books a room")]
    fn book(&self, room: Option<Room>) {}
}

fn main() {}
