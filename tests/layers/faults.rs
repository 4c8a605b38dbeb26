//! Layers that hang, fail or panic, and what is recorded then.

use std::future::pending;
use std::time::Duration;

use tests::support::ways::restored;
use tool_core::agent::EventStream;
use tool_core::layer::{
    AnswerVerdict, Layer, LayerFuture, OutputVerdict, Part, Place, QuestionVerdict, guard,
};
use tool_core::model::{AssistantMessage, ChatResponse, ToolDefinition, Usage};
use tool_core::run::Decision;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{ExternalTool, ToolExecution};
use tool_core::{Agent, CancellationToken, Event, RunError, ToolCall, ToolOutput, tool, tools};

#[tool("Acts")]
fn act() -> String {
    "unjudged".into()
}

#[tool("Acts", return_direct)]
fn act_directly() -> String {
    "unjudged".into()
}

fn look() -> ExternalTool {
    ExternalTool::new(ToolDefinition::new("look").with_description("Looks"))
}

/// Never returns a verdict about this part. Cancels the run if it has its token.
struct Hang(Part, Option<CancellationToken>);

impl Hang {
    fn hang<'a, V: Send + 'a>(&'a self) -> LayerFuture<'a, V> {
        self.1.iter().for_each(CancellationToken::cancel);
        Box::pin(pending())
    }
}

impl Layer for Hang {
    fn name(&self) -> &str {
        "hang"
    }

    fn sees(&self, part: Part) -> bool {
        part == self.0
    }

    fn output<'a>(&'a self, _: &'a ToolExecution, _: &'a Place<'a>) -> LayerFuture<'a, OutputVerdict> {
        self.hang()
    }

    fn answer<'a>(&'a self, _: &'a str, _: &'a Place<'a>) -> LayerFuture<'a, AnswerVerdict> {
        self.hang()
    }
}

fn replies(calls: &[&str], text: &str) -> ScriptedModel {
    let calls = calls.iter().map(|name| ToolCall::new("call_1", *name, "{}"));
    let usage = Usage::new(5, 2);
    let message = AssistantMessage::text(text).with_tool_calls(calls);
    ScriptedModel::new().replies(ChatResponse::new(message)).with_usage(usage).says("End.")
}

/// Drives a stream to its error. Returns the text that arrives.
async fn stream_to_error(mut events: EventStream) -> (String, RunError) {
    let mut shown = String::new();
    let driven = async {
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Text(text)) => shown.push_str(&text),
                Ok(_) => {}
                Err(error) => return error,
            }
        }
        panic!("the run has an answer")
    };
    let error = tokio::time::timeout(Duration::from_secs(10), driven).await.expect("it hangs");
    (shown, error)
}

#[tokio::test]
async fn a_guard_that_hangs_obeys_the_limits_of_the_run() {
    let cases: [(Part, &[&str], &str); 5] = [
        (Part::Answer, &[], "unjudged"),
        (Part::Answer, &["act"], "unjudged"),
        (Part::Answer, &["act_directly"], ""),
        (Part::Output, &["act"], ""),
        (Part::Output, &["look"], ""),
    ];
    for (part, calls, text) in cases {
        for is_cancelled in [false, true] {
            let token = CancellationToken::new();
            let agent = Agent::builder(replies(calls, text))
                .tools(tools![act, act_directly])
                .tool(look())
                .layer(Hang(part, is_cancelled.then(|| token.clone())))
                .build()
                .unwrap();
            let limit = if is_cancelled { Duration::from_secs(100) } else { Duration::from_millis(50) };
            let asked = agent.ask("go").max_time(limit).cancellation_token(token.clone());
            let (mut shown, mut error) = stream_to_error(asked.stream()).await;
            if let Some(wait) = error.run().waits().pop() {
                let mut run = error.into_run();
                run.resolve(&wait.id, Decision::result(Ok(ToolOutput::text("supplied")))).unwrap();
                let resumed = agent.resume(restored(run)).cancellation_token(token);
                (shown, error) = stream_to_error(resumed.stream()).await;
            }
            let expected = match is_cancelled {
                true => "the run was cancelled",
                false => "the run took longer than 50ms; raise `max_time`",
            };
            assert_eq!(error.to_string(), expected, "{part:?} {calls:?}");
            let read = error.messages().iter().map(|message| message.text().into_owned());
            shown.extend(read);
            assert!(!shown.contains("unjudged"), "{part:?} {calls:?}: {shown}");
            assert_eq!(error.run().usage().total_tokens, 7, "{part:?} {calls:?}");
        }
    }
}
