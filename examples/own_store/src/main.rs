//! An agent whose conversations and runs are in a database of the application: `cargo run` in this folder.
//!
//! The store is `store.rs`, which the page `your_own_store.md` of the guide contains and explains.

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
    let id = "user-7".into();
    println!("{}", agent.ask("What is 2.5 plus 40?").conversation(&id).await?);
    println!("{} messages are stored", memory.messages(&id).await?.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use tool_core::memory::ChatStore;
    use tool_core::testing::check_run_store;
    use tool_core::{Message, SqliteStore};

    use super::*;

    #[test]
    fn the_page_of_the_guide_contains_this_store() {
        let page = include_str!("../../../tool-core/docs/guide/your_own_store.md");
        assert!(page.contains(concat!("\n```rust,ignore\n", include_str!("store.rs"), "```\n")));
    }

    #[tokio::test]
    async fn runs_are_stored_by_the_contract() {
        check_run_store(&open("sqlite::memory:").await.unwrap()).await.unwrap();
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
