//! A conversation with every kind of entry.

use std::time::{Duration, SystemTime};

use crate::arguments::Repair;
use crate::content::{Content, Image, Part};
use crate::model::{AssistantMessage, Message, ToolCall, ToolMessage};
use crate::tool::{CallHistory, ToolError, ToolExecution, ToolOutput};

pub(super) fn conversation() -> (Vec<Message>, Vec<ToolExecution>) {
    let sum = ToolCall::new("1", "sum", r#"{"a": "2", "b": 40}"#);
    let now = ToolCall::new("2", "now", "{}");
    let end = ToolCall::new("3", "end", "{}");
    let draw = ToolCall::new("4", "draw", "");
    let cut = ToolCall::new("5", "sum", r#"{"a":"#);
    let open = ToolCall::new("6", "now", "{}");
    let late = ToolCall::new("7", "now", "{}");

    let history = |repairs| Some(CallHistory { repairs, ..CallHistory::default() }.into());
    let repaired = |name| Repair::for_argument(name, "\"2\"", "2");
    let executions = [
        ToolExecution::new(sum.clone(), Ok("42.0".into()))
            .with_history(history(vec![repaired("a")]))
            .with_timing(SystemTime::UNIX_EPOCH, Duration::from_micros(1500)),
        ToolExecution::new(now.clone(), Err(ToolError::failed("no clock; sorry")))
            .with_history(history(vec![repaired("a"), Repair::for_ignored("b", "1"), repaired("c")]))
            .with_timing(SystemTime::UNIX_EPOCH, Duration::from_secs(2)),
        ToolExecution::new(end.clone(), Err(ToolError::not_executed("it needs the approval of a person"))),
        ToolExecution::new(
            draw.clone(),
            Ok(ToolOutput::text("a dot").with_part(Image::from_bytes("image/png", [0]))),
        ),
    ];
    let results: Vec<_> =
        executions.iter().map(|execution| Message::tool(execution.call(), &execution.outcome)).collect();

    let mut first = AssistantMessage::text("Let me see.").with_tool_calls([sum, now, end]);
    first.reasoning = Some("Hm.".into());
    let refusing = AssistantMessage { refusal: Some("I will not.".into()), ..AssistantMessage::default() };
    let calls = |calls: &[ToolCall]| {
        Message::Assistant(AssistantMessage::default().with_tool_calls(calls.iter().cloned()))
    };
    let photo = Image::from_url("https://example.org/a.png");
    let messages = vec![
        Message::system("Be brief."),
        Message::User(Content::from_iter([Part::from("What is this?"), Part::from(photo)])),
        Message::Assistant(first),
        // The results are in another order than the calls.
        results[2].clone(),
        results[0].clone(),
        results[1].clone(),
        calls(&[draw]),
        results[3].clone(),
        calls(std::slice::from_ref(&cut)),
        Message::tool(&cut, &Err(ToolError::not_executed("the reply was cut short"))),
        calls(&[open, late.clone()]),
        Message::tool(&late, &Err(ToolError::failed("too late"))),
        // A result without a call.
        Message::Tool(ToolMessage::new("8", "now", "noon")),
        Message::Assistant(refusing),
        Message::assistant(""),
    ];
    (messages, executions.into())
}
