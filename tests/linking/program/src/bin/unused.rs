//! Uses nothing of the crate of tools, and prints what is wrong.

use tool_core::ToolSet;

fn main() {
    println!("{}", ToolSet::named(["length", "sum"]).unwrap_err());
}
