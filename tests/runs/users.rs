//! Whose run it is, and what follows from that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tests::support::stores::{postgres, run_ids};
use tool_core::agent::{AgentBuilder, RunInfo, RunResources, RunSetup};
use tool_core::engine::AgentExt;
use tool_core::layer::{CallVerdict, guard};
use tool_core::memory::{Budget, InMemoryStore, RunFilter, RunStatus};
use tool_core::model::{ModelOptions, RunUser, Usage};
use tool_core::run::Decision;
use tool_core::store::RunStore;
use tool_core::testing::ScriptedModel;
use tool_core::{
    Agent, CancellationToken, ChatMemory, ConversationId, RunErrorKind, SqliteStore, ToolCall, ToolContext,
    tool, tools,
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[tool]
fn who(#[inject] user: Option<&RunUser>, #[inject] conversation: &ConversationId) -> String {
    format!("{} in {conversation}", user.map_or("nobody", RunUser::as_str))
}

#[tool(needs_approval)]
fn whose(#[inject] user: &RunUser, #[inject] customer: &Customer) -> String {
    format!("{user}: {}", customer.0)
}

#[tool]
fn own_orders(#[inject] user: &RunUser) -> String {
    format!("orders of {user}")
}

#[tool]
fn name_of(#[inject] customer: &Customer) -> String {
    customer.0.clone()
}

struct Customer(String);

fn helper(name: &'static str, of: AgentBuilder) -> AgentBuilder {
    let inner = of.build().unwrap();
    let model = ScriptedModel::new().calls(name, r#"{"question": "Who?"}"#).says("Done.");
    Agent::builder(model).tools(inner.as_tool(name, "Helps").own_conversation())
}

struct Impostor;

impl RunSetup for Impostor {
    async fn open(&self, _: &RunInfo) -> Result<RunResources, BoxError> {
        Ok(RunResources::new().context(RunUser::new("eve")))
    }
}

#[tokio::test]
async fn a_user_is_no_value_for_tools() {
    let builder = || Agent::builder(ScriptedModel::new().says("Hello"));
    let built = builder().context(RunUser::new("eve")).build().unwrap_err().to_string();
    let asked = builder().build().unwrap().ask("Hi").context(RunUser::new("eve")).await.unwrap_err();
    let opened = builder().run_setup(Impostor).build().unwrap().ask("Hi").user("ada").await.unwrap_err();
    for refused in [built, asked.to_string(), opened.to_string()] {
        assert!(refused.contains("say whose run it is with `Ask::user`"), "{refused}");
    }
}

/// At depth 0, 1 and 2, with conversations of the agents' own.
#[tokio::test]
async fn user_and_conversation_are_those_of_the_outermost_question_at_every_depth() {
    let asks_who = || {
        let model = ScriptedModel::new().calls_all([("who", "{}"), ("own_orders", "{}")]).says("Done.");
        Agent::builder(model).tools(tools![who, own_orders])
    };
    let at_depth = |depth: u32, with: fn(AgentBuilder) -> AgentBuilder| {
        let agent = (0..depth).fold(with(asks_who()), |agent, _| with(helper("helper", agent)));
        agent.build().unwrap()
    };
    for depth in 0..=2 {
        let agent = at_depth(depth, |builder| builder.memory(InMemoryStore::new()));
        let answer = agent.ask("Who am I?").user("ada").conversation("chat-7").await.unwrap();
        let shown = answer.transcript().to_string();
        assert!(shown.contains("ada in chat-7") && shown.contains("orders of ada"), "{depth}: {shown}");
        let error = at_depth(depth, |builder| builder).ask("Who am I?").await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::MissingContext(_)), "{depth}: {error}");
        assert!(error.to_string().contains("RunUser"), "{depth}: {error}");
    }
    let agent = Agent::builder(ScriptedModel::new().calls("who", "{}").says("Done.")).tools(tools![who]);
    let answer = agent.build().unwrap().ask("Who?").conversation("chat-7").await.unwrap();
    assert!(answer.tool_executions()[0].to_string().ends_with("nobody in chat-7"));
}

/// The agent around it knows nothing of that.
#[tokio::test]
async fn an_agent_inside_has_what_its_own_application_gives() {
    let (desk, _, asked) = desk();
    let inner = Agent::builder(ScriptedModel::new().calls("name_of", "{}").says("Done."));
    let inner = inner.options(ModelOptions::default().with_max_output_tokens(100)).tools(tools![name_of]);
    let agent = helper("helper", inner.run_setup(desk)).build().unwrap();
    let answer = agent.ask("Who am I?").user("ada").await.unwrap();
    assert!(answer.transcript().to_string().contains("Ada Lovelace"), "{}", answer.transcript());
    assert_eq!(*asked.lock().unwrap(), ["ada"]);
}

