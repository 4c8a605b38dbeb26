#![deny(warnings)]

use tool_core::{tool, tools};

#[tool]
#[deprecated]
fn old() {}

fn main() {
    #[allow(deprecated)]
    let set = tools![old];
    assert_eq!(set.len(), 1);
}
