//! One call of a tool: sends the request, waits for the response, and retries if the connection is lost.

use std::sync::Arc;

use rmcp::model::CallToolResult;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tool_core::tool::{AskError, Progress};
use tool_core::{ToolContext, ToolError, ToolOutput};

use super::connection_manager::ConnectionManager;
use super::input::{Given, MAX_ROUNDS, Round};
use super::login_page::LoginPage;
use super::open_call::{CallError, Reply, WaitingCall, call_once};
use super::output::into_output;
use super::resources::use_resources;
use super::task::Task;
use super::{McpError, McpErrorKind, McpTool};

/// Calls the tool.
///
/// A call whose server asks for input waits for the answers of the user, and is then sent again with them.
///
/// A call that requires a login is sent again after the login. A call that was not executed is sent again once on a new connection, and so is a
/// call whose outcome is unknown unless its tool is `at_most_once`.
///
/// # Errors
///
/// Returns an error if the tool fails, or if the server is unavailable, rejects the call, does not respond in time, or
/// disconnects.
pub(super) async fn call(
    manager: Arc<ConnectionManager>,
    tool: McpTool,
    arguments: Map<String, Value>,
    context: ToolContext,
) -> Result<ToolOutput, ToolError> {
    let config = manager.config();
    config.check_user(&context).map_err(ToolError::failed)?;
    if tool.is_of_client() {
        return read_resources(&manager, &tool, &arguments, &context).await;
    }
    let asker = context.asker();
    let (mut given, mut waiting) = (Given::default(), WaitingCall::new(manager.held(), config, &context));
    for number in 1..=MAX_ROUNDS {
        // Recorded, so that the server is not asked again when the call goes on with the answers.
        let sent = async {
            let reply = match waiting.call.take() {
                Some(call) => call.reply(config, &tool).await,
                None => send(&manager, &tool, &arguments, &given, context.progress()).await,
            };
            let sent = match reply {
                Err(error) => LoginPage::for_call(config, &context, error.into()).map(Sent::Login),
                Ok(Reply::Result(result)) => return Err(End::Result(result)),
                Ok(Reply::Pages(pages)) => Round::of_pages(&config.name, number, pages).map(Sent::Pages),
                Ok(Reply::Question(mut call, asked)) => {
                    call.round = number;
                    let round = Round::of_question(&config.name, call.questions, asked);
                    waiting.call = Some(call);
                    round.map(Sent::Question)
                }
                Ok(Reply::Input { required, is_first }) => {
                    Round::new(&config.name, required, is_first).map(Sent::Input)
                }
                Ok(Reply::Task(created)) => Task::new(&config.name, created).map(Sent::Task),
            };
            let sent = sent.map_err(|error| End::Failed(ToolError::failed(error)))?;
            Ok(Recorded { server: config.identity(), sent })
        };
        match asker.once(&format!("round {number}"), sent).await {
            Ok(recorded) if recorded.server != config.identity() => {
                return Err(ToolError::failed(McpError::other_server(&config.name)));
            }
            Ok(Recorded { sent: Sent::Input(round), .. }) => given.answer(round, &tool, asker).await?,
            Ok(Recorded { sent: Sent::Pages(round), .. }) => given.show_pages(round, &tool, asker).await?,
            Ok(Recorded { sent: Sent::Login(page), .. }) => page.show(&config.name, asker).await?,
            Ok(Recorded { sent: Sent::Question(round), .. }) => {
                let answer = waiting.hold_while(given.answer_one(round, &tool, asker)).await?;
                match &mut waiting.call {
                    Some(call) => call.answer(number, answer),
                    // Its process or its connection has ended.
                    None if tool.offered().policy().at_most_once => {
                        let lost = McpError::connection_lost(&config.name, tool.original_name());
                        return Err(ToolError::failed(lost));
                    }
                    None => {}
                }
            }
            Ok(Recorded { sent: Sent::Task(task), .. }) => {
                let result = task.result(&manager, &tool, &context).await?;
                return into_output(result, config.max_output_chars, &config.redactor);
            }
            Err(End::Result(result)) => {
                return into_output(result, config.max_output_chars, &given.redactor(config));
            }
            Err(End::Failed(error)) => return Err(error),
        }
    }
    let problem = format!("asked for input more than {MAX_ROUNDS} times during one call");
    Err(ToolError::failed(McpError::invalid_response(&config.name, problem)))
}

