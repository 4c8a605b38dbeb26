//! The tables, and their versions.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::error::{PostgresError, PostgresErrorKind};

/// An incompatible change increments it.
const VERSION: i32 = 1;

/// The name of a schema, quoted.
#[derive(Clone, Debug)]
pub(crate) struct Schema(String);

impl Schema {
    pub(crate) fn new(name: &str) -> Result<Self, PostgresError> {
        if name.is_empty() || name.len() > 63 || name.contains('\0') {
            let message = "the name of the schema must have 1 to 63 bytes without NUL";
            return Err(PostgresError::new(PostgresErrorKind::Config, message));
        }
        Ok(Self(format!("\"{}\"", name.replace('"', "\"\""))))
    }

    /// Returns a statement in which `@` stands for the schema.
    pub(crate) fn sql(&self, statement: &str) -> String {
        statement.replace('@', &format!("{}.", self.0))
    }

    /// Creates the schema and the tables, or updates those of an earlier version, in one transaction. Of several programs that do so at once, one
    /// does it, and the others find it done.
    pub(crate) async fn migrate(&self, client: &Client) -> Result<(), PostgresError> {
        let lock = format!(
            "BEGIN; SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('{LOCK}', 0::bigint))"
        );
        client.batch_execute(&lock).await?;
        let migrated = self.migrate_locked(client).await;
        let end = if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" };
        client.batch_execute(end).await.map_err(PostgresError::from).and(migrated)
    }

    async fn migrate_locked(&self, client: &Client) -> Result<(), PostgresError> {
        match self.version(client).await? {
            Some(VERSION) => Ok(()),
            Some(other) => Err(other_version(other)),
            None => {
                let exists =
                    "SELECT 1 FROM pg_namespace WHERE '\"' || replace(nspname, '\"', '\"\"') || '\"' = $1";
                // A role may own a schema without the right to create one.
                if client.query_typed(exists, &[(&self.0, Type::TEXT)]).await?.is_empty() {
                    client.batch_execute(&format!("CREATE SCHEMA {}", self.0)).await?;
                }
                client.batch_execute(&self.sql(TABLES)).await?;
                let insert = self.sql("INSERT INTO @tool_tables (version) VALUES ($1)");
                client.execute_typed(&insert, &[(&VERSION, Type::INT4)]).await?;
                Ok(())
            }
        }
    }

    /// Checks that the tables are there, in this version.
    pub(crate) async fn check(&self, client: &Client) -> Result<(), PostgresError> {
        match self.version(client).await? {
            Some(VERSION) => Ok(()),
            Some(other) => Err(other_version(other)),
            None => {
                let message =
                    format!("the schema {} has no tables of this store; call `migrate` once", self.0);
                Err(PostgresError::new(PostgresErrorKind::Tables, message))
            }
        }
    }

    async fn version(&self, client: &Client) -> Result<Option<i32>, PostgresError> {
        let table = format!("{}.tool_tables", self.0);
        let exists = "SELECT to_regclass($1) IS NOT NULL";
        let exists = client.query_typed(exists, &[(&table, Type::TEXT)]).await?;
        if !exists.first().is_some_and(|row| row.get(0)) {
            return Ok(None);
        }
        let rows = client.query_typed(&self.sql("SELECT max(version) FROM @tool_tables"), &[]).await?;
        Ok(rows.first().and_then(|row| row.get(0)))
    }
}

fn other_version(found: i32) -> PostgresError {
    let way_out = match found > VERSION {
        true => "update the program",
        false => "call `migrate` once",
    };
    let message =
        format!("the tables have version {found}, but this program supports version {VERSION}; {way_out}");
    PostgresError::new(PostgresErrorKind::Tables, message)
}

/// What is locked while tables are created.
const LOCK: &str = "tool-postgres migrate";

