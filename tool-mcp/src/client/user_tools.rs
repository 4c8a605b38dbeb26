//! The tools of a server with a connection for each user.
//!
//! Nothing of a user is shared with another one: neither the connection, whose session and stored lists are of its token, nor the list of tools.
//!
//! A run waits before its turn until its user has logged in to a server that lists its tools only then. Without an optional server, and after the
//! user has declined, the run goes on: one tool takes the place of all of the server's, and the run of a model that calls it waits.
//!
//! The number of connections is bounded. Those of runs in progress are never closed, because calls would be lost; so the pool lets go of the
//! least recently used one, and goes on with a weak reference to it as long as a run holds its tools.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;
use tool_core::model::{Message, RunUser, ToolDefinition};
use tool_core::tool::DynamicTool;
use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest};
use tool_core::{Tool, ToolCall, ToolContext, ToolError, ToolSet};

use super::connection_manager::ConnectionManager;
use super::login_page::LoginPage;
use super::text::truncate_name;
use super::tool_name::sanitize_tool_name;
use super::{McpError, McpErrorKind, McpServer, McpTools};

/// The number of users that are connected at a time by default.
const MAX_USERS: usize = 100;

/// The number of times that a run asks its user to log in before a turn.
const MAX_LOGIN_QUESTIONS: usize = 3;

type Credentials = Arc<dyn Fn(McpServer, &RunUser) -> McpServer + Send + Sync>;
type Mapping = Arc<dyn Fn(McpTools) -> McpTools + Send + Sync>;

/// Empty while the user connects.
type Tools = Arc<OnceCell<McpTools>>;

/// The tools of an MCP server, with a connection, a list of tools and a login for each [user](tool_core::agent::Ask::user). Created by
/// [`McpServer::per_user`].
///
/// As a [`tool_provider`](tool_core::agent::AgentBuilder::tool_provider) of an agent, they connect when a run of the user first needs them. With
/// [`OAuth`](crate::oauth::OAuth), each user has a login of their own. Runs without a user share a connection that is not that of any user,
/// with the login of the program.
///
/// If the user has to log in at a [page](crate::oauth::Login::page) before the server lists its tools, the run waits before its turn, like one that
/// asks a question: the question has the URL of the page, and any process can take the answer. If the user declines, and if the server is
/// [optional](McpServer::optional), the run goes on without the tools: the model is offered the tool `log_in_to_NAME` in place of them, whose call
/// waits in the same way, and they are there from the next turn on. A route without a page lets the run fail, and a login of another kind starts when
/// the tools are needed.
///
/// A run that is resumed with open calls of the server, but without a login, asks before these calls go on. If the user declines, or has answered three
/// times without a login, the run fails with [`McpErrorKind::LoginRequired`](crate::McpErrorKind::LoginRequired), also if the server is optional; its calls
/// stay open, and it can be resumed after the login. On Restate, nobody is asked at that point, and the call fails. If the agent has layers that see
/// calls, the user is asked there as well; a user who declines ends the run, and its calls are undone.
///
/// ```
/// use tool_core::Agent;
/// use tool_core::testing::ScriptedModel;
/// use tool_mcp::McpServer;
///
/// # fn token_of(user: &str) -> String { user.to_owned() }
/// let tickets = McpServer::http("https://tickets.example/mcp")
///     .per_user()
///     .credentials(|server, user| server.bearer_token(token_of(user.as_str())))
///     .map_tools(|tools| tools.prefix("tickets_"));
/// let agent = Agent::builder(ScriptedModel::new()).tool_provider(tickets).build()?;
/// # Ok::<_, tool_core::BuildError>(())
/// ```
#[derive(Clone)]
pub struct McpUserTools {
    server: McpServer,
    name: String,
    credentials: Option<Credentials>,
    mappings: Vec<Mapping>,
    max_users: usize,
    places: Arc<Mutex<Places>>,
}

/// The connections by users; `None` is that of runs without a user.
#[derive(Default)]
struct Places {
    by_user: HashMap<Option<RunUser>, Place>,
    /// Counts the uses of all, to order them.
    uses: u64,
}

/// The connection of a user. Once the pool has let go of it, only runs hold its tools, and it ends with them.
#[derive(Default)]
struct Place {
    tools: Option<Tools>,
    /// A connection that was let go and is still in use.
    released: Weak<ConnectionManager>,
    last_use: u64,
}

