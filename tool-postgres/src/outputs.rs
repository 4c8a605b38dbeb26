//! Outputs that are too long for a request.

use futures_util::FutureExt;
use tokio_postgres::types::Type;
use tool_core::run::RunId;
use tool_core::store::{OutputStore, StoreFuture};

use crate::error::{PostgresError, PostgresErrorKind};
use crate::store::{Key, PostgresStore, stored_id, transaction};

/// An output can contain NUL, which no text can.
const STORE: &str = "
    INSERT INTO @outputs (run, call, output) VALUES ($1, $2, $3)
    ON CONFLICT (run, call) DO UPDATE SET output = excluded.output
";

impl OutputStore for PostgresStore {
    fn store_output<'a>(&'a self, run: &'a RunId, call: &'a str, output: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let values = (self.sql(STORE), stored_id(run)?, stored_id(call)?, output.as_bytes().to_vec());
            let store = self.perform(Key::run(run), values, |client, values, _| {
                let (sql, run, call, output) = values;
                async move {
                    let values =
                        [(run as _, Type::TEXT), (call as _, Type::TEXT), (output as _, Type::BYTEA)];
                    client.execute_typed(sql, &values).await?;
                    Ok(())
                }
                .boxed()
            });
            store.await
        })
    }

    fn load_output<'a>(&'a self, run: &'a RunId, call: &'a str) -> StoreFuture<'a, Option<String>> {
        let sql = self.sql("SELECT output FROM @outputs WHERE run = $1 AND call = $2");
        let values = (sql, run.to_string(), call.to_owned());
        self.perform(Key::run(run), values, |client, (sql, run, call), _| {
            async move {
                let (run, call) = (stored_id(run)?, stored_id(call)?);
                let rows = client.query_typed(sql, &[(&run, Type::TEXT), (&call, Type::TEXT)]).await?;
                let Some(row) = rows.first() else { return Ok(None) };
                let output = String::from_utf8(row.get(0)).map_err(|_| {
                    PostgresError::new(
                        PostgresErrorKind::Corrupt,
                        "a stored output is no text; delete the row",
                    )
                });
                output.map(Some)
            }
            .boxed()
        })
    }

    fn remove_outputs<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        let values = (self.sql("DELETE FROM @outputs WHERE run = $1"), run.to_string());
        self.perform(Key::run(run), values, |client, (sql, run), _| {
            let removing = async move {
                client.execute_typed(sql, &[(&stored_id(run)?, Type::TEXT)]).await?;
                Ok(())
            };
            transaction(client, removing).boxed()
        })
    }
}
