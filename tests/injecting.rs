//! What tools take from their context.

use std::sync::Arc;

use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ConversationId, Injection, ToolCall, ToolContext, ToolSet, tool, toolbox, tools};

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

async fn told(set: &ToolSet, name: &str, arguments: &str, context: &ToolContext) -> String {
    let call = ToolCall::new("call_9", name, arguments);
    match set.call(&call, context).await {
        Ok(output) => output.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

/// Takes everything in every way.
#[tool]
async fn lookup(
    #[inject] database: &Database,
    key: &str,
    #[inject] user: User,
    #[inject] clock: Arc<dyn Clock>,
    #[inject] note: Option<&String>,
    #[param(default = 1)] times: u8,
    #[inject] number: Option<u64>,
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
    #[inject] _note: Option<&String>,
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
async fn by_reference_by_value_and_if_there() {
    let set = tools![lookup, whoami, blocked, borrowed, by_pattern].union(Desk).unwrap();
    let context = context();
    assert_eq!(told(&set, "lookup", r#"{"key": "x"}"#, &context).await, "42 x ada 7 None 1 None");
    let more = context.clone().with("note".to_owned()).with(5_u64);
    assert_eq!(
        told(&set, "lookup", r#"{"key": "x", "times": 2}"#, &more).await,
        r#"42 x ada 7 Some("note") 2 Some(5)"#
    );
    assert_eq!(told(&set, "blocked", r#"{"key": "x"}"#, &context).await, "42 ada x");
    assert_eq!(told(&set, "borrowed", "{}", &context).await, "ada");
    assert_eq!(told(&set, "by_pattern", "{}", &context).await, "ada");
    assert_eq!(told(&set, "open", "{}", &context).await, "open for ada");
}

#[tokio::test]
async fn the_call_and_the_conversation_are_always_there() {
    let set = tools![whoami];
    assert_eq!(told(&set, "whoami", "{}", &ToolContext::new()).await, "call_9 whoami 45 true");
}

#[test]
fn what_is_injected_is_no_argument() {
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
        ["injecting::Database", "injecting::User", "alloc::sync::Arc<dyn injecting::Clock>"]
    );
    assert!(missing(&context()).is_empty());
    let always_there = set.get("whoami").unwrap().injections().unwrap();
    assert!(always_there.iter().all(|injection| !injection.is_missing_in(&ToolContext::new())));
}

#[tokio::test]
async fn a_call_that_lacks_something_is_refused() {
    let set = tools![lookup, blocked];
    let context = ToolContext::new().with(Database(1));
    for (name, lacks) in
        [("lookup", "alloc::sync::Arc<dyn injecting::Clock>"), ("blocked", "injecting::User")]
    {
        let call = ToolCall::new("1", name, r#"{"key": "x"}"#);
        let error = set.call(&call, &context).await.unwrap_err();
        assert!(error.is_missing_context() && !error.is_invalid_arguments());
        assert_eq!(
            error.to_string(),
            format!("the tool cannot be called: the application did not hand over a `{lacks}`")
        );
    }
    // What the model can mend is told to it first.
    let call = ToolCall::new("1", "lookup", "{}");
    assert!(set.call(&call, &context).await.unwrap_err().is_invalid_arguments());
}

#[test]
fn values_in_a_context_are_not_shown() {
    let shown = format!("{:?}", context());
    assert!(shown.contains("injecting::User") && !shown.contains("ada"), "{shown}");
}

#[tokio::test]
async fn a_run_that_lacks_something_is_refused_before_the_model_is_asked() {
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
        "`lookup` needs `injecting::User` and `alloc::sync::Arc<dyn injecting::Clock>`",
        "`blocked` needs `injecting::User`",
    ] {
        assert!(text.contains(lacks), "{text}");
    }
    assert!(model.requests().is_empty() && !text.contains("Database"), "{text}");

    // What the question hands over wins over the agent's.
    let clock = Arc::new(Stopped) as Arc<dyn Clock>;
    let ask = agent.ask("go").context(User("ada")).context(clock).context(Database(2));
    let answer = ask.await.unwrap();
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "2 x ada 7 None 1 None");
}
