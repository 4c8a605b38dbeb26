//! Injected parameters of tools.

use std::sync::Arc;

use tool_core::engine::Injection;
use tool_core::model::ConversationId;
use tool_core::testing::ScriptedModel;
use tool_core::tool::ToolErrorKind;
use tool_core::{Agent, ToolCall, ToolContext, ToolSet, tool, toolbox, tools};

#[derive(Clone, Debug)]
struct User(&'static str);

struct Database(u32);

trait Clock: Send + Sync {
    fn now(&self) -> u64;
}

struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> u64 {
        7
    }
}

async fn result_text(set: &ToolSet, name: &str, arguments: &str, context: &ToolContext) -> String {
    let call = ToolCall::new("call_9", name, arguments);
    match set.call(&call, context).await {
        Ok(output) => output.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

#[expect(dead_code, reason = "shown with `Debug`")]
#[derive(Debug)]
struct Note(&'static str);

#[expect(dead_code, reason = "shown with `Debug`")]
#[derive(Clone, Debug)]
struct Number(u64);

/// Takes everything in every way.
#[tool]
async fn lookup(
    #[inject] database: &Database,
    key: &str,
    #[inject] user: User,
    #[inject] clock: Arc<dyn Clock>,
    #[inject] note: Option<&Note>,
    #[param(default = 1)] times: u8,
    #[inject] number: Option<Number>,
) -> String {
    tokio::task::yield_now().await;
    format!("{} {key} {} {} {note:?} {times} {number:?}", database.0, user.0, clock.now())
}

#[tool]
fn whoami(
    #[inject] call: &ToolCall,
    #[inject] id: &ConversationId,
    #[inject] context: &ToolContext,
) -> String {
    let same = context.get::<ConversationId>() == Some(id) && context.call() == Some(call);
    format!("{} {} {} {same}", call.id, call.name, id.as_str().len())
}

#[tool(blocking)]
fn blocked(
    #[inject] database: &Database,
    #[inject] user: User,
    #[inject] _note: Option<&Note>,
    key: &str,
) -> String {
    format!("{} {} {key}", database.0, user.0)
}

#[expect(clippy::needless_lifetimes, reason = "a named lifetime is what is tested")]
#[tool]
fn borrowed<'a>(#[inject] user: &'a User) -> &'a str {
    user.0
}

#[tool]
fn by_pattern(#[inject] User(name): User, #[inject] _: &Database) -> String {
    name.to_owned()
}

struct Desk;

#[toolbox]
impl Desk {
    #[tool]
    fn open(&self, #[inject] user: &User) -> String {
        format!("open for {}", user.0)
    }
}

fn context() -> ToolContext {
    ToolContext::new().with(Database(42)).with(User("ada")).with(Arc::new(Stopped) as Arc<dyn Clock>)
}

#[tokio::test]
async fn injects_references_values_and_options() {
    let set = tools![lookup, whoami, blocked, borrowed, by_pattern].union(ToolSet::from(Desk)).unwrap();
    let context = context();
    assert_eq!(result_text(&set, "lookup", r#"{"key": "x"}"#, &context).await, "42 x ada 7 None 1 None");
    let more = context.clone().with(Note("note")).with(Number(5));
    assert_eq!(
        result_text(&set, "lookup", r#"{"key": "x", "times": 2}"#, &more).await,
        r#"42 x ada 7 Some(Note("note")) 2 Some(Number(5))"#
    );
    assert_eq!(result_text(&set, "blocked", r#"{"key": "x"}"#, &context).await, "42 ada x");
    assert_eq!(result_text(&set, "borrowed", "{}", &context).await, "ada");
    assert_eq!(result_text(&set, "by_pattern", "{}", &context).await, "ada");
    assert_eq!(result_text(&set, "open", "{}", &context).await, "open for ada");
}

#[tokio::test]
async fn always_injects_the_call_and_the_conversation() {
    let set = tools![whoami];
    assert_eq!(result_text(&set, "whoami", "{}", &ToolContext::new()).await, "call_9 whoami 45 true");
}

#[test]
fn injected_parameters_are_not_in_the_schema() {
    let set = tools![lookup, whoami];
    let properties = |name: &str| {
        let parameters = set.get(name).unwrap().definition().parameters();
        parameters["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(properties("lookup"), ["key", "times"]);
    assert!(properties("whoami").is_empty());
    let injections = set.get("lookup").unwrap().injections().unwrap();
    let missing = |context: &ToolContext| {
        let missing = injections.iter().filter(|injection| injection.is_missing_in(context));
        missing.map(Injection::type_name).collect::<Vec<_>>()
    };
    assert_eq!(
        missing(&ToolContext::new()),
        [
            "tools::injecting::Database",
            "tools::injecting::User",
            "alloc::sync::Arc<dyn tools::injecting::Clock>"
        ]
    );
    assert!(missing(&context()).is_empty());
    let always_there = set.get("whoami").unwrap().injections().unwrap();
    assert!(always_there.iter().all(|injection| !injection.is_missing_in(&ToolContext::new())));
}

#[tokio::test]
async fn refuses_a_call_with_missing_context() {
    let set = tools![lookup, blocked];
    let context = ToolContext::new().with(Database(1));
    for (name, lacks) in
        [("lookup", "alloc::sync::Arc<dyn tools::injecting::Clock>"), ("blocked", "tools::injecting::User")]
    {
        let call = ToolCall::new("1", name, r#"{"key": "x"}"#);
        let error = set.call(&call, &context).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::MissingContext);
        assert_eq!(
            error.to_string(),
            format!("the tool cannot be called: the application did not provide a `{lacks}`")
        );
    }
    // An error that the model can correct is reported first.
    let call = ToolCall::new("1", "lookup", "{}");
    assert_eq!(set.call(&call, &context).await.unwrap_err().kind(), ToolErrorKind::InvalidArguments);
}

#[test]
fn debug_output_omits_the_values_of_a_context() {
    let shown = format!("{:?}", context());
    assert!(shown.contains("tools::injecting::User") && !shown.contains("ada"), "{shown}");
}

#[tokio::test]
async fn refuses_a_run_with_missing_context() {
    let model = ScriptedModel::new().calls("lookup", r#"{"key": "x"}"#).says("done");
    let agent = Agent::builder(model.clone())
        .tools(tools![lookup, blocked, whoami])
        .context(Database(1))
        .build()
        .unwrap();
    let error = agent.ask("go").await.unwrap_err();
    assert!(matches!(error.kind(), tool_core::RunErrorKind::MissingContext(_)));
    let text = error.to_string();
    for lacks in [
        "`lookup` needs `tools::injecting::User` and `alloc::sync::Arc<dyn tools::injecting::Clock>`",
        "`blocked` needs `tools::injecting::User`",
    ] {
        assert!(text.contains(lacks), "{text}");
    }
    assert!(text.ends_with("; the context has `tools::injecting::Database`"), "{text}");
    assert!(model.requests().is_empty());

    // The values of an ask take precedence over the agent's.
    let clock = Arc::new(Stopped) as Arc<dyn Clock>;
    let ask = agent.ask("go").context(User("ada")).context(clock).context(Database(2));
    let answer = ask.await.unwrap();
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "2 x ada 7 None 1 None");
}
