//! Where connections come from: a pool of the store's own, or the program.

use std::ops::DerefMut;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::runtime::Handle;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{PostgresError, PostgresErrorKind};

/// The longest wait for a connection that is free, and for a new one.
const PATIENCE: Duration = Duration::from_secs(10);

type Lend = dyn Fn() -> BoxFuture<'static, Result<Box<dyn Lent>, PostgresError>> + Send + Sync;

/// A connection of the program.
pub(crate) trait Lent: Send {
    fn client(&mut self) -> &mut Client;
}

impl<C: DerefMut<Target = Client> + Send> Lent for C {
    fn client(&mut self) -> &mut Client {
        self
    }
}

#[derive(Clone)]
pub(crate) enum Clients {
    Own(Pool),
    OfProgram(Arc<Lend>),
}

/// A connection that is used for one operation. If that does not end, the connection may be in the middle of a transaction.
pub(crate) struct Connection(Option<Held>);

enum Held {
    Own(Box<Object>),
    OfProgram(Box<dyn Lent>),
}

impl Connection {
    pub(crate) fn client(&mut self) -> Option<&mut Client> {
        Some(match self.0.as_mut()? {
            Held::Own(object) => object,
            Held::OfProgram(lent) => lent.client(),
        })
    }

    /// Returns the connection, which is outside of a transaction.
    pub(crate) fn give_back(mut self) {
        self.0 = None;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        match self.0.take() {
            // Closed.
            Some(Held::Own(object)) => drop(Object::take(*object)),
            // The program may lend it again, but not in the middle of a transaction.
            Some(Held::OfProgram(mut lent)) => {
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(async move {
                        let ended = lent.client().batch_execute("ROLLBACK");
                        let _ = tokio::time::timeout(6 * PATIENCE, ended).await;
                    });
                }
            }
            None => {}
        }
    }
}

impl Clients {
    /// Returns a pool of connections to a database.
    pub(crate) fn connect(url: &str, max_connections: usize) -> Result<Self, PostgresError> {
        // Its error could name the password.
        // Certificates are verified wherever there are some.
        let url = url
            .replace("sslmode=verify-full", "sslmode=require")
            .replace("sslmode=verify-ca", "sslmode=require");
        let config: Config = url.parse().map_err(|_| {
            let message =
                "the URL of the database is invalid; write `postgres://user:password@host/database`";
            PostgresError::new(PostgresErrorKind::Config, message)
        })?;
        let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let config = with_defaults(config);
        let manager = match config.get_ssl_mode() {
            SslMode::Disable => Manager::from_config(config, NoTls, manager_config),
            _ => Manager::from_config(config, MakeRustlsConnect::new(tls()?), manager_config),
        };
        let pool = Pool::builder(manager)
            .runtime(Runtime::Tokio1)
            .max_size(max_connections.max(1))
            .wait_timeout(Some(PATIENCE))
            .create_timeout(Some(PATIENCE))
            .recycle_timeout(Some(PATIENCE))
            .build();
        let message = "the pool of connections cannot be created";
        let pool =
            pool.map_err(|error| PostgresError::new(PostgresErrorKind::Config, message).with_source(error));
        Ok(Self::Own(pool?))
    }

    pub(crate) fn of_program<C, E, F>(lend: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        C: DerefMut<Target = Client> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
        F: Future<Output = Result<C, E>> + Send + 'static,
    {
        let lend = move || {
            let lent = lend();
            let lent = async move {
                match tokio::time::timeout(PATIENCE, lent).await {
                    Ok(Ok(client)) => Ok(Box::new(client) as Box<dyn Lent>),
                    Ok(Err(error)) => {
                        let message = "the program has given no connection";
                        Err(PostgresError::new(PostgresErrorKind::Connection, message).with_source(error))
                    }
                    Err(_) => {
                        let message = format!("the program has given no connection within {PATIENCE:?}");
                        Err(PostgresError::new(PostgresErrorKind::NoConnectionFree, message))
                    }
                }
            };
            lent.boxed()
        };
        Self::OfProgram(Arc::new(lend))
    }

    /// Returns a connection, within a limit of time.
    pub(crate) async fn get(&self) -> Result<Connection, PostgresError> {
        match self {
            Self::Own(pool) => Ok(Connection(Some(Held::Own(Box::new(pool.get().await?))))),
            Self::OfProgram(lend) => Ok(Connection(Some(Held::OfProgram(lend().await?)))),
        }
    }
}

/// Sets what a dead server or network must not hang in.
fn with_defaults(mut config: Config) -> Config {
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(PATIENCE);
    }
    // After a failover, the other server takes no writes.
    if config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    if config.get_application_name().is_none() {
        config.application_name("tool-postgres");
    }
    config.tcp_user_timeout(Duration::from_secs(30));
    config.keepalives_idle(Duration::from_secs(30));
    config
}

/// Certificates are checked by the rules of the platform, also at `sslmode=require`.
fn tls() -> Result<ClientConfig, PostgresError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier);
    let message = "the certificates of the platform cannot be read; with `sslmode=disable`, connections are not encrypted";
    let config =
        config.map_err(|error| PostgresError::new(PostgresErrorKind::Config, message).with_source(error));
    Ok(config?.with_no_client_auth())
}
