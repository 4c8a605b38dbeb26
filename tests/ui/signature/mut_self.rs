#![allow(dead_code)]

use tool_core::tool;

struct Counter(u32);

impl Counter {
    #[tool]
    fn count(&mut self) -> u32 {
        self.0 += 1;
        self.0
    }
}

fn main() {}
