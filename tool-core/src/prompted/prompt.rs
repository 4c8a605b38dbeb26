//! The texts that the model reads: the tools, the form of a call, and corrections.

use std::collections::HashSet;

use serde_json::json;

use crate::model::{ChatRequest, ToolChoice, ToolDefinition};

/// The part of the system prompt that describes the tools of a request.
pub(super) struct ToolPrompt {
    pub(super) tool_names: HashSet<String>,
    text: String,
}

const INTRODUCTION: &str = "\
# Tools

You can call tools to help answer the user. Each line inside <tools></tools> describes one tool:
<tools>
";

const CALL_FORMAT: &str = "\
</tools>

To call a tool, write a JSON object with its name and arguments inside <tool_call></tool_call> tags:
<tool_call>
{\"name\": <tool name>, \"arguments\": <JSON object with the arguments>}
</tool_call>
";

const AFTER_CALLS: &str = "\
End your reply after that. You will receive each result inside <tool_response></tool_response> tags; never write these \
yourself. If you need no tool, answer without any of these tags.";

impl ToolPrompt {
    pub(super) fn new(tools: &[ToolDefinition]) -> Self {
        let mut text = INTRODUCTION.to_owned();
        for tool in tools {
            let line = json!({ "type": "function", "function": tool.to_json() }).to_string();
            text.push_str(&escape_closing_tags(&line));
            text.push('\n');
        }
        text.push_str(CALL_FORMAT);
        Self { tool_names: tools.iter().map(|tool| tool.name().to_owned()).collect(), text }
    }

    /// Returns the text for the system prompt, which is the same in every turn of a run.
    pub(super) fn text(&self, request: &ChatRequest<'_>) -> String {
        let mut prompt = self.text.clone();
        prompt.push_str(match request.parallel_tool_calls() {
            Some(false) => "Write at most one call per reply. ",
            _ => "You can write several calls in one reply, each in its own tags. ",
        });
        prompt.push_str(AFTER_CALLS);
        if let Some(format) = request.response_format() {
            prompt.push_str(
                "\n\nA reply without a call must be JSON, with no other text, that matches this JSON Schema:\n",
            );
            prompt.push_str(&format.original_schema().to_string());
        }
        prompt
    }
}

/// Escapes the closing tags of calls and results in a JSON text, without changing its value.
pub(super) fn escape_closing_tags(json: &str) -> String {
    // In JSON, `<` occurs only in strings, where a slash can be escaped.
    json.replace("</tool", "<\\/tool")
}

/// Returns the instruction for a reply in which a call is required.
pub(super) fn required_call(choice: &ToolChoice) -> Option<String> {
    match choice {
        ToolChoice::Required => Some("Reply with a tool call inside <tool_call></tool_call> tags.".into()),
        ToolChoice::Tool(name) => {
            Some(format!("Reply with a call to the tool `{name}` inside <tool_call></tool_call> tags."))
        }
        _ => None,
    }
}

/// Returns the correction for a reply with a call that cannot be parsed.
pub(super) fn malformed_call(reason: &str) -> String {
    format!(
        "No tool was called, because a call in your reply cannot be parsed: {reason}. Write all calls of that reply \
         again, each as\n<tool_call>\n{{\"name\": \"...\", \"arguments\": {{...}}}}\n</tool_call>\nwith names and \
         strings in double quotes."
    )
}
