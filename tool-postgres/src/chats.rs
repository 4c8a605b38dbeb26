//! Conversations: each has a row that numbers its messages, so that those that are appended at once do not interleave and what was read stays
//! the beginning.

use futures_util::FutureExt;
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use tool_core::Message;
use tool_core::model::ConversationId;
use tool_core::store::{ChatStore, CompactionSummary, StoreFuture};

use crate::error::PostgresError;
use crate::store::{Attempt, Key, PostgresStore, read_id, stored_id, transaction};

/// Takes the next numbers of a conversation, behind those who append at the same time.
const COUNT: &str = "
    INSERT INTO @conversations AS c (id, messages) VALUES ($1, $2)
    ON CONFLICT (id) DO UPDATE SET messages = c.messages + $2 RETURNING messages
";

/// The first message has the token of the append.
const APPEND: &str = "
    INSERT INTO @messages (conversation, number, message, token)
    SELECT $1, $3 + appended.number, appended.message, CASE appended.number WHEN 1 THEN $4 END
    FROM unnest($2) WITH ORDINALITY AS appended (message, number)
";

const WAS_APPENDED: &str = "SELECT 1 FROM @messages WHERE conversation = $1 AND token = $2";

/// Removes a conversation: the lock first, so that the other statements see what others have appended. Messages follow their conversation.
const REMOVE: [&str; 3] = [
    "SELECT 1 FROM @conversations WHERE id = $1 FOR UPDATE",
    "DELETE FROM @conversations WHERE id = $1",
    "DELETE FROM @summaries WHERE conversation = $1",
];

const LOAD: &str = "SELECT number, message FROM @messages WHERE conversation = $1 ORDER BY number";

const STORE_SUMMARY: &str = "
    INSERT INTO @summaries (conversation, summary) VALUES ($1, $2)
    ON CONFLICT (conversation) DO UPDATE SET summary = excluded.summary
";

/// Messages that are added.
struct Append {
    conversation: String,
    messages: Vec<String>,
    /// Identifies this append.
    token: String,
    count: String,
    append: String,
    was_appended: String,
    /// The statements that remove the earlier messages, if they do not stay.
    remove: Vec<String>,
}

impl Append {
    async fn append(&self, client: &Client, attempt: Attempt) -> Result<(), PostgresError> {
        let Self { conversation, messages, token, .. } = self;
        let (id, count) =
            ((conversation as _, Type::TEXT), i64::try_from(messages.len()).unwrap_or_default());
        // Behind an earlier attempt that is still in progress.
        if attempt.is_repeated && count > 0 {
            client.query_typed(&self.count, &[(conversation, Type::TEXT), (&0_i64, Type::INT8)]).await?;
            let values = [(conversation as _, Type::TEXT), (token as _, Type::TEXT)];
            if !client.query_typed(&self.was_appended, &values).await?.is_empty() {
                return Ok(());
            }
        }
        for statement in &self.remove {
            client.query_typed(statement, &[(conversation, Type::TEXT)]).await?;
        }
        // Nothing to add is no conversation.
        if count > 0 {
            let counted = client.query_typed(&self.count, &[id, (&count, Type::INT8)]).await?;
            let before = counted.first().map_or(0, |row| row.get::<_, i64>(0)) - count;
            let values = [
                (conversation as _, Type::TEXT),
                (messages as _, Type::TEXT_ARRAY),
                (&before as _, Type::INT8),
                (token as _, Type::TEXT),
            ];
            client.execute_typed(&self.append, &values).await?;
        }
        Ok(())
    }
}

impl PostgresStore {
    fn write<'a>(
        &'a self,
        id: &'a ConversationId,
        messages: &'a [Message],
        remove: &'static [&'static str],
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let append = Append {
                conversation: stored_id(id)?,
                messages: messages.iter().map(serde_json::to_string).collect::<Result<_, _>>()?,
                token: format!("{:032x}", fastrand::u128(..)),
                count: self.sql(COUNT),
                append: self.sql(APPEND),
                was_appended: self.sql(WAS_APPENDED),
                remove: remove.iter().map(|sql| self.sql(sql)).collect(),
            };
            let write = self.perform(Key::conversation(id), append, |client, append, attempt| {
                transaction(client, append.append(client, attempt)).boxed()
            });
            write.await
        })
    }
}

impl ChatStore for PostgresStore {
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
        let values = (self.sql(LOAD), id.clone());
        self.perform(Key::conversation(id), values, |client, (sql, id), _| {
            async move {
                let rows = client.query_typed(sql, &[(&stored_id(id)?, Type::TEXT)]).await?;
                let messages = rows.iter().map(|row| {
                    let (number, message): (i64, &str) = (row.get(0), row.get(1));
                    serde_json::from_str(message).map_err(|error| {
                        let what = format!("message {number} of the conversation");
                        PostgresError::corrupt(&what, &error, "delete the row or clear the conversation")
                    })
                });
                messages.collect()
            }
            .boxed()
        })
    }

    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        self.write(id, messages, &[])
    }

    fn replace<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        self.write(id, messages, &REMOVE)
    }

    fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()> {
        self.write(id, &[], &REMOVE)
    }

    fn store_summary<'a>(
        &'a self,
        id: &'a ConversationId,
        summary: &'a CompactionSummary,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let values = (self.sql(STORE_SUMMARY), stored_id(id)?, serde_json::to_string(summary)?);
            let key = Key::conversation(id);
            let store = self.perform(key, values, |client, (sql, id, summary), _| {
                let storing = async move {
                    client.execute_typed(sql, &[(id, Type::TEXT), (summary, Type::TEXT)]).await?;
                    Ok(())
                };
                transaction(client, storing).boxed()
            });
            store.await
        })
    }

    fn load_summary<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<CompactionSummary>> {
        let values = (self.sql("SELECT summary FROM @summaries WHERE conversation = $1"), id.clone());
        self.perform(Key::conversation(id), values, |client, (sql, id), _| {
            async move {
                let rows = client.query_typed(sql, &[(&stored_id(id)?, Type::TEXT)]).await?;
                let Some(row) = rows.first() else { return Ok(None) };
                let summary = serde_json::from_str(row.get(0)).map_err(|error| {
                    PostgresError::corrupt("the summary of the conversation", &error, "delete the row")
                });
                summary.map(Some)
            }
            .boxed()
        })
    }

    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
        let sql = self.sql("SELECT id FROM @conversations ORDER BY id");
        self.perform(Key::All, sql, |client, sql, _| {
            async move {
                let rows = client.query_typed(sql, &[]).await?;
                let mut ids: Vec<_> = rows.iter().map(|row| read_id(row.get(0))).collect();
                // Stored ids are ordered otherwise if they have a backslash or NUL.
                ids.sort_unstable();
                Ok(ids.into_iter().map(ConversationId::from).collect())
            }
            .boxed()
        })
    }
}