#[tokio::test]
async fn a_run_keeps_its_user_and_is_listed_and_continued_as_theirs() {
    let sqlite = SqliteStore::in_memory().await.unwrap();
    let in_memory = InMemoryStore::new();
    let mut stores: Vec<(ChatMemory, Arc<dyn RunStore>)> =
        vec![(in_memory.clone().into(), Arc::new(in_memory)), (sqlite.clone().into(), Arc::new(sqlite))];
    stores.extend(postgres().await.map(|store| (store.clone().into(), Arc::new(store) as _)));
    for (memory, store) in stores {
        let model = ScriptedModel::new().calls("whose", "{}").fails("down").says("Done.");
        let agent = Agent::builder(model).tools(tools![whose]).memory(memory).run_store(Arc::clone(&store));
        let agent = agent.context(Customer("first".into())).build().unwrap();
        let run = agent.ask("Whose?").user("ada\nor eve").conversation("c").await.unwrap_err().into_run();
        let other = agent.ask("Mine?").user("eve").conversation("other").await.unwrap_err().into_run();
        let listed = agent.list_runs(&RunFilter::new().user("ada\nor eve")).await.unwrap();
        assert_eq!((listed.len(), &*listed[0].id), (1, run.id().as_str()));
        assert_eq!(listed[0].user, Some(RunUser::new("ada\nor eve")));
        assert_eq!(agent.list_runs(&RunFilter::new().user("bob")).await.unwrap().len(), 0);

        // Of another user.
        for error in [
            agent.ask("Mine?").user("eve").conversation("c").await.unwrap_err(),
            agent.ask("Mine?").conversation("c").await.unwrap_err(),
            agent
                .resume(agent.stored_run(run.id().as_str()).await.unwrap().unwrap().run)
                .user("eve")
                .await
                .unwrap_err(),
        ] {
            assert!(matches!(error.kind(), RunErrorKind::Question(_)), "{error}");
            assert!(error.to_string().ends_with("another user"), "{error}");
        }
        let status = agent.stored_run(run.id().as_str()).await.unwrap().unwrap().status;
        assert_eq!(status, RunStatus::Waiting);

        let wait = run.waits().remove(0).id;
        let decided = agent.decide(run.id().as_str(), &wait, Decision::approve()).await.unwrap();
        let answer = decided.resume().unwrap().await.unwrap();
        assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "ada\nor eve: first");
        agent.undo_and_end(other).await.unwrap();
        assert!(run_ids(&store).await.is_empty());
    }
}

/// What an application knows about its users.
struct Desk {
    names: BTreeMap<&'static str, &'static str>,
    budget: Budget,
    asked: Arc<Mutex<Vec<String>>>,
}

impl RunSetup for Desk {
    async fn open(&self, run: &RunInfo) -> Result<RunResources, BoxError> {
        let user = run.user().ok_or("log in first")?;
        self.asked.lock().unwrap().push(user.to_string());
        match user.as_str() {
            "hangs" => std::future::pending().await,
            "panics" => panic!("no such user"),
            user => {
                let name = self.names.get(user).ok_or("there is no such customer")?;
                let denies = guard::call(|call: &ToolCall| match &*call.name {
                    "who" => CallVerdict::deny("not for customers"),
                    _ => CallVerdict::Pass,
                });
                let parts = RunResources::new()
                    .context(Customer((*name).to_owned()))
                    .limits(|l| l.max_turns(3))
                    .layer(denies);
                Ok(parts.budget(self.budget.key(user)))
            }
        }
    }
}

fn desk() -> (Desk, Budget, Arc<Mutex<Vec<String>>>) {
    let budget = Budget::tokens(InMemoryStore::new(), 10_000, Duration::from_secs(3_600));
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let names = BTreeMap::from([("ada", "Ada Lovelace")]);
    (Desk { names, budget: budget.clone(), asked: Arc::clone(&asked) }, budget, asked)
}

