//! What the model is told: the tools, how a call is written, and what was wrong with its reply.

use std::collections::HashSet;

use serde_json::json;

use crate::{ChatRequest, ToolChoice, ToolDefinition};

/// The tools of a request, as the model is told of them.
pub(super) struct Offer {
    pub(super) names: HashSet<String>,
    text: String,
}

const INTRODUCTION: &str = "\
# Tools

You may call tools to help with what you are asked. Each line inside of <tools></tools> tells of one of them:
<tools>
";

const HOW_TO_CALL: &str = "\
</tools>

To call a tool, write a JSON object with its name and its arguments inside of <tool_call></tool_call> tags:
<tool_call>
{\"name\": <name of the tool>, \"arguments\": <JSON object of the arguments>}
</tool_call>
";

const HOW_IT_GOES_ON: &str = "\
End your reply behind that: what a call gives back comes to you inside of <tool_response></tool_response> tags. Never \
write those yourself. When no call is needed, answer without any of these tags.";

impl Offer {
    pub(super) fn of(tools: &[ToolDefinition]) -> Self {
        let mut text = INTRODUCTION.to_owned();
        for tool in tools {
            let mut function = serde_json::Map::new();
            function.insert("name".into(), tool.name().into());
            function.extend(tool.description().map(|what| ("description".to_owned(), what.into())));
            function.insert("parameters".into(), tool.parameters().clone());
            let line = json!({ "type": "function", "function": function }).to_string();
            text.push_str(&within_tags(&line));
            text.push('\n');
        }
        text.push_str(HOW_TO_CALL);
        Self { names: tools.iter().map(|tool| tool.name().to_owned()).collect(), text }
    }

    /// What stands in the system prompt. It says only what is the same in every turn.
    pub(super) fn prompt(&self, request: &ChatRequest<'_>) -> String {
        let mut prompt = self.text.clone();
        prompt.push_str(match request.parallel_tool_calls() {
            Some(false) => "Write one call in a reply at most. ",
            _ => "You may write several calls in one reply, each in tags of its own. ",
        });
        prompt.push_str(HOW_IT_GOES_ON);
        if let Some(format) = request.response_format() {
            prompt.push_str(
                "\n\nA reply without a call is nothing but JSON, with no word around it, that fits this JSON Schema:\n",
            );
            prompt.push_str(&format.original_schema().to_string());
        }
        prompt
    }
}

/// JSON that holds none of the tags that end what it stands in; it means the same.
pub(super) fn within_tags(json: &str) -> String {
    // In JSON, `<` stands in strings only, where a slash may be escaped.
    json.replace("</tool", "<\\/tool")
}

/// What is asked of this reply beside the question.
pub(super) fn demand(choice: &ToolChoice) -> Option<String> {
    match choice {
        ToolChoice::Required => Some("Reply with a call of a tool, in <tool_call></tool_call> tags.".into()),
        ToolChoice::Tool(name) => {
            Some(format!("Reply with a call of the tool `{name}`, in <tool_call></tool_call> tags."))
        }
        _ => None,
    }
}

/// Asks again after a reply with a call that cannot be read.
pub(super) fn unreadable(why: &str) -> String {
    format!(
        "Nothing was called: a call in your reply cannot be read, {why}. Write all calls of that reply again, each as\n\
         <tool_call>\n{{\"name\": \"...\", \"arguments\": {{...}}}}\n</tool_call>\n\
         with names and texts in double quotes."
    )
}

/// Asks again after a reply without the call that was demanded.
pub(super) fn missing(demand: &str) -> String {
    format!("There is no such call in your reply. {demand}")
}
