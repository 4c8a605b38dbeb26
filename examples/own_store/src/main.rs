//! An agent whose conversations and runs are in a database of the application: `cargo run` in this folder.
//!
//! The store is `store.rs`; the page `your_own_store.md` of the guide has the contract.

mod store;

use std::error::Error;

use sqlx::sqlite::SqlitePoolOptions;
use tool_core::{Agent, ChatMemory, tool, tools};
use tool_offline::OfflineModel;

use self::store::Store;

/// Sums two numbers.
#[tool]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

async fn open(url: &str) -> sqlx::Result<Store> {
    let pool = SqlitePoolOptions::new().max_connections(1).connect(url).await?;
    Store::new(pool).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = open("sqlite::memory:").await?;
    let memory = ChatMemory::new(store.clone());
    let agent = Agent::builder(OfflineModel::new())
        .tools(tools![sum])
        .memory(memory.clone())
        .run_store(store)
        .build()?;
    let id = "user-7";
    println!("{}", agent.ask("What is 2.5 plus 40?").conversation(id).await?);
    println!("{} messages are stored", memory.messages(id).await?.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sqlx::query;
    use tokio::task::JoinSet;
    use tool_core::run::Run;
    use tool_core::store::{
        ChatStore, DriverId, LeaseRequest, LeaseState, PostOutcome, PostedCommand, RunCommand, RunStore,
    };
    use tool_core::testing::check_run_store;
    use tool_core::{Message, SqliteStore};

    use super::*;

    #[tokio::test]
    async fn runs_are_stored_by_the_contract() {
        check_run_store(&open("sqlite::memory:").await.unwrap()).await.unwrap();
    }

    #[tokio::test]
    async fn a_lease_that_ends_later_than_twice_its_duration_from_now_is_none() {
        let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
        let store = Store::new(pool.clone()).await.unwrap();
        let [first, second] = [DriverId::unique(), DriverId::unique()];
        let take = LeaseRequest::Take(Duration::from_secs(60));
        // How much later it ends than a clock that is right lets it.
        for (later, state) in
            [(0, LeaseState::HeldElsewhere), (1, LeaseState::HeldElsewhere), (86_400, LeaseState::Held)]
        {
            assert_eq!(store.lease("a", &first, take).await.unwrap(), LeaseState::Held);
            query("UPDATE leases SET expires = expires + ?").bind(later).execute(&pool).await.unwrap();
            assert_eq!(store.lease("a", &second, take).await.unwrap(), state, "{later} s");
        }
    }

    #[tokio::test]
    async fn posts_through_several_connections_are_counted_one_after_the_other() {
        let file = std::env::temp_dir().join(format!("own_store_{}.db", std::process::id()));
        let pool = SqlitePoolOptions::new().max_connections(4);
        let pool = pool.connect(&format!("sqlite://{}?mode=rwc", file.display())).await.unwrap();
        let store = Store::new(pool.clone()).await.unwrap();
        store.save_run("a", &mut Run::new([Message::user("Hello")])).await.unwrap();
        let mut posts = JoinSet::new();
        for _ in 0..110 {
            let store = store.clone();
            let say = PostedCommand::new(RunCommand::Say("Hurry".into()));
            posts.spawn(async move { store.post("a", &say).await.unwrap() });
        }
        let outcomes = posts.join_all().await;
        let posted = outcomes.iter().filter(|outcome| **outcome == PostOutcome::Posted).count();
        assert_eq!((posted, store.posted("a").await.unwrap().len()), (100, 100));
        pool.close().await;
        std::fs::remove_file(file).unwrap();
    }

    #[tokio::test]
    async fn conversations_are_stored_in_order_and_cleared_alone() {
        let store = open("sqlite::memory:").await.unwrap();
        let messages = [Message::user("Hello"), Message::assistant("Good morning!")];
        store.append(&"a".into(), &messages).await.unwrap();
        store.append(&"b".into(), &messages[..1]).await.unwrap();
        assert_eq!(store.load(&"a".into()).await.unwrap(), messages);
        store.clear(&"a".into()).await.unwrap();
        assert_eq!(store.conversations().await.unwrap(), ["b".into()]);
    }

    /// The feature `sqlite` uses the SQLite that sqlx selects.
    #[tokio::test]
    async fn both_stores_exist_in_one_program() {
        open("sqlite::memory:").await.unwrap();
        SqliteStore::in_memory().await.unwrap();
    }
}
