//! The agent that drives tasks: its tools are those of the server, and its model has nothing to say.

use std::iter;
use std::sync::Arc;

use tool_core::agent::{RunInfo, RunResources, RunSetup, on_approval};
use tool_core::content::Part;
use tool_core::engine::Injection;
use tool_core::layer::LayerError;
use tool_core::model::ToolDefinition;
use tool_core::run::Decision;
use tool_core::store::RunStore;
use tool_core::tool::ToolFuture;
use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest};
use tool_core::{Agent, BuildError, Message, Tool, ToolContext, ToolError, ToolOutput, ToolSet};

use super::authorize::Principal;
use super::config::Config;
use super::exclusivity::Exclusivity;
use super::task_model::NothingToSay;
use super::tools_handle::ToolsHandle;

/// The most characters of the output of a task, which is stored until the task expires, and the most bytes of all its parts and its data.
const MAX_OUTPUT_CHARS: usize = 256 << 10;
const MAX_OUTPUT_BYTES: usize = 4 << 20;

/// Returns the agent whose runs are the tasks of a server.
pub(super) fn task_agent(
    tools: ToolsHandle,
    config: &Config,
    store: Arc<dyn RunStore>,
    exclusivity: Exclusivity,
) -> Result<Agent, BuildError> {
    let serves_all = config.serves_tools_with_approval();
    let builder = Agent::builder(NothingToSay)
        .name(config.task_agent_name())
        .tool_provider(ServedTools { tools, serves_all, exclusivity })
        .inherit_context(&config.context)
        .run_setup(Users { are_principals: config.http.protection.is_some() })
        .run_store(store)
        .keep_finished(config.task_lifetime)
        .max_run_age(config.task_lifetime);
    match &config.decider {
        Some(decider) => builder.decider(decider.clone()).build(),
        // Without a decider, such a tool is served only if the host is trusted to ask.
        None => builder.decider(on_approval(|_| Decision::approve())).build(),
    }
}

/// Gives a run its user where nobody is there who sent the request. The scopes of that request are not stored: without it, there are none.
struct Users {
    are_principals: bool,
}

impl RunSetup for Users {
    async fn open(&self, run: &RunInfo) -> Result<RunResources, LayerError> {
        let user = run.user().filter(|_| self.are_principals);
        let principal = user.map(|user| Principal::new(user.clone(), [""; 0]));
        Ok(principal.into_iter().fold(RunResources::new(), RunResources::context))
    }
}

/// Provides the served tools, as they are when a run starts or goes on.
struct ServedTools {
    tools: ToolsHandle,
    serves_all: bool,
    exclusivity: Exclusivity,
}

impl ToolProvider for ServedTools {
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(async {
            let calls =
                request.messages().iter().filter_map(Message::as_assistant).flat_map(|one| &one.tool_calls);
            let called: Vec<_> = calls.map(|call| &*call.name).collect();
            let all = self.tools.current().set.max_output_chars(MAX_OUTPUT_CHARS);
            // What another tool needs must not fail the run.
            let is_called = |tool: &ToolDefinition| {
                let is_served = self.serves_all || !tool.policy().needs_approval;
                is_served && (called.is_empty() || called.contains(&tool.name()))
            };
            let mut needed: Vec<_> = all.definitions().iter().filter(|tool| is_called(tool)).collect();
            // What undoes a tool can be undone, too.
            let mut checked = 0;
            while let Some(tool) = needed.get(checked) {
                let undoing = tool.undo().and_then(|name| all.get(name)).map(Tool::definition);
                let is_new = |tool: &&ToolDefinition| needed.iter().all(|one| one.name() != tool.name());
                needed.extend(undoing.filter(is_new));
                checked += 1;
            }
            let set = all.filter(|tool| needed.iter().any(|needed| needed.name() == tool.name()));
            // Has the settings of the set.
            let mut served = set.filter(|_| false);
            for definition in set.definitions().iter() {
                let (set, exclusivity) = (set.clone(), self.exclusivity.clone());
                served = served.with(ServedTool { definition: definition.clone(), set, exclusivity })?;
            }
            Ok(served)
        })
    }

    fn name(&self) -> &str {
        "the MCP server"
    }
}

