//! An agent of rig.

use harness::tools::{Filter, Page, look_up};
use harness::{INSTRUCTIONS, MODEL, Program, QUESTION};
use rig::prelude::*;
use rig::providers::openai::OpenAIConfig;
use rig::rig_tool;
use rig::tool::{ToolExecutionError, ToolResult};

macro_rules! declare {
    ($($name:ident $type:ident,)*) => {
        $(
            /// Finds places to stay, in pages of two, with the name, the address and the price of a night.
            #[rig_tool(params(filter = "what the places must have", page = "which page, from 1"))]
            fn $name(filter: Filter, page: u32) -> Result<Page, ToolExecutionError> {
                Ok(look_up(filter, page))
            }
        )*

        fn all_tools() -> ToolSet {
            let mut tools = ToolSet::default();
            $(tools.add_tool($type);)*
            tools
        }

        fn with_tools(agent: AgentBuilder) -> AgentBuilder<rig::agent::WithBuilderTools> {
            agent$(.tool($type))*
        }
    };
}

harness::for_all_tools!(declare);

struct WithRig {
    agent: Agent,
    tools: ToolSet,
}

impl Program for WithRig {
    type Called = ToolResult;

    fn new(base_url: &str, max_turns: u32) -> Self {
        let client = OpenAIConfig::new("key").with_base_url(base_url).client();
        let agent = AgentBuilder::new(client.chat(MODEL)).preamble(INSTRUCTIONS);
        let agent = with_tools(agent).default_max_turns(max_turns as usize).build();
        Self { agent, tools: all_tools() }
    }

    fn ask(&self) -> impl Future<Output = String> + Send + 'static {
        let run = self.agent.prompt(QUESTION);
        async { run.await.expect("the endpoint answers").output() }
    }

    async fn call(&self, name: &str, arguments: &str) -> ToolResult {
        let tool = self.tools.get(name).expect("the tool is known");
        tool.execute(arguments.to_owned(), &mut ToolContext::default()).await
    }

    fn text(called: ToolResult) -> String {
        called.output().render()
    }
}

fn main() -> std::io::Result<()> {
    harness::run::<WithRig>()
}