impl Place {
    fn is_open(&self) -> bool {
        let is_held = |tools: &Tools| tools.initialized() || Arc::strong_count(tools) > 1;
        self.tools.as_ref().is_some_and(is_held) || self.released.strong_count() > 0
    }
}

impl Places {
    /// Lets go of the least recently used connection. Returns what is to be dropped, which can close it.
    fn release(&mut self) -> Option<Tools> {
        let held = self.by_user.values_mut().filter_map(|place| {
            let manager = Arc::clone(place.tools.as_ref()?.get()?.manager());
            // The calls of waiting runs would end with it.
            manager.held().is_empty().then(|| (Arc::downgrade(&manager), place))
        });
        let (manager, place) = held.min_by_key(|(_, place)| place.last_use)?;
        place.released = manager;
        place.tools.take()
    }
}

impl McpServer {
    /// Returns the tools with a connection and a login for each user of the program. The tools of [`connect`](Self::connect) have the one
    /// connection of this server.
    #[must_use]
    pub fn per_user(self) -> McpUserTools {
        let name = self.server_name().to_owned();
        let (credentials, mappings, places) = (None, Vec::new(), Arc::default());
        McpUserTools { server: self, name, credentials, mappings, max_users: MAX_USERS, places }
    }
}

impl McpUserTools {
    /// Sets a function that adds the credentials of a user to the server, such as a token. [`McpServer::oauth`] needs none.
    #[must_use]
    pub fn credentials(
        mut self,
        add: impl Fn(McpServer, &RunUser) -> McpServer + Send + Sync + 'static,
    ) -> Self {
        self.credentials = Some(Arc::new(add));
        self.places = Arc::default();
        self
    }

    /// Applies a function to the tools of each user, such as [`McpTools::prefix`].
    #[must_use]
    pub fn map_tools(mut self, map: impl Fn(McpTools) -> McpTools + Send + Sync + 'static) -> Self {
        self.mappings.push(Arc::new(map));
        self.places = Arc::default();
        self
    }

    /// Limits the number of users that are connected at a time, 100 by default. The connection that was not used for the longest time is
    /// closed for another user, unless a run uses it, or a call of an older server waits for an answer; if all are in use, the run of that user fails.
    #[must_use]
    pub fn max_users(mut self, users: usize) -> Self {
        self.max_users = users.max(1);
        self
    }

    /// Returns the server as one user has it, to [start](McpServer::start_login) and [finish](McpServer::finish_login) logins.
    #[must_use]
    pub fn server(&self, user: impl Into<RunUser>) -> McpServer {
        let user = user.into();
        let server = self.server.clone().for_user(&user);
        match &self.credentials {
            // A login that the function has added is of the user, too.
            Some(add) => add(server, &user).for_user(&user),
            None => server,
        }
    }

    /// Returns the current tools of a user, or those of runs without one, and connects if necessary.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`McpServer::connect`] and [`McpTools::tools`], and an error if the connections of too many users are in use. It is
    /// also an error if the user of an optional server has to log in at a [page](crate::oauth::Login::page).
    pub async fn tools(&self, user: Option<&RunUser>) -> Result<ToolSet, McpError> {
        let user = user.filter(|user| !user.as_str().is_empty());
        let (place, released) = self.place(user)?;
        let connect = async || {
            if let Some(manager) = released {
                return Ok(self.map(McpTools::new(manager)));
            }
            let server = user.map_or_else(|| self.server.clone(), |user| self.server(user.clone()));
            Ok::<_, McpError>(self.map(server.connect().await?))
        };
        let tools = place.get_or_try_init(connect).await?;
        let set = tools.tools().await?;
        // An optional server has no tools, but its user can log in.
        if set.is_empty()
            && self.page(user).is_some()
            && let Err(error) = tools.listed_tools().await
            && error.kind() == McpErrorKind::LoginRequired
        {
            return Err(error);
        }
        Ok(set)
    }

    /// Ends the login of a user like [`McpServer::log_out`], and closes the connection unless a run uses it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`McpServer::log_out`], and an error if the user is empty, which is none.
    pub async fn log_out(&self, user: impl Into<RunUser>) -> Result<(), McpError> {
        let user = user.into();
        if user.as_str().is_empty() {
            return Err(McpError::invalid_config(&self.name, "`log_out` requires a user"));
        }
        let ended = self.server(user.clone()).log_out().await;
        let place = self.places().by_user.remove(&Some(user));
        drop(place);
        ended
    }

