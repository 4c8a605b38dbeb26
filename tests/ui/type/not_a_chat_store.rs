#![allow(dead_code, unused_variables)]

use tool_core::ChatMemory;

fn main() {
    let _ = ChatMemory::new("memory.db");
}
