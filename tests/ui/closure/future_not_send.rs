//! The future holds a value that is not `Send`.

use std::rc::Rc;

use tool_core::FunctionTool;

fn main() {
    FunctionTool::new("count", || async {
        let count = Rc::new(1);
        std::future::ready(()).await;
        *count
    });
}
