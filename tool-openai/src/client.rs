//! The connections to an endpoint.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use reqwest::Url;
use tool_http::client::{Connection, RetryPolicy};

use crate::endpoint::Endpoint;
use crate::warning::WarningHook;

/// The connections to one endpoint and its configuration.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) retry: RetryPolicy,
    pub(crate) on_warning: Option<WarningHook>,
    /// The contexts that are known, in tokens, by the names of the models. `None` stands for one that the server does not report.
    pub(crate) contexts: Mutex<HashMap<String, Option<u64>>>,
}

impl Client {
    /// Returns the URL of an API for a model. The base URL keeps its path and query.
    pub(crate) fn url(&self, api: &str, model: &str) -> Url {
        let (path, query) = self.endpoint.path(api, model);
        let mut url = self.connection.url(&path);
        if let Some((name, value)) = query {
            url.query_pairs_mut().append_pair(name, value);
        }
        url
    }

    /// Returns the provider's name for traces.
    pub(crate) fn name(&self) -> &str {
        self.endpoint.name.as_deref().unwrap_or("openai")
    }

    /// Returns the name under which an API of this endpoint stores its provider data.
    pub(crate) fn provider(&self, api: &str) -> String {
        let Endpoint { name, base_url, .. } = &*self.endpoint;
        format!("{}/{api}", self.connection.server_name(name.as_deref(), base_url.as_deref()))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("connection", &self.connection).finish_non_exhaustive()
    }
}
