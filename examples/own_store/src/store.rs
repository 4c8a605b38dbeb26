use sqlx::{SqlitePool, query, query_scalar, raw_sql};
use tool_core::Message;
use tool_core::memory::{ChatStore, RunStore, SaveOutcome, StoreFuture};
use tool_core::model::ConversationId;
use tool_core::run::{Run, RunRevision};

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, conversation TEXT NOT NULL, message TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, run TEXT NOT NULL, revision TEXT NOT NULL, state TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS removed_runs (run TEXT PRIMARY KEY);";

const UPDATE_RUN: &str = "
    UPDATE runs SET run = ?2, revision = ?3, state = ?4 WHERE id = ?1 AND revision = ?5";

const INSERT_RUN: &str = "
    INSERT INTO runs (id, run, revision, state) SELECT ?1, ?2, ?3, ?4
    WHERE NOT EXISTS (SELECT 1 FROM removed_runs WHERE run = ?2) ON CONFLICT DO NOTHING";

#[derive(Clone)]
pub struct Store(SqlitePool);

impl Store {
    pub async fn new(pool: SqlitePool) -> sqlx::Result<Self> {
        raw_sql(TABLES).execute(&pool).await?;
        Ok(Self(pool))
    }
}

impl ChatStore for Store {
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
        Box::pin(async move {
            let rows = query_scalar("SELECT message FROM messages WHERE conversation = ? ORDER BY id");
            let rows: Vec<String> = rows.bind(id.as_str()).fetch_all(&self.0).await?;
            Ok(rows.iter().map(|row| serde_json::from_str(row)).collect::<Result<_, _>>()?)
        })
    }

    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut transaction = self.0.begin().await?; // all messages or none
            for message in messages {
                let insert = query("INSERT INTO messages (conversation, message) VALUES (?, ?)");
                let insert = insert.bind(id.as_str()).bind(serde_json::to_string(message)?);
                insert.execute(&mut *transaction).await?;
            }
            Ok(transaction.commit().await?)
        })
    }

    fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            query("DELETE FROM messages WHERE conversation = ?").bind(id.as_str()).execute(&self.0).await?;
            Ok(())
        })
    }

    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
        Box::pin(async move {
            let ids = query_scalar("SELECT DISTINCT conversation FROM messages ORDER BY conversation");
            let ids: Vec<String> = ids.fetch_all(&self.0).await?;
            Ok(ids.into_iter().map(ConversationId::from).collect())
        })
    }
}

impl RunStore for Store {
    fn replace_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        run: &'a Run,
    ) -> StoreFuture<'a, SaveOutcome> {
        Box::pin(async move {
            let revision = run.revision().map(RunRevision::as_str);
            let replace = query(if expected.is_some() { UPDATE_RUN } else { INSERT_RUN });
            let replace = replace.bind(id).bind(run.id().as_str()).bind(revision);
            let replace = replace.bind(serde_json::to_string(run)?).bind(expected.map(RunRevision::as_str));
            let changed = replace.execute(&self.0).await?.rows_affected();
            Ok(if changed == 0 { SaveOutcome::Conflict } else { SaveOutcome::Saved })
        })
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        Box::pin(async move {
            let state = query_scalar("SELECT state FROM runs WHERE id = ?").bind(id);
            let state: Option<String> = state.fetch_optional(&self.0).await?;
            Ok(state.map(|state| serde_json::from_str(&state)).transpose()?)
        })
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut transaction = self.0.begin().await?;
            let remember =
                query("INSERT OR IGNORE INTO removed_runs SELECT run FROM runs WHERE id = ?").bind(id);
            remember.execute(&mut *transaction).await?;
            query("DELETE FROM runs WHERE id = ?").bind(id).execute(&mut *transaction).await?;
            Ok(transaction.commit().await?)
        })
    }

    fn runs(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(async move { Ok(query_scalar("SELECT id FROM runs ORDER BY id").fetch_all(&self.0).await?) })
    }
}
