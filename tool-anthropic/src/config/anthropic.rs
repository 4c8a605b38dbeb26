//! A server with Anthropic's Messages API.

use std::fmt;
use std::sync::Arc;

use crate::client::Client;
use crate::messages::Messages;

/// A server with Anthropic's Messages API. Clones share its connections.
#[derive(Clone)]
pub struct Anthropic(pub(super) Arc<Client>);

impl Anthropic {
    /// Returns a model of this endpoint, such as `claude-sonnet-5-5`.
    pub fn chat_model(&self, name: impl Into<String>) -> Messages {
        Messages::new(Arc::clone(&self.0), name.into())
    }
}

/// Shows the base URL, never the key.
impl fmt::Debug for Anthropic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Anthropic").field(&self.0).finish()
    }
}
