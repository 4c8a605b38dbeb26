#![allow(dead_code)]

use tool_core::tool;

use std::rc::Rc;

#[tool]
async fn weather() -> String {
    let shared = Rc::new(22);
    std::future::ready(()).await;
    format!("{shared} °C")
}

fn main() {}