/// Ids are compared by their bytes, whatever the collation of the database. No index has a time or a revision, so that most saves of a run change
/// no index.
const TABLES: &str = "
    CREATE TABLE @tool_tables (version integer PRIMARY KEY);
    CREATE TABLE @conversations (
        id text COLLATE \"C\" PRIMARY KEY, messages bigint NOT NULL
    ) WITH (fillfactor = 70);
    CREATE TABLE @messages (
        conversation text COLLATE \"C\" NOT NULL REFERENCES @conversations ON DELETE CASCADE,
        number bigint NOT NULL, message text NOT NULL, token text, PRIMARY KEY (conversation, number)
    );
    CREATE TABLE @summaries (conversation text COLLATE \"C\" PRIMARY KEY, summary text NOT NULL);
    CREATE TABLE @runs (
        id text COLLATE \"C\" PRIMARY KEY, run text COLLATE \"C\" NOT NULL, revision text NOT NULL, summary text NOT NULL,
        status text COLLATE \"C\" NOT NULL, agent text COLLATE \"C\", conversation text COLLATE \"C\", run_user text COLLATE \"C\",
        updated timestamptz NOT NULL, finished timestamptz
    ) WITH (fillfactor = 70);
    CREATE INDEX runs_by_status ON @runs (status);
    CREATE INDEX runs_by_agent ON @runs (agent);
    CREATE INDEX runs_by_conversation ON @runs (conversation);
    CREATE INDEX runs_by_user ON @runs (run_user);
    CREATE INDEX runs_by_end ON @runs (finished) WHERE finished IS NOT NULL;
    CREATE TABLE @run_parts (
        run text COLLATE \"C\" NOT NULL, key text COLLATE \"C\" NOT NULL, part text NOT NULL, PRIMARY KEY (run, key)
    ) WITH (fillfactor = 70);
    CREATE TABLE @run_log (
        run text COLLATE \"C\" NOT NULL, position bigint NOT NULL, entry text NOT NULL, PRIMARY KEY (run, position)
    );
    CREATE TABLE @removed_runs (run text COLLATE \"C\" PRIMARY KEY, removed timestamptz NOT NULL);
    CREATE INDEX removed_runs_by_time ON @removed_runs (removed);
    CREATE TABLE @leases (
        run text COLLATE \"C\" PRIMARY KEY, driver text NOT NULL, expires timestamptz NOT NULL, duration interval NOT NULL
    ) WITH (fillfactor = 50);
    CREATE TABLE @inbox (
        run text COLLATE \"C\" NOT NULL, id text COLLATE \"C\" NOT NULL, number bigint GENERATED ALWAYS AS IDENTITY,
        command text NOT NULL, bytes bigint, PRIMARY KEY (run, id)
    );
    CREATE TABLE @outputs (
        run text COLLATE \"C\" NOT NULL, call text COLLATE \"C\" NOT NULL, output bytea NOT NULL, PRIMARY KEY (run, call)
    );
    CREATE TABLE @budgets (
        key text COLLATE \"C\" NOT NULL, starts bigint NOT NULL, ends bigint NOT NULL, spent bigint NOT NULL,
        PRIMARY KEY (key, starts)
    ) WITH (fillfactor = 50);
    CREATE INDEX budgets_by_end ON @budgets (ends);
    CREATE TABLE @budget_reservations (
        id text COLLATE \"C\" PRIMARY KEY, key text COLLATE \"C\" NOT NULL, starts bigint NOT NULL, amount bigint NOT NULL,
        expires bigint NOT NULL, is_remainder boolean NOT NULL
    );
    CREATE INDEX budget_reservations_by_key ON @budget_reservations (key, starts) WHERE is_remainder;
    CREATE INDEX budget_reservations_by_expiry ON @budget_reservations (expires);
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_schema_is_quoted() {
        let schema = Schema::new("a\"; DROP TABLE x --").unwrap();
        assert_eq!(schema.sql("SELECT 1 FROM @runs"), "SELECT 1 FROM \"a\"\"; DROP TABLE x --\".runs");
        for wrong in ["", "a\0b", &"x".repeat(64)] {
            assert_eq!(Schema::new(wrong).unwrap_err().kind(), PostgresErrorKind::Config);
        }
    }
}
