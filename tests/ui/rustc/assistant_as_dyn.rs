#![allow(dead_code)]

use tool_core::{RunError, assistant};

#[assistant(agent = GreeterAgent)]
trait Greeter {
    #[ask("Greet {name}.")]
    async fn greet(&self, name: &str) -> Result<String, RunError>;
}

fn welcome(_greeter: Box<dyn Greeter>) {}

fn main() {}
