//! A login that a run waits for: its user reads where to log in, and answers afterwards, which any process can take.
//!
//! This holds for logins whose redirect comes to a route of the program. The others happen in front of the user, while the call waits.

use serde::{Deserialize, Serialize};
use tool_core::tool::{AskErrorKind, Asker};
use tool_core::{ToolContext, ToolError};

use super::config::ServerConfig;
use super::text::truncate_name;
use super::{McpError, McpErrorKind};
use crate::oauth::LoginPrompt;

/// Where the user logs in.
#[derive(Serialize, Deserialize)]
pub(super) struct LoginPage {
    issuer: String,
    url: String,
}

impl LoginPage {
    pub(super) fn new(prompt: LoginPrompt) -> Self {
        Self { issuer: prompt.issuer, url: prompt.url }
    }

    /// Starts the login that a call of a run needs.
    ///
    /// # Errors
    ///
    /// Returns the error of the call if it is another one, or if nobody can be asked to log in at a page; otherwise the reason why the login
    /// cannot be started.
    pub(super) async fn for_call(
        config: &ServerConfig,
        context: &ToolContext,
        error: McpError,
    ) -> Result<Self, McpError> {
        let is_login = error.kind() == McpErrorKind::LoginRequired && context.asker().can_ask();
        let session = config.session().filter(|session| is_login && session.has_route());
        let Some(session) = session else { return Err(error) };
        let started = session.start_for_route(true).await;
        let failed = |reason| McpError::from_oauth_error(&config.name, &reason, &config.redactor);
        started.map(Self::new).map_err(failed)
    }

    /// Waits until the user has logged in, by their own words: the next request shows whether it is true.
    ///
    /// # Errors
    ///
    /// Returns an error for the model if the user does not log in.
    pub(super) async fn show(&self, server: &str, asker: &Asker) -> Result<(), ToolError> {
        let Self { issuer, url } = self;
        let name = truncate_name(server);
        let text =
            format!("The server `{name}` needs you to log in at {issuer}:\n{url}\nHave you logged in?");
        let not_logged_in = || McpError::not_logged_in(server);
        match asker.ask::<bool>(text).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(ToolError::failed(not_logged_in())),
            Err(refusal) => Err(match refusal.kind() {
                AskErrorKind::Declined | AskErrorKind::Expired | AskErrorKind::Unavailable => {
                    ToolError::failed(not_logged_in())
                }
                _ => refusal.into(),
            }),
        }
    }
}
