//! A server that runs as a child process.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::oneshot;

/// Receives the lines that the server writes to its stderr.
pub(super) type LineHook = Arc<dyn Fn(&str) + Send + Sync>;

/// The longest time for a process to exit after its input was closed, and again after it was asked to terminate.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval at which an ending process group is checked.
#[cfg(unix)]
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The longest line of stderr that is passed on as one, in bytes.
const MAX_STDERR_LINE_BYTES: u64 = 1 << 16;

/// The variables that every child inherits, as in the official SDKs. None of them is a secret, and most programs need
/// them to start.
#[cfg(not(windows))]
const INHERITED_VARIABLES: [&str; 6] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];
#[cfg(windows)]
const INHERITED_VARIABLES: [&str; 12] = [
    "APPDATA",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "USERNAME",
    "USERPROFILE",
];

/// The command of a process.
#[derive(Clone)]
pub(super) struct ProcessConfig {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) env: BTreeMap<OsString, OsString>,
    pub(super) directory: Option<PathBuf>,
    pub(super) on_stderr: Option<LineHook>,
}

/// The two directions of a connection.
pub(super) struct Pipes {
    pub(super) reader: Pin<Box<dyn AsyncRead + Send>>,
    pub(super) writer: Pin<Box<dyn AsyncWrite + Send>>,
    /// Dropped with the writer, which ends the process.
    pub(super) process: Option<oneshot::Sender<()>>,
}

impl ProcessConfig {
    pub(super) fn new(program: &OsStr) -> Self {
        Self {
            program: program.to_owned(),
            args: Vec::new(),
            env: BTreeMap::new(),
            directory: None,
            on_stderr: None,
        }
    }

    /// Starts the process.
    pub(super) fn start(&self) -> io::Result<Pipes> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear().kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        command
            .envs(INHERITED_VARIABLES.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.envs(&self.env);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let stderr = if self.on_stderr.is_some() { Stdio::piped() } else { Stdio::null() };
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).spawn()?;
        let mut group = ProcessGroup::new(child);
        let (Some(stdin), Some(stdout)) = (group.leader.stdin.take(), group.leader.stdout.take()) else {
            return Err(io::Error::other("its stdin or stdout is not available"));
        };
        if let (Some(stderr), Some(on_stderr)) = (group.leader.stderr.take(), self.on_stderr.clone()) {
            tokio::spawn(forward_stderr(stderr, on_stderr));
        }
        let (dropped, closed) = oneshot::channel();
        tokio::spawn(reap(group, closed));
        Ok(Pipes { reader: Box::pin(stdout), writer: Box::pin(stdin), process: Some(dropped) })
    }
}

/// Ends the process and its descendants after its input was closed, or after it exited by itself, so that no process and no
/// zombie remains.
async fn reap(mut group: ProcessGroup, mut input_closed: oneshot::Receiver<()>) {
    tokio::select! {
        _ = group.leader.wait() => {}
        _ = &mut input_closed => drop(tokio::time::timeout(SHUTDOWN_TIMEOUT, group.leader.wait()).await),
    }
    group.end().await;
}

/// A child process and, on Unix, its descendants unless they left its process group. All are killed when this is dropped,
/// such as when the runtime shuts down.
struct ProcessGroup {
    leader: Child,
    /// `None` once the group has ended, because another group can have its id then.
    #[cfg(unix)]
    id: Option<rustix::process::Pid>,
}

#[cfg(unix)]
impl ProcessGroup {
    /// The child must have been started as the leader of a group.
    fn new(leader: Child) -> Self {
        let id = leader.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
        Self { leader, id }
    }

    /// Asks the remaining processes to terminate, and kills them if they do not.
    async fn end(mut self) {
        use rustix::process::{Signal, kill_process_group, test_kill_process_group};

        let Some(id) = self.id else { return };
        // The id stays reserved as long as the group has members.
        if kill_process_group(id, Signal::TERM).is_ok() {
            let ended = async {
                while self.leader.try_wait().is_ok_and(|status| status.is_none())
                    || test_kill_process_group(id).is_ok()
                {
                    tokio::time::sleep(CHECK_INTERVAL).await;
                }
            };
            if tokio::time::timeout(SHUTDOWN_TIMEOUT, ended).await.is_err() {
                let _ = kill_process_group(id, Signal::KILL);
                let _ = self.leader.wait().await;
            }
        }
        self.id = None;
    }
}

#[cfg(unix)]
impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let _ = rustix::process::kill_process_group(id, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(not(unix))]
impl ProcessGroup {
    fn new(leader: Child) -> Self {
        Self { leader }
    }

    /// Kills the process unless it has exited.
    async fn end(mut self) {
        let _ = self.leader.kill().await;
    }
}

async fn forward_stderr(stderr: ChildStderr, on_stderr: LineHook) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    while (&mut reader)
        .take(MAX_STDERR_LINE_BYTES)
        .read_until(b'\n', &mut line)
        .await
        .is_ok_and(|read| read > 0)
    {
        on_stderr(&String::from_utf8_lossy(line.trim_ascii_end()));
        line.clear();
    }
}
