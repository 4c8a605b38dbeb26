//! What determines the form of a request.

use std::sync::Arc;

use crate::endpoint::Endpoint;

/// The endpoint that messages are encoded for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dialect {
    pub(super) endpoint: Arc<Endpoint>,
    /// The name under which the endpoint's provider data is stored.
    pub(super) provider: Arc<str>,
}
