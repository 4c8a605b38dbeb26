//! Later turns with the same tools: the definitions are shared, and no schema is generated again.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use tool_core::model::ChatRequest;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ToolCall, ToolContext, tool, tools};

static SCHEMAS: AtomicUsize = AtomicUsize::new(0);

/// A type that counts how often its schema is generated.
#[derive(Deserialize)]
struct Counted(u8);

impl JsonSchema for Counted {
    fn schema_name() -> Cow<'static, str> {
        "Counted".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        SCHEMAS.fetch_add(1, Ordering::Relaxed);
        u8::json_schema(generator)
    }
}

/// Counts up.
#[tool]
fn count(from: Counted, by: Option<Counted>) -> u8 {
    from.0 + by.map_or(1, |by| by.0)
}

/// Returns the time.
#[tool]
fn now() -> u32 {
    12
}

#[tokio::test]
async fn generates_each_schema_once() {
    let set = tools![count, now].prefix("my_").unwrap().strict().unwrap();
    let generated = SCHEMAS.load(Ordering::Relaxed);
    assert!(generated > 0);

    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut model = ScriptedModel::new();
    for arguments in [r#"{"from": 1}"#, r#"{"by": 2, "from": 1}"#, r#"{"from": 3, "by": null}"#] {
        let seen = Arc::clone(&seen);
        let see = move |request: &ChatRequest<'_>| {
            seen.lock().unwrap().push(request.tools().as_ptr() as usize);
            true
        };
        model = model.expects(see).calls("my_count", arguments);
    }
    let agent = Agent::builder(model.says("four")).tools(set.clone()).build().unwrap();
    let answer = agent.ask("What comes then?").await.unwrap();

    assert_eq!(answer.tool_executions().iter().filter(|one| one.outcome().is_ok()).count(), 3);
    assert_eq!(*seen.lock().unwrap(), [set.definitions().as_ptr() as usize; 3]);
    assert_eq!(SCHEMAS.load(Ordering::Relaxed), generated);
    drop((tools![count], tools![count, now].definitions()[0].parameters()));
    assert_eq!(
        SCHEMAS.load(Ordering::Relaxed),
        generated,
        "the definition of a function is created once per process"
    );
}

#[test]
fn definitions_are_shared() {
    let count = |act: &dyn Fn()| allocation_counter::measure(act).count_total;
    let set = tools![now];
    let context = ToolContext::new();
    assert_eq!(count(&|| drop((set.definitions().clone(), set.clone(), context.clone()))), 0);
    // A lookup and the check for missing arguments do not allocate; only the output does.
    let call = ToolCall::new("1", "now", "{}");
    let make = || drop(futures_util::FutureExt::now_or_never(set.call(&call, &context)));
    make();
    assert_eq!(count(&make), 1);
}