    fn map(&self, tools: McpTools) -> McpTools {
        self.mappings.iter().fold(tools, |tools, map| map(tools))
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the place of a user, and makes room for it if there is none. A connection that was let go and is still in use is taken again.
    fn place(&self, user: Option<&RunUser>) -> Result<(Tools, Option<Arc<ConnectionManager>>), McpError> {
        let user = user.cloned();
        loop {
            // Dropped without the lock, because it can close a connection.
            let released = {
                let mut places = self.places();
                places.by_user.retain(|_, place| place.is_open());
                places.uses += 1;
                let (last_use, has_room) = (places.uses, places.by_user.len() < self.max_users);
                if has_room || places.by_user.contains_key(&user) {
                    let place = places.by_user.entry(user).or_default();
                    place.last_use = last_use;
                    let tools = Arc::clone(place.tools.get_or_insert_default());
                    return Ok((tools, place.released.upgrade()));
                }
                places.release()
            };
            if released.is_none() {
                let max = self.max_users;
                let problem =
                    format!("is in use by {max} users, which is the limit; raise `McpUserTools::max_users`");
                return Err(McpError::unreachable(&self.name, problem));
            }
        }
    }

    fn login_name(&self) -> String {
        sanitize_tool_name(&format!("log_in_to_{}", self.name)).into_owned()
    }

    /// Returns the tool that stands for those of the server until its user has logged in at a page.
    fn login_tool(&self, page: LoginPage) -> Result<ToolSet, Box<dyn Error + Send + Sync>> {
        let (name, page) = (self.name.clone(), Arc::new(page));
        let log_in = move |_: Map<String, Value>, context: ToolContext| {
            let (name, page) = (name.clone(), Arc::clone(&page));
            async move {
                page.show(&name, context.asker()).await?;
                Ok::<_, ToolError>(
                    "The user has logged in. If that is so, the tools of the server are there from now on.",
                )
            }
        };
        let description = format!(
            "Lets the user log in to the server `{}`, which has further tools. Call it if they could help; the user decides.",
            truncate_name(&self.name)
        );
        let definition = ToolDefinition::new(self.login_name())
            .with_description(description)
            .with_parameters(json!({ "type": "object", "properties": {} }));
        Ok(ToolSet::new([Arc::new(DynamicTool::from_definition(definition, log_in)?) as Arc<dyn Tool>])?)
    }

    /// Returns the page where a user logs in.
    fn page(&self, user: Option<&RunUser>) -> Option<LoginPage> {
        LoginPage::of(self.server(user?.clone()).config().ok()?)
    }
}

fn needs_login(provided: &Result<ToolSet, McpError>) -> bool {
    provided.as_ref().is_err_and(|error| error.kind() == McpErrorKind::LoginRequired)
}

impl ToolProvider for McpUserTools {
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(async {
            let user = request.context().get::<RunUser>().filter(|user| !user.as_str().is_empty());
            let login_name = self.login_name();
            let is_login = |call: &ToolCall| *call.name == *login_name;
            let reply = request.messages().last().and_then(Message::as_assistant);
            let calls = reply.map_or(&[][..], |reply| &reply.tool_calls);
            // Where a call is executed apart from its run, providers are asked without messages.
            let is_apart = request.messages().is_empty();
            let is_logging_in = is_apart || calls.iter().any(is_login);
            let (page, is_required) =
                (self.page(user), self.server.config().is_ok_and(|one| !one.is_optional));
            let provided = McpUserTools::tools(self, user).await;
            if let Some(page) = page.as_ref().filter(|_| is_required && needs_login(&provided)) {
                // The tools are asked for again after each answer: one that is there by now has come too early.
                for _ in 0..MAX_LOGIN_QUESTIONS {
                    if page.show(&self.name, request.asker()).await.is_err() {
                        break;
                    }
                }
            }
            match (provided, page) {
                // Open calls of its tools stay open, instead of ending as those of tools that are unknown.
                (provided, Some(page)) if needs_login(&provided) && (calls.is_empty() || is_logging_in) => {
                    Ok(self.login_tool(page)?)
                }
                // The user has logged in while the call waited, which has the same tool afterwards.
                (Ok(tools), Some(page)) if is_logging_in => {
                    Ok(tools.filter(|tool| tool.name() != login_name).union(self.login_tool(page)?)?)
                }
                (provided, _) => Ok(provided?),
            }
        })
    }