/// A served tool, which runs alongside no other call of the server if it is exclusive, and whose output can be stored.
struct ServedTool {
    definition: ToolDefinition,
    set: ToolSet,
    exclusivity: Exclusivity,
}

impl Tool for ServedTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::boxed(async move {
            let _running = self.exclusivity.enter(self.definition.policy().exclusive).await;
            let name = self.definition.name();
            // Not by the set, which would take it for another call.
            let tool = self.set.get(name).ok_or_else(|| ToolError::unknown_tool(name, iter::empty()))?;
            let output = tool.call(arguments, context).await?;
            Ok(without_excess(output))
        })
    }

    fn wrapped(&self) -> Option<&dyn Tool> {
        self.set.get(self.definition.name())
    }

    /// The call fails that lacks a value, and not its run, whose end the host would never read.
    fn injections(&self) -> Option<&[Injection]> {
        None
    }
}

/// Leaves out the data of an output that has too many bytes, and the images and files that do not fit beside its texts, which are limited
/// afterwards.
fn without_excess(output: ToolOutput) -> ToolOutput {
    let bytes = |part: &Part| match part {
        Part::Image(image) => image.url().len(),
        Part::File(file) => [file.url(), file.id(), file.name()].into_iter().flatten().map(str::len).sum(),
        // Its characters are limited afterwards.
        other => other.as_text().map_or(0, |text| text.len().min(4 * MAX_OUTPUT_CHARS)),
    };
    let parts = output.content().parts();
    let data = output.data().map_or(0, |data| data.to_string().len());
    if parts.iter().map(bytes).sum::<usize>() + data <= MAX_OUTPUT_BYTES {
        return output;
    }
    let texts: usize = parts.iter().filter(|part| part.as_text().is_some()).map(bytes).sum();
    let mut left = MAX_OUTPUT_BYTES.saturating_sub(texts);
    let fitting = parts.iter().map(|part| match left.checked_sub(bytes(part)) {
        _ if part.as_text().is_some() => part.clone(),
        Some(rest) => {
            left = rest;
            part.clone()
        }
        None => Part::from(format!("[{} bytes are left out, because the output is too large]", bytes(part))),
    });
    fitting.collect()
}

#[cfg(test)]
mod tests {
    use tool_core::content::Image;

    use super::*;

    #[test]
    fn an_output_is_bounded_in_total() {
        let image = |bytes: usize| Part::from(Image::from_url("a".repeat(bytes)));
        let note =
            |bytes| Part::from(format!("[{bytes} bytes are left out, because the output is too large]"));
        let (half, text) = (MAX_OUTPUT_BYTES / 2, || Part::from("hi"));
        // Is cut afterwards.
        let long = || Part::from("a".repeat(2 * MAX_OUTPUT_BYTES));
        // The data of two characters has four bytes.
        let table = [
            (vec![image(half), image(half)], None, vec![image(half), image(half)], None),
            (vec![image(half), image(half - 4)], Some("17"), vec![image(half), image(half - 4)], Some("17")),
            (vec![image(half), image(half - 3)], Some("17"), vec![image(half), image(half - 3)], None),
            (
                vec![image(half), image(half + 1), image(half - 2), text()],
                None,
                vec![image(half), note(half + 1), image(half - 2), text()],
                None,
            ),
            (vec![long(), image(half)], Some("17"), vec![long(), image(half)], Some("17")),
        ];
        for (given, data, parts, expected) in table {
            let output = data.into_iter().fold(ToolOutput::from_iter(given), ToolOutput::with_data);
            let bounded = without_excess(output);
            assert_eq!(bounded.content().parts(), parts);
            assert_eq!(bounded.data().and_then(|data| data.as_str()), expected);
        }
    }
}
