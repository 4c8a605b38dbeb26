//! The calls of a run, with what has become of them.

use serde_json::{Map, Value};
use tool_core::ToolCall;
use tool_core::engine::InnerRun;
use tool_core::run::{Answer, Run};
use tool_core::signatures::{CallOutcome, CallPattern};
use tool_core::tool::{OutcomeOrigin, ToolErrorKind, ToolExecution};

/// A call of a run.
#[derive(Clone)]
pub(crate) struct Seen {
    /// The tools by which the agent was asked that made it, from the outermost.
    pub(crate) agents: Vec<String>,
    name: String,
    /// The text that the tool got, or that the model wrote.
    text: String,
    /// `None` if they are no object.
    arguments: Option<Map<String, Value>>,
    /// `None` while the call is executed.
    outcome: Option<CallOutcome>,
    /// On one line.
    line: String,
}

impl Seen {
    fn finished(agents: &[String], execution: &ToolExecution) -> Self {
        let outcome = match execution.error().map(tool_core::ToolError::kind) {
            Some(ToolErrorKind::Denied) => CallOutcome::Denied,
            // A layer can give an output in place of the tool.
            _ if execution.origin() == OutcomeOrigin::NotExecuted => CallOutcome::NotExecuted,
            None => CallOutcome::Ok,
            Some(_) => CallOutcome::Failed,
        };
        let ToolCall { name, arguments, .. } = execution.call();
        let line = match execution.outcome() {
            Ok(output) => format!("{name} {arguments} returns: {output}"),
            Err(error) => format!("{name} {arguments} fails: {error}"),
        };
        Self::new(agents, execution.call(), execution.received_arguments(), Some(outcome), line)
    }

    fn open(agents: &[String], call: &ToolCall, waits: bool) -> Self {
        let arguments =
            call.arguments_as::<Value>().ok().and_then(|arguments| arguments.as_object().cloned());
        let (outcome, state) = if waits { (Some(CallOutcome::Waiting), "waits") } else { (None, "is open") };
        let line = format!("{} {} {state}", call.name, call.arguments);
        Self::new(agents, call, arguments, outcome, line)
    }

    fn new(
        agents: &[String],
        call: &ToolCall,
        arguments: Option<Map<String, Value>>,
        outcome: Option<CallOutcome>,
        line: String,
    ) -> Self {
        let (name, text) = (call.name.clone(), call.arguments.clone());
        Self { agents: agents.to_vec(), name, text, arguments, outcome, line: line.replace('\n', " ") }
    }

    pub(crate) fn line(&self) -> &str {
        &self.line
    }

    /// Returns `true` if the call is of a tool with this name.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == name
    }

    /// Returns `true` if the call is of the tool of a pattern.
    pub(crate) fn is_of(&self, pattern: &CallPattern) -> bool {
        self.is_named(pattern.tool_name())
    }

    /// Returns why the call does not match, or `None` if it does.
    pub(crate) fn mismatch(&self, pattern: &CallPattern) -> Option<String> {
        if !self.is_of(pattern) {
            return Some(format!("it calls `{}`", self.name));
        }
        let why = match &self.arguments {
            Some(arguments) => pattern.mismatch(arguments),
            None => {
                pattern.mismatch(&Map::new()).map(|_| format!("its arguments are no object: {}", self.text))
            }
        };
        let expected = pattern.outcome().filter(|outcome| self.outcome != Some(*outcome));
        why.or_else(|| {
            let outcome = self.outcome.map_or_else(|| "open".to_owned(), |outcome| outcome.to_string());
            expected.map(|expected| format!("the call is {outcome}, expected {expected}"))
        })
    }
}

/// Returns the calls of an answer, with those of the agents that they asked behind them.
pub(crate) fn of_answer(answer: &Answer) -> Vec<Seen> {
    let mut seen = Vec::new();
    let inner: Vec<_> = answer.inner_runs().iter().collect();
    for execution in answer.tool_executions() {
        seen.push(Seen::finished(&[], execution));
        add_inside(&[], &execution.call().id, &inner, &mut seen);
    }
    seen
}

/// Returns the calls of a run, with those of the agents that they asked behind them.
pub(crate) fn of_run(run: &Run) -> Vec<Seen> {
    let mut seen = Vec::new();
    add_run(&[], run, &mut seen);
    seen
}

fn add_run(agents: &[String], run: &Run, seen: &mut Vec<Seen>) {
    let inner: Vec<_> = run.inner_runs().collect();
    let waits = run.waits();
    for execution in run.tool_executions() {
        seen.push(Seen::finished(agents, execution));
        add_inside(agents, &execution.call().id, &inner, seen);
    }
    for (call, execution) in run.current_calls() {
        let is_in = |path: &str| path == call.id || path.starts_with(&format!("{}/", call.id));
        seen.push(match execution {
            Some(execution) => Seen::finished(agents, execution),
            None => Seen::open(agents, call, waits.iter().any(|wait| is_in(&wait.path))),
        });
        add_inside(agents, &call.id, &inner, seen);
    }
}

/// Adds the calls of the agents that a call has asked.
fn add_inside(agents: &[String], call_id: &str, inner: &[&InnerRun], seen: &mut Vec<Seen>) {
    for inner in inner.iter().filter(|inner| inner.call_id() == call_id) {
        let agents = [agents, &[inner.agent().to_owned()]].concat();
        add_run(&agents, inner.run(), seen);
    }
}
