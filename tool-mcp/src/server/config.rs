//! The configuration of a server.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use rmcp::model::Implementation;
use tool_core::model::RunUser;
use tool_core::store::RunStore;
use tool_core::{Tool, ToolContext};
use tool_http::server::{Access, Limits};

use super::authorize::Principal;
use super::decider::ServerDecider;
use super::error::ServerError;
use super::output::OutputSchema;
use super::protected_resource::{Protection, is_scope};

/// Says whose calls the calls of a request are, from the headers of an admitted request.
pub(super) type ChooseUser = dyn Fn(&HeaderMap) -> Option<RunUser> + Send + Sync;

pub(super) struct Config {
    pub(super) implementation: Implementation,
    pub(super) instructions: Option<String>,
    pub(super) context: ToolContext,
    pub(super) output_schemas: BTreeMap<String, OutputSchema>,
    /// The scopes that calls of tools need.
    pub(super) scopes: BTreeMap<String, Vec<String>>,
    /// A tool is listed only for senders with its scopes.
    pub(super) hides_tools: bool,
    pub(super) allows_unapproved: bool,
    pub(super) decider: Option<ServerDecider>,
    /// Where calls that wait are stored, for hosts that follow tasks.
    pub(super) task_store: Option<Arc<dyn RunStore>>,
    pub(super) task_lifetime: Duration,
    /// The tools whose calls are tasks from the beginning.
    pub(super) long_calls: BTreeSet<String>,
    pub(super) page_size: usize,
    pub(super) records_messages: bool,
    pub(super) http: HttpConfig,
}

/// The configuration that applies only to HTTP.
#[derive(Clone)]
pub(super) struct HttpConfig {
    pub(super) access: Access,
    pub(super) choose_user: Option<Arc<ChooseUser>>,
    pub(super) protection: Option<Protection>,
    pub(super) allows_remote: bool,
    pub(super) limits: Limits,
    pub(super) max_sessions: usize,
    pub(super) session_idle_timeout: Duration,
}

impl Config {
    /// Returns what calls have, by which the tools are checked. Each call has the user of its own request.
    pub(super) fn checked_context(&self) -> ToolContext {
        let HttpConfig { choose_user, protection, .. } = &self.http;
        let principal = protection.as_ref().map(|_| Principal::new("", [""; 0]));
        let user = choose_user.as_ref().map(|_| RunUser::new(""));
        self.context_of(user.or_else(|| Some(principal.as_ref()?.user().clone())), principal)
    }

    /// Returns the context of the calls of a request.
    pub(super) fn context_of(&self, user: Option<RunUser>, principal: Option<Principal>) -> ToolContext {
        let context = user.into_iter().fold(self.context.clone(), ToolContext::with);
        principal.into_iter().fold(context, ToolContext::with)
    }

    /// Returns the scopes that a call of a tool needs, if the sender of its request lacks some of them. Over stdio, where the host is the
    /// user, there are no scopes.
    pub(super) fn missing_scopes(&self, tool: &str, principal: Option<&Principal>) -> Option<&[String]> {
        let (principal, scopes) = (principal?, self.scopes.get(tool)?);
        (!scopes.iter().all(|scope| principal.has_scope(scope))).then_some(scopes)
    }

    /// Returns `true` if the sender of a request learns of a tool.
    pub(super) fn is_visible(&self, tool: &str, principal: Option<&Principal>) -> bool {
        !self.hides_tools || self.missing_scopes(tool, principal).is_none()
    }

    /// Checks that requests can be authorized.
    pub(super) fn check_authorization(&self) -> Result<(), ServerError> {
        let HttpConfig { access, choose_user, protection, .. } = &self.http;
        let problem = match protection {
            None if !self.scopes.is_empty() => Some("tools need scopes; add `protect`".to_owned()),
            None => None,
            Some(_) if access.has_keys() => {
                Some("`bearer_token` and `protect` both decide about tokens; use one of them".to_owned())
            }
            Some(_) if choose_user.is_some() => {
                Some("`user` and `protect` both decide about users; use one of them".to_owned())
            }
            Some(protection) => protection.problem(),
        };
        let mut scopes = self.scopes.values().flatten();
        let problem = problem.or_else(|| {
            let invalid = scopes.find(|scope| !is_scope(scope))?;
            Some(format!("`{}` is not a scope", invalid.escape_debug()))
        });
        problem.map_or(Ok(()), |problem| Err(ServerError::authorization(&problem)))
    }

    /// Returns the hash of the definition for which the calls of a tool are approved, unless the decider is asked.
    pub(super) fn approved(&self, tool: &dyn Tool) -> Option<String> {
        let definition = tool.definition();
        let is_asked = definition.policy().needs_approval && self.decider.is_some();
        (!is_asked).then(|| definition.hash().to_owned())
    }

    /// Returns the name of the agent whose runs are tasks.
    pub(super) fn task_agent_name(&self) -> String {
        format!("tasks of {}", self.implementation.name)
    }

    /// Returns `true` if tools that need approval are served.
    pub(super) fn serves_tools_with_approval(&self) -> bool {
        self.allows_unapproved || self.decider.is_some()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            implementation: Implementation::new(executable_name(), env!("CARGO_PKG_VERSION")),
            instructions: None,
            context: ToolContext::new(),
            output_schemas: BTreeMap::new(),
            scopes: BTreeMap::new(),
            hides_tools: false,
            allows_unapproved: false,
            decider: None,
            task_store: None,
            task_lifetime: Duration::from_secs(24 * 60 * 60),
            long_calls: BTreeSet::new(),
            page_size: 100,
            records_messages: false,
            http: HttpConfig::default(),
        }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            access: Access::default(),
            choose_user: None,
            protection: None,
            allows_remote: false,
            // A call of a session continues when its connection ends, so the number of connections does not limit calls.
            limits: Limits { max_concurrent_requests: Some(1024), ..Limits::default() },
            max_sessions: 1000,
            session_idle_timeout: Duration::from_secs(60 * 60),
        }
    }
}

fn executable_name() -> String {
    let executable = env::args_os().next().unwrap_or_default();
    let name = Path::new(&executable).file_stem().and_then(|name| name.to_str());
    name.filter(|name| !name.is_empty()).unwrap_or("tools").to_owned()
}
