//! A login that a run waits for: its user reads where to log in, and answers afterwards, which any process can take.
//!
//! The question leads to a page of the program, which starts the login in the session of its user. It has no authorization URL, because whoever
//! reads a run could log in to an account of their own with it, and lead the user to the redirect.

use serde::{Deserialize, Serialize};
use tool_core::tool::{AskError, AskErrorKind, Asker};
use tool_core::{ToolContext, ToolError};

use super::config::ServerConfig;
use super::text::truncate_name;
use super::{McpError, McpErrorKind};

/// The page of the program where the user starts the login.
#[derive(Serialize, Deserialize)]
pub(super) struct LoginPage {
    page: String,
}

impl LoginPage {
    /// Returns the page of a server that has one.
    pub(super) fn of(config: &ServerConfig) -> Option<Self> {
        Some(Self { page: config.session()?.page()?.to_owned() })
    }

    /// Returns the page of the login that a call of a run needs.
    ///
    /// # Errors
    ///
    /// Returns the error of the call if it is another one, or if nobody can be asked to log in at a page.
    pub(super) fn for_call(
        config: &ServerConfig,
        context: &ToolContext,
        error: McpError,
    ) -> Result<Self, McpError> {
        let is_login = error.kind() == McpErrorKind::LoginRequired && context.asker().can_ask();
        Self::of(config).filter(|_| is_login).ok_or(error)
    }

    /// Waits until the user has logged in, like [`confirm`](Self::confirm).
    ///
    /// # Errors
    ///
    /// Returns an error for the model if the user does not log in.
    pub(super) async fn show(&self, server: &str, asker: &Asker) -> Result<(), ToolError> {
        match self.confirm(server, asker).await? {
            true => Ok(()),
            false => Err(ToolError::failed(McpError::not_logged_in(server))),
        }
    }

    /// Waits until the user has logged in, by their own words: the next request shows whether it is true. Returns `false` if the user does not
    /// log in.
    pub(super) async fn confirm(&self, server: &str, asker: &Asker) -> Result<bool, AskError> {
        let (name, page) = (truncate_name(server), &self.page);
        let text = format!("The server `{name}` needs you to log in:\n{page}\nHave you logged in?");
        match asker.ask(text).await {
            Err(refusal) => match refusal.kind() {
                AskErrorKind::Declined | AskErrorKind::Expired | AskErrorKind::Unavailable => Ok(false),
                _ => Err(refusal),
            },
            answer => answer,
        }
    }
}
