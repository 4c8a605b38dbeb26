//! Context values of tools: they are checked before the model is asked, and the conversation is always among them.

use tool_core::engine::Injection;
use tool_core::model::{ConversationId, ToolDefinition};
use tool_core::run::Run;
use tool_core::testing::ScriptedModel;
use tool_core::tool::ToolFuture;
use tool_core::{
    Agent, Answer, RunError, RunErrorKind, Tool, ToolCall, ToolContext, ToolOutput, ToolSet, tool, tools,
};

mod app {
    pub(crate) struct Database;
    pub(crate) struct User;
    pub(crate) struct Clock;
}

/// A tool that declares its injections.
struct Takes {
    definition: ToolDefinition,
    injections: Option<Vec<Injection>>,
}

impl Takes {
    fn new<const N: usize>(name: &str, injections: [Injection; N]) -> Self {
        let definition = ToolDefinition::new(name).with_description("Takes something");
        Self { definition, injections: Some(injections.into()) }
    }
}

impl Tool for Takes {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, _arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        let id = context.get::<ConversationId>().map_or("none", |id| id.as_str());
        ToolFuture::ready(Ok(ToolOutput::text(id)))
    }

    fn injections(&self) -> Option<&[Injection]> {
        self.injections.as_deref()
    }
}

#[tool("Returns the time")]
fn now() -> u32 {
    12
}

fn banking() -> ToolSet {
    let (database, user) = (Injection::new::<app::Database>(), Injection::new::<app::User>());
    let of_the_call =
        [Injection::new::<ToolCall>(), Injection::new::<ToolContext>(), Injection::new::<ConversationId>()];
    let undeclared = Takes { injections: None, ..Takes::new("quiet", []) };
    tools![now]
        .with(Takes::new("refund", [database, user, user]))
        .and_then(|tools| tools.with(Takes::new("cancel", [Injection::new::<app::Clock>().optional(), user])))
        .and_then(|tools| tools.with(Takes::new("look", of_the_call)))
        .and_then(|tools| tools.with(undeclared))
        .unwrap()
}

const ALL_MISSING: &str = "values are missing from the context: \
     `refund` needs `tools::context::app::Database` and `tools::context::app::User`, `cancel` needs `tools::context::app::User`; \
     pass each with `context(value)` on the agent or on the question";

const USER_MISSING: &str = "values are missing from the context: \
     `refund` needs `tools::context::app::User`, `cancel` needs `tools::context::app::User`; \
     pass each with `context(value)` on the agent or on the question; the context has `tools::context::app::Database`";

#[test]
fn a_set_lists_missing_context() {
    let missing = |context: &ToolContext| banking().missing_from(context);
    let all = missing(&ToolContext::new()).unwrap();
    assert_eq!(all.to_string(), ALL_MISSING);
    assert_eq!(format!("{all:?}"), ALL_MISSING);
    let user = ["tools::context::app::User"];
    let database_and_user = ["tools::context::app::Database", "tools::context::app::User"];
    assert_eq!(all.iter().collect::<Vec<_>>(), [("refund", &database_and_user[..]), ("cancel", &user[..])]);
    let some = ToolContext::new().with(app::Database);
    assert_eq!(missing(&some).unwrap().to_string(), USER_MISSING);
    assert!(missing(&some.with(app::User)).is_none());
    let renamed = banking().prefix("bank_").unwrap().missing_from(&ToolContext::new()).unwrap();
    assert!(renamed.to_string().contains("`bank_refund` needs `tools::context::app::Database`"), "{renamed}");
    let three = [Injection::new::<u8>(), Injection::new::<u16>(), Injection::new::<u32>()];
    let three =
        ToolSet::default().with(Takes::new("three", three)).unwrap().missing_from(&ToolContext::new());
    assert!(three.unwrap().to_string().contains("`three` needs `u8`, `u16` and `u32`;"));
}

async fn last(mut events: tool_core::agent::EventStream) -> Result<(), RunError> {
    let mut last = None;
    while let Some(event) = events.next().await {
        last = Some(event);
    }
    last.unwrap().map(|_| ())
}

#[tokio::test]
async fn refuses_a_run_with_missing_context() {
    let model = ScriptedModel::new().says("Hello.");
    let agent = Agent::builder(model.clone()).tools(banking()).context(app::Database).build().unwrap();
    let refusals = [
        agent.ask("Hello").await.map(|_| ()),
        last(agent.ask("Hello").stream()).await,
        agent.resume(Run::new([tool_core::Message::user("Hello")])).await.map(|_| ()),
        last(agent.resume(Run::new([tool_core::Message::user("Hello")])).stream()).await,
    ];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        let RunErrorKind::MissingContext(missing) = error.kind() else { panic!("{error}") };
        assert_eq!(error.to_string(), USER_MISSING);
        assert_eq!(missing.iter().count(), 2);
        assert_eq!(error.new_messages().len(), 1);
    }
    let mut run = agent.ask("Hello").start();
    let error = run.next().await.unwrap_err();
    let RunErrorKind::MissingContext(missing) = error.kind() else { panic!("{error}") };
    assert!(run.next().await.is_err(), "it is refused again");
    assert_eq!(agent.tools().missing_from(run.context()).as_ref(), Some(missing));
    assert_eq!(model.requests().len(), 0);
    // With the ask's user the model is asked, and the refused run can be resumed.
    assert_eq!(agent.ask("Hello").context(app::User).await.unwrap().text(), "Hello.");
    let _ = model.clone().says("Hello again.");
    let answer = agent.resume(error.into_run()).context(app::User).await.unwrap();
    assert_eq!((answer.text(), answer.new_messages().len()), ("Hello again.", 2));
}

