#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

struct Shop<'a>(&'a str);

#[toolbox]
impl<'a> Shop<'a> {
    #[tool]
    fn order(&self) {}
}

fn main() {}