    /// Returns `true`: a server may change its tools at any time.
    fn is_dynamic(&self) -> bool {
        true
    }

    /// Returns `true`: a server must not end a run with the name of a tool.
    fn has_untrusted_names(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Shows only the name of the server.
impl fmt::Debug for McpUserTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpUserTools").field("server", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
    use tokio::sync::Notify;

    use super::*;

    /// The connections of a server.
    #[derive(Default)]
    struct Connections {
        opened: AtomicUsize,
        closed: AtomicUsize,
        has_closed: Notify,
    }

    impl Connections {
        fn open(&self) -> usize {
            self.opened.load(Ordering::SeqCst) - self.closed.load(Ordering::SeqCst)
        }

        async fn wait_until_open(&self, count: usize) {
            while self.open() > count {
                self.has_closed.notified().await;
            }
        }
    }

    async fn serve(stream: DuplexStream, connections: Arc<Connections>) {
        let (reader, mut writer) = tokio::io::split(stream);
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            let Some(id) = message.get("id") else { continue };
            let answer = match message["method"].as_str().unwrap() {
                "initialize" => json!({ "result": {
                    "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "many", "version": "1" },
                } }),
                "tools/list" => {
                    json!({ "result": { "tools": [{ "name": "read", "inputSchema": { "type": "object" } }] } })
                }
                _ => json!({ "error": { "code": -32601, "message": "not found" } }),
            };
            let mut answer = answer.as_object().unwrap().clone();
            answer.extend([("jsonrpc".to_owned(), json!("2.0")), ("id".to_owned(), id.clone())]);
            writer.write_all(format!("{}\n", Value::Object(answer)).as_bytes()).await.unwrap();
        }
        connections.closed.fetch_add(1, Ordering::SeqCst);
        connections.has_closed.notify_one();
    }

    fn pool(max_users: usize) -> (McpUserTools, Arc<Connections>) {
        let connections = Arc::new(Connections::default());
        let opening = Arc::clone(&connections);
        let server = McpServer::connector("many", move || {
            let (client, server) = tokio::io::duplex(1 << 16);
            opening.opened.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(server, Arc::clone(&opening)));
            async { Ok(tokio::io::split(client)) }
        });
        (server.per_user().max_users(max_users), connections)
    }

    async fn tools(pool: &McpUserTools, user: usize) -> Result<ToolSet, McpError> {
        pool.tools(Some(&format!("user {user}").into())).await
    }

    #[tokio::test]
    async fn the_least_recently_used_connections_are_closed() {
        let (pool, connections) = pool(10);
        for user in 0..1000 {
            tools(&pool, user).await.unwrap();
            tools(&pool, 0).await.unwrap();
            assert!(pool.places().by_user.len() <= 10);
        }
        assert_eq!(connections.opened.load(Ordering::SeqCst), 1000);
        connections.wait_until_open(10).await;
        let users: HashSet<_> = pool.places().by_user.keys().flatten().map(ToString::to_string).collect();
        let expected = (991..1000).chain([0]).map(|user| format!("user {user}"));
        assert_eq!(users, expected.collect());
        drop(pool);
        connections.wait_until_open(0).await;
    }

    #[tokio::test]
    async fn connections_in_use_are_not_closed() {
        let (pool, connections) = pool(2);
        let [first, second] = [tools(&pool, 1).await.unwrap(), tools(&pool, 2).await.unwrap()];
        let error = tools(&pool, 3).await.unwrap_err().to_string();
        let expected =
            "the MCP server `many` is in use by 2 users, which is the limit; raise `McpUserTools::max_users`";
        assert_eq!(error, expected);
        // A further run of a user has the same connection.
        drop(tools(&pool, 1).await.unwrap());
        assert_eq!(connections.open(), 2);
        drop(second);
        tools(&pool, 3).await.unwrap();
        connections.wait_until_open(2).await;
        assert_eq!(connections.opened.load(Ordering::SeqCst), 3);
        assert_eq!(first.len(), 1);
    }

    #[tokio::test]
    async fn users_that_cannot_connect_take_no_place() {
        let server = McpServer::connector("closed", || async {
            Err::<(DuplexStream, DuplexStream), _>(std::io::Error::other("closed"))
        });
        let pool = server.per_user().max_users(2);
        for user in 0..5 {
            let error = tools(&pool, user).await.unwrap_err().to_string();
            assert_eq!(error, "the MCP server `closed` cannot be reached: closed");
        }
    }
}