/// Cancels the task of a call that will not be continued, if it has one.
pub(super) fn give_up(manager: &Arc<ConnectionManager>, context: &ToolContext) {
    let Ok(runtime) = Handle::try_current() else { return };
    let (manager, context) = (Arc::clone(manager), context.clone());
    runtime.spawn(async move {
        for number in 1..=MAX_ROUNDS {
            let unknown = async { Err(End::Failed(ToolError::failed("the call has not sent this round"))) };
            match context.asker().once::<Recorded, End>(&format!("round {number}"), unknown).await {
                Ok(Recorded { server, sent: Sent::Task(task) }) if server == manager.config().identity() => {
                    return task.cancel(&manager).await;
                }
                Ok(Recorded { sent: Sent::Task(_), .. }) | Err(_) => return,
                Ok(_) => {}
            }
        }
    });
}

async fn read_resources(
    manager: &ConnectionManager,
    tool: &McpTool,
    arguments: &Map<String, Value>,
    context: &ToolContext,
) -> Result<ToolOutput, ToolError> {
    let (config, mut logins, asker) = (manager.config(), 0, context.asker());
    for number in 1..=MAX_ROUNDS {
        let connection = manager.verified().await.map_err(ToolError::failed)?;
        let error = match use_resources(config, &connection, tool, arguments).await {
            Ok(output) => return output,
            Err(error) => error,
        };
        let is_lost = matches!(error.kind(), McpErrorKind::ConnectionLost | McpErrorKind::Unreachable);
        if is_lost && number == 1 && manager.is_reconnected(connection.number()).await {
            continue;
        }
        let Err(error) = config.log_in(error, &mut logins, true).await else { continue };
        let started = async { LoginPage::for_call(config, context, error).map_err(ToolError::failed) };
        asker.once(&format!("login {number}"), started).await?.show(&config.name, asker).await?;
    }
    Err(ToolError::failed(McpError::not_logged_in(&config.name)))
}

/// What a server has returned that is no result. It is sent to no other server, whose name can be the same in another process.
#[derive(Serialize, Deserialize)]
struct Recorded {
    server: String,
    sent: Sent,
}

#[derive(Serialize, Deserialize)]
enum Sent {
    Input(Round),
    /// Pages to be opened before the call is sent again.
    Pages(Round),
    /// A question whose call waits at the server for the answer.
    Question(Round),
    /// A login, after which the call is sent again.
    Login(LoginPage),
    Task(Task),
}

/// The end of a call that asks for nothing more.
enum End {
    Result(CallToolResult),
    Failed(ToolError),
}

impl From<AskError> for End {
    fn from(error: AskError) -> Self {
        Self::Failed(error.into())
    }
}

/// Sends a request until it has a reply. A call whose state the server no longer accepts is sent again without it.
async fn send(
    manager: &ConnectionManager,
    tool: &McpTool,
    arguments: &Map<String, Value>,
    given: &Given,
    progress: &Progress,
) -> Result<Reply, CallError> {
    let config = manager.config();
    let mut connection = manager.verified().await.map_err(CallError::Failed)?;
    let mut logins = 0;
    let first = loop {
        match call_once(config, &connection, tool, arguments, given, progress).await {
            Err(CallError::Failed(error)) if error.kind() == McpErrorKind::LoginRequired => {
                config.log_in(error, &mut logins, true).await.map_err(CallError::Failed)?;
                // The server can have changed its tools meanwhile.
                connection = manager.verified().await.map_err(CallError::Failed)?;
            }
            Err(CallError::StateExpired(_)) if !tool.offered().policy().at_most_once => {
                break call_once(config, &connection, tool, arguments, &Given::default(), progress).await;
            }
            called => break called,
        }
    };
    let is_repeatable = match &first {
        Err(CallError::NotExecuted(_)) => true,
        Err(CallError::OutcomeUnknown(_)) => !tool.offered().policy().at_most_once,
        _ => false,
    };
    if is_repeatable && manager.is_reconnected(connection.number()).await {
        let connection = manager.verified().await.map_err(CallError::Failed)?;
        return call_once(config, &connection, tool, arguments, given, progress).await;
    }
    first
}