#[tokio::test]
async fn explains_that_a_passed_context_is_not_unpacked() {
    let agent = Agent::builder(ScriptedModel::new()).tools(banking()).context(app::Database).build().unwrap();
    let error = agent.ask("Hello").context(ToolContext::new().with(app::User)).await.unwrap_err();
    let passed = "; the context has `tool_core::tool::context::tool_context::ToolContext` and ";
    let message = USER_MISSING.replace("; the context has ", passed);
    let unpacked = "; a `ToolContext` is not unpacked: pass its values with `context(value)`";
    assert_eq!(error.to_string(), message + unpacked);
}

#[tokio::test]
async fn checks_the_context_of_an_asks_tools() {
    let agent = Agent::builder(ScriptedModel::new().says("Hello.")).build().unwrap();
    let error = agent.ask("Hello").tools(banking()).await.unwrap_err();
    assert_eq!(error.to_string(), ALL_MISSING);
    let asked = agent.ask("Hello").tools(banking()).context(app::User).context(app::Database).await;
    assert_eq!(asked.unwrap().text(), "Hello.");
}

#[tokio::test]
async fn refuses_a_resumed_run_before_its_calls() {
    let model = ScriptedModel::new().calls("look", "{}").says("Done.");
    let agent = Agent::builder(model).tools(banking()).build().unwrap();
    let ask = || agent.ask("Look").context(app::Database).context(app::User);
    let mut run = ask().start();
    run.advance().await.unwrap();
    let error = agent.resume(run.into_run()).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::MissingContext(_)) && error.tool_executions().is_empty());
    let answer = agent.resume(error.into_run()).context(app::Database).context(app::User).await.unwrap();
    assert_eq!(answer.tool_executions().len(), 1);
}

#[tokio::test]
async fn a_finished_run_needs_no_context() {
    let mut run = Run::new([tool_core::Message::user("Hello")]);
    run.record_response(tool_core::model::ChatResponse::new(tool_core::model::AssistantMessage::text(
        "Hello.",
    )))
    .unwrap();
    let agent = Agent::builder(ScriptedModel::new()).tools(banking()).build().unwrap();
    assert_eq!(agent.resume(run).await.unwrap().text(), "Hello.");
}

fn outputs(answer: &Answer) -> Vec<String> {
    answer.tool_executions().iter().map(|one| one.output().unwrap().to_string()).collect()
}

fn looking(turns: usize) -> Agent {
    let model = (0..turns).fold(ScriptedModel::new(), |model, _| model.calls("look", "{}"));
    let tools = ToolSet::default().with(Takes::new("look", [Injection::new::<ConversationId>()])).unwrap();
    Agent::builder(model.says("Done.")).tools(tools).build().unwrap()
}

#[tokio::test]
async fn all_calls_of_an_ask_share_a_conversation() {
    assert_eq!(outputs(&looking(1).ask("Look").conversation("user-7").await.unwrap()), ["user-7"]);
    let id = ConversationId::new("user-8");
    assert_eq!(outputs(&looking(1).ask("Look").context(id).await.unwrap()), ["user-8"]);
    let first = outputs(&looking(2).ask("Look").await.unwrap());
    assert!(first[0].starts_with("conversation_") && first[0] == first[1], "{first:?}");
    assert_ne!(outputs(&looking(1).ask("Look").await.unwrap())[0], first[0]);
}

#[tokio::test]
async fn a_run_retains_its_conversation() {
    for id in [Some("user-7"), None] {
        let ask = looking(1).ask("Look");
        let run = match id {
            Some(id) => ask.conversation(id).start(),
            None => ask.start(),
        };
        let id = run.context().get::<ConversationId>().unwrap().clone();
        let run = run.into_run();
        assert_eq!(run.conversation(), Some(&id));
        let state = serde_json::to_string(&run).unwrap();
        let run: Run = serde_json::from_str(&state).unwrap();
        assert_eq!(outputs(&looking(1).resume(run.clone()).await.unwrap()), [id.as_str()]);
        // An explicitly given conversation takes precedence.
        let other = looking(1).resume(run).conversation("other").await.unwrap();
        assert_eq!(outputs(&other), ["other"]);
    }
}
