//! What determines the form of a request.

use std::sync::Arc;

use crate::endpoint::Endpoint;

/// The endpoint that messages are encoded for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dialect {
    pub(super) endpoint: Arc<Endpoint>,
    /// The name under which the endpoint's provider data is stored.
    pub(super) provider: Arc<str>,
    /// The provider stores the responses.
    pub(super) is_stored: bool,
}

/// The form in which the response reports the model's reasoning.
#[derive(Clone, Default)]
pub(super) struct ReasoningOptions {
    /// If `None`, it depends on the options and the model's name.
    pub(super) is_encrypted: Option<bool>,
    pub(super) summary: Option<String>,
}
