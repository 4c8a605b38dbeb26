//! Names the crate of tools, and prints the names of the tools that it finds.

use team_tools as _;
use tool_core::ToolSet;

fn main() {
    let tools = ToolSet::named(["length", "sum"]).unwrap();
    let names: Vec<_> = tools.definitions().iter().map(|tool| tool.name()).collect();
    println!("{}", names.join(" "));
}
