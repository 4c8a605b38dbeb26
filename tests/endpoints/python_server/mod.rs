//! The client against the server of llama-cpp-python, whose template for tools requires that every message has a `content`: a loop
//! with tools fails at its second request without it, and also if it is `null`.
//!
//! `tests/endpoints/python_server/run` installs the server, starts it, and runs these tests.

use std::env;

use tool_core::model::ToolChoice;
use tool_core::run::StopReason;
use tool_core::{Agent, ModelOptions, RunErrorKind, tool, tools};
use tool_openai::{Endpoint, OpenAi};

/// Returns the time of the next high tide.
#[tool]
fn get_tide(#[param(length = ..=8)] port: String) -> String {
    format!("{port}: 04:12")
}

#[tokio::test]
#[ignore = "needs the server that tests/endpoints/python_server/run starts"]
async fn the_second_request_of_a_loop_with_tools_is_accepted() {
    let variable = "PYTHON_SERVER_BASE_URL";
    let base_url = env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set; `tests/endpoints/python_server/run` sets it"));
    let openai =
        OpenAi::builder().endpoint(Endpoint::llama_cpp_python()).base_url(&base_url).build().unwrap();
    let agent = Agent::builder(openai.chat_model("babbler"))
        .tools(tools![get_tide])
        .tool_choice(ToolChoice::Tool("get_tide".into()))
        .options(ModelOptions::default().with_max_output_tokens(100))
        .limits(|l| l.max_turns(2))
        .build()
        .unwrap();
    // The model babbles, so it may call the tool again instead of answering.
    let (turns, executions) = match agent.ask("When is high tide?").await {
        Ok(answer) => (answer.turns(), answer.tool_executions().to_vec()),
        Err(error) => {
            assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTurns(_))), "{error:?}");
            (error.run().turns(), error.tool_executions().to_vec())
        }
    };
    assert_eq!(turns, 2);
    assert!(executions[0].output().unwrap().content().text().ends_with(": 04:12"), "{executions:?}");
}
