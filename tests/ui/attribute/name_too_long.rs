#![allow(dead_code)]

use tool_core::tool;

#[tool(name = "a_name_that_is_a_good_deal_longer_than_the_sixty_four_letters_allowed")]
fn square_root(x: f64) -> f64 {
    x.sqrt()
}

fn main() {
    let _ = tool_core::tools![square_root];
}
