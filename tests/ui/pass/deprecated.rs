#![deny(warnings)]

use tool_core::{tool, tools};

#[tool]
#[deprecated]
fn old() {}

pub(crate) fn main() {
    #[allow(deprecated)]
    let set = tools![old];
    assert_eq!(set.len(), 1);
}
