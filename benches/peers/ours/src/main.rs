//! An agent of this project.

use harness::tools::{Filter, Page, look_up};
use harness::{INSTRUCTIONS, MODEL, Program, QUESTION};
use tool_core::{Agent, ToolCall, ToolContext, ToolOutput, ToolSet, tool, tools};
use tool_openai::OpenAi;

macro_rules! declare {
    ($($name:ident $type:ident,)*) => {
        $(
            /// Finds places to stay, in pages of two, with the name, the address and the price of a night.
            #[tool]
            fn $name(
                #[param("what the places must have")] filter: Filter,
                #[param("which page, from 1")] page: u32,
            ) -> Page {
                look_up(filter, page)
            }
        )*

        fn all_tools() -> ToolSet {
            tools![$($name),*]
        }
    };
}

harness::for_all_tools!(declare);

struct Ours {
    agent: Agent,
    tools: ToolSet,
    context: ToolContext,
}

impl Program for Ours {
    type Called = ToolOutput;

    fn new(base_url: &str, max_turns: u32) -> Self {
        let client = OpenAi::builder().base_url(base_url).build().expect("the URL is valid");
        let agent = Agent::builder(client.chat_model(MODEL)).instructions(INSTRUCTIONS).tools(all_tools());
        let agent = agent.limits(|limits| limits.max_turns(max_turns)).build().expect("the tools are valid");
        Self { agent, tools: all_tools(), context: ToolContext::new() }
    }

    fn ask(&self) -> impl Future<Output = String> + Send + 'static {
        let run = self.agent.ask(QUESTION);
        async { run.await.expect("the endpoint answers").text().to_owned() }
    }

    async fn call(&self, name: &str, arguments: &str) -> ToolOutput {
        let call = ToolCall::new("1", name, arguments);
        self.tools.call(&call, &self.context).await.expect("the arguments are valid")
    }

    fn text(called: ToolOutput) -> String {
        called.to_string()
    }
}

fn main() -> std::io::Result<()> {
    harness::run::<Ours>()
}
