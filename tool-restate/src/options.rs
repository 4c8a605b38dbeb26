//! What the services of all workers have in common.

use std::time::Duration;

use restate_sdk::prelude::*;
use restate_sdk::service::macro_support::{ServiceBoxFuture, service_definition};
use restate_sdk::service::{Discoverable, Service};

use crate::checks::WorkerError;

/// The key of the version among the metadata of the services.
pub(crate) const VERSION: &str = "version";

/// The time for which the engine stores the outcome of a run by default, and of a call that undoes another.
pub(crate) const RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The longest time for which the engine stores the steps of what has ended.
pub(crate) const JOURNAL_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the options of all services. A worker that is gone is tried again without end, because the engine would pause the runs
/// otherwise, and soon enough after it has come back.
pub(crate) fn service_options(version: &str) -> ServiceOptions {
    ServiceOptions::new()
        .metadata(VERSION, version)
        .retry_policy_initial_interval(Duration::from_millis(100))
        .retry_policy_exponentiation_factor(2.0)
        .retry_policy_max_interval(Duration::from_secs(5))
        .retry_policy_max_attempts(1_000_000_000)
}

/// Returns the definition of a service under a name that is known at run time only, which the SDK's options cannot set.
pub(crate) fn named<S>(service: S, name: &str) -> Result<ServiceDefinition, WorkerError>
where
    S: Service<Future = ServiceBoxFuture> + Discoverable + Send + Sync + 'static,
{
    let mut discovery = S::discover();
    discovery.name = name
        .parse()
        .map_err(|_| WorkerError::Name(format!("the engine does not accept the name `{name}`")))?;
    Ok(service_definition(service, discovery))
}
