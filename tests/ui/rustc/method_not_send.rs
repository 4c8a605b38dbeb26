#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

struct Shop;

#[toolbox]
impl Shop {
    #[tool]
    async fn order(&self) {
        let local = std::rc::Rc::new(1);
        std::future::ready(()).await;
        drop(local);
    }
}

fn main() {}