/// A run that was approved later, by a program that knows nothing about its user.
#[tokio::test]
async fn what_follows_from_the_user_is_there_wherever_the_run_goes_on() {
    let (desk, budget, asked) = desk();
    let usage = Usage::new(40, 10);
    let model = ScriptedModel::new().calls_all([("whose", "{}"), ("who", "{}")]).with_usage(usage);
    let model = model.says("Done.").with_usage(usage);
    let agent =
        Agent::builder(model).tools(tools![whose, who]).run_store(InMemoryStore::new()).run_setup(desk);
    let agent = agent.options(ModelOptions::default().with_max_output_tokens(100)).build().unwrap();
    let run = agent.ask("Whose?").user("ada").await.unwrap_err().into_run();
    assert!(!run.engine_view().has_own_budget());
    assert_eq!(run.limits().max_turns, 3);
    let wait = run.waits().remove(0).id;
    drop(agent.decide(run.id().as_str(), &wait, Decision::approve()).await.unwrap());
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let outcomes = Arc::clone(&seen);
    let recovery = agent.recover().on_outcome(move |_, outcome| {
        let tool_core::agent::Outcome::Answer(answer) = outcome else { panic!("{outcome:?}") };
        let calls = answer.tool_executions().iter();
        let texts = calls.map(|call| call.outcome().map_or_else(ToString::to_string, ToString::to_string));
        outcomes.lock().unwrap().extend(texts);
    });
    assert_eq!(recovery.once().await.unwrap(), 1);
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen[0], "ada: Ada Lovelace");
    assert!(seen[1].contains("not for customers"), "{seen:?}");
    assert_eq!(*asked.lock().unwrap(), ["ada", "ada"]);
    assert_eq!(budget.key("ada").left().await.unwrap(), 10_000 - 100);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_be_opened_does_nothing_and_can_be_resumed() {
    for (user, expected) in [
        (None, "the run cannot be opened: log in first"),
        (Some("bob"), "the run cannot be opened: there is no such customer"),
        (Some("panics"), "the run cannot be opened: it panicked: no such user"),
        (Some("hangs"), "the run cannot be opened: it took longer than 10s"),
    ] {
        let (desk, _, _) = desk();
        let model = ScriptedModel::new().says("Never.");
        let agent =
            Agent::builder(model.clone()).run_store(InMemoryStore::new()).run_setup(desk).build().unwrap();
        let ask = agent.ask("Hello");
        let error = match user {
            Some(user) => ask.user(user).await.unwrap_err(),
            None => ask.await.unwrap_err(),
        };
        assert_eq!(error.to_string(), expected);
        assert!(matches!(error.kind(), RunErrorKind::RunSetup(_)) && error.is_resumable());
        assert_eq!(model.requests().len(), 0);
        let stored = agent.stored_run(error.run().id().as_str()).await.unwrap().unwrap();
        assert_eq!(stored.status, RunStatus::Failed);
    }
}

/// As on another machine.
#[tokio::test]
async fn a_worker_that_executes_one_call_asks_what_its_run_has() {
    let (desk, _, _) = desk();
    let agent = Agent::builder(ScriptedModel::new()).tools(tools![whose]).run_setup(desk).build().unwrap();
    let mut run = tool_core::run::Run::new([tool_core::Message::user("Whose?")]).with_user("ada");
    let reply =
        tool_core::model::AssistantMessage::default().with_tool_calls([ToolCall::new("a", "whose", "{}")]);
    run.record_response(tool_core::model::ChatResponse::new(reply)).unwrap();
    let request = run.request_call("a").unwrap();
    let (context, cancellation) = (ToolContext::new(), CancellationToken::new());
    let execution = agent.execute_request(&[], request, &context, &cancellation, Default::default()).await;
    assert_eq!(execution.output().unwrap().to_string(), "ada: Ada Lovelace");
}

#[tool]
fn refund() -> &'static str {
    "refunded"
}

/// From its first step on.
#[tokio::test]
async fn a_run_that_a_question_goes_on_with_has_what_its_user_has() {
    let (desk, budget, _) = desk();
    let usage = Usage::new(40, 10);
    let model = ScriptedModel::new().calls("refund", "{}").with_usage(usage).fails("down");
    let model = model.calls("who", "{}").with_usage(usage).says("Done.").with_usage(usage);
    let store = InMemoryStore::new();
    let agent = Agent::builder(model).tools(tools![refund, who]).memory(store.clone()).run_store(store);
    let agent =
        agent.options(ModelOptions::default().with_max_output_tokens(100)).run_setup(desk).build().unwrap();
    let failed = agent.ask("Refund").user("ada").conversation("c").await.unwrap_err();
    assert!(matches!(failed.kind(), RunErrorKind::Model(_)), "{failed}");
    let before = budget.key("ada").left().await.unwrap();
    let answer = agent.ask("Who am I?").user("ada").conversation("c").await.unwrap();
    let denied = answer.tool_executions()[1].outcome().unwrap_err();
    assert!(denied.to_string().contains("not for customers"), "{denied}");
    assert_eq!(before - budget.key("ada").left().await.unwrap(), 100);
}
