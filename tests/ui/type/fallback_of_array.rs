use tool_core::ChatModel;
use tool_core::model::Fallback;

fn join(first: Box<dyn ChatModel>, second: Box<dyn ChatModel>) -> Fallback {
    Fallback::new([first, second])
}

fn main() {}
